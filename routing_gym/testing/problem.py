"""`check_problem`: checks the contract of `Problem` on random instances and tours."""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from routing_gym.arrays import Array, concatenate, select, to_backend
from routing_gym.arrays import batch_size as num_rows_of
from routing_gym.generators.roads import random_matrices, roads
from routing_gym.multi_agent.game import AnyGame
from routing_gym.problem import AnyProblem, InfeasibleTour, Problem, instance_fields
from routing_gym.testing.backends import TOLERANCE, check_backend, check_drawing, installed_backends
from routing_gym.testing.compare import (
    attempt,
    call,
    difference,
    expect,
    expect_array,
    expect_batch,
    expect_same_forms,
    form,
)
from routing_gym.testing.costs import check_plain_routes, check_units
from routing_gym.testing.declarations import (
    check_declarations,
    check_observed,
    check_validate,
    check_values,
    warn_of_hidden_numbers,
)
from routing_gym.testing.exhaustive import check_exhaustively, is_valid, smallest, with_tightened
from routing_gym.testing.rewards import check_illegal_ends, check_rewards
from routing_gym.traits import Route

NUM_TINY = 8  # small instances, beside their copies with a reduced limit
NUM_COMPLETE = 1  # first of them, for which all sequences are tried
NUM_WITH_DISTANCES = 8  # instances with random distances


def check_problem(
    problem: AnyProblem,
    *,
    batch_size: int = 32,
    seed: int = 0,
    small: AnyProblem | None = None,
    device: str | None = None,
) -> None:
    """Check the contract of `Problem` on random instances and random legal tours.

    - The observations and columns that the problem declares exist, with the source, dtype and shape of their kind.
    - `generate` returns valid instances, the same in one batch or in two; `validate` refuses wrong arrays.
    - Every method returns the documented types, dtypes and shapes, and raises no other error than the documented ones.
    - With `any_first_node`, every customer may come first; with `visits_all`, every tour serves every node.
    - Masks are never empty; a finished row has one legal action, which costs and changes nothing.
    - Every episode ends within `horizon` steps and costs no more than `cost_bound`.
    - The step costs add up to `objective`, which is implemented independently and rejects incomplete tours.
    - Observations are within `observation_space`; rewards of `RoutingEnv` are minus the costs.
    - `progress` is from 0 to 1, never decreases, and increases over an episode. The returns of episodes that an
      illegal action ends do not decrease with the steps taken either, and are below that of every legal tour.
    - No method changes its arguments; rows are independent and may be at different steps.
    - `distances` replace the coordinates, in each direction of an edge, where instances have them.
    - NumPy, torch and JAX agree: on costs and observations within 1e-5 (relative above 1), and on masks
      exactly, except where a change of 1e-5 in a number of the instance or the state would change the mask anyway. JAX
      compiles `step` once for all steps, without callbacks, and `vmap` gives the same rows. `from_uniforms` runs on
      JAX too.
    - If coordinates, lengths and times are halved, the cost is the one that `cost_in_units` returns, and the
      observations that are declared as lengths are halved. With `plain_routes`, tours cost the total length of their
      routes, and `objective` accepts routes that are built from the columns alone.
    - On small instances, the best legal action sequence is the best of all sequences that `objective` accepts.

    Args:
        problem: Problem, a frozen dataclass with a field `num_nodes`.
        batch_size: Number of instances.
        seed: Random seed of the instances and the tours.
        small: Problem for the exhaustive search; by default `problem` with four cities, three customers, or two
            customers if there are several depots, because depots are actions too. In some of its instances a limit,
            such as the capacity, is reduced, so that it matters with so few nodes. Only columns with `per="instance"`
            are reduced: if a limit is a setting of the class, pass a problem with a low one.
        device: Device of torch for the comparison of backends, such as "cuda"; JAX takes its default device.

    Raises:
        TypeError: The argument is not a problem, but for example a name or a class.
        ContractViolation: A check fails. The message has the part of the contract, the location and the value found.

    Warns:
        UserWarning: torch or JAX is not installed, so that it was not checked; or no observation depends on a number
            of the instance.
    """
    if not isinstance(problem, Problem):
        raise TypeError(f"check_problem takes a problem, such as make_problem('TSP', 10), got {problem!r}")
    check_declarations(problem)
    instance = check_generate(problem, batch_size, seed)
    check_observed(problem, instance)
    check_values(problem, instance)
    warn_of_hidden_numbers(problem, instance)
    check_validate(problem, instance)
    episodes = play(problem, instance, np.random.default_rng(seed))
    check_starts(problem, episodes)
    check_objective(problem, instance, episodes)
    check_progress(problem, instance, episodes)
    check_routes(problem, instance, episodes)
    check_rows_are_independent(problem, instance, episodes)
    check_distances(problem, seed)
    tours = episodes.actions[:, : max(episodes.lengths)]  # finished rows repeat their one legal action
    check_units(problem, instance, tours)
    if problem.plain_routes and problem.plain_vehicles:
        check_plain_routes(problem, instance, tours)
    check_rewards(problem, seed)
    check_illegal_ends(problem, seed)
    if small is None:
        small = smallest(problem)
    tiny = small.generate(np.random.default_rng(seed), NUM_TINY)
    check_exhaustively(small, with_tightened(small, tiny), num_complete=NUM_COMPLETE)
    backends = installed_backends("check_problem")
    for backend in backends:
        check_backend(problem, instance, episodes, backend, device if backend == "torch" else None)
    if "torch" in backends:
        few = with_tightened(small, select(tiny, range(NUM_COMPLETE)))
        check_exhaustively(small, to_backend(few, "torch", device), search=False)
    if "jax" in backends:
        check_drawing(problem, batch_size, seed)


