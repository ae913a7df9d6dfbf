"""Training pointer networks: exact resumption, honest interruption, wrong input, and what takes their checkpoints."""

import itertools
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

import am_reinforce
import evaluate
import helpers
import pointer_network
import routing_agents
import solve
from benchmarks.pointer import publish_pointer
from helpers import SQUARE, check_resumption, logged
from pointer_network import Args, PointerTrainer
from routing_agents import checkpoint
from routing_agents.header import CheckpointError
from routing_agents.policies.pointer import labels
from routing_agents.policies.pointer.model import PointerConfig
from routing_agents.policies.pointer.saved import load_network

TINY = Args(
    sizes=(4, 5),
    solved=20,
    epochs=4,
    steps_per_epoch=3,
    batch_size=8,
    held_out=10,
    model=PointerConfig(units=16, num_heads=4, num_layers=1),
    precision="float32",
    threads=1,
    workers=1,
)


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    monkeypatch.setattr(labels, "SIZE", 20)
    return replace(TINY, runs=tmp_path / "runs", examples=tmp_path / "examples")


@pytest.mark.parametrize(("encoder", "optimizer", "steps"), [("transformer", "adam", 6), ("lstm", "muon", 7)])
def test_resumed_run_equals_uninterrupted_run(tiny, monkeypatch, encoder, optimizer, steps):
    """Four epochs of three steps, stopped after epoch 2 (6 steps) or within epoch 3, against four in one go."""
    args = replace(tiny, optimizer=optimizer, model=replace(tiny.model, encoder=encoder))
    check_resumption(monkeypatch, pointer_network, PointerTrainer, args, steps, examples=args.examples)


@pytest.mark.parametrize(
    ("task", "sizes", "order", "answer"),
    [
        ("tsp", (5, 6), "sorted", "pointer"),
        ("convex-hull", (5, 6), "given", "pointer"),
        ("delaunay", (5, 5), "sorted", "pointer"),
        ("convex-hull", (5, 5), "sorted", "sequence"),
        ("delaunay", (5, 5), "sorted", "attention"),
    ],
)
def test_every_task_is_learnt(tiny, task, sizes, order, answer):
    """Sixty steps: the loss of the last epoch is below the first's; what a run leaves behind is there."""
    model = replace(tiny.model, answer=answer)
    args = replace(
        tiny, task=task, sizes=sizes, order=order, epochs=3, steps_per_epoch=20, learning_rate=5e-3, model=model
    )
    folder = pointer_network.main(args)
    first, *_, last = logged(folder)
    assert last["loss"] < first["loss"]
    for file in ("args.json", "best.safetensors", "curve.png", "solution.png", "tensorboard"):
        assert (folder / file).exists(), file
    model, trained_for, header = load_network(folder)
    assert (trained_for.name, header["order"], model.training) == (task, order, False)


def test_warm_start_keeps_what_fits(tiny):
    """Weights that know hulls begin to learn triangulations; an LSTM's are no transformer's."""
    hulls = pointer_network.main(replace(tiny, task="convex-hull", sizes=(5, 5), epochs=1))
    normalized = replace(tiny.model, normalization="batch")
    batch = pointer_network.main(replace(tiny, task="convex-hull", sizes=(5, 5), epochs=1, model=normalized, name="b"))
    trainer = PointerTrainer(replace(tiny, task="delaunay", sizes=(6, 6), init_from=hulls))
    assert trainer.started_from.endswith("of the task convex-hull; new: none")
    known = load_network(hulls)[0].state_dict()
    assert all(torch.equal(value, known[name]) for name, value in trainer.model.state_dict().items())
    assert trainer.history[0]["metrics"]["instances"] == 24
    with pytest.raises(CheckpointError, match="a network with encoder transformer; add --encoder transformer$"):
        PointerTrainer(replace(tiny, init_from=hulls, model=replace(tiny.model, encoder="lstm")))
    with pytest.raises(CheckpointError, match="a network with batch normalization; .*: add --normalization batch$"):
        PointerTrainer(replace(tiny, init_from=batch))


def test_a_gradient_that_is_no_number(tiny, monkeypatch):
    monkeypatch.setattr(
        pointer_network, "log_likelihood", lambda model, *_: (model.begin[None] * torch.nan, torch.ones(1))
    )
    with pytest.raises(
        pointer_network.TrainingDivergedError, match="in step 0 is not finite; the checkpoint of epoch 0"
    ):
        pointer_network.main(tiny)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sizes": (6, 5)}, "--sizes takes the smallest and the largest number of points, at most 10000, got 6 5"),
        ({"task": "convex-hull", "sizes": (2, 5)}, "--sizes: convex-hull needs at least 3 points, got 2"),
        ({"task": "delaunay", "labels": "a1"}, "--labels a1 are TSP's; delaunay has optimal"),
        (
            {"model": PointerConfig(answer="sequence")},
            "--answer sequence needs one size, such as --sizes 20 20, got 5 20",
        ),
        ({"decay": 2.0}, r"--decay must be in \(0, 1\], got 2.0"),
    ],
)
def test_bad_arguments(changes, message):
    with pytest.raises(ValueError, match=message):
        Args(**changes)


