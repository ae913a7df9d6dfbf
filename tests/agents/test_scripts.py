"""The scripts as a shell starts them: help, wrong arguments, and a library that is not installed."""

import importlib
import runpy
import sys

import pytest

from helpers import AGENTS


@pytest.mark.parametrize(
    ("script", "wrong"),
    [
        ("am_reinforce", ["--env-id", "routing/XTSP-21", "--processes", "1"]),
        ("ppo", ["--env-id", "routing/XTSP-21"]),
        ("pointer_network", ["--resume", "."]),
        ("mappo", ["--resume", "."]),
        ("solve", ["--checkpoint", "none", "none.tsp"]),
        ("evaluate", ["none"]),
        ("export_onnx", ["none"]),
        ("import_original", ["none", "--problem", "tsp", "--out", "out"]),
    ],
)
@pytest.mark.filterwarnings("ignore:Unable to enable fault handler")  # torchrun's, while pytest captures the output
def test_help_and_errors_are_no_tracebacks(script, wrong, tmp_path, monkeypatch, capsys):
    """`--help` ends with status 0, and a wrong argument with one message that begins with the script's name."""
    monkeypatch.chdir(tmp_path)
    path = str(AGENTS / f"{script}.py")
    for arguments, message in ((["--help"], "^0$"), (wrong, f"^{script}: ")):
        monkeypatch.setattr(sys, "argv", [path, *arguments])
        with pytest.raises(SystemExit, match=message):
            runpy.run_path(path, run_name="__main__")
    assert "usage:" in capsys.readouterr().out


def test_a_default_is_given_beside_resume(monkeypatch):
    """16 epochs are the default, but who asks for them would believe that they are trained."""
    path = str(AGENTS / "am_reinforce.py")
    monkeypatch.setattr(sys, "argv", [path, "--resume", ".", "--epochs=16", "--processes", "1"])
    with pytest.raises(SystemExit, match="--resume uses the run's own arguments; leave out --epochs, --proces"):
        runpy.run_path(path, run_name="__main__")


def test_of_several_processes_the_first_gives_the_message(monkeypatch):
    path = str(AGENTS / "ppo.py")
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr(sys, "argv", [path, "--env-id", "routing/XTSP-21"])
    with pytest.raises(SystemExit, match="^1$"):
        runpy.run_path(path, run_name="__main__")


@pytest.mark.parametrize(
    ("module", "missing", "library", "extra"),
    [
        ("routing_gym.integrations.jax", "jax", "JAX", "jax"),
        ("routing_gym.integrations.pettingzoo", "pettingzoo", "PettingZoo", "pettingzoo"),
        ("routing_gym.integrations.sb3", "stable_baselines3.common.vec_env", "Stable-Baselines3", "sb3"),
        ("routing_gym.integrations.tianshou", "tianshou.data", "Tianshou", "tianshou"),
        ("routing_gym.integrations.torchrl", "torchrl.envs", "TorchRL", "torchrl"),
        ("routing_agents.policies.attention.sb3_policy", "sb3_contrib.common.maskable.buffers", "sb3-contrib", "sb3"),
        ("rllib_ppo", "ray", "RLlib", "rllib"),
        ("sb3_maskable_ppo", "sb3_contrib", "sb3-contrib", "sb3"),
    ],
)
def test_a_missing_library_names_its_extra(module, missing, library, extra, monkeypatch):
    monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(
        ImportError, match=rf'{library} cannot be imported .*: pip install "\.\[{extra}\]" in a checkout'
    ):
        importlib.import_module(module)
