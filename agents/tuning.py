"""Two settings that make training on a CPU faster; benchmarks/train_throughput.py shows by how much."""

from __future__ import annotations

import ctypes
import platform
import time

import torch

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4  # malloc.h


def keep_freed_memory() -> bool:
    """Tell the allocator of this process to reuse freed memory; return whether it listened (glibc only).

    By default glibc maps every large array afresh and unmaps it when it is freed, so that each step of
    a training loop faults in the same gigabytes again, page by page.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return all((mallopt(M_MMAP_MAX, 0), mallopt(M_TRIM_THRESHOLD, 2**31 - 1), mallopt(M_TOP_PAD, 64 << 20)))


def faster_precision(device: str) -> torch.dtype:
    """Time a matrix product of the model's size in float32 and bfloat16; return bfloat16 if it takes half as long.

    CPUs without bfloat16 instructions emulate it, slower than float32 by far.
    """
    best = {}
    for dtype in (torch.float32, torch.bfloat16):
        a = torch.ones(4096, 128, dtype=dtype, device=device)
        b = torch.ones(128, 512, dtype=dtype, device=device)
        times = []
        for _ in range(6):
            started = time.perf_counter()
            (a @ b)[0, 0].item()
            times.append(time.perf_counter() - started)
        best[dtype] = min(times[1:])
    return torch.bfloat16 if best[torch.bfloat16] < best[torch.float32] / 2 else torch.float32
