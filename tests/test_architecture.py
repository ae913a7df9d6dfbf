"""The order of imports, and what `import routing_gym` may not load."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ORDER = (  # folders and modules; each may import from those before it only
    "routing_gym.files",
    "routing_gym.optional",
    "routing_gym.arrays",
    "routing_gym.sampling",
    "routing_gym.problem",
    "routing_gym.problems",
    "routing_gym.rollout",
    "routing_gym.render",
    "routing_gym.data",
    "routing_gym.solvers",
    "routing_gym.generators",
    "routing_gym.envs",
    "routing_gym.multi_agent",
    "routing_gym.evaluate",
    "routing_gym",  # the public names
    "routing_gym.wrappers",
    "routing_gym.testing",
    "routing_gym.integrations",
    "routing_agents.cli",
    "routing_agents.arguments",
    "routing_agents.header",
    "routing_agents.optimizers",
    "routing_agents.runs",
    "routing_agents.checkpoint",
    "routing_agents.policies",
    "routing_agents.search",
    "routing_agents.terminal",
    "routing_agents.training",
    "routing_agents.trained",
    "routing_agents.multi_agent",
    "routing_agents",
    "routing_agents.__main__",
    "agents",  # scripts
    "benchmarks",
)
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
MODULES = {dotted_name(file) for file in [*PACKAGE, *AGENTS]}
WHOLE = ("routing_gym", "routing_agents")  # in ORDER only for their own `__init__`


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


def place(name: str) -> int:
    """Return where in `ORDER` a module of ours stands, by the longest name that leads to it."""
    top = name.split(".")[0]
    if top in SCRIPT_NAMES:
        return ORDER.index("agents")
    known = [part for part in ORDER if f"{name}.".startswith(f"{part}.") and (name == part or part not in WHOLE)]
    assert known, f"say in ORDER where {name} belongs"
    return ORDER.index(max(known, key=len))


def breaches(source: str, name: str, package: str) -> list[str]:
    """Return the imports of a module that go against `ORDER`."""
    return [
        f"{name}, line {line}: imports {imported}"
        for line, imported in imports(source, package)
        if imported.split(".")[0] in (*WHOLE, "agents", "benchmarks", *SCRIPT_NAMES) and place(imported) > place(name)
    ]


@pytest.mark.parametrize("file", [*PACKAGE, *AGENTS, *SCRIPTS], ids=dotted_name)
def test_imports_run_one_way(file):
    name = dotted_name(file)
    package = name if file.stem == "__init__" else name.rpartition(".")[0]
    assert not breaches(file.read_text(), name, package)


@pytest.mark.parametrize("files", [PACKAGE, AGENTS], ids=["routing_gym", "routing_agents"])
def test_imports_have_no_circle(files):
    """Imports for type checkers and those inside functions count too."""
    graph = {}
    for file in files:
        name = dotted_name(file)
        package = name if file.stem == "__init__" else name.rpartition(".")[0]
        graph[name] = {imported for _, imported in imports(file.read_text(), package)} - {name}
    assert list(TopologicalSorter(graph).static_order())  # raises CycleError with the circle


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
    names = [name for name in map(dotted_name, PACKAGE) if ".integrations" not in name]
    code = f"import importlib, sys; sys.modules.update(dict.fromkeys({OPTIONAL}))\n" + "\n".join(
        f"importlib.import_module({name!r})" for name in names
    )
    assert run_python(code) == ""


def run_python(code: str) -> str:
    """Run code in a fresh interpreter; return what it prints."""
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()
