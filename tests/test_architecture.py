"""The order of imports, what `import routing_gym` may not load, and where a problem may be named."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from routing_gym import problems

ROOT = Path(__file__).parents[1]
ORDER = (  # folders and modules; each may import from those before it only
    "routing_gym.files",
    "routing_gym.optional",
    "routing_gym.arrays",
    "routing_gym.sampling",
    "routing_gym.traits",
    "routing_gym.problem",
    "routing_gym.problems",
    "routing_gym.rollout",
    "routing_gym.render",
    "routing_gym.data",
    "routing_gym.planning",
    "routing_gym.solvers",
    "routing_gym.generators",
    "routing_gym.envs",
    "routing_gym.multi_agent",
    "routing_gym.dynamic",
    "routing_gym.evaluate",
    "routing_gym",  # the public names
    "routing_gym.wrappers",
    "routing_gym.testing",
    "routing_gym.integrations",
    "routing_agents.machine",
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
    "routing_agents.evaluation",
    "routing_agents.planning",
    "routing_agents.multi_agent",
    "routing_agents.dispatch",
    "routing_agents",
    "routing_agents.__main__",
    "agents",  # scripts
    "examples",
    "benchmarks",
)
OPTIONAL = (
    *("torch", "safetensors", "tensorboard", "tyro", "rich", "matplotlib", "stable_baselines3", "sb3_contrib"),
    *("jax", "jaxlib", "optax", "torchrl", "tensordict", "pettingzoo", "supersuit"),
    *("ray", "scipy", "fast_tsp", "hygese", "networkx", "ortools", "pyproj", "pyvrp", "pandas", "polars", "wandb"),
)
FORMAT, ADAPTER, CHOICE = "a file format's table", "a solver's adapters", "which solvers the benchmark compares"
NAMED_IN = {  # files, and folders, that may ask for a problem by name or class, and why
    "routing_gym/problems": "the problems themselves",
    "routing_gym/data/tsplib": FORMAT,
    "routing_gym/data/paper.py": FORMAT,
    "agents/jax_reinforce.py": "one file with one network, which has inputs for two problems only",
    "benchmarks/peers": "names of environments of other libraries",
}
LISTED_IN = {  # files that may hold a dict display by problem, and why
    "routing_gym/data/peers.py": FORMAT,
    "routing_gym/data/pickles.py": FORMAT,
    "routing_gym/solvers/__init__.py": "which solver is best for a problem",
    "routing_gym/solvers/exact/held_karp.py": ADAPTER,
    "routing_gym/solvers/exact/milp.py": ADAPTER,
    "routing_gym/solvers/external/hygese.py": ADAPTER,
    "routing_gym/solvers/external/ortools.py": ADAPTER,
    "routing_gym/solvers/external/pyvrp.py": ADAPTER,
    "benchmarks/problem_lines.py": "folders of other libraries",
    "benchmarks/quality/search_on_files.py": CHOICE,
    "benchmarks/quality/search_over_time.py": CHOICE,
    "benchmarks/quality/solution_quality.py": "folders of the original code's weights",
}
PACKAGE = sorted((ROOT / "routing_gym").rglob("*.py"))
AGENTS = sorted((ROOT / "agents" / "routing_agents").rglob("*.py"))
SCRIPTS = sorted([*(ROOT / "agents").glob("*.py"), *(ROOT / "examples").glob("*.py")])
BENCHMARKS = sorted((ROOT / "benchmarks").rglob("*.py"))
FILES = [*PACKAGE, *AGENTS, *SCRIPTS, *BENCHMARKS]


def dotted_name(file: Path) -> str:
    """Return "routing_gym.problems.tsp" for its file, and "routing_gym.problems" for the package's `__init__`."""
    base = ROOT / "agents" if file in AGENTS else ROOT
    parts = file.relative_to(base).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SCRIPT_FOLDERS = {script.stem: script.parent.name for script in SCRIPTS}  # which are imported by plain name
MODULES = {dotted_name(file) for file in [*PACKAGE, *AGENTS, *BENCHMARKS]}
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
    if top in SCRIPT_FOLDERS:
        return ORDER.index(SCRIPT_FOLDERS[top])
    known = [part for part in ORDER if f"{name}.".startswith(f"{part}.") and (name == part or part not in WHOLE)]
    assert known, f"say in ORDER where {name} belongs"
    return ORDER.index(max(known, key=len))


def breaches(source: str, name: str, package: str) -> list[str]:
    """Return the imports of a module that go against `ORDER`."""
    return [
        f"{name}, line {line}: imports {imported}"
        for line, imported in imports(source, package)
        if imported.split(".")[0] in (*WHOLE, "agents", "benchmarks", *SCRIPT_FOLDERS) and place(imported) > place(name)
    ]


def parent(file: Path) -> str:
    """Return the package that relative imports of a file start from."""
    return dotted_name(file) if file.stem == "__init__" else dotted_name(file).rpartition(".")[0]


def test_imports_run_one_way():
    assert not [breach for file in FILES for breach in breaches(file.read_text(), dotted_name(file), parent(file))]


@pytest.mark.parametrize("files", [PACKAGE, AGENTS, BENCHMARKS], ids=[*WHOLE, "benchmarks"])
def test_imports_have_no_circle(files):
    """Imports for type checkers and those inside functions count too."""
    graph = {}
    for file in files:
        imported = {name for _, name in imports(file.read_text(), parent(file))}
        graph[dotted_name(file)] = imported - {dotted_name(file)}
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


