"""`agents/solve.py`: what it reads, writes and refuses."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import am_reinforce
import routing_agents
import solve as solve_script
from helpers import DEPOTS_TEXT, SQUARE, TINY, TSP_TEXT
from routing_agents.evaluation import files
from routing_agents.evaluation.sources import read, tour_csv
from routing_agents.policies.attention.decoding import GREEDY, Decoding
from routing_agents.terminal import command_line
from routing_agents.trained import TrainedModel
from routing_gym.data import FileInstance, save_npz
from routing_gym.data.own import from_columns
from routing_gym.planning import Task, read_task
from routing_gym.problem import InfeasibleTour
from routing_gym.problems import make_problem
from routing_gym.solvers.runtime.work import Inline


@pytest.fixture
def tiny(tmp_path):
    return replace(TINY, runs=tmp_path)


@pytest.fixture
def square(tmp_path):
    path = tmp_path / "square.tsp"
    path.write_text(SQUARE)
    (tmp_path / "solutions").write_text("square : 40\n")
    return path


def test_solve_a_file(tiny, square, tmp_path):
    """A square of side 10: from some start and symmetry the model goes round, 4 x 10 = 40; crossing costs 48."""
    folder = am_reinforce.main(replace(tiny, epochs=1))
    args = solve_script.Args(files=(square,), checkpoint=folder, out=tmp_path / "out")
    (solved,) = solve_script.main(args)
    assert solved.cost in (40, 48)
    assert solved.gap == (solved.cost - 40) / 40
    assert (tmp_path / "out" / "square.png").stat().st_size > 0
    assert sorted((tmp_path / "out" / "square.tour").read_text().split()[-6:-2]) == ["1", "2", "3", "4"]
    with pytest.raises(FileExistsError, match="square.tour exists; choose another --out"):
        solve_script.main(args)


def test_solve_refuses_results_under_one_name(square, tmp_path):
    """Nothing is solved before all names are known to differ, also from that of a best known tour."""
    other = tmp_path / "other" / "square.tsp"
    other.parent.mkdir()
    other.write_text(SQUARE)
    args = solve_script.Args(files=(square, other), out=tmp_path / "out")
    with pytest.raises(ValueError, match=r"the results of .*/square.tsp and .*other/square.tsp would both be .*\.tour"):
        solve_script.main(args)
    with pytest.raises(ValueError, match=r"square.tour would pass for the best known tour of .*; choose another --out"):
        solve_script.main(replace(args, files=(square,), out=tmp_path))
    assert not (tmp_path / "out").exists()


def test_solve_shows_odd_names_and_gaps(tiny, tmp_path, capsys):
    """A name with a terminal's markup and a plot's mathematics; a best known cost of zero, which has no gap."""
    folder = am_reinforce.main(replace(tiny, epochs=1))
    path = tmp_path / "point[old].tsp"
    path.write_text(SQUARE.replace("10", "0").replace("NAME : square", "NAME : a[/b]$_$c"))
    (tmp_path / "solutions").write_text("point[old] : 0\n")
    (solved,) = solve_script.main(solve_script.Args((path,), folder, out=tmp_path / "[out]"))
    assert (solved.cost, solved.gap) == (0, None)
    assert (tmp_path / "[out]" / "point[old].png").exists()
    shown = capsys.readouterr().out
    assert "a[/b]$_$c" in shown
    assert "[out]" in shown


def test_escape_sequences_in_names_do_not_reach_the_terminal(tmp_path, monkeypatch, capsys):
    """Neither from the name of a file that is solved nor from one that cannot be read."""
    (tmp_path / "a\x1b[31m.csv").write_text("x,y\n0,0\n0,1\n1,1\n")
    (tmp_path / "b\x1b[32m\x9b.txt").write_text("?")
    files = [str(path) for path in sorted(tmp_path.iterdir())]
    monkeypatch.setattr("sys.argv", ["solve.py", *files, "--decoding", "greedy", "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit, match=r"^solve: not solved: .*b\\x1b\[32m\\x9b.txt") as stopped:
        command_line(solve_script.main, solve_script.Args, None)
    shown = capsys.readouterr().out + str(stopped.value)
    assert "a\\x1b[31m" in shown
    assert "\x1b[31m" not in shown
    assert "\x9b" not in shown


def test_solve_needs_a_file():
    with pytest.raises(ValueError, match="name at least one"):
        solve_script.main(solve_script.Args(files=()))


def test_solve_refuses_another_problem(tiny, square, tmp_path):
    folder = am_reinforce.main(replace(tiny, env_id="routing/CVRP-10", epochs=1))
    with pytest.raises(ValueError, match=r"was trained on CVRP; .*square.tsp is a TSP"):
        solve_script.main(solve_script.Args(files=(square,), checkpoint=folder, out=tmp_path / "out"))


def test_solve_goes_on_after_a_file_that_cannot_be_read(square, tmp_path):
    (tmp_path / "bad.tsp").write_text("NAME : bad\n")
    args = solve_script.Args(files=(tmp_path / "bad.tsp", square, tmp_path / "none.vrp"), out=tmp_path / "out")
    with pytest.raises(ValueError, match=r"not solved: .*bad.tsp.*; .*none.vrp"):
        solve_script.main(args)
    assert (tmp_path / "out" / "square.tour").exists()


def test_solve_csv(tmp_path, capsys):
    """Two customers of demand 3 on a line, 10 and 20 from the depot; capacity 5 takes two trips: 20 + 40 = 60.

    The output names the columns that are not used, as they are.
    """
    rows = "key;X;Y;Demand;[earliest]\nd;0;0;0;8\na;10,0;0;3;9\n\nb;20,0;0;3;9\n"
    (tmp_path / "own.csv").write_text(rows)
    args = solve_script.Args(files=(tmp_path / "own.csv",), capacity=5, out=tmp_path / "out")
    (solved,) = solve_script.main(args)
    assert solved.cost == pytest.approx(60)
    assert "own.csv: columns that are not used: 'key', '[earliest]'." in capsys.readouterr().out
    lines = (tmp_path / "out" / "own.csv").read_text().splitlines()
    assert lines[:2] == ["row,x,y,demand", "0,0,0,0"]
    assert sorted(line[0] for line in lines[1:]) == ["0", "0", "0", "1", "2"]
    with pytest.raises(ValueError, match="own.csv: CVRP needs --capacity; give it, or"):
        solve_script.main(replace(args, capacity=None))


@pytest.mark.parametrize(
    ("text", "given", "planned"),
    [
        ("x,y,demand,pickup\n0,0,0,0\n5,0,0,4\n9,3,2,0\n", {"capacity": 5, "seconds": 1}, True),  # amounts
        ("x,y,demand,pickup\n0,0,0,0\n5,0,2,0\n9,3,2,1\n", {"capacity": 5, "problem": "PDVRP"}, False),  # rows
        ("x,y,pickup\n0,0,0\n5,0,0\n9,3,1\n", {}, False),
        ("x,y,penalty\n0,0,\n5,0,\n9,3,2\n", {}, True),
        ("x,y,demand,penalty\n0,0,0,\n5,0,1,\n9,3,2,2\n", {"capacity": 5}, True),
        ("x,y,prize,penalty\n0,0,0,0\n5,0,2,1\n9,3,2,1\n", {"required_prize": 2}, False),
        ("id,x,y\nD,0,0\nA,5,0\nB,9,3\n", {}, True),
        ("id,x,y\nD,0,0\nA,5,0\nB,9,3\n", {"decoding": "greedy"}, False),
    ],
)
def test_tables_of_stops(tmp_path, monkeypatch, text, given, planned):
    """Columns of stops make a table of stops, unless they belong to a problem, or an option says so."""
    monkeypatch.setattr(solve_script, "plan", lambda path, args: read_task(path, **args.all_numbers))
    (tmp_path / "own.csv").write_text(text)
    (result,) = solve_script.main(solve_script.Args((tmp_path / "own.csv",), out=tmp_path / "out", **given))
    assert isinstance(result, Task) == planned


@pytest.mark.parametrize(
    ("columns", "capacity", "problem"), [("x,y,demand,pickup", 5, "PDVRP"), ("x,y,pickup,id", None, "PDP")]
)
def test_pickups_may_be_amounts_or_row_numbers(tmp_path, columns, capacity, problem):
    (tmp_path / "own.csv").write_text(f"{columns}\n0,0,0,0\n5,0,0,1\n9,3,1,2\n")
    with pytest.raises(ValueError, match=f"for amounts, add --seconds 10; .* add --problem {problem}"):
        solve_script.main(solve_script.Args((tmp_path / "own.csv",), out=tmp_path / "out", capacity=capacity))


def test_csv_files_of_tours_end_with_one_depot():
    """The depot is row 0; what a tour waits there while longer ones are decoded is left out, also at its start."""
    cvrp = from_columns("CVRP", {"x": [0, 1, 2], "y": [0, 0, 0], "demand": [0, 3, 3], "capacity": 5})
    lines = tour_csv(cvrp, np.array([1, 0, 2, 0, 0, 0])).splitlines()
    assert [line[0] for line in lines[1:]] == ["0", "1", "0", "2", "0"]
    tsp = from_columns("TSP", {"x": [0, 1, 2], "y": [0, 0, 0]})
    assert [line[0] for line in tour_csv(tsp, np.array([1, 0, 2])).splitlines()[1:]] == ["1", "0", "2"]


def test_costs_are_shown_in_full(tmp_path, monkeypatch, capsys):
    """2 + 2 sqrt 2, in 80 columns with a long path."""
    monkeypatch.setenv("COLUMNS", "80")
    (tmp_path / "right-triangle.csv").write_text("x,y\n0,0\n1,1\n2,0\n")
    solve_script.main(solve_script.Args((tmp_path / "right-triangle.csv",), decoding="greedy", out=tmp_path / "out"))
    assert "4.828427125" in capsys.readouterr().out


def test_solve_npz(tmp_path):
    problem = make_problem("OP", 10)
    instance = problem.generate(np.random.default_rng(0), 3)
    save_npz(tmp_path / "batch.npz", problem, instance)
    (solved,) = solve_script.main(solve_script.Args((tmp_path / "batch.npz",), decoding="greedy", out=tmp_path / "out"))
    written = np.load(tmp_path / "out" / "batch.npz")
    np.testing.assert_allclose(written["cost"], problem.objective(instance, written["actions"]))
    assert solved.cost == pytest.approx(-written["cost"].mean())  # a prize


def test_files_after_one_that_does_not_fit_are_solved(square, tmp_path, monkeypatch):
    other = tmp_path / "other.tsp"
    other.write_text(TSP_TEXT)
    solve_batch = TrainedModel.solve_batch
    room = iter([False, True, True])

    def solve(*arguments):
        if not next(room):
            raise MemoryError("takes about 9 GB")
        return solve_batch(*arguments)

    monkeypatch.setattr(TrainedModel, "solve_batch", solve)
    with pytest.raises(ValueError, match=r"not solved: .*square.tsp: takes about 9 GB"):
        solve_script.main(solve_script.Args((square, other), out=tmp_path / "out", tours=4))
    assert [path.name for path in (tmp_path / "out").glob("*.tour")] == ["other.tour"]


def test_the_greedy_tour_stays_after_an_interrupt(square, tmp_path, monkeypatch, capsys):
    """It is written before others are decoded. No search has begun, and the table says what stopped."""
    monkeypatch.setenv("COLUMNS", "200")
    written = tmp_path / "out" / "square.tour"
    solve_batch = TrainedModel.solve_batch

    def solve(model, problem, instance, decoding, *others):
        if decoding != GREEDY:
            assert written.exists()
            written.unlink()
            raise KeyboardInterrupt
        return solve_batch(model, problem, instance, decoding, *others)

    monkeypatch.setattr(TrainedModel, "solve_batch", solve)
    (solved,) = solve_script.main(solve_script.Args((square,), out=tmp_path / "out", improve=100.0))
    assert solved.interrupted
    assert (solved.written, written.exists()) == (written, True)
    assert solved.solved_by == "tsp-20, stopped by Ctrl-C"
    assert "tsp-20, stopped by Ctrl-C" in capsys.readouterr().out


def test_greedy_tours_stay_where_others_are_worse(tmp_path, monkeypatch):
    """Two squares: the greedy tour crosses itself in the first one only, the others in the second one only."""
    tours = np.array([[0, 2, 1, 3], [0, 1, 2, 3]])

    def solve(model, problem, instance, decoding, *others):
        return SimpleNamespace(actions=torch.from_numpy(tours if decoding == GREEDY else tours[::-1].copy()))

    monkeypatch.setattr(TrainedModel, "solve_batch", solve)
    problem = make_problem("TSP", 4)
    corners = np.array([[0, 0], [0, 1], [1, 1], [1, 0]], dtype=np.float32)
    save_npz(tmp_path / "squares.npz", problem, problem.instance_type(np.stack([corners, corners])))
    (solved,) = solve_script.main(solve_script.Args((tmp_path / "squares.npz",), tours=4, out=tmp_path / "out"))
    assert solved.cost == 4


def test_prizes_are_improved(tmp_path, capsys):
    """More is better: 641 greedily, 770 after 0.3 seconds of search, 845 after 1."""
    rng = np.random.default_rng(0)
    places, prizes = rng.integers(0, 1000, (31, 2)).tolist(), rng.integers(1, 100, 31).tolist()
    rows = [f"{x},{y},{prize}" for (x, y), prize in zip(places, [0, *prizes[1:]], strict=True)]
    (tmp_path / "fair.csv").write_text("\n".join(["x,y,prize", *rows]))
    args = solve_script.Args((tmp_path / "fair.csv",), decoding="greedy", max_length=2500, out=tmp_path / "out")
    (greedy,) = solve_script.main(args)
    (improved,) = solve_script.main(replace(args, improve=0.5, overwrite=True))
    assert improved.cost > greedy.cost
    assert " prize " in capsys.readouterr().out.splitlines()[1]


@pytest.mark.parametrize(
    ("given", "decoded", "told"),
    [
        ({"improve": 0.1}, [1], "one greedy tour is decoded, so that the search begins early; --decoding heuristic"),
        ({}, [1, 128 * 8], "many tours are decoded, which takes long; --decoding greedy is faster, and Ctrl-C keeps"),
        ({"improve": 0.1, "tours": 2}, [1, 2 * 8], None),
        ({"improve": 0.1, "decoding": "starts"}, [1, 128 * 8], None),
    ],
)
def test_large_files(tmp_path, monkeypatch, capsys, given, decoded, told):
    """With 401 cities, --improve leaves the time to the search; a line says what is decoded, unless it was given."""
    solve_batch, tours = TrainedModel.solve_batch, []

    def solve(model, problem, instance, decoding, *others):
        tours.append(decoding.num_tours * decoding.symmetries)
        return solve_batch(model, problem, instance, GREEDY, *others)

    monkeypatch.setattr(TrainedModel, "solve_batch", solve)
    monkeypatch.setattr(TrainedModel, "improve", lambda *_: SimpleNamespace(interrupted=False))
    monkeypatch.setattr("routing_gym.render.save", lambda *_, **__: None)
    points = np.random.default_rng(0).uniform(0, 1, (401, 2))
    (tmp_path / "cities.csv").write_text("x,y\n" + "".join(f"{x},{y}\n" for x, y in points))
    solve_script.main(solve_script.Args((tmp_path / "cities.csv",), out=tmp_path / "out", **given))
    shown = capsys.readouterr().out
    assert tours == decoded
    assert (f"cities.csv: 401 nodes: {told}" in shown) if told else ("401 nodes" not in shown)


def test_a_search_that_was_stopped_is_named(square, tmp_path, monkeypatch):
    monkeypatch.setattr(TrainedModel, "improve", lambda *_: SimpleNamespace(interrupted=True))
    (solved,) = solve_script.main(solve_script.Args((square,), out=tmp_path / "out", tours=4, improve=100.0))
    assert solved.solved_by == "tsp-20, improved by tspfe-30, stopped by Ctrl-C"


def test_a_search_starts_from_a_tour_that_the_file_forbids(tmp_path, monkeypatch):
    """Files may ask more of routes than the rules, such as VEHICLES."""
    places = np.random.default_rng(0).integers(0, 1000, (30, 2))
    rows = "\n".join(f"{number} {x} {y}" for number, (x, y) in enumerate(places, start=1))
    path = tmp_path / "cities.tsp"
    path.write_text(f"TYPE : TSP\nDIMENSION : 30\nEDGE_WEIGHT_TYPE : EUC_2D\nNODE_COORD_SECTION\n{rows}\nEOF\n")
    cost, forbidden = FileInstance.cost, []

    def check(file, actions):
        forbidden[:] = forbidden or [tuple(actions)]
        if tuple(actions) in forbidden:
            raise InfeasibleTour(0, 0, "one route too many")
        return cost(file, actions)

    monkeypatch.setattr(FileInstance, "cost", check)
    args = solve_script.Args((path,), decoding="heuristic", improve=0.5, out=tmp_path / "out")
    (solved,) = solve_script.main(args)
    assert solved.written.exists()
    monkeypatch.setattr(TrainedModel, "improve", lambda *_: SimpleNamespace(interrupted=False))
    forbidden.clear()
    with pytest.raises(ValueError, match="violates a limit of the file: .*one route too many .try more seconds"):
        solve_script.main(replace(args, overwrite=True))


def test_fleets_are_improved_within_the_limits_of_the_file(tmp_path):
    """Two vehicles at two depots, away for 10 at most: 6 + 8, in thousandths. No model solves parts of the tour."""
    path = tmp_path / "depots.vrp"
    path.write_text(DEPOTS_TEXT)
    args = solve_script.Args((path,), improve=0.2, out=tmp_path / "out")
    (solved,) = solve_script.main(args)
    assert (solved.cost, solved.solved_by) == (14000, "pchfmdovrpmbltw-50, improved by route search")
    with pytest.raises(ValueError, match="--repair TSP-20 has no effect on PCHFMDVRPTW; leave it out"):
        solve_script.main(replace(args, repair=Path("TSP-20"), overwrite=True))


def test_distances_of_the_file_are_improved_on_the_routes(tmp_path):
    """The published model for parts of CVRP tours reads coordinates. 3 + 4 + 5 one way; the other way costs more."""
    path = tmp_path / "ways.vrp"
    path.write_text(
        "NAME : ways\nTYPE : CVRP\nDIMENSION : 3\nCAPACITY : 9\nEDGE_WEIGHT_TYPE : EXPLICIT\n"
        "EDGE_WEIGHT_FORMAT : FULL_MATRIX\nEDGE_WEIGHT_SECTION\n0 3 9\n9 0 4\n5 9 0\n"
        "DEMAND_SECTION\n1 0\n2 4\n3 5\nDEPOT_SECTION\n1\n-1\nEOF\n"
    )
    (solved,) = solve_script.main(solve_script.Args((path,), improve=0.2, out=tmp_path / "out"))
    assert (solved.cost, solved.solved_by) == (12, "ovrpbltw-matrices-50, improved by route search")


def test_prizes_that_show_on_the_way_choose_no_tour(square, tmp_path):
    """The best of many tours of SPCTSP, by their real prizes, would be a bound."""
    problem = make_problem("SPCTSP", 20)
    save_npz(tmp_path / "file.npz", problem, problem.generate(np.random.default_rng(0), 20))
    costs = []
    for decoding in ("starts", "greedy"):
        (solved,) = solve_script.main(
            solve_script.Args((tmp_path / "file.npz",), decoding=decoding, out=tmp_path / decoding)
        )
        costs.append(solved.cost)
    assert costs[0] == costs[1]
    with pytest.raises(ValueError, match="SPCTSP is stochastic: comparing its tours would use values"):
        solve_script.main(solve_script.Args((tmp_path / "file.npz", square), decoding="sampling", out=tmp_path / "out"))
    assert (tmp_path / "out" / "square.tour").exists()  # the other file is solved all the same


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"capacity": 5},
            "--capacity 5 has no effect: (tables are read as TSP, without a capacity|none of the .* CSV file); leave",
        ),
        (
            {"max_length": 1.5},
            "--max-length 1.5 has no effect: (tables are read as TSP, without a max_length|none of the .*); leave",
        ),
        ({"improve": 1e-9}, "--improve 1e-09 has no effect: a round of the search takes longer; give at least 0.1"),
        ({"decoding": "greedy", "tours": 5}, "--tours 5 has no effect with --decoding greedy; leave it out"),
        (
            {"decoding": "heuristic", "improve": 1, "batch_size": 5, "checkpoint": Path("runs/mine")},
            "--checkpoint runs/mine has no effect with --decoding heuristic; leave it out",
        ),
    ],
)
@pytest.mark.parametrize("name", ["cities.csv", "square.tsp"])
def test_options_without_effect(tmp_path, square, name, given, message):
    (tmp_path / "cities.csv").write_text("x,y\n0,0\n0,1\n1,1\n")
    with pytest.raises(ValueError, match=message):
        solve_script.main(solve_script.Args((square.with_name(name),), out=tmp_path / "out", **given))
    assert not (tmp_path / "out").exists()


def test_the_problem_is_for_csv_files(tmp_path, square):
    with pytest.raises(ValueError, match="--problem CVRP has no effect: none of the files is a CSV file; leave it out"):
        solve_script.main(solve_script.Args((square,), problem="CVRP", out=tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_a_spreadsheet_is_to_be_saved_as_csv(tmp_path):
    (tmp_path / "stops.xlsx").write_bytes(b"PK\x03\x04rest")
    with pytest.raises(ValueError, match="stops.xlsx:1: found a spreadsheet, .* save the sheet as CSV"):
        solve_script.main(solve_script.Args((tmp_path / "stops.xlsx",), out=tmp_path / "out"))


def test_what_solves_parts_is_for_improving(square):
    with pytest.raises(ValueError, match="--repair solves parts of a tour for --improve; give --improve SECONDS"):
        solve_script.Args((square,), repair=square)


def test_executors_solve_what_one_process_solves(tmp_path):
    """Sampled tours of a file of 3 instances, in one chunk; greedy ones of 5, in chunks of two."""
    paths = []
    for name, count in (("CVRP", 3), ("TSP", 5)):
        problem = make_problem(name, 20)
        paths.append(tmp_path / f"{name}.npz")
        save_npz(paths[-1], problem, problem.generate(np.random.default_rng(0), count))
    args = solve_script.Args(tuple(paths), tours=2, out=tmp_path / "here")
    here = solve_script.main(args)
    there = solve_script.main(replace(args, executor="processes", workers=1, out=tmp_path / "there"))
    assert [one.cost for one in there] == [one.cost for one in here]
    for path in paths:
        expected, found = (np.load(tmp_path / out / path.name)["actions"] for out in ("here", "there"))
        np.testing.assert_array_equal(found, expected)

    source = read(paths[1], None, {})
    method = files.Method(routing_agents.load("TSP-20"), GREEDY)
    work = files.FileWork([method, replace(method, decoding=Decoding(16, sample=True))], files.Settings(1))
    both = dict(files.solve_files([source, source], work, Inline(), chunk_size=2))
    expected = method.solve(source, files.Settings(1)).actions
    np.testing.assert_array_equal(both[0].actions, expected)
    assert (both[1].actions != expected).any()
    with pytest.raises(ValueError, match="--workers 2 has no effect without --executor processes or ray"):
        replace(args, workers=2)


def test_workers_that_do_not_start_end_in_a_message(tmp_path, monkeypatch):
    (tmp_path / "a.csv").write_text("x,y\n0,0\n0,1\n1,1\n")
    monkeypatch.setattr("routing_gym.solvers.runtime.pool.START_LIMIT", 0)
    arguments = ["--executor", "processes", "--workers", "1", "--out", str(tmp_path / "out")]
    monkeypatch.setattr("sys.argv", ["solve.py", str(tmp_path / "a.csv"), *arguments])
    with pytest.raises(SystemExit, match=r"^solve: a worker process for .* did not start \(it ended"):
        command_line(solve_script.main, solve_script.Args, None)
