"""The playground as a person uses it: in a browser, from a file and over HTTP."""

import json
import re
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
from pages import cost, drop, settled, text, until

import routing_agents
from helpers import CVRP_TEXT, OP_TEXT, ROOT, SQUARE
from routing_gym import data
from routing_gym.arrays import select
from routing_gym.problems import make_problem
from routing_gym.solvers import make_solver

PROBLEMS = ("TSP", "CVRP", "SDVRP", "OP", "PCTSP", "SPCTSP", "VRPTW")  # those that the page knows
FIELDS = {"expected_prize": "prize", "real_prize": "realPrize", "max_length": "maxLength"}
FIELDS |= {"ready_time": "readyTime", "due_time": "dueTime", "service_time": "serviceTime"}
SOLVE = """([problem, customers, rows]) => loadBuffer(nearestModel(problem, customers)).then((buffer) => {
  const model = new attention.AttentionModel(buffer);
  return rows.map((row) => {
    const instance = asInstance({ problem, ...row });
    return search.decode(model, instance, model.encode(rules.observeStatic(instance)));
  });
})"""
AS_INSTANCE = """() => { window.asInstance = (row) => {
  for (const key of ["coords", "prize", "penalty", "realPrize", "distances", "readyTime", "dueTime", "serviceTime"])
    if (row[key]) row[key] = Float32Array.from(row[key]);
  return row;
} }"""


ROOMIEST = """() => { // the place farthest from all nodes
  const { coords } = page.state.instance, gap = ([x, y]) =>
    Math.min(...page.map.nodes.map((_, i) => Math.hypot(coords[2 * i] - x, coords[2 * i + 1] - y)));
  const places = [];
  for (let x = 0.05; x < 1; x += 0.05) for (let y = 0.05; y < 1; y += 0.05) places.push([x, y]);
  return places.reduce((a, b) => (gap(b) > gap(a) ? b : a));
}"""
FOCUSED = "(({ id, name, className }) => id || name || className.baseVal || '')(document.activeElement)"
TOO_LOW = """() => [...document.querySelectorAll("button, select, input:not(.unseen), .segments span")]
  .filter((e) => e.offsetParent && e.getBoundingClientRect().height < 44 && !["checkbox", "radio"].includes(e.type))
  .map((e) => e.id || e.outerHTML.slice(0, 80))"""


def js_rows(instance):
    """The rows of a batch of instances as the page's scripts take them."""
    fields = {FIELDS.get(key, key): value for key, value in vars(instance).items() if value is not None}

    def plain(value):
        return value.ravel().tolist() if value.ndim else value.item()

    return [{key: plain(value[row]) for key, value in fields.items()} for row in range(len(instance.coords))]


@pytest.mark.parametrize("name", PROBLEMS)
def test_greedy_tours_are_those_of_solve(open_page, name):
    """For 100 nodes both take the weights of the nearest size: those of 100, where near nodes count, or of 50."""
    page = open_page("#problem=TSP&preset=4")
    page.evaluate(AS_INSTANCE)
    for size in (20, 50, 100):
        problem = make_problem(name, size)
        instance = problem.generate(np.random.default_rng(size), 8 if size < 100 else 3)
        solved = routing_agents.load(f"{name}-{size}").solve_batch(problem, instance).actions.tolist()
        found = page.evaluate(SOLVE, [name, size, js_rows(instance)])
        assert found == [row[: len(tour)] for row, tour in zip(solved, found, strict=True)]
        left = {node for row, tour in zip(solved, found, strict=True) for node in row[len(tour) :]}
        assert left <= {0}  # with which rows are padded


def test_short_tours_of_op_are_those_of_solve(open_page):
    """The depot may be chosen at once; it is not near to itself, since no vehicle drives."""
    page = open_page("#problem=TSP&preset=4")
    page.evaluate(AS_INSTANCE)
    problem = make_problem("OP", 100, max_length=0.5)
    instance = problem.generate(np.random.default_rng(1), 3)
    solved = routing_agents.load("OP-100").solve_batch(problem, instance).actions.tolist()
    found = page.evaluate(SOLVE, ["OP", 100, js_rows(instance)])
    assert found == [row[: len(tour)] for row, tour in zip(solved, found, strict=True)]
    assert all(len(tour) > 1 for tour in found)


