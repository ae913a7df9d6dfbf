"""Write the weights as scripts that a page from file:// can load too, into playground/data.

    python playground/build.py

A page that was opened as a file can load scripts but cannot read files, so each safetensors file becomes a script that
passes its bytes in base64. The scripts are not committed: `make docs` and the tests write them.
"""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
WEIGHTS = HERE.parent / "agents" / "routing_agents" / "weights"
SNAPSHOTS = HERE / "snapshots"


def as_script(path: Path) -> str:
    """Return a script that calls `receiveWeights` with a file's name and its bytes in base64."""
    text = base64.b64encode(path.read_bytes()).decode()
    return f"receiveWeights({json.dumps(path.stem)}, {json.dumps(text)});\n"


def header_of(path: Path) -> dict[str, Any]:
    """Return the header of a safetensors file; see `routing_agents.checkpoint`."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header: dict[str, Any] = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["header"])
    return header


def index(weights: list[Path], snapshots: list[Path]) -> str:
    """Return a script with the names of the models, and with names, steps and costs of the snapshots."""
    keys = ("step", "instances", "greedy", "reference")
    stops = [{"name": path.stem, **{key: header_of(path)[key] for key in keys}} for path in snapshots]
    return f"const MODELS = {json.dumps([path.stem for path in weights])};\nconst SNAPSHOTS = {json.dumps(stops)};\n"


def main(out: Path = HERE / "data", weights: Path = WEIGHTS, snapshots: Path = SNAPSHOTS) -> list[Path]:
    """Write a script for each file of weights and each snapshot, and their index; return the paths."""
    out.mkdir(parents=True, exist_ok=True)
    models, stops = sorted(weights.glob("*.safetensors")), sorted(snapshots.glob("*.safetensors"))
    contents = {"index": index(models, stops), **{path.stem: as_script(path) for path in [*models, *stops]}}
    for name, content in contents.items():
        (out / f"{name}.js").write_text(content)
    return [out / f"{name}.js" for name in contents]


def publish(out: Path, address: str | None = None) -> None:
    """Copy the page to `out`, and write the weights beside it.

    Args:
        out: Folder to write.
        address: Address of the published page, such as https://example.org/playground/; link previews need it.
    """
    shutil.copytree(
        HERE, out, ignore=shutil.ignore_patterns("*.py", "data", "snapshots", "__pycache__"), dirs_exist_ok=True
    )
    if address:
        page = out / "index.html"
        page.write_text(page.read_text().replace('content="preview.png"', f'content="{address}preview.png"'))
    main(out / "data")


if __name__ == "__main__":
    paths = main()
    print(f"{len(paths)} scripts, {sum(path.stat().st_size for path in paths) / 1e6:.1f} MB, in {paths[0].parent}")
