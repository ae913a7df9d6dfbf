"""Hardware of this machine: processor, memory and GPUs, read without torch."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

INSTRUCTIONS = {  # flags of /proc/cpuinfo (x86; Arm) and their common names
    "avx2": "AVX2",
    "avx512f": "AVX-512",
    "avx512_bf16": "AVX-512 BF16",
    "amx_tile": "AMX",
    "amx_bf16": "AMX BF16",
    "asimd": "NEON",
    "sve": "SVE",
    "bf16": "BF16",
}
BFLOAT16 = {"avx512_bf16", "amx_bf16", "bf16"}  # native products in bfloat16: x86 with vectors, x86 with tiles, Arm
GIB = 2**30


def system_command(*command: str) -> str:
    """Return the output of a system program, or an empty text if it is missing, fails or hangs."""
    if shutil.which(command[0]) is None:
        return ""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def read(path: str) -> str:
    """Return the text of a system file, or an empty text if it cannot be read."""
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def processor() -> tuple[str, set[str]]:
    """Return the name of the processor, and the flags of its instruction sets (none if they are unknown)."""
    text = read("/proc/cpuinfo")
    name = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", text, re.MULTILINE)
    if platform.system() == "Darwin":
        features = system_command("sysctl", "-a", "hw.optional.arm").splitlines()
        present = {line.split(":")[0].rpartition("FEAT_")[2].lower() for line in features if line.endswith(" 1")}
        return system_command("sysctl", "-n", "machdep.cpu.brand_string"), present
    return name[1] if name else platform.processor() or platform.machine(), set(flags[1].split()) if flags else set()


def instruction_sets(flags: set[str]) -> str:
    """Return the features that determine the speed of networks: vector instructions, and native bfloat16."""
    if not flags:
        return "unknown"
    named = [label for flag, label in INSTRUCTIONS.items() if flag in flags] or ["none of AVX2, AVX-512, AMX, NEON"]
    return f"{', '.join(named)}; bfloat16 {'native' if flags & BFLOAT16 else 'not native'}"


def cores() -> str:
    """Return the cores of the machine, and those this process may use if they are fewer."""
    total = os.cpu_count() or 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else total
    quota, _, period = read("/sys/fs/cgroup/cpu.max").partition(" ")  # quota of a container
    limit = f", limited to the time of {int(quota) / int(period):g}" if quota.isdigit() else ""
    return f"{total}{'' if usable == total else f', of which {usable} for this process'}{limit}"


def memory() -> str:
    """Return the memory of the machine, the free part of it, and the limit of a container."""
    sizes = {key: int(value) * 1024 for key, value in re.findall(r"^(\w+):\s+(\d+) kB", read("/proc/meminfo"), re.M)}
    if "MemTotal" not in sizes:
        total = system_command("sysctl", "-n", "hw.memsize")
        return f"{int(total) / GIB:.1f} GiB" if total.isdigit() else "unknown"
    limit = read("/sys/fs/cgroup/memory.max").strip()
    limited = f", limited to {int(limit) / GIB:.1f} GiB" if limit.isdigit() else ""
    return f"{sizes['MemTotal'] / GIB:.1f} GiB, {sizes.get('MemAvailable', 0) / GIB:.1f} GiB available{limited}"


def gpus() -> str:
    """Return names, memory and driver of NVIDIA GPUs, without torch, which takes seconds to load."""
    query = ("--query-gpu=name,memory.total,driver_version", "--format=csv,noheader")
    return system_command("nvidia-smi", *query).replace("\n", "; ") or "none found by nvidia-smi"