@pytest.mark.parametrize("metric", ["EUC_2D", "CEIL_2D", "ATT", "GEO"])
def test_files_are_scaled_and_scored_as_in_python(open_page, tmp_path, metric):
    rng = np.random.default_rng(5)
    points = "\n".join(f"{i} {x:.2f} {y:.2f}" for i, (x, y) in enumerate(rng.uniform(-80, 80, (12, 2)), start=1))
    path = tmp_path / "twelve.tsp"
    path.write_text(
        f"NAME : a\nTYPE : TSP\nDIMENSION : 12\nEDGE_WEIGHT_TYPE : {metric}\nNODE_COORD_SECTION\n{points}\n"
    )
    check_file(open_page, path)


@pytest.mark.parametrize("content", [CVRP_TEXT, OP_TEXT, SQUARE], ids=["CVRP", "OP", "TSP"])
def test_files_of_each_kind_are_read_as_in_python(open_page, tmp_path, content):
    path = tmp_path / "some.vrp"
    path.write_bytes(content.encode())
    check_file(open_page, path)


def check_file(open_page, path):
    expected = data.read_instance(path)
    page = open_page("#problem=TSP&preset=4")
    page.set_input_files("#file", path)
    until(page, "page.state.source.kind === 'file'")
    found = page.evaluate(
        "(() => { const plain = (x) => (x && x.buffer ? [...x] : x); "
        "return Object.fromEntries(Object.entries(page.state.instance).map(([k, v]) => [k, plain(v)])); })()"
    )
    (row,) = js_rows(expected.instance)
    if expected.metric == "GEO":  # whose sines may differ in the last bit
        assert {key: found[key] for key in row} == {key: pytest.approx(value, abs=2e-6) for key, value in row.items()}
    else:
        assert {key: found[key] for key in row} == row
    assert found["file"]["distances"] == expected.distances.ravel().tolist()
    actions = page.evaluate("page.state.shown.actions")
    assert cost(page) == expected.cost(np.array(actions))


def test_a_csv_file_of_a_plane_is_read_as_in_python(open_page):
    """From the file, and again from its address; decimal commas and quoted cells are pasted."""
    path = ROOT / "examples" / "cities.csv"
    columns, _ = data.read_csv(path)
    page = open_page("#problem=TSP&preset=4")
    page.set_input_files("#file", path)
    until(page, "page.state.source.kind === 'file'")
    expected = data.from_columns("TSP", columns).cost(np.array(page.evaluate("page.state.shown.actions")))
    assert cost(page) == pytest.approx(expected, abs=1e-3)
    assert cost(open_page(page.evaluate("address.write(page.state)"))) == cost(page)
    page.evaluate(
        """() => { const clipboardData = new DataTransfer();
        clipboardData.setData("text/plain", '"Name";"X";Y\\n"a";0;0\\nb;1,5;0\\n\\nc;1,5;2\\n');
        document.body.dispatchEvent(new ClipboardEvent("paste", { clipboardData, bubbles: true })); }"""
    )
    until(page, "page.map.nodes.length === 3")
    assert cost(page) == 6


MALFORMED = {
    "empty": ("", "ends without TYPE"),
    "nonsense": ("<img src=x onerror=alert(1)>", "expected a line"),
    "too large": (SQUARE.replace("DIMENSION : 4", "DIMENSION : 10000"), "10,000 nodes; this page goes up to 200"),
    "truncated": (SQUARE.split("3 10")[0], "node 3 of 4 is missing"),
    "bad number": (SQUARE.replace("2 10 0", "2 ten 0"), 'line 7: coordinate: found "ten"'),
    "one node": (SQUARE.replace("DIMENSION : 4", "DIMENSION : 1"), "at least 2"),
    "demand": (CVRP_TEXT.replace("4 5 \r", "4 6 \r"), "demand 6 exceeds the CAPACITY 5"),
    "metric": (SQUARE.replace("EUC_2D", "EXPLICIT"), "EXPLICIT"),
    "column": ("x,y,demand\n0,0,1\n", 'line 1: found the column "demand", expected x and y'),
    "no column": ("x;id\n0;1\n", "line 1: found the columns x, id, expected x and y"),
    "cells": ("x,y\n1,2\n3\n", 'line 3: found "3", expected 2 cells'),
    "cell": ("x,y\n1,2\n3,a\n", 'line 3: coordinate: found "a", expected a number'),
    "windows": (SQUARE.replace("EOF", "TIME_WINDOW_SECTION\n1 2 3\n"), "is not supported"),
}


