"""Loop of a random policy in Jumanji; started by `env_peers.py`, see `playing.py`.

Lanes are vmapped and reset automatically. Policy and step are compiled together, and called either once per step or,
with `jax.lax.scan`, once for many steps, like in Jumanji's own agents.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from compiled import player, replayers
from jumanji.environments.routing.cvrp import CVRP
from jumanji.environments.routing.cvrp.generator import UniformGenerator as CVRPGenerator
from jumanji.environments.routing.tsp import TSP
from jumanji.environments.routing.tsp.generator import UniformGenerator as TSPGenerator
from jumanji.wrappers import AutoResetWrapper, VmapWrapper
from playing import Way, playing
from worker import serve

CAPACITIES = {20: 30, 50: 40, 100: 50}  # capacities of the paper, by number of customers
MAX_DEMAND = 9
Policy = Callable[[Any, Any], Any]


def make_env(name: str, num_nodes: int) -> Any:
    """Make a single environment."""
    if name == "TSP":
        return TSP(TSPGenerator(num_nodes))
    return CVRP(CVRPGenerator(num_nodes, CAPACITIES[num_nodes], MAX_DEMAND + 1))  # its upper end is exclusive


def own_policy(mask: Any, key: Any) -> Any:
    """Sample like `jumanji.training.networks.masked_categorical_random`, whose module needs haiku."""
    logits = jnp.where(mask, jnp.zeros_like(mask), -jnp.finfo("float32").max)
    return jax.random.categorical(key, logits)


def ranked_policy(mask: Any, key: Any) -> Any:
    """Sample from the same distribution, faster: draw the rank of a legal node, with one random number per row."""
    rank_of = jnp.cumsum(mask, axis=-1, dtype=jnp.int32)
    rank = (jax.random.uniform(key, (len(mask), 1)) * rank_of[:, -1:]).astype(jnp.int32)
    return jnp.argmax(rank_of > rank, axis=-1)


def prepare(name: str, num_nodes: int, lanes: int, seed: int) -> dict[str, Way]:
    """Build the ways to play a problem."""
    single = make_env(name, num_nodes)
    env = VmapWrapper(AutoResetWrapper(single))
    num_steps = num_nodes * max(1, min(20, 1024 // lanes))  # length of a scan; more if a call costs more than a step
    key, reset_key = jax.random.split(jax.random.PRNGKey(seed))
    start = (*jax.jit(env.reset)(jax.random.split(reset_key, lanes)), key)
    made = num_steps * lanes  # transitions in a round

    def stepper(policy: Policy) -> Callable[[Any, None], tuple[Any, Any]]:
        def step(now: Any, _: None) -> tuple[Any, Any]:
            state, timestep, key = now
            key, action_key = jax.random.split(key)
            state, timestep = env.step(state, policy(timestep.observation.action_mask, action_key))
            return (state, timestep, key), (timestep.reward, timestep.last())

        return step

    def lean_step(now: Any, _: None) -> tuple[Any, Any]:
        state, mask, key = now
        key, action_key = jax.random.split(key)
        state, timestep = env.step(state, ranked_policy(mask, action_key))
        return (state, timestep.observation.action_mask, key), (timestep.reward, timestep.last())

    def lean() -> Way:
        lean_start = (start[0], start[1].observation.action_mask, key)
        return player(jax.jit(lambda now: jax.lax.scan(lean_step, now, length=num_steps)), lean_start, 1, made)

    def scanned(policy: Policy) -> Way:
        return player(jax.jit(lambda now: jax.lax.scan(stepper(policy), now, length=num_steps)), start, 1, made)

    def called(policy: Policy) -> Way:
        return player(jax.jit(lambda now: stepper(policy)(now, None)), start, num_steps, made)

    return {
        "scan, its own policy": scanned(own_policy),
        "scan, ranked policy": scanned(ranked_policy),
        "scan, ranked policy, only masks kept": lean(),
        "call per step, its own policy": called(own_policy),
        "call per step, ranked policy": called(ranked_policy),
        **transitions(VmapWrapper(single), env, start, num_nodes),
    }


def transitions(env: Any, resetting_env: Any, start: Any, num_steps: int) -> dict[str, Way]:
    """Build the ways to play actions drawn beforehand: a scan without resets, and one call per step with resets."""
    state, timestep, key = start

    def policy(now: Any, key: Any) -> Any:
        return ranked_policy(now[1].observation.action_mask, key)

    def step(now: Any, action: Any) -> tuple[Any, Any]:
        now = env.step(now[0], action)
        return now, now[1].reward

    keys = jax.random.split(key, num_steps)
    return replayers(policy, step, (state, timestep), keys, jax.jit(resetting_env.step), state)


if __name__ == "__main__":
    serve(("jumanji", "jax", "jaxlib", "numpy"), playing(prepare))
