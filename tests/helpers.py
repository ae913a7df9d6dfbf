"""What several test modules share: folders, a run of seconds, processes, instance files."""

import json
import multiprocessing
import os
import runpy
import shutil
import signal
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
import torch

from am_reinforce import Args
from benchmarks import worker_process
from routing_agents import checkpoint
from routing_agents.policies.attention.model import AttentionModel, ModelConfig
from routing_agents.policies.pointer.model import PointerConfig
from routing_agents.runs import BEST, LAST

ROOT = Path(__file__).parents[1]
AGENTS, BENCHMARKS = ROOT / "agents", ROOT / "benchmarks"
SHARED = ROOT.parent / "shared"  # real instance files and the original weights, where they are present

TINY = Args(
    env_id="routing/TSP-10",
    epochs=4,
    steps_per_epoch=3,
    batch_size=8,
    learning_rate=1e-2,
    baseline_size=32,
    held_out=16,
    num_tours=4,
    attention=ModelConfig(embed_dim=16, num_heads=4, num_layers=1, feed_forward_dim=16),
    threads=1,
)
TINY_POINTER = replace(
    TINY, model="pointer", attention=Args.attention, pointer=PointerConfig(units=16, num_heads=4, num_layers=1)
)
TIMING = {"instances_per_second"}  # the one thing in the log that no two runs share

SMALL = ["--env-id", "routing/TSP-10", "--batch-size", "8", "--steps-per-epoch", "5", "--held-out", "8"]
SMALL += ["--baseline-size", "8", "--embed-dim", "16", "--threads", "1", "--name", "run"]  # for a process of its own

