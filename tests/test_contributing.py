"""The tutorial's example of a new problem, followed to the letter in a copy of the tree: it breaks no test."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TUTORIAL = (ROOT / "docs" / "tutorials" / "your-own-problem.md").read_text()
COPIED = ("routing_gym", "agents", "tests", "docs", "pyproject.toml")
TESTS = ("data_sets", "envs", "render", "solvers", "table", "vector_envs")


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the tree with the example in it: one file, one import, one place in the registry."""
    folder = tmp_path_factory.mktemp("tree")
    unwanted = shutil.ignore_patterns("__pycache__", "weights", "_build", "*.gif", "*.png")
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=unwanted)
        else:
            shutil.copy(ROOT / name, folder)
    code = re.search(r"```python\n(.*?)```", TUTORIAL, re.DOTALL)[1]
    (folder / "routing_gym" / "problems" / "trp.py").write_text(code)
    registry = folder / "routing_gym" / "problems" / "__init__.py"
    insert(registry, r"(?=^from routing_gym.problems.tsp )", "from routing_gym.problems.trp import TRP\n")
    insert(registry, r"^PROBLEMS[^}]*SPCTSP", ", TRP")
    return folder


def insert(path, pattern, text):
    """Insert a text after what the pattern matches."""
    found = re.search(pattern, path.read_text(), re.MULTILINE)
    path.write_text(path.read_text()[: found.end()] + text + path.read_text()[found.end() :])


def run(tree, *arguments):
    """Run Python in the copy; return its output."""
    paths = os.pathsep.join(str(tree / name) for name in (".", "agents", "tests", "docs"))
    environment = os.environ | {"PYTHONPATH": paths, "COLUMNS": "200"}
    command = [sys.executable, *arguments]
    result = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    return result.stdout


def test_the_problem_keeps_the_contract(tree):
    """By the very line that the tutorial gives, which runs all backends; then text, table, page.

    Customers at 0, 0.5 and 0.75 with weights 1, 2, 4, from the right: (0.25) 2 + (0.25 + 0.5) 1 = 1.25.
    """
    line = re.search(r'`python -c "(.*?check_problem.*?)"`', TUTORIAL)[1]
    code = """
import environment_pages
import routing_gym
from routing_gym.data.own import from_columns
from routing_gym.render import to_text
own = from_columns("TRP", {"x": [0, 50, 75], "y": [0, 0, 0], "weight": [1, 2, 4]})
print(routing_gym.__file__, to_text(own.problem, own.instance, [2, 1, 0], own.cost([2, 1, 0])), sep="\\n")
print(environment_pages.page("TRP"))
"""
    printed = run(tree, "-c", line + code)
    assert str(tree) in printed
    assert "TRP-3: cost 125, steps 3, complete\nroute 1: 2 -> 1 -> 0; length 1.000\n" in printed
    assert "| `weight` | node | amount | cost of each unit of time until the customer is served |" in printed


def test_a_model_is_trained_and_solves_a_table(tree):
    short = "--epochs 1 --steps-per-epoch 2 --batch-size 8 --held-out 4 --embed-dim 16 --num-layers 1 --threads 1"
    run(tree, "agents/am_reinforce.py", "--env-id", "routing/TRP-6", "--name", "trp", *short.split())
    (tree / "customers.csv").write_text("x,y,weight\n0,0,1\n50,0,2\n75,0,4\n")
    printed = run(tree, "agents/solve.py", "--checkpoint", "runs/trp", "customers.csv")
    assert " 125 " in printed  # as above; other orders cost more
    assert (tree / "solved" / "customers.png").exists()


def test_the_tests_over_all_problems_pass(tree):
    """A selection of them, those that stand on lists of problems among them."""
    files = [f"tests/routing_gym/test_{name}.py" for name in TESTS]
    chosen = "TRP or paper_sets or pickles or neighbour or reference or settings"
    run(tree, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-k", chosen, *files)


def test_types(tree):
    """An instance of its own needs no exemption. Of what the file imports, mypy reads this package and NumPy only."""
    settings = tree / "pyproject.toml"
    insert(settings, "^strict = true\n", 'follow_imports = "skip"\n')
    followed = '[[tool.mypy.overrides]]\nmodule = ["routing_gym.*", "numpy.*"]\nfollow_imports = "silent"\n\n'
    insert(settings, r"(?=^\[\[tool.mypy.overrides)", followed)
    run(tree, "-m", "mypy", "--config-file", settings, "--cache-dir", os.devnull, "routing_gym/problems/trp.py")
