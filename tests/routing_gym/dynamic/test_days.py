"""Static instances and days: files, the competition's requests, days of our own, what is refused."""

import json
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest

from helpers import SHARED
from routing_gym.dynamic import GeneratedDays, ResampledDays, StaticInstance, read_static, rules
from routing_gym.dynamic.days import NEVER, check_day, latest_departures
from routing_gym.files import FileError, InvalidFile, UnsupportedFile
from routing_gym.problem import InvalidInstance

ORTEC = SHARED / "ortec"
needs_ortec = pytest.mark.skipif(not (ORTEC / "requests.json").exists(), reason=f"{ORTEC} is not there")
DAYS = json.loads((ORTEC / "requests.json").read_text()) if (ORTEC / "requests.json").exists() else {"none/0": []}

# The depot and two customers in a line: 10 s from one to the next, 15 s back.
FILE = """NAME : line
COMMENT : by hand
TYPE : VRPTW
DIMENSION : 3
EDGE_WEIGHT_TYPE : EXPLICIT
VEHICLES : 2
EDGE_WEIGHT_FORMAT : FULL_MATRIX
CAPACITY : 5
EDGE_WEIGHT_SECTION
7 10 20
15 7 10
30 15 7
NODE_COORD_SECTION
1 0 0
2 10 0
3 20 0
DEMAND_SECTION
1 0
2 3
3 4
DEPOT_SECTION
1
-1
SERVICE_TIME_SECTION
1 0
2 5
3 6
TIME_WINDOW_SECTION
1 0 200
2 40 60
3 90 120
EOF
"""


@pytest.fixture
def line(tmp_path):
    path = tmp_path / "line.txt"
    path.write_text(FILE)
    return path


def test_a_file_is_read(line):
    static = read_static(line)
    assert static.durations.tolist() == [[0, 10, 20], [15, 0, 10], [30, 15, 0]]  # the diagonal is ignored
    assert static.time_window.tolist() == [[0, 200], [40, 60], [90, 120]]
    assert static.demand.tolist() == [0, 3, 4]
    assert static.service_time.tolist() == [0, 5, 6]
    assert (static.capacity, static.name, static.coords.tolist()) == (5, "line", [[0, 0], [10, 0], [20, 0]])


def each_alone(day, chosen, leaving):
    """Route each request alone."""
    ids = np.flatnonzero(chosen[0]) + 1
    return np.stack([ids, 0 * ids], axis=1).reshape(1, -1)


@needs_ortec
@pytest.mark.parametrize("key", DAYS)
def test_requests_are_those_of_the_competition(key):
    """Bit for bit; so are the requests that must leave, and what they cost with a route for each."""
    name, seed = key.split("/")
    env = gym.make("routing/DVRPTW", static=ORTEC / f"{name}.txt", router=each_alone)
    _, info = env.reset(seed=int(seed))
    for number, epoch in enumerate(DAYS[key]):
        assert info["epoch"] == epoch["epoch"]
        new = info["new_requests"]
        for ours, theirs in (("customer", "customer"), ("time_window", "time_window"), ("demand", "demand")):
            assert new[ours].tolist() == epoch[theirs]
        assert new["service_time"].tolist() == epoch["service"]
        action = env.unwrapped.must_go_action()
        assert (np.flatnonzero(action) + 1).tolist() == epoch["must_dispatch"]
        _, reward, terminated, _, info = env.step(action)
        assert reward == -epoch["driving_duration"]
        assert terminated == (number == len(DAYS[key]) - 1)
        assert info["routes"] == [[request] for request in epoch["must_dispatch"]]


