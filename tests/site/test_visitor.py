"""What a visitor of the playground may do at any time: with a finger, with keys, during a search, without a network."""

import re

import pytest
from pages import cost, settled, text, until

from helpers import ROOT

PHONE = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
COORDS = "[...page.state.instance.coords]"
SPOT = """([from, to]) => { // a place so far from the nearest node, in pixels of the screen
  const { map } = page, box = map.svg.getBoundingClientRect();
  const far = (x, y) => Math.min(...map.nodes.map((_, i) => Math.hypot(map.place(i)[0] - x, map.place(i)[1] - y)));
  for (let x = 60; x < map.size - 60; x += 2) for (let y = 60; y < map.size - 60; y += 2)
    if (far(x, y) >= from && far(x, y) <= to) return [box.left + x, box.top + y];
}"""
REACHED = """() => page.map.nodes.map((_, start) => { // how many nodes the arrows reach from each one
  const seen = new Set([start]);
  for (const node of seen)
    for (const way of [[-1, 0], [1, 0], [0, 1], [0, -1]]) {
      const next = page.map.neighbour(node, way);
      if (next >= 0) seen.add(next);
    }
  return seen.size;
})"""
FOCUSED = """(({ id, name, value, parentElement }) =>
  id || (name && `${name}=${value}`) || parentElement.parentElement.id)(document.activeElement)"""


def swipe(page, start, by, end="touchEnd"):
    """Move a finger; Chromium scrolls, and cancels pointers, as it does on a phone."""
    session = page.context.new_cdp_session(page)
    for step in range(9):
        points = [{"x": start[0] + by[0] * step / 8, "y": start[1] + by[1] * step / 8}]
        session.send("Input.dispatchTouchEvent", {"type": "touchMove" if step else "touchStart", "touchPoints": points})
        page.wait_for_timeout(20)
    session.send("Input.dispatchTouchEvent", {"type": end, "touchPoints": []})
    page.wait_for_timeout(200)


@pytest.mark.parametrize("end", ["touchEnd", "touchCancel"])
def test_a_finger_drags_a_node(open_page, end):
    """The page does not scroll meanwhile; all is computed again, even if the system ends the drag."""
    page = settled(open_page("#problem=TSP&preset=1", **PHONE))
    page.evaluate("byId('map').scrollIntoView({ block: 'center' })")
    scroll, box = page.evaluate("scrollY"), page.locator("#map").bounding_box()
    x, y = page.evaluate("page.map.place(0)")
    up = 1 if y < box["height"] / 2 else -1
    swipe(page, (box["x"] + x, box["y"] + y), (40 if x < box["width"] / 2 else -40, 60 * up), end)
    assert page.evaluate("scrollY") == scroll
    assert page.evaluate("page.map.place(0)") == pytest.approx(
        [x + (40 if x < box["width"] / 2 else -40), y + 60 * up], abs=1
    )
    until(page, "location.hash.includes('nodes=')")
    scores = dict(settled(page).evaluate("page.compare.entries().map(({ by, score }) => [by, score])"))
    assert scores["Model, greedy"] == pytest.approx(cost(page), abs=1e-3)
    assert page.evaluate(
        "page.compare.rows[0].actions.join() === search.nearestNeighbour(page.state.instance).join()"
    )  # of the new map


def test_a_finger_scrolls_beside_the_nodes_of_a_dense_map(open_page):
    page = settled(open_page("#problem=TSP&random=100.1", **PHONE))
    page.evaluate("byId('map').scrollIntoView({ block: 'center' })")
    scroll, before = page.evaluate("scrollY"), page.evaluate(COORDS)
    swipe(page, page.evaluate(SPOT, [12, 20]), (0, -120))
    assert page.evaluate("scrollY") > scroll + 60
    assert page.evaluate(COORDS) == before


