"""Write the pages of the environments from the declarations of the problems: docs/environments/**/*.md, and animations.

The build of the site calls this; git ignores the written files.
"""

from __future__ import annotations

import dataclasses
import inspect
import textwrap
from pathlib import Path
from typing import Any

import animation
import numpy as np
from docstring_parser import parse
from gymnasium import spaces

from routing_agents.trained import find_weights
from routing_gym.problem import AnyProblem, instance_fields
from routing_gym.problems import LISTED, make_problem

MEANING = {
    "coords": "coordinates of every node in the unit square",
    "action_mask": "1 for each node that may be visited next",
    "current_node": "the node at which the vehicle is",
    "first_node": "the first node of the tour",
    "demand": "demand of each customer, as a share of the capacity",
    "free_capacity": "remaining capacity, as a share of the capacity",
    "remaining_demand": "remaining demand of each customer, as a share of the capacity",
    "prize": "prize of a visit; its expected value if prizes are stochastic",
    "penalty": "cost of leaving the node out",
    "remaining_length": "remaining length",
    "remaining_prize": "prize that is still required",
    "pickup": "for each delivery, the customer at which its goods are picked up; else 0",
    "backhaul": "1 for customers whose goods are collected, 0 for deliveries",
    "ready_time": "earliest start of service",
    "due_time": "latest start of service; for the depot, the time by which vehicles return",
    "service_time": "duration of the service",
    "current_time": "time at which the vehicle leaves the current node",
    "open_routes": "1: vehicles do not return to the depot",
    "partner": "the other end of the fixed edge of each city; the city itself if it has none",
    "distances": "distances from each city (row) to each city (column)",
    "mixed_backhauls": "1: goods may be collected before deliveries",
    "free_for_pickups": "remaining capacity for goods that are collected, as a share of the capacity",
    "is_depot": "1 for depot nodes, which come first",
    "start_depot": "the depot node to which the vehicle returns; at a depot, where the next route starts",
    "vehicle_capacity": "at depot nodes: capacity of the vehicles, as a share of the largest",
    "fixed_cost": "at depot nodes: cost of each route",
    "cost_per_length": "at depot nodes: cost of a unit of length",
    "scarcity": "1 / (1 + number of vehicles that have not been used)",
    "equal_share": "1 / number of salesmen of the instance",
    "salesmen_left": "share of the salesmen who have not finished, including the current one",
    "current_length": "length of the current route",
    "longest_length": "length of the longest route so far",
}
START = """# {name}

```python
import gymnasium as gym
import routing_gym

env = gym.make("routing/{name}-20")
observation, info = env.reset(seed=1)
terminated = False
while not terminated:
    action = env.action_space.sample(mask=observation["action_mask"])
    observation, reward, terminated, truncated, info = env.step(action)
print(info["cost"], env.unwrapped.tour)
```
{animation}
{source}

{rules}

| item | value |
|---|---|
| action space | `Discrete({num_actions})`: the node to visit next |
| observation space | `Dict`, see below |
| reward | minus the cost of the step; over an episode, minus the cost of the tour |
| starting state | a random instance; nothing is visited yet |
| episode end | the tour is complete, or an action was illegal |
| info | `cost` of the tour so far, `action_mask`, `illegal_action` (bool) |
| ids | `routing/{name}-{{10,20,50,100,200,500,1000}}`, `routing/{name}` with `num_nodes=` |
| other arguments | `generator`, `reward`, `on_illegal`, `render_mode`, see [](/reference/environments.md) |
| steps | at most {horizon} with 20 nodes |

## Settings

`gym.make` takes them as arguments.

| setting | with 20 nodes | meaning |
|---|---|---|
{settings}

## Observation

With 20 nodes:

| key | space | meaning |
|---|---|---|
{observation}

"""
MASK = """## Legal actions

{mask}

"""
END = """## Instances

{generation}

`routing_gym.data.from_columns("{name}", columns)`, CSV files and `model.solve` make an instance from your own
table, in your own units:

| column | for each | values | meaning |
|---|---|---|---|
{columns}

## Source

[`{file}`]({up}{file}) contains the rules. [](/reference/environments.md) describes what all environments share.
"""
FAMILY = """# {title}

{names} problems are presets of one class, `routing_gym.{kind}`:

```python
import gymnasium as gym
import routing_gym

env = gym.make("routing/{first}-20")
observation, info = env.reset(seed=1)
print(sorted(observation))
```

{source}

{rules}

## Legal actions

{mask}

```{{toctree}}
:hidden:

{entries}
```
"""
GALLERY = """# Gallery

Trained models play one instance of each problem. Select a picture to open the page of the environment.

{items}
"""


def paragraph(text: str | None) -> str:
    """Return a docstring without its indentation, up to the sections of errors, returned values and attributes."""
    return inspect.cleandoc(text or "").split("\nRaises:")[0].split("\nReturns:")[0].split("\nAttributes:")[0].strip()


def observations(problem: AnyProblem) -> str:
    """Return the rows of the table of observations."""
    rows, meaning = [], {column.name: column.meaning for column in problem.columns} | MEANING
    for key, space in problem.observation_space().items():
        rows.append(f"| `{key}` | `{signature(space)}` | {meaning.get(key, 'see the rules')} |")
    return "\n".join(rows)


def signature(space: spaces.Space[Any]) -> str:
    """Return a space as text; "max" is the largest float."""
    if not isinstance(space, spaces.Box):
        return str(space)
    low, high = (set(values.flat) for values in (space.low, space.high))
    assert len(low) == len(high) == 1
    bounds = [f"{x:g}" if x < np.finfo(np.float32).max else "max" for x in (*low, *high)]
    return f"Box({', '.join(bounds)}, {space.shape}, {space.dtype})"