def test_infeasible_candidates_are_dropped(line):
    """Epochs of 50 s, no margin: customer 1's window [40, 60] can be kept by who leaves by 50, customer 2's by 100.

    Leaving at 0, every combination of customer and window is in time; leaving at 50, the window [40, 60] for customer 2
    (20 away) is not. Epochs are those before the last window opens, at 90: 0 and 1.
    """
    source = ResampledDays(read_static(line), epoch_duration=50, margin=0, max_requests=40)
    assert source.epochs == (0, 1)
    day = source.draw([np.random.default_rng(3)])
    drawn = np.random.default_rng(3)
    for epoch in (0, 1):
        customer, window, demand, service = (1 + drawn.integers(2, size=40) for _ in range(4))
        kept = (customer == 1) | (window == 2) if epoch else np.ones(40, bool)
        found = day.arrival[0] == epoch
        assert day.customer[0, found].tolist() == customer[kept].tolist()
        assert day.time_window[0, found, 0].tolist() == np.where(window == 1, 40, 90)[kept].tolist()
        assert day.demand[0, found].tolist() == np.where(demand == 1, 3, 4)[kept].tolist()
        assert day.service_time[0, found].tolist() == np.where(service == 1, 5, 6)[kept].tolist()
    assert (day.arrival[0, np.count_nonzero(day.arrival < NEVER) :] == NEVER).all()


@pytest.mark.parametrize("layout", ["uniform", "clustered"])
def test_generated_days(layout):
    source = GeneratedDays(layout=layout, requests=8.0, num_epochs=5, asymmetry=0.3)
    day = source.draw([np.random.default_rng(seed) for seed in range(300)])
    check_day(day, source)
    exists = day.arrival < NEVER
    per_epoch = [(day.arrival == epoch).sum() / 300 for epoch in range(5)]
    assert sum(per_epoch) / 5 == pytest.approx(8.0, abs=0.2)  # standard error 0.05
    assert per_epoch[2] > 1.5 * per_epoch[0]  # noon and morning
    there, via = day.durations[:, :, None, :], day.durations[:, :, :, None] + day.durations[:, None, :, :]
    assert (there[:3] <= via[:3]).all()  # the triangle inequality
    assert (day.durations != day.durations.transpose(0, 2, 1)).mean() > 0.5
    service = day.service_time[exists]
    assert np.median(service) == pytest.approx(300, rel=0.05)
    assert np.log(service).std() == pytest.approx(0.5, rel=0.1)
    alone = source.draw([np.random.default_rng(7)])
    assert np.array_equal(alone.customer[0], day.customer[7])  # a lane's day does not depend on the others
    assert (alone.durations[0] == day.durations[7]).all()


@pytest.mark.parametrize(
    ("old", "new", "error", "match"),
    [
        ("TIME_WINDOW_SECTION\n1 0 200\n2 40 60\n3 90 120\n", "", InvalidFile, "ends without TIME_WINDOW_SECTION"),
        ("30 15 7\n", "30 15\n", InvalidFile, "found 8 numbers, expected 9"),
        ("3 90 120", "3 9 19", InvalidFile, ":31: this customer cannot be served: .* reaches it at 20.0, after 19.0"),
        ("1 0 200", "1 0 100", InvalidFile, ":31: this customer cannot be served: .* is back at 126.0, after 100.0"),
        ("3 90 120", "3 90 80", InvalidFile, "closes at 80, before it opens at 90"),
        ("3 4\nDEPOT", "3 6\nDEPOT", InvalidFile, "found 6, expected at most the CAPACITY 5"),
        ("EXPLICIT", "EUC_2D", InvalidFile, "EDGE_WEIGHT_SECTION has no place with EDGE_WEIGHT_TYPE EUC_2D"),
        ("TYPE : VRPTW", "TYPE : CVRP", InvalidFile, "VEHICLES is not allowed with TYPE CVRP, only with VRPTW"),
        ("1 0 200", "1 5 200", InvalidFile, "the depot opens at 5"),
        ("20\n15", "x\n15", InvalidFile, "line.txt:10: EDGE_WEIGHT_SECTION: found 'x'"),
    ],
)
def test_bad_files(line, old, new, error, match):
    assert old in FILE
    line.write_text(FILE.replace(old, new))
    with pytest.raises(error, match=match):
        gym.make("routing/DVRPTW", static=str(line))


def test_files_without_durations(line):
    text = FILE.replace("EXPLICIT", "EUC_2D").replace("EDGE_WEIGHT_FORMAT : FULL_MATRIX\n", "")
    line.write_text(text.replace("EDGE_WEIGHT_SECTION\n7 10 20\n15 7 10\n30 15 7\n", ""))
    with pytest.raises(UnsupportedFile, match="found VRPTW with EDGE_WEIGHT_TYPE EUC_2D; expected .* EXPLICIT"):
        read_static(line)


