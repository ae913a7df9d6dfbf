"""The command `routing-gym`, and the help texts of all scripts."""

import ast
import os
import re
import subprocess
import sys
from dataclasses import replace
from importlib import import_module, metadata
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import docstring_parser
import pytest

from routing_agents import cli, machine, runs
from routing_agents.arguments import flags, help_texts, parse
from routing_agents.cli import extras
from routing_agents.planning import planner
from routing_agents.policies.attention.model import ModelConfig
from routing_agents.policies.pointer.model import PointerConfig
from routing_gym.planning.fleet import ALIASES
from routing_gym.planning.parsing import PLACES

ROOT = Path(__file__).parents[2]
AGENTS = ROOT / "agents"
SCRIPTS = sorted(path.stem for folder in (AGENTS, ROOT / "examples") for path in folder.glob("*.py"))
NEEDS = {"jax_reinforce": "optax", "rllib_ppo": "ray", "sb3_maskable_ppo": "sb3_contrib", "tianshou_ppo": "tianshou"}
NEEDS |= {"torchrl_ppo": "torchrl", "tune": "ray"}
SPOKEN = ("Of ", "Say ", "Tell ", "Make of ")  # how a help text may not begin


@pytest.fixture
def routing_gym(monkeypatch):
    """The command, run in this process."""
    monkeypatch.setattr(sys, "argv", ["routing-gym"])
    monkeypatch.setenv(cli.STARTED_AS, "")  # so that it is restored
    monkeypatch.delenv(cli.STARTED_AS)
    return lambda *arguments: cli.main([*map(str, arguments)])


def documented_fields():
    """Yield file, class, field and help text of all arguments, without importing a script."""
    for path in sorted([*AGENTS.rglob("*.py"), *(ROOT / "examples").glob("*.py")]):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and node.name.endswith(("Args", "Config")):
                texts = {
                    one.arg_name: one.description for one in docstring_parser.parse(ast.get_docstring(node)).params
                }
                for field, after in zip(node.body, [*node.body[1:], None], strict=True):
                    if isinstance(field, ast.AnnAssign) and "ClassVar" not in ast.unparse(field.annotation):
                        own = after.value.value if isinstance(after, ast.Expr) else None
                        yield (
                            f"{path.relative_to(ROOT)} {node.name}",
                            field.target.id,
                            own or texts.get(field.target.id),
                        )


def test_help_texts_name_the_thing():
    found = list(documented_fields())
    assert len(found) > 200
    assert {name.split()[1] for name, _, _ in found} >= {"Args", "GameArgs", "ModelConfig", "PointerConfig"}
    for place, field, text in found:
        words = " ".join((text or "").split())
        assert not words.startswith(SPOKEN), (place, field, words)
        assert len(words.split()) >= 3, (place, field, words)
        assert words.endswith("."), (place, field, words)


def help_of(script, capsys, monkeypatch, option="--help"):
    """Return the lines that a script prints on a terminal of 100 columns."""
    monkeypatch.setenv("COLUMNS", "100")
    module = import_module(script)
    with pytest.raises(SystemExit, match="0"):
        parse(module.Args, module.__doc__, [option])
    return capsys.readouterr().out.splitlines()


def broken_lines(lines):
    """Return the lines of help texts that end although the next word would fit."""
    found = []
    for line, after in pairwise(lines):
        if line.startswith("│") and after.startswith("│  ") and after.strip("│ "):
            column = len(after) - len(after[1:].lstrip())
            text, word = line[column:-1].rstrip(), after[column:-1].split()[0]
            begins = not line[2:column].strip() or line[column - 2 : column] == "  "  # else the option's long name
            if begins and text and column + len(f"{text} {word}") <= len(line) - 2:
                found.append(line)
    return found


def test_a_broken_line_is_found():
    """Seven characters fit: "One two", but after "One" comes a break; the second text is whole."""
    assert broken_lines(["│ -a  One     │", "│     two     │"]) == ["│ -a  One     │"]
    assert not broken_lines(["│ -a  One two │", "│     three   │"])


@pytest.mark.filterwarnings("ignore::DeprecationWarning:abc")  # of TorchRL's own classes, as it is imported
@pytest.mark.parametrize("script", SCRIPTS)
def test_help_fits_a_screen(script, capsys, monkeypatch):
    if find_spec(NEEDS.get(script, "torch")) is None:
        pytest.skip(f"needs {NEEDS[script]}")
    lines = help_of(script, capsys, monkeypatch)
    assert len(lines) <= 52
    assert max(map(len, lines[1:])) <= 100
    assert not broken_lines(lines)


def test_help_all_shows_the_rest(capsys, monkeypatch):
    text = "\n".join(help_of("am_reinforce", capsys, monkeypatch, "--help-all"))
    assert "--baseline-size INT" in text
    assert "--pointer.units INT" in text
    assert "Every random number is a function of the seed" in text
    assert not broken_lines(text.splitlines())


