"""The evaluation command: what it compares, writes and refuses."""

from __future__ import annotations

import csv
import json
import pickle
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import evaluate
import solve
from evaluate import Args
from helpers import FLEET_TEXT, ROOT, SQUARE
from routing_agents import checkpoint
from routing_agents.evaluation.decoding import Chunk, DecodeWork, by_throughput
from routing_agents.policies.attention.features import features_named
from routing_agents.policies.attention.model import AttentionModel, ModelConfig
from routing_agents.policies.attention.saved import describe
from routing_gym.data import save_npz
from routing_gym.problems import TSP, make_problem
from routing_gym.solvers import ExactMIP, HeldKarp
from routing_gym.solvers.runtime.work import Inline, Lost

ORIENTEERING = """NAME : ring
TYPE : OP
DIMENSION : 6
COST_LIMIT : 250
EDGE_WEIGHT_TYPE : EUC_2D
NODE_COORD_SECTION
1 0 0
2 50 0
3 100 20
4 80 70
5 40 90
6 10 40
NODE_SCORE_SECTION
1 0
2 300
3 500
4 200
5 400
6 100
DEPOT_SECTION
1
-1
EOF
"""


def test_torchrun_is_refused(monkeypatch):
    """Each process would solve every instance, and all would write the same files."""
    for name, value in {"TORCHELASTIC_RUN_ID": "one", "RANK": "0", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match="torchrun started 2 processes, .* start it with python"):
        evaluate.main(Args("random/TSP-5", ("nearest-neighbour",), size=2))


def test_generated_instances_on_streets():
    found = evaluate.read_instances(Args("random/VRPTW-matrices-8", size=2))
    assert found.problem.matrices
    assert found.instance.durations.shape == (2, 9, 9)


@pytest.fixture
def model_path(tmp_path):
    """A small untrained model for TSP."""
    model = AttentionModel(
        features_named("TSP"),
        ModelConfig(embed_dim=16, num_heads=4, num_layers=1, feed_forward_dim=16),
        torch.Generator().manual_seed(1),
    )
    path = tmp_path / "tsp.safetensors"
    checkpoint.save(path, checkpoint.prefixed("model", model.state_dict()), describe(TSP(8), model))
    return path


@pytest.fixture
def args(tmp_path, model_path):
    methods = ("held-karp", "nearest-neighbour", f"{model_path}:num_tours=20,sample=true", f"{model_path}:beam=3")
    return Args("random/TSP-8", methods, size=12, seed=3, workers=1, cache=tmp_path / "cache", out=tmp_path / "out")


def test_one_table_of_solvers_and_models(args):
    """The optimum has gap 0 and wins everywhere; its mean is that of the solver called by hand; nothing beats it."""
    table = evaluate.main(args)
    problem = make_problem("TSP", 8)
    optimum = HeldKarp().solve(problem, problem.generate(np.random.default_rng(3), 12)).cost.mean()
    names = ["held-karp", "nearest-neighbour", "tsp:num_tours=20,sample=true", "tsp:beam=3"]
    assert [row.method for row in table.rows] == names
    assert table.rows[0].mean.value == pytest.approx(optimum)
    assert table.rows[0].gap.value == 0
    assert table.rows[0].wins == 12
    assert all(row.gap.value >= 0 for row in table.rows)
    with (args.out / "table.csv").open() as file:
        assert [row["method"] for row in csv.DictReader(file)] == names
    assert json.loads((args.out / "table.json").read_text())["about"]["instances"] == "random/TSP-8"
    assert "| held-karp |" in (args.out / "table.md").read_text()
    assert (args.out / "gap.png").stat().st_size > 0


def test_a_method_that_fails_on_every_instance(tmp_path, monkeypatch, capsys):
    """The table is printed and written with the reason, and the script ends with an error."""

    def fail(self, problem, instance, seed):
        raise RuntimeError("no luck")

    monkeypatch.setattr(ExactMIP, "solve_row", fail)
    args = Args("random/TSP-5", ("held-karp", "milp"), size=3, executor="inline", cache=tmp_path, out=tmp_path)
    with pytest.raises(ValueError, match="failed on every instance: milp"):
        evaluate.main(args)
    assert "milp failed on 3 of 3: RuntimeError: no luck" in capsys.readouterr().out
    assert json.loads((tmp_path / "table.json").read_text())["rows"][1]["reason"] == "RuntimeError: no luck"
    with pytest.raises(ValueError, match="failed on every instance: milp"):  # nor does a shard end well
        evaluate.main(replace(args, shard="1/1"))
    assert (tmp_path / "shard-1-of-1.npz").exists()


