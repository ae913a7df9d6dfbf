"""Draw docs/problems.png, an instance of each problem, and vrp.png, two of the VRP family, solved by reference solvers.

python docs/problems.py
"""

from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from routing_gym import make_problem, render
from routing_gym.arrays import select
from routing_gym.problems.vrp import PRESETS
from routing_gym.solvers import REFERENCES, make_solver


def draw(path: Path, names: list[str], shape: tuple[int, int], num_nodes: int, seed: int, dpi: int) -> None:
    """Solve an instance of each problem, and draw them."""
    rows, columns = shape
    figure = Figure(figsize=(5 * columns, 5.4 * rows))
    FigureCanvasAgg(figure)
    figure.subplots_adjust(left=0.01, right=0.99, bottom=0.1 / rows, top=1 - 0.08 / rows, wspace=0.03, hspace=0.18)
    places = figure.subplots(rows, columns).flat
    for axes in places[len(names) :]:
        axes.set_axis_off()
    for number, (axes, name) in enumerate(zip(places, names, strict=False)):
        problem, solver = make_problem(name, num_nodes), REFERENCES[name]
        instance = problem.generate(np.random.default_rng(seed + number), 1)
        limit = {"time_limit": 20.0} if solver == "ortools" else {}
        solution = make_solver(solver, **limit).solve(problem, instance, num_workers=1)
        render.draw(problem, select(instance, slice(0, 1)), solution.actions[0], float(solution.cost[0]), axes=axes)
    figure.savefig(path, dpi=dpi)


def main() -> None:
    """Draw both pictures."""
    here = Path(__file__).parent
    names = [name for name in REFERENCES if name not in PRESETS]
    draw(here / "problems.png", names, (-(-len(names) // 4), 4), 50, 40, 70)
    draw(here / "vrp.png", ["VRPTW", "OVRPB"], (1, 2), 20, 52, 80)


if __name__ == "__main__":
    main()