@dataclass(frozen=True)
class PlayedBatch:
    """Complete episodes of B rows, and one step beyond."""

    states: list[Any]  # T + 1 states
    masks: list[npt.NDArray[np.bool_]]  # T + 1 arrays (B, A)
    done: list[npt.NDArray[np.bool_]]  # T + 1 arrays (B,)
    actions: npt.NDArray[np.int64]  # (B, T)
    costs: npt.NDArray[np.float64]  # (B, T)

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Number of steps until each row was done: (B,)."""
        return np.asarray(np.argmax(np.stack(self.done, axis=1), axis=1))


def check_generate(problem: AnyProblem | AnyGame, batch_size: int, seed: int) -> Any:
    """Check `generate`, `from_uniforms` and `validate`; return instances."""
    drawn = f"num_uniforms = {problem.num_uniforms}"
    instance = attempt(problem, "generate", np.random.default_rng(seed), batch_size, where=drawn)
    expect_batch(problem, "generate", instance, problem.instance_type, batch_size)
    call(problem, "validate", instance, where="of a generated instance")
    rng = np.random.default_rng(seed)
    parts = concatenate([attempt(problem, "generate", rng, size) for size in (1, batch_size - 1)])
    where = difference(instance, parts)
    expect(where is None, problem, "generate", f"two batches in turn differ from one batch of both: {where}")
    alike = difference(instance, select(instance, np.zeros(batch_size, dtype=np.int64))) is None
    told = "all instances of a batch are the same: does from_uniforms use the uniforms?"
    expect(not alike or batch_size == 1 or problem.num_uniforms == 0, problem, "generate", told)
    uniforms = np.random.default_rng(seed).random((batch_size, problem.num_uniforms))
    where = difference(instance, call(problem, "from_uniforms", uniforms))
    expect(where is None, problem, "generate", f"differs from from_uniforms, which the environments use: {where}")
    return instance


def play(problem: AnyProblem, instance: Any, rng: np.random.Generator) -> PlayedBatch:
    """Play random legal episodes, checking masks, costs, ends and observations at every step."""
    space, num_rows = problem.observation_space(), num_rows_of(instance)
    state = call(problem, "initial", instance)
    states, masks, done, actions, costs = [state], [], [], [], []
    for step in itertools.count():
        where = f"step {step}"
        mask, finished = (call(problem, name, instance, state, where=where) for name in ("action_mask", "done"))
        expect_array(problem, f"done, {where}", finished, "bool", (num_rows,))
        check_mask(problem, mask, finished, step)
        observation = call(problem, "observe", instance, state, where=where)
        masks.append(mask)
        done.append(finished)
        check_observation(problem, space, observation, mask, step)
        check_reason(problem, instance, state, mask, finished, step)
        expect(step > 0 or not finished.any(), problem, "done", f"row {np.argmax(finished)} is done at the start")
        if step > 0:
            reopened = done[-2] & ~finished
            expect(not reopened.any(), problem, where, f"row {np.argmax(reopened)} is no longer done")
            if done[-2].all():
                break
        open_rows = f"row {np.argmin(finished)} is not done after `horizon` = {problem.horizon} steps"
        expect(step < problem.horizon or bool(finished.all()), problem, "horizon", open_rows)
        action = np.argmax(rng.random(mask.shape) * mask, axis=1)
        result = call(problem, "step", instance, state, action, where=where)
        pair = isinstance(result, tuple) and len(result) == 2
        expect(pair, problem, where, f"step returned {form(result)}, expected a tuple of the new state and the costs")
        state, cost = result
        expect_batch(problem, f"{where}, the new state", state, problem.state_type, num_rows)
        expect_same_forms(problem, f"{where}, the new state", states[-1], state)
        expect_array(problem, f"{where}, the cost", cost, "float32", (num_rows,))
        paid = finished & (cost != 0)
        expect(not paid.any(), problem, where, f"row {np.argmax(paid)} was done, yet paid {cost[paid]}")
        check_absorbing(problem, instance, states[-1], state, finished, step)
        states.append(state)
        actions.append(action)
        costs.append(cost.astype(np.float64))
    return PlayedBatch(states, masks, done, np.stack(actions, axis=1), np.stack(costs, axis=1))


def check_mask(problem: AnyProblem, mask: Array, finished: Array, step: int) -> None:
    """Check type and shape of a mask, and the number of legal actions in each row."""
    expect_array(problem, f"action_mask, step {step}", mask, "bool", (len(finished), problem.num_actions))
    legal = mask.sum(axis=1)
    expect(legal.all(), problem, f"action_mask, step {step}", f"row {np.argmin(legal)} has no legal action")
    bad = finished & (legal != 1)
    several = f"row {np.argmax(bad)} is done but has {legal[np.argmax(bad)]} legal actions, expected 1"
    expect(not bad.any(), problem, f"action_mask, step {step}", several)


def check_reason(problem: AnyProblem, instance: Any, state: Any, mask: Array, finished: Array, step: int) -> None:
    """Check that `why_illegal` returns a text for one illegal action, if there is any."""
    illegal = np.argwhere(~mask & ~finished[:, None])
    if len(illegal):
        row, action = map(int, illegal[step % len(illegal)])
        reason = call(problem, "why_illegal", instance, state, row, action, where=f"step {step}")
        found = f"returned {reason!r} for row {row}, action {action}, expected the reason as text"
        expect(reason and isinstance(reason, str), problem, "why_illegal", found)


def check_starts(problem: AnyProblem, played: PlayedBatch) -> None:
    """Check that every node but depots may come first, if the problem says so."""
    illegal = np.argwhere(~played.masks[0][:, problem.num_depots :])
    if problem.any_first_node and len(illegal):
        row, node = illegal[0] + (0, problem.num_depots)
        told = f"is True, but row {row} may not start at node {node}; set it to False"
        expect(False, problem, "any_first_node", told)


def check_observation(problem: AnyProblem, space: Any, observation: Any, mask: Array, step: int) -> None:
    """Check that every row is within the space, and that the observed mask equals the action mask."""
    where = f"observe, step {step}"
    expect(observation.keys() == space.keys(), problem, where, f"keys {[*observation]}, expected {[*space]}")
    for key, values in observation.items():
        expect_array(problem, f"{where}, {key}", values, str(space[key].dtype), (len(mask), *space[key].shape))
        for row, value in enumerate(values):
            if value not in space[key]:  # formatting the message takes long
                expect(False, problem, where, f"row {row}: {key} = {value} is outside {space[key]}")
    expect(np.array_equal(observation["action_mask"], mask), problem, where, "action_mask differs from action_mask()")


def check_absorbing(problem: AnyProblem, instance: Any, old: Any, new: Any, finished: Array, step: int) -> None:
    """Check that a step does not change the observations of finished rows."""
    rows = np.flatnonzero(finished)
    if len(rows):
        before, after = (problem.observe(select(instance, rows), select(state, rows)) for state in (old, new))
        where = difference(before, after)
        expect(where is None, problem, f"step {step}", f"changed finished rows (numbers {rows}): {where}")


def check_objective(problem: AnyProblem, instance: Any, played: PlayedBatch) -> None:
    """Check `objective` and `cost_bound` against the steps, and that `objective` rejects incomplete tours."""
    bound, num_rows = call(problem, "cost_bound", instance), len(played.lengths)
    good = isinstance(bound, np.ndarray) and bound.dtype.kind == "f" and bound.shape == (num_rows,)
    expect(good, problem, "cost_bound", f"is {form(bound)}, expected an array of floats ({num_rows},)")
    for row, length in enumerate(played.lengths):
        one, tour, cost = select(instance, [row]), played.actions[row : row + 1, :length], played.costs[row].sum()
        if problem.fixed_length:
            expect(length == problem.horizon, problem, f"row {row}", f"took {length} steps, not {problem.horizon}")
        tours = [tour] + ([np.pad(tour, ((0, 0), (0, 2)))] if problem.has_depot else [])
        for actions in tours:
            expected = costs_of_legal(problem, one, actions)[0]
            apart = f"row {row}: tour {actions[0]} costs {expected}, but its steps cost {cost}"
            expect(abs(expected - cost) <= TOLERANCE * max(1.0, abs(cost)), problem, "objective", apart)
        dear = f"row {row}: tour {tour[0]} costs {cost}, above the bound {bound[row]}"
        expect(cost <= bound[row] + TOLERANCE * max(1.0, abs(cost)), problem, "cost_bound", dear)
        try:
            attempt(problem, "objective", one, tour[:, :-1], where="incomplete tour", allowed=InfeasibleTour)
        except InfeasibleTour as error:
            expect(error.row == 0, problem, "objective", f"InfeasibleTour.row is {error.row} for a batch of one")
        else:
            expect(False, problem, "objective", f"row {row}: accepted {tour[0]} without its last action")


def costs_of_legal(problem: AnyProblem, instance: Any, tours: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return the costs of legal tours (B, T), which `objective` must accept."""
    try:
        costs = call(problem, "objective", instance, tours, allowed=InfeasibleTour)
    except InfeasibleTour as error:
        told = f"refused {tours[error.row]}, whose actions were legal in their states: {error}"
        expect(False, problem, "objective", told)
    expect_array(problem, "objective", costs, "float64", (len(tours),))
    return np.asarray(costs)


