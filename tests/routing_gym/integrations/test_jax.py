"""`routing_gym.integrations.jax`: the same episodes as the Gymnasium environment's, pure, vmapped, compiled once."""

from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest

from routing_gym import CVRP, TSP, CompetitiveOP, make_problem
from routing_gym.arrays import select, to_backend, to_numpy
from routing_gym.problem import InvalidInstance
from routing_gym.rollout import rollout as numpy_rollout
from routing_gym.testing.compare import difference

jax = pytest.importorskip("jax")
from routing_gym.integrations.jax import AutoReset, JaxEnv, generate, rollout, sample_actions  # noqa: E402

jnp = jax.numpy


def lane(tree, number):
    return jax.tree.map(lambda x: x[number], tree)


def same(first, second):
    """Compare arrays, keys included."""
    first, second = (jax.tree.map(plain, tree) for tree in (first, second))
    return all(np.allclose(*pair, atol=1e-5) for pair in zip(*map(jax.tree.leaves, (first, second)), strict=True))


def plain(x):
    return jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x


def drawn(problem, size=1):
    return to_backend(problem.generate(np.random.default_rng(0), size), "jax")


def first_legal(params, observation, key):
    return jnp.argmax(observation["action_mask"], axis=1)


@pytest.mark.parametrize("name", ["TSP", "SDVRP", "ATSP"])
def test_episodes_are_the_gymnasium_environments(name):
    """Step by step, until the end or an illegal action in step 3, and one step beyond."""
    env = JaxEnv(make_problem(name, 5))
    compiled = jax.jit(env.reset), jax.jit(env.step)
    for illegal_at in (None, 3):
        check_episode(name, *compiled, illegal_at)


def check_episode(name, reset, step, illegal_at):
    theirs = gym.make(f"routing/{name}", num_nodes=5)
    state, shown = reset(jax.random.key(3))
    row = select(to_backend(jax.tree.map(lambda x: x[None], state.instance), "numpy"), slice(0, 1))
    seen, _ = theirs.reset(options={"instance": row})
    rng, done, count = np.random.default_rng(0), False, 0
    while not done:
        for key, value in seen.items():
            assert np.allclose(shown.observation[key], value, atol=1e-5), key
        assert {key: x.shape for key, x in shown.observation.items()} == {key: np.shape(x) for key, x in seen.items()}
        legal = seen["action_mask"] == 1
        action = int(np.argmin(legal)) if count == illegal_at and not legal.all() else rng.choice(np.flatnonzero(legal))
        seen, reward, done, _, info = theirs.step(action)
        state, shown = step(state, np.int32(action))
        assert float(shown.reward) == pytest.approx(reward, abs=1e-5)
        assert (bool(shown.done), bool(shown.illegal_action)) == (done, info["illegal_action"])
        assert float(shown.cost) == pytest.approx(info["cost"], abs=1e-5)
        count += 1
    after, shown = step(state, np.int32(0))
    assert same(after, state)
    assert (float(shown.reward), bool(shown.done), bool(shown.illegal_action)) == (0.0, True, False)


def test_actions_that_are_no_node_are_illegal():
    env = JaxEnv(TSP(4))
    (state, _), step = jax.jit(env.reset)(jax.random.key(0)), jax.jit(env.step)
    for action in (-1, 4):
        _, shown = step(state, action)
        assert bool(shown.illegal_action)
        assert float(shown.reward) < -float(state.bound)


def test_lanes_restart_by_themselves_and_compile_once():
    """CVRP-3 in 40 lanes (so that several restarts take turns): every lane is what it is alone, without `vmap`; each
    plays many episodes, on instances of its own; and 30 steps compile one program."""
    env, traces = AutoReset(JaxEnv(CVRP(3))), []

    def play(state, action):
        traces.append(1)
        return jax.vmap(env.step)(state, action)

    step, alone = jax.jit(play), jax.jit(env.step)
    keys = jax.random.split(jax.random.key(5), 40)
    state, _ = jax.jit(jax.vmap(env.reset))(keys)
    single, _ = jax.jit(env.reset)(keys[7])
    episodes, demands = np.zeros(40, dtype=int), set()
    for count in range(30):
        actions = sample_actions(state.mask, jax.random.key(count))
        state, shown = step(state, actions)
        single, shown_alone = alone(single, actions[7])
        assert same(lane((state, shown), 7), (single, shown_alone))
        assert not state.finished.any()
        fresh = to_numpy(shown.done)
        assert (to_numpy(shown.observation["free_capacity"])[fresh] == 1).all()  # the observation of the new episode
        assert (to_numpy(state.cost)[fresh] == 0).all()
        assert (to_numpy(shown.cost)[fresh] > 0).all()
        episodes += fresh
        demands.add(tuple(to_numpy(state.instance.coords[7]).ravel()))
    assert episodes.min() >= 3
    assert len(demands) == episodes[7] + 1
    assert len(traces) == 1


