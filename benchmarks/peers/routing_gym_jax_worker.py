"""Loop of a random policy in routing-gym on JAX; started by `env_peers.py`, see `playing.py`.

The ways to play resemble those of `jumanji_worker.py`, with its ranked policy. Lanes are vmapped and reset
automatically.
"""

from __future__ import annotations

from typing import Any

import jax
from compiled import player, replayers
from playing import Way, playing
from worker import serve

from routing_gym import make_problem
from routing_gym.integrations.jax import AutoReset, JaxEnv, sample_actions


def prepare(name: str, num_nodes: int, lanes: int, seed: int) -> dict[str, Way]:
    """Build the ways to play a problem."""
    problem = make_problem(name, num_nodes)
    env = AutoReset(JaxEnv(problem))
    num_steps = num_nodes * max(1, min(20, 1024 // lanes))  # length of a scan, the same as Jumanji's
    key, reset_key = jax.random.split(jax.random.key(seed))
    state, _ = jax.jit(jax.vmap(env.reset))(jax.random.split(reset_key, lanes))

    def step(now: Any, _: None) -> tuple[Any, Any]:
        state, key = now
        key, action_key = jax.random.split(key)
        state, timestep = jax.vmap(env.step)(state, sample_actions(state.mask, action_key))
        return (state, key), (timestep.reward, timestep.done)

    start, made = (state, key), num_steps * lanes
    return {
        "scan": player(jax.jit(lambda now: jax.lax.scan(step, now, length=num_steps)), start, 1, made),
        "call per step": player(jax.jit(lambda now: step(now, None)), start, num_steps, made),
        **transitions(JaxEnv(problem), env, state, key, num_nodes),
    }


def transitions(env: JaxEnv, resetting_env: AutoReset, state: Any, key: Any, num_steps: int) -> dict[str, Way]:
    """Build the ways to play actions drawn beforehand: a scan without resets, and one call per step with resets."""
    one_step, resetting_step = jax.vmap(env.step), jax.jit(jax.vmap(resetting_env.step))

    def policy(state: Any, key: Any) -> Any:
        return sample_actions(state.mask, key)

    def step(state: Any, action: Any) -> tuple[Any, Any]:
        state, timestep = one_step(state, action)
        return state, timestep.reward

    return replayers(policy, step, state, jax.random.split(key, num_steps), resetting_step, state)


if __name__ == "__main__":
    serve(("jax", "jaxlib", "numpy"), playing(prepare))
