"""`benchmarks/quality/planning_variants.py`: one instance, and a second run that goes on from the first."""

import json

import pytest

from benchmarks.quality import planning_variants

pytestmark = pytest.mark.usefixtures("processor_time")


def test_a_later_run_goes_on(tmp_path, monkeypatch):
    pytest.importorskip("pyvrp")
    given = {"variants": ("VRPB",), "customers": 8, "seconds": 1.0, "out": tmp_path / "figures.json"}
    (first,) = planning_variants.main(planning_variants.Args(**given, instances=1))["instances"]
    assert first["search"] <= first["policy"]
    assert first["search"] == pytest.approx(first["classical"])  # eight customers: both find the best
    compared = []
    monkeypatch.setattr(planning_variants, "compare", lambda *one: compared.append(one[:2]) or {**first, "number": 1})
    planning_variants.main(planning_variants.Args(**given, instances=2))
    assert compared == [("VRPB", 1)]
    with pytest.raises(ValueError, match=r"figures.json: measured with --seconds 1.0, not 2.0; choose another --out"):
        planning_variants.main(planning_variants.Args(**{**given, "seconds": 2.0}))
    assert [row["number"] for row in json.loads(given["out"].read_text())["instances"]] == [0, 1]


def test_bad_input():
    with pytest.raises(ValueError, match="--variants: unknown CVRPTW; choose from"):
        planning_variants.Args(variants=("CVRPTW",))