def test_old_keys_and_new_ones_draw_the_same():
    env = JaxEnv(TSP(4))
    reset = jax.jit(env.reset)
    assert same(reset(jax.random.PRNGKey(3)), reset(jax.random.key(3)))
    vmapped, _ = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.PRNGKey(3), 2))
    assert vmapped.mask.shape == (2, 4)


@pytest.mark.parametrize("name", ["TSP", "CVRP"])
def test_rollout_is_scanned_and_its_costs_are_the_objectives(name):
    """The policy prefers nodes by `params`; the tours are whole, and no program calls back into Python."""
    problem = make_problem(name, 6)

    def policy(params, observation, key):
        noise = jax.random.gumbel(key, observation["action_mask"].shape)
        return jnp.argmax(jnp.where(observation["action_mask"], params + noise, -jnp.inf), axis=1)

    play = jax.jit(lambda params, key: rollout(problem, policy, params, key, batch_size=16, record=True))
    params = jnp.zeros(problem.num_actions)
    played = play(params, jax.random.key(0))
    assert difference(played.cost, problem.objective(played.instance, played.actions).astype(jnp.float32), 1e-5) is None
    assert played.actions.shape == (16, problem.horizon)
    assert played.observations["current_node"].shape == (16, problem.horizon)
    assert (to_numpy(played.observations["current_node"])[:, 1:] == to_numpy(played.actions)[:, :-1]).all()
    assert "scan" in (program := str(jax.make_jaxpr(play)(params, jax.random.key(0))))
    assert "callback" not in program


def test_rollout_with_64_bits_and_a_given_instance():
    with jax.enable_x64(True):
        problem = CVRP(4)
        instance = to_backend(problem.generate(np.random.default_rng(0), 3), "jax")
        played = rollout(problem, first_legal, None, jax.random.key(0), instance=instance)
        assert difference(played.cost, problem.objective(instance, played.actions).astype(jnp.float32), 1e-5) is None


def test_random_actions_are_uniform_among_the_legal():
    """Two of three nodes are legal: each in about half of 4,000 draws (standard deviation 32)."""
    actions = to_numpy(sample_actions(jnp.tile(jnp.array([1, 0, 1], jnp.int8), (4000, 1)), jax.random.key(0)))
    assert set(actions.tolist()) == {0, 2}
    assert abs((actions == 0).sum() - 2000) < 160


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda env: env.reset(3), "expected one key, as jax.random.key.0. makes, got 3"),
        (
            lambda env: env.reset(jax.random.split(jax.random.key(0), 4)),
            r"got \(4,\) of them; for many lanes: jax.vmap",
        ),
        (lambda env: env.reset(jax.random.split(jax.random.PRNGKey(0), 4)), r"expected one key, .*for many lanes"),
        (lambda env: env.reset(jax.random.key(0), CVRP(4)), "instance: expected a TSPInstance, got CVRP"),
        (
            lambda env: env.reset(jax.random.key(0), TSP(4).generate(np.random.default_rng(0), 1)),
            r'expected JAX arrays, got numpy.ndarray; move them with .*to_backend\(instance, "jax"\)',
        ),
        (
            lambda env: rollout(
                env.problem, first_legal, None, jax.random.key(0), instance=TSP(4).generate(np.random.default_rng(0), 1)
            ),
            "expected JAX arrays, got numpy.ndarray",
        ),
        (
            lambda env: jax.jit(lambda size: generate(env.problem, jax.random.key(0), size))(3),
            "batch_size must be an integer, got .*, which jit traces; use static_argnames",
        ),
        (lambda env: env.step(env.reset(jax.random.key(0))[0], 1.7), "action: expected one integer, got float32 of"),
        (
            lambda env: env.step(env.reset(jax.random.key(0))[0], jnp.array([1, 2])),
            "expected one integer, got int32 of",
        ),
        *(
            (lambda env, wrong=wrong: JaxEnv(wrong), r"expected a problem, such as make_problem\('TSP', 50\), got ")
            for wrong in ("TSP-50", TSP, CompetitiveOP(3))
        ),
        (lambda env: AutoReset(env.problem), r"env: expected a JaxEnv, such as JaxEnv\(.*, got TSP"),
        (lambda env: AutoReset(AutoReset(env)), "env: expected a JaxEnv, .* got <.*AutoReset"),
        (lambda env: env.reset_lanes(jax.random.key(0)), r"expected one key per lane, \(B,\), got Array"),
        *(
            (
                lambda env, actions=actions: rollout(env.problem, lambda *_: actions, None, jax.random.key(0)),
                "the policy's actions: expected integers of shape \\(1,\\), got ",
            )
            for actions in (jnp.zeros((1, 4)), jnp.zeros((1,)), 3, None)
        ),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(TypeError, match=message):
        call(JaxEnv(TSP(4)))


