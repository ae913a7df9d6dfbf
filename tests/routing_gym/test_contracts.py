"""Every problem and every id against the contract suite and the public checkers; and the suite against broken ones."""

import dataclasses
import subprocess
import sys
from dataclasses import dataclass
from typing import ClassVar

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

from problem_names import COMBINED, ONE_OF_EACH
from routing_gym import CVRP, OP, PCTSP, SDVRP, TSP, RoutingEnv, RoutingVectorEnv
from routing_gym.problems import PROBLEMS, make_problem
from routing_gym.testing import ContractViolation, check_problem, check_vector_env
from routing_gym.testing.compare import difference
from routing_gym.testing.exhaustive import check_exhaustively
from routing_gym.testing.problem import check_generate, check_objective, check_progress, play
from routing_gym.traits import Column, Observations

FORK = "ignore:.*multi-threaded, use of fork:DeprecationWarning"  # AsyncVectorEnv's, from Python 3.12 on


# --- what must pass


@pytest.mark.parametrize(
    "problem",
    [*[make_problem(name, 10) for name in (*ONE_OF_EACH, "VRPTW", *COMBINED)], TSP(2), CVRP(1), OP(1)],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:check_problem. .*not installed, so only:UserWarning")
def test_problems_keep_their_contract(problem):
    check_problem(problem)


@pytest.mark.parametrize(
    "problem",
    [
        OP(10, prize="constant"),
        OP(10, prize="uniform", max_length=1.0),
        CVRP(10, capacity=9),
        SDVRP(10, capacity=9),
        PCTSP(10, penalty_scale=0.1),
        *[make_problem(name, PROBLEMS[name].min_nodes) for name in ONE_OF_EACH],
    ],
    ids=str,
)
def test_settings_and_smallest_sizes_keep_its_core(problem):
    """Without the comparison of backends, which play the same lines whatever the settings are."""
    instance = check_generate(problem, 32, 0)
    episodes = play(problem, instance, np.random.default_rng(0))
    check_objective(problem, instance, episodes)
    check_progress(problem, instance, episodes)
    small = dataclasses.replace(problem, num_nodes=min(problem.num_nodes, 3))
    check_exhaustively(small, small.generate(np.random.default_rng(0), 2))


@pytest.mark.parametrize("name", ["TSP", "OP", "SPCTSP", "MTSP", "OVRPBLTW"])  # ATSP: in test_no_coordinates
@pytest.mark.filterwarnings(FORK)
def test_native_vector_env_equals_sync_and_async(name):
    """One class for all problems, which may differ in what they observe and in how long episodes last."""
    check_vector_env(f"routing_gym:routing/{name}-10")


@pytest.mark.parametrize("name", ["SDVRP", "ATSP"])
@pytest.mark.filterwarnings(FORK)
def test_torch_vector_env_equals_sync_and_async(name):
    """Within 1e-5: torch's and NumPy's square roots differ in the last bit; `check_problem` compares all rules."""
    pytest.importorskip("torch")
    check_vector_env(f"routing_gym:routing/{name}-10", backend="torch", tolerance=1e-5)


def test_workers_may_be_spawned_from_a_process_that_imports_nothing_else(tmp_path):
    """They know the environment from its spec; ids are registered in the first process only."""
    script = tmp_path / "check.py"
    script.write_text(
        "if __name__ == '__main__':\n"
        "    from routing_gym.testing import check_vector_env\n"
        "    check_vector_env('routing/TSP', num_envs=2, num_nodes=4, num_episodes=1, context='spawn')\n"
    )
    subprocess.run([sys.executable, script], check=True)


@pytest.mark.parametrize("options", [{"reward": "sparse"}, {"copy": False}], ids=str)
@pytest.mark.filterwarnings(FORK)
def test_native_vector_env_equals_sync_and_async_with(options):
    check_vector_env("routing_gym:routing/CVRP-10", **options)


@pytest.mark.filterwarnings(FORK)
def test_a_made_vector_env_is_checked_in_its_own_mode():
    env = gym.make_vec("routing/OP-10", num_envs=3, autoreset_mode="SameStep", prize="constant")
    check_vector_env(env)


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_gymnasium_checker(name, monkeypatch):
    """All warnings are errors here, see pyproject.toml. Draws in all render modes."""
    pytest.importorskip("matplotlib")
    monkeypatch.setenv("MPLBACKEND", "Agg")
    check_env(gym.make(f"routing/{name}-10").unwrapped)


@pytest.mark.parametrize("name", ONE_OF_EACH)
@pytest.mark.filterwarnings("ignore:.*unconventional shape:UserWarning")
def test_stable_baselines3_checker(name):
    """It would rather have flat observations than coordinates (A, 2); all its other warnings are errors."""
    checker = pytest.importorskip("stable_baselines3.common.env_checker")
    checker.check_env(gym.make(f"routing/{name}-10").unwrapped)


# --- what must not: one fault each


@dataclass(frozen=True)
class EmptyMask(TSP):
    def action_mask(self, instance, state):
        return super().action_mask(instance, state) & (state.num_visited < 3)[:, None]


@dataclass(frozen=True)
class DoneRowsMayGoOn(TSP):
    def action_mask(self, instance, state):
        return super().action_mask(instance, state) | self.done(instance, state)[:, None]


@dataclass(frozen=True)
class ClosingEdgeForgotten(TSP):
    def step(self, instance, state, action):
        new_state, cost = super().step(instance, state, action)
        return new_state, cost * (new_state.num_visited < self.num_nodes)


@dataclass(frozen=True)
class LockstepAssumed(TSP):
    def done(self, instance, state):
        return np.full(len(state.node), bool(state.num_visited[0] == self.num_nodes))


@dataclass(frozen=True)
class WritesIntoTheState(CVRP):
    def step(self, instance, state, action):
        state.load[action == 0] = 0
        return super().step(instance, state, action)


@dataclass(frozen=True)
class GenerateDependsOnTheBatch(CVRP):
    def generate(self, rng, batch_size):
        instance = super().generate(rng, batch_size)
        return dataclasses.replace(instance, capacity=instance.capacity + batch_size)


@dataclass(frozen=True)
class GenerateOverridden(TSP):
    """The environments draw with `from_uniforms`, lane by lane, so this would train on other instances."""

    def generate(self, rng, batch_size):
        instance = super().generate(rng, batch_size)
        return dataclasses.replace(instance, coords=instance.coords / 2)


@dataclass(frozen=True)
class CustomersThatFitExactlyAreForbidden(CVRP):
    """The fault of the original code, where float32 shares of the capacity add up to more than 1."""

    def action_mask(self, instance, state):
        mask = super().action_mask(instance, state)
        mask[:, 1:] &= (instance.demand < (instance.capacity - state.load)[:, None])[:, 1:]
        return mask


@dataclass(frozen=True)
class DepotNeedsToBePassedAtOnce(SDVRP):
    """Goes home after each delivery: legal, but the best tours are gone."""

    def action_mask(self, instance, state):
        mask = super().action_mask(instance, state)
        mask[:, 1:] &= (state.node == 0)[:, None]
        return mask


@dataclass(frozen=True)
class ObservationOutsideItsSpace(OP):
    def observe_dynamic(self, instance, state):
        seen = super().observe_dynamic(instance, state)
        return seen | {"remaining_length": seen["remaining_length"] - 1}


@dataclass(frozen=True)
class HorizonTooShort(CVRP):
    @property
    def horizon(self):
        return self.num_nodes


@dataclass(frozen=True)
class BoundTooLow(TSP):
    def cost_bound(self, instance):
        return super().cost_bound(instance) / 10


@dataclass(frozen=True)
class NoProgress(TSP):
    def progress(self, instance, state):
        return 0.0 * super().progress(instance, state)


@dataclass(frozen=True)
class ProgressFalls(CVRP):
    def progress(self, instance, state):
        return 1.0 - super().progress(instance, state)


@dataclass(frozen=True)
class LengthNotObserved(TSP):
    length_observations: ClassVar[tuple[str, ...]] = ("remaining_length",)


@dataclass(frozen=True)
class FeatureNotObserved(CVRP):
    observations: ClassVar[Observations] = Observations(per_node=("demands",))


@dataclass(frozen=True)
class ColumnWithoutField(CVRP):
    columns: ClassVar[tuple[Column, ...]] = (*CVRP.columns, Column("wgt", "weight", "amount"))


@dataclass(frozen=True)
class FinishedRowsPay(OP):
    def step(self, instance, state, action):
        new_state, cost = super().step(instance, state, action)
        return new_state, cost + state.returned.astype(np.float32)


@dataclass(frozen=True)
class ObjectiveAcceptsAnything(CVRP):
    def objective(self, instance, actions):
        from routing_gym.problems.checks import tour_length

        return tour_length(instance, np.asarray(actions), closed_at_depot=True)


@dataclass(frozen=True)
class CapacityNotInTheObjective(CVRP):
    def objective(self, instance, actions):
        return super().objective(dataclasses.replace(instance, capacity=instance.capacity * 100), actions)


@dataclass(frozen=True)
class LengthNotInTheObjective(OP):
    def objective(self, instance, actions):
        return super().objective(dataclasses.replace(instance, max_length=instance.max_length * 100), actions)


@dataclass(frozen=True)
class TorchRoundsDifferently(OP):
    def action_mask(self, instance, state):
        if not isinstance(state.node, np.ndarray):
            instance = dataclasses.replace(instance, max_length=instance.max_length - 0.1)
        return super().action_mask(instance, state)


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (EmptyMask(10), r"EmptyMask\(num_nodes=10, matrices=False\): action_mask, step 3: row 0 has no legal action"),
        (DoneRowsMayGoOn(10), "action_mask, step 10: row 0 is done but has 10 legal actions, expected 1"),
        (ClosingEdgeForgotten(10), "objective: row 0: tour .* costs .*, but its steps cost"),
        (LockstepAssumed(10), "depends on the other rows"),
        (WritesIntoTheState(10), r"step: changed its argument 1: \['load'\]: at"),
        (GenerateDependsOnTheBatch(10), r"generate: two batches in turn differ from one .*: \['capacity'\]"),
        (GenerateOverridden(10), "generate: differs from from_uniforms, which the environments use"),
        (CustomersThatFitExactlyAreForbidden(20, capacity=30), "small instance, row [0-9]"),
        (DepotNeedsToBePassedAtOnce(10), "the best legal sequence .* costs .*, but .* costs"),
        (ObservationOutsideItsSpace(10), "observe, step [0-9]+: row [0-9]+: remaining_length = .* is outside Box"),
        (HorizonTooShort(10), "horizon: row [0-9]+ is not done after `horizon` = 10 steps"),
        (BoundTooLow(10), "cost_bound: row 0: tour .* costs .*, above the bound [01][.]"),
        (NoProgress(10), "progress: no episode makes any, so nothing can be learnt from illegal ends"),
        (ProgressFalls(10), "progress, step 1: row 0 has less than before"),
        (LengthNotObserved(10), r"length_observations: \['remaining_length'\] are not in observation_space"),
        (FeatureNotObserved(10), r"observations: \['demands'\] are not in observation_space"),
        (ColumnWithoutField(10), r"columns: \['wgt'\] are no fields of CVRPInstance"),
        (FinishedRowsPay(10), "step [0-9]+: row [0-9]+ was done, yet paid"),
        (CapacityNotInTheObjective(20, capacity=30), "small instance, row [0-9]: the best legal sequence"),
        (LengthNotInTheObjective(100, max_length=4.0), "small instance, row [0-9]: the best legal sequence"),
        (ObjectiveAcceptsAnything(10), "objective: row 0: accepted .* without its last action"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, TSP | CVRP | SDVRP | OP) else "",
)
def test_check_problem_finds(problem, message):
    with pytest.raises(ContractViolation, match=message):
        check_problem(problem)


