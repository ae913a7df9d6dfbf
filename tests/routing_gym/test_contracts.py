"""Every problem and every id against the contract suite and the public checkers; and the suite against broken ones."""

import dataclasses
import subprocess
import sys
from dataclasses import dataclass
from typing import ClassVar

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

from problem_names import COMBINED, ONE_OF_EACH
from routing_gym import CVRP, MTSP, OP, PCTSP, SDVRP, TSP, InfeasibleTour, RoutingEnv, RoutingVectorEnv, TSPInstance
from routing_gym.problems import PROBLEMS, make_problem
from routing_gym.testing import ContractViolation, check_problem, check_vector_env
from routing_gym.testing.compare import difference
from routing_gym.testing.costs import check_plain_routes, check_units
from routing_gym.testing.declarations import warn_of_hidden_numbers
from routing_gym.testing.exhaustive import check_exhaustively
from routing_gym.testing.problem import check_generate, check_objective, check_progress, play
from routing_gym.traits import COORDS, Column, Observations

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
class ReturnNotInTheHorizon(OP):
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
        (WritesIntoTheState(10), r"step: changed its argument state: \['load'\]: at"),
        (GenerateDependsOnTheBatch(10), r"generate: two batches in turn differ from one .*: \['capacity'\]"),
        (GenerateOverridden(10), "generate: differs from from_uniforms, which the environments use"),
        (CustomersThatFitExactlyAreForbidden(20, capacity=30), "small instance, row [0-9]"),
        (DepotNeedsToBePassedAtOnce(10), "the best legal sequence .* costs .*, but .* costs"),
        (ObservationOutsideItsSpace(10), "observe, step [0-9]+: row [0-9]+: remaining_length = .* is outside Box"),
        (HorizonTooShort(10), "horizon: row [0-9]+ is not done after `horizon` = 10 steps"),
        (ReturnNotInTheHorizon(10), "horizon: the legal sequence .* has not ended after [0-9] steps"),
        (BoundTooLow(10), "cost_bound: row 0: tour .* costs .*, above the bound [01][.]"),
        (NoProgress(10), "progress: no episode makes any, so nothing can be learnt from illegal ends"),
        (ProgressFalls(10), "progress, step 1: row 0 has less than before"),
        (LengthNotObserved(10), r"length_observations: \['remaining_length'\] are not in observation_space"),
        (FeatureNotObserved(10), r"observations: \['demands'\] are not in observation_space"),
        (ColumnWithoutField(10), r"columns: \['wgt'\] are no fields of CVRPInstance"),
        (FinishedRowsPay(10), "step [0-9]+: row [0-9]+ was done, yet paid"),
        (CapacityNotInTheObjective(20, capacity=30), "small instance, row [0-9]+: the best legal sequence"),
        (LengthNotInTheObjective(100, max_length=4.0), "small instance, row [0-9]+: the best legal sequence"),
        (ObjectiveAcceptsAnything(10), "objective: row 0: accepted .* without its last action"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, TSP | CVRP | SDVRP | OP) else "",
)
def test_check_problem_finds(problem, message):
    with pytest.raises(ContractViolation, match=message):
        check_problem(problem)


@dataclass(frozen=True)
class AtLeastFive(TSP):
    def __post_init__(self):
        if self.num_nodes < 5:
            raise ValueError("five, please")


def wrong(base, size=10, **members):
    """Return a problem of a class that overrides members of another."""
    return dataclass(frozen=True)(type(f"Wrong{base.__name__}", (base,), members))(size)


def step_with(change):
    """Return a method `step` of CVRP whose result a function changes."""
    return lambda self, instance, state, action: change(*CVRP.step(self, instance, state, action))


def state_with(**changes):
    """Return a method `step` of CVRP that changes fields of the new state by functions."""
    return step_with(lambda state, cost: (dataclasses.replace(state, **changed(state, changes)), cost))


def changed(batch, changes):
    return {name: change(getattr(batch, name)) for name, change in changes.items()}


def drawn_with(base, **changes):
    """Return a method `from_uniforms` that changes fields of the instances by functions."""

    def from_uniforms(self, uniforms):
        instance = base.from_uniforms(self, uniforms)
        return dataclasses.replace(instance, **changed(instance, changes))

    return from_uniforms


