"""Planning tasks with a user's own stops: tables, matrices and vehicles in; timetables, files and maps out.

    from routing_gym.planning import read_task
    task = read_task("stops.csv", vehicles={"count": 5, "capacity": 60})    # checked, in minutes and km
    print(task.sentence)

`routing_agents.solve` plans the task with trained policies and classical solvers.
"""

from routing_gym.planning.plan import Plan
from routing_gym.planning.reading import read_task
from routing_gym.planning.table import InvalidInput
from routing_gym.planning.task import Task
from routing_gym.planning.timetable import PlanData, PlannedRoute, Unserved, Visit

__all__ = ["InvalidInput", "Plan", "PlanData", "PlannedRoute", "Task", "Unserved", "Visit", "read_task"]
