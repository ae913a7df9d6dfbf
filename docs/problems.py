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


def main(num_nodes: int = 50, seed: int = 4) -> None:
    """Solve and draw."""
    figure = Figure(figsize=(12, 8.6), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, (name, solver) in zip(figure.subplots(2, 3).flat, REFERENCES.items(), strict=True):
        problem = make_problem(name, num_nodes)
        instance = problem.generate(np.random.default_rng(seed), 1)
        solution = make_solver(solver).solve(problem, instance, num_workers=1)
        render.draw(problem, select(instance, slice(0, 1)), solution.actions[0], float(solution.cost[0]), axes=axes)
    figure.savefig(Path(__file__).with_name("problems.png"), dpi=90)


if __name__ == "__main__":
    main()
