"""`routing_agents.train`: the options of the script as keyword arguments."""

import threading

import numpy as np
import pytest

import routing_agents
from routing_agents.checkpoint import load, save

TINY = {"epochs": 1, "steps_per_epoch": 2, "batch_size": 8, "held_out": 8, "num_layers": 1, "embed_dim": 16}
TINY |= {"num_heads": 2, "feed_forward_dim": 16}


def test_runs_are_trained_resumed_and_loaded(tmp_path):
    """From text, lists and NumPy's numbers, as users write them."""
    first = routing_agents.train("routing/TSP-6", **TINY, runs=str(tmp_path), name="first")
    model = routing_agents.load(first)
    assert model.network.config.embed_dim == 16
    second = routing_agents.train(
        "routing/OP-6",
        **TINY,
        runs=tmp_path,
        name="second",
        init_from=str(first),
        sizes=np.array([5, 7]),
        seed=np.int64(3),
        learning_rate=np.float64(1e-3),
        env_kwargs={"prize": "uniform", "max_length": np.float32(2.5)},
    )
    assert routing_agents.load(second).problem.max_length == 2.5
    step = load(second / "last.safetensors")[1]["step"]
    assert routing_agents.train(resume=str(second)) == second
    tensors, header = load(second / "last.safetensors")
    assert header["step"] == step == 2
    save(second / "last.safetensors", tensors, {**header, "processes": 2})
    with pytest.raises(ValueError, match="a run of 2 processes; continue it by routing-gym train --resume"):
        routing_agents.train(resume=second)


def test_training_in_another_thread(tmp_path):
    """Python handles signals in the main thread only."""
    folders = []
    thread = threading.Thread(
        target=lambda: folders.append(routing_agents.train("routing/TSP-6", **TINY, runs=tmp_path, name="a"))
    )
    thread.start()
    thread.join()
    assert folders == [tmp_path / "a"]


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"batchsize": 8}, TypeError, "train has no option batchsize; did you mean batch_size\\?"),
        ({"lr": 1e-3}, TypeError, "train has no option lr; did you mean learning_rate\\?"),
        ({"accelerator": "gpu"}, TypeError, "train has no option accelerator$"),
        ({"processes": 2}, ValueError, "train uses one process and has no processes; run routing-gym train --proc"),
        ({"plan": "plan.toml"}, ValueError, "has no plan; run routing-gym train --plan"),
        ({"epochs": "3"}, ValueError, "epochs is '3'; expected an integer"),
        ({"epochs": 0}, ValueError, "--epochs must be an integer of at least 1, got 0"),
        (
            {"baseline": "critc"},
            ValueError,
            "baseline is 'critc'; expected one of rollout, exponential, critic",
        ),
        ({"sizes": 5}, ValueError, "sizes is 5; expected a list of 2"),
        ({"env_kwargs": None}, ValueError, "env_kwargs is None; expected an object"),
        ({"attention": None}, ValueError, "attention is None; expected an object"),
        ({"normalization": "bach"}, ValueError, "normalization must be one of batch, instance, layer, none; got"),
        ({"embed_dim": 15}, ValueError, "embed_dim 15 is not a multiple of num_heads 8"),
        ({"resume": "runs/x", "epochs": 16}, ValueError, "--resume uses .*; leave out --epochs"),
    ],
)
def test_invalid_options(settings, error, message):
    with pytest.raises(error, match=message):
        routing_agents.train(**settings)