def test_a_malformed_file_leaves_the_map_as_it_was(open_page):
    """The reason is on the page, and the file's name is text there."""
    page = settled(open_page("#problem=TSP&preset=4"))
    before = page.evaluate("[...page.state.instance.coords]")
    for case, (content, reason) in MALFORMED.items():
        page.evaluate("page.message(null)")
        drop(page, f"<b onmouseover=alert(1)>{case}</b>.tsp", content)
        page.wait_for_selector("#message:visible")
        assert f"<b onmouseover=alert(1)>{case}</b>.tsp: " in text(page, "#message")
        assert reason in text(page, "#message")
        assert page.evaluate("[...page.state.instance.coords]") == before
    assert page.evaluate("document.querySelectorAll('#message b, #message img').length") == 0


def test_nodes_in_one_place_and_on_a_line(open_page):
    """Cities at 0, 5, 5 and 10 on a line: there and back is 20. All in one place: 0."""
    page = open_page()
    rows = "1 0 0\n2 10 0\n3 5 0\n4 5 0\n"
    line = f"{SQUARE.split('1 0 0')[0]}{rows}EOF\n"
    drop(page, "line.tsp", line)
    until(page, "page.state.source.kind === 'file'")
    assert text(page, "#cost") == "20"
    drop(page, "point.tsp", line.replace("10 0", "0 0").replace("5 0", "0 0"))
    until(page, "page.state.instance.file.points[1][0] === 0")
    assert text(page, "#cost") == "0"


def test_overruling_the_model(open_page):
    page = settled(open_page("#problem=TSP&preset=1&step=6"))
    model = page.evaluate("page.state.model.actions")
    step = page.evaluate("page.state.step")
    other = page.evaluate("[...page.state.trace.steps[6].mask].lastIndexOf(1)")
    other = other if other != model[step] else page.evaluate("[...page.state.trace.steps[6].mask].indexOf(1)")
    page.locator(f"#map .node >> nth={other}").click()
    shown = page.evaluate("page.state.shown.actions")
    assert shown[:7] == [*model[:6], other]
    assert sorted(shown) == list(range(20))
    costs = page.evaluate(
        "[page.state.shown, page.state.model].map((t) => rules.score(page.state.instance, t.actions))"
    )
    verdict = text(page, "#verdict")
    assert f"Your tour: {costs[0]:.3f}" in verdict
    assert f": {costs[1]:.3f}. " in verdict
    assert f"{abs(costs[0] - costs[1]):.3f}" in verdict
    assert page.locator("#draw-mode").is_visible()
    assert page.locator("#remove-mode").is_visible()
    page.click("#undo")
    assert page.evaluate("page.state.shown.actions") == model


def test_a_forbidden_node_says_why(open_page):
    page = settled(open_page("#problem=TSP&preset=1&step=6"))
    visited = page.evaluate("page.state.shown.actions[0]")
    page.locator(f"#map .node >> nth={visited}").click(force=True)  # marked as disabled for those who do not see
    assert f"city {visited} is already visited" in text(page, ".tip")
    assert page.evaluate("page.state.shown.by") == "model"


def test_adding_moving_and_removing_nodes(open_page):
    page = settled(open_page("#problem=CVRP&preset=1"))
    box = page.locator("#map").bounding_box()
    free = page.evaluate(ROOMIEST)
    margin = page.evaluate("MARGIN")
    side = box["width"] - 2 * margin
    at = (box["x"] + margin + free[0] * side, box["y"] + box["height"] - margin - free[1] * side)
    page.mouse.click(*at)
    until(page, "page.map.nodes.length === 22")
    before = page.evaluate("page.state.shown.actions")
    assert 21 in before
    page.mouse.move(*at)
    page.mouse.down()
    page.mouse.move(at[0] - 40, at[1] - 20, steps=4)
    page.mouse.up()
    until(page, f"Math.abs(page.state.instance.coords[42] - {free[0] - 40 / side}) < 0.01")
    page.click("#remove-mode")
    page.mouse.click(at[0] - 40, at[1] - 20)
    until(page, "page.map.nodes.length === 21")
    page.locator("#map .node >> nth=0").click()
    assert "The depot cannot be removed" in text(page, "#message")


