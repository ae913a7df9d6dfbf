"""The README, the pages in docs/ and the docstrings: Python runs as written, links lead somewhere, words are plain."""

import ast
import os
import re
import subprocess
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType

import pytest

from page_commands import parse, shell_commands
from routing_gym.solvers import SOLVERS

ROOT = Path(__file__).parents[1]
LIBRARIES = {  # whose pages are skipped where they are not installed, and what to do about their own warnings
    "jax": {"action": "error"},
    "onnxruntime": {"action": "error"},
    "pettingzoo": {"action": "error"},
    "ray": {"action": "default"},
    "sb3_contrib": {"action": "error"},
    "stable_baselines3": {"action": "error"},
    "supersuit": {"action": "error"},
    "tianshou": {"action": "default"},
    "torchrl": {"action": "ignore", "category": DeprecationWarning, "module": "abc"},  # of its classes, when imported
}
needs_solvers = pytest.mark.skipif(find_spec("hygese") is None, reason='needs the solvers: pip install -e ".[all]"')


def python_blocks(text):
    """Blank out all lines but those of blocks of Python, so that errors keep the page's line numbers.

    Options of a cell, such as `:tags: [remove-cell]`, are no Python.
    """
    lines, inside = [], False
    for line in text.splitlines():
        if line.startswith("```"):
            inside = line in ("```python", "```{code-cell} python")
            lines.append("")
        else:
            lines.append(line if inside and not line.startswith(":") else "")
    return "\n".join(lines)


GENERATED = ROOT / "docs" / "environments"
WRITTEN = sorted(page for page in ROOT.glob("docs/**/*.md") if GENERATED not in page.parents)
MARKDOWN = [ROOT / "README.md", *WRITTEN]
PAGES = {str(path.relative_to(ROOT)): code for path in MARKDOWN if (code := python_blocks(path.read_text())).strip()}


def test_blocks_are_found():
    assert "README.md" in PAGES
    assert "docs/explanation/attention-model.md" in PAGES
    assert python_blocks("```{code-cell} python\na\n```\n") == "\na\n"
    assert python_blocks("```{code-cell} python\n:tags: [remove-cell]\na\n```") == "\n\na\n"
    assert python_blocks("a\n```python\nb\n```\n```sh\nc\n```\n```python\nd\n```") == "\n\nb\n\n\n\n\n\nd\n"


def test_pages_of_other_environments_run_there():
    """`make test` skips what imports Ray or Tianshou; `make test-integrations` runs those pages and no others."""
    named = re.search(r"^INTEGRATION_PAGES := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
    importing = re.compile(r"^\s*(import|from) (ray|tianshou)\b", re.MULTILINE)
    pages = [f"docs/how-to/{page}.md" for page in named.split()]
    assert [page for page, code in PAGES.items() if importing.search(code)] == pages


def run_page(page, folder, filters):
    """Run the code of a page as a script in a folder; warnings are errors where no filter says otherwise."""
    os.chdir(folder)
    warnings.simplefilter("error")
    for filter_ in filters:
        warnings.filterwarnings(**filter_)
    sys.modules["__main__"] = script = ModuleType("__main__")
    exec(compile(PAGES[page], page, "exec"), script.__dict__)


@pytest.mark.parametrize("page", PAGES)
def test_page(page, tmp_path):
    """All blocks of a page in one interpreter, in a folder of their own; warnings are errors."""
    filters = []
    for library, filter_ in LIBRARIES.items():
        if re.search(rf"^\s*(import|from) (routing_gym\.integrations\.)?{library}\b", PAGES[page], re.MULTILINE):
            if find_spec(library) is None:
                pytest.skip(f"{page} imports {library}, which is not installed")
            filters.append(filter_)
    with ProcessPoolExecutor(1, get_context("forkserver")) as executor:
        executor.submit(run_page, page, tmp_path, filters).result()


@needs_solvers
@pytest.mark.parametrize("page", ["README.md", "docs/tutorials/get-started.md"])
def test_commands_run(page, tmp_path):
    """A page's commands run in its order in a folder with the files of a fresh clone, in the environment it sets up.

    `tests/page_commands.py` says what is shortened; `make test-commands` shortens the trainings only.
    """
    for name in ("agents", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    command = [sys.executable, str(ROOT / "tests" / "page_commands.py"), page]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "agents")])}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(os.environ.get("COMMANDS") != "full", reason="minutes, and downloads torch: make test-commands")