def test_labels():
    """Paths shrink to the names of runs and files, unless two would then be called the same."""
    methods = ("fast-tsp:time_limit=1", "runs/a/best.safetensors", "runs/a:beam=2", "runs/b", "old/b")
    assert evaluate.labels(methods) == ["fast-tsp:time_limit=1", "a", "a:beam=2", "runs/b", "old/b"]


def test_same_seed_same_table(args):
    first, second = ([row.mean for row in evaluate.main(args).rows] for _ in range(2))
    assert first == second


@pytest.mark.parametrize("source", ["npz", "paper", "file"])
def test_sources_of_instances(tmp_path, source):
    if source == "npz":
        problem = make_problem("TSP", 6)
        save_npz(tmp_path / "six.npz", problem, problem.generate(np.random.default_rng(0), 5))
        name, expected = str(tmp_path / "six.npz"), 4
    elif source == "paper":
        name, expected = "paper/TSP-20", 4
    else:
        triangle = (
            "TYPE : TSP\nDIMENSION : 3\nEDGE_WEIGHT_TYPE : EUC_2D\nNODE_COORD_SECTION\n1 0 0\n2 3 0\n3 0 4\nEOF\n"
        )
        (tmp_path / "triangle.tsp").write_text(triangle)
        name, expected = str(tmp_path / "triangle.tsp"), 1
    table = evaluate.main(Args(name, ("nearest-neighbour",), size=4, cache=tmp_path / "cache"))
    assert table.num_instances == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"methods": ()}, "name at least one method"),
        ({"methods": ("fast-tsp", "trained", "fast-tsp")}, "fast-tsp is given twice; leave one out"),
        ({"seed": -1}, "--seed must be an integer of at least 0, got -1"),
        ({"size": 0}, "--size must be at least 1, got 0"),
        ({"instances": str(ROOT / "examples" / "cities.csv")}, "cities.csv: tables are not compared; solve one with "),
        ({"instances": "TSP-8"}, "no file TSP-8; for a test set write paper/ID or random/ID"),
        ({"methods": ("magic",)}, "'magic' is neither a run or checkpoint, .* TSP-20, .*; nor a solver: .*pyvrp"),
        ({"methods": ("TSP-21",)}, "'TSP-21' is neither a run or checkpoint, nor among the published weights"),
        ({"methods": ("held-karp",), "reference": "other"}, "--reference 'other' must be one of the methods"),
        ({"instances": "random/TSP"}, "expected random/ID with an ID such as TSP-20, or VRPTW-matrices-50"),
        ({"instances": "paper/TSP-matrices-20"}, "expected paper/ID with an ID such as TSP-20$"),
        ({"instances": "random/ATSP-matrices-8"}, "ATSP"),
        ({"methods": ("VRPB-51",)}, "'VRPB-51' is neither a run or checkpoint, nor among the published weights"),
        ({"instances": "random/XYZ-8"}, "unknown problem 'XYZ'; choose one of"),
        ({"instances": "random/MDCVRP-8"}, "unknown problem 'MDCVRP'; the VRP family calls it MDVRP; choose one of"),
        ({"instances": "random/CVRP-8", "methods": ("fast-tsp",)}, "fast-tsp does not solve CVRP"),
        ({"methods": (str(ROOT / "examples" / "cities.csv"),)}, "cities.csv: expected a method, found a file"),
        ({"methods": ("{model}:beam",)}, "'beam' has no value"),
        ({"methods": ("2-opt:",)}, "'2-opt:': a setting is empty; write 2-opt:SETTING=VALUE, or leave the colon out"),
        ({"methods": ("{model}:beam=2,symmetries=9",)}, "symmetries must be 1 to 8, got 9"),
        ({"methods": ("{model}:beam=2,beam=3",)}, "beam is set twice; leave one out"),
        ({"methods": ("{model}:temperature=2",)}, "temperature 2 has no effect without sample; leave it out"),
        ({"problem": "TSP"}, "--problem TSP has no effect: random/TSP-8 names its problem; leave it out"),
        ({"methods": ("held-karp",), "batch_size": 2}, "--batch-size 2 has no effect: no method is a model; leave it"),
        ({"methods": ("held-karp",), "tours": Path("kept")}, "--tours kept has no effect: no method is a model; leave"),
        ({"methods": ("{model}:width=3",)}, "no setting width; a model has num_tours"),
        ({"methods": ("{model}:num_tours=3",)}, "greedy tours from one start are the same"),
        ({"methods": ("{model}:sample=False",)}, "sample=False': sample must be true or false, got 'False'"),
        ({"methods": ("{model}:sample=true,temperature=warm",)}, "temperature must be a number, got 'warm'"),
        ({"methods": ("{model}:active=0",)}, "active must be an integer of at least 1, got 0"),
        ({"methods": ("{model}:active=2,embeddings=3",)}, "embeddings must be true or false, got 3"),
        (
            {"methods": ("{model}:beam=2,embeddings=true",)},
            "beam goes with expansion and symmetries only; leave out embeddings",
        ),
        ({"instances": "random/SPCTSP-8", "methods": ("trained:active=2",)}, "shows prizes early; take beam alone"),
        (
            {"methods": ("held-karp", "{model}:num_tours=9,force_starts=true")},
            "num_tours is 9, with forced starts at 8",
        ),
        (
            {"instances": "random/OP-8", "methods": ("trained:num_tours=2,force_starts=true",)},
            "force_starts: the first node of a tour matters in OP; sample instead",
        ),
        ({"instances": "random/CVRP-8", "methods": ("{model}",)}, "was trained on TSP; the instances are CVRP"),
    ],
)
def test_refused_before_any_work(args, model_path, changes, message):
    if "methods" in changes:
        changes["methods"] = tuple(text.replace("{model}", str(model_path)) for text in changes["methods"])
    with pytest.raises(ValueError, match=message):
        evaluate.main(Args(**{**vars(args), **changes}))
    assert not Path(args.out).exists()


