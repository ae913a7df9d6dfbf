"""`benchmarks/quality/search_on_files.py`: gaps of files, measured once."""

from dataclasses import replace

import pytest

from benchmarks import doc_tables
from benchmarks.quality import search_on_files
from helpers import SQUARE
from routing_agents.search.large_neighbourhood import Improved
from routing_agents.trained import TrainedModel

pytestmark = pytest.mark.usefixtures("processor_time")


def test_gaps_are_measured_once_and_shown(tmp_path, capsys):
    """A square of side 10, whose tour has length 40: no gap. A file without a best known cost is left out."""
    for name in ("known", "unknown"):
        (tmp_path / f"{name}.tsp").write_text(SQUARE)
    (tmp_path / "known.opt.tour").write_text("TYPE : TOUR\nDIMENSION : 4\nTOUR_SECTION\n1\n2\n3\n4\n-1\nEOF\n")
    files = (tmp_path / "known.tsp", tmp_path / "unknown.tsp")
    args = search_on_files.Args(files, seconds=0.1, out=tmp_path / "new" / "figures.json")
    results = search_on_files.main(args)
    assert list(results) == ["known"]
    assert results["known"]["ours"]["improved"]["gap"] == 0
    assert {results["known"]["solvers"][name]["gap"] for name in ("2-opt+or-opt", "fast-tsp")} == {0}
    assert "unknown.tsp: left out" in capsys.readouterr().err
    assert search_on_files.main(args) == results
    assert "| TSP, 0 to 99 nodes | 1 | 0.00 | " in doc_tables.search_on_files(results)
    with pytest.raises(ValueError, match="--seconds must be a positive number of at most .*, got 0.0"):
        replace(args, seconds=0.0)
    with pytest.raises(ValueError, match="name at least one"):
        replace(args, files=())


def test_worker_processes_measure_files(tmp_path):
    (tmp_path / "square.tsp").write_text(SQUARE)
    (tmp_path / "solutions").write_text("square : 40\n")
    files = (tmp_path / "square.tsp",)
    args = search_on_files.Args(files, 0.1, executor="processes", workers=1, out=tmp_path / "figures.json")
    results = search_on_files.main(args)
    assert results["square"]["ours"]["improved"]["gap"] == results["square"]["solvers"]["fast-tsp"]["gap"] == 0


def test_an_interrupted_search_is_no_measurement(tmp_path, monkeypatch):
    stopped = lambda self, problem, instance, actions, *others: Improved(actions, 1.0, 1, True)  # noqa: E731
    monkeypatch.setattr(TrainedModel, "improve", stopped)
    path = tmp_path / "square.tsp"
    path.write_text(SQUARE)
    (tmp_path / "solutions").write_text("square : 40\n")
    args = search_on_files.Args((path,), seconds=0.1, out=tmp_path / "figures.json")
    with pytest.raises(KeyboardInterrupt, match="while square was searched"):
        search_on_files.main(args)
    assert not args.out.exists()


def test_the_table_drops_no_file():
    found, settings = {"gap": 0.1, "seconds": 1.0}, {"settings": {"seconds": 1.0}}
    ways = dict.fromkeys(("greedy", "best of many", "improved"), found)
    row = {"problem": "CVRP", "nodes": 150, "ours": ways | settings, "solvers": {"hygese": found} | settings}
    assert "| CVRP, 100 to 199 nodes | 1 |" in doc_tables.search_on_files({"a": row})
    with pytest.raises(ValueError, match="1 files are of no size that the table has"):
        doc_tables.search_on_files({"a": row, "b": row | {"nodes": 1001}})
    with pytest.raises(ValueError, match="files had different seconds; measure all with the same"):
        doc_tables.search_on_files({"a": row, "b": row | {"ours": ways | {"settings": {"seconds": 2.0}}}})
