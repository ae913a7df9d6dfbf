"""Keep the memory that a training step frees, instead of giving it back to the system.

glibc maps every large array afresh and unmaps it when it is freed, so each step of a training loop on a
CPU faults in the same gigabytes page by page; see benchmarks/train_throughput.py for what that costs.
"""

from __future__ import annotations

import ctypes
import platform

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4  # malloc.h


def keep_freed_memory() -> bool:
    """Tell the allocator of this process to reuse freed memory; return whether it listened (glibc only)."""
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return all((mallopt(M_MMAP_MAX, 0), mallopt(M_TRIM_THRESHOLD, 2**31 - 1), mallopt(M_TOP_PAD, 64 << 20)))