def test_prizes_of_files_are_scaled_for_the_model(tmp_path):
    """Both scripts show the model of OP prizes of at most 1, as in training, and so find the same tour."""
    (tmp_path / "ring.oplib").write_text(ORIENTEERING)
    table = evaluate.main(Args(str(tmp_path / "ring.oplib"), ("trained",)))
    (solved,) = solve.main(solve.Args((tmp_path / "ring.oplib",), decoding="greedy", out=tmp_path / "out"))
    assert table.rows[0].mean.value == solved.cost > 0
    assert "depot's score, not counted 0" in table.title


def test_the_unit_of_lengths_is_named(tmp_path):
    """The box around a square of 10 x 10; solve.py gives the file's own integers."""
    (tmp_path / "square.tsp").write_text(SQUARE)
    table = evaluate.main(Args(str(tmp_path / "square.tsp"), ("trained",)))
    (solved,) = solve.main(solve.Args((tmp_path / "square.tsp",), decoding="greedy", out=tmp_path / "out"))
    assert "unit of length 10" in table.title
    assert "not checked" not in table.title
    assert table.rows[0].mean.value * 10 == solved.cost


def test_gaps_refer_to_the_best_known_cost_beside_a_file(tmp_path):
    """The box around the square has sides of 10."""
    (tmp_path / "square.tsp").write_text(SQUARE)
    (tmp_path / "solutions").write_text("square : 32\n")
    known, trained = evaluate.main(Args(str(tmp_path / "square.tsp"), ("trained",))).rows
    assert (known.method, known.mean.value) == ("best known", 3.2)
    assert trained.gap.value == pytest.approx(100 * (trained.mean.value / 3.2 - 1))


def test_a_problem_of_a_family_names_the_weights_of_the_family():
    table = evaluate.main(Args("random/VRPB-8", ("VRPB-50", "ovrpbltw-50"), size=2))
    assert [row.method for row in table.rows] == ["VRPB-50", "ovrpbltw-50"]
    assert table.rows[0].mean.value == table.rows[1].mean.value


def test_limits_that_only_a_file_states_are_not_checked(tmp_path):
    (tmp_path / "fleet.vrp").write_text(FLEET_TEXT)
    table = evaluate.main(Args(str(tmp_path / "fleet.vrp"), ("trained",)))
    assert re.search("not checked limits that only the file states, such as VEHICLES; .*solve.py checks", table.title)


def test_a_choice_among_tours_is_a_bound_where_prizes_show_on_the_way():
    methods = ("trained", "trained:num_tours=3,sample=true", "trained:symmetries=2", "trained:beam=2", "trained:beam=1")
    for name, bounds in (("PCTSP", 0), ("SPCTSP", 3)):
        rows = evaluate.main(Args(f"random/{name}-10", methods, size=4)).rows
        assert [row.is_bound for row in rows] == [False, *[bounds > 0] * 3, False]