@pytest.mark.parametrize("page", ["README.md", "docs/tutorials/get-started.md"])
def test_commands_run_in_a_real_environment(page, tmp_path):
    """A shell runs a page's commands in a fresh clone, where they make the environment; `make test` is left out.

    Trainings are shortened by arguments that are added to the commands.
    """
    short = {
        "make train": ' ARGS="--epochs 1 --steps-per-epoch 1 --held-out 8"',
        "python agents/am_reinforce.py": " --epochs 1 --steps-per-epoch 1 --held-out 8",
        "python agents/ppo.py": " --epochs 1 --steps-per-epoch 1 --held-out 8",
        "python agents/mappo.py": " --epochs 1 --steps-per-epoch 1 --held-out 8",
        "python agents/evaluate.py": " --size 2",
    }
    commands = [command for command in shell_commands((ROOT / page).read_text()) if command != "make test"]
    script = [
        "set -ex",
        *(line + "".join(more for start, more in short.items() if line.startswith(start)) for line in commands),
    ]
    subprocess.run(["git", "clone", "--quiet", str(ROOT), "clone"], cwd=tmp_path, check=True)
    env = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(["bash", "-c", "\n".join(script)], cwd=tmp_path / "clone", env=env, check=False)
    assert done.returncode == 0


SHELL = {str(path.relative_to(ROOT)): found for path in MARKDOWN if (found := shell_commands(path.read_text()))}


@needs_solvers
@pytest.mark.parametrize("page", SHELL)
def test_commands_are_understood(page):
    """Every script exists and takes these arguments, and the page names the extras that they need. Nothing is run."""
    text = (ROOT / page).read_text()
    extras = set(re.findall(r"[a-z0-9]+", " ".join(re.findall(r'pip install (?:-e )?"\.\[(.*?)\]"', text))))
    extras |= {"agents"} if "make train" in text else set()
    for command in SHELL[page]:
        if command.startswith("make "):
            assert f"\n{command.removeprefix('make ')}: " in (ROOT / "Makefile").read_text()
        elif command.startswith("python playground/"):
            assert (ROOT / command.split()[1]).exists()
        elif command.startswith(("python ", "routing-gym ")):
            missing = extras_of(*parse(command)) - extras
            assert not missing, f"{page}: {command!r} needs {missing}, which the page does not say"
        else:
            assert command.split()[0] in (".", "pip", "tensorboard"), command


def extras_of(module, args):
    """Return the extras that a command needs."""
    methods = [method.partition(":")[0] for method in getattr(args, "methods", ())]
    packages = {package for method in methods if method in SOLVERS for package in SOLVERS[method].packages}
    packages -= {"fast_tsp", "scipy"}  # `make train` installs them
    return {"agents"} | ({"solvers"} if packages else set()) | ({"onnx"} if module.__name__ == "export_onnx" else set())


def without_code(text):
    """Leave out blocks and words of code, in which brackets are no links."""
    return re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)


