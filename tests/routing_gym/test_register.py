"""Problems that are defined outside the package, with a setting of their own that `step` uses."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from typing import ClassVar

import gymnasium as gym
import numpy as np
import pytest

import evaluate
import routing_gym
import solve
from helpers import AGENTS, ROOT, SMALL
from routing_agents import checkpoint
from routing_agents.evaluation import sources
from routing_agents.policies.attention.features import features_of
from routing_agents.policies.attention.model import AttentionModel, ModelConfig
from routing_agents.policies.attention.saved import describe
from routing_agents.trained import TrainedModel
from routing_gym import data
from routing_gym.problems import CVRP, LISTED, PROBLEMS, TSP, make_problem
from routing_gym.render.text import to_text

SQUARE = {"x": [0, 10, 10, 0], "y": [0, 0, 10, 10]}


@dataclass(frozen=True)
class TimedTSP(TSP):
    """TSP whose cost is the duration at a speed."""

    name: ClassVar[str] = "TIMEDTSP"
    subproblem: ClassVar[str | None] = None
    speed: float = 1.0

    def step(self, instance, state, action):
        state, cost = super().step(instance, state, action)
        return state, cost / self.speed

    def objective(self, instance, actions):
        return super().objective(instance, actions) / self.speed

    def cost_bound(self, instance):
        return super().cost_bound(instance) / self.speed


@dataclass(frozen=True)
class Squares(TimedTSP):
    """TSP whose cost has the unit of an area."""

    name: ClassVar[str] = "SQUARES"

    def cost_in_units(self, cost, scale):
        return cost * scale**2


class Profit(TimedTSP):
    name: ClassVar[str] = "PROFIT"
    maximises: ClassVar[bool] = True


@pytest.fixture
def registered(monkeypatch):
    """TimedTSP, until the test ends."""
    before = dict(PROBLEMS), list(LISTED), dict(gym.registry)
    routing_gym.register(TimedTSP)
    yield
    for registry, old in zip((PROBLEMS, gym.registry), (before[0], before[2]), strict=True):
        registry.clear()
        registry.update(old)
    LISTED[:] = before[1]


def test_environments_and_tables(registered):
    env = gym.make("routing/TIMEDTSP-20", speed=4.0)
    assert env.unwrapped.problem == TimedTSP(20, speed=4.0)
    assert gym.make_vec("routing/TIMEDTSP", num_envs=2, num_nodes=7).unwrapped.problem == TimedTSP(7)
    assert data.from_columns("TIMEDTSP", SQUARE).cost(np.arange(4)) == pytest.approx(40)
    routing_gym.register(TimedTSP)  # a notebook's cell that runs again
    inside = {
        "name": "OWN",
        "__module__": "routing_gym.problems.own",
    }  # a file of the package that is not in PROBLEMS
    routing_gym.register(type("Own", (TimedTSP,), inside))


def test_names_that_cannot_be_registered():
    with pytest.raises(ValueError, match="name 'TSP' is that of a problem of routing_gym; choose another one"):
        routing_gym.register(type("TSP", (TimedTSP,), {"name": "TSP"}))
    with pytest.raises(ValueError, match="name 'TSP-2': use letters and digits"):
        routing_gym.register(type("TSP", (TimedTSP,), {"name": "TSP-2"}))


class Nameless(TimedTSP):
    name: ClassVar[None] = None


class Larger(TimedTSP):
    name: ClassVar[str] = "LARGER"

    def __post_init__(self):
        if self.num_nodes < 4:
            raise ValueError("four cities, please")


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (TimedTSP(5), TypeError, r"register takes a class that extends routing_gym.Problem, got TimedTSP\(num_nodes=5"),
        (routing_gym.CompetitiveOP, TypeError, "register takes a class that extends routing_gym.Problem, got <class"),
        ("TSP", TypeError, "register takes a class that extends routing_gym.Problem, got 'TSP'"),
        (Nameless, TypeError, "Nameless.name is None; set it to the name in environment ids"),
        (
            Larger,
            ValueError,
            "LARGER: min_nodes is 2, but so many nodes are refused: four cities, please; declare min_n",
        ),
    ],
)
def test_classes_that_cannot_be_registered(given, error, message):
    with pytest.raises(error, match=message):
        routing_gym.register(given)
    assert "LARGER" not in PROBLEMS


def test_modules_that_an_environment_variable_names(tmp_path):
    """A process trains on a problem of a module outside the package; another command solves with the checkpoint."""
    (tmp_path / "my_problems.py").write_text(
        "import routing_gym\nclass Other(routing_gym.TSP):\n    name = 'OTHER'\nrouting_gym.register(Other)\n"
    )
    (tmp_path / "cities.csv").write_text("x,y\n0,0\n9,0\n9,9\n")
    paths = os.pathsep.join(map(str, (tmp_path, AGENTS, ROOT)))

    def run(*arguments, modules="my_problems"):
        environment = {**os.environ, "PYTHONPATH": paths, "ROUTING_GYM_MODULES": modules}
        command = [sys.executable, *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path, check=False)

    trained = run(
        AGENTS / "am_reinforce.py", "--env-id", "routing/OTHER-10", "--processes", "1", *SMALL[2:], "--epochs", "1"
    )
    assert trained.returncode == 0, trained.stderr
    solved = run(AGENTS / "solve.py", "--checkpoint", "runs/run", "cities.csv")
    assert solved.returncode == 0, solved.stderr
    missing = run("-c", "import routing_gym", modules="typo")
    told = "ROUTING_GYM_MODULES: No module named 'typo'; set PYTHONPATH to the folder of the module\n"
    assert missing.stderr.endswith(f"ImportError: {told}")
    assert missing.stderr.count("Traceback") == 1
    (tmp_path / "importing.py").write_text("import missing_package")
    missing = run("-c", "import routing_gym", modules="importing")
    assert missing.stderr.endswith("ImportError: ROUTING_GYM_MODULES: No module named 'missing_package'\n")
    command = run("-m", "routing_agents", "solve", "cities.csv", modules="typo")
    assert (command.returncode, command.stderr) == (1, f"routing-gym solve: {told}")
    hint = "unknown problem 'OTHER'.* register one of your own by routing_gym.register, for scripts in a module that"
    with pytest.raises(ValueError, match=hint):
        solve.main(solve.Args((tmp_path / "cities.csv",), checkpoint=tmp_path / "runs" / "run"))


def test_settings_and_units_of_costs():
    """A square of side 10 takes 40 / 4 at speed 4; its legs of 1 in the unit square are 4 in all, and 400 in areas."""
    assert data.from_columns(TimedTSP(9, speed=4.0), SQUARE).cost(np.arange(4)) == pytest.approx(10)
    assert data.from_columns(Squares(9), SQUARE).cost(np.arange(4)) == pytest.approx(400)


def test_a_negative_value_keeps_its_sign():
    problem = Profit(4)
    instance = problem.instance_type(np.array([[[0, 0], [1, 0], [1, 1], [0, 1]]], dtype=np.float32))
    assert to_text(problem, instance, np.arange(4)).startswith("PROFIT-4: prize -4.000")


def untrained(problem):
    sizes = {"embed_dim": 16, "num_heads": 2, "num_layers": 1, "feed_forward_dim": 16}
    return AttentionModel(features_of(problem), ModelConfig(**sizes))


def test_models_keep_their_settings(registered, tmp_path):
    problem = TimedTSP(10, speed=4.0)
    model = TrainedModel(untrained(problem), problem, tmp_path)
    coords = np.stack([SQUARE["x"], SQUARE["y"]], axis=1)
    assert model.solve(coords).cost == pytest.approx(10)
    instance = problem.instance_type((coords[None] / 10).astype(np.float32))
    assert model.solve(instance).cost == pytest.approx(1)


def test_scripts(registered, tmp_path, capsys):
    """The checkpoint's problem is that of a table that other problems take, too; its weights improve its tours."""
    problem, path = TimedTSP(10, speed=4.0), tmp_path / "own.safetensors"
    network = untrained(problem)
    checkpoint.save(path, checkpoint.prefixed("model", network.state_dict()), describe(problem, network))
    table = tmp_path / "square.csv"
    table.write_text("x,y\n" + "".join(f"{x},{y}\n" for x, y in zip(*SQUARE.values(), strict=True)))
    (solved,) = solve.main(solve.Args(files=(table,), checkpoint=path, out=tmp_path / "out", improve=0.1))
    assert solved.cost == pytest.approx(10)
    given = {"size": 3, "cache": tmp_path}
    mean = evaluate.main(evaluate.Args("random/TIMEDTSP-10", ("nearest-neighbour",), **given)).rows[0].mean.value
    fast = evaluate.Args("random/TIMEDTSP-10", ("nearest-neighbour",), env_kwargs={"speed": "4.0"}, **given)
    assert evaluate.main(fast).rows[0].mean.value == pytest.approx(mean / 4)
    with pytest.raises(ValueError, match="--env-kwargs has no effect: paper/TSP-20 is a fixed test set; leave it out"):
        evaluate.main(evaluate.Args("paper/TSP-20", env_kwargs={"speed": "4.0"}))