@pytest.mark.parametrize("button", ["#search-go", "#race-go"])
def test_a_search_does_not_replace_a_tour_of_ones_own(open_page, button):
    page = settled(open_page("#problem=TSP&random=150.1"))
    page.fill("#tours", "2000")
    page.click(button)
    until(page, "page.state.shown.by !== 'model'")
    page.click("#draw-mode")
    page.evaluate("page.choose(7), page.choose(3)")
    page.wait_for_timeout(1500)
    assert page.evaluate("[page.state.drawing, page.state.step, ...page.state.shown.actions.slice(0, 2)]") == [
        True,
        2,
        7,
        3,
    ]
    page.click("#draw-mode")
    page.click(button)
    until(page, "page.state.shown.by !== 'model' && page.state.shown.by !== 'you'")
    page.evaluate(
        """page.goTo(2), page.choose(page.state.trace.steps[2].mask.findLastIndex(
          (legal, node) => legal && node !== page.state.shown.actions[2]))"""
    )
    mine = page.evaluate("page.state.shown.actions")
    page.wait_for_timeout(1500)
    assert page.evaluate("[page.state.shown.by, page.state.shown.actions]") == ["you", mine]


def test_a_search_starts_once(open_page):
    page = settled(open_page("#problem=TSP&preset=4"))
    page.evaluate(
        """() => { const before = makeWorker; window.workers = 0;
        window.makeWorker = () => { window.workers += 1; return before(); };
        page.search.form.requestSubmit(); page.search.form.requestSubmit(); }"""
    )
    page.wait_for_selector("#best-text:has-text('Best of')")
    assert page.evaluate("workers") == 1


def test_drawing_ends_the_removal_of_nodes(open_page):
    page = settled(open_page("#problem=TSP&preset=1"))
    page.click("#remove-mode")
    page.click("#draw-mode")
    page.locator("#map .node >> nth=2").click()
    assert page.evaluate("[page.map.nodes.length, page.state.shown.actions[0]]") == [20, 2]


def test_back_undoes_a_change_of_the_map(open_page):
    """A drag is one change, however long it takes, and so is a key that is held."""
    page = settled(open_page("#problem=TSP&preset=1"))
    until(page, "location.hash.includes('preset=1')")
    before = page.evaluate(COORDS)
    for x in (0.2, 0.3, 0.4):
        page.evaluate(f"page.move(3, {x}, 0.5, false)")
        page.wait_for_timeout(400)
    page.evaluate("page.move(3, 0.5, 0.5, true)")
    until(page, "location.hash.includes('nodes=')")
    moved = page.evaluate(COORDS)
    page.evaluate("page.map.goTo(3)")
    entries = page.evaluate("history.length")
    page.keyboard.down("Shift")
    for _ in range(3):  # the second and third press are repetitions
        page.keyboard.down("ArrowUp")
        page.wait_for_timeout(100)
    page.keyboard.up("ArrowUp")
    page.keyboard.up("Shift")
    assert page.evaluate("[history.length, page.state.instance.coords[7]]") == [entries + 1, pytest.approx(0.56)]
    page.go_back()
    until(page, "page.state.instance.coords[7] === 0.5")
    page.check("[name=problem][value=CVRP]", force=True)
    until(page, "page.state.problem === 'CVRP'")
    page.go_back()
    until(page, "page.state.problem === 'TSP'")
    assert page.evaluate(COORDS) == moved
    page.go_back()
    until(page, "page.state.source.kind === 'preset'")
    assert page.evaluate(COORDS) == before
    page.go_forward()
    until(page, "page.state.source.kind === 'own'")
    assert page.evaluate(COORDS) == moved


FOCUS = {  # what has the focus, the key, and what has the focus after it
    "a radio button of a problem": ("TSP&preset=1", "[name=problem]:checked", "ArrowRight", "problem=CVRP"),
    "a bar": ("TSP&preset=1&step=3", "#top li:nth-child(2) button", "Enter", "top"),
    "a row": ("TSP&preset=1", "#compare tr:nth-child(2) button", "Enter", ""),
    "the model's tour": ("TSP&preset=1&tour=0&step=1", "#undo", "Enter", "draw-mode"),
    "to the TSP": ("CVRP&preset=1", "#learn-go", "Enter", "learn-play"),
    "the published model": ("TSP&preset=1&snapshot=2", "#learn-off", "Enter", "snapshot"),
    "a message": ("ATSP", "#message button", "Enter", None),
}


@pytest.mark.parametrize("case", FOCUS)
def test_the_focus_is_not_lost(open_page, case):
    hash_, selector, key, expected = FOCUS[case]
    page = settled(open_page(f"#problem={hash_}"))
    page.focus(selector)
    page.keyboard.press(key)
    page.wait_for_timeout(600)
    assert page.evaluate("document.activeElement !== document.body")
    if expected is not None:
        assert page.evaluate(FOCUSED) == expected