def test_missing_files(tmp_path):
    with pytest.raises(FileNotFoundError, match="none.txt"):
        read_static(tmp_path / "none.txt")
    (tmp_path / "empty").write_text("")
    with pytest.raises(FileError, match="empty"):
        read_static(tmp_path / "empty")


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"durations": np.zeros((2, 3), int)}, r"durations: found shape \(2, 3\), expected \(2, 2\)"),
        ({"time_window": np.zeros((2, 2), int)}, r"time_window: found shape \(2, 2\), expected \(3, 2\)"),
        ({"demand": np.array([0, 3])}, r"demand: found shape \(2,\), expected \(3,\)"),
        ({"service_time": np.array([0.0, 1.0, 2.0])}, "service_time: found float64, expected integers"),
        ({"durations": np.full((3, 3), -1)}, r"durations\[0, 1\] is -1"),
        ({"capacity": 0}, "capacity: found 0"),
        ({"time_window": np.zeros((3, 2), int)}, "the depot closes at 0, when it opens"),
        ({"capacity": 3}, "customer 2 is unreachable: its demand exceeds the capacity 3"),
        ({"coords": np.zeros((2, 2))}, r"coords: expected finite numbers of shape \(3, 2\)"),
        ({"coords": "abc"}, "coords: expected an array of numbers"),
        ({"durations": [[0, 1], [1]]}, "durations: expected an array of numbers"),
    ],
)
def test_bad_static_instances(line, change, match):
    with pytest.raises(InvalidInstance, match=match):
        replace(read_static(line), **change)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"customer": np.full((1, 4), 9)}, "found 9, expected locations from 0 to 2"),
        ({"demand": np.full((1, 4), 6)}, "request 1: demand exceeds the capacity"),
        ({"arrival": np.full((1, 4), 9)}, "request 1: arrives outside the day"),
        ({"arrival": np.array([[1, 0, 0, 0]])}, "request 2: arrives before the request ahead of it"),
        ({"durations": np.zeros((1, 2, 2), int)}, r"durations: found int64 \(1, 2, 2\), expected"),
        ({"coords": None}, "coords: found NoneType"),
        ({"coords": np.full((1, 3, 2), 2.0)}, "coords: found numbers outside of 0 to 1"),
        ({"coords": np.full((1, 3, 2), np.nan)}, "coords: found numbers outside of 0 to 1"),
        ({"epoch_duration": np.zeros(1, int)}, "epoch_duration: found 0, expected at least 1"),
        ({"capacity": np.zeros(1, int)}, "capacity: found 0, expected at least 1"),
        ({"durations": np.full((1, 3, 3), 7)}, "durations: found 7 on the diagonal, expected 0"),
        ({"arrival": None}, "arrival: found NoneType, expected int64"),
        ({"first_epoch": np.full(1, 9)}, "first_epoch: row 0 begins in epoch 9, after the last, 1"),
    ],
)
def test_bad_days(line, change, match):
    env = gym.make("routing/DVRPTW", static=line, epoch_duration=50, margin=0, max_requests=2).unwrapped
    env.reset(seed=2)
    with pytest.raises(InvalidInstance, match=match):
        env.reset(options={"instance": replace(env.day, **change)})


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"requests": -1}, ValueError, "requests must be a finite number of at least 0"),
        ({"layout": "ring"}, ValueError, "layout must be one of uniform, clustered"),
        ({"max_requests": 5}, ValueError, "max_requests 5 is too small: .*; choose at least"),
        ({"capacity": 8}, ValueError, "capacity must be an integer of at least 9"),
        (
            {"rate": 3},
            TypeError,
            "unexpected keyword argument 'rate'; settings of generated days are num_customers.*margin; "
            "other keywords of DynamicVRPTWEnv: static, source, action, router, on_illegal, observe_durations, ",
        ),
        ({"action": "both"}, ValueError, "action must be one of dispatch, route"),
        ({"router": "best"}, ValueError, "router must be one of nearest"),
        ({"router": "pyvrp", "action": "route"}, ValueError, "router 'pyvrp' has no effect with action=\"route\""),
        ({"router": 3}, TypeError, "router: expected a name or a function"),
        ({"static": 3}, TypeError, "static: expected a path or a StaticInstance, got int"),
        ({"on_illegal": "ignore"}, ValueError, "on_illegal must be one of terminate, raise"),
    ],
)
def test_bad_arguments(arguments, error, match):
    with pytest.raises(error, match=match):
        gym.make("routing/DVRPTW", **arguments)