@pytest.mark.parametrize("problem", ["TSP", TSP])
def test_check_problem_takes_a_problem(problem):
    with pytest.raises(TypeError, match=r"takes a problem, such as make_problem\('TSP', 10\), got"):
        check_problem(problem)


def test_check_problem_finds_a_backend_that_disagrees():
    pytest.importorskip("torch")
    with pytest.raises(
        ContractViolation, match=r"action_mask, step [0-9]+: torch and NumPy disagree at \(row, action\)"
    ):
        check_problem(TorchRoundsDifferently(10))


def test_check_problem_says_which_backends_are_missing(monkeypatch):
    monkeypatch.setattr("routing_gym.testing.backends.find_spec", lambda name: None)
    with pytest.warns(UserWarning, match="check_problem: torch and jax not installed, so only NumPy was checked"):
        check_problem(TSP(4))


class RewardsAreFloat32(RoutingVectorEnv):
    def step(self, actions):
        observation, reward, *rest = super().step(actions)
        return observation, reward.astype(np.float32), *rest


class LanesShareOneGenerator(RoutingVectorEnv):
    def _draw(self, lanes):
        self._generators = [self._generators[0]] * self.num_envs
        return super()._draw(lanes)


class FinalInfoMissing(RoutingVectorEnv):
    def _final(self, lanes):
        return {key: value for key, value in super()._final(lanes).items() if "final_info" not in key}


