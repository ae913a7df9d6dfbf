"""Tables of the benchmarks of speed, for the documentation."""

from __future__ import annotations

from typing import Any

from benchmarks.quality.quality_tables import markdown

OURS, JAX, RL4CO, JUMANJI = "routing-gym", "routing-gym-jax", "rl4co", "jumanji"
OWN = {RL4CO: "loop, its own policy", JUMANJI: "call per step, its own policy"}  # the loop that a peer ships
Figures = Any  # contents of a file in benchmarks/results


def rate(value: float) -> str:
    """Return a rate per second as text, in thousands or millions."""
    return f"{value / 1e6:.2f} M" if value >= 999_500 else f"{value / 1e3:.0f} k"


def env_throughput(figures: Figures) -> str:
    """Return our speed on both backends, and its ratio to Gymnasium's SyncVectorEnv where that was measured."""
    rows = {(row["problem"], row["lanes"], row["kind"], row["backend"], row["copy"]): row for row in figures["rows"]}
    lines = []
    for problem, lanes in dict.fromkeys(key[:2] for key in rows):
        sync = rows.get((problem, lanes, "sync", "numpy", True))
        cells = [rate(sync["steps_per_second"]) if sync else "-"]
        for backend, copy in (("numpy", True), ("numpy", False), ("torch", True)):
            ours = rows[problem, lanes, "native", backend, copy]["steps_per_second"]
            cells += [rate(ours), times(ours / sync["steps_per_second"]) if sync else "-"]
        lines.append((problem, f"{lanes:,}", *cells))
    ways = ("NumPy", "ratio", "NumPy, `copy=False`", "ratio", "torch (CPU)", "ratio")
    return markdown(("steps/s", "lanes", "SyncVectorEnv", *ways), lines)


def times(ratio: float) -> str:
    """Return a ratio of speeds as text."""
    return f"{ratio:.0f} x" if ratio >= 20 else f"{ratio:.1f} x"


def peer_rates(figures: Figures) -> dict[tuple[str, int], dict[str, tuple[float, float, float]]]:
    """Return, by problem and lanes, for each peer: our rate, that of its own loop, and that of its fastest loop."""
    rates = {(row["problem"], row["lanes"], row["library"], row["way"]): row for row in figures["rows"]}
    found: dict[tuple[str, int], dict[str, tuple[float, float, float]]] = {}
    for row in figures["comparisons"]:
        key = row["problem"], row["lanes"]
        ways = ((OURS, row["ours"]), (row["peer"], OWN[row["peer"]]), (row["peer"], row["fastest_way"]))
        ours, own, best = (rates[(*key, *way)]["steps_per_second"] for way in ways)
        found.setdefault(key, {})[row["peer"]] = ours, own, best
    return found


def env_peers(figures: Figures) -> str:
    """Return the speeds of our loops, of rl4co's and Jumanji's loops as shipped, and of their fastest loops."""
    lines = []
    for (problem, lanes), peers in peer_rates(figures).items():
        cells = [
            text
            for ours, own, best in (peers[RL4CO], peers[JUMANJI])
            for text in (rate(ours), *(cell for theirs in (own, best) for cell in (rate(theirs), times(ours / theirs))))
        ]
        lines.append((problem, f"{lanes:,}", *cells))
    ours = ("ours, `rollout`", "rl4co, own", "ratio", "rl4co, best", "ratio")
    jumanji = ("ours, vector env", "Jumanji, own", "ratio", "Jumanji, best", "ratio")
    return markdown(("steps/s", "lanes", *ours, *jumanji), lines)


def rl4co_peers(figures: Figures) -> str:
    """Return the speeds of our loops and rl4co's, for the problems that Jumanji lacks."""
    lines = []
    for (problem, lanes), peers in peer_rates(figures).items():
        ours, own, best = peers[RL4CO]
        theirs = (cell for value in (own, best) for cell in (rate(value), times(ours / value)))
        lines.append((problem, f"{lanes:,}", rate(ours), *theirs))
    return markdown(("steps/s", "lanes", "ours, `rollout`", "rl4co, own", "ratio", "rl4co, best", "ratio"), lines)


