"""Cuts for `milp`: subtours from minimum cuts, and sets of customers too far apart for one tour."""

from __future__ import annotations

from itertools import combinations, permutations

import numpy as np

from routing_gym.arrays import FloatArray, IntArray
from routing_gym.optional import require
from routing_gym.solvers.exact.milp_program import Program

MIN_VIOLATION = 0.02  # minimum violation of a cut that is added to the relaxation
CAPACITY_SCALE = 10**6  # SciPy's maximum flow takes integers
USED = 1e-6  # smaller values of an edge are rounding errors
MAX_CONFLICTS = 200  # maximum number added at a time


def violated_subtours(program: Program, values: FloatArray) -> list[tuple[IntArray, int]]:
    """Find sets S and nodes k in S with x(E(S)) > y(S) - y_k, which is x(edges leaving S) < 2 y_k.

    For each k, a minimum cut between node 0 and k is computed. Both the largest and the smallest S of the minimum cuts
    are returned; the small ones save most of the rounds.
    """
    csgraph, sparse = require("scipy.sparse.csgraph", "solvers"), require("scipy.sparse", "solvers")
    size = program.num_nodes
    visited, used = values[:size], values[size:] > USED
    i, j = program.ends[used].T
    weight = values[size:][used]
    pairs = (i > 0) & (weight > np.minimum(visited[i], visited[j]) + MIN_VIOLATION)
    cuts = {
        (a, b): a if visited[a] > visited[b] else b for a, b in zip(i[pairs].tolist(), j[pairs].tolist(), strict=True)
    }
    capacity = np.rint(weight * CAPACITY_SCALE).astype(np.int32)
    graph = sparse.csr_array((np.r_[capacity, capacity], (np.r_[i, j], np.r_[j, i])), shape=(size, size))
    covered = np.zeros(size, dtype=bool)
    for node in np.argsort(-visited):
        if node == 0 or covered[node] or visited[node] < MIN_VIOLATION:
            continue
        flow = csgraph.maximum_flow(graph, 0, node)
        if flow.flow_value >= (2 * visited[node] - MIN_VIOLATION) * CAPACITY_SCALE:
            continue
        residual = graph - flow.flow
        residual.eliminate_zeros()
        near_depot = csgraph.breadth_first_order(residual, 0, return_predecessors=False)
        largest = np.setdiff1d(np.arange(size), near_depot)
        smallest = np.sort(csgraph.breadth_first_order(residual.T.tocsr(), node, return_predecessors=False))
        covered[smallest] = True
        for inside in (largest, smallest):
            if len(inside) > 1:
                cuts[tuple(inside.tolist())] = int(inside[np.argmax(visited[inside])])
    return [(np.array(inside), node) for inside, node in cuts.items()]


def subtours(program: Program, values: FloatArray) -> list[IntArray]:
    """Return the subtours of an integer solution that miss node 0, as sets of nodes."""
    csgraph, sparse = require("scipy.sparse.csgraph", "solvers"), require("scipy.sparse", "solvers")
    size = program.num_nodes
    i, j = program.ends[values[size:] > 0.5].T
    graph = sparse.csr_array((np.ones(len(i)), (i, j)), shape=(size, size))
    _, label = csgraph.connected_components(graph, directed=False)
    others = np.setdiff1d(label[values[:size] > 0.5], label[0])
    return [np.flatnonzero(label == other) for other in others]


def conflicting_sets(program: Program, distances: FloatArray, limit: float) -> list[IntArray]:
    """Find sets that exceed a tour of limited length: exclude nodes and edges, and return pairs and triples.

    Without these, the relaxation of a short OP tour is up to 40 % off. Lengths are those of shortest paths, so that
    they bound every tour even without the triangle inequality.

    Returns:
        Pairs (P, 2) and triples (P, 3) of nodes that cannot all be on one tour.
    """
    csgraph = require("scipy.sparse.csgraph", "solvers")
    path = csgraph.shortest_path(csgraph.csgraph_from_dense(distances, null_value=np.inf))  # 0 is a distance
    size = program.num_nodes
    reachable = path[0] + distances[0] <= limit  # the return to the depot is direct
    program.high[:size][~reachable] = 0.0
    i, j = program.ends.T
    program.high[size:][path[0, i] + distances[i, j] + path[j, 0] > limit] = 0.0
    nodes = np.flatnonzero(reachable)
    nodes = nodes[nodes > 0]
    found: list[IntArray] = []
    for count in (2, 3):
        sets = np.array(list(combinations(nodes.tolist(), count)), dtype=np.int64).reshape(-1, count)
        shortest = np.full(len(sets), np.inf)
        for order in permutations(range(count)):
            stops = np.pad(sets[:, order], ((0, 0), (1, 1)))
            shortest = np.minimum(shortest, path[stops[:, :-1], stops[:, 1:]].sum(axis=1))
        found.append(sets[shortest > limit])
    return found


def violated_conflicts(conflicts: list[IntArray], values: FloatArray) -> list[IntArray]:
    """Return the sets of which the relaxation visits more than all but one, the worst first."""
    violated: list[IntArray] = []
    for sets in conflicts:
        excess = values[sets].sum(axis=1) - (sets.shape[1] - 1)
        worst = np.argsort(-excess, kind="stable")[:MAX_CONFLICTS]
        violated.extend(sets[worst[excess[worst] > MIN_VIOLATION]])
    return violated