def check_routes(problem: AnyProblem, instance: Any, played: PlayedBatch) -> None:
    """Check `amounts` and `routes` of complete tours; with `visits_all`, that they serve every node."""
    for row, length in enumerate(played.lengths):
        one, tour = select(instance, [row]), played.actions[row, :length].tolist()
        split = attempt(problem, "split", tour)
        amounts = call(problem, "amounts", one, split)
        good = isinstance(amounts, list) and len(amounts) == len(split)
        expect(good, problem, "amounts", f"returned {amounts!r} for {len(split)} routes, expected a dict for each")
        routes = call(problem, "routes", one, tour)
        good = isinstance(routes, list) and all(isinstance(route, Route) for route in routes)
        expect(good, problem, "routes", f"returned {routes!r}, expected a list of Route")
        left = set(range(problem.num_depots, problem.num_actions)) - set(attempt(problem, "visits", tour))
        found = f"is True, but tour {tour} of row {row} leaves out {sorted(left)}; set it to False"
        expect(not (problem.visits_all and left), problem, "visits_all", found)


def check_distances(problem: AnyProblem, seed: int) -> None:
    """Check that `distances`, which depend on the direction, replace the coordinates: these then change nothing."""
    if not {"coords", "distances"} <= instance_fields(problem):
        return
    # Random lengths would break time windows, whose problems have streets.
    draw = roads if any(column.kind == "time" for column in problem.columns) else random_matrices
    instance = draw(problem, np.random.default_rng(seed), NUM_WITH_DISTANCES)
    if instance.distances is None or not is_valid(problem, instance):
        return  # the problem accepts only some distances
    played = play(problem, instance, np.random.default_rng(seed))
    check_objective(problem, instance, played)
    moved = dataclasses.replace(instance, coords=instance.coords / 2)
    tours = played.actions[:, : max(played.lengths)]  # finished rows repeat their one legal action
    apart = difference(costs_of_legal(problem, moved, tours), costs_of_legal(problem, instance, tours))
    expect(apart is None, problem, "objective", f"depends on coordinates in spite of `distances`: {apart}")
    for step, (state, mask) in enumerate(zip(played.states, played.masks, strict=True)):
        same = np.array_equal(attempt(problem, "action_mask", moved, state), mask)
        expect(same, problem, f"action_mask, step {step}", "depends on coordinates in spite of `distances`")


