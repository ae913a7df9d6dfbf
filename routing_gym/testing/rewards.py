"""Checks of the rewards of `RoutingEnv`: those of whole episodes, and of episodes that an illegal action ends."""

from __future__ import annotations

import numpy as np

from routing_gym.envs.single import RoutingEnv
from routing_gym.problem import AnyProblem
from routing_gym.testing.backends import TOLERANCE
from routing_gym.testing.compare import expect


def check_rewards(problem: AnyProblem, seed: int) -> None:
    """Check that the rewards of an episode add up to minus the cost of its tour, dense and sparse."""
    for reward in ("dense", "sparse"):
        env = RoutingEnv(problem, reward=reward)
        rng = np.random.default_rng(seed)
        _, info = env.reset(seed=seed)
        rewards, terminated = [], False
        while not terminated:
            action = rng.choice(np.flatnonzero(info["action_mask"]))
            _, value, terminated, _, info = env.step(action)
            rewards.append(value)
        cost = float(problem.objective(env.instance, env.tour[None])[0])
        apart = f"add up to {sum(rewards)}, but the tour costs {cost}"
        expect(abs(sum(rewards) + cost) <= TOLERANCE * max(1.0, abs(cost)), problem, f"{reward} rewards", apart)
        early = [step for step, value in enumerate(rewards[:-1]) if value != 0 and reward == "sparse"]
        expect(not early, problem, "sparse rewards", f"not 0 before the end, at steps {early}")


def check_illegal_ends(problem: AnyProblem, seed: int) -> None:
    """End an episode illegally at each step; check that these returns are below all legal ones and never decrease."""
    for reward in ("dense", "sparse"):
        env = RoutingEnv(problem, reward=reward)
        env.reset(seed=seed)
        floor = -float(problem.cost_bound(env.instance)[0])
        rng, terminated, paid, last = np.random.default_rng(seed), False, 0.0, -np.inf
        while not terminated:
            mask = env.action_masks()
            if not mask.all():
                before = env.get_state()
                ended = paid + float(env.step(int(np.argmin(mask)))[1])
                env.set_state(before)
                told = f"ends with the return {ended} after {len(env.tour)} steps"
                expect(ended < floor, problem, f"illegal action, {reward}", f"{told}, a legal tour's may be {floor}")
                expect(ended >= last - TOLERANCE, problem, f"illegal action, {reward}", f"{told}, earlier with {last}")
                last = ended
            value, terminated = env.step(rng.choice(np.flatnonzero(mask)))[1:3]
            paid += float(value)
