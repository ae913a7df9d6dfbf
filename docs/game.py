"""Draw docs/game.gif: eight rival-aware vehicles play one game, tick by tick.

python docs/game.py
"""

from pathlib import Path

import numpy as np
from PIL import Image

from routing_gym import CompetitiveOP
from routing_gym.multi_agent.heuristics import rival_aware
from routing_gym.multi_agent.pictures import to_rgb_array

OUT = Path(__file__).with_name("game.gif")
COLOURS = 48  # size of the palette that all frames share
SIZE = (400, 440)  # pixels
STEP, END = 350, 3000  # milliseconds for which a frame is shown, and the last one


def main(out: Path = OUT, seed: int = 2) -> None:
    """Play a game, draw every tick, and save the pictures as an animation."""
    game = CompetitiveOP(8)
    instance = game.generate(np.random.default_rng(seed), 1)
    states = [game.initial(instance)]
    for _ in range(game.num_ticks):
        states.append(game.step(instance, states[-1], rival_aware(game, instance, states[-1]))[0])
    animate([to_rgb_array(game, instance, states[: tick + 1]) for tick in range(len(states))], out)


def animate(drawn: list[np.ndarray], out: Path, step: int = STEP) -> None:
    """Save pictures (height, width, 3) as an animation; each is shown for `step` milliseconds, the last for `END`."""
    pictures = [Image.fromarray(pixels).resize(SIZE, Image.Resampling.LANCZOS) for pixels in drawn]
    palette = pictures[-1].quantize(COLOURS)
    frames = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]
    durations = [step] * (len(frames) - 1) + [END]
    frames[0].save(out, save_all=True, append_images=frames[1:], duration=durations, loop=0, optimize=True)


if __name__ == "__main__":
    main()
