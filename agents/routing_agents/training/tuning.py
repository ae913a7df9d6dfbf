"""Two settings that make training on a CPU faster; benchmarks/training/train_throughput.py shows by how much."""

from __future__ import annotations

import ctypes
import os
import platform
from pathlib import Path

import torch

from routing_agents.machine import BFLOAT16

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4  # malloc.h
WITHOUT_BFLOAT16 = {"SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX512_CORE", "AVX512_CORE_VNNI"}  # limits for oneDNN


def keep_freed_memory() -> bool:
    """Make the allocator of this process reuse freed memory; return whether it supports that (glibc only).

    By default, glibc maps new memory for every large array and unmaps it when the array is freed, so that each step of
    a training loop causes page faults for the same gigabytes again.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return all((mallopt(M_MMAP_MAX, 0), mallopt(M_TRIM_THRESHOLD, 2**31 - 1), mallopt(M_TOP_PAD, 64 << 20)))


def fast_precision(device: str) -> str:
    """Return "bfloat16" if the device multiplies matrices natively in it, else "float32".

    CPUs without such instructions emulate bfloat16, which is much slower than float32. The processor's flags are read
    instead of timing it, so that the result is always the same on the same machine. The environment variable
    ONEDNN_MAX_CPU_ISA hides instructions.
    """
    if device.startswith("cuda"):
        return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float32"
    if os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper() in WITHOUT_BFLOAT16:
        return "float32"
    info = Path("/proc/cpuinfo")
    flags = set(info.read_text().split()) if info.exists() else set()
    return "bfloat16" if flags & BFLOAT16 else "float32"


def choose_precision(name: str, device: str) -> str:
    """Return the requested precision; for "auto", that of `fast_precision`."""
    return fast_precision(device) if name == "auto" else name
