"""Loop of random actions in VMAS; started by `game_throughput.py`, see `playing.py`.

It plays a batch of games of one of VMAS's scenarios. Actions are drawn beforehand. All games are reset every 16 steps,
like our game.
"""

from __future__ import annotations

import torch
import vmas
from playing import Way, clock, playing
from worker import serve

NUM_TICKS = 16


def prepare(scenario: str, num_agents: int, lanes: int, seed: int) -> dict[str, Way]:
    """Build the loop; its transitions are those of single agents."""
    env = vmas.make_env(scenario, lanes, "cpu", continuous_actions=False, seed=seed, n_agents=num_agents)
    generator = torch.Generator().manual_seed(seed)
    actions = [
        [torch.randint(int(space.n), (lanes, 1), generator=generator) for space in env.action_space]
        for _ in range(NUM_TICKS)
    ]

    def games(rounds: int) -> tuple[int, float]:
        started = clock()
        for _ in range(rounds):
            env.reset()
            for action in actions:
                env.step(action)
        return rounds * NUM_TICKS * lanes * num_agents, clock() - started

    return {"games": games}


if __name__ == "__main__":
    torch.set_num_threads(1)
    serve(("vmas", "torch"), playing(prepare))