HASHES = [
    "#problem=TSP&preset=1&step=4&view=encoder&layer=2&head=3&speed=2&theme=dark",
    "#problem=SPCTSP&random=17.5&step=3&view=glimpse&layer=3&head=0&speed=1",
    "#problem=TSP&preset=1&snapshot=2&step=20&view=pointer&layer=3&head=0&speed=1",
    "#problem=CVRP&nodes=0.5_0.5_0~0.1_0.2_3~0.9_0.8_2~0.3_0.7_4&limit=6&tour=1.0.3.2.0&by=you&step=2&view=pointer&layer=3&head=0&speed=1",
]  # fmt: skip


@pytest.mark.parametrize("hash_", HASHES)
def test_the_address_holds_the_whole_state(open_page, hash_):
    page = settled(open_page(hash_))
    assert dict(p.split("=") for p in page.evaluate("address.write(page.state)")[1:].split("&")) == dict(
        p.split("=") for p in hash_[1:].split("&")
    )


def test_an_instance_of_ones_own_comes_back_from_its_address(open_page):
    """Moved, so that it is neither preset nor random; then opened again from what the page wrote."""
    page = settled(open_page("#problem=TSP&preset=4"))
    state = "[address.write(page.state), page.state.shown.actions, [...page.state.instance.coords]]"
    for problem in PROBLEMS:
        page.evaluate(f"location.hash = 'problem={problem}&preset=3'")
        until(page, f"page.state.problem === '{problem}' && page.state.source.index === 3")
        page.evaluate("page.move(3, 0.123456, 0.9, true)")
        until(page, "page.state.source.kind === 'own'")
        first = page.evaluate(state)
        page.evaluate("location.hash = 'problem=TSP&preset=4'")
        until(page, "page.state.source.index === 4")
        page.evaluate(f"location.hash = '{first[0]}'")
        until(page, "page.state.source.kind === 'own'")
        assert page.evaluate(state) == first


def test_a_file_comes_back_from_its_address(open_page):
    page = open_page()
    drop(page, "a&b=<i>.oplib", OP_TEXT.replace("NAME : line\n", ""))
    until(page, "page.state.source.kind === 'file'")
    hash_ = page.evaluate("address.write(page.state)")
    again = settled(open_page(hash_))
    assert again.evaluate("page.state.instance.file.name") == "a&b=<i>.oplib"
    assert text(again, "#cost") == text(page, "#cost")
    page.evaluate(f"page.state.instance.file.name = '{199 * 'a'}🚚{30000 * 'b'}'")
    cut = settled(open_page(page.evaluate("address.write(page.state)")))
    assert cut.evaluate("page.state.instance.file.name") == 199 * "a" + "🚚"


