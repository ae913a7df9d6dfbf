"""The rules on JAX: the same instances, 32 and 64 bits, and what cannot be. `check_problem` compares the rest."""

from dataclasses import replace

import numpy as np
import pytest

from problem_names import ONE_OF_EACH
from routing_gym import CVRP, OP, SDVRP, TSP, TSPInstance, make_problem, sample_actions
from routing_gym.arrays import batch_size, cast_instance, integer, select, to_backend, to_numpy, use_jax
from routing_gym.problem import InvalidInstance
from routing_gym.rollout import rollout
from routing_gym.testing import check_problem
from routing_gym.testing.compare import difference

pytest.importorskip("jax")
from routing_gym.integrations.jax import JaxEnv

jax = use_jax()


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_the_same_uniforms_give_the_same_instance(name):
    """From float32 uniforms, as `jax.random` draws them: coordinates and integers exactly, prizes and penalties to
    the last bit or two, ATSP's distances to the millionth that rounding down may cost each leg; OP's prizes are whole
    hundredths, but the division of one that lies on a boundary may go either way.
    """
    problem = make_problem(name, 20)
    uniforms = np.random.default_rng(0).random((200, problem.num_uniforms), dtype=np.float32)
    expected = problem.from_uniforms(uniforms.astype(np.float64))
    found = to_backend(jax.jit(problem.from_uniforms)(jax.numpy.asarray(uniforms)), "numpy")
    for field, values in vars(expected).items():
        if values is None:
            continue
        exact = field in ("coords", "demand", "capacity", "max_length")
        tolerance = 0 if exact else 1e-5 if field == "distances" else 1e-6
        far = np.abs(np.subtract(getattr(found, field), values, dtype=np.float64)) > tolerance
        assert far.sum() <= (1 if name == "OP" and field == "prize" else 0), field


def test_every_demand_that_jax_can_draw():
    """jax.random.uniform draws k / 2^23; floor(9 u) in float32 is that of the fraction for every k."""
    k = np.arange(2**23)
    uniforms = np.zeros((2**18, CVRP(32).num_uniforms), dtype=np.float32)
    uniforms[:, -32:] = (k / 2**23).reshape(2**18, 32)
    drawn = jax.jit(lambda u: CVRP(32).from_uniforms(u).demand)(uniforms)
    assert np.array_equal(to_numpy(drawn)[:, 1:].ravel(), 1 + 9 * k // 2**23)


def test_the_contract_holds_with_64_bits():
    with jax.enable_x64(True):
        assert integer(jax.numpy) == jax.numpy.int64
        check_problem(CVRP(6))


def test_rollout_plays_on_jax_what_it_plays_on_numpy():
    problem = CVRP(8)
    instance = problem.generate(np.random.default_rng(0), 4)
    played = []
    for batch in (instance, to_backend(instance, "jax")):
        rng = np.random.default_rng(1)
        played.append(rollout(problem, batch, lambda seen, rng=rng: sample_actions(seen["action_mask"], rng)))
    assert difference(played[1], played[0], 1e-6) is None
    assert type(played[1].actions) is type(jax.numpy.zeros(1))


def test_there_and_back_between_all_backends():
    pytest.importorskip("torch")
    instance = CVRP(5).generate(np.random.default_rng(0), 3)
    moved = to_backend(to_backend(to_backend(instance, "jax", "cpu"), "torch"), "jax")
    assert batch_size(moved) == 3
    assert difference(moved, instance) is None
    assert difference(select(moved, [2, 0]), select(instance, [2, 0])) is None


def test_what_32_bits_cannot_hold_is_refused():
    huge = CVRP(5, capacity=2**40).generate(np.random.default_rng(0), 1)
    with pytest.raises(ValueError, match=r"1099511627776 does not fit into JAX's 32 bits: call jax.config.update\("):
        to_backend(huge, "jax")
    with pytest.raises(ValueError, match="capacity: 1099511627776 does not fit into JAX's 32 bits"):
        JaxEnv(CVRP(5, capacity=2**40)).reset(jax.random.key(0))
    with jax.enable_x64(True):
        assert int(to_backend(huge, "jax").capacity[0]) == 2**40


def test_sums_that_32_bits_cannot_hold_are_refused():
    """Eight demands of 2^29 are 2^32 in all, which would be 0: nothing to deliver."""
    drawn = SDVRP(8).generate(np.random.default_rng(0), 1)
    demand = np.where(drawn.demand > 0, 2**29, 0)
    instance = to_backend(replace(drawn, demand=demand, capacity=np.array([2**30])), "jax")
    with pytest.raises(ValueError, match="demand: a sum of 4294967296 does not fit into JAX's 32 bits"):
        JaxEnv(SDVRP(8)).reset(jax.random.key(0), instance)


def test_unknown_device():
    with pytest.raises(ValueError, match="device='toaster' cannot be used; JAX sees "):
        to_backend(TSPInstance(np.zeros((1, 2, 2), dtype=np.float32)), "jax", "toaster")


def test_a_size_that_is_traced():
    with pytest.raises(ValueError, match=r"num_nodes must be an integer, got .*pass it by static_argnums"):
        jax.jit(TSP)(5)
    assert jax.jit(lambda n: TSP(n).num_actions, static_argnums=0)(5) == 5


def test_validate_names_the_conversion():
    instance = to_backend(CVRP(4).generate(np.random.default_rng(0), 1), "jax")
    with pytest.raises(InvalidInstance, match=r"a float32 array, got ArrayImpl; convert .*cast_instance\(instance\)"):
        CVRP(4).validate(instance)
    CVRP(4).validate(cast_instance(instance))


def test_objective_inside_a_traced_function():
    problem = OP(4)
    instance = to_backend(problem.generate(np.random.default_rng(0), 1), "jax")
    with pytest.raises(TypeError, match=r"NumPy cannot read an array .*; call this .* outside the traced function"):
        jax.jit(problem.objective)(instance, jax.numpy.zeros((1, 1), dtype=int))


def test_numpy_and_jax_lanes_share_the_draws_of_a_generator():
    mask = np.array([[True, False, True], [False, True, True]])
    drawn = [sample_actions(m, np.random.default_rng(3)) for m in (mask, jax.numpy.asarray(mask))]
    assert np.array_equal(drawn[0], to_numpy(drawn[1]))
