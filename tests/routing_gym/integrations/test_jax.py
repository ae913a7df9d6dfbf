"""`routing_gym.integrations.jax`: the same episodes as the Gymnasium environment's, pure, vmapped, compiled once."""

import gymnasium as gym
import numpy as np
import pytest

from routing_gym import CVRP, TSP, make_problem
from routing_gym.arrays import select, to_backend, to_numpy
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
            "batch_size must be an integer, got .* if jit traces it, use static_argnums",
        ),
        (lambda env: env.step(env.reset(jax.random.key(0))[0], 1.7), "action: expected one integer, got float32 of"),
        (
            lambda env: env.step(env.reset(jax.random.key(0))[0], jnp.array([1, 2])),
            "expected one integer, got int32 of",
        ),
        (lambda env: JaxEnv("TSP-50"), r"expected a problem, such as make_problem\('TSP', 50\), got 'TSP-50'"),
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
    with pytest.raises(ValueError, match=rf"instance: coords has shape \(1, {size}, 2\), expected \(1, 4, 2\) for TSP"):
        JaxEnv(TSP(4)).reset(jax.random.key(0), other)
    with pytest.raises(ValueError, match="instance: coords has shape"):
        rollout(TSP(4), first_legal, None, jax.random.key(0), instance=other)


def test_several_instances_for_one_episode():
    two = to_backend(TSP(4).generate(np.random.default_rng(0), 2), "jax")
    with pytest.raises(ValueError, match="reset begins one episode, but the instance has 2 rows"):
        JaxEnv(TSP(4)).reset(jax.random.key(0), two)