NODES = {  # valid, to be spoilt below
    "TSP": "0.5_0.5~0.1_0.2",
    "CVRP": "0_0_0~0.5_0.5_3",
    "SDVRP": "0_0_0~0.5_0.5_3",
    "OP": "0_0_0~0.5_0.5_3",
    "PCTSP": "0_0_0_0~0.5_0.5_1_1",
    "SPCTSP": "0_0_0_0_0~0.5_0.5_1_1_1",
}
BAD_HASHES = {
    "#problem=MTSP": "MTSP",
    "#problem=constructor": "expected one of TSP",
    "#problem=TSP&problem=OP": "gives problem twice",
    "#problem=TSP&preset=1e0": "expected a whole number from 0 to 4",
    "#problem=TSP&preset=": "expected a whole number from 0 to 4",
    "#<img src=x onerror=alert(1)>": "does not know",
    "#__proto__=1": "does not know",
    "#" + "x" * 20_001: "longer than any",
    "#problem=TSP&random=201.1": "expected nodes.seed",
    "#problem=TSP&random=20.-1": "expected nodes.seed",
    "#problem=TSP&random=<script>alert(1)</script>": "expected nodes.seed",
    "#problem=TSP&nodes=": "expected a number",
    "#problem=TSP&nodes=0.5_0.5": "takes 2 to 200",
    "#problem=TSP&nodes=" + "~".join(["0_0"] * 201): "takes 2 to 200",
    "#problem=TSP&nodes=0.5_0.5~2_3": "outside the square",
    "#problem=TSP&nodes=0.5_0.5~NaN_1": "NaN",
    "#problem=TSP&nodes=0.5_0.5~0x1_1": "0x1",
    "#problem=TSP&nodes=0.5_0.5~0.1_0.2_3": "3 numbers for node 1; TSP has 2",
    f"#problem=TSP&nodes={NODES['TSP']}&file=a&metric=MAN_2D": "expected one of EUC_2D",
    f"#problem=CVRP&nodes={NODES['CVRP']}": "expected a number",
    f"#problem=CVRP&nodes={NODES['CVRP']}&limit=2": "exceeds the capacity 2",
    f"#problem=CVRP&nodes={NODES['CVRP']}&limit=0": "a limit of 0; expected a whole number of at least 1",
    "#problem=SDVRP&nodes=0_0_0~0.5_0.5_0&limit=0": "a limit of 0; expected a whole number of at least 1",
    "#problem=CVRP&nodes=0_0_0~0.5_0.5_0&limit=0&file=a": "a limit of 0; expected a whole number of at least 1",
    f"#problem=CVRP&nodes={NODES['CVRP']}&limit=5.5": "a limit of 5.5",
    "#problem=CVRP&nodes=0_0_0~0.5_0.5_1.5&limit=5": "node 1 a demand of 1.5",
    "#problem=CVRP&nodes=0_0_1~0.5_0.5_1&limit=5&file=a": "node 0 a demand of 1",
    f"#problem=OP&nodes={NODES['OP']}&limit=-1": "a limit of -1; expected at least 0",
    "#problem=OP&nodes=0_0_0~0.5_0.5_-3&limit=1": "node 1 a prize of -3",
    f"#problem=SDVRP&nodes={NODES['SDVRP']}&limit=5&file=a": "a file of SDVRP; this page reads files of TSP, CVRP, OP",
    "#problem=TSP&preset=1&tour=0.0.1": "already visited",
    "#problem=TSP&preset=1&tour=" + ".".join(["1"] * 2001): "no list of nodes",
    "#problem=TSP&preset=1&tour=<b>": "no list of nodes",
    "#problem=TSP&preset=1&tour=0.1&by=nobody": "expected one of you",
    "#problem=TSP&preset=0&view=secret": "expected one of pointer",
    "#problem=TSP&preset=0&layer=0": "expected a whole number from 1 to 9",
    "#problem=TSP&preset=0&speed=1000": "expected one of 0.5",
    "#problem=TSP&preset=0&snapshot=999": "expected a whole number from 0",
    "#problem=TSP&preset=0&theme=javascript:alert(1)": "expected one of light, dark",
    "#problem=TSP&step=%E0%A4%A": "not readable",
    "#problem=TSP&step=1e99": "expected a whole number from 0 to 2000",
}


def test_a_malformed_address_is_refused(open_page):
    """On load and later: the reason is on the page, and the page works and stays as it was."""
    page = settled(open_page("#problem=ATSP"))
    assert "ATSP" in text(page, "#message")
    assert page.evaluate("page.state.shown.actions.length") == 50
    for hash_, reason in BAD_HASHES.items():
        page.evaluate("page.message(null)")
        page.evaluate("(hash) => { location.hash = hash; }", hash_)
        page.wait_for_selector("#message:visible")
        assert reason in text(page, "#message")
        assert page.evaluate("[page.state.problem, page.state.source.index, page.map.nodes.length]") == ["TSP", 0, 50]


def test_bad_numbers_are_refused(open_page):
    page = settled(open_page("#problem=TSP&preset=4"))
    for value in ("10000", "1", ""):
        page.fill("#random-size", value)
        page.click("#random button")
        assert "expected a whole number from 2 to 200" in text(page, "#message")
    assert page.evaluate("page.map.nodes.length") == 10
    page.fill("#random-size", "33")
    page.click("#random button")
    until(page, "page.map.nodes.length === 33")