class FinalObservationOfTheNextEpisode(RoutingVectorEnv):
    def step(self, actions):
        observation, *rest, infos = super().step(actions)
        for lane in np.flatnonzero(infos.get("_final_obs", [])):
            infos["final_obs"][lane] = {key: value[lane] for key, value in observation.items()}
        return observation, *rest, infos


class CopiesAreViews(RoutingVectorEnv):
    def step(self, actions):
        self.copy = False
        result = super().step(actions)
        self.copy = True
        return result


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (
            RewardsAreFloat32,
            r"SyncVectorEnv, AutoresetMode.NEXT_STEP: step 0, reward: .* float32 \(4,\) != float64 \(4,\)",
        ),
        (LanesShareOneGenerator, r"reset\(seed\), observation: native != reference: \['coords'\]: at"),
        (FinalInfoMissing, "AutoresetMode.SAME_STEP: step [0-9]+, info: native != reference: keys"),
        (FinalObservationOfTheNextEpisode, r"SAME_STEP: step [0-9]+, info: .*\['final_obs'\]\[[0-3]\]"),
        (CopiesAreViews, r"step [0-9]+: changed what was returned before: \[0\]\['coords'\]"),
    ],
)
@pytest.mark.filterwarnings(FORK)
def test_check_vector_env_finds(broken, message):
    gym.register("test/Broken", RoutingEnv, vector_entry_point=broken, kwargs={"problem": "CVRP", "num_nodes": 6})
    try:
        with pytest.raises(ContractViolation, match=message):
            check_vector_env("test/Broken")
    finally:
        del gym.registry["test/Broken"]


