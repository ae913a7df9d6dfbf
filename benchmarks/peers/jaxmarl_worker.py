"""Loop of random actions in JaxMARL; started by `game_throughput.py`, see `playing.py`.

It plays a batch of games of one of JaxMARL's MPE environments, with 16 ticks like our game. Lanes are vmapped and reset
automatically. All steps of a game are compiled into one `jax.lax.scan`, which only a policy written in JAX can use.
Actions are drawn beforehand.
"""

from __future__ import annotations

from typing import Any

import jax
from compiled import player
from playing import Way, playing
from worker import serve

NUM_TICKS = 16


def prepare(scenario: str, num_agents: int, lanes: int, seed: int) -> dict[str, Way]:
    """Build the loop; its transitions are those of single agents."""
    from jaxmarl import make  # prints text, which `serve` separates from the answers

    env = make(f"MPE_{scenario}_v3", num_agents=num_agents, num_landmarks=num_agents, max_steps=NUM_TICKS)
    key, reset_key, action_key = jax.random.split(jax.random.PRNGKey(seed), 3)
    _, state = jax.vmap(env.reset)(jax.random.split(reset_key, lanes))
    actions = {
        agent: jax.random.randint(one, (NUM_TICKS, lanes), 0, env.action_space(agent).n)
        for agent, one in zip(env.agents, jax.random.split(action_key, num_agents), strict=True)
    }

    def step(now: Any, action: Any) -> tuple[Any, Any]:
        state, key = now
        key, step_key = jax.random.split(key)
        observations, state, rewards, dones, _ = jax.vmap(env.step)(jax.random.split(step_key, lanes), state, action)
        return (state, key), (observations, rewards, dones)

    game = jax.jit(lambda now: jax.lax.scan(step, now, actions))
    return {"games": player(game, (state, key), 1, NUM_TICKS * lanes * num_agents)}


if __name__ == "__main__":
    serve(("jaxmarl", "jax"), playing(prepare))