def as_value_error(self, instance, actions):
    try:
        return CVRP.objective(self, instance, actions)
    except ValueError as error:
        raise ValueError(str(error)) from None


def city_1_after_city_0(self, instance, state):
    return state.selectable & ~((np.arange(self.num_nodes) == 1) & state.selectable[:, :1])


def without_distances(instance):
    return dataclasses.replace(instance, distances=None)


def transposed(instance):
    lengths = instance.distances
    return dataclasses.replace(instance, distances=None if lengths is None else lengths.swapaxes(1, 2))


def observing(**traits):
    """Return a CVRP that declares these traits, and observes a static number "size"."""
    return wrong(
        CVRP,
        observations=Observations(**traits),
        observe_static=lambda self, i: CVRP.observe_static(self, i) | {"size": np.ones((len(i.demand), 1), np.float32)},
        observation_space=lambda self: spaces.Dict(
            {**CVRP.observation_space(self), "size": spaces.Box(0.0, 1.0, (1,), np.float32)}
        ),
    )


def with_columns(*columns, base=CVRP):
    """Return a problem with other columns of the same names."""
    others = [column for column in base.columns if column.name not in {new.name for new in columns}]
    return wrong(base, columns=(*others, *columns))


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        # the names and types that it declares
        (wrong(TSP, name=None), "name: is None, expected the text of the environment's id"),
        (wrong(TSP, subproblem="NOPE"), "subproblem: 'NOPE' is no problem; choose one of PROBLEMS, or None"),
        (wrong(TSP, action_mask=city_1_after_city_0), "any_first_node: is True, but row 0 may not start at node 1"),
        (
            wrong(OP, visits_all=True),
            r"visits_all: is True, but tour \[.*\] of row 0 leaves out \[.*\]; set it to False",
        ),
        # observations
        (
            observing(per_edge=("demand",)),
            r"observations.per_edge: \['demand'\] are not among \['distances', 'durations'",
        ),
        (observing(per_node="demand"), "observations.per_node: is 'demand', expected a tuple of keys; a tuple of one"),
        (observing(pairs=("demand",)), r"observations.pairs: is \('demand',\), expected a key or None"),
        (
            observing(per_node=("size",)),
            r"per_node, 'size': is float32 \(32, 1\), expected an array float32 \(32, 11\)",
        ),
        (observing(per_node=("free_capacity",)), "per_node: 'free_capacity' does not come from observe_static"),
        (observing(context_scalars=("size",)), "context_scalars: 'size' does not come from observe_dynamic"),
        (observing(context_nodes=("free_capacity",)), r"is float32 \(32, 1\), expected an array int64 \(32,\)"),
        # columns
        (wrong(CVRP, columns=(COORDS,)), r"no required column fills \['capacity', 'demand'\] of CVRPInstance"),
        (
            with_columns(Column("demand", "", "weight")),
            "columns, demand: kind is 'weight', expected one of coords, matrix",
        ),
        (
            with_columns(Column("demand", "", "amount", per="row")),
            "columns, demand: per is 'row', expected one of node, ",
        ),
        (with_columns(Column("demand", "", "amount")), r"demand: the field: is int64 \(32, 11\), expected .* float32"),
        (
            with_columns(Column("demand", "", "amount", per="instance", integer=True)),
            r"demand: the field: is int64 \(32, 11\), expected an array int64 \(32,\)",
        ),
        (
            with_columns(Column("capacity", "", "amount", integer=True)),
            r"capacity: the field: is int64 \(32,\), expected an array int64 \(32, 11\)",
        ),
        # instances
        (wrong(CVRP, num_uniforms=5), "generate, num_uniforms = 5: raised ValueError: cannot reshape"),
        (
            wrong(TSP, from_uniforms=drawn_with(TSP, coords=np.float64)),
            "validate, of a generated instance: raised InvalidInstance: coords: expected a float32 array",
        ),
        (
            wrong(TSP, from_uniforms=drawn_with(TSP, coords=lambda coords: -coords)),
            "validate, of a generated instance: raised InvalidInstance: coords: row 0, index",
        ),
        (wrong(TSP, from_uniforms=lambda self, uniforms: (uniforms,)), "generate: is a tuple, expected a TSPInstance"),
        (
            wrong(TSP, from_uniforms=lambda self, uniforms: TSP.from_uniforms(self, 0 * uniforms)),
            "generate: all instances of a batch are the same: does from_uniforms use the uniforms",
        ),
        (wrong(TSP, validate=lambda *_: None), r"validate: accepts coords of shape \(2, 10, 2, 1\); raise InvalidInst"),
        (
            wrong(TSP, validate=lambda self, i: TSP.validate(self, TSPInstance(np.nan_to_num(i.coords)))),
            r"validate: accepts a coords that is not a number \(NaN\)",
        ),
        (
            wrong(
                CVRP,
                validate=lambda self, i: CVRP.validate(
                    self, dataclasses.replace(i, capacity=np.repeat(i.capacity[:1], len(i.demand), axis=0))
                ),
            ),
            "validate: accepts capacity with a row less than other fields",
        ),
        (wrong(TSP, rescale=lambda *_: 1 / 0), "rescale: raised ZeroDivisionError: division by zero"),
        (
            wrong(TSP, rescale=lambda self, i: dataclasses.replace(i, coords=i.coords / 2)),
            r"rescale: changes a generated instance, as networks are trained on: \['coords'\]",
        ),
        # results of the rules
        (wrong(CVRP, initial=lambda *_: 1 / 0), "initial: raised ZeroDivisionError: division by zero"),
        (wrong(CVRP, initial=lambda self, i: {}), "initial: is a dict, expected a CVRPState"),
        (wrong(CVRP, action_mask=lambda *_: [True]), "action_mask, step 0: is list, expected an array bool"),
        (wrong(CVRP, done=lambda self, i, s: CVRP.done(self, i, s).astype(int)), "done, step 0: is int64 .*expected"),
        (
            wrong(CVRP, step=step_with(lambda state, cost: state)),
            "step 0: step returned .*, expected a tuple of the new",
        ),
        (
            wrong(CVRP, step=step_with(lambda state, cost: (vars(state), cost))),
            "step 0, the new state: is a dict, expected",
        ),
        (
            wrong(CVRP, step=step_with(lambda state, cost: (state, cost.sum()))),
            r"the cost: is float32 \(\), expected an",
        ),
        (
            wrong(CVRP, step=step_with(lambda state, cost: (state, cost[:, None]))),
            r"the cost: is float32 \(32, 1\), exp",
        ),
        (
            wrong(TSP, step=lambda self, i, s, action: TSP.step(self, i, s, action * 0 + action[0])),
            r"objective: refused \[.*\], whose actions were legal in their states: row 0, step",
        ),
        (
            wrong(CVRP, step=state_with(load=lambda load: 0)),
            "step 0, the new state: field load is int, expected an array",
        ),
        (
            wrong(CVRP, step=state_with(load=np.float32)),
            r"step 0, the new state: field load becomes float32 \(32,\), it was int64 \(32,\); keep dtypes and shapes",
        ),
        (wrong(CVRP, step=lambda *_: 1 / 0), "step, step 0: raised ZeroDivisionError: division by zero"),
        (wrong(CVRP, objective=lambda *_: 1.5), r"objective: is float, expected an array float64 \(1,\)"),
        (
            wrong(CVRP, objective=as_value_error),
            "objective, incomplete tour: raised ValueError: .*; the only error allowed",
        ),
        (wrong(CVRP, cost_bound=lambda *_: 100.0), r"cost_bound: is float, expected an array of floats \(32,\)"),
        (wrong(CVRP, progress=lambda *_: 1.0), r"progress, step 0: is float, expected an array float64 \(32,\)"),
        (
            wrong(TSP, why_illegal=lambda *_: None),
            "why_illegal: returned None for row [0-9]+, action [0-9], expected the",
        ),
        (wrong(TSP, why_illegal=lambda *_: 1 / 0), "why_illegal, step 1: raised ZeroDivisionError"),
        (wrong(CVRP, amounts=lambda *_: 1 / 0), "amounts: raised ZeroDivisionError"),
        (wrong(CVRP, amounts=lambda *_: []), r"amounts: returned \[\] for [0-9] routes, expected a dict for each"),
        (wrong(CVRP, routes=lambda *_: None), "routes: returned None, expected a list of Route"),
        # distances
        (
            wrong(
                TSP,
                step=lambda self, i, s, a: TSP.step(self, without_distances(i), s, a),
                objective=lambda self, i, a: TSP.objective(self, without_distances(i), a),
            ),
            "objective: depends on coordinates in spite of `distances`: at",
        ),
        (
            wrong(TSP, step=lambda self, i, s, a: TSP.step(self, transposed(i), s, a)),
            "objective: row 0: tour .* costs .*, but its steps cost",
        ),
        (
            wrong(OP, action_mask=lambda self, i, s: OP.action_mask(self, without_distances(i), s)),
            "objective: refused .*, whose actions were legal in their states",
        ),
    ],
    ids=lambda value: "" if isinstance(value, str) else type(value).__name__,
)
@pytest.mark.filterwarnings("ignore:check_problem. .*not installed, so only:UserWarning")
def test_check_problem_finds_wrong_members(problem, message):
    with pytest.raises(ContractViolation, match=message):
        check_problem(problem)