@pytest.mark.filterwarnings(FORK)
def test_check_vector_env_says_when_lanes_never_came_out_of_step():
    """Four TSP lanes without illegal actions all end every fifth step."""
    env = gym.make_vec("routing/TSP", num_envs=4, num_nodes=5)
    with pytest.warns(UserWarning, match="all lanes always ended together"):
        check_vector_env(env, unmasked=0.0)


def test_check_vector_env_takes_a_vector_env():
    with pytest.raises(TypeError, match="takes an id or a vector environment of gymnasium.make_vec, got TSP"):
        check_vector_env(TSP(5))


def test_check_vector_env_refuses_keywords_for_a_made_env():
    with pytest.raises(TypeError, match=r"pass an id and keywords, or what gymnasium.make_vec returned"):
        check_vector_env(RoutingVectorEnv("TSP", 5), reward="sparse")


# --- the comparison beneath


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        ({"a": 1}, {"b": 1}, "keys ['a'] != ['b']"),
        ([1, (2, 3)], [1, (2, 4)], "[1][1]: 3 != 4"),
        (1.0, 1, "float != int"),
        ({"a": 1}, None, "dict != NoneType"),
        ([1], None, "list != NoneType"),
        (np.array([None]), np.array([1]), "object (1,) != int64 (1,)"),
        (TSP(5), 5, "TSP != int"),
        (np.zeros(2), np.zeros(2, np.float32), "float64 (2,) != float32 (2,)"),
        (np.zeros((2, 2)), np.array([[0, 0], [0, 0.5]]), "at (1, 1): 0.0 != 0.5"),
        (np.array([np.nan]), np.array([np.nan]), "at (0,): nan != nan"),
        (np.array([None, {"x": 1}]), np.array([None, {"x": 2}]), "[1]['x']: 1 != 2"),
        (np.array([1.0]), np.array([1.0]), None),
    ],
)
def test_difference(first, second, found):
    assert difference(first, second) == found


def test_difference_within_tolerance():
    assert difference(np.array([1.0]), np.array([1.05]), tolerance=0.1) is None
    assert difference(np.array([1]), np.array([2]), tolerance=5) == "at (0,): 1 != 2"  # integers must be equal


def test_all_modes_were_meant():
    """`check_vector_env` goes through `AutoresetMode`; a mode that Gymnasium adds must be added to the envs."""
    assert {mode.value for mode in AutoresetMode} == {"NextStep", "SameStep", "Disabled"}
