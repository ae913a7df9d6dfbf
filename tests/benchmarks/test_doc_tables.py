"""`benchmarks/doc_tables.py`: the pages show what was measured; numbers are rounded and set in ratio as by hand."""

from __future__ import annotations

import json
import re

import pytest

import doc_tables
import speed_tables
from routing_agents.trained import find_weights
from solution_quality import digest


def test_pages_show_what_was_measured():
    """Every table has a place, and every place has what its command would write there now."""
    texts = {page.name: page.read_text() for page in doc_tables.pages()}
    assert {name: doc_tables.renewed(text) for name, text in texts.items()} == texts
    found = re.findall(r"<!-- table: (\S+) -->", "".join(texts.values()))
    assert sorted(found) == sorted(doc_tables.WRITERS)


def test_files_were_solved_with_the_weights_that_there_are():
    """Those that `solve.py` would take today."""
    rows = json.loads((doc_tables.RESULTS / "solution_quality.json").read_text())["files"]
    for name, row in rows.items():
        weights = find_weights(row["problem"], row["nodes"])
        assert (name, row["weights"], row["digest"]) == (name, weights.stem, digest(weights))


def test_rates_and_ratios():
    assert [speed_tables.rate(value) for value in (900, 12_345, 999_499, 999_500, 1_234_567)] == [
        "1 k",
        "12 k",
        "999 k",
        "1.00 M",
        "1.23 M",
    ]
    assert [speed_tables.times(value) for value in (0.94, 19.9, 20.4)] == ["0.9 x", "19.9 x", "20 x"]


@pytest.fixture
def results(tmp_path):
    """60 / 20 = 3 times rl4co's fastest loop, 60 / 10 = 6 times its own; of Jumanji 90 / 30 = 3 and 90 / 5 = 18."""
    rates = {
        ("routing-gym", "rollout"): 60e3,
        ("routing-gym", "vector env, copy=False"): 90e3,
        ("rl4co", "loop, its own policy"): 10e3,
        ("rl4co", "loop, ranked policy"): 20e3,
        ("jumanji", "call per step, its own policy"): 5e3,
        ("jumanji", "scan, ranked policy"): 30e3,
    }
    cell = {"problem": "TSP-50", "lanes": 64}
    rows = [{**cell, "library": key[0], "way": key[1], "steps_per_second": rate} for key, rate in rates.items()]
    comparisons = [
        {**cell, "peer": "rl4co", "ours": "rollout", "fastest_way": "loop, ranked policy"},
        {**cell, "peer": "jumanji", "ours": "vector env, copy=False", "fastest_way": "scan, ranked policy"},
    ]
    (tmp_path / "env_peers.json").write_text(json.dumps({"rows": rows, "comparisons": comparisons}))
    return tmp_path


def test_a_page_gets_its_table_and_nothing_else(results):
    line = "| TSP-50 | 64 | 60 k | 10 k (6.0 x) | 20 k (3.0 x) | 90 k | 5 k (18.0 x) | 30 k (3.0 x) |"
    page = "before\n<!-- table: env-peers -->\n{}<!-- end of table -->\nafter\n"
    once = doc_tables.renewed(page.format(""), results)
    assert once.splitlines()[3:] == [*once.splitlines()[3:4], line, "<!-- end of table -->", "after"]
    assert once.startswith("before\n<!-- table: env-peers -->\n|  | lanes | ours, `rollout` |")
    assert doc_tables.renewed(page.format("old\n"), results) == once
    assert doc_tables.renewed(once, results) == once


def test_compiled_loops_beside_jumanjis_fastest(tmp_path):
    """Loops 120 / 40 = 3, called 30 / 20 = 1.5, the transition 500 / 1,000 = 0.5; the ways compared took 2 and 4 s."""
    rates = {
        ("routing-gym-jax", "scan"): (120e3, 2.0),
        ("routing-gym-jax", "call per step"): (30e3, 1.0),
        ("routing-gym-jax", "transitions alone, scan"): (500e3, 1.0),
        ("jumanji", "scan, its own policy"): (25e3, 3.0),
        ("jumanji", "scan, ranked policy"): (40e3, 4.0),
        ("jumanji", "call per step, its own policy"): (20e3, 1.0),
        ("jumanji", "transitions alone, scan"): (1e6, 1.0),
    }
    rows = [
        {"problem": "CVRP-50", "lanes": 1024, "library": name, "way": way, "steps_per_second": rate}
        | {"seconds_to_compile": seconds}
        for (name, way), (rate, seconds) in rates.items()
    ]
    line = "| CVRP-50 | 1,024 | 120 k | 40 k (3.0 x) | 30 k | 20 k (1.5 x) | 500 k | 1.00 M (0.5 x) | 2.0 | 4.0 |"
    assert speed_tables.jax_peers({"rows": rows}).splitlines()[-1] == line


def test_unknown_table():
    with pytest.raises(ValueError, match="no table nothing; choose among short-results, "):
        doc_tables.renewed("<!-- table: nothing -->\n<!-- end of table -->")


def test_rows_of_pointer_networks_that_the_paper_has_not_come_last():
    row = {"model": "mine", "encoder": "lstm", "width": 1, "accuracy": 0.5, "area": 0.9, "examples": 1000, "hours": 0.5}
    trained = {"mine": "convex-hull 10-10", "theirs": "convex-hull 50-50"}
    figures = {"rows": [{**row, "model": name, "trained": trained[name], "n": 10} for name in trained]}
    last, before = reversed(doc_tables.pointer_quality(figures).splitlines()[-2:])
    assert before.startswith("| convex-hull 50-50 | lstm | 10 |")
    assert last == "| convex-hull 10-10 | lstm | 10 | - | 50.0%, 90.0% | 1,000 | 30 min |"
