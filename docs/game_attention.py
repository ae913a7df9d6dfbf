"""Draw docs/game_attention.gif: a game played by policies of mappo.py, with the attention of one vehicle's value.

python agents/mappo.py --name listening
python docs/game_attention.py runs/listening
"""

import sys
from pathlib import Path

import numpy as np
from game import animate

from routing_agents.multi_agent.pictures import draw_attention, listening
from routing_agents.multi_agent.players import greedy, play_one
from routing_agents.multi_agent.saved import load_policy, load_values
from routing_gym.render.figure import pixels

OUT = Path(__file__).with_name("game_attention.gif")
STEP = 700  # milliseconds for which a frame is shown


def main(run: Path, out: Path = OUT, seed: int = 2, agent: int = 0) -> None:
    """Play a game, draw every tick with the attention of the agent's value, and save the pictures as an animation."""
    (policy, game, _), (values, _, _) = load_policy(run), load_values(run)
    instance = game.generate(np.random.default_rng(seed), 1)
    states, seen = play_one(game, instance, greedy(policy))
    drawn = [
        draw_attention(game, instance, states[: tick + 1], listening(values, observation), agent)
        for tick, observation in enumerate(seen)
    ]
    animate([pixels(figure) for figure in drawn], out, STEP)


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except (IndexError, ValueError, TypeError, OSError) as error:
        sys.exit(f"game_attention: give the folder of a run whose values have attention: {error}")
