"""Draw the playground's presets and solve them: writes playground/js/presets.js.

    python playground/make_presets.py      # needs the extra [solvers]; a minute or two

The cost stored with a preset is the reference solver's (`routing_gym.solvers.REFERENCES`); the page calls it by the
solver's name, never "optimal".
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from routing_gym.problem import AnyProblem
from routing_gym.problems import make_problem
from routing_gym.solvers import REFERENCES, SOLVERS

OUT = Path(__file__).parent / "js" / "presets.js"
PROBLEMS = ("TSP", "CVRP", "SDVRP", "OP", "PCTSP", "SPCTSP", "VRPTW")  # problems that the page supports
DIGITS = 4  # decimals of coordinates and values; costs are those of the rounded instance
Points = np.ndarray  # float64 (A, 2), in the unit square


def uniform(rng: np.random.Generator, size: int) -> Points:
    """Draw points anywhere."""
    return rng.random((size, 2))


def clusters(rng: np.random.Generator, size: int) -> Points:
    """Draw points around five centres."""
    centres = rng.uniform(0.15, 0.85, (5, 2))
    return np.clip(centres[rng.integers(5, size=size)] + rng.normal(0, 0.06, (size, 2)), 0, 1)


def ring(rng: np.random.Generator, size: int) -> Points:
    """Draw points near a circle, the first one at its centre."""
    angle, radius = rng.uniform(0, 2 * np.pi, size), 0.4 + rng.normal(0, 0.03, size)
    points = 0.5 + radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    points[0] = 0.5
    return np.clip(points, 0, 1)


LAYOUTS: tuple[tuple[str, int, Callable[[np.random.Generator, int], Points]], ...] = (
    ("50 nodes", 50, uniform),
    ("20 nodes", 20, uniform),
    ("Clusters", 40, clusters),
    ("Ring", 30, ring),
    ("10 nodes", 10, uniform),
)


def draw(problem: AnyProblem, layout: Callable[[np.random.Generator, int], Points], seed: int) -> Any:
    """Draw an instance of a problem whose nodes have the given layout, rounded to a few digits."""
    rng = np.random.default_rng(seed)
    uniforms = rng.random((1, problem.num_uniforms))
    uniforms[0, : 2 * problem.num_actions] = layout(rng, problem.num_actions).round(DIGITS).ravel()
    instance = problem.from_uniforms(uniforms)
    rounded = {
        key: value.round(DIGITS)
        for key, value in vars(instance).items()
        if value is not None and key != "coords" and value.dtype == np.float32
    }
    return type(instance)(**{**vars(instance), **rounded})


def row(instance: Any, field: str) -> Any:
    """Return one field of a single instance as numbers for JSON."""
    values = np.asarray(getattr(instance, field), dtype=np.float64)[0].round(DIGITS)
    return values.ravel().tolist() if values.ndim else values.item()


FIELDS = {  # our names, and those of the page
    "coords": "coords",
    "demand": "demand",
    "capacity": "capacity",
    "prize": "prize",
    "expected_prize": "prize",
    "penalty": "penalty",
    "real_prize": "realPrize",
    "max_length": "maxLength",
    "ready_time": "readyTime",
    "due_time": "dueTime",
    "service_time": "serviceTime",
}


def preset(name: str, title: str, problem: AnyProblem, instance: Any) -> dict[str, Any]:
    """Solve an instance; return it with its cost, for JSON."""
    solver = SOLVERS[REFERENCES[name]]()
    cost = float(solver.solve(problem, instance).cost[0])
    fields = {FIELDS[key]: row(instance, key) for key, value in vars(instance).items() if value is not None}
    return {"title": title, "solver": solver.name, "cost": round(abs(cost), 6), **fields}


def main(out: Path = OUT) -> None:
    """Write the presets of all problems."""
    presets: dict[str, list[dict[str, Any]]] = {}
    for name in PROBLEMS:
        presets[name] = []
        for seed, (title, size, layout) in enumerate(LAYOUTS, start=6):
            problem = make_problem(name, size)
            presets[name].append(preset(name, title, problem, draw(problem, layout, seed)))
            print(name, title, presets[name][-1]["cost"])
    text = json.dumps(presets, separators=(",", ":")).replace("},{", "},\n{").replace("],", "],\n")
    out.write_text(
        f"// Written by make_presets.py: instances, and what a solver reached on them.\nconst PRESETS = {text};\n"
    )


if __name__ == "__main__":
    main()
