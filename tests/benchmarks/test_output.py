"""`benchmarks/output.py`: where figures and pictures go, and what an earlier run has kept."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from benchmarks import output


def test_scripts_do_not_write_over_published_figures():
    """By default all figures go to one ignored folder, and no script has a default path for pictures."""
    texts = {path: path.read_text() for path in (output.ROOT / "benchmarks").rglob("*.py")}
    outs = {path.stem: re.findall(r"\n    out: Path = (.*)", text) for path, text in texts.items()}
    written = {name: found for name, found in outs.items() if found and not name.startswith("publish_")}
    assert len(written) > 20
    assert written == {name: [one for one in found if one.startswith("OUT / ")] for name, found in written.items()}
    assert not [path for path, text in texts.items() if re.search(r"Path = .*\"docs\"", text)]
    assert output.OUT.is_relative_to(output.ROOT / "runs")


@pytest.mark.parametrize(
    ("keys", "text", "message"),
    [
        (("sets",), '{"machine": {}, "rows": []}', "expected sets"),
        ((), '{"machine": {}, "rows": []}', "they have one machine for all"),
        ((), "[]", "not the figures"),
        ((), "{", "Expecting property name"),
    ],
)
def test_figures_of_another_script_are_refused(tmp_path, keys, text, message):
    path = tmp_path / "other.json"
    assert output.read_figures(path, *keys) == {}
    path.write_text(text)
    with pytest.raises(ValueError, match=f"other.json: not the figures of this script: .*{message}|{message}.*other"):
        output.read_figures(path, *keys)


def test_pictures_are_beside_the_figures(tmp_path, monkeypatch):
    """Only published figures have their picture in docs."""
    monkeypatch.setattr(output, "ROOT", tmp_path)
    monkeypatch.setattr(output, "PUBLISHED", tmp_path / "benchmarks" / "results")
    monkeypatch.chdir(tmp_path)
    for out, place in (
        ("new/one.json", "new/dispatch.png"),
        ("benchmarks/results/one.json", "docs/research/dispatch.png"),
    ):
        written = output.save_picture(Figure(), Path(out), "research/dispatch.png")
        assert written.resolve() == tmp_path / place
        assert written.read_bytes().startswith(b"\x89PNG")