def test_the_package_never_imports_an_agent():
    """Scripts import their siblings by plain name, so those names count too."""
    forbidden = {"routing_agents", "agents", "benchmarks", "tests", *SCRIPT_FOLDERS}
    found = [(file, name.split(".")[0]) for file in PACKAGE for _, name in imports(file.read_text(), parent(file))]
    assert not [(file, name) for file, name in found if name in forbidden]


def names_of_classes() -> set[str]:
    """Return the names of all classes defined in `routing_gym.problems`: problems, instances, states."""
    modules = [
        importlib.import_module(f"{problems.__name__}.{info.name}") for info in pkgutil.iter_modules(problems.__path__)
    ]
    classes = [(name, value) for module in modules for name, value in inspect.getmembers(module, inspect.isclass)]
    return {name for name, value in classes if value.__module__.startswith(f"{problems.__name__}.")}


CLASSES = names_of_classes()
REGISTRIES = {"PRESETS"}  # whose keys are names of problems


def names_a_problem(node: ast.AST, constants: dict[str, ast.AST]) -> bool:
    """Return whether an expression is a problem's name or class, or a collection of some, perhaps behind a constant."""
    match node:
        case ast.Constant():
            return isinstance(node.value, str) and node.value in problems.PROBLEMS
        case ast.Name():
            known = node.id in CLASSES | REGISTRIES
            return known or (node.id in constants and names_a_problem(constants[node.id], {}))
        case ast.Attribute():
            return node.attr in CLASSES | REGISTRIES
        case ast.Tuple() | ast.List() | ast.Set():
            return any(names_a_problem(element, constants) for element in node.elts)
        case ast.BinOp():  # int | float
            return names_a_problem(node.left, constants) or names_a_problem(node.right, constants)
        case ast.Starred():
            return names_a_problem(node.value, constants)
    return False


def named_problems(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and kind of each place that depends on which problem it is, instead of asking for a trait."""
    tree = ast.parse(source)
    assigned = [node for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None]
    constants = {
        target.id: node.value
        for node in assigned
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Compare() if any(names_a_problem(side, constants) for side in (node.left, *node.comparators)):
                yield node.lineno, "compares with a problem's name or class"
            case ast.MatchValue() if names_a_problem(node.value, constants):
                yield node.value.lineno, "matches a problem's name"
            case ast.Call(func=ast.Name("isinstance" | "issubclass"), args=[_, cls]) if names_a_problem(cls, constants):
                yield node.lineno, "asks for a problem's class"
            case ast.Call(func=ast.Name("hasattr" | "getattr"), args=[ast.Name("instance"), ast.Constant(), *_]):
                yield node.lineno, "feels for an attribute that some instances have"
            case ast.Dict() if any(key is not None and names_a_problem(key, {}) for key in node.keys):
                yield node.lineno, "lists problems in a dict"


def exceptions(file: Path, allowed: dict[str, str]) -> list[str]:
    """Return the entries of a list of exceptions that stand for a file."""
    path = file.relative_to(ROOT)
    return [entry for entry in allowed if path.is_relative_to(entry)]


def test_code_asks_for_traits():
    """What others need to know of a problem stands in its file, as an attribute that every problem has."""
    found = [
        (file, *place)
        for file in FILES
        if not exceptions(file, NAMED_IN)
        for place in named_problems(file.read_text())
        if not (exceptions(file, LISTED_IN) and "dict" in place[1])
    ]
    assert not found, "declare a trait in routing_gym/problem.py, and ask for that"


@pytest.mark.parametrize("entry", [*NAMED_IN, *LISTED_IN])
def test_exceptions_are_used(entry):
    """An exception that nothing needs any more would hide what is added later."""
    files = [file for file in FILES if exceptions(file, {entry: ""})]
    assert any(list(named_problems(file.read_text())) for file in files), "leave it out of the list"


@pytest.mark.parametrize(
    "source",
    [
        "problem.name == 'OP'",
        "problem.name in ('TSP', 'CVRP')",
        "KNOWN = ('TSP', 'CVRP')\nproblem.name not in KNOWN",
        "problem.name in PRESETS",
        "isinstance(problem, VRP)",
        "isinstance(instance, (int, routing_gym.OPInstance))",
        "issubclass(kind, TSP | VehicleRouting)",
        "problem.instance_type is not CVRPInstance",
        "{'TSP': 1, **others}",
        "hasattr(instance, 'demand')",
        "getattr(instance, 'distances', None)",
        "match problem.name:\n    case 'PDP':\n        pass",
    ],
)
def test_named_problems_are_found(source):
    assert len(list(named_problems(source))) == 1


@pytest.mark.parametrize(
    "source",
    [
        "make_problem('TSP', 20)",
        "name == 'tsp'",
        "isinstance(problem, Problem)",
        "{1: 'TSP'}",
        "getattr(instance, field)",
    ],
)
def test_other_places_are_not_found(source):
    assert not list(named_problems(source))


def test_import_loads_no_optional_package():
    code = f"import routing_gym, sys; print(*sorted(set(sys.modules) & {set(OPTIONAL)}))"
    assert run_python(code) == ""


def test_public_subpackages_are_imported_when_used():
    code = "import routing_gym as r; print(r.wrappers.vector.__name__, hasattr(r, 'wrapers'), 'solvers' in dir(r))"
    assert run_python(code) == "routing_gym.wrappers.vector False True"


def test_loading_a_model_imports_neither_scipy_nor_sympy_nor_matplotlib():
    """All are slow to load; SciPy alone takes as long as NumPy and Gymnasium together."""
    slow = {"scipy", "sympy", "matplotlib"}
    code = f"import routing_agents, sys; routing_agents.load('TSP-20'); print(*{slow} & set(sys.modules))"
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
