"""Wrapper for algorithms without action masks."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils import RecordConstructorArgs

from routing_gym.dynamic.env import DynamicVRPTWEnv
from routing_gym.dynamic.forms import DispatchForm


class ApplyMask(gym.ActionWrapper[Any, Any, Any], RecordConstructorArgs):
    """Wrapper that applies the action mask: requests that must leave do so, and those that are not open do not.

    An algorithm then learns only the decisions on the other requests, not the rules. It is trained on its own
    action, not on the corrected one.

    Args:
        env: `routing/DVRPTW` with `action="dispatch"`.

    Raises:
        TypeError: The environment is another one.
        InvalidAction: In `step`: an action has a wrong shape or type.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        RecordConstructorArgs.__init__(self)
        gym.ActionWrapper.__init__(self, env)
        inner = env.unwrapped
        if not (isinstance(inner, DynamicVRPTWEnv) and isinstance(inner.form, DispatchForm)):
            raise TypeError(f'ApplyMask: expected routing/DVRPTW with action="dispatch", got {inner}')
        self._inner = inner

    def action(self, action: Any) -> Any:
        chosen = self._inner._lanes.as_actions(action)[0]
        legal = self._inner.action_masks().reshape(-1, 2)
        return np.where(legal.all(axis=1), chosen, legal[:, 1]).astype(np.int8)