def test_a_heuristic_and_a_search_need_no_weights(tmp_path, monkeypatch):
    """The only tour within the capacity takes 2 + 4 = 6; without a heuristic, the problem needs weights."""

    class Vans(CVRP):
        name: ClassVar[str] = "VANS"
        subproblem: ClassVar[str | None] = None
        families: ClassVar[tuple[str, ...]] = ()

    monkeypatch.setitem(PROBLEMS, "VANS", Vans)
    table = tmp_path / "vans.csv"
    table.write_text("x,y,demand\n0,0,0\n1,0,3\n0,2,3\n")
    args = solve.Args((table,), problem="VANS", capacity=4, decoding="heuristic", improve=0.1, out=tmp_path / "out")
    (solved,) = solve.main(args)
    assert solved.cost == pytest.approx(6)
    assert (solved.solved_by, solved.weights) == ("nearest-neighbour, improved by route search", None)
    with pytest.raises(
        ValueError, match="no weights for VANS in .*; --decoding heuristic --improve SECONDS needs none"
    ):
        solve.main(dataclasses.replace(args, decoding="starts", overwrite=True))


def test_numbers_of_a_problem_without_an_option(tmp_path, monkeypatch):
    """`--numbers capacity 40` gives what `--capacity 40` gives, whatever the column is called."""
    table = tmp_path / "own.csv"
    table.write_text("x,y,demand\n0,0,0\n1,0,3\n")
    monkeypatch.setattr(sources, "NUMBERS", ())
    with pytest.raises(ValueError, match=re.escape("CVRP needs --numbers capacity; give it, or name another problem")):
        solve.main(solve.Args(files=(table,), out=tmp_path / "out"))
    (solved,) = solve.main(solve.Args(files=(table,), numbers={"capacity": 4}, out=tmp_path / "out"))
    assert solved.cost == pytest.approx(2)


@pytest.mark.parametrize(("suffix", "reader"), [(".csv", "read_csv"), (".pkl", "load_pickle")])
def test_other_files_are_read_by_other_functions(suffix, reader):
    with pytest.raises(data.UnsupportedFile, match=f"{suffix} files are read by `routing_gym.data.{reader}`"):
        data.read_instance(f"own{suffix}")


def test_archives_are_read_by_another_function(tmp_path):
    problem = make_problem("TSP", 5)
    data.save_npz(tmp_path / "five.npz", problem, problem.generate(np.random.default_rng(0), 2))
    with pytest.raises(data.UnsupportedFile, match=".npz files are read by `routing_gym.data.load_npz`"):
        data.read_instance(tmp_path / "five.npz")
    with pytest.raises(TypeError, match=r"problem: expected a Problem such as TSP\(50\), got TSPInstance"):
        data.save_npz(tmp_path / "swapped.npz", problem.generate(np.random.default_rng(0), 2), problem)