def check_rows_are_independent(problem: AnyProblem, instance: Any, played: PlayedBatch) -> None:
    """Check that rows at different steps, reordered or alone, give the same results as in lockstep."""
    num_rows, num_steps = played.actions.shape
    steps = sorted({0, num_steps // 3, num_steps // 2, num_steps - 1})
    expected_states = concatenate([played.states[step + 1] for step in steps])
    expected_masks = np.concatenate([played.masks[step] for step in steps])
    expected_done = np.concatenate([played.done[step] for step in steps])
    everything = concatenate([instance] * len(steps)), concatenate([played.states[step] for step in steps])
    actions = np.concatenate([played.actions[:, step] for step in steps])
    costs = np.concatenate([played.costs[:, step] for step in steps])
    backwards = np.arange(len(actions))[::-1]
    for rows in (backwards, *(np.array([row]) for row in backwards[:: max(1, num_rows // 8)])):
        some, state = (select(batch, rows) for batch in everything)
        where = f"rows {rows[:3]}... of steps {steps}, {len(rows)} at once"
        same = np.array_equal(attempt(problem, "action_mask", some, state), expected_masks[rows])
        expect(same, problem, where, "action_mask depends on the other rows or their order")
        same = np.array_equal(attempt(problem, "done", some, state), expected_done[rows])
        expect(same, problem, where, "done depends on the other rows or their order")
        new_state, cost = attempt(problem, "step", some, state, actions[rows])
        apart = difference((new_state, cost), (select(expected_states, rows), costs[rows].astype(np.float32)))
        expect(apart is None, problem, where, f"step depends on the other rows or their order: {apart}")


def check_progress(problem: AnyProblem, instance: Any, played: PlayedBatch) -> None:
    """Check that `progress` is from 0 to 1, never decreases, and increases in some row."""
    shares = [call(problem, "progress", instance, state) for state in played.states]
    for step, share in enumerate(shares):
        where = f"progress, step {step}"
        expect_array(problem, where, share, "float64", (len(played.lengths),))
        bad = ~((share >= 0) & (share <= 1))
        expect(not bad.any(), problem, where, f"row {np.argmax(bad)} is at {share[np.argmax(bad)]}, outside [0, 1]")
        falls = share < shares[max(0, step - 1)]
        expect(not falls.any(), problem, where, f"row {np.argmax(falls)} has less than before")
    grows = (shares[-1] > shares[0]).any()
    expect(grows, problem, "progress", "no episode makes any, so nothing can be learnt from illegal ends")