def test_search_finds_better_tours_live(open_page):
    """The cost of the best tour never grows, and never is above greedy where greedy tours are among them."""
    page = settled(open_page("#problem=TSP&preset=0"))
    model = page.evaluate("rules.score(page.state.instance, page.state.model.actions)")
    page.check("[name=method][value=starts]", force=True)
    page.uncheck("#symmetries")
    page.click("#search-go")
    page.wait_for_selector("#best-text:has-text('Best of 50 tours')")
    costs = page.evaluate("page.search.history.map(([, cost]) => cost)")
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] <= model
    assert page.evaluate("page.state.best.length") == 50
    assert "Model, search" in text(page, "#compare")


def test_comparison_with_the_optimum(open_page):
    """Ten customers: dynamic programming is no worse than anything else, and the stored solver agrees with it."""
    for name in ("TSP", "CVRP", "OP", "PCTSP"):
        page = settled(open_page(f"#problem={name}&preset=4"))
        page.wait_for_selector("#compare :text('Optimum')")
        scores = dict(page.evaluate("page.compare.entries().map(({ by, score }) => [by, score])"))
        sign = -1 if name == "OP" else 1
        assert min(sign * score for score in scores.values()) == pytest.approx(sign * scores["Optimum"], abs=2e-6)
        solver = next(score for by, score in scores.items() if by.startswith("Solver"))
        assert solver == pytest.approx(scores["Optimum"], abs=2e-6 if name != "CVRP" else 1e-3)
        assert "optimum" in text(page, "#compare")


def test_without_the_optimum_it_is_best_found(open_page):
    page = settled(open_page("#problem=SPCTSP&preset=1"))
    assert "optim" not in text(page, "#compare").lower()
    assert page.locator("#search").is_hidden()
    assert "real prizes show only on the way" in text(page, "#search-note")


def test_the_training_slider(open_page):
    """Random weights make a longer tour than trained ones, on an instance of their size."""
    page = settled(open_page("#problem=TSP&preset=1"))
    costs = []
    for stop in (0, page.evaluate("SNAPSHOTS.length - 1")):
        page.evaluate(
            f"(() => {{ byId('snapshot').value = {stop}; byId('snapshot').dispatchEvent(new Event('input')); }})()"
        )
        until(page, f"page.state.snapshot === {stop}")
        costs.append(cost(page))
    assert costs[0] > 1.3 * costs[1]
    page.click("#learn-off")
    until(page, "page.state.snapshot === null && page.state.modelName === 'tsp-20'")


def test_keyboard_alone(open_page):
    """To the map, to another node, choose it, move it, add one, remove it, play to the end."""
    page = settled(open_page("#problem=TSP&preset=1&step=3"))
    page.keyboard.press("m")
    assert page.evaluate("document.activeElement.classList.contains('node')")
    for key in ("ArrowRight", "ArrowUp", "ArrowLeft", "ArrowDown"):
        page.keyboard.press(key)
    for _ in range(30):  # until a legal node that is not the model's choice has the focus
        node = page.evaluate("page.map.current")
        if page.evaluate(f"page.state.trace.steps[3].mask[{node}] && page.state.shown.actions[3] !== {node}"):
            break
        page.evaluate(f"page.map.goTo({(node + 1) % 20})")
    page.keyboard.press("Enter")
    assert page.evaluate("[page.state.shown.by, page.state.shown.actions[3]]") == ["you", node]
    assert "You chose" in page.locator("#status").text_content()
    page.keyboard.press("Shift+ArrowUp")
    until(page, "page.state.source.kind === 'own'")
    page.keyboard.press("n")
    until(page, "page.map.nodes.length === 21")
    page.keyboard.press("Delete")
    until(page, "page.map.nodes.length === 20")
    page.keyboard.press("Home")
    assert page.evaluate("page.state.step") == 0
    page.keyboard.press(".")
    assert "Step 1 of 20" in page.locator("#status").text_content()
    page.keyboard.press("End")
    assert "complete" in page.locator("#status").text_content()


def test_every_control_is_reached_by_tab(open_page):
    page = settled(open_page("#problem=TSP&preset=4"))
    seen = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        seen.add(page.evaluate(FOCUSED))
    fields = {"problem", "preset", "random-size", "file", "scrub", "speed", "view", "method", "tours", "temperature"}
    assert fields | {"copy-link", "theme", "play", "symmetries", "search-go", "learn-play", "snapshot"} <= seen
    assert any("node" in name for name in seen)