def test_resume_refuses_other_arguments(tiny):
    folder = pointer_network.main(replace(tiny, epochs=1))
    with pytest.raises(ValueError, match="leave out --epochs"):
        pointer_network.main(Args(resume=folder, epochs=7))
    with pytest.raises(FileExistsError, match="continue it with --resume"):
        pointer_network.main(replace(tiny, name=folder.name))


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory):
    """A network for tours, trained once."""
    folder = tmp_path_factory.mktemp("pointer")
    return pointer_network.main(replace(TINY, runs=folder, examples=folder / "examples", name="tours"))


@pytest.fixture
def tours(trained_once, tiny):
    """A copy of it, to be spoilt."""
    return shutil.copytree(trained_once, tiny.runs / "tours")


def test_solve_and_evaluate_take_networks_for_tours(tours, tmp_path, capsys):
    """Four corners of a square of side 10: any tour that a beam over eight symmetries finds is at least 40 long."""
    file = tmp_path / "square.tsp"
    file.write_text(SQUARE)
    for decoding in ("greedy", "starts"):
        solved = solve.main(solve.Args((file,), tours, decoding, out=tmp_path / decoding))
        assert solved[0].cost in (40, 48)
    table = evaluate.main(
        evaluate.Args("random/TSP-5", ("held-karp", str(tours), f"{tours}:beam=60"), size=20, cache=tmp_path, workers=1)
    )
    assert len(table.rows) == 3


def test_the_shortest_over_all_symmetries_counts(tours):
    points = np.random.default_rng(0).random((5, 2))
    model = routing_agents.load(tours)
    greedy, starts = (model.solve(points, decoding=decoding).cost for decoding in ("greedy", "starts"))
    distances = np.linalg.norm(points[:, None] - points[None], axis=2)
    lengths = [
        sum(distances[a, b] for a, b in itertools.pairwise([0, *rest, 0]))
        for rest in itertools.permutations(range(1, 5))
    ]
    assert min(lengths) - 1e-6 <= starts <= greedy + 1e-6
    with pytest.raises(ValueError, match="neither samples tours nor completes them; choose greedy"):
        model.solve(points, decoding="sampling")


def test_a_network_for_another_task_solves_no_tours(tiny, tmp_path):
    folder = pointer_network.main(replace(tiny, task="convex-hull", epochs=1))
    with pytest.raises(CheckpointError, match="a pointer network for convex-hull, which is no routing problem"):
        routing_agents.load(folder)
    file = tmp_path / "square.tsp"
    file.write_text(SQUARE)
    with pytest.raises(ValueError, match="convex-hull, which is no routing problem; tsp is needed"):
        solve.main(solve.Args((file,), folder, out=tmp_path))


def test_a_network_of_one_size_is_asked_for_no_other(tiny, tmp_path):
    """Before any file is solved; the file that fits is."""
    model = replace(tiny.model, answer="attention")
    folder = pointer_network.main(replace(tiny, sizes=(4, 4), epochs=1, model=model, name="four"))
    four, five = tmp_path / "four.tsp", tmp_path / "five.csv"
    four.write_text(SQUARE)
    five.write_text("x,y\n0,0\n0,1\n1,1\n1,0\n2,2\n")
    with pytest.raises(ValueError, match=r"four.*takes 4 cities, .*five.csv is a TSP with 5; networks trained with"):
        solve.main(solve.Args((four, five), folder, out=tmp_path / "tours"))
    assert (tmp_path / "tours" / "four.tour").exists()


def test_runs_of_other_scripts_are_named(tiny):
    run = am_reinforce.main(replace(helpers.TINY_POINTER, runs=tiny.runs, name="reinforced", epochs=1))
    with pytest.raises(ValueError, match=r"not a run of pointer_network.py; its checkpoint names am_reinforce.py"):
        pointer_network.main(Args(resume=run))
    with pytest.raises(ValueError, match=r"a run of am_reinforce.py; expected one of pointer_network.py"):
        publish_pointer.main(publish_pointer.Args(run))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"task": "sorting"}, "its header does not describe a known network"),
        ({"order": "random"}, "its header does not describe a known network"),
        ({"model": {"units": 32, "num_heads": 4, "num_layers": 1}}, "the weights do not fit the model"),
        ({"network": "attention"}, "holds no pointer network"),
    ],
)
def test_odd_checkpoints(tours, change, message):
    tensors, header = checkpoint.load(tours / "best.safetensors")
    checkpoint.save(tours / "best.safetensors", tensors, {**header, **change})
    with pytest.raises(CheckpointError, match=message):
        load_network(tours)
