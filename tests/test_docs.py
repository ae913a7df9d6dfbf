"""The Python blocks of the README and of the pages in docs/ run as they are written."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LIBRARIES = {  # whose pages are skipped where they are not installed, and what to do about their own warnings
    "ray": "default",
    "sb3_contrib": "error",
    "stable_baselines3": "error",
    "tianshou": "default",
    "torchrl": "ignore::DeprecationWarning:abc",  # of classes of its own, as it is imported
}
RUN = "import sys; exec(compile(sys.stdin.read(), sys.argv[1], 'exec'))"


def python_blocks(text):
    """Blank out all lines but those of ```python blocks, so that errors keep the page's line numbers."""
    lines, inside = [], False
    for line in text.splitlines():
        if line.startswith("```"):
            inside = line == "```python"
            lines.append("")
        else:
            lines.append(line if inside else "")
    return "\n".join(lines)


PAGES = {
    str(path.relative_to(ROOT)): code
    for path in [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
    if (code := python_blocks(path.read_text())).strip()
}


def test_blocks_are_found():
    assert "README.md" in PAGES
    assert python_blocks("a\n```python\nb\n```\n```sh\nc\n```\n```python\nd\n```") == "\n\nb\n\n\n\n\n\nd\n"


@pytest.mark.parametrize("page", PAGES)
def test_page(page):
    """All blocks of a page in one interpreter, from the top of the repository; warnings are errors."""
    code, warnings = PAGES[page], ["-W", "error"]
    for library, filter_ in LIBRARIES.items():
        if re.search(rf"^\s*(import|from) {library}\b", code, re.MULTILINE):
            if find_spec(library) is None:
                pytest.skip(f"{page} imports {library}, which is not installed")
            warnings += ["-W", filter_]
    command = [sys.executable, *warnings, "-c", RUN, page]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "agents")])}
    done = subprocess.run(command, input=code, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