def test_lists_of_columns_are_complete(capsys, monkeypatch):
    """The tables of the guide list all columns of stops and vehicles; help texts and docstrings list the same."""
    tables = (ROOT / "docs" / "how-to" / "own-data.md").read_text().split("\n| columns")
    stops, vehicles = (re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (.*?) \|", one, re.M))) for one in tables[1:3])
    assert {*vehicles} == {name for name in ALIASES.values() if name} | {"capacity"}
    assert {*stops} >= {*PLACES.values()}
    shown = "\n".join(help_of("solve", capsys, monkeypatch, "--help-all"))
    listed = set(re.findall(r"\w+", shown.split("CSV files of stops", 1)[1].split("The columns determine")[0]))
    assert {*stops} - {"latitude", "longitude"} <= listed
    assert {*vehicles} <= set(re.findall(r"\w+", shown.split("--vehicles NUMBER", 1)[1].split("--durations")[0]))
    documented = docstring_parser.parse(planner.solve.__doc__).params
    texts = {one.arg_name: set(re.findall(r"\w+", one.description)) for one in documented}
    assert {*stops} - {"latitude", "longitude"} <= texts["stops"]
    assert {*vehicles} <= texts["vehicles"]


def test_help_without_docstrings(capsys):
    """`python -OO` removes the description."""
    with pytest.raises(SystemExit, match="0"):
        parse(import_module("evaluate").Args, None, ["--help"])
    assert "usage:" in capsys.readouterr().out


def test_hidden_options_are_read():
    args = parse(
        import_module("am_reinforce").Args, "", ["--embed-dim", "64", "--threads", "1", "--env-kwargs", "a", "b"]
    )
    assert (args.attention, args.threads, args.env_kwargs) == (ModelConfig(embed_dim=64, nearness=True), 1, {"a": "b"})


def test_arguments_are_read_as_they_were_written():
    """Sizes of networks stand beside the other options, or have a prefix; a flag is turned off in each."""
    kind = import_module("am_reinforce").Args
    attention, pointer = ModelConfig(embed_dim=64, nearness=False), PointerConfig(encoder="lstm", mask_chosen=False)
    args = kind(env_kwargs={"a": "b"}, sizes=(5, 9), symmetries=True, init_from=Path("runs/a"), hours=0.5)
    for one in (replace(args, attention=attention), replace(args, model="pointer", pointer=pointer)):
        assert parse(kind, "", list(flags(one, kind()))) == one
        assert list(flags(one, one)) == []


@pytest.mark.filterwarnings("ignore::DeprecationWarning:abc")
def test_advanced_options_exist():
    for script in SCRIPTS:
        if find_spec(NEEDS.get(script, "torch")) is not None:
            kind = import_module(script).Args
            assert {*getattr(kind, "advanced", ())} <= help_texts(kind).keys(), script


def test_routing_gym_solves(routing_gym, tmp_path, capsys):
    routing_gym("solve", ROOT / "examples" / "cities.csv", "--decoding", "greedy", "--out", tmp_path)
    assert (tmp_path / "cities.csv").read_text().startswith("row,x,y")
    assert "tsp-50" in capsys.readouterr().out


def test_names_of_the_command(routing_gym, tmp_path, monkeypatch, capsys):
    """Usage, examples and errors name `routing-gym solve`; without it, the script of the checkout."""
    assert runs.command("solve.py").endswith("python agents/solve.py")
    with pytest.raises(SystemExit, match=r"^routing-gym evaluate: no file nothing; for a test set"):
        routing_gym("evaluate", "nothing", "nearest-neighbour")
    with pytest.raises(SystemExit, match="0"):
        routing_gym("train", "--help")
    shown = capsys.readouterr().out
    assert "usage: routing-gym train [-h]" in shown
    assert "    routing-gym train --env-id routing/CVRP-50\n" in shown
    assert "... -m routing_agents train " in shown
    assert "agents/" not in shown
    with pytest.raises(SystemExit, match="2"):
        routing_gym("solve", "a.tsp", "--decoding", "heuristic")
    assert "routing-gym evaluate runs classical solvers" in " ".join(capsys.readouterr().err.split())
    assert (
        cli.as_subcommands("a/solve.py, agents/mappo.py, solve.py") == "a/solve.py, agents/mappo.py, routing-gym solve"
    )
    monkeypatch.setattr("shutil.which", lambda name, path=None: f"/bin/{name}")
    assert runs.command("am_reinforce.py") == "routing-gym train"
    assert runs.command("mappo.py").endswith("agents/mappo.py")
    monkeypatch.setattr("shutil.which", lambda name, path=None: None)  # not on the PATH
    assert runs.command("am_reinforce.py").endswith(" -m routing_agents train")
    assert runs.command("mappo.py", "--resume", "my runs/one").endswith(" agents/mappo.py --resume 'my runs/one'")
    monkeypatch.chdir(tmp_path)
    assert runs.command("mappo.py").endswith(str(ROOT / "agents" / "mappo.py"))


def test_commands(routing_gym, capsys):
    for arguments in ((), ("--help",)):
        routing_gym(*arguments)
        shown = capsys.readouterr().out
        assert all(f"\n  {name} " in shown for name in (*cli.SCRIPTS, "info"))
    routing_gym("--version")
    assert capsys.readouterr().out == f"routing-gym {metadata.version('routing-gym')}\n"
    with pytest.raises(SystemExit, match="no command 'slove'; expected solve, evaluate, train, export, info"):
        routing_gym("slove")
    assert cli.SUMMARIES.keys() == {*cli.SCRIPTS, "info"}


def test_public_names_are_listed_before_they_are_imported():
    code = (
        "import routing_agents, sys; print({*routing_agents.__all__} <= {*dir(routing_agents)}, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=AGENTS)
    assert done.stdout.split() == ["True", "False"], done.stderr


def test_the_wheel_holds_the_scripts():
    """hatch_build.py copies what the command runs; hatchling, which it imports, is no dependency of the tests."""
    hook = ast.parse((ROOT / "hatch_build.py").read_text())
    assigned = {ast.unparse(node.targets[0]): node.value for node in hook.body if isinstance(node, ast.Assign)}
    assert {*ast.literal_eval(assigned["SCRIPTS"])} == {*cli.SCRIPTS.values()}
    assert all(cli.script_path(name) == AGENTS / name for name in cli.SCRIPTS.values())
    assert all((folder / "py.typed").is_file() for folder in (cli.PACKAGE, ROOT / "routing_gym"))


def test_info(routing_gym, capsys):
    routing_gym("info")
    shown = capsys.readouterr().out
    assert f"torch {metadata.version('torch')}" in shown.replace("\n" + " " * 16, " ")
    assert f"cores         {os.cpu_count()}" in shown
    assert all(label in shown for label in ("software:", "hardware:", "Python", "instructions", "memory", "GPU"))
    with pytest.raises(SystemExit, match="takes no arguments, got now"):
        routing_gym("info", "now")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("command", ["info", "--help", "--version"])
def test_output_that_cannot_be_written(command):
    with Path("/dev/full").open("w") as full:
        started = [sys.executable, "-m", "routing_agents", command]
        done = subprocess.run(started, stdout=full, stderr=subprocess.PIPE, text=True, cwd=AGENTS)
    assert (done.returncode, done.stderr) == (1, "routing-gym: [Errno 28] No space left on device\n")


def test_without_optional_packages():
    """`--help` and `info` import none, and `solve` names the extra."""
    blocked = f"import sys; sys.modules.update(dict.fromkeys({['numpy', 'torch', 'tyro', 'rich', 'gymnasium']}))"
    code = f"{blocked}; from routing_agents.cli import main; main(['--help']); main(['info']); main(['solve', 'x'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=AGENTS)
    assert "usage: routing-gym" in done.stdout
    assert "hardware:" in done.stdout
    assert done.stderr.startswith("routing-gym solve: ")
    assert 'pip install ".[agents]"' in done.stderr
    assert done.returncode == 1


def test_extras(monkeypatch):
    """Read from metadata: [a] lacks one package and has an old one; the marker of [b] is for another Python."""
    lines = ["numpy>=2.0", "old>=1.2,<2; extra == 'a'", "gone>=1 ; extra == 'a'", "old[x]<1; extra == 'b'"]
    lines += ["gone; (python_version < '3.1') and extra == 'b'", "old; extra == 'all'"]
    monkeypatch.setattr(metadata, "requires", lambda name: lines)
    monkeypatch.setattr(extras, "version", {"numpy": "2.0.0rc1", "old": "1.1.9"}.get)
    assert extras.requirements() == {
        "": {"numpy": ">=2.0"},
        "a": {"old": ">=1.2,<2", "gone": ">=1"},
        "b": {"old": "<1"},
    }
    assert extras.missing("") == []
    assert extras.missing("a") == ["old>=1.2,<2 (found 1.1.9)", "gone"]
    assert extras.missing("b") == ["old<1 (found 1.1.9)"]


@pytest.mark.parametrize(
    ("flags", "described"),
    [
        ({"avx2", "fma"}, "AVX2; bfloat16 not native"),
        ({"avx2", "avx512f", "amx_tile", "amx_bf16"}, "AVX2, AVX-512, AMX, AMX BF16; bfloat16 native"),
        ({"asimd", "bf16"}, "NEON, BF16; bfloat16 native"),
        ({"sse2"}, "none of AVX2, AVX-512, AMX, NEON; bfloat16 not native"),
        (set(), "unknown"),
    ],
)
def test_instruction_sets(flags, described):
    assert machine.instruction_sets(flags) == described
