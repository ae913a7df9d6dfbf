"""Searches that improve the tour of a file: with a model that solves parts of the tour again, or on its routes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from routing_agents.evaluation.sources import Source
from routing_agents.search.large_neighbourhood import neighbourhoods_of
from routing_agents.trained import TrainedModel, load, load_repair
from routing_gym.arrays import IntArray, batch_size
from routing_gym.data import FileInstance
from routing_gym.planning.from_instance import actions_of, stops_of, task_of, task_of_file
from routing_gym.planning.routes import Rules
from routing_gym.planning.search import Found, Search
from routing_gym.problem import AnyProblem, instance_fields

Keep = Callable[[float, IntArray], None]  # called every second with the seconds so far and the best actions (T,)


class Improver(ABC):
    """Search that improves a tour."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the search, for tables."""

    @abstractmethod
    def improve(self, source: Source, start: IntArray, seconds: float, seed: int, keep: Keep) -> bool:
        """Improve the tour (T,) of a file with one instance; return whether Ctrl-C ended the search.

        Args:
            source: The file.
            start: First tour.
            seconds: Time limit.
            seed: Random seed.
            keep: Called during the search and at its end.
        """


@dataclass(frozen=True, eq=False)
class PolicySearch(Improver):
    """Large-neighbourhood search in which a model solves parts of the tour again."""

    model: TrainedModel

    @property
    def name(self) -> str:
        return self.model.path.stem

    def improve(self, source: Source, start: IntArray, seconds: float, seed: int, keep: Keep) -> bool:
        legs = source.scaled_legs if isinstance(source, FileInstance) else None
        return self.model.improve(source.problem, source.instance, start, seconds, seed, keep, legs).interrupted


class PlanSearch(Improver):
    """The search of plans, which removes stops from routes and inserts them again; see `planning.search`."""

    name = "route search"

    @staticmethod
    def takes(problem: AnyProblem) -> bool:
        """Return whether it improves tours of a problem: routes with demands."""
        return "demand" in instance_fields(problem) and problem.plain_routes and problem.has_depot

    def improve(self, source: Source, start: IntArray, seconds: float, seed: int, keep: Keep) -> bool:
        problem = source.problem
        task = task_of_file(source) if isinstance(source, FileInstance) else task_of(problem, source.instance)

        def report(found: Found) -> None:
            if problem.visits_all and found.absent:  # not a tour
                keep(found.seconds, start)
            else:
                keep(found.seconds, actions_of(task, found.routes, found.absent))

        found = Search(Rules(task), stops_of(problem, start), seed=seed).run(seconds, report)
        report(found)
        return found.interrupted


def choose_improver(path: Path, source: Source, model: TrainedModel | None, named: Path | None) -> Improver:
    """Return the search for a file: with a model if one solves parts of the tour, else on the routes.

    The published models for parts read coordinates. With distances in the file, the search on the routes replaces them.

    Args:
        path: Path of the file, for messages.
        source: Contents of the file.
        model: Model that solves the file, and parts of its tour if no weights for them are published; None if a
            heuristic solves the file.
        named: Run folder or checkpoint of another model. Default: the published weights for the parts.

    Raises:
        ValueError: The file holds several instances, its tour cannot be improved, or the model does not fit its parts.
    """
    if (rows := batch_size(source.instance)) > 1:
        raise ValueError(f"{path} holds {rows} instances; --improve takes files with one")
    problem = source.problem
    if PlanSearch.takes(problem):
        if named is not None and problem.subproblem is None:
            raise ValueError(f"{path}: --repair {named} has no effect on {problem.name}; leave it out")
        given = isinstance(source, FileInstance) and source.matrix is not None
        if named is None and (given or problem.subproblem is None):
            return PlanSearch()
    option = "--improve"
    try:
        wanted, _ = neighbourhoods_of(problem).repaired_by(problem)
        if named is None:
            repair = load_repair(problem, otherwise=model)
        else:
            option = "--repair"
            repair = load(named)
    except ValueError as error:
        raise ValueError(f"{path}: {option}: {error}") from None
    if wanted not in repair.names:
        trained_on = repair.problem.name
        told = f"{path}: --repair {named} was trained on {trained_on}"
        raise ValueError(f"{told}; subproblems of {problem.name} are {wanted}")
    return PolicySearch(repair)
