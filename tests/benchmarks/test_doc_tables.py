"""`benchmarks/doc_tables.py`: the pages show what was measured; numbers are rounded and set in ratio as by hand."""

from __future__ import annotations

import json
import re

import pytest

from benchmarks import doc_tables, speed_tables
from routing_agents.evaluation.methods import weights_digest
from routing_agents.trained import find_weights


def test_pages_show_what_was_measured():
    """Every table has a place, and every place has what its command would write there now."""
    texts = {str(page): page.read_text() for page in doc_tables.pages()}
    assert {name: doc_tables.renewed(text) for name, text in texts.items()} == texts
    found = re.findall(r"<!-- table: (\S+) -->", "".join(texts.values()))
    assert sorted(found) == sorted(doc_tables.WRITERS)


def test_changed_pages_are_named(tmp_path, capsys):
    (tmp_path / "README.md").write_text("<!-- table: planner -->\nold\n<!-- end of table -->\n")
    assert doc_tables.main(doc_tables.Args(tmp_path)) == [tmp_path / "README.md"]
    assert capsys.readouterr().out == f"changed: {tmp_path / 'README.md'}\n"
    assert doc_tables.main(doc_tables.Args(tmp_path)) == []
    assert capsys.readouterr().out == "nothing changed\n"


def test_files_were_solved_with_the_weights_that_there_are():
    """Those that `solve.py` would take today."""
    rows = json.loads((doc_tables.RESULTS / "solution_quality.json").read_text())["files"]
    for name, row in rows.items():
        weights = find_weights(row["problem"], row["nodes"])
        assert (name, row["weights"], row["digest"]) == (name, weights.stem, weights_digest(weights))


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
    line = "| TSP-50 | 64 | 60 k | 10 k | 6.0 x | 20 k | 3.0 x | 90 k | 5 k | 18.0 x | 30 k | 3.0 x |"
    page = "before\n<!-- table: env-peers -->\n{}<!-- end of table -->\nafter\n"
    once = doc_tables.renewed(page.format(""), results)
    assert once.splitlines()[3:] == [*once.splitlines()[3:4], line, "<!-- end of table -->", "after"]
    assert once.startswith("before\n<!-- table: env-peers -->\n| steps/s | lanes | ours, `rollout` |")
    assert doc_tables.renewed(page.format("old\n"), results) == once
    assert doc_tables.renewed(once, results) == once


def test_unknown_table():
    with pytest.raises(ValueError, match="no table nothing; choose among short-results, "):
        doc_tables.renewed("<!-- table: nothing -->\n<!-- end of table -->")
