"""Files with several vehicles, depots and pairs: real ones with their published solutions, small ones, damaged ones."""

import numpy as np
import pytest

from helpers import DEPOTS_TEXT, FLEET_TEXT, PAIRS_TEXT, PRIZES_TEXT, SHARED, SITES_TEXT
from routing_gym import data
from routing_gym.data.tsplib.fleet_rules import Counting, FleetRules
from routing_gym.problem import InfeasibleTour

PUBLISHED = {
    "HFVRP-X101-FSMFD": ("HFVRP", 35170.24),
    "HFVRP-X106-FSMD": ("HFVRP", 31566.26),
    "HFVRP-X110-HD": ("PCHFVRP", 15859.34),
    "HFVRP-X115-HVRP": ("PCHFVRP", 19412.56),
    "MDVRPTW-PR11A": ("PCHFMDVRPTW", 6655548),
    "MDVRPTW-PR17A": ("PCHFMDVRPTW", 6292594),
    "SDVRPTW-PR01": ("PCHFVRPTW", 1655420),
    "SDVRPTW-PR02": ("PCHFVRPTW", 2904130),
}


def read(folder, text, solution=None):
    path = folder / "file.vrp"
    path.write_text(text)
    if solution is not None:
        (folder / "file.sol").write_text(solution)
    return data.read_instance(path)


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_solutions_cost_what_is_published(name, tmp_path):
    """Played step by step they are legal, and written and read again they stay the same."""
    path = SHARED / "fleets" / f"{name}.vrp"
    if not path.exists():
        pytest.skip(f"{path} is missing")
    file = data.read_instance(path)
    problem, instance, tour = file.problem, file.instance, file.best_tour
    problem.validate(instance)
    assert (problem.name, file.best_known) == PUBLISHED[name] == (problem.name, file.cost(tour))
    assert problem.objective(instance, tour[None])[0] == pytest.approx(file.best_cost, rel=1e-5)
    state = problem.initial(instance)
    for action in tour:
        assert problem.action_mask(instance, state)[0, action]
        state, _ = problem.step(instance, state, np.array([action]))
    assert problem.done(instance, state).all()
    assert data.write_tour(tmp_path / "tour.sol", file, tour) == file.best_known
    np.testing.assert_array_equal(data.read_solution(tmp_path / "tour.sol", file).actions, tour)


def test_pairs_of_a_real_file():
    """51 pairs, whose routes are counted when a tour is scored: 51 are more than its 25 vehicles."""
    path = SHARED / "fleets" / "PDPTW-lrc206.vrp"
    if not path.exists():
        pytest.skip(f"{path} is missing")
    file = data.read_instance(path)
    file.problem.validate(file.instance)
    pickup = file.instance.pickup[0]
    assert (file.problem.name, (pickup > 0).sum()) == ("PDVRPTW", 51)
    each_alone = [node for delivery in np.flatnonzero(pickup) for node in (pickup[delivery], delivery, 0)]
    with pytest.raises(InfeasibleTour, match="route 26 of depot node 0 is one too many of 25"):
        file.cost(each_alone)


# --- by hand


def test_vehicles_that_are_alike_are_a_fleet(tmp_path):
    """Three of them; two routes of 2 x 5 and 10 + 5 + sqrt(45) = 21.71, in hundreds 0.32."""
    head, _, rest = FLEET_TEXT.partition("CAPACITY_SECTION")
    depot = rest[rest.index("DEPOT_SECTION") :]
    file = read(tmp_path, f"{head}{depot}".replace("EUC_2D\n", "EUC_2D\nCAPACITY : 7\n"))
    assert (file.problem.name, file.problem.num_depots) == ("HFVRP", 1)
    assert file.cost(np.array([1, 0, 2, 3, 0])) == 0.32


