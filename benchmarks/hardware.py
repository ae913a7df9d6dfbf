"""Description of the machine and the software with which the figures of a benchmark were measured."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

import routing_gym
from routing_agents.machine import instruction_sets, processor

ISA_LIMITS = ("ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY", "MKL_ENABLE_INSTRUCTIONS")  # they hide instruction sets


def describe_machine() -> dict[str, Any]:
    """Return commit, processor, its instruction sets and the limits set on them, accelerator, system and versions."""
    git = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=40"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    model, flags = processor()
    return {
        "commit": git.stdout.strip() or "unknown",
        "processor": f"{model}, {os.cpu_count()} cores",
        "instructions": instruction_sets(flags),
        "instructions_limited": {name: os.environ[name] for name in ISA_LIMITS if name in os.environ},
        "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
        "system": platform.platform(),
        "versions": {
            "python": platform.python_version(),
            "routing-gym": routing_gym.__version__,
            **{name: version(name) for name in ("numpy", "torch", "gymnasium", "array-api-compat")},
        },
    }
