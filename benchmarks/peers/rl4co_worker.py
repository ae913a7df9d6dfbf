"""Loop of a random policy in rl4co; started by `env_peers.py`, see `playing.py`.

It is the library's own loop (`rl4co.utils.decoding.rollout`): a batch of instances is drawn, stepped until all of them
are done, and rewarded at the end. The optional check of the solution is left out, which would slow the loop down. The
steps of an instance count until it is done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from playing import Way, clock, playing
from rl4co.envs import ATSPEnv, CVRPEnv, MTSPEnv, MTVRPEnv, PDPEnv, TSPEnv
from rl4co.utils.decoding import random_policy
from worker import serve


def ranked_policy(td: Any) -> Any:
    """Sample like rl4co's `random_policy`, faster: draw the rank of a legal node, with one random number per row."""
    rank_of = td["action_mask"].cumsum(-1)
    rank = (torch.rand(len(rank_of), 1) * rank_of[:, -1:]).long()
    td.set("action", (rank_of > rank).byte().argmax(-1))
    return td


def prepare(name: str, num_nodes: int, lanes: int, seed: int) -> dict[str, Way]:
    """Build the ways to play a problem. Demands are 1 to 9; the capacity for 50 customers is 40, as in the paper."""
    classes = {"TSP": TSPEnv, "CVRP": CVRPEnv, "PDP": PDPEnv, "MTSP": MTSPEnv, "ATSP": ATSPEnv}
    settings = {"num_loc": num_nodes + (name == "MTSP")}  # the MTSP's depot is one of the locations
    if name not in classes:  # of the VRP family
        settings |= {"variant_preset": name.lower()}
    env = classes.get(name, MTVRPEnv)(generator_params=settings, check_solution=False, seed=seed)

    def episodes(policy: Callable[[Any], Any]) -> Way:
        @torch.inference_mode()
        def play(rounds: int) -> tuple[int, float]:
            done = []
            started = clock()
            for _ in range(rounds):
                td = env.reset(batch_size=[lanes])
                actions = []
                while not td["done"].all():
                    done.append(td["done"].flatten())
                    td = policy(td)
                    actions.append(td["action"])
                    td = env.step(td)["next"]
                env.get_reward(td, torch.stack(actions, dim=1))
            seconds = clock() - started
            return sum(int((~flags).sum()) for flags in done), seconds

        return play

    @torch.inference_mode()
    def transitions(rounds: int) -> tuple[int, float]:
        seconds = 0.0
        for _ in range(rounds):
            td = env.reset(batch_size=[lanes])
            for _ in range(num_nodes):
                td = ranked_policy(td)
                started = clock()
                td = env.step(td)["next"]
                seconds += clock() - started
        return rounds * num_nodes * lanes, seconds

    return {
        "loop, its own policy": episodes(random_policy),
        "loop, ranked policy": episodes(ranked_policy),
        "transitions alone": transitions,
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    serve(("rl4co", "torchrl", "tensordict", "torch", "numpy"), playing(prepare))
