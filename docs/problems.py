"""Draw docs/problems.png: one instance of each problem, solved by its reference solver.

python docs/problems.py
"""

from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from routing_gym import make_problem, render
from routing_gym.arrays import select
from routing_gym.solvers import REFERENCES, make_solver


def main(num_nodes: int = 50, seed: int = 40) -> None:
    """Solve and draw."""
    figure = Figure(figsize=(20, 10.8))
    FigureCanvasAgg(figure)
    figure.subplots_adjust(left=0.01, right=0.99, bottom=0.05, top=0.96, wspace=0.03, hspace=0.18)
    places = figure.subplots(2, 4).flat
    for number, (axes, (name, solver)) in enumerate(zip(places, REFERENCES.items(), strict=True)):
        problem = make_problem(name, num_nodes)
        instance = problem.generate(np.random.default_rng(seed + number), 1)
        limit = {"time_limit": 20.0} if solver == "ortools" else {}
        solution = make_solver(solver, **limit).solve(problem, instance, num_workers=1)
        render.draw(problem, select(instance, slice(0, 1)), solution.actions[0], float(solution.cost[0]), axes=axes)
    figure.savefig(Path(__file__).with_name("problems.png"), dpi=70)


if __name__ == "__main__":
    main()
