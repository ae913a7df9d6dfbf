"""`benchmarks/training/matrix_networks.py` for a moment."""

import json
from dataclasses import replace

import pytest
import torch

from benchmarks.training import matrix_networks
from benchmarks.training.matrix_networks import RANK, Args, factors


@pytest.fixture
def restore_threads():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)  # `main` trains on one


@pytest.mark.usefixtures("restore_threads")
def test_figures(tmp_path, capsys):
    """Complete runs are kept; what is added has weights of its own."""
    problems, networks = ("ATSP-5", "CVRP-5"), ("codes", "gate", "log+logits+svd")
    args = Args(
        problems,
        networks,
        seconds=0.2,
        batch_size=4,
        held_out=4,
        samples=2,
        folder=tmp_path / "runs",
        out=tmp_path / "a",
    )
    runs = matrix_networks.main(args)["runs"]
    assert matrix_networks.main(args)["runs"] == runs == json.loads(args.out.read_text())["runs"]
    weights = {(run["problem"], run["network"]): run["weights"] for run in runs}
    assert weights["ATSP-5", "codes"] < weights["ATSP-5", "log+logits+svd"]
    assert all(run["best"] <= run["greedy"] + 1 and run["steps"] > 0 for run in runs)
    with pytest.raises(ValueError, match=r"measured with held_out 4, not 5; move it away, or name another --folder"):
        matrix_networks.main(replace(args, held_out=5))
    assert "| CVRP-5 | codes |" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"networks": ("codes+bogus",)}, "--networks: unknown bogus; choose from codes, log, logits, svd, gate"),
        ({"problems": ("ATSP",)}, "'ATSP' is not a problem with a size"),
    ],
)
def test_bad_arguments(changes, message):
    with pytest.raises(ValueError, match=message):
        Args(**changes)


def test_factors_are_those_of_the_matrix():
    """Up to RANK nodes nothing is lost: the products of both kinds of factors are the matrix."""
    chances = torch.rand(3, RANK, RANK, generator=torch.Generator().manual_seed(1))
    left, right = factors(chances).split(RANK, dim=-1)
    torch.testing.assert_close(left @ right.transpose(1, 2), chances, atol=1e-5, rtol=0)
