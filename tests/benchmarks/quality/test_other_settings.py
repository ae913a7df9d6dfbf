"""`benchmarks/quality/other_settings.py`: its figures and table."""

from benchmarks.quality import other_settings, quality_tables


def test_gaps_are_measured_and_shown(tmp_path, monkeypatch):
    settings = (("MTSP", 20, "num_salesmen", "pyvrp", (3, 5)), ("PCVRP", 50, "penalty", "pyvrp", (1.0, 2.0)))
    monkeypatch.setattr(other_settings, "SETTINGS", (*settings, ("ATSP", 20, "generator", "ortools", ("roads",))))
    args = other_settings.Args(instances=2, seconds=0.05, out=tmp_path / "figures.json")
    figures = other_settings.main(args)
    assert [row["value"] for row in figures["rows"]] == [3, 5, 1, 2, "roads"]
    assert figures["rows"][3]["cost"] > figures["rows"][2]["cost"]
    assert all(abs(gap) < 0.9 for row in figures["rows"] for gap in row["gaps"].values())
    table = quality_tables.other_settings(figures)
    assert "| MTSP-20 | `num_salesmen` | 3 | pyvrp | " in table
    assert "| MTSP-20 | `num_salesmen` | 5 (default) | pyvrp | " in table
    assert "| PCVRP-50 | `penalty` | 1 (default) | pyvrp | " in table
    assert "| ATSP-20 | `generator` | roads | ortools | " in table