def test_units_that_leave_no_request(line):
    """The windows of the file close at 120; by default, the first vehicles leave at 3600."""
    with pytest.raises(ValueError, match="first epoch leave at 3600, after the last time window has closed at 120"):
        gym.make("routing/DVRPTW", static=line)


def test_instances_without_coordinates_show_durations(line):
    env = gym.make("routing/DVRPTW", static=replace(read_static(line), coords=None), margin=0)
    observation, _ = env.reset(seed=0)
    assert "coords" not in observation
    assert observation["durations"] * 200 == pytest.approx(np.array([[0, 10, 20], [15, 0, 10], [30, 15, 0]]))
    assert env.observation_space.contains(observation)


def test_must_go_is_one_epoch_before_too_late(line):
    """By hand: customer 2 (20 there, 30 back) in the window [90, 120], service 6, closing 200: it can leave by 100."""
    static = read_static(line)
    day = ResampledDays(static, epoch_duration=50, margin=0, max_requests=1).draw([np.random.default_rng(0)])
    day = replace(
        day,
        arrival=np.array([[0, 0]]),
        customer=np.array([[2, 1]]),
        time_window=np.array([[[90, 120], [40, 60]]]),
        service_time=np.array([[6, 5]]),
    )
    assert latest_departures(day).tolist() == [[100, 50]]
    day = replace(day, last_epoch=np.array([3]))
    state = rules.initial(day)
    expected = [[False, False], [False, True], [True, True]]  # leaving at 0 and 50 the next departures are 50 and 100
    for flags in expected:
        assert rules.must_go(day, state).tolist() == [flags]
        state = replace(state, epoch=state.epoch + 1)


def test_service_ends_before_the_way_home(day):
    """Closing at 130: at request 1, 5 of service and 10 home, by 115, leaving at 105; at 2 by 100, leaving at 80."""
    early = replace(day, closing=np.array([130]))
    assert latest_departures(early)[0, :2].tolist() == [115 - 10, 100 - 20]


def test_rates_by_hand():
    """A day of one epoch has no morning: 8 of 16 slots. Of two, both are as far from noon."""
    assert GeneratedDays(num_epochs=1, requests=8.0).rates() == pytest.approx([0.5])
    assert GeneratedDays(num_epochs=2, requests=8.0).rates() == pytest.approx([0.5, 0.5])


def test_climbing_takes_longer():
    """500 s in the plane, rounded up; half the height at a tenth of 1000 s takes 50 more upwards, and none down.

    The depot closes when who leaves last is back from the far corner at full height: 2 sqrt(2) 1000 + 100, rounded up
    twice, and the longest service, 4 x 10.
    """
    source = GeneratedDays(
        num_epochs=2, crossing=1000, asymmetry=0.1, service=10.0, epoch_duration=300, margin=60, requests=1.0
    )
    durations = source._durations(np.array([[[0.0, 0.0], [0.3, 0.4]]]), np.array([[0.0, 0.5]]))
    assert durations.tolist() == [[[0, 550], [500, 0]]]
    assert source.closing == 2 * 300 + 60 + 2929 + 40 + 2


def test_the_diagonal_is_ignored(line):
    static = read_static(line)
    durations = static.durations - 5 * np.eye(3, dtype=int)
    assert np.array_equal(replace(static, durations=durations).durations, static.durations)


def test_static_instances_are_their_own(line):
    """The arrays given are copied: changing them later changes nothing."""
    durations = np.array([[0, 1], [1, 0]])
    static = StaticInstance(durations, np.array([[0, 9], [0, 9]]), np.array([0, 1]), np.array([0, 1]), 1)
    durations[:] = 5
    assert static.durations.tolist() == [[0, 1], [1, 0]]