def test_a_fleet(tmp_path):
    """Vehicle 1: 100 + 2 x 10. Vehicle 3: 200 + 3 x (10 + sqrt(45) + 5) = 265.12. In hundreds 3.85."""
    file = read(tmp_path, FLEET_TEXT, "Route #1: 1\nRoute #2: \nRoute #3: 2 3\nCost: 3.85\n")
    assert (file.problem.name, file.problem.num_depots, file.best_known) == ("PCHFVRP", 2, 3.85)
    assert file.best_tour.tolist() == [2, 0, 1, 3, 4, 1]
    assert file.ids.tolist() == [1, 1, 2, 3, 4]
    assert file.instance.num_vehicles.tolist() == [[2, 1, 0, 0, 0]]
    file.problem.validate(file.instance)
    assert file.problem.objective(file.instance, file.best_tour[None])[0] * file.scale == pytest.approx(385.1246)
    with pytest.raises(InfeasibleTour, match="step 3: node 3 is left out, which the file forbids"):
        file.cost([2, 0, 0])


def test_penalties_exceed_any_tour(tmp_path):
    """Each customer alone in the dearest vehicle: 3 x 200 + 3 x 2 x (5 + 10 + 5) = 720."""
    assert read(tmp_path, FLEET_TEXT).instance.penalty[0, 2:].min() * 8 > 720  # 8 is the scale


def test_penalties_of_required_customers_exceed_all_prizes(tmp_path):
    """Node 1 must be served, whatever the prizes of the others are."""
    file = read(tmp_path, PRIZES_TEXT.replace("3 20\n4 7\n5 6", "3 2000\n4 9000\n5 3000"))
    assert file.instance.penalty[0, 1] > file.instance.penalty[0, 2:].sum()


def test_enough_vehicles_of_each_kind_are_no_limit(tmp_path):
    """Nine of one kind, for three customers: without PC, and no number."""
    section = "\n".join(f"{vehicle} 9" for vehicle in range(1, 10))
    text = FLEET_TEXT[: FLEET_TEXT.index("CAPACITY_SECTION")].replace("VEHICLES : 3", "VEHICLES : 9")
    text = f"{text}CAPACITY_SECTION\n{section}\nVEHICLES_UNIT_DISTANCE_COST : 2\n"
    file = read(tmp_path, text)
    assert (file.problem.name, file.instance.num_vehicles) == ("HFVRP", None)


def test_depots(tmp_path):
    """6 + 8, in thousandths. The first vehicle leaves at 2, serves at 5 and is back at 10: 8 of at most 10.

    If it served both, without waiting: 3 + 2 + 10.05 + 2 + 10.77.
    """
    file = read(tmp_path, DEPOTS_TEXT, "Route #1: 2\nRoute #2: 3\nCost: 14000\n")
    assert (file.problem.name, file.best_known) == ("PCHFMDVRPTW", 14000)
    assert file.best_tour.tolist() == [2, 0, 1, 3, 1]
    with pytest.raises(InfeasibleTour, match="step 0: duration 27.82 of the route exceeds 10.0; serve some customers"):
        file.cost([2, 3, 0])


def test_windows_are_exact_to_a_thousandth(tmp_path):
    """Twelve customers in a row, each reached as it closes, are legal in turn, whatever float32 makes of it."""
    places = [1, 2, 4, 7, 11, 16, 22, 29, 37, 46, 56, 67]
    sections = {
        "NODE_COORD_SECTION": [f"{node} {x} 0" for node, x in enumerate([0, *places], start=1)],
        "DEMAND_SECTION": [f"{node} {int(node > 1)}" for node in range(1, 14)],
        "TIME_WINDOW_SECTION": [f"{node} 0 {x}" for node, x in enumerate([200, *places], start=1)],
    }
    text = "TYPE : MDVRPTW\nDIMENSION : 13\nEDGE_WEIGHT_TYPE : EUC_2D\nVEHICLES : 1\nCAPACITY : 99\nSERVICE_TIME : 0\n"
    text += "\n".join(line for name, rows in sections.items() for line in (name, *rows))
    file = read(tmp_path, text)
    problem, instance = file.problem, file.instance
    state = problem.initial(instance)
    for node in range(problem.num_depots, problem.num_actions):
        assert problem.action_mask(instance, state)[0, node], node
        state, _ = problem.step(instance, state, np.array([node]))
    assert file.cost([*range(problem.num_depots, problem.num_actions), 0]) == 134_000


