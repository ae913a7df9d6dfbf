"""Loop of a random policy in routing-gym, on NumPy; started by `env_peers.py`, see `playing.py`."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from playing import Way, clock, playing
from worker import serve

from routing_gym import make_problem
from routing_gym.rollout import rollout


def random_legal(mask: Any, rng: np.random.Generator) -> Any:
    """Draw uniformly among the legal nodes of each row: draw the rank of a node, with one random number per row."""
    num_rows, num_nodes = mask.shape
    ends = np.arange(0, num_rows * num_nodes + 1, num_nodes)
    legal = mask.ravel().view(np.bool_).nonzero()[0]  # legal nodes of all rows, row by row
    first = legal.searchsorted(ends)  # index of the first legal node of each row
    rank = rng.random(num_rows) * (first[1:] - first[:-1])
    return legal[first[:-1] + rank.astype(np.int64)] - ends[:-1]


def prepare(name: str, num_nodes: int, lanes: int, seed: int) -> dict[str, Way]:
    """Build the ways to play a problem."""
    problem = make_problem(name, num_nodes)
    rng = np.random.default_rng(seed)

    def vector_env(copy: bool) -> Way:
        env = gym.make_vec(f"routing_gym:routing/{name}", num_envs=lanes, num_nodes=num_nodes, copy=copy)
        observation, _ = env.reset(seed=seed)

        def play(rounds: int) -> tuple[int, float]:
            nonlocal observation
            ended = []
            started = clock()
            for _ in range(rounds * (num_nodes + 1)):
                actions = random_legal(observation["action_mask"], rng)
                observation, _, terminated, _, _ = env.step(actions)
                ended.append(terminated)
            seconds = clock() - started
            resets = int(np.sum(ended))  # with NEXT_STEP, a reset takes a call, which is no transition
            return rounds * (num_nodes + 1) * lanes - resets, seconds

        return play

    def whole_batches(rounds: int) -> tuple[int, float]:
        played = []
        started = clock()
        for _ in range(rounds):
            instance = problem.generate(rng, lanes)
            played.append(rollout(problem, instance, lambda seen: random_legal(seen["action_mask"], rng)).actions)
        seconds = clock() - started
        return sum(count_steps(actions, problem.has_depot) for actions in played), seconds

    def transitions(rounds: int) -> tuple[int, float]:
        seconds = 0.0
        instance = problem.generate(rng, lanes)
        for _ in range(rounds):
            state = problem.initial(instance)
            mask = problem.action_mask(instance, state)
            for _ in range(num_nodes):
                actions = random_legal(mask, rng)
                started = clock()
                state, _ = problem.step(instance, state, actions)
                mask = problem.action_mask(instance, state)
                seconds += clock() - started
        return rounds * num_nodes * lanes, seconds

    return {
        "vector env": vector_env(copy=True),
        "vector env, copy=False": vector_env(copy=False),
        "rollout": whole_batches,
        "transitions alone": transitions,
    }


def count_steps(actions: Any, has_depot: bool) -> int:
    """Count the transitions of complete tours (B, T): up to the return to the depot, after which zeros follow."""
    if not has_depot:
        return int(actions.size)
    trailing_zeros = np.argmax(actions[:, ::-1] != 0, axis=1)
    return int(np.sum(actions.shape[1] - trailing_zeros + 1))


if __name__ == "__main__":
    serve(("numpy", "gymnasium", "array-api-compat"), playing(prepare))