SQUARE = """NAME : square
TYPE : TSP
DIMENSION : 4
EDGE_WEIGHT_TYPE : EUC_2D
NODE_COORD_SECTION
1 0 0
2 10 0
3 10 10
4 0 10
EOF
"""
# A rectangle of 30 x 40 (diagonal 50) in an odd layout: depot 3, nodes out of order, tabs, blanks, CRLF, no EOF.
CVRP_TEXT = (
    "NAME :\tsquare\t\r\nCOMMENT: one\r\nCOMMENT : two\r\n  TYPE : CVRP\r\nDIMENSION: 4\r\n"
    "EDGE_WEIGHT_TYPE : EUC_2D \r\nCAPACITY : 5\r\nNODE_COORD_SECTION\t\r\n2\t0\t4.0e1\r\n 1 0 0\r\n"
    "3 30 40.0\r\n4 3e+01 0\r\n\r\nDEMAND_SECTION\r\n1 2\r\n2 3\r\n3 0\r\n4 5 \r\nDEPOT_SECTION\r\n\t3\r\n -1\r\n"
)
# The depot in the middle of a line, customers 3 and 4 away to either side; windows in plain units.
VRPTW_TEXT = (
    "NAME : line\nTYPE : VRPTW\nDIMENSION : 3\nVEHICLES : 2\nCAPACITY : 9\nSERVICE_TIME : 2\n"
    "EDGE_WEIGHT_TYPE : EUC_2D\nNODE_COORD_SECTION\n1 4 0\n2 0 0\n3 7 0\nDEMAND_SECTION\n1 0\n2 4\n3 5\n"
    "TIME_WINDOW_SECTION\n1 0 30\n2 0 14\n3 5 8\nDEPOT_SECTION\n1\n-1\nEOF\n"
)
SOLOMON_TEXT = (
    "line\r\n\r\nVEHICLE\r\nNUMBER     CAPACITY\r\n  2         9\r\n\r\nCUSTOMER\r\n"
    "CUST NO.  XCOORD.   YCOORD.    DEMAND   READY TIME  DUE DATE   SERVICE   TIME\r\n \r\n"
    "    0      4    0    0    0   30    0\r\n    1      0    0    4    0   14    2\r\n"
    "    2      7    0    5    5    8    2\r\n"
)
FLEET_TEXT = """NAME : fleet
TYPE : HFVRP
DIMENSION : 4
VEHICLES : 3
EDGE_WEIGHT_TYPE : EUC_2D
NODE_COORD_SECTION
1 0 0
2 3 4
3 6 8
4 0 5
DEMAND_SECTION
1 0
2 5
3 4
4 3
CAPACITY_SECTION
1 5
2 5
3 9
VEHICLES_FIXED_COST_SECTION
1 100
2 100
3 200
VEHICLES_UNIT_DISTANCE_COST_SECTION
1 2
2 2
3 3
DEPOT_SECTION
1
EOF
"""
DEPOTS_TEXT = """TYPE : MDVRPTW
DIMENSION : 4
VEHICLES : 2
CAPACITY : 9
SERVICE_TIME : 2
VEHICLES_MAX_DURATION : 10
EDGE_WEIGHT_TYPE : EUC_2D
NODE_COORD_SECTION
1 0 0
2 10 0
3 0 3
4 10 4
DEMAND_SECTION
1 0
2 0
3 1
4 1
TIME_WINDOW_SECTION
1 0 30
2 0 30
3 5 9
4 0 20
VEHICLES_DEPOT_SECTION
1 1
2 2
DEPOT_SECTION
1
2
-1
EOF
"""
PRIZES_TEXT = """TYPE : PCVRPTW
DIMENSION : 5
VEHICLES : 2
CAPACITY : 9
SERVICE_TIME : 2
EDGE_WEIGHT_TYPE : EUC_2D
NODE_COORD_SECTION
1 0 0
2 1 1
3 3 4
4 30 40
5 2 3
DEMAND_SECTION
1 0
2 4
3 4
4 1
5 8
TIME_WINDOW_SECTION
1 0 90
2 0 60
3 5 60
4 0 20
5 0 60
PRIZE_SECTION
1 0
2 0
3 20
4 7
5 6
DEPOT_SECTION
1
EOF
"""
SITES_TEXT = """TYPE : SDVRPTW
DIMENSION : 3
VEHICLES : 2
CAPACITY : 9
SERVICE_TIME : 0
EDGE_WEIGHT_TYPE : EUC_2D
NODE_COORD_SECTION
1 0 0
2 0 3
3 4 0
DEMAND_SECTION
1 0
2 1
3 1
TIME_WINDOW_SECTION
1 0 30
2 0 30
3 0 30
VEHICLES_ALLOWED_CLIENTS_SECTION
1 2
2 2 3
EOF
"""
PAIRS_TEXT = """TYPE : PDPTW
DIMENSION : 3
VEHICLES : 1
CAPACITY : 9
EDGE_WEIGHT_TYPE : EUC_2D
NODE_COORD_SECTION
0 0 0
2 0 3
3 4 0
PICKUP_AND_DELIVERY_SECTION
0 0 0 30 0 0 0
2 -5 0 30 1 3 0
3 5 0 30 1 0 2
DEPOT_SECTION
1
-1
EOF
"""
EXPLICIT_TEXT = """TYPE : VRPTW
DIMENSION : 3
VEHICLES : 2
CAPACITY : 9
SERVICE_TIME : 2
EDGE_WEIGHT_TYPE : EXPLICIT
EDGE_WEIGHT_FORMAT : FULL_MATRIX
EDGE_WEIGHT_SECTION
0 7 4
3 0 2
5 6 0
NODE_COORD_SECTION
1 0 0
2 1 0
3 0 1
DEMAND_SECTION
1 1
2 4
3 0
TIME_WINDOW_SECTION
1 10 20
2 0 8
3 0 30
DEPOT_SECTION
3
-1
EOF
"""
VRPB_TEXT = (
    "NAME: line\nTYPE: VRPB\nDIMENSION: 3\nCAPACITY: 9\nEDGE_WEIGHT_TYPE: EUC_2D\nNODE_COORD_SECTION\n1\t4\t0\n"
    "2\t0\t0\n3\t7\t0\nDEMAND_SECTION\n1\t0\n2\t9\n3\t0\nBACKHAUL_SECTION\n1\t0\n2\t0\n3\t9\nDEPOT_SECTION\n1\nEOF\n"
)
OP_TEXT = (
    "NAME : line\nTYPE : OP\nDIMENSION : 3\nCOST_LIMIT : 20\nEDGE_WEIGHT_TYPE : EUC_2D\nNODE_COORD_SECTION\n"
    "1 0 0\n2 10 0\n3 11 0\nNODE_SCORE_SECTION\n1 7\n2 5\n3 6\nDEPOT_SECTION\n1\n-1\nEOF\n"
)
TSP_TEXT = (
    "NAME : square\nTYPE : TSP\nDIMENSION : 4\nEDGE_WEIGHT_TYPE : EUC_2D\nNODE_COORD_SECTION\n"
    "1 0 0\n2 3 4\n3 0 4\n4 3 0\nEOF\n"
)
ATSP_TEXT = (  # from node 1 to 3 it is 3, and back 7
    "TYPE : ATSP\nDIMENSION : 3\nEDGE_WEIGHT_TYPE : EXPLICIT\nEDGE_WEIGHT_FORMAT : FULL_MATRIX\nEDGE_WEIGHT_SECTION\n"
    "9999 2 3\n5 9999 1 7\n4 9999\nEOF\n"
)
FIXED_TEXT = TSP_TEXT.replace("EOF", "FIXED_EDGES_SECTION\n1 2\n-1\nEOF")
TOUR = "TYPE : TOUR\nDIMENSION : 4\nTOUR_SECTION\n1 2\n3\n4\n-1\n-1\nEOF\n"
ROUTES = "Route #1: 0 1\nroute 2 : 3\n\ncost 200\n"
SEQUENCE = "TYPE : OP\nROUTE_NODES : 2\nROUTE_SCORE : 12\nROUTE_COST : 20\nNODE_SEQUENCE_SECTION\n1\n2\n-1\nEOF\n"


def run_script() -> None:
    runpy.run_path(sys.argv[0], run_name="__main__")


