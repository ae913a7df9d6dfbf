"""`routing-gym info`: versions, extras and hardware, for bug reports."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

from routing_agents.cli import extras

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
WIDTH = 100  # columns of the report


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


def describe_hardware() -> Iterator[tuple[str, str]]:
    """Yield the lines about the machine: a label and a value."""
    name, flags = processor()
    yield "system", platform.platform()
    yield "processor", name
    yield "instructions", instruction_sets(flags)
    yield "cores", cores()
    yield "memory", memory()
    yield "GPU", gpus()


def describe_software() -> Iterator[tuple[str, str]]:
    """Yield the lines about Python, our version, the packages, and the packages that extras lack."""
    yield "Python", f"{extras.running_python()} ({platform.python_implementation()}, {sys.executable})"
    yield "routing-gym", f"{extras.version(extras.NAME) or 'not installed'} ({Path(__file__).parents[2]})"
    required = extras.requirements()
    names = sorted({name for packages in required.values() for name in packages})
    yield "packages", ", ".join(f"{name} {found}" for name in names if (found := extras.version(name)) is not None)
    lacking = {f"[{extra}]" if extra else "required": extras.missing(extra) for extra in sorted(required)}
    yield "complete", ", ".join(label for label, packages in lacking.items() if not packages)
    yield from ((label, f"lacks {', '.join(packages)}") for label, packages in lacking.items() if packages)


def main(arguments: list[str]) -> None:
    """Print versions, extras and hardware.

    Raises:
        SystemExit: Arguments are given; the command takes none.
    """
    if arguments and arguments[0] not in ("-h", "--help"):
        sys.exit(f"routing-gym info: takes no arguments, got {' '.join(arguments)}")
    if arguments:
        print("usage: routing-gym info\n\nPrint versions, extras and hardware, for bug reports.")
        return
    print(report())


def report() -> str:
    """Return all lines, wrapped."""
    parts = []
    for title, lines in (("software", describe_software()), ("hardware", describe_hardware())):
        parts.append(f"{title}:")
        for label, value in lines:
            start = f"  {label:14}"
            parts.append(textwrap.fill(value or "none", WIDTH, initial_indent=start, subsequent_indent=" " * 16))
    return "\n".join(parts)
