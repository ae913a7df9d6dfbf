"""TSP: edges between nearby cities are removed, and a policy for the TSP with fixed edges reconnects the tour.

Li et al. (2025), "Destroy and repair using hyper-graphs for routing": the edges between the cities of a subproblem are
removed; each path of the tour outside it stays, contracted to a fixed edge between its ends. Deviations: a subproblem
is not a hyper-graph but an instance of TSPFE, whose policy is the attention model; subproblems are small and many, and
are solved in one decode.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from routing_agents.search.neighbourhood import MIN_GAIN, Effort, Neighbourhoods
from routing_gym.arrays import FloatArray, IntArray
from routing_gym.generators.subproblems import Windows, choose_windows, contract, random_views
from routing_gym.problem import AnyProblem
from routing_gym.problems.tspfe import TSPFE, TSPFEInstance

SMALLEST = 10  # smallest number of cities of a subproblem
PATIENCE = 12  # rounds without a gain before the tour is kicked; half as many after a kick
KICKED = 50  # consecutive cities among which a kick changes edges
MOST_TOURS = 2048  # tours in one decode


class WindowSearch(Neighbourhoods):
    """Search that improves a closed tour; after rounds without a gain, it continues from a changed best tour.

    Lourenco, Martin and Stützle (2003), "Iterated local search". The random change (kick) is the double bridge of
    Martin, Otto and Felten (1991), within a few consecutive cities.
    """

    parts: ClassVar[str] = "TSPFE"
    trained_with: ClassVar[str] = "--sizes 10 40 --generator windows --force-starts"
    default_effort: ClassVar[Effort] = Effort(size=40, views=1, tours=16)

    @classmethod
    def repaired_by(cls, problem: AnyProblem) -> tuple[str, int]:
        return cls.parts, 30

    def take_up(self, actions: IntArray) -> None:
        from scipy.spatial import cKDTree  # not needed by `load`, and slow to load

        most = min(self.effort.size, len(self.coords))
        self.near = cKDTree(self.coords).query(self.coords, most)[1].reshape(-1, most)
        self.move_to(actions)
        self.best, self.shortest, self.idle = self.tour, self.length(), 0

    def move_to(self, tour: IntArray) -> None:
        """Set the current tour."""
        self.tour = tour
        self.place = np.empty_like(tour)  # position of each city on the tour
        self.place[tour] = np.arange(len(tour))

    def actions(self) -> IntArray:
        return self.best

    def cost(self) -> float:
        return self.shortest

    def length(self) -> float:
        """Return the length of the current tour."""
        return float(self.legs(self.tour, np.roll(self.tour, -1)).sum())

    def round(self) -> None:
        self.repair()
        if (length := self.length()) < self.shortest - MIN_GAIN:
            self.best, self.shortest, self.idle = self.tour, length, 0
            return
        self.idle += 1
        if self.idle == PATIENCE and len(self.best) > 3:
            self.idle -= PATIENCE // 2
            self.move_to(double_bridge(self.best, self.rng))

    def repair(self) -> None:
        """Solve subproblems again, and accept those that got shorter."""
        effort = self.effort
        size = min(len(self.coords), int(self.rng.integers(SMALLEST, effort.size + 1)))
        num_tours = min(effort.tours, size)
        most = max(1, MOST_TOURS // (effort.views * num_tours))
        centres = self.rng.permutation(len(self.tour))
        chosen = choose_windows(self.near, self.tour, self.place, centres, size, most)
        windows = contract(self.tour, self.place, chosen)
        cities, partner, num_windows = windows.cities, windows.partner, len(windows.cities)
        if not num_windows:
            return
        coords = random_views(np.repeat(self.coords[cities], effort.views, axis=0), self.rng)
        partners = np.repeat(partner, effort.views, axis=0)
        part = TSPFEInstance(coords, partners, self.lengths_of(cities, effort.views))
        tours = self.play(TSPFE(size), part, num_tours, sample=False).reshape(num_windows, -1, size)
        row = np.arange(num_windows)[:, None, None]
        after = np.roll(tours, -1, axis=2)
        legs = self.legs(cities[row, tours], cities[row, after])
        legs[partner[row, tours] == after] = 0  # fixed edges stand for paths that stay
        legs[partner[row, after] == tours] = 0
        cost = legs.sum(axis=2)
        best = cost.argmin(axis=1)
        gain = self.fallen_length(windows) - cost[np.arange(num_windows), best]
        for window in np.flatnonzero(gain > MIN_GAIN).tolist():
            self.accept(windows, window, tours[window, best[window]])

    def fallen_length(self, windows: Windows) -> FloatArray:
        """Return the length of the removed edges of each subproblem: float64 (W,)."""
        following = np.where(
            np.arange(windows.cities.shape[1]) == windows.count[:, None] - 1,
            windows.cities[:, :1],
            np.roll(windows.cities, -1, 1),
        )
        return np.where(windows.falls, self.legs(windows.cities, following), 0).sum(axis=1)

    def accept(self, windows: Windows, window: int, tour: IntArray) -> None:
        """Insert the new edges of one subproblem into the tour, unless the tour would fall apart.

        The edges formed one tour when the subproblem was solved. Since then, other subproblems may have changed which
        of its cities are joined by the paths outside.

        Args:
            windows: Subproblems of the round.
            window: Index of the subproblem.
            tour: Columns of the subproblem in their new order: int64 (k,).
        """
        count = windows.count[window]
        cities, column = windows.cities[window, :count], np.arange(count)
        planned = np.where(windows.partner[window, :count] < count, windows.partner[window, :count], column)
        order = np.argsort(self.place[cities])
        following = np.roll(order, -1)
        start = self.place[cities[order]]
        end = np.append(start[1:], start[0] + len(self.tour))
        is_path = end - start > 1
        path, onward = order[is_path], following[is_path]
        partner = column.copy()
        partner[path], partner[onward] = onward, path
        tour = reconnect(tour[tour < count], planned, partner)
        if len(tour) < count:
            return
        if partner[tour[0]] == tour[-1]:
            tour = np.roll(tour, 1)
        heads = tour[np.append(True, partner[tour[1:]] != tour[:-1])]  # a whole path is inserted at its first end
        whole = np.append(np.roll(self.tour, -start[0]), self.tour[start[0]])
        begins, stops, turned = np.empty_like(order), np.empty_like(order), np.zeros(count, dtype=bool)
        begins[order] = start - start[0]
        stops[order] = begins[order] + 1
        begins[onward], stops[path] = begins[path], end[is_path] - start[0] + 1
        stops[onward], turned[onward] = stops[path], True
        spans = zip(begins[heads].tolist(), stops[heads].tolist(), turned[heads].tolist(), strict=True)
        self.move_to(np.concatenate([whole[a:b][::-1] if back else whole[a:b] for a, b, back in spans]))


def double_bridge(tour: IntArray, rng: np.random.Generator) -> IntArray:
    """Exchange two neighbouring paths of a tour of at least four cities, within `KICKED` consecutive cities."""
    turned = np.roll(tour, -rng.integers(len(tour)))
    a, b, c = np.sort(rng.choice(np.arange(1, min(KICKED, len(tour)) + 1), 3, replace=False))
    return np.concatenate([turned[:a], turned[b:c], turned[a:b], turned[c:]])


def reconnect(tour: IntArray, planned: IntArray, partner: IntArray) -> IntArray:
    """Replace the fixed edges of a tour, and follow it from its first city until it returns there.

    Args:
        tour: Closed tour of columns 0 to k - 1: int64 (k,).
        planned: Other end of each column's fixed edge when the tour was computed: int64 (k,); itself for none.
        partner: Other end of the fixed edge that replaces it, on the same columns: int64 (k,).

    Returns:
        All columns in the new order; or fewer, if the edges now form several tours.
    """
    before, after = np.empty_like(tour), np.empty_like(tour)
    before[tour], after[tour] = np.roll(tour, 1), np.roll(tour, -1)
    has_edge = planned != np.arange(len(tour))
    before, after = (np.where(has_edge & (x == planned), partner, x).tolist() for x in (before, after))
    first = last = int(tour[0])
    here, walked = after[first], [first]
    while here != first and len(walked) <= len(tour):
        walked.append(here)
        last, here = here, before[here] if after[here] == last else after[here]
    return np.array(walked)