def test_names_with_markup(args, model_path):
    """A terminal's markup and a plot's mathematics in names are shown as they are."""
    path = model_path.with_name("a[b]$_$c.safetensors")
    model_path.rename(path)
    table = evaluate.main(Args(**{**vars(args), "methods": ("held-karp", str(path))}))
    assert "a[b]$_$c" in table.text()


def test_unknown_setting_of_a_solver(args):
    with pytest.raises(TypeError, match="fast-tsp has no setting speed; it has time_limit"):
        evaluate.main(Args(**{**vars(args), "methods": ("fast-tsp:speed=9",)}))


def test_pickles_of_the_original_code(tmp_path):
    """Two squares of side 0.5, as a list of lists of points; the file does not name its problem."""
    squares = np.tile([[0.1, 0.1], [0.6, 0.1], [0.6, 0.6], [0.1, 0.6]], (2, 1, 1)).tolist()
    (tmp_path / "data.pkl").write_bytes(pickle.dumps(squares))
    args = Args(str(tmp_path / "data.pkl"), ("held-karp",), problem="TSP")
    assert evaluate.main(args).rows[0].mean.value == pytest.approx(2.0)
    with pytest.raises(ValueError, match="does not name its problem; give it, for example --problem TSP"):
        evaluate.main(Args(str(tmp_path / "data.pkl")))


def test_tables_are_written_before_they_are_printed(tmp_path, monkeypatch):
    """A pipe that is closed, as by `head`, loses the print only."""

    def closed(*values):
        raise BrokenPipeError("closed")

    monkeypatch.setattr("builtins.print", closed)
    with pytest.raises(BrokenPipeError, match="closed"):
        evaluate.main(Args("random/TSP-10", ("nearest-neighbour",), size=2, out=tmp_path / "out"))
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"table.md", "table.csv", "table.json", "gap.png"}


def costs(table):
    return [(row.method, row.mean, row.gap, row.wins, row.failed) for row in table.rows]


@pytest.fixture
def chunked(args):
    """Twelve instances in three chunks; with a model that samples, one that searches, and a solver that draws."""
    methods = (*args.methods, "random-insertion")
    return replace(args, methods=methods, chunk_size=4, workers=2)


def test_executors_give_the_same_table(chunked):
    chunked = replace(chunked, methods=(chunked.methods[2], chunked.methods[4]))  # workers take seconds to start
    tables = [evaluate.main(replace(chunked, executor=name)) for name in (None, "inline", "processes")]
    assert costs(tables[0]) == costs(tables[1]) == costs(tables[2])


def test_shards_merge_to_the_same_table(chunked, tmp_path, monkeypatch):
    """Of three shards, in any order; a missing one is named, and so is one of another evaluation."""
    whole = evaluate.main(chunked)
    args = replace(chunked, out=tmp_path / "parts", cache=tmp_path / "other")
    for shard in ("3/3", "1/3"):
        assert evaluate.main(replace(args, shard=shard)) is None
    with pytest.raises(ValueError, match="parts: run the evaluation with --shard 2/3 first"):
        evaluate.main(replace(args, merge=True))
    evaluate.main(replace(args, shard="2/3"))
    assert costs(evaluate.main(replace(args, merge=True))) == costs(whole)
    with pytest.raises(ValueError, match="was evaluated with seed 3, and now it is 4; use the same"):
        evaluate.main(replace(args, seed=4, merge=True))
    with pytest.raises(ValueError, match="was evaluated with hash of the instances"):
        evaluate.main(replace(args, env_kwargs={"matrices": "True"}, merge=True))
    monkeypatch.setattr("evaluate.digest_of", lambda text, problem: "of a later epoch")
    evaluate.main(replace(args, shard="2/3"))
    with pytest.raises(ValueError, match="was evaluated with weights of .* 'of a later epoch', and that of shard-1-of"):
        evaluate.main(replace(args, merge=True))
    (tmp_path / "parts" / "shard-2-of-3.npz").write_bytes(b"PK")
    with pytest.raises(ValueError, match=r"shard-2-of-3.npz: no shard, or damaged \(.*\); evaluate it again"):
        evaluate.main(replace(args, merge=True))


