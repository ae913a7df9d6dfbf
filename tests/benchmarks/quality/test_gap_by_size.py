"""`benchmarks/quality/gap_by_size.py`: its figures, plot and table."""

from benchmarks import doc_tables
from benchmarks.quality import gap_by_size


def test_gaps_are_measured_drawn_and_shown(tmp_path):
    """Two instances of ten nodes: the best of eight is at least as good as the greedy tour, which is one of them."""
    args = gap_by_size.Args(sizes=(10,), nodes=1, out=tmp_path / "figures.json")
    figures = gap_by_size.main(args)
    assert [(row["problem"], row["instances"]) for row in figures["rows"]] == [("TSP", 2), ("CVRP", 2)]
    for row in figures["rows"]:
        gaps = list(row["gaps"].values())
        assert len(gaps) == 4
        assert all(best <= greedy for greedy, best in zip(gaps[::2], gaps[1::2], strict=True))
    assert (tmp_path / "gap_by_size.png").stat().st_size > 0
    assert "| CVRP | 10 | 2 | " in doc_tables.gap_by_size(figures)
