"""`benchmarks/quality/other_settings.py`: its figures and table."""

from benchmarks.quality import other_settings, quality_tables


def test_gaps_are_measured_and_shown(tmp_path, monkeypatch):
    monkeypatch.setattr(other_settings, "SETTINGS", (("MTSP", "num_salesmen", "pyvrp", (3, 5)),))
    args = other_settings.Args(instances=2, seconds=0.05, out=tmp_path / "figures.json")
    figures = other_settings.main(args)
    assert [row["value"] for row in figures["rows"]] == [3, 5]
    assert all(abs(gap) < 0.5 for row in figures["rows"] for gap in row["gaps"].values())
    table = quality_tables.other_settings(figures)
    assert "| MTSP | `num_salesmen` | 3 | pyvrp | " in table
    assert "| MTSP | `num_salesmen` | 5 (default) | pyvrp | " in table