@pytest.mark.parametrize("nodes", ["random=100.35", "same", "grid"])
def test_the_arrows_reach_every_node(open_page, nodes):
    own = {
        "same": "0.2_0.2~0.5_0.5~0.5_0.5~0.5_0.5",
        "grid": "~".join(f"0.{x}_0.{y}" for x in range(7) for y in range(7)),
    }
    page = settled(open_page(f"#problem=TSP&{'nodes=' + own[nodes] if nodes in own else nodes}"))
    count = page.evaluate("page.map.nodes.length")
    assert page.evaluate(REACHED) == [count] * count


def test_weights_that_do_not_load(browser, server):
    """The page says so and stays as it was, or says so at once; no error is left to the console."""
    page, errors = browser.new_page(reduced_motion="reduce"), []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(server + "#problem=TSP&preset=4")
    settled(page)
    page.route("**/data/*", lambda route: route.abort())
    for act in (
        "document.querySelector('[name=problem][value=CVRP]').click()",
        "byId('random-size').value = 100, byId('random').requestSubmit()",
        "byId('learn-play').click()",
        "location.hash = 'problem=OP&preset=1'",
    ):
        page.evaluate(f"page.message(null); {act}")
        page.wait_for_selector("#message:visible")
        assert "did not load. Check your connection" in text(page, "#message")
        until(page, "byId('learn-play').textContent === 'Play training'")
        checked = page.locator("[name=problem]:checked").get_attribute("value")
        assert [checked, page.evaluate("page.state.problem"), page.evaluate("page.map.nodes.length")] == [
            "TSP",
            "TSP",
            10,
        ]
    for blocked in ("**/data/tsp*", "**/data/*"):
        fresh = browser.new_page()
        fresh.on("pageerror", lambda error: errors.append(str(error)))
        fresh.route(blocked, lambda route: route.abort())
        fresh.goto(server)
        fresh.wait_for_selector("#message:visible")
        assert "did not load. Check your connection" in text(fresh, "#message")
        assert fresh.locator("#loading").is_hidden()
        fresh.close()
    page.close()
    assert errors == []


def test_without_javascript_the_page_says_so(open_page):
    page = open_page(java_script_enabled=False)
    assert "needs JavaScript" in text(page, "body")
    assert page.locator("main").is_hidden()


def test_a_lower_prize_has_a_minus(open_page):
    page = settled(open_page("#problem=OP&random=9.3"))
    assert "\N{MINUS SIGN}7.4" in text(page, "#compare tr:has-text('Model, greedy')")


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_graphics_have_contrast():
    """3 to 1 (WCAG 1.4.11), on the map and on cards, in light and dark colours."""
    css = (ROOT / "playground" / "style.css").read_text()
    colours = {name: pair for name, *pair in re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", css)}
    names = [name for name in colours if re.match(r"edge|halo$|head|trip|accent$|good", name)]
    assert len(names) == 18
    for name in names:
        for ground in ("sunk", "card"):
            for one, other in zip(colours[name], colours[ground], strict=True):
                low, high = sorted((luminance(one), luminance(other)))
                assert (high + 0.05) / (low + 0.05) >= 3, (name, ground)
    assert re.search(r'input\[type="number"\] \{[^}]*border: 1px solid var\(--edge\)', css)
    assert re.search(r"\.halo \{[^}]*stroke: var\(--halo\)", css)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_glimpse_has_the_colours_of_its_heads(open_page, scheme):
    page = settled(open_page("#problem=TSP&preset=1&step=9&view=glimpse&head=1", color_scheme=scheme))
    red, green, blue = page.evaluate(
        """() => { const canvas = byId("matrix"), row = Math.round(7 * devicePixelRatio);
        const { data } = canvas.getContext("2d").getImageData(0, row, canvas.width, 1);
        let at = 0; // the most opaque pixel
        for (let i = 0; i < data.length; i += 4) if (data[i + 3] > data[at + 3]) at = i;
        return [...data.slice(at, at + 3)]; }"""
    )
    assert red > green + 60
    assert red > blue + 60