def of_three_customers(self, instance, actions):
    """Costs of CVRP; routes may have three customers."""
    for row, tour in enumerate(np.asarray(actions).tolist()):
        if any(len(nodes) > 5 for nodes in self.split(tour)):
            raise InfeasibleTour(row, 4, "four customers")
    return CVRP.objective(self, instance, actions)


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (wrong(OP, maximises=False), "cost_in_units: row 0: a tour costs -.*, and -.* in an instance with half of"),
        (
            wrong(TSP, objective=lambda *given: TSP.objective(*given) ** 2),
            r"cost_in_units: row 0: a tour costs .* \(prizes and penalties that are added to lengths have kind",
        ),
        (wrong(OP, cost_in_units=lambda self, cost, scale: cost * scale), "cost_in_units makes .*; see the kind of"),
        (
            with_columns(Column("max_length", "", "amount", per="instance"), base=OP),
            "length_observations: remaining_length is not 0.5 times as large in an instance with half of coords",
        ),
        (
            with_columns(Column("coords", "", "amount"), base=OP),
            "columns: an instance with half of max_length.* refuses a legal tour: row 0, step .*; see the kind of",
        ),
        (
            wrong(OP, length_observations=()),
            "remaining_length halves with the lengths in .*, step 0; add remaining_length to length_observations",
        ),
    ],
)
def test_units_that_are_declared_wrongly(problem, message):
    instance = problem.generate(np.random.default_rng(0), 8)
    played = play(problem, instance, np.random.default_rng(0))
    with pytest.raises(ContractViolation, match=message):
        check_units(problem, instance, played.actions[:, : max(played.lengths)])


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (
            wrong(TSP, objective=lambda *given: 2 * TSP.objective(*given)),
            "row 0: the tour .* costs .*, and its routes are",
        ),
        (
            wrong(CVRP, objective=lambda *given: 2 * CVRP.objective(*given)),
            "row 0: the tour .* costs .*, and its routes are",
        ),
        (
            wrong(CVRP, objective=of_three_customers),
            "row [01]: refuses the tour .*: row 0, step 4: four customers; set pl",
        ),
    ],
)
def test_plain_routes_that_are_inherited_by_mistake(problem, message):
    instance = problem.generate(np.random.default_rng(0), 2)
    tours = play(problem, instance, np.random.default_rng(0)).actions[:, : problem.horizon]
    with pytest.raises(ContractViolation, match=f"plain_routes: {message}"):
        check_plain_routes(problem, instance, tours)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"problem": TSP(10), "small": TSP(8)}, "small instance: 1.67772e.07 sequences of 8 steps are too many to try"),
        ({"problem": AtLeastFive(8)}, "min_nodes: is 2, but 4 nodes are refused: five, please; declare it, or pass"),
    ],
)
def test_small_problems_that_are_too_large_or_too_small(arguments, message):
    with pytest.raises(ContractViolation, match=message):
        check_problem(**arguments)


