"""What the adapters of batched environments share: making or checking the environment that they step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym

from routing_gym.arrays import select
from routing_gym.envs.vector import RoutingVectorEnv

PER_LANE = ("tour", "np_random", "np_random_seed")  # attributes with one entry per lane


def make_vector_env(
    adapter: str,
    library: str,
    env: str | RoutingVectorEnv,
    num_envs: int | None,
    settings: dict[str, Any],
    needs: dict[str, Any],
) -> RoutingVectorEnv:
    """Make the environment that an adapter steps, or check the one that it was given.

    Args:
        adapter: Name of its class, for error messages.
        library: Name of its library, for error messages.
        env: An id, such as "routing/TSP-50", or a `RoutingVectorEnv`.
        num_envs: Number of lanes; only with an id.
        settings: Further arguments of `RoutingVectorEnv`; only with an id.
        needs: Values that `autoreset_mode` and other attributes must have.

    Raises:
        TypeError: `env` is neither, `num_envs` is missing, or an argument does not go with a made environment.
        ValueError: An attribute has another value than it needs.
    """
    if isinstance(env, str):
        if num_envs is None:
            raise TypeError(f'num_envs is missing; as in {adapter}("{env}", num_envs=64)')
        made = gym.make_vec(env, num_envs, **{"autoreset_mode": needs["autoreset_mode"], **settings})
    elif isinstance(env, RoutingVectorEnv) and (num_envs is not None or settings):
        given = [*(["num_envs"] if num_envs is not None else []), *settings]
        raise TypeError(f"{', '.join(given)}: only with an id; the {type(env).__name__} passed has its own")
    else:
        made = env
    if not isinstance(made, RoutingVectorEnv):
        raise TypeError(
            f"env: expected an id such as 'routing/TSP-50', or a RoutingVectorEnv without wrappers; "
            f"got {type(made).__name__}"
        )
    for name, needed in needs.items():
        found = made.autoreset_mode.value if name == "autoreset_mode" else getattr(made, name)
        if found != needed:
            raise ValueError(f"{library} needs {name}={needed!r}, got {found!r}; pass {name}={needed!r}")
    return made


def lane_attributes(env: RoutingVectorEnv, name: str, lanes: Sequence[int]) -> list[Any]:
    """Return an attribute of some lanes, as `RoutingEnv` has it."""
    value = getattr(env, f"single_{name}" if name in ("observation_space", "action_space") else name)
    if name in ("instance", "state"):
        return [select(value, [lane]) for lane in lanes]
    return [value[lane] for lane in lanes] if name in PER_LANE else [value] * len(lanes)
