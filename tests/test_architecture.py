"""The order of imports that CONTRIBUTING.md describes, and what `import routing_gym` may not load."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LAYERS = (  # each may import from itself and from those before it
    ("files", "optional"),
    ("arrays", "sampling"),
    ("problem", "game"),
    ("problems",),
    ("games",),
    (
        "generators",
        "windows",
        "rollout",
        "envs",
        "env_arguments",
        "episodes",
        "vector_envs",
        "data",
        "render",
        "trips",
        "solvers",
        "lanes",
        "game_envs",
        "game_render",
    ),
    ("evaluate", "wrappers"),
    ("integrations", "testing"),
    ("__init__",),  # the public names
    ("routing_agents",),
    ("agents", "benchmarks"),  # scripts
)
LAYER_OF = {part: number for number, parts in enumerate(LAYERS) for part in parts}
OPTIONAL = (
    *("torch", "safetensors", "tensorboard", "tyro", "rich", "matplotlib", "stable_baselines3", "sb3_contrib"),
    *("jax", "jaxlib", "optax", "torchrl", "tensordict", "pettingzoo", "supersuit"),
    *("scipy", "fast_tsp", "hygese", "networkx", "ortools", "pyvrp"),
)
PACKAGE = sorted((ROOT / "routing_gym").rglob("*.py"))
AGENTS = sorted((ROOT / "agents" / "routing_agents").rglob("*.py"))
SCRIPTS = sorted([*(ROOT / "agents").glob("*.py"), *(ROOT / "benchmarks").rglob("*.py")])


def dotted_name(file: Path) -> str:
    """Return "routing_gym.problems.tsp" for its file, and "routing_gym.problems" for the package's `__init__`."""
    base = ROOT / "agents" if file in AGENTS else ROOT
    parts = file.relative_to(base).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SCRIPT_NAMES = {script.stem for script in SCRIPTS}  # which import their siblings by plain name
MODULES = {dotted_name(file) for file in PACKAGE}


def imports(source: str, package: str) -> Iterator[tuple[int, str]]:
    """Yield line and absolute name of every import, those inside functions and of submodules included."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")
                base = ".".join([*parents[: len(parents) - node.level + 1], *([base] if base else [])])
            for alias in node.names:
                submodule = f"{base}.{alias.name}"
                yield node.lineno, submodule if submodule in MODULES else base


def part_of(name: str) -> str:
    """Return which part of `LAYERS` a module of ours belongs to."""
    top, *rest = name.split(".")
    if top in SCRIPT_NAMES:
        return "agents"
    if top != "routing_gym":
        return top
    return rest[0] if rest else "__init__"


def breaches(source: str, name: str, package: str) -> list[str]:
    """Return the imports of a module that go against the order of `LAYERS`."""
    own_layer = LAYER_OF[part_of(name)]
    return [
        f"{name}, line {line}: imports {imported}"
        for line, imported in imports(source, package)
        if imported.split(".")[0] in ("routing_gym", "routing_agents", "agents", "benchmarks", *SCRIPT_NAMES)
        and LAYER_OF.get(part_of(imported), 0) > own_layer
    ]


@pytest.mark.parametrize("file", [*PACKAGE, *AGENTS, *SCRIPTS], ids=dotted_name)
def test_imports_run_one_way(file):
    name = dotted_name(file)
    assert part_of(name) in LAYER_OF, f"say in LAYERS where {name} belongs"
    package = name if file.stem == "__init__" else name.rpartition(".")[0]
    assert not breaches(file.read_text(), name, package)


@pytest.mark.parametrize(
    ("source", "imported"),
    [
        ("from routing_gym.envs import RoutingEnv", "routing_gym.envs"),
        ("from routing_gym import envs", "routing_gym.envs"),
        ("from .. import envs", "routing_gym.envs"),
        ("def f():\n    import routing_gym.evaluate", "routing_gym.evaluate"),
        ("import routing_gym", "routing_gym"),
        ("import routing_agents.checkpoint", "routing_agents.checkpoint"),
        ("import solve", "solve"),
    ],
)
def test_breaches_are_found(source, imported):
    """A problem file may import none of these; otherwise the test above could not fail."""
    found = breaches(source, "routing_gym.problems.tsp", "routing_gym.problems")
    assert [breach.split("imports ")[1] for breach in found] == [imported]


@pytest.mark.parametrize("file", PACKAGE, ids=dotted_name)
def test_the_package_never_imports_an_agent(file):
    """Scripts import their siblings by plain name, so those names count too."""
    forbidden = {"routing_agents", "agents", "benchmarks", "tests", *SCRIPT_NAMES}
    found = {imported.split(".")[0] for _, imported in imports(file.read_text(), dotted_name(file))}
    assert not found & forbidden


def test_import_loads_no_optional_package():
    code = f"import routing_gym, sys; print(*sorted(set(sys.modules) & {set(OPTIONAL)}))"
    assert run_python(code) == ""


def test_every_module_imports_without_optional_packages():
    """Only the integrations may need their library to import."""
    names = [name for name in sorted(MODULES) if part_of(name) != "integrations"]
    code = f"import importlib, sys; sys.modules.update(dict.fromkeys({OPTIONAL}))\n" + "\n".join(
        f"importlib.import_module({name!r})" for name in names
    )
    assert run_python(code) == ""


def run_python(code: str) -> str:
    """Run code in a fresh interpreter; return what it prints."""
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()