def anchors(text):
    """List the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}


def broken_links(path):
    """List the links of a page to files that do not exist, or to headings that their page does not have."""
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code(path.read_text())):
        file, _, anchor = link.partition("#")
        target = path.parent / file if file else path
        if "://" not in link and not (target.exists() and (not anchor or anchor in anchors(target.read_text()))):
            broken.append(link)
    return broken


@pytest.mark.parametrize(
    "page", [*MARKDOWN, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"], ids=lambda page: page.name
)
def test_links(page):
    assert broken_links(page) == []


def test_broken_links_are_found(tmp_path):
    """A missing file, a missing heading here and there; what is whole, far away, or code is not listed."""
    (tmp_path / "other.md").write_text("# A heading, of `words`\n```sh\n# a comment\n```\n")
    page = tmp_path / "page.md"
    good = "[a](other.md) [b](other.md#a-heading-of-words) [c](#here) [d](https://x.org/y#z) `[e](code.md)`"
    page.write_text(f"# Here\n{good} ![f](no.png) [g](other.md#a-comment) [h](#there)")
    assert broken_links(page) == ["no.png", "other.md#a-comment", "#there"]


def test_every_page_is_in_the_table_of_contents():
    """Sphinx warns of others, and a warning is an error there."""
    listed = {ROOT / "docs" / "index.md"}
    for page in WRITTEN:
        for entries in re.findall(r"```{toctree}\n(.*?)```", page.read_text(), flags=re.DOTALL):
            listed |= {page.parent / f"{line}.md" for line in entries.splitlines()}
    assert set(WRITTEN) - listed == set()


def words_without_tables(text):
    """Count the words of a page outside of tables."""
    return sum(len(line.split()) for line in text.splitlines() if not line.lstrip().startswith(("|", "<!--")))


def longest(page):
    """Return how many words a page may have; research notes keep everything."""
    limits = {"how-to": 600, "research": 10**6}
    return 650 if page.name == "README.md" else limits.get(page.parent.name, 1200)


@pytest.mark.parametrize("page", MARKDOWN, ids=lambda page: page.name)
def test_pages_are_short(page):
    assert words_without_tables(page.read_text()) <= longest(page)


def test_words_of_tables_do_not_count():
    assert words_without_tables("# Two words\n\n| a | b |\n| --- | --- |\n\n- one more\n") == 6


@pytest.mark.parametrize(
    "page", [page for page in WRITTEN if page.parent.name in ("tutorials", "how-to")], ids=lambda page: page.name
)
def test_guides_show_first(page):
    """A block of code begins within ten lines of the title."""
    lines = page.read_text().splitlines()
    title = next(number for number, line in enumerate(lines) if line.startswith("# "))
    assert any(line.startswith("```") for line in lines[title : title + 10])


SPOKEN = ("Of ", "Say ", "Tell ", "Make of ", "As ", "What ", "How ", "Turn ", "Begin ", "Lay ")


FRAGMENT = re.compile(r"    \**\w+: (Of|What|Who|Which|Where|By|How) ")  # continues the name of the argument


def spoken(source):
    """List the docstrings that do not begin with a verb or a noun phrase, and such descriptions of arguments."""
    nodes = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef | ast.ClassDef | ast.Module)]
    docs = [ast.get_docstring(node) or "" for node in nodes]
    arguments = [line.strip() for doc in docs for line in doc.splitlines() if FRAGMENT.match(line)]
    return [doc for doc in docs if doc.startswith(SPOKEN)] + arguments


def test_docstrings_say_what_happens():
    files = [path for folder in ("routing_gym", "agents", "examples") for path in (ROOT / folder).rglob("*.py")]
    found = {str(path.relative_to(ROOT)): spoken(path.read_text()) for path in files}
    assert {path: docs for path, docs in found.items() if docs} == {}


def test_spoken_docstrings_are_found():
    good, bad = '"""Return a list of turns."""', '"""Say whether it ends."""'
    assert spoken(f"class A:\n    def f(self):\n        {good}\n\n    def g(self):\n        {bad}\n") == [bad[3:-3]]
    described = 'def f(seed):\n    """Draw.\n\n    Args:\n        seed: {}.\n    """'
    seeds = [described.format(text) for text in ("Random seed", "Of it")]
    assert [spoken(source) for source in seeds] == [[], ["seed: Of it."]]
