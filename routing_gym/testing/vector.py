"""`check_vector_env`: compares a native vectorised environment with Gymnasium's SyncVectorEnv and AsyncVectorEnv."""

from __future__ import annotations

import copy
import warnings
from contextlib import closing
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from routing_gym.arrays import to_numpy
from routing_gym.envs.lanes import AnyVectorEnv
from routing_gym.testing.compare import difference, expect

VECTOR_ONLY = ("num_envs", "vectorization_mode", "autoreset_mode", "backend", "device", "copy")
MAX_STEPS = 100_000
STEP_NAMES = ("observation", "reward", "terminated", "truncated", "info")


def check_vector_env(
    env: str | AnyVectorEnv,
    *,
    num_envs: int = 4,
    num_episodes: int = 3,
    seed: int = 0,
    unmasked: float = 0.1,
    tolerance: float = 0.0,
    context: str | None = None,
    **kwargs: Any,
) -> None:
    """Check that a native vectorised environment is equivalent to Gymnasium's own vectorisation.

    Both are reset and stepped with the same seeds and actions. All return values are compared, including dtypes:
    observations, rewards, flags, infos, `final_obs` and `final_info`. The check also covers that earlier return values
    do not change later, unless `env.copy` is False.

    Args:
        env: Id of an environment with a `vector_entry_point`, checked in all three autoreset modes, which
            it must accept as `autoreset_mode=` (a string); or a vectorised environment from `gymnasium.make_vec`,
            checked in its own mode.
        num_envs: Number of lanes; only with an id.
        num_episodes: Least number of episodes per lane.
        seed: Random seed of the first reset and of the actions.
        unmasked: Share of the actions that are drawn without `obs["action_mask"]`, if there is one. If
            illegal actions end an episode, they make lanes end at different steps.
        tolerance: Tolerance on floating-point values, absolute up to 1 and relative above; needed if the native
            environment computes differently.
        context: Start method of AsyncVectorEnv: "fork", "spawn" or "forkserver". From Python 3.12 on, "fork" warns in a
            process with threads.
        **kwargs: Arguments of the environment; only with an id. Those that only the vectorised environment accepts
            (num_envs, vectorization_mode, autoreset_mode, backend, device, copy) are not passed to the single ones.

    Raises:
        ContractViolation: A check fails. The message has the reference, the mode, the step, the location and both
            values.
        TypeError: `env` is neither an id nor a vectorised environment, or keywords are given with a vectorised
            environment, or it has no `spec`.

    Warns:
        UserWarning: All lanes always ended together, so that resets of only some lanes were not checked.
    """
    if not isinstance(env, (str, VectorEnv)):
        raise TypeError(f"check_vector_env takes an id or a vector environment of gymnasium.make_vec, got {env!r}")
    if isinstance(env, str):
        make_native = partial(gym.make_vec, env, num_envs, "vector_entry_point", **kwargs)
        natives = [make_native(autoreset_mode=mode.value) for mode in AutoresetMode]
        single_kwargs = kwargs
    else:
        if kwargs or env.spec is None:
            raise TypeError("check_vector_env: pass an id and keywords, or what gymnasium.make_vec returned")
        natives = [env]
        single_kwargs = env.spec.kwargs
    spec = natives[0].spec
    assert spec is not None
    # The spec, not the id: a spawned process imports the entry point from it, but has not registered the id.
    make_single = partial(gym.make, gym.spec(spec.id), **without_vector_keywords(single_kwargs))
    for native in natives:
        mode, singles = native.metadata["autoreset_mode"], [make_single] * native.num_envs
        for reference_class in (SyncVectorEnv, partial(AsyncVectorEnv, context=context)):
            with closing(reference_class(singles, autoreset_mode=mode)) as reference:
                Pair(native, reference, seed, unmasked, tolerance).play(num_episodes)
        if isinstance(env, str):
            native.close()


def without_vector_keywords(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the keywords without those that only vectorised environments accept."""
    return {key: value for key, value in kwargs.items() if key not in VECTOR_ONLY}


class Pair:
    """A native vectorised environment and its reference, run with the same seeds and actions."""

    def __init__(
        self, native: AnyVectorEnv, reference: AnyVectorEnv, seed: int, unmasked: float, tolerance: float
    ) -> None:
        self.native = native
        self.reference = reference
        self.mode = native.metadata["autoreset_mode"]
        self.seed = seed
        self.unmasked = unmasked
        self.tolerance = tolerance
        self.rng = np.random.default_rng(seed)
        native.action_space.seed(seed)
        self.returned: Any = None  # the native environment's latest return value, and a copy of it
        self.subject = f"{native} against {type(reference).__name__}, {self.mode}"
        for name in ("single_observation_space", "observation_space", "single_action_space", "action_space"):
            same = getattr(native, name) == getattr(reference, name)
            found = f"{getattr(native, name)}, expected {getattr(reference, name)}"
            expect(same, self.subject, name, found)

    def play(self, num_episodes: int) -> None:
        """Run both until each lane has completed a number of episodes."""
        observation, _ = self.both("reset(seed)", "reset", seed=self.seed)
        episodes = np.zeros(self.native.num_envs, dtype=np.int64)
        in_step = self.native.num_envs > 1
        for step in range(MAX_STEPS):
            actions = self.choose(observation)
            observation, _, terminated, truncated, _ = self.both(f"step {step}", "step", actions)
            ended = to_numpy(terminated) | to_numpy(truncated)
            episodes += ended
            in_step &= ended.all() == ended.any()
            if episodes.min() >= num_episodes:
                break
            if self.mode is AutoresetMode.DISABLED and ended.any():
                where = f"reset with reset_mask after step {step}"
                observation, _ = self.both(where, "reset", options={"reset_mask": ended})
        else:
            expect(False, self.subject, f"step {MAX_STEPS}", f"the lanes have ended only {episodes} episodes")
        if in_step:
            warnings.warn(
                f"{self.subject}: all lanes always ended together, so partial resets went unchecked", stacklevel=3
            )

    def both(self, where: str, method: str, *arguments: Any, **keywords: Any) -> Any:
        """Call a method of both, compare the results, and return the native environment's."""
        found, expected = (
            getattr(env, method)(*copy.deepcopy(arguments), **copy.deepcopy(keywords))
            for env in (self.native, self.reference)
        )
        names = ("observation", "info") if len(expected) == 2 else STEP_NAMES
        expect(len(found) == len(expected), self.subject, where, f"{len(found)} values, expected {len(expected)}")
        for name, one, other in zip(names, found, expected, strict=True):
            apart = difference(one, other, self.tolerance)
            expect(apart is None, self.subject, f"{where}, {name}", f"native != reference: {apart}")
        if getattr(self.native, "copy", True):
            if self.returned is not None:
                apart = difference(*self.returned)
                expect(apart is None, self.subject, where, f"changed what was returned before: {apart}")
            self.returned = found, copy.deepcopy(found)
        return found

    def choose(self, observation: Any) -> Any:
        """Draw actions; with a mask for a discrete space, most of them are legal."""
        actions = self.native.action_space.sample()
        discrete = isinstance(self.native.single_action_space, spaces.Discrete)
        if discrete and isinstance(observation, dict) and "action_mask" in observation:
            mask = to_numpy(observation["action_mask"])
            legal = np.argmax(self.rng.random(mask.shape) * mask, axis=1)
            actions = np.where(self.rng.random(len(legal)) < self.unmasked, actions, legal)
        return actions