def test_the_largest_distance_is_a_limit_of_the_problem(tmp_path):
    """Customer 3 is 20 away and back: as much as the limit; the way over customer 4 is longer."""
    text = FLEET_TEXT.replace("DEPOT_SECTION", "VEHICLES_MAX_DISTANCE_SECTION\n1 20\n2 20\n3 20\nDEPOT_SECTION")
    file = read(tmp_path, text)
    assert file.problem.name == "PCHFVRPL"
    assert file.cost([2, 0, 4, 0, 1, 3, 1]) == 5.0  # 120 + 120 + 260
    with pytest.raises(InfeasibleTour, match=r"length 21.708204 of the route exceeds 20.0"):
        file.cost([2, 0, 1, 3, 4, 1])


def test_sites(tmp_path):
    """Node 1 of the file is the depot; the first vehicle serves customer 2 of the file only."""
    file = read(tmp_path, SITES_TEXT, "Route #1: 1\nRoute #2: 2\nCost 14000\n")
    assert (file.problem.name, file.best_known) == ("PCHFVRPTW", 14000)
    assert file.instance.eligible[0, :, 2:].tolist() == [[True, False], [True, True]]
    with pytest.raises(InfeasibleTour, match="vehicles of depot node 0 may not serve node 3"):
        file.cost([2, 3, 0])


def test_pairs(tmp_path):
    """From the depot to customer 2, the pickup, then 1: 4 + 5 + 3."""
    file = read(tmp_path, PAIRS_TEXT, "Route #1: 2 1\nCost 12000\n")
    assert (file.problem.name, file.best_known, file.instance.pickup.tolist()) == ("PDVRPTW", 12000, [[0, 2, 0]])
    file.problem.validate(file.instance)


def test_vehicles_that_may_serve_half_a_pair_serve_none_of_it(tmp_path):
    text = PAIRS_TEXT.replace("VEHICLES : 1", "VEHICLES : 2")
    file = read(tmp_path, text.replace("DEPOT_S", "VEHICLES_ALLOWED_CLIENTS_SECTION\n1 3\n2 2 3\nDEPOT_S"))
    assert file.instance.eligible[0, :, 2:].tolist() == [[False, False], [True, True]]
    file.problem.validate(file.instance)


def test_prizes(tmp_path):
    """In tenths, cut: 14 + 36 + 50, and the prizes of 4 and 5. Customer 4 closes before anybody is there."""
    file = read(tmp_path, PRIZES_TEXT, "Route #1: 1 2\nCost: 230\n")
    problem, instance, tour = file.problem, file.instance, file.best_tour
    assert (problem.name, file.best_known, file.cost([1, 2, 0, 4, 0, 0])) == (
        "PCVRPTW",
        230,
        14 + 36 + 50 + 2 * 36 + 70,
    )
    problem.validate(instance)
    state = problem.initial(instance)
    for action in tour:
        assert problem.action_mask(instance, state)[0, action]
        state, _ = problem.step(instance, state, np.array([action]))
    assert problem.done(instance, state).all()
    assert problem.objective(instance, tour[None])[0] * file.scale == pytest.approx(23.0)
    with pytest.raises(InfeasibleTour, match="step 3: node 1 is left out, which the file forbids"):
        file.cost([2, 0, 0])
    assert data.write_tour(tmp_path / "tour.sol", file, tour) == 230
    np.testing.assert_array_equal(data.read_solution(tmp_path / "tour.sol", file).actions, tour)


def test_prizes_are_counted_as_pyvrp_counts_them(tmp_path):
    pyvrp = pytest.importorskip("pyvrp")
    file = read(tmp_path, PRIZES_TEXT)
    theirs = pyvrp.read(tmp_path / "file.vrp", round_func="dimacs")
    for routes, actions in (([[1, 2]], [1, 2, 0, 0]), ([[2, 1], [4]], [2, 1, 0, 4, 0, 0]), ([[1]], [1, 0, 0])):
        solution = pyvrp.Solution(theirs, [[node - 1 for node in route] for route in routes])  # clients from 0
        assert solution.is_feasible()
        assert file.cost(actions) == solution.distance() + solution.uncollected_prizes()