def test_it_plays_on_load_and_not_where_motion_is_unwanted(open_page):
    moving = open_page(motion="no-preference")
    until(moving, "page.state.step > 3")
    still = settled(open_page())
    assert still.evaluate("[page.timer, page.state.finished]") == [None, True]


def test_the_table_mirrors_the_map(open_page):
    page = settled(open_page("#problem=CVRP&preset=4&step=2"))
    page.click("summary")
    until(page, "document.querySelectorAll('#table tbody tr').length === 11")  # filled once it is open
    rows = page.locator("#table tbody tr")
    taken = page.evaluate("page.state.shown.actions.slice(0, 2)")
    assert "already served" in rows.nth(taken[0]).inner_text()
    assert "step 1" in rows.nth(taken[0]).inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [(1280, 900), (390, 844)], ids=["desktop", "phone"])
def test_accessibility_and_pictures(open_page, size, scheme, tmp_path):
    """axe-core finds nothing in any view; nothing is wider than the screen; what a finger taps is 44 pixels high."""
    axe = pytest.importorskip("axe_playwright_python", reason="no axe-core: pip install -e '.[docs]'")
    source = (Path(axe.__file__).parent / "axe.min.js").read_text()
    phone = size[0] < 500
    page = open_page(
        "#problem=PCTSP&preset=1&step=4",
        viewport=dict(zip(("width", "height"), size, strict=True)),
        color_scheme=scheme,
        has_touch=phone,
    )
    settled(page)
    page.click("summary")
    page.evaluate(source)
    for view in ("pointer", "encoder"):  # the glimpse has no control that the encoder lacks
        page.check(f"[name=view][value={view}]", force=True)
        found = page.evaluate("axe.run({ preload: false })")  # else it asks for the style sheet by XMLHttpRequest
        assert [(fault["id"], fault["nodes"][0]["html"]) for fault in found["violations"]] == []
    page.screenshot(path=tmp_path / "page.png", full_page=True)
    assert (tmp_path / "page.png").stat().st_size > 20_000
    for width in (320, 390) if phone else (768, 1181, 1280):
        page.set_viewport_size({"width": width, "height": size[1]})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate("byId('hint').offsetHeight") < 70  # three lines at most
    if phone:
        low = page.evaluate(TOO_LOW)
        assert low == []


def test_over_http(open_page, server):
    """The same page from a server, with its worker."""
    page = settled(open_page("#problem=TSP&preset=1", address=server))
    page.click("#search-go")
    page.wait_for_selector("#best-text:has-text('Best of 1,024 tours')")


def test_presets_hold_valid_instances(site):
    """Their values are those the rules take, and their costs are positive."""
    source = (site / "js" / "presets.js").read_text()
    presets = json.loads(source.partition("const PRESETS = ")[2].rstrip().rstrip(";"))
    assert set(presets) == set(PROBLEMS)
    for name, rows in presets.items():
        for row in rows:
            size = len(row["coords"]) // 2
            assert min(row["coords"]) >= 0
            assert max(row["coords"]) <= 1
            assert all(len(row[key]) == size for key in ("demand", "prize", "penalty", "realPrize") if key in row), name
            assert row["cost"] > 0


def test_greedy_edges_are_the_solvers(open_page):
    page = open_page("#problem=TSP&preset=4")
    page.evaluate(AS_INSTANCE)
    problem = make_problem("TSP", 8)  # beyond ten nearest cities, the solver's order differs
    instance = problem.generate(np.random.default_rng(3), 8)
    tours = page.evaluate(
        "(rows) => rows.map((row) => search.greedyEdges(asInstance({problem: 'TSP', ...row})))", js_rows(instance)
    )
    expected = make_solver("greedy-edge").solve(problem, instance).cost
    assert problem.objective(instance, np.array(tours)) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("name", PROBLEMS)
def test_local_search_keeps_the_rules(open_page, name):
    """Where it is offered, its tours are legal and cost no more than the nearest neighbour's; on 10 random maps."""
    page = open_page("#problem=TSP&preset=4")
    page.evaluate(AS_INSTANCE)
    problem = make_problem(name, 20)
    instance = problem.generate(np.random.default_rng(1), 10)
    found = page.evaluate(
        """([problem, rows]) => rows.map((row) => asInstance({ problem, ...row }))
          .map((one) => search.hasLocalSearch(one) && [search.nearestNeighbour(one), search.localSearch(one)])""",
        [name, js_rows(instance)],
    )
    if name in ("SDVRP", "VRPTW"):
        assert found == [False] * 10
        return
    for row, pair in enumerate(found):
        first, better = (problem.objective(select(instance, [row]), np.array([tour]))[0] for tour in pair)
        assert better <= first + 1e-5


