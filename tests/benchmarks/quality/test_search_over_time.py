"""`benchmarks/quality/search_over_time.py`: our search and the solvers, file by file, and the plot."""

from types import SimpleNamespace

import pytest

from benchmarks.quality import search_over_time
from helpers import SQUARE
from routing_gym.problems import make_problem

pytestmark = pytest.mark.usefixtures("processor_time")


def test_curves_of_a_square(tmp_path):
    """A square of side 10, whose tour has length 40: no method leaves a gap."""
    (tmp_path / "square.tsp").write_text(SQUARE)
    (tmp_path / "square.opt.tour").write_text("TYPE : TOUR\nDIMENSION : 4\nTOUR_SECTION\n1\n2\n3\n4\n-1\nEOF\n")
    out = tmp_path / "new" / "figures.json"
    args = search_over_time.Args((tmp_path / "square.tsp",), seconds=0.1, out=out)
    (curves,) = search_over_time.main(args)["curves"].values()
    ours = ["search, from policy", "search, from greedy-edge", "beam search", "simulation-guided", "active search"]
    assert list(curves) == [*ours, "2-opt+or-opt", "fast-tsp"]
    assert {gap for points in curves.values() for _, gap in points} == {0}
    assert out.exists()
    assert (tmp_path / "new" / "search_over_time.png").exists()


def test_simulation_guided_search_is_left_out_of_large_files():
    """It would complete tours from each of a thousand nodes."""
    file = SimpleNamespace(problem=make_problem("TSP", 301))
    assert "simulation-guided" not in search_over_time.methods(file, search_over_time.Args(("x",)))


def test_limits_rise_to_the_last():
    assert search_over_time.Args(("x",), seconds=30.0).limits == [1, 3, 10, 30]
    assert search_over_time.Args(("x",), seconds=60.0).limits == [1, 3, 10, 30, 60]


def test_bad_input(tmp_path):
    (tmp_path / "square.tsp").write_text(SQUARE)
    with pytest.raises(ValueError, match="square.tsp: no solution lies beside it"):
        search_over_time.main(search_over_time.Args((tmp_path / "square.tsp",)))
    with pytest.raises(ValueError, match="name at least one"):
        search_over_time.Args(())
    with pytest.raises(ValueError, match="--seconds must be a positive number of at most .*, got 0.0"):
        search_over_time.Args(("x",), seconds=0.0)