def test_least_duration_of_routes():
    """Against all departures, of random routes that keep their windows."""
    rng, compared = np.random.default_rng(0), 0
    for _ in range(300):
        legs = rng.integers(0, 6, 4).tolist()
        opens = rng.integers(0, 25, 4)
        windows = np.stack([opens, opens + rng.integers(0, 15, 4), rng.integers(0, 3, 4)], axis=1)
        windows[0] = 0, 40, 0
        rules = FleetRules(Counting(1, 1, 0), ((0,),), np.zeros(1), np.ones(1), windows, np.array([0]))
        nodes, durations = [0, 1, 2, 3, 0], []
        for departure in range(41):
            time = departure
            for leg, node in zip(legs, nodes[1:], strict=True):
                time += leg
                if time > windows[node, 1]:
                    break
                time = max(time, windows[node, 0]) + windows[node, 2]
            else:
                durations.append(time - departure)
        if durations:
            compared += 1
            assert rules.duration(nodes, legs) == min(durations)
    assert compared > 50


def test_such_files_are_read_only(tmp_path):
    with pytest.raises(ValueError, match="files with several vehicles, depots or pairs are read only; copy the file"):
        data.write_instance(tmp_path / "copy", read(tmp_path, PAIRS_TEXT))


# --- bad files


