"""CONTRIBUTING's example of a new problem, followed to the letter in a copy of the tree: it breaks no test."""

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
COPIED = ("routing_gym", "agents", "tests", "pyproject.toml")
TESTS = ("data_sets", "envs", "render", "solvers", "vector_envs")


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the tree with the example in it."""
    folder = tmp_path_factory.mktemp("tree")
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "weights"))
        else:
            shutil.copy(ROOT / name, folder)
    text = (ROOT / "CONTRIBUTING.md").read_text()
    text = text[text.index("## Add a problem") :]
    code = re.search(r"```python\n(.*?)```", text, re.DOTALL)[1]
    (folder / "routing_gym" / "problems" / "otsp.py").write_text(textwrap.dedent(code))
    row = re.search(r'`("OTSP": .*?,)`', text)[1]
    insert(folder / "agents" / "routing_agents" / "attention" / "features.py", r"^FEATURES.*\{\n", f"    {row}\n")
    registry = folder / "routing_gym" / "problems" / "__init__.py"
    insert(registry, r"(?=^from routing_gym.problems.pctsp)", "from routing_gym.problems.otsp import OTSP\n")
    insert(registry, r"^PROBLEMS[^}]*SPCTSP", ", OTSP")
    return folder


def insert(path, pattern, text):
    """Insert a text after what the pattern matches."""
    found = re.search(pattern, path.read_text(), re.MULTILINE)
    path.write_text(path.read_text()[: found.end()] + text + path.read_text()[found.end() :])


def run(tree, *arguments):
    """Run Python in the copy; return its exit status and output."""
    paths = os.pathsep.join(str(tree / name) for name in (".", "agents", "tests"))
    environment = os.environ | {"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, *arguments], cwd=tree, env=environment, capture_output=True, text=True, check=False
    )


def test_the_problem_keeps_the_contract(tree):
    """By the very line that CONTRIBUTING gives."""
    line = re.search(r'`python -c "(.*?check_problem.*?)"`', (ROOT / "CONTRIBUTING.md").read_text())[1]
    result = run(tree, "-c", f"{line}; import routing_gym; print(routing_gym.__file__)")
    assert result.returncode == 0, result.stderr
    assert str(tree) in result.stdout


def test_texts_leave_the_way_home_out(tree):
    """Three cities on a line: 0.5 + 0.25, and nothing from the last to the first."""
    code = """if True:
        import numpy as np
        from routing_gym import TSPInstance, make_problem, trips
        instance = TSPInstance(np.array([[[0.0, 0.0], [0.5, 0.0], [0.75, 0.0]]], dtype=np.float32))
        print(to_text(make_problem("OTSP", 3), instance, np.array([2, 1, 0])))
    """
    result = run(tree, "-c", code)
    assert "OTSP-3: cost 0.750, steps 3, complete\nroute 1: 2 -> 1 -> 0; length 0.750\n" in result.stdout, result.stderr


def test_the_tests_over_all_problems_pass(tree):
    """A selection of them, those that stand on lists of problems among them."""
    files = [f"tests/routing_gym/test_{name}.py" for name in TESTS]
    chosen = "OTSP or paper_sets or pickles or neighbour or reference or settings"
    result = run(tree, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-k", chosen, *files)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
