"""Draw docs/animation.gif: the published weights build a tour of TSP-50 and the routes of CVRP-50, node by node.

python docs/animation.py
"""

from io import BytesIO
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

import routing_agents
from routing_gym import render

OUT = Path(__file__).with_name("animation.gif")
COLOURS = 64  # size of the palette that all frames share
STEP, END = 90, 3000  # milliseconds for which a frame is shown, and the last one


def solved(name: str, seed: int) -> routing_agents.SolvedInstance:
    """Solve one random instance with the published weights."""
    model = routing_agents.load(name)
    return model.solve(model.problem.generate(np.random.default_rng(seed), 1))


def frame(games: list[routing_agents.SolvedInstance], step: int) -> Image.Image:
    """Draw all instances side by side, with their tours after `step` steps."""
    figure = Figure(figsize=(3.6 * len(games), 3.8))
    figure.subplots_adjust(left=0.01, right=0.99, bottom=0.01, top=0.92, wspace=0.03)
    for axes, game in zip(figure.subplots(1, len(games), squeeze=False)[0], games, strict=True):
        render.draw(game.problem, game.instance, game.actions[:step], axes=axes)
        if legend := axes.get_legend():
            legend.remove()  # its entries would differ between frames
    picture = BytesIO()
    figure.savefig(picture, dpi=100)
    return Image.open(picture).convert("RGB")


def main(out: Path = OUT, names: tuple[str, ...] = ("TSP-50", "CVRP-50")) -> None:
    """Solve the instances, draw every step, and save the pictures as an animation."""
    games = [solved(name, seed=6) for name in names]
    num_steps = max(len(game.actions) for game in games)
    pictures = [frame(games, step) for step in range(num_steps + 1)]
    palette = pictures[-1].quantize(COLOURS)
    frames = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]
    durations = [STEP] * num_steps + [END]
    frames[0].save(out, save_all=True, append_images=frames[1:], duration=durations, loop=0, optimize=True)


if __name__ == "__main__":
    main()
