"""Benchmarks refuse zeros and unknown problems before any work."""

from importlib import import_module

import pytest


@pytest.mark.parametrize(
    ("script", "changes", "message"),
    [
        ("environments.env_throughput", {"lanes": (64, 0)}, r"--lanes must be integers of at least 1, got \(64, 0\)"),
        (
            "environments.env_throughput",
            {"problems": ("FOO-3",)},
            "'FOO-3' is not a problem with a size, such as TSP-50",
        ),
        ("multi_agent.game_throughput", {"repeats": 0}, "--repeats must be an integer of at least 1, got 0"),
        ("multi_agent.game_throughput", {"seed": -1}, "--seed must be an integer of at least 0, got -1"),
        ("environments.env_peers", {"repeats": 0}, "--repeats must be an integer of at least 1, got 0"),
        ("environments.env_peers", {"seconds": 0.0}, "--seconds must be a positive number of at most .*, got 0"),
        ("environments.integrations", {"problem": "TSP"}, "'TSP' is not a problem with a size"),
        ("quality.large_instances", {"sizes": ()}, r"--sizes must be integers of at least 1, got \(\)"),
        ("quality.gap_by_size", {"nodes": 0}, "--nodes must be an integer of at least 1, got 0"),
        ("training.time_to_quality", {"threads": 0}, "--threads must be an integer of at least 1, got 0"),
        ("quality.solution_quality", {"workers": 0}, "--workers must be an integer of at least 1, got 0"),
        ("training.train_throughput", {"problems": ()}, "--problems: name at least one, such as TSP-50"),
    ],
)
def test_bad_arguments(script, changes, message):
    with pytest.raises(ValueError, match=message):
        import_module(f"benchmarks.{script}").Args(**changes)