@pytest.mark.parametrize(
    ("text", "part", "replacement", "message"),
    [
        (FLEET_TEXT, "3 9\n", "", ":18: CAPACITY_SECTION: found 2 vehicles, expected VEHICLES 3; vehicle 3 is missing"),
        (FLEET_TEXT, "3 9\n", "3 9\n4 9\n", ":20: CAPACITY_SECTION: found vehicle 4, expected 1 to VEHICLES 3"),
        (
            FLEET_TEXT,
            "2 5\n3 9\n",
            "2 2\n3 9\n",
            ":18: CAPACITY_SECTION: no customer fits vehicle 2: its capacity is 2, the",
        ),
        (
            FLEET_TEXT,
            "2 5\n3 4",
            "2 11\n3 4",
            ":13: DEMAND_SECTION: node 2: its demand fits no vehicle that may serve it",
        ),
        (FLEET_TEXT, "1 0\n2 5", "1 1\n2 5", ":12: DEMAND_SECTION: found demand 1 at the depot, node 1; expected 0"),
        (
            FLEET_TEXT,
            "VEHICLES : 3\n",
            "VEHICLES : 3\nVEHICLES_FIXED_COST : 1\n",
            ":21: VEHICLES_FIXED_COST_SECTION: found ",
        ),
        (FLEET_TEXT, "DEPOT_SECTION\n1\n", "DEPOT_SECTION\n5\n", ":29: found depot 5, expected a node from 1 to 4"),
        (
            DEPOTS_TEXT,
            "2 2\nDEPOT",
            "2 1\nDEPOT",
            ":28: DEPOT_SECTION: no vehicle starts at depot 2; name it in the VEHIC",
        ),
        (
            DEPOTS_TEXT,
            "2 2\nDEPOT",
            "2 3\nDEPOT",
            ":25: VEHICLES_DEPOT_SECTION: vehicle 2 starts at node 3, which is no ",
        ),
        (
            DEPOTS_TEXT,
            "3 5 9",
            "3 1 2",
            ":21: TIME_WINDOW_SECTION: node 3: no vehicle that may serve it reaches it in time",
        ),
        (DEPOTS_TEXT, "1 0 30", "1 0 2001", ":18: TIME_WINDOW_SECTION: time 2001 exceeds 2000; choose a larger unit"),
        (
            DEPOTS_TEXT,
            "DURATION : 10",
            "DURATION : 7",
            ":21: TIME_WINDOW_SECTION: node 3: no vehicle that may serve it",
        ),
        (
            PAIRS_TEXT,
            "0 0 0 30 0 0 0",
            "0 0 0 13 0 0 0",
            ":12: PICKUP_AND_DELIVERY_SECTION: node 2: no vehicle that may",
        ),
        (
            SITES_TEXT,
            "2 2 3\n",
            "2 2\n",
            ":19: VEHICLES_ALLOWED_CLIENTS_SECTION: node 3: no vehicle may serve it; name it",
        ),
        (
            SITES_TEXT,
            "2 2 3\n",
            "2 1 3\n",
            ":21: VEHICLES_ALLOWED_CLIENTS_SECTION: found 1, which is no customer; leave it",
        ),
        (
            SITES_TEXT,
            "2 2 3\n",
            "2\n",
            ":21: VEHICLES_ALLOWED_CLIENTS_SECTION: found '2', expected 'vehicle client ...'",
        ),
        (
            PAIRS_TEXT,
            "30 1 0 2",
            "30 1 0 0",
            ":12: .* node 2 has its pickup at node 3, whose delivery is 0; expected 2",
        ),
        (
            PAIRS_TEXT,
            "2 -5 0 30 1 3 0",
            "2 5 0 30 1 0 0",
            ":12: .* node 2 is a pickup without its delivery; give the number",
        ),
        (
            PAIRS_TEXT,
            "2 -5",
            "2 -4",
            ":12: .* node 2 has demand -4, and its pickup, node 3, 5; expected the same amount",
        ),
        (
            PRIZES_TEXT,
            "1 0\n2 0\n3 20",
            "1 3\n2 0\n3 20",
            ":26: PRIZE_SECTION: found prize 3 at the depot, node 1; expect",
        ),
        (PRIZES_TEXT, "5 8\n", "5 80\n", ":18: DEMAND_SECTION: node 5: its demand fits no vehicle that may serve it"),
        (PRIZES_TEXT, "3 20\n", "3 -2\n", ":28: prize: found '-2', expected an integer of at"),
        (PRIZES_TEXT, "3 20\n4 7", "3 20\n4 0", ":23: TIME_WINDOW_SECTION: node 4: no vehicle that may serve it reach"),
        (
            PAIRS_TEXT,
            "DEPOT_SECTION",
            "PRIZE_SECTION\n1 0\n2 1\n3 1\nDEPOT_SECTION",
            "PRIZE_SECTION has no place beside PICKUP_AND_DELIVERY_SECTION",
        ),
        (FLEET_TEXT, "DEPOT_", "SERVICE_TIME : 3\nDEPOT_", ":28: SERVICE_TIME without TIME_WINDOW_SECTION is not supp"),
        (PAIRS_TEXT, "DEPOT_", "SERVICE_TIME : 3\nDEPOT_", "SERVICE_TIME has no place beside PICKUP_AND_DELIVERY_SECT"),
        (
            PAIRS_TEXT,
            "CAPACITY : 9",
            "CAPACITY : 4",
            ":4: CAPACITY: no customer fits vehicle 1: its capacity is 4, the lea",
        ),
    ],
)
def test_bad_files(text, part, replacement, message, tmp_path):
    assert part in text
    with pytest.raises(data.FileError, match=message):
        read(tmp_path, text.replace(part, replacement, 1))


@pytest.mark.parametrize(
    ("solution", "message"),
    [
        ("Route #1: 1\nRoute #2:\nRoute #3: 2 3\nCost: 3.86\n", ":4: found cost 3.86, but the routes cost 3.85 on"),
        ("Route #1: 2 3\nRoute #2: 1\nCost: 3.85\n", ":3: not a tour of .*: load 7 exceeds capacity 5 at node 4"),
        ("Route #1:\nRoute #2: 1\nRoute #3:\nRoute #4: 2 3\n", ":4: route 4 has no vehicle, VEHICLES are 3; list the"),
        ("Route #1: 0 1\n", ":1: found the depot, 0, within a route; leave it out"),
        ("Route #1: 4\n", ":1: found node 4, expected 0 to 3 as in"),
    ],
)
def test_bad_solutions(solution, message, tmp_path):
    with pytest.raises(data.InvalidFile, match=message):
        read(tmp_path, FLEET_TEXT, solution)