def test_each_process_of_torchrun_takes_its_shard(chunked, monkeypatch):
    """Process 1 of 3 solves the second chunk."""
    for name, value in {"TORCHELASTIC_RUN_ID": "one", "RANK": "1", "WORLD_SIZE": "3"}.items():
        monkeypatch.setenv(name, value)
    evaluate.main(chunked)
    with np.load(chunked.out / "shard-2-of-3.npz") as shard:
        assert shard["rows"].tolist() == [4, 8]
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert evaluate.make_setup(replace(chunked, device="cuda"), 0).device == "cuda:1"


def test_a_second_run_decodes_what_is_missing(chunked, tmp_path, monkeypatch):
    """All three chunks of two models, then one of six that was deleted. Other instances have other files."""
    args = replace(chunked, tours=tmp_path / "tours")
    first = evaluate.main(args)
    files = sorted((tmp_path / "tours").glob("TSP-8-*/chunk-*.npz"))
    assert [path.name[:12] for path in files] == [f"chunk-00000{number}" for number in (0, 1, 2)] * 2
    files[1].unlink()
    decoded = []
    do = DecodeWork.do
    monkeypatch.setattr(DecodeWork, "do", lambda work, *chunk: decoded.append(chunk[1]) or do(work, *chunk))
    assert costs(evaluate.main(args)) == costs(first)
    assert decoded == [1]
    evaluate.main(replace(args, size=3))
    assert decoded == [1, 0, 0]
    assert costs(evaluate.main(args)) == costs(first)
    assert decoded == [1, 0, 0]
    files[0].write_bytes(b"")
    with pytest.raises(
        ValueError, match=r"chunk-000000-\w+.npz: no tours, or damaged \(.*\); delete it to decode again"
    ):
        evaluate.main(args)


class Timed(Inline):
    """Notes the chunks of each task, of which the third is lost; each chunk takes a quarter of a second, it says."""

    def run(self, work, tasks):
        self.sizes = []
        for key, chunks in tasks:
            self.sizes.append(len(chunks))
            done = [Chunk(np.array([[number]]), 0.25) for _, number in chunks]
            yield key, Lost("died", 8.0) if len(self.sizes) == 3 else done


def test_tasks_take_about_a_second():
    """A first chunk of 0.25 s, then four at a time; 11 chunks are 1 + 4 + 4 + 2. The 8 s of a lost task are shared."""
    executor = Timed()
    work = DecodeWork("model", make_problem("TSP", 8), None, seed=0)
    results = dict(by_throughput(work, ((start, (None, start // 10)) for start in range(0, 110, 10)), executor))
    assert executor.sizes == [1, 4, 4, 2]
    assert list(results) == list(range(0, 110, 10))
    assert [results.pop(start) for start in (50, 60, 70, 80)] == [Lost("died", 2.0)] * 4
    assert all(chunk.actions == start // 10 for start, chunk in results.items())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shard": "4/3"}, "--shard 4/3: expected K/N with K from 1 to N, such as 3/8"),
        ({"shard": "1/4"}, "12 instances are 3 chunks of 4, too few for 4 shards; give --chunk-size 3"),
        ({"shard": "1/3", "merge": True}, "choose one of them"),
        ({"merge": True, "out": None}, "--shard and --merge need --out"),
        ({"merge": True}, "out: expected the shards of one evaluation, found none"),
        ({"address": "auto"}, "--address auto has no effect without --executor ray"),
        ({"address": "auto", "executor": "inline"}, "address auto has no effect with executor inline; choose ray"),
        ({"workers": 0}, "--workers must be at least 1, got 0"),
        ({"device": "tpu"}, "--device must be cpu, cuda"),
    ],
)
def test_options_of_several_machines_are_checked(chunked, changes, message):
    with pytest.raises(ValueError, match=message):
        evaluate.main(replace(chunked, **changes))


def test_a_folder_that_cannot_be_written_is_refused(chunked, tmp_path, monkeypatch):
    def full(dir):  # noqa: A002  (the name of the argument)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.TemporaryFile", full)
    with pytest.raises(OSError, match=r"--out .*: no file can be written there \(No space left on device\); choose"):
        evaluate.main(chunked)


def test_a_cache_that_cannot_be_made_is_refused(args, model_path):
    """A file is in the way."""
    with pytest.raises(OSError, match=r"--cache .*: cannot be made \(Not a directory\); choose another"):
        evaluate.main(replace(args, cache=model_path / "cache"))


def test_ray_that_is_missing_names_its_extra(chunked, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r'ray cannot be imported .*: pip install "\.\[cluster\]"'):
        evaluate.main(replace(chunked, executor="ray"))
