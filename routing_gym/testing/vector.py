"""`check_vector_env`: a native vector environment against Gymnasium's SyncVectorEnv and AsyncVectorEnv."""

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
from routing_gym.testing.compare import difference, expect

AnyVectorEnv = VectorEnv[Any, Any, Any]
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
    """Check that a native vector environment returns what Gymnasium's own vectorisation would.

    Resets and steps both with the same seeds and actions, and compares everything that they return, dtypes
    included: observations, rewards, flags, infos, `final_obs` and `final_info`. Also checks that what was
    returned before does not change later, unless `env.copy` is False.

    Args:
        env: The id of an environment with a `vector_entry_point`, checked in all three autoreset modes, which
            it must take as `autoreset_mode=` (a string); or a vector environment from `gymnasium.make_vec`,
            checked in the mode it has.
        num_envs: Number of lanes, where `env` is an id.
        num_episodes: How many episodes each lane plays at least.
        seed: Of the first reset and of the actions.
        unmasked: Share of the actions drawn without regard to `obs["action_mask"]`, if there is one. Where
            illegal actions end an episode, they bring the lanes out of step.
        tolerance: Absolute, on floating-point values; needed where the native one computes otherwise.
        context: Of AsyncVectorEnv: "fork", "spawn" or "forkserver". From Python 3.12 on, "fork" warns in a
            process with threads.
        **kwargs: For the environment, where `env` is an id. Those that only the vector environment takes
            (num_envs, vectorization_mode, autoreset_mode, backend, device, copy) are kept from the single ones.

    Raises:
        ContractViolation: With the reference, the mode, the step, the place and both values.
        TypeError: `env` is neither, or keywords were given together with a vector environment, or it has no `spec`.

    Warns:
        UserWarning: All lanes always ended together, so that resets of some lanes only went unchecked.
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
    # The spec, not the id: a process that is spawned imports from it, and has not registered what this one has.
    make_single = partial(gym.make, gym.spec(spec.id), **without_vector_keywords(single_kwargs))
    for native in natives:
        mode, singles = native.metadata["autoreset_mode"], [make_single] * native.num_envs
        for reference_class in (SyncVectorEnv, partial(AsyncVectorEnv, context=context)):
            with closing(reference_class(singles, autoreset_mode=mode)) as reference:
                Pair(native, reference, seed, unmasked, tolerance).play(num_episodes)
        if isinstance(env, str):
            native.close()


def without_vector_keywords(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Leave out the keywords that only vector environments take."""
    return {key: value for key, value in kwargs.items() if key not in VECTOR_ONLY}


class Pair:
    """A native vector environment and its reference, played with the same seeds and actions."""

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
        self.returned: Any = None  # the native one's latest, and a copy of it
        self.subject = f"{native} against {type(reference).__name__}, {self.mode}"
        for name in ("single_observation_space", "observation_space", "single_action_space", "action_space"):
            same = getattr(native, name) == getattr(reference, name)
            found = f"{getattr(native, name)}, expected {getattr(reference, name)}"
            expect(same, self.subject, name, found)

    def play(self, num_episodes: int) -> None:
        """Play until each lane has ended a number of episodes."""
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
        """Call a method of both, compare what they return, and return the native one's."""
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
        """Draw actions, most of them legal where there is a mask for a discrete space."""
        actions = self.native.action_space.sample()
        discrete = isinstance(self.native.single_action_space, spaces.Discrete)
        if discrete and isinstance(observation, dict) and "action_mask" in observation:
            mask = to_numpy(observation["action_mask"])
            legal = np.argmax(self.rng.random(mask.shape) * mask, axis=1)
            actions = np.where(self.rng.random(len(legal)) < self.unmasked, actions, legal)
        return actions