def jax_peers(figures: Figures) -> str:
    """Return speeds on JAX, beside Jumanji's fastest: compiled loops, steps called from Python, transitions alone."""
    rows = figures["rows"]
    lines = []
    for problem, lanes in dict.fromkeys((row["problem"], row["lanes"]) for row in rows):
        here = [row for row in rows if (row["problem"], row["lanes"]) == (problem, lanes)]
        cells, compiling = [], []
        for kind in ("scan", "call per step", "transitions alone, scan"):
            ways = [[r for r in here if r["library"] == name and r["way"].startswith(kind)] for name in (JAX, JUMANJI)]
            ours, theirs = (max(way, key=lambda row: row["steps_per_second"]) for way in ways)
            speeds = ours["steps_per_second"], theirs["steps_per_second"]
            cells += [*map(rate, speeds), times(speeds[0] / speeds[1])]
            compiling += [f"{row['seconds_to_compile']:.1f}" for row in (ours, theirs)]
        lines.append((problem, f"{lanes:,}", *cells, *compiling[:2]))
    heads = (head for way in ("loop", "called", "transition") for head in (way, "Jumanji's", "ratio"))
    return markdown(("steps/s", "lanes", *heads, "compilation, s", "Jumanji's, s"), lines)


def speeds(figures: Figures, task: str, problem: str, cores: int) -> tuple[float, float, float]:
    """Return instances per second: ours in one process, ours in as many as there are cores, rl4co's."""
    rows = [row for row in figures["rows"] if (row["task"], row["problem"]) == (task, problem)]

    def fastest(library: str, processes: int) -> float:
        wanted = (library, processes, cores // processes)
        found = [row for row in rows if (row["library"], row["processes"], row["threads"]) == wanted]
        return max(row["instances_per_second"] for row in found)

    return fastest(OURS, 1), fastest(OURS, cores), fastest(RL4CO, 1)


def train_throughput(figures: Figures) -> str:
    """Return the speeds of training and greedy decoding, each library in its faster precision, on one and two cores."""
    lines = []
    for task, label in (("rollout", "training"), ("greedy", "greedy decoding")):
        for problem in figures["arguments"]["problems"]:
            one, _, peer = speeds(figures, task, problem, 1)
            threads, processes, peers = speeds(figures, task, problem, 2)
            single = (f"{one:,.0f}", f"{peer:,.0f}", f"{one / peer:.1f} x")
            double = (f"{processes:,.0f}", f"{threads:,.0f}", f"{peers:,.0f}")
            ratios = (f"{processes / peers:.1f} x", f"{threads / peers:.1f} x")
            lines.append((f"{problem}, {label}", *single, *double, *ratios))
    cores = ("2 cores: 2 processes", "2 threads", "rl4co", "ratio, processes", "ratio, threads")
    return markdown(("instances/s", "1 core", "rl4co", "ratio", *cores), lines)


def one_core(figures: Figures) -> str:
    """Return the speeds of training and greedy decoding on one core, as such and relative to large matrix products."""
    by_speed = sorted(figures["rows"], key=lambda row: row["instances_per_second"])  # the faster precision is kept
    rows = {(row["task"], row["problem"], row["library"]): row for row in by_speed}
    lines = []
    for task, label in (("rollout", "training"), ("greedy", "greedy decoding")):
        for problem in figures["arguments"]["problems"]:
            ours, theirs = (rows[task, problem, library] for library in (OURS, RL4CO))
            rates = [row["instances_per_second"] for row in (ours, theirs)]
            shares = (f"{100 * row['share_of_rate']:.0f}" for row in (ours, theirs))
            cells = (*(f"{value:,.0f}" for value in rates), times(rates[0] / rates[1]), *shares)
            lines.append((f"{problem}, {label}", *cells))
    return markdown(("instances/s", "ours", "rl4co", "ratio", "ours: % of products", "rl4co: %"), lines)


def time_to_quality(figures: Figures) -> str:
    """Return the seconds to each gap, and the final gap and seconds of each run."""
    targets = list(figures["table"][0]["seconds_to"])
    lines = []
    for row in figures["table"]:
        reached = (
            "-" if row["seconds_to"][target] is None else f"{row['seconds_to'][target]:.0f}" for target in targets
        )
        lines.append((row["label"], *reached, f"{100 * row['final_gap']:.2f}", f"{row['seconds']:.0f}"))
    return markdown(("seconds to a greedy gap of", *targets, "final gap, %", "after, s"), lines)


def large_instances(figures: Figures) -> str:
    """Return the seconds and gigabytes by problem and number of nodes."""
    lines = [
        (
            row["problem"],
            f"{row['num_nodes']:,}",
            f"{row['num_instances']:,}",
            f"{row['seconds']:.2g}" if row["seconds"] < 10 else f"{row['seconds']:.0f}",
            f"{row['peak_bytes'] / 1e9:.2f}",
        )
        for row in figures["rows"]
    ]
    return markdown(("", "nodes", "instances", "seconds", "GB"), lines)


def integrations(figures: Figures) -> str:
    """Return the steps per second of Stable-Baselines3's environment and of ours."""
    keys = ("steps_per_second", "steps_and_masks_per_second", "learn_steps_per_second")
    lines = [(row["env"], *(rate(row[key]) for key in keys)) for row in figures["sb3"]]
    dummy, native = figures["sb3"]
    lines.append(("", *(times(native[key] / dummy[key]) for key in keys)))
    return markdown(("steps per second", "`step`", "`step` and masks", "`MaskablePPO.learn`"), lines)


def machine(figures: Figures) -> str:
    """Return the class of the processor, and the limit on its instruction sets if figures were measured with one."""
    found = figures["machine"]
    name = found["processor"].split(",")[0].replace("(R)", "").replace(" Processor", "")
    limit = found.get("instructions_limited", {}).get("ONEDNN_MAX_CPU_ISA")
    return f"{name}, {limit} only" if limit else name


def precision(figures: Figures, library: str, task: str, problem: str) -> str:
    """Return the precision in which a library is fastest."""
    rows = [row for row in figures["rows"] if (row["library"], row["task"], row["problem"]) == (library, task, problem)]
    return str(max(rows, key=lambda row: row["instances_per_second"])["precision"])


def short_speed(env: Figures, peers: Figures, training: Figures, avx2: Figures) -> str:
    """Return our speed and that of other libraries, for the README; `avx2` was measured on one core."""
    rows = {(row["problem"], row["lanes"], row["kind"], row["backend"], row["copy"]): row for row in env["rows"]}
    sync, native = (rows["TSP-50", 1024, kind, "numpy", True]["steps_per_second"] for kind in ("sync", "native"))
    compared = "SyncVectorEnv of our single environment"
    cells = (rate(native), compared, rate(sync), times(native / sync), machine(env))
    lines = [("steps/s of the vector environment, 1,024 lanes", *cells)]
    for lanes in (1024, 64):
        for peer, label, way in ((RL4CO, "rl4co", "`rollout`"), (JUMANJI, "Jumanji", "the vector environment")):
            ours, _, best = peer_rates(peers)["TSP-50", lanes][peer]
            what = f"steps/s of {way}, {lanes:,} lanes"
            lines.append((what, rate(ours), label, rate(best), times(ours / best), machine(peers)))
    for figures, cores, where in ((training, "2 cores", machine(training)), (avx2, "1 core", f"{machine(avx2)}, AVX2")):
        for task, what in (("rollout", "training"), ("greedy", "greedy decoding")):
            _, ours, theirs = speeds(figures, task, "TSP-50", int(cores[0]))
            rates = (f"{ours:,.0f}", "rl4co", f"{theirs:,.0f}", times(ours / theirs))
            in_precision = f"{where}, {precision(figures, OURS, task, 'TSP-50')}"
            lines.append((f"{what}, instances/s, {cores}", *rates, in_precision))
    return markdown(("TSP-50", "ours", "compared with", "theirs", "ratio", "processor"), lines)
