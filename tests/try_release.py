"""Install the built sdist and wheel in new environments, and use what is in them; `make release` runs this.

    python tests/try_release.py python3.12 dist --extras agents

Each of the two is installed twice: on its own, and with the extras. The environments are made in a temporary folder.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
ALONE = """
import gymnasium, routing_gym
env = gymnasium.make("routing/CVRP-20")
observation, info = env.reset(seed=1)
terminated = False
while not terminated:
    action = env.action_space.sample(mask=observation["action_mask"])
    observation, reward, terminated, truncated, info = env.step(action)
print(routing_gym.__version__, "plays CVRP-20:", info["cost"])
"""


def run(*command: str | Path, cwd: Path) -> None:
    """Run a command; exit with its output if it fails."""
    done = subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")


def try_release(python: str, built: Path, extras: str) -> None:
    """Install a distribution file without and with extras, and play, solve and export nothing but what is installed."""
    with tempfile.TemporaryDirectory() as folder:
        there = Path(folder)
        run(python, "-m", "venv", "venv", cwd=there)
        inside = there / "venv" / "bin" / "python"
        pip = (inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", ROOT / "constraints.txt")
        run(*pip, built, cwd=there)
        run(inside, "-W", "error", "-c", ALONE, cwd=there)
        run(inside.parent / "routing-gym", "info", cwd=there)
        run(*pip, f"{built}[{extras}]", cwd=there)
        if "agents" in extras.split(","):
            run(inside.parent / "routing-gym", "solve", ROOT / "examples" / "cities.csv", cwd=there)


def main() -> None:
    """Try all distribution files of a folder on one Python."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("python", help="Python that makes the environments.")
    parser.add_argument("folder", type=Path, help="Folder with the sdist and the wheel.")
    parser.add_argument("--extras", default="agents", help="Extras to install, separated by commas.")
    args = parser.parse_args()
    files = sorted([*args.folder.resolve().glob("*.whl"), *args.folder.resolve().glob("*.tar.gz")])
    if len(files) != 2:
        sys.exit(f"{args.folder}: found {len(files)} distribution files, expected a wheel and an sdist; run make wheel")
    for built in files:
        try_release(args.python, built, args.extras)
        print(f"{args.python}: {built.name} works, alone and with [{args.extras}]")


if __name__ == "__main__":
    main()