def run_command(output: Connection, variables: dict, function: Callable[[], object], command: list[str]) -> None:
    os.environ.clear()
    os.environ.update(variables)
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(output.fileno(), number)
        setattr(sys, name, os.fdopen(number, "w", closefd=False))
    sys.argv = command
    function()


@contextmanager
def start(*command: object, function: Callable[[], object] = run_script, **variables: object) -> Iterator[BaseProcess]:
    """Run a script, or a function that reads `sys.argv`, in a process of the fork server, which has imported torch.

    Args:
        *command: Script and arguments.
        function: Function to call.
        **variables: Environment variables beside those of this process; what torch read when it was imported stays.

    Yields:
        The process. Its output is in its attribute `stdout`, and must be read to the end unless the process is killed.
    """
    context = multiprocessing.get_context("forkserver")
    reader, output = context.Pipe(duplex=False)
    environment = {**os.environ, "COLUMNS": "200", **{name: str(value) for name, value in variables.items()}}
    arguments = (output, environment, function, list(map(str, command)))
    process = context.Process(target=run_command, args=arguments, daemon=True)
    process.start()
    output.close()
    with reader, open(reader.fileno(), closefd=False) as process.stdout:
        try:
            yield process
            process.join()
        finally:
            process.kill()  # if the test failed


def wait_for_epoch(process: BaseProcess, epoch: int) -> None:
    for line in process.stdout:
        if line.split()[:1] == [str(epoch)]:  # its row of the table
            return
    pytest.fail(f"the run ended before epoch {epoch}")


def stop_after(monkeypatch, trainer_type: type, steps: int) -> None:
    """Have the process interrupted, as by Ctrl-C, in the middle of a step."""
    update = trainer_type.update

    def interrupted_update(trainer):
        update(trainer)
        if trainer.step == steps:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(trainer_type, "update", interrupted_update)


class MeanLayer(torch.nn.Module):
    """Layer with weights of its own making, unused weights and dropout."""

    def __init__(self, dim):
        super().__init__()
        self.own, self.others = torch.nn.Linear(dim, dim), torch.nn.Linear(dim, dim)
        self.gain, self.bias = torch.nn.LayerNorm(dim), torch.nn.Parameter(torch.rand(dim))
        self.never_used, self.dropout = torch.nn.Linear(dim, dim), torch.nn.Dropout(0.1)
        torch.nn.init.zeros_(self.others.weight)

    def forward(self, x, shift=None):
        read = self.dropout(self.own(x) + self.others(x.mean(dim=1, keepdim=True)))
        return x + self.gain(torch.relu(read)) + self.bias


class DeepSets(AttentionModel):
    """Network of a user."""

    def make_layer(self):
        return MeanLayer(self.config.embed_dim)


def check_resumption(monkeypatch, script, trainer_type: type, args, steps: int, **local) -> list[Path]:
    """Check that a run that is stopped after some steps and resumed ends as one in one go; return both folders.

    Args:
        monkeypatch: Pytest's fixture.
        script: Module of the script.
        trainer_type: Its trainer.
        args: Its arguments.
        steps: When to stop.
        **local: Arguments that may be given beside `resume`.
    """
    whole = script.main(replace(args, name="whole"))
    with monkeypatch.context() as patch:
        stop_after(patch, trainer_type, steps)
        parts = script.main(replace(args, name="parts"))
    assert checkpoint.load(parts / LAST)[1]["step"] == steps
    script.main(script.Args(resume=parts, **local))
    assert_same_run(whole, parts)
    assert len(logged(whole)) == args.epochs
    return [whole, parts]


def assert_same_run(one: Path, other: Path) -> None:
    """Compare the checkpoints of two runs, bit for bit, and their logs."""
    for file in (LAST, BEST):
        expected, found = (checkpoint.load(folder / file)[0] for folder in (one, other))
        assert expected.keys() == found.keys()
        assert [key for key in expected if not torch.equal(expected[key], found[key])] == []
    assert logged(one) == logged(other)


def logged(folder: Path) -> list[dict]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [{key: value for key, value in json.loads(line).items() if key not in TIMING} for line in lines]


FAKE_PEER = """
    import time
    from playing import playing
    from worker import serve

    def prepare(problem, num_nodes, lanes, seed):
        def way(rate):
            def play(rounds):
                return rounds * 1000 * lanes, rounds * 1000 * lanes / rate
            return play
        return {ways}

    serve(("numpy",), playing(prepare))
"""


def fake_peers(folder, monkeypatch, rates):
    """Make workers that say they play in certain ways, at certain rates; and let benchmarks find them in a folder."""
    for name in ("worker.py", "playing.py"):
        shutil.copy(BENCHMARKS / "peers" / name, folder)
    for peer, ways in rates.items():
        made = ", ".join(f"{way!r}: way({rate})" for way, rate in ways.items())
        code = textwrap.dedent(FAKE_PEER).replace("{ways}", f"{{{made}}}")
        (folder / f"{peer.replace('-', '_')}_worker.py").write_text(code)
    monkeypatch.setattr(worker_process, "PEERS", folder)