@pytest.mark.parametrize(("problem", "heuristic"), [("TSP", "Greedy edge"), ("CVRP", "Nearest neighbour")])
def test_a_race_ranks_four_methods(open_page, problem, heuristic):
    page = settled(open_page(f"#problem={problem}&random=12.5"))
    page.click("#race-go")
    until(page, "document.querySelectorAll('#race tr').length === 4 && !page.race.worker")
    rows = page.evaluate(
        "[...document.querySelectorAll('#race tr')].map((row) => [...row.children].map((c) => c.textContent))"
    )
    assert {row[0] for row in rows} == {heuristic, "2-opt and Or-opt", "Model, greedy", "Model, search"}
    costs = [float(row[1]) for row in rows]
    assert costs == sorted(costs)
    assert cost(page) == costs[0]  # the best tour is on the map


def test_a_visitor_draws_a_tour_and_shares_it(open_page):
    """The visitor takes city 0, 1, 2, ... and sees both lengths at the end; so does who opens the link."""
    page = settled(open_page("#problem=TSP&random=6.5"))
    page.click("#draw-mode")
    assert page.evaluate("document.querySelectorAll('.lines *, .ghost *').length") == 0
    for node in range(5):  # the last city is forced
        assert "likely" not in page.evaluate(f"describeNode(page.state, {node})")
        page.evaluate(f"page.choose({node})")
    assert page.evaluate("page.state.shown.actions") == [0, 1, 2, 3, 4, 5]
    verdict = text(page, "#verdict")
    assert verdict.startswith("Your tour: ")
    assert re.search(r"the model.s: \d", verdict)
    until(page, "location.hash.includes('by=you')")
    other = settled(open_page(page.evaluate("location.hash")))
    assert text(other, "#verdict") == verdict


def test_the_map_is_saved_as_a_picture(open_page, tmp_path):
    page = settled(open_page("#problem=CVRP&preset=1"))
    with page.expect_download() as download:
        page.click("#save-picture")
    assert download.value.suggested_filename == "cvrp-tour.png"
    pixels = plt.imread(download.value.path())
    assert pixels.shape[:2] == (1260, 1200)
    assert len(np.unique(pixels[:1200].reshape(-1, pixels.shape[2]), axis=0)) > 50  # colours of routes, antialiased


def test_time_windows_are_shown_and_kept(open_page):
    """A node that is moved out of reach gets a later window; a link with a window that nobody can keep is refused."""
    page = settled(open_page("#problem=VRPTW&random=8.3"))
    assert page.locator("#map .windows path").count() == 8
    assert re.search(r"from \d\.\d\d to \d\.\d\d", page.evaluate("describeNode(page.state, 1)"))
    page.evaluate("page.move(1, 1, 1, true)")
    until(page, "page.state.source.kind === 'own'")
    assert page.evaluate("rules.PROBLEMS.VRPTW.unreachable(page.state.instance)") == -1
    nodes = "0_0_0_0_3_0~0.9_0.9_4_0_1_0.1"  # 1.27 away from the depot, but due at 1
    page = open_page(f"#problem=VRPTW&nodes={nodes}&limit=10")
    assert "node 1 a time window that no vehicle can keep" in text(page, "#message")


def test_the_playground_can_be_embedded(browser, site):
    """With the line of docs/playground.md, whose address is replaced by that of the page built here."""
    (line,) = re.findall(r"<iframe.*</iframe>", (ROOT / "docs" / "playground.md").read_text())
    page = browser.new_page()
    page.goto("about:blank")
    host = site.parent / "host.html"
    host.write_text(re.sub(r'src="[^#"]*', f'src="{(site / "index.html").as_uri()}', line))
    page.goto(host.as_uri())
    frame = page.frame_locator("iframe")
    frame.locator("#map .edges line").first.wait_for(timeout=60_000)
    assert frame.locator("#problems input:checked").get_attribute("value") == "CVRP"
    page.close()
