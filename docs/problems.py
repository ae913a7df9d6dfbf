"""Draw solved instances: docs/problems.png (all problems but the VRP family), vrp.png (two of it), roads.png (streets).

Reference solvers solve the instances; PyVRP solves the one on streets.

python docs/problems.py
"""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from routing_gym import make_problem, render
from routing_gym.arrays import select
from routing_gym.problems.geometry import uniform_coords
from routing_gym.problems.matrices import NO_STREET, SLOW, num_junctions, num_matrix_uniforms, streets
from routing_gym.problems.vrp import PRESETS
from routing_gym.solvers import REFERENCES, make_solver


def draw(path: Path, names: list[str], shape: tuple[int, int], num_nodes: int, seed: int, dpi: int) -> None:
    """Solve an instance of each problem, and draw them."""
    rows, columns = shape
    figure = Figure(figsize=(5 * columns, 5.4 * rows))
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


def draw_roads(path: Path, num_nodes: int, seed: int, dpi: int) -> None:
    """Draw a solved instance on its streets: fast streets are thick, and arrows show one-way streets."""
    problem = make_problem("CVRP", num_nodes, matrices=True)
    uniforms = np.random.default_rng(seed).random((1, problem.num_uniforms))
    instance = problem.from_uniforms(uniforms)
    last, junctions = uniforms[:, -num_matrix_uniforms(problem) :], num_junctions(problem.num_actions)
    places = np.concatenate([instance.coords, uniform_coords(last, junctions)], axis=1)
    lengths, durations = streets(places, last[:, 2 * junctions :].reshape(1, places.shape[1], -1))
    figure = Figure(figsize=(6, 6.6))
    axes = figure.add_axes((0.02, 0.1, 0.96, 0.84))
    for i, j in np.argwhere((durations[0] < NO_STREET) & (lengths[0] > 0)):
        fast, one_way = lengths[0, i, j] > SLOW * durations[0, i, j], durations[0, j, i] == NO_STREET
        style = {
            "arrowstyle": "-|>" if one_way else "-",
            "lw": 4 if fast else 1.5,
            "color": "#c9c9c9",
            "mutation_scale": 14,
            "shrinkA": 0,
            "shrinkB": 0,
        }
        axes.annotate("", places[0, j], places[0, i], arrowprops=style, zorder=0)
    solution = make_solver("pyvrp").solve(problem, instance, num_workers=0)
    render.draw(problem, instance, solution.actions[0], float(solution.cost[0]), axes=axes)
    figure.savefig(path, dpi=dpi)


def main() -> None:
    """Draw the pictures."""
    here = Path(__file__).parent
    names = [name for name in REFERENCES if name not in PRESETS]
    draw(here / "problems.png", names, (-(-len(names) // 4), 4), 50, 40, 70)
    draw(here / "vrp.png", ["VRPTW", "OVRPB"], (1, 2), 20, 52, 80)
    draw_roads(here / "roads.png", 20, 3, 80)


if __name__ == "__main__":
    main()
