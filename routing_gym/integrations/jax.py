"""JAX: the problems as pure functions for `jit`, `vmap` and `scan`, with the same rules as the environments.

    env = JaxEnv(make_problem("CVRP", 50))
    state, timestep = jax.jit(env.reset)(jax.random.key(0))
    state, timestep = jax.jit(env.step)(state, action)

`reset` and `step` take one instance; `jax.vmap` vectorises them over lanes. `AutoReset` resets lanes whose episode has
ended, and `rollout` runs whole batches. Numbers have 32 bits unless `jax_enable_x64` is on: docs/how-to/jax.md has the
limits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from routing_gym.arrays import (
    Array,
    add_batch_types,
    gather,
    integer,
    map_arrays,
    use_jax,
)
from routing_gym.integrations.jax_checks import Key, as_actions, as_key, check_instance
from routing_gym.optional import explain_missing
from routing_gym.problem import AnyProblem, Problem
from routing_gym.problems.checks import check_integer
from routing_gym.problems.geometry import match_fields

with explain_missing("JAX", "jax"):
    import jax
    import jax.numpy as jnp
    from jax.custom_batching import custom_vmap

Tree = TypeVar("Tree")
Policy = Callable[[Any, dict[str, Array], Key], Array]  # params, observation of B rows, key -> legal actions (B,)


@dataclass(frozen=True)
class EnvState:
    """Complete state of an episode; here and in `TimeStep`, `vmap` adds a leading axis."""

    instance: Any  # one row, without its axis
    state: Any  # the problem's state, one row without its axis
    mask: Array  # bool (A,), the legal actions
    cost: Array  # float32, cost of the episode so far
    bound: Array  # float32, upper bound on the cost of every legal tour
    finished: Array  # bool
    key: Key  # key of the next instance


@dataclass(frozen=True)
class TimeStep:
    """Result of a step."""

    observation: dict[str, Array]  # like that of the Gymnasium environment
    reward: Array  # float32, minus the cost of the step; 0 after a reset
    done: Array  # bool, whether the episode has ended
    cost: Array  # float32, cost of the episode so far, including this step
    illegal_action: Array  # bool, whether the action was illegal, which ended the episode


@dataclass(frozen=True)
class Episodes:
    """B complete episodes; finished rows repeat their one legal action up to the horizon T."""

    instance: Any  # B instances
    actions: Array  # (B, T)
    cost: Array  # float32 (B,)
    observations: dict[str, Array] | None  # (B, T, ...), dynamic observations and "action_mask" as bool, if recorded


add_batch_types(EnvState, TimeStep, Episodes)
use_jax()


def generate(problem: AnyProblem, key: Key, batch_size: int) -> Any:
    """Draw random instances from the distribution of `Problem.generate`, with `jax.random`; works inside `jit`.

    Raises:
        TypeError: The key is not a single key, or `jit` traces the batch size.
        ValueError: The batch size is not a positive integer.
    """
    if isinstance(batch_size, jax.core.Tracer):
        raise TypeError(f"batch_size must be an integer, got {batch_size!r}, which jit traces; use static_argnames")
    batch_size = check_integer("batch_size", batch_size, 1)
    return problem.from_uniforms(jax.random.uniform(as_key(key), (batch_size, problem.num_uniforms), jnp.float32))


def sample_actions(action_mask: Array, key: Key) -> Array:
    """Sample uniformly among the legal nodes of each row, with one random number per row for the rank of the node.

    Args:
        action_mask: Mask of the legal actions (..., A), bool or int8 like in the observation.
        key: Random key.

    Returns:
        Actions: integers (...), without the last axis.
    """
    rank_of = jnp.cumsum(action_mask, axis=-1, dtype=jnp.int32)  # 1 for the first legal node, 2 for the second
    legal = rank_of[..., -1]
    rank = jax.random.uniform(as_key(key), legal.shape, jnp.float32) * legal
    rank = jnp.minimum(rank.astype(jnp.int32), legal - 1)
    return jnp.argmax(rank_of > rank[..., None], axis=-1).astype(integer(jnp))


class JaxEnv:
    """Environment of one routing problem as pure functions, equivalent to `RoutingEnv` with dense rewards.

    Like in `RoutingEnv`, an illegal action ends the episode, with a reward that brings its return below that of every
    legal tour. After the end the state does not change, and rewards are 0.

    Args:
        problem: Problem, such as `routing_gym.make_problem("TSP", 50)`.

    Raises:
        TypeError: The argument is not a problem.
    """

    def __init__(self, problem: AnyProblem) -> None:
        if not isinstance(problem, Problem):
            raise TypeError(f"expected a problem, such as make_problem('TSP', 50), got {problem!r}")
        self.problem = problem

    def reset(self, key: Key, instance: Any = None) -> tuple[EnvState, TimeStep]:
        """Start an episode, on an instance drawn with the key or on a given one.

        Args:
            key: Random key of this instance and, with `AutoReset`, of the following ones.
            instance: Batch of one instance, on JAX; see `routing_gym.arrays.to_backend`.

        Raises:
            TypeError: The key is not a single key, or the instance has another class or backend.
            InvalidInstance: See `check_instance`.
            ValueError: There are several instances.
        """
        return first_row(self.reset_lanes(as_key(key)[None], instance))

    def step(self, state: EnvState, action: Array) -> tuple[EnvState, TimeStep]:
        """Apply one action.

        Args:
            state: State of one episode, from `reset` or `step`.
            action: Integer. A number that is not a node is an illegal action.

        Raises:
            TypeError: The action is not a single integer.
        """
        return first_row(self.step_lanes(*one_row((state, as_actions(action, ())))))

    def reset_lanes(self, keys: Key, instance: Any = None) -> tuple[EnvState, TimeStep]:
        """Start B episodes, like `reset` but without `vmap`, with B keys and, if given, B instances."""
        keys = as_key(keys, num_axes=1)
        instance = self.draw(keys) if instance is None else check_instance(self.problem, instance, len(keys))
        return self.start_lanes(keys, instance)

    def start_lanes(self, keys: Key, instance: Any) -> tuple[EnvState, TimeStep]:
        """Start B episodes on B instances, without checks."""
        state = self.problem.initial(instance)
        cost, never = jnp.zeros(len(keys), jnp.float32), jnp.zeros(len(keys), bool)
        bound = self.problem.cost_bound(instance).astype(jnp.float32)
        mask = self.problem.action_mask(instance, state)
        lanes = EnvState(instance, state, mask, cost, bound, never, jax.vmap(jax.random.split)(keys)[:, 1])
        return lanes, TimeStep(self.observe_lanes(lanes), cost, never, cost, never)

    def draw(self, keys: Key) -> Any:
        """Draw B instances, one per key."""
        keys = jax.vmap(jax.random.split)(keys)[:, 0]
        uniforms = jax.vmap(lambda key: jax.random.uniform(key, (self.problem.num_uniforms,), jnp.float32))(keys)
        return self.problem.from_uniforms(uniforms)

    def step_lanes(self, lanes: EnvState, actions: Array) -> tuple[EnvState, TimeStep]:
        """Apply one action in each of B episodes, like `step` but without `vmap`."""
        problem, num_actions = self.problem, lanes.mask.shape[1]
        actions = as_actions(actions, lanes.finished.shape)
        within = (actions >= 0) & (actions < num_actions)
        taken = jnp.where(within, actions, 0).astype(integer(jnp))
        legal = within & gather(lanes.mask, taken)
        moves = legal & ~lanes.finished
        state, cost = problem.step(lanes.instance, lanes.state, taken)
        # One batched step serves all lanes; the lanes that must not move get their old state back.
        state = map_arrays(lambda old, new: where_rows(moves, new, old), lanes.state, state)
        cost = jnp.where(moves, cost, 0)
        illegal = ~legal & ~lanes.finished
        left = 1 - problem.progress(lanes.instance, lanes.state).astype(jnp.float32)
        reward = jnp.where(illegal, lanes.cost - (1 + lanes.bound) * (1 + left), 0 - cost)
        done = lanes.finished | illegal | problem.done(lanes.instance, state)
        after = replace(
            lanes,
            state=state,
            mask=problem.action_mask(lanes.instance, state),
            cost=lanes.cost + cost,
            finished=done,
        )
        return after, TimeStep(self.observe_lanes(after), reward, done, after.cost, illegal)

    def observe_lanes(self, lanes: EnvState) -> dict[str, Array]:
        """Return the observations of B episodes."""
        problem = self.problem
        return {
            **problem.observe_static(lanes.instance),
            **problem.observe_dynamic(lanes.instance, lanes.state),
            "action_mask": lanes.mask.astype(jnp.int8),
        }


class AutoReset:
    """Wrapper of a `JaxEnv` that starts a new episode as soon as one has ended.

    On such a step, `done`, `reward` and `cost` belong to the old episode and the observation to the new one, like in
    gymnax and Jumanji. Under `vmap` only the lanes whose episode ended draw an instance.

    Args:
        env: Environment to reset.

    Raises:
        TypeError: `env` is not a `JaxEnv`.
    """

    def __init__(self, env: JaxEnv) -> None:
        if not isinstance(env, JaxEnv):
            raise TypeError(f"env: expected a JaxEnv, such as JaxEnv(make_problem('TSP', 50)), got {env!r}")
        self.env = env
        self.problem = env.problem
        step = custom_vmap(lambda state, action: first_row(self.step_lanes(*one_row((state, action)))))

        def step_all(axis_size: int, batched: Any, state: EnvState, action: Array) -> Any:
            def every(x: Array, is_batched: bool) -> Array:
                return x if is_batched else jnp.broadcast_to(x, (axis_size, *x.shape))

            result = self.step_lanes(*jax.tree.map(every, (state, action), tuple(batched)))
            return result, jax.tree.map(lambda _: True, result)

        step.def_vmap(step_all)
        self._step = step

    def reset(self, key: Key, instance: Any = None) -> tuple[EnvState, TimeStep]:
        """Start an episode, see `JaxEnv.reset`. A given instance gets the matrices that generated instances have."""
        return first_row(self.reset_lanes(as_key(key)[None], instance))

    def reset_lanes(self, keys: Key, instance: Any = None) -> tuple[EnvState, TimeStep]:
        """Start B episodes, like `reset` but without `vmap`, with B keys and, if given, B instances."""
        keys = as_key(keys, num_axes=1)
        if instance is None:
            return self.env.reset_lanes(keys)
        instance = check_instance(self.problem, instance, len(keys))
        instance, _ = match_fields((instance, self.env.draw(keys[:1])))
        return self.env.start_lanes(keys, instance)

    def step(self, state: EnvState, action: Array) -> tuple[EnvState, TimeStep]:
        """Apply one action, see `JaxEnv.step`, and start a new episode if this step ends one."""
        result: tuple[EnvState, TimeStep] = self._step(state, as_actions(action, ()))
        return result

    def step_lanes(self, lanes: EnvState, actions: Array) -> tuple[EnvState, TimeStep]:
        """Apply one action in each of B episodes, like `step` but without `vmap`."""
        lanes, timestep = self.env.step_lanes(lanes, actions)
        lanes = self.restart(lanes)
        return lanes, replace(timestep, observation=self.env.observe_lanes(lanes))

    def restart(self, lanes: EnvState) -> EnvState:
        """Start a new episode in the finished lanes, a few lanes at a time, because few of many end in one step."""
        num_lanes = len(lanes.finished)
        few = max(1, num_lanes // 32)

        def some(lanes: EnvState) -> EnvState:
            index = jnp.nonzero(lanes.finished, size=few, fill_value=num_lanes)[0]  # lanes outside are not written
            keys = lanes.key.at[index].get(mode="clip")
            _, drawn = match_fields((lanes.instance, self.env.draw(keys)))
            fresh, _ = self.env.start_lanes(keys, drawn)
            begun: EnvState = jax.tree.map(lambda old, new: old.at[index].set(new, mode="drop"), lanes, fresh)
            return begun

        result: EnvState = jax.lax.while_loop(lambda lanes: lanes.finished.any(), some, lanes)
        return result


def rollout(
    problem: AnyProblem,
    policy: Policy,
    params: Any,
    key: Key,
    *,
    batch_size: int = 1,
    instance: Any = None,
    record: bool = False,
) -> Episodes:
    """Run whole episodes of B instances in one `jax.lax.scan`; use it under `jit`.

    Args:
        problem: Problem of the instances.
        policy: Function of `params`, the observation of B rows ("action_mask" as bool) and a key, which returns legal
            actions (B,); whether they are legal is not checked.
        params: Parameters of the policy, any pytree.
        key: Random key of the instances and the policy.
        batch_size: Number of instances to draw; unused with `instance`.
        instance: B instances on JAX, which replace generated ones.
        record: Whether to return the dynamic observations of the policy.

    Raises:
        TypeError: The key is not a single key, the batch size is traced, the instance has another class or backend, or
            the policy returns something else than B integers.
        InvalidInstance: See `check_instance`.
        ValueError: The batch size is not a positive integer.
    """
    draw_key, key = jax.random.split(as_key(key))
    instance = generate(problem, draw_key, batch_size) if instance is None else check_instance(problem, instance)
    static, start = problem.observe_static(instance), problem.initial(instance)

    def step(state: Any, key: Key) -> tuple[Any, Any]:
        mask = problem.action_mask(instance, state)
        seen = {**problem.observe_dynamic(instance, state), "action_mask": mask}

        def choose() -> Array:
            actions = policy(params, {**static, **seen}, key)
            return as_actions(actions, mask.shape[:1], "the policy's actions").astype(integer(jnp))

        if problem.fixed_length:
            action = choose()
        else:  # skip the policy once all rows have finished; each then has one legal action
            over = problem.done(instance, state).all()
            action = jax.lax.cond(over, lambda: jnp.argmax(mask, axis=1).astype(integer(jnp)), choose)
        state, cost = problem.step(instance, state, action)
        return state, (action, cost, seen if record else None)

    _, (actions, costs, seen) = jax.lax.scan(step, start, jax.random.split(key, problem.horizon))
    by_row = None if seen is None else {name: jnp.moveaxis(x, 0, 1) for name, x in seen.items()}
    return Episodes(instance, actions.T, costs.sum(axis=0), by_row)


def one_row(tree: Tree) -> Tree:
    """Add a leading axis of length 1 to every array."""
    batch: Tree = jax.tree.map(lambda x: jnp.asarray(x)[None], tree)
    return batch


def first_row(tree: Tree) -> Tree:
    """Return the first row of every array."""
    row: Tree = jax.tree.map(lambda x: x[0], tree)
    return row


def where_rows(rows: Array, first: Array, second: Array) -> Array:
    """Select the first array's rows where the bool (B,) is True, the second's elsewhere."""
    return jnp.where(rows.reshape(-1, *(1,) * (first.ndim - 1)), first, second)
