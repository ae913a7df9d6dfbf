"""`benchmarks/quality/family_files.py`: gaps of a file, measured once."""

from dataclasses import replace

import pytest

from benchmarks.quality import family_files, quality_tables
from helpers import DEPOTS_TEXT, TSP_TEXT

pytestmark = pytest.mark.usefixtures("processor_time")


def test_a_file_is_measured_once(tmp_path, monkeypatch):
    """Both find 6 + 8, in thousandths, the best of two stops; a file without a best known cost is left out."""
    pytest.importorskip("pyvrp")
    (tmp_path / "depots.vrp").write_text(DEPOTS_TEXT)
    (tmp_path / "depots.sol").write_text("Route #1: 2\nRoute #2: 3\nCost: 14000\n")
    (tmp_path / "unknown.vrp").write_text(DEPOTS_TEXT)
    files = (tmp_path / "depots.vrp", tmp_path / "unknown.vrp")
    args = family_files.Args(files, seconds=0.2, out=tmp_path / "figures.json")
    figures = family_files.main(args)
    assert (figures["files"]["depots"]["improved"], figures["files"]["depots"]["pyvrp"]) == (0.0, 0.0)
    assert "| depots | PCHFMDVRPTW | 2 | 14000 |" in quality_tables.family_files(figures)
    monkeypatch.setattr(family_files, "ours", None)  # would fail
    assert family_files.main(args) == figures
    with pytest.raises(ValueError, match=r"figures.json: measured with --seed 1, not 2; choose another --out"):
        family_files.main(replace(args, seed=2))


def test_files_of_other_problems(tmp_path):
    (tmp_path / "cities.tsp").write_text(TSP_TEXT)
    (tmp_path / "solutions").write_text("cities : 1\n")
    args = family_files.Args((tmp_path / "cities.tsp",), out=tmp_path / "figures.json")
    assert family_files.main(args) == {}
    with pytest.raises(ValueError, match="name at least one file"):
        family_files.Args(())
