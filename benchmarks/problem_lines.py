"""Count the lines of code of problems, without comments and docstrings, in routing-gym and in other libraries.

    pip download --no-deps rl4co==0.7.0 jumanji==1.1.2 -d peers && for f in peers/*.whl; do unzip -q $f -d peers; done
    python benchmarks/problem_lines.py peers

Only the files with the rules of a problem are counted: its file or folder in routing-gym, `env.py` and `generator.py`
in rl4co, and its folder without drawing in Jumanji. Code that several problems share is left out in all libraries. A
file may hold more than one problem: rl4co's files of the TSP and the PDP also hold environments for improving tours.
Derived problems have only the lines that they add.
"""

from __future__ import annotations

import ast
import io
import tokenize
from dataclasses import dataclass
from pathlib import Path

import tyro

from benchmarks.output import OUT, Figures, finish
from benchmarks.quality.quality_tables import markdown
from routing_agents.terminal import command_line

ROOT = Path(__file__).parents[1]
FILES = {  # by problem: our files, and the folders of rl4co and Jumanji
    "TSP": ("tsp", "tsp", "tsp"),
    "CVRP": ("cvrp", "cvrp", "cvrp"),
    "SDVRP": ("sdvrp", "sdvrp", ""),
    "OP": ("op", "op", ""),
    "PCTSP, SPCTSP": ("pctsp", "pctsp spctsp", ""),
    "PDP": ("pdp", "pdp", ""),
    "MTSP": ("mtsp", "mtsp", ""),
    "ATSP": ("atsp", "atsp", ""),
    "TSPFE": ("tspfe", "", ""),
    "VRP family": ("vrp", "mtvrp", ""),
}
LIBRARIES = ("routing-gym", "rl4co", "jumanji")
DOWNLOAD = (
    "pip download --no-deps rl4co==0.7.0 jumanji==1.1.2 -d peers && for f in peers/*.whl; do unzip -q $f -d peers; done"
)
NO_TOKENS = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


@dataclass(frozen=True)
class Args:
    """Arguments of the benchmark."""

    peers: tyro.conf.Positional[Path]
    """Folder that holds the packages `rl4co` and `jumanji`."""
    out: Path = OUT / "problem_lines.json"
    """Where the figures go. The docs show those in benchmarks/results."""


def code_lines(path: Path) -> int:
    """Count the lines of code, without blank lines, comments and docstrings."""
    text = path.read_text()
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    lines = {line for t in tokens if t.type not in NO_TOKENS for line in range(t.start[0], t.end[0] + 1)}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            lines -= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(lines)


def files_of(library: str, name: str, peers: Path) -> list[Path]:
    """Return the files of one of the names in `FILES`."""
    if library == "routing-gym":
        path = ROOT / "routing_gym" / "problems" / name
        return [*path.glob("*.py")] if path.is_dir() else [path.with_suffix(".py")]
    if library == "rl4co":
        folder = peers / "rl4co" / "envs" / "routing" / name
        generator = folder / "generator.py"
        return [folder / "env.py", *([generator] if generator.exists() else [])]
    folder = peers / "jumanji" / "environments" / "routing" / name
    return [folder / "env.py", *(file for file in folder.glob("*.py") if file.name not in ("env.py", "viewer.py"))]


def table(figures: Figures) -> str:
    """Return the table of the lines of code of each problem, in routing-gym and in the other libraries."""
    rows = [(name, *(str(row.get(key, "-")) for key in LIBRARIES)) for name, row in figures["lines"].items()]
    return markdown(("lines of code", "ours", "rl4co 0.7.0", "Jumanji 1.1.2"), rows)


def main(args: Args) -> Figures:
    """Count, print a table, and write the figures.

    Raises:
        FileNotFoundError: A library is missing in the folder.
    """
    for library in LIBRARIES[1:]:
        if not (args.peers / library).is_dir():
            raise FileNotFoundError(f"{args.peers / library} does not exist; download the libraries with\n{DOWNLOAD}")
    lines = {
        problem: {
            library: sum(code_lines(path) for name in names.split() for path in files_of(library, name, args.peers))
            for library, names in zip(LIBRARIES, found, strict=True)
            if names
        }
        for problem, found in FILES.items()
    }
    figures = {"lines": lines}
    return finish(args, figures, table(figures))


if __name__ == "__main__":
    command_line(main, Args, __doc__)
