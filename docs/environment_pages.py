"""Write a page for each environment from what its problem says of itself: docs/environments/*.md, and animations.

The site's build calls this; nothing of it is committed.
"""

from __future__ import annotations

import inspect
import textwrap
from pathlib import Path

import animation
import numpy as np

from routing_agents.trained import WEIGHTS
from routing_gym.problem import AnyProblem
from routing_gym.problems import PROBLEMS, make_problem

MEANING = {
    "coords": "place of every node in the unit square",
    "action_mask": "1 where the node may be visited next",
    "current_node": "where the vehicle is",
    "first_node": "where the tour began",
    "demand": "share of the capacity that each customer asks for",
    "free_capacity": "share of the capacity that is left",
    "remaining_demand": "share of the capacity that each customer still asks for",
    "prize": "what a visit yields; where prizes are uncertain, what is expected of it",
    "penalty": "what leaving the node out costs",
    "remaining_length": "length that is left",
    "remaining_prize": "prize that is missing",
    "pickup": "for each delivery, the customer where its goods are; else 0",
    "backhaul": "1 where goods are fetched, 0 where they are delivered",
    "ready_time": "when service at a node may start",
    "due_time": "until when it may; the depot's: until when vehicles have to be back",
    "service_time": "how long it takes",
    "current_time": "when the vehicle is done where it is",
    "open_routes": "1: vehicles do not drive home",
    "partner": "the other end of each city's fixed edge; the city itself where it has none",
    "distances": "from each city (row) to each city (column)",
    "salesmen_left": "share of the salesmen not back for good, the one who travels among them",
    "current_length": "length of the tour under way",
    "longest_length": "length of the longest tour so far",
}
PAGE = """# {name}

{source}
{animation}
{rules}

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

| action space | `Discrete({num_actions})`: the node to visit next |
|---|---|
| observation | `Dict`, below |
| reward | minus the cost of the step; over an episode, minus the cost of the tour |
| ids | `routing/{name}-{{10,20,50,100,200,500,1000}}`, `routing/{name}` with `num_nodes=` |
| settings | {settings} |
| steps | at most {horizon} with 20 nodes |

## Observation

With 20 nodes:

| key | space | meaning |
|---|---|---|
{observation}

## Legal actions

{mask}

## Instances

{generation}

`routing_gym.data.from_columns("{name}", columns)`, CSV files and `model.solve` make an instance of your own
numbers, in your own units:

| column | for each | values | meaning |
|---|---|---|---|
{columns}

## Sources

[`{file}`](../../{file}) holds the rules; [](../reference/environments.md) says what all environments share.
"""


def paragraph(text: str | None) -> str:
    """Return a docstring without its indent and its sections of arguments and errors."""
    return inspect.cleandoc(text or "").split("\nRaises:")[0].split("\nReturns:")[0].split("\nAttributes:")[0].strip()


def observations(problem: AnyProblem) -> str:
    """Return the rows of the table of observations."""
    rows, meaning = [], {column.name: column.meaning for column in problem.columns} | MEANING
    for key, space in problem.observation_space().items():
        kind = type(space).__name__
        shape = f"{kind}({space.n})" if kind in ("Discrete", "MultiBinary") else f"{kind}{space.shape} {space.dtype}"
        rows.append(f"| `{key}` | `{shape}` | {meaning.get(key, 'as the rules below say')} |")
    return "\n".join(rows)


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
    """List what `gym.make` takes beside the number of nodes, with the values of 20 nodes."""
    found = {key: value for key, value in vars(problem).items() if key != "num_nodes"}
    return ", ".join(f"`{key}` ({value})" for key, value in found.items()) or "none"


def has_weights(name: str) -> bool:
    """Return whether there are published weights for 20 nodes, whose tours an animation can show."""
    return (WEIGHTS / f"{name.lower()}-20.safetensors").exists()


def page(name: str) -> str:
    """Return the page of one environment."""
    problem = make_problem(name, 20)
    kind = type(problem)
    module = inspect.getmodule(kind)
    instance = problem.generate(np.random.default_rng(0), 1)
    fields = ", ".join(f"`{key}`" for key, value in vars(instance).items() if value is not None)
    return PAGE.format(
        name=name,
        source=paragraph(module.__doc__ if module else None),
        animation=f"\n![The trained model plays {name}-20]({name.lower()}.gif)\n" if has_weights(name) else "",
        rules=paragraph(kind.__doc__),
        num_actions=problem.num_actions,
        settings=settings(problem),
        horizon=problem.horizon,
        observation=observations(problem),
        columns=columns(problem),
        mask=paragraph(kind.action_mask.__doc__) or "Every node that is not visited.",
        generation=textwrap.fill(
            f"`problem.generate(rng, batch_size)` draws {problem.num_uniforms} uniform numbers for an instance of 20 "
            f"nodes and makes its {fields} of them; `generator=` draws others, and "
            f'`reset(options={{"instance": ...}})` takes your own `{kind.instance_type.__name__}`.',
            width=110,
        ),
        file=Path(inspect.getfile(kind)).relative_to(Path(__file__).parents[1]).as_posix(),
    )


def main(out: Path) -> None:
    """Write the pages, and draw the animations that are not there yet."""
    out.mkdir(exist_ok=True)
    for name in PROBLEMS:
        (out / f"{name.lower()}.md").write_text(page(name))
        gif = out / f"{name.lower()}.gif"
        if has_weights(name) and not gif.exists():
            animation.main(gif, (f"{name}-20",))


if __name__ == "__main__":
    main(Path(__file__).parent / "environments")