def test_check_problem_warns_about_a_number_that_is_not_observed():
    """The share of the salesmen that are left is 1 at the start, whatever their number is."""

    def observe(self, instance, state):
        return MTSP.observe_dynamic(self, instance, state) | {"equal_share": np.ones((len(state.node), 1), np.float32)}

    problem = wrong(MTSP, observe_dynamic=observe)
    with pytest.warns(UserWarning, match="instances that differ in num_salesmen only have the same observations"):
        warn_of_hidden_numbers(problem, problem.generate(np.random.default_rng(0), 4))


@pytest.mark.parametrize(("limit", "more"), [("capacity", 1), ("max_length", 0.1)])
@pytest.mark.parametrize("seed", [0, 4])
def test_check_problem_finds_a_limit_that_the_objective_exceeds_a_little(limit, more, seed):
    """With any seed: the exhaustive search has enough instances in which the limit matters."""
    base = CVRP if limit == "capacity" else OP

    def objective(self, instance, actions):
        return base.objective(self, dataclasses.replace(instance, **{limit: getattr(instance, limit) + more}), actions)

    with pytest.raises(ContractViolation, match="small instance, row [0-9]+: the best legal sequence"):
        check_problem(wrong(base, objective=objective), seed=seed, batch_size=2)


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (
            wrong(CVRP, step=step_with(lambda state, cost: (state, np.asarray(cost)))),
            "step, JAX: raised TracerArrayConversionError",
        ),
        (
            wrong(TSP, done=lambda self, i, s: TSP.done(self, i, s) if s.num_visited.all() else s.num_visited > 9),
            r"done, JAX: raised TracerBoolConversionError \(use xp.where instead of if\)",
        ),
        (
            wrong(TSP, from_uniforms=lambda self, uniforms: TSP.from_uniforms(self, np.asarray(uniforms))),
            "from_uniforms, JAX: raised TracerArrayConversionError",
        ),
        (
            wrong(TSP, from_uniforms=drawn_with(TSP, coords=lambda x: x if isinstance(x, np.ndarray) else x / 2)),
            "from_uniforms: only [0-9]% of the numbers in coords are the same on JAX and NumPy",
        ),
    ],
    ids=["step", "if", "from_uniforms", "other numbers"],
)
@pytest.mark.filterwarnings("ignore:check_problem. .*not installed, so only:UserWarning")
def test_check_problem_finds_what_jax_cannot_do(problem, message):
    pytest.importorskip("jax")
    with pytest.raises(ContractViolation, match=message):
        check_problem(problem)


