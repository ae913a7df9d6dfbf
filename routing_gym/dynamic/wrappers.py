"""A wrapper for algorithms that know no masks."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils import RecordConstructorArgs

from routing_gym.dynamic.env import DynamicVRPTWEnv
from routing_gym.dynamic.forms import DispatchForm


class ApplyMask(gym.ActionWrapper[Any, Any, Any], RecordConstructorArgs):
    """Applies the action mask to each action: what must leave leaves, and what is not open does not.

    An algorithm then learns what to do with the other requests, instead of the rules first. The action it is trained on
    is its own, not the one that is played.

    Args:
        env: `routing/DVRPTW` with `action="dispatch"`.

    Raises:
        TypeError: Another environment.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        RecordConstructorArgs.__init__(self)
        gym.ActionWrapper.__init__(self, env)
        inner = env.unwrapped
        if not (isinstance(inner, DynamicVRPTWEnv) and isinstance(inner.form, DispatchForm)):
            raise TypeError(f'ApplyMask: expected routing/DVRPTW with action="dispatch", got {inner}')
        self._inner = inner

    def action(self, action: Any) -> Any:
        legal = self._inner.action_masks().reshape(-1, 2)
        return np.where(legal.all(axis=1), action, legal[:, 1]).astype(np.int8)
