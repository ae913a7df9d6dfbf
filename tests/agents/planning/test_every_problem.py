"""Every problem of `LISTED` is solved from a table that is generated from its columns."""

import numpy as np
import pytest

import routing_agents
from routing_gym.data import from_columns
from routing_gym.planning import read_task
from routing_gym.planning.recognise import kinds
from routing_gym.problems import LISTED, PROBLEMS, make_problem
from routing_gym.traits import Column

pytestmark = pytest.mark.usefixtures("processor_time")

NUM_NODES = 6


def values_of(column: Column, instance) -> np.ndarray | float:
    """Return the values of a column of a drawn instance; a field of None is a number that others are divided by."""
    if column.target is None:
        return 1.0
    value = getattr(instance, column.target)[0]
    return np.asarray(value, dtype=float) if column.per == "node" else float(value)


def table_of(problem: str) -> tuple[dict, dict, np.ndarray | None]:
    """Return the columns of a drawn instance, the numbers of the whole instance, and its matrix if it needs one."""
    rules = make_problem(problem, NUM_NODES)
    instance = rules.generate(np.random.default_rng(5), 1)
    columns, numbers, matrix = {}, {}, None
    for column in rules.columns:
        if not column.required:
            continue
        value = values_of(column, instance)
        if column.kind == "coords":
            columns |= {"x": value[:, 0], "y": value[:, 1]}
        elif column.kind == "matrix":
            matrix = value
        elif column.per == "node":
            columns[column.name] = value
        else:
            numbers[column.name] = value
    return columns, numbers, matrix


def as_planned(columns: dict) -> dict:
    """Return columns of a planner's table, where pickup is an amount beside demands."""
    return {"pickup_at" if key == "pickup" and "demand" in columns else key: x for key, x in columns.items()}


def actions_of(plan, has_depot: bool) -> np.ndarray:
    """Return a plan's routes as actions."""
    if not has_depot:
        return np.array(plan.routes[0].rows[:-1])
    return np.array([node for route in plan.routes for node in (*(visit.row for visit in route.stops), 0)] or [0])


PLANNED = [name for name, _ in kinds() if name in LISTED]


@pytest.mark.parametrize("problem", PLANNED)
def test_every_problem_is_solved_from_its_columns(problem):
    """The cost of the plan is that of the problem's own rules, which check the tour too."""
    columns, numbers, matrix = table_of(problem)
    plan = routing_agents.solve(
        as_planned(columns) or None, distances=matrix, problem=problem, solver="auto", seconds=0.2, **numbers
    )
    own = from_columns(problem, columns | numbers | ({} if matrix is None else {"distances": matrix}))
    assert plan.problem == problem
    assert plan.cost == pytest.approx(own.cost(actions_of(plan, PROBLEMS[problem].has_depot)), rel=1e-5)
    assert len(plan.costs) > 1 or own.problem.stochastic
    best = max if own.problem.maximises else min
    assert plan.cost == best(plan.costs.values())


@pytest.mark.parametrize("problem", [name for name in PLANNED if name not in ("SDVRP", "VRPMB")])
def test_columns_tell_the_problem(problem):
    """But for SDVRP, which has the columns of CVRP, and mixed backhauls, those of backhauls."""
    columns, numbers, matrix = table_of(problem)
    vehicles = {"open": make_problem(problem, NUM_NODES).open_routes}
    assert read_task(as_planned(columns) or None, vehicles=vehicles, distances=matrix, **numbers).problem == problem


def test_problems_that_no_plan_is_made_for():
    with pytest.raises(ValueError, match="problem MDVRP is not accepted for plans; leave it out"):
        read_task({"x": [0, 1], "y": [0, 1], "demand": [0, 1]}, problem="MDVRP", vehicles={"capacity": 2})


FLAGS = {"demand": [0, 5, 5, 5, 5, 5, 5], "backhaul": [0, 0, 1, 0, 1, 0, 1]}
AMOUNTS = {"demand": [0, 5, 0, 5, 0, 5, 0], "pickup": [0, 0, 5, 0, 5, 0, 5]}


@pytest.mark.parametrize(
    ("columns", "problem", "rules"),
    [
        (AMOUNTS, None, "VRPMB"),
        (FLAGS, None, "VRPB"),
        *((columns, name, name) for columns in (AMOUNTS, FLAGS) for name in ("VRPMB", "VRPB")),
    ],
)
def test_the_order_of_pickups(columns, problem, rules):
    """Six stops on a circle of 10 km, every second one a pickup: once around, or the deliveries first."""
    angles = np.arange(6) * np.pi / 3
    stops = {"x": [0, *(10 * np.cos(angles))], "y": [0, *(10 * np.sin(angles))], **columns}
    plan = routing_agents.solve(stops, vehicles={"count": 1, "capacity": 15}, problem=problem, seconds=0.2)
    assert plan.problem == rules
    assert plan.cost == pytest.approx({"VRPMB": 70, "VRPB": 99.28}[rules], abs=0.01)


def test_a_stop_with_both_amounts_needs_an_order():
    stops = {"x": [0, 1, 2], "y": [0, 0, 0], "demand": [0, 4, 4], "pickup": [0, 3, 0]}
    with pytest.raises(
        ValueError, match="row 1, column pickup: found 3; with deliveries first, a stop has a delivery or"
    ):
        read_task(stops, vehicles={"capacity": 20}, problem="VRPB")


def test_amounts_need_a_capacity():
    stops = {"x": [0, 1, 2], "y": [0, 0, 0], "pickup": [0, 2, 7]}
    with pytest.raises(ValueError, match="found 7; expected the number of a row, .*; for amounts, give the vehicles a"):
        read_task(stops, vehicles=2)


@pytest.mark.parametrize(("problem", "is_open", "told"), [("CVRP", True, "return to"), ("OVRP", False, "stay at")])
def test_open_contradicts_the_problem(problem, is_open, told):
    stops = {"x": [0, 1, 2], "y": [0, 0, 0], "demand": [0, 1, 1]}
    with pytest.raises(
        ValueError, match=f"column open: found {is_open}, and vehicles of {problem} {told} .*; leave out"
    ):
        read_task(stops, vehicles={"capacity": 9, "open": is_open}, problem=problem)
    assert read_task(stops, vehicles={"capacity": 9, "open": not is_open}, problem=problem).open is not is_open


@pytest.mark.parametrize("vehicles", [2.5, [3, 4]])
def test_what_vehicles_may_be(vehicles):
    with pytest.raises(ValueError, match="vehicles: found .*, a dictionary of columns, or a whole number of vehicles"):
        read_task({"x": [0, 1], "y": [0, 1], "demand": [0, 1]}, vehicles=vehicles)