def columns(problem: AnyProblem) -> str:
    """Return the rows of the table of columns."""
    rows = []
    for column in problem.columns:
        keys = ", ".join(f"`{key}`" for key in column.keys)
        kind = "integer" if column.integer else column.kind
        meaning = column.meaning if column.required else f"{column.meaning}; optional"
        rows.append(f"| {keys} | {column.per} | {kind} | {meaning} |")
    return "\n".join(rows)


def settings(problem: AnyProblem) -> str:
    """Return the rows of the table of settings, with the values of 20 nodes."""
    meaning: dict[str, str] = {}
    for kind in reversed(type(problem).__mro__):
        described = parse(kind.__doc__ or "").params
        meaning |= {one.arg_name: " ".join((one.description or "").split()) for one in described}
    without = () if "coords" in instance_fields(problem) else ("matrices",)
    keys = [field.name for field in dataclasses.fields(problem) if field.name not in without]
    return "\n".join(f"| `{key}` | {getattr(problem, key)} | {meaning.get(key, 'see the rules')} |" for key in keys)


def families() -> dict[type, list[str]]:
    """Return the names of the problems by class; a family is a class with several names."""
    kinds: dict[type, list[str]] = {}
    for name in LISTED:
        kinds.setdefault(type(make_problem(name, 20)), []).append(name)
    return kinds


def folder(name: str) -> str:
    """Return the folder of the page of a problem: that of its family, if it has one."""
    kind = type(make_problem(name, 20))
    return f"{kind.__name__.lower()}/" if len(families()[kind]) > 1 else ""


def has_weights(name: str) -> bool:
    """Return whether a problem has published weights, whose tours an animation can show."""
    try:
        find_weights(name, 20)
    except ValueError:
        return False
    return True


def source(name: str) -> str:
    """Return the description of a problem; for a problem of a family, only its own attributes."""
    problem = make_problem(name, 20)
    module = inspect.getmodule(type(problem))
    if not folder(name):
        return paragraph(module.__doc__ if module else None)
    rules = [paragraph(type(rule).__doc__) for rule in problem.rules if rule.letters]
    if problem.open_routes:
        rules.insert(
            0, "**O**: open routes. Vehicles do not return to the depot; the way back has no cost and no limit."
        )
    text = "\n\n".join(rules)
    return f"CVRP with:\n\n{text}\n\n[The family](index.md) has the sources and the legal actions."


def page(name: str) -> str:
    """Return the page of one environment."""
    problem, within = make_problem(name, 20), folder(name)
    kind = type(problem)
    instance = problem.generate(np.random.default_rng(0), 1)
    fields = ", ".join(f"`{key}`" for key, value in vars(instance).items() if value is not None)
    alt = f"A trained model solves {name} with 20 nodes"
    start = START.format(
        name=name,
        source=source(name),
        animation=f"\n![{alt}]({name.lower()}.gif)\n" if has_weights(name) else "",
        rules="" if within else paragraph(kind.__doc__),
        num_actions=problem.num_actions,
        settings=settings(problem),
        horizon=problem.horizon,
        observation=observations(problem),
    )
    mask = "" if within else MASK.format(mask=legal_actions(kind))
    end = END.format(
        name=name,
        columns=columns(problem),
        generation=textwrap.fill(
            f"`problem.generate(rng, batch_size)` converts {problem.num_uniforms} uniform random numbers to an "
            f"instance of 20 nodes with {fields}. `generator=` sets another distribution, and "
            f'`reset(options={{"instance": ...}})` takes your own `{kind.instance_type.__name__}`.',
            width=110,
        ),
        file=Path(inspect.getfile(kind)).relative_to(Path(__file__).parents[1]).as_posix(),
        up="../../../" if within else "../../",
    )
    return start + mask + end


def legal_actions(kind: type) -> str:
    """Return the rules of a problem's mask, which follow the first sentence of its description."""
    return paragraph(kind.action_mask.__doc__).partition("\n\n")[2] or "Every node that was not visited is legal."


def family_page(kind: type, names: list[str]) -> str:
    """Return the page that the problems of one class share."""
    module = inspect.getmodule(kind)
    title, _, text = paragraph(module.__doc__ if module else None).partition("\n\n")
    return FAMILY.format(
        title=f"The {kind.__name__} family",
        names=len(names),
        kind=kind.__name__,
        first=names[0],
        source=f"{title}\n\n{text}",
        rules=paragraph(kind.__doc__),
        mask=legal_actions(kind),
        entries="\n".join(name.lower() for name in sorted(names)),
    )


def gallery() -> str:
    """Return the page with an animation of each problem."""
    shown = ((name, f"{folder(name)}{name.lower()}") for name in LISTED if has_weights(name))
    items = (f"[![A trained model solves {name} with 20 nodes]({path}.gif) {name}]({path}.md)" for name, path in shown)
    return GALLERY.format(items="\n".join(items))


def main(out: Path) -> None:
    """Write the pages, and draw the animations that are missing."""
    out.mkdir(exist_ok=True)
    for kind, names in families().items():
        if len(names) > 1:
            (out / kind.__name__.lower()).mkdir(exist_ok=True)
            (out / kind.__name__.lower() / "index.md").write_text(family_page(kind, names))
    for name in LISTED:
        place = out / f"{folder(name)}{name.lower()}.md"
        place.write_text(page(name))
        gif = place.with_suffix(".gif")
        if has_weights(name) and not gif.exists():
            animation.main(gif, (f"{name}-20",))
    (out / "gallery.md").write_text(gallery())


if __name__ == "__main__":
    main(Path(__file__).parent / "environments")