@pytest.mark.parametrize(("trait", "value"), [("instance_type", tuple), ("state_type", None)])
def test_check_problem_finds_batches_that_are_no_dataclasses(trait, value, monkeypatch):
    monkeypatch.setattr(TSP, trait, value)  # a subclass would be registered with JAX, which refuses it
    with pytest.raises(
        ContractViolation, match=f"{trait}: is {value}, expected a frozen dataclass of arrays: name its"
    ):
        check_problem(TSP(4))


@pytest.mark.parametrize("problem", ["TSP", TSP])
def test_check_problem_takes_a_problem(problem):
    with pytest.raises(TypeError, match=r"takes a problem, such as make_problem\('TSP', 10\), got"):
        check_problem(problem)


@pytest.mark.filterwarnings("ignore:check_problem. .*not installed, so only:UserWarning")
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
    assert difference(np.array([20.0]), np.array([21.0]), tolerance=0.1) is None  # relative above 1
    assert difference(np.array([0.2]), np.array([0.4]), tolerance=0.1) == "at (0,): 0.2 != 0.4"
    assert difference(np.array([1]), np.array([2]), tolerance=5) == "at (0,): 1 != 2"  # integers must be equal


def test_all_modes_were_meant():
    """`check_vector_env` goes through `AutoresetMode`; a mode that Gymnasium adds must be added to the envs."""
    assert {mode.value for mode in AutoresetMode} == {"NextStep", "SameStep", "Disabled"}