@pytest.mark.parametrize("matrices", [False, True])
def test_lanes_restart_after_an_instance_with_or_without_matrices(matrices):
    """The opposite of what is drawn."""
    env = AutoReset(JaxEnv(TSP(4, matrices=matrices)))
    instance = TSP(4, matrices=not matrices).generate(np.random.default_rng(0), 1)
    state, _ = jax.jit(env.reset)(jax.random.key(0), to_backend(instance, "jax"))
    step = jax.jit(env.step)
    for action in (0, 1, 2, 3):
        state, timestep = step(state, action)
    assert timestep.done
    assert state.instance.distances.shape == (4, 4)


@pytest.mark.parametrize("size", [3, 5])
def test_instances_of_another_size(size):
    other = to_backend(TSP(size).generate(np.random.default_rng(0), 1), "jax")
    with pytest.raises(InvalidInstance, match=rf"coords: expected shape \(B, 4, 2\), got \(1, {size}, 2\)"):
        JaxEnv(TSP(4)).reset(jax.random.key(0), other)
    with pytest.raises(InvalidInstance, match="coords: expected shape"):
        rollout(TSP(4), first_legal, None, jax.random.key(0), instance=other)


def test_several_instances_for_one_episode():
    two = to_backend(TSP(4).generate(np.random.default_rng(0), 2), "jax")
    for env in (JaxEnv(TSP(4)), AutoReset(JaxEnv(TSP(4)))):
        with pytest.raises(ValueError, match="instance: expected 1 row, one per key, got 2"):
            env.reset(jax.random.key(0), two)
        with pytest.raises(ValueError, match="instance: expected 3 rows, one per key, got 2"):
            env.reset_lanes(jax.random.split(jax.random.key(0), 3), two)


@pytest.mark.parametrize("wrap", [lambda env: env, AutoReset])
def test_actions_that_are_no_integers(wrap):
    env = wrap(JaxEnv(TSP(4)))
    state, _ = env.reset(jax.random.key(0))
    for action in (1.7, True, np.nan, [1], "1", None, 2**40):
        with pytest.raises(TypeError, match="action: expected one integer, got "):
            env.step(state, action)
    lanes, _ = env.reset_lanes(jax.random.split(jax.random.key(0), 2))
    with pytest.raises(TypeError, match="action: expected one integer, got float32"):
        jax.vmap(env.step)(lanes, jnp.ones(2))
    for actions in (jnp.ones(2), jnp.ones(3, int), 1):
        with pytest.raises(TypeError, match=r"action: expected integers of shape \(2,\), got "):
            env.step_lanes(lanes, actions)


@pytest.mark.parametrize("given", [False, True])
def test_lanes_are_those_of_vmap(given):
    """`reset_lanes` of both classes, with keys of both types."""
    problem = TSP(4, matrices=True)
    instance = drawn(TSP(4), 3) if given else None
    each = None if instance is None else jax.tree.map(lambda x: x[:, None], instance)
    for env in (JaxEnv(problem), AutoReset(JaxEnv(problem))):
        for key in (jax.random.key(5), jax.random.PRNGKey(5)):
            keys = jax.random.split(key, 3)
            assert same(jax.jit(env.reset_lanes)(keys, instance), jax.jit(jax.vmap(env.reset))(keys, each))


def test_instances_without_their_axis_under_vmap():
    problem = CVRP(4)
    keys = jax.random.split(jax.random.key(0), 3)
    with pytest.raises(
        InvalidInstance, match=r"coords: expected shape \(B, 5, 2\), got \(5, 2\); with jax.vmap, .*\[:, None"
    ):
        jax.vmap(JaxEnv(problem).reset)(keys, drawn(problem, 3))


@pytest.mark.parametrize("size", [-1, 0, True, 2.0])
def test_batch_sizes_that_are_no_numbers(size):
    with pytest.raises(ValueError, match=f"batch_size must be an integer of at least 1, got {size}"):
        generate(TSP(4), jax.random.key(0), size)


def test_batch_size_of_numpy():
    assert generate(TSP(4), jax.random.key(0), np.int64(3)).coords.shape == (3, 4, 2)


