"""The README and the pages in docs/: their Python blocks run as written, their links lead somewhere."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LIBRARIES = {  # whose pages are skipped where they are not installed, and what to do about their own warnings
    "jax": "error",
    "onnxruntime": "error",
    "pettingzoo": "error",
    "ray": "default",
    "sb3_contrib": "error",
    "stable_baselines3": "error",
    "supersuit": "error",
    "tianshou": "default",
    "torchrl": "ignore::DeprecationWarning:abc",  # of classes of its own, as it is imported
}
RUN = "import sys; exec(compile(sys.stdin.read(), sys.argv[1], 'exec'))"


def python_blocks(text):
    """Blank out all lines but those of blocks of Python, so that errors keep the page's line numbers."""
    lines, inside = [], False
    for line in text.splitlines():
        if line.startswith("```"):
            inside = line in ("```python", "```{code-cell} python")
            lines.append("")
        else:
            lines.append(line if inside else "")
    return "\n".join(lines)


MARKDOWN = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
PAGES = {str(path.relative_to(ROOT)): code for path in MARKDOWN if (code := python_blocks(path.read_text())).strip()}


def test_blocks_are_found():
    assert "README.md" in PAGES
    assert "docs/attention-model.md" in PAGES
    assert python_blocks("```{code-cell} python\na\n```\n") == "\na\n"
    assert python_blocks("a\n```python\nb\n```\n```sh\nc\n```\n```python\nd\n```") == "\n\nb\n\n\n\n\n\nd\n"


@pytest.mark.parametrize("page", PAGES)
def test_page(page, tmp_path):
    """All blocks of a page in one interpreter, in a folder of their own; warnings are errors."""
    code, warnings = PAGES[page], ["-W", "error"]
    for library, filter_ in LIBRARIES.items():
        if re.search(rf"^\s*(import|from) (routing_gym\.integrations\.)?{library}\b", code, re.MULTILINE):
            if find_spec(library) is None:
                pytest.skip(f"{page} imports {library}, which is not installed")
            warnings += ["-W", filter_]
    command = [sys.executable, *warnings, "-c", RUN, page]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "agents")])}
    done = subprocess.run(command, input=code, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


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
    index = (ROOT / "docs" / "index.md").read_text().splitlines()
    pages = {path.stem for path in ROOT.glob("docs/*.md")} - {"index"}
    assert pages - set(index) == set()


def test_the_readme_fits_on_two_screens():
    assert len((ROOT / "README.md").read_text().split()) <= 900
