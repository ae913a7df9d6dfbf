"""`benchmarks/search_on_files.py`: gaps of files, measured once."""

from dataclasses import replace

import pytest

import doc_tables
import search_on_files
from helpers import SQUARE


def test_gaps_are_measured_once_and_shown(tmp_path, capsys):
    """A square of side 10, whose tour has length 40: no gap. A file without a best known cost is left out."""
    for name in ("known", "unknown"):
        (tmp_path / f"{name}.tsp").write_text(SQUARE)
    (tmp_path / "known.opt.tour").write_text("TYPE : TOUR\nDIMENSION : 4\nTOUR_SECTION\n1\n2\n3\n4\n-1\nEOF\n")
    files = (tmp_path / "known.tsp", tmp_path / "unknown.tsp")
    args = search_on_files.Args(files, seconds=0.1, out=tmp_path / "new" / "figures.json")
    results = search_on_files.main(args)
    assert list(results) == ["known"]
    assert results["known"]["improved"]["gap"] == 0
    assert "unknown.tsp: left out" in capsys.readouterr().err
    assert search_on_files.main(args) == results
    assert "| TSP, 0 to 99 nodes | 1 | 0.00%, " in doc_tables.search_on_files(results)
    with pytest.raises(ValueError, match="--seconds must be a positive number, got 0.0"):
        replace(args, seconds=0.0)
    with pytest.raises(ValueError, match="name at least one"):
        replace(args, files=())
