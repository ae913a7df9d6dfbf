"""JAX: the problems as pure functions for `jit`, `vmap` and `scan`, from the same rules as the environments.

    env = JaxEnv(make_problem("CVRP", 50))
    state, timestep = jax.jit(env.reset)(jax.random.key(0))
    state, timestep = jax.jit(env.step)(state, action)

`reset` and `step` are about one instance; `jax.vmap` makes lanes of them. `AutoReset` starts them anew, and `rollout`
plays whole batches. The numbers are 32 bits wide unless `jax_enable_x64` is on: docs/how-to/jax.md has the limits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from routing_gym.arrays import Array, add_batch_types, any_array, batch_size, gather, integer, map_arrays, use_jax
from routing_gym.optional import explain_missing
from routing_gym.problem import AnyProblem
from routing_gym.problems.geometry import match_fields

with explain_missing("JAX", "jax"):
    import jax
    import jax.numpy as jnp
    from jax.custom_batching import custom_vmap

Key = Any  # of `jax.random.key`, or the older uint32 (2,) of `jax.random.PRNGKey`
Tree = TypeVar("Tree")
Policy = Callable[[Any, dict[str, Array], Key], Array]  # params, observation of B rows, key -> legal actions (B,)


@dataclass(frozen=True)
class EnvState:
    """All that the future of an episode depends on; here and in `TimeStep`, `vmap` adds a leading axis."""

    instance: Any  # one row, without its axis
    state: Any  # of the problem, as the instance
    mask: Array  # bool (A,), the legal actions
    cost: Array  # float32, of the episode so far
    bound: Array  # float32, no legal tour costs more
    finished: Array  # bool
    key: Key  # of the next instance


@dataclass(frozen=True)
class TimeStep:
    """Result of a step."""

    observation: dict[str, Array]  # as the Gymnasium environment's
    reward: Array  # float32, minus the cost of the step; 0 after a reset
    done: Array  # bool, whether the episode has ended
    cost: Array  # float32, of the episode so far, with this step
    illegal_action: Array  # bool, whether the action was illegal, which ended the episode


@dataclass(frozen=True)
class Episodes:
    """B complete episodes; finished rows repeat their one legal action up to the horizon T."""

    instance: Any  # B instances
    actions: Array  # (B, T)
    cost: Array  # float32 (B,)
    observations: dict[str, Array] | None  # (B, T, ...), what changed and "action_mask" as bool, if recorded


add_batch_types(EnvState, TimeStep, Episodes)
use_jax()


def as_key(key: Key) -> Key:
    """Return one random key of the new type.

    Raises:
        TypeError: It is no key, or several.
    """
    old = getattr(key, "dtype", None) == jnp.uint32 and key.shape[-1:] == (2,)
    new = jax.random.wrap_key_data(key) if old else key
    if not (hasattr(new, "dtype") and jnp.issubdtype(new.dtype, jax.dtypes.prng_key) and new.shape == ()):
        found = f"{new.shape} of them" if hasattr(new, "shape") and new.shape else repr(key)
        raise TypeError(
            f"expected one key, as jax.random.key(0) makes, got {found}; for many lanes: "
            "jax.vmap(env.reset)(jax.random.split(key, lanes))"
        )
    return new


def generate(problem: AnyProblem, key: Key, batch_size: int) -> Any:
    """Draw random instances, inside `jit` too: from the distribution of `Problem.generate`, by `jax.random`.

    Raises:
        TypeError: Not one key; or a batch size that is traced, where arrays need their shape.
    """
    if not isinstance(batch_size, int):
        raise TypeError(f"batch_size must be an integer, got {batch_size!r}; if jit traces it, use static_argnums")
    return problem.from_uniforms(jax.random.uniform(as_key(key), (batch_size, problem.num_uniforms), jnp.float32))


def sample_actions(action_mask: Array, key: Key) -> Array:
    """Draw uniformly among the legal nodes of each row: the rank of one of them, by one random number per row.

    Args:
        action_mask: (B, A), bool or as in the observation.
        key: Of the draw.

    Returns:
        Integers (B,).
    """
    rank_of = jnp.cumsum(action_mask, axis=-1, dtype=jnp.int32)  # 1 for the first legal node, 2 for the second
    legal = rank_of[:, -1]
    rank = jax.random.uniform(as_key(key), legal.shape, jnp.float32) * legal
    return jnp.argmax(rank_of > jnp.minimum(rank.astype(jnp.int32), legal - 1)[:, None], axis=-1).astype(integer(jnp))


class JaxEnv:
    """One routing problem as pure functions, which plays what `RoutingEnv` plays, with dense rewards.

    An illegal action ends the episode, as there: with a reward that brings its return below that of every legal
    tour. After the end nothing changes, and rewards are 0.

    Args:
        problem: The rules, as `routing_gym.make_problem("TSP", 50)` makes them.

    Raises:
        TypeError: No problem.
    """

    def __init__(self, problem: AnyProblem) -> None:
        if not hasattr(problem, "from_uniforms"):
            raise TypeError(f"expected a problem, such as make_problem('TSP', 50), got {problem!r}")
        self.problem = problem

    def reset(self, key: Key, instance: Any = None) -> tuple[EnvState, TimeStep]:
        """Start an episode, on an instance drawn with the key or on a given one.

        Args:
            key: Of this instance and, with `AutoReset`, of those after it.
            instance: A batch of one, on JAX; see `routing_gym.arrays.to_backend`.

        Raises:
            TypeError: Not one key, or an instance of another class or on another backend.
            ValueError: Several instances, or one of another size.
        """
        if instance is not None:
            check_instance(self.problem, instance)
            if batch_size(instance) != 1:
                raise ValueError(f"reset begins one episode, but the instance has {batch_size(instance)} rows")
        return first_row(self.reset_lanes(as_key(key)[None], instance))

    def step(self, state: EnvState, action: Array) -> tuple[EnvState, TimeStep]:
        """Apply one action.

        Args:
            state: Of one episode, from `reset` or `step`.
            action: An integer; one that is no node counts as illegal.

        Raises:
            TypeError: Not a single integer.
        """
        if jnp.ndim(action) or not jnp.issubdtype(jnp.result_type(action), jnp.integer):
            found = f"{jnp.result_type(action)} of shape {jnp.shape(action)}"
            raise TypeError(f"action: expected one integer, got {found}; step_lanes takes several")
        return first_row(self.step_lanes(*one_row((state, action))))

    def reset_lanes(self, keys: Key, instance: Any = None) -> tuple[EnvState, TimeStep]:
        """Like `reset`, for B keys of the new type, and without `vmap`."""
        instance = self.draw(keys) if instance is None else instance
        state = self.problem.initial(instance)
        cost, never = jnp.zeros(len(keys), jnp.float32), jnp.zeros(len(keys), bool)
        bound = self.problem.cost_bound(instance).astype(jnp.float32)
        mask = self.problem.action_mask(instance, state)
        lanes = EnvState(instance, state, mask, cost, bound, never, jax.vmap(jax.random.split)(keys)[:, 1])
        return lanes, TimeStep(self.observe_lanes(lanes), cost, never, cost, never)

    def draw(self, keys: Key) -> Any:
        """Draw B instances, one with each key."""
        keys = jax.vmap(jax.random.split)(keys)[:, 0]
        uniforms = jax.vmap(lambda key: jax.random.uniform(key, (self.problem.num_uniforms,), jnp.float32))(keys)
        return self.problem.from_uniforms(uniforms)

    def step_lanes(self, lanes: EnvState, actions: Array) -> tuple[EnvState, TimeStep]:
        """Like `step`, for B episodes and without `vmap`."""
        problem, num_actions = self.problem, lanes.mask.shape[1]
        within = (actions >= 0) & (actions < num_actions)
        taken = jnp.where(within, actions, 0).astype(integer(jnp))
        legal = within & gather(lanes.mask, taken)
        moves = legal & ~lanes.finished
        state, cost = problem.step(lanes.instance, lanes.state, taken)
        # Lanes that do not move have been stepped along, so that one batched step serves all: that is undone here.
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
    """A `JaxEnv` that begins a new episode as soon as one has ended.

    On such a step `done`, `reward` and `cost` are those of the old episode, and the observation is the new one's, as in
    gymnax and Jumanji. Under `vmap` only the lanes that ended draw an instance.

    Args:
        env: What to reset.
    """

    def __init__(self, env: JaxEnv) -> None:
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
        """Like `JaxEnv.reset`. A given instance gets the matrices that drawn ones have."""
        if instance is not None:
            check_instance(self.problem, instance)
            instance, _ = match_fields((instance, self.env.draw(as_key(key)[None])))
        return self.env.reset(key, instance)

    def step(self, state: EnvState, action: Array) -> tuple[EnvState, TimeStep]:
        """Like `JaxEnv.step`, and start a new episode if this step ends one."""
        result: tuple[EnvState, TimeStep] = self._step(state, jnp.asarray(action))
        return result

    def step_lanes(self, lanes: EnvState, actions: Array) -> tuple[EnvState, TimeStep]:
        """Like `step`, for B episodes and without `vmap`."""
        lanes, timestep = self.env.step_lanes(lanes, actions)
        lanes = self.restart(lanes)
        return lanes, replace(timestep, observation=self.env.observe_lanes(lanes))

    def restart(self, lanes: EnvState) -> EnvState:
        """Start a new episode in the lanes that have finished: a few at a time, since few of many end in one step."""
        num_lanes = len(lanes.finished)
        few = max(1, num_lanes // 32)

        def some(lanes: EnvState) -> EnvState:
            index = jnp.nonzero(lanes.finished, size=few, fill_value=num_lanes)[0]  # what is outside is not written
            keys = lanes.key.at[index].get(mode="clip")
            _, drawn = match_fields((lanes.instance, self.env.draw(keys)))
            fresh, _ = self.env.reset_lanes(keys, drawn)
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
    """Play whole episodes of B instances in one `jax.lax.scan`; compile it with `jit`, or call it inside.

    Args:
        problem: The rules.
        policy: From `params`, what an agent sees of B rows ("action_mask" as bool) and a key, choose legal actions
            (B,); that they are legal is not checked.
        params: Of the policy, any pytree.
        key: Of the instances and the policy.
        batch_size: How many instances to draw; unused with `instance`.
        instance: B instances on JAX, in place of drawn ones.
        record: Also return what changed in what the policy saw.

    Raises:
        TypeError: Not one key, a traced batch size, or an instance of another class or on another backend.
        ValueError: An instance of another size.
    """
    draw_key, key = jax.random.split(as_key(key))
    if instance is None:
        instance = generate(problem, draw_key, batch_size)
    else:
        check_instance(problem, instance)
    static, start = problem.observe_static(instance), problem.initial(instance)

    def step(state: Any, key: Key) -> tuple[Any, Any]:
        mask = problem.action_mask(instance, state)
        seen = {**problem.observe_dynamic(instance, state), "action_mask": mask}

        def choose() -> Array:
            return policy(params, {**static, **seen}, key).astype(integer(jnp))

        if problem.fixed_length:
            action = choose()
        else:  # no more work once all have finished, which then have one legal action
            over = problem.done(instance, state).all()
            action = jax.lax.cond(over, lambda: jnp.argmax(mask, axis=1).astype(integer(jnp)), choose)
        state, cost = problem.step(instance, state, action)
        return state, (action, cost, seen if record else None)

    _, (actions, costs, seen) = jax.lax.scan(step, start, jax.random.split(key, problem.horizon))
    by_row = None if seen is None else {name: jnp.moveaxis(x, 0, 1) for name, x in seen.items()}
    return Episodes(instance, actions.T, costs.sum(axis=0), by_row)


def check_instance(problem: AnyProblem, instance: Any) -> None:
    """Refuse instances of another class, on another backend, or of another size.

    Raises:
        TypeError: Another class or backend, with what was found, and what to do.
        ValueError: Another size.
    """
    if type(instance) is not problem.instance_type:
        expected, found = problem.instance_type.__name__, type(instance).__name__
        raise TypeError(f"instance: expected a {expected}, got {found}")
    array = any_array(instance)
    if not isinstance(array, jax.Array):
        found = f"{type(array).__module__}.{type(array).__name__}"
        raise TypeError(
            f'instance: expected JAX arrays, got {found}; move them with routing_gym.arrays.to_backend(instance, "jax")'
        )
    uniforms = jax.ShapeDtypeStruct((batch_size(instance), problem.num_uniforms), jnp.float32)
    for name, expected in vars(jax.eval_shape(problem.from_uniforms, uniforms)).items():
        array = getattr(instance, name)
        if expected is not None and array is not None and array.shape != expected.shape:
            raise ValueError(f"instance: {name} has shape {array.shape}, expected {expected.shape} for {problem}")


def one_row(tree: Tree) -> Tree:
    """Add a leading axis for one row to every array."""
    batch: Tree = jax.tree.map(lambda x: jnp.asarray(x)[None], tree)
    return batch


def first_row(tree: Tree) -> Tree:
    """Take the first row of every array."""
    row: Tree = jax.tree.map(lambda x: x[0], tree)
    return row


def where_rows(rows: Array, first: Array, second: Array) -> Array:
    """Select the first array's rows where bool (B,) says so, else the second's."""
    return jnp.where(rows.reshape(-1, *(1,) * (first.ndim - 1)), first, second)