@pytest.mark.parametrize("compile_", [lambda f: f, jax.jit], ids=["eager", "jit"])
@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        (
            "ATSP",
            {"distances": lambda x: (9 * x).astype(int)},
            r"distances: expected floating-point numbers \(e.g. .astype\(np.float32\)\), got integers",
        ),
        ("TSP", {"coords": lambda x: x.astype(int)}, "coords: expected floating-point numbers .* got integers"),
        ("CVRP", {"demand": lambda x: x.astype(float)}, "demand: expected integers .* got floating-point numbers"),
        ("CVRP", {"demand": None}, "demand: CVRP needs it, got None"),
        ("CVRP", {"coords": None, "distances": lambda _: jnp.zeros((1, 6, 6))}, "coords: CVRP needs it, got None"),
        ("VRPTW", {"service_time": None}, "service_time: VRPTW needs it, got None"),
        ("VRPTW", {"backhaul": lambda _: jnp.zeros((1, 6), bool)}, "backhaul: VRPTW has none; leave it out"),
        (
            "TSP",
            {"distances": lambda _: jnp.zeros((1, 5, 4))},
            r"distances: expected shape \(B, 5, 5\), got \(1, 5, 4\)",
        ),
        ("TSP", {"distances": lambda _: jnp.zeros((2, 5, 5))}, "one batch size, got {'coords': 1, 'distances': 2}"),
    ],
)
def test_invalid_arrays(name, changes, message, compile_):
    problem = make_problem(name, 5)
    instance = drawn(problem)
    new = {field: change and change(getattr(instance, field)) for field, change in changes.items()}
    with pytest.raises(InvalidInstance, match=message):
        compile_(AutoReset(JaxEnv(problem)).reset)(jax.random.key(0), replace(instance, **new))


@pytest.mark.parametrize(
    ("name", "field", "change", "message"),
    [
        ("CVRP", "demand", lambda x: x.at[0, 2].set(99), "demand: row 0, customer 2 has demand 99"),
        ("CVRP", "demand", lambda x: -x, "demand: row 0"),
        ("TSP", "coords", lambda x: x.at[0, 1].set(jnp.nan), "coords: row 0, index .* is nan"),
        ("HFVRPTW", "eligible", lambda _: jnp.ones((1, 2), bool), "eligible: expected"),
    ],
)
def test_invalid_values(name, field, change, message):
    problem = make_problem(name, 5)
    instance = drawn(problem)
    instance = replace(instance, **{field: change(getattr(instance, field))})
    with pytest.raises(InvalidInstance, match=message):
        JaxEnv(problem).reset(jax.random.key(0), instance)
    with pytest.raises(InvalidInstance, match=message):
        rollout(problem, first_legal, None, jax.random.key(0), instance=instance)


@pytest.mark.parametrize("wide", [False, True])
def test_own_numbers_of_other_widths(wide):
    """They become those of generated instances, as in the Gymnasium environment, and the next episodes have costs."""
    with jax.enable_x64(wide):
        env = AutoReset(JaxEnv(CVRP(2)))
        instance = CVRP(2).generate(np.random.default_rng(0), 1)
        instance = replace(instance, coords=instance.coords.astype(np.float64), demand=instance.demand.astype(np.uint8))
        state, _ = env.reset(jax.random.key(0), to_backend(instance, "jax"))
        step, costs = jax.jit(env.step), []
        for _ in range(8):
            state, timestep = step(state, jnp.argmax(state.mask))
            costs += [float(timestep.cost)] * bool(timestep.done)
        assert len(costs) > 1
        assert min(costs) > 0
        assert state.instance.coords.dtype == jnp.float32


def test_actions_of_masks_with_any_leading_axes():
    mask = jax.random.uniform(jax.random.key(1), (5, 4, 9)) < 0.3
    mask = mask.at[..., 4].set(True)
    for rows in (mask, mask[0], mask[0, 0]):
        actions = jax.jit(sample_actions)(rows, jax.random.key(0))
        assert actions.shape == rows.shape[:-1]
        assert jnp.take_along_axis(rows, actions[..., None], axis=-1).all()


@pytest.mark.parametrize("name", ["TSP", "CVRP"])
def test_gradients_of_costs(name):
    """They are finite, and in JAX and torch the same, though edges from a node to itself have the length 0."""
    torch = pytest.importorskip("torch")
    problem = make_problem(name, 5)
    instance = drawn(problem, 3)

    def cost(coords):
        given = replace(instance, coords=coords)
        return rollout(problem, first_legal, None, jax.random.key(0), instance=given).cost.sum()

    gradient = to_numpy(jax.jit(jax.grad(cost))(instance.coords))
    coords = torch.tensor(to_numpy(instance.coords), requires_grad=True)
    theirs = replace(to_backend(instance, "torch"), coords=coords)
    played = numpy_rollout(problem, theirs, lambda seen: seen["action_mask"].int().argmax(dim=1))
    played.cost.sum().backward()
    assert np.abs(gradient).sum() > 1
    assert np.allclose(gradient, coords.grad, atol=1e-5)
