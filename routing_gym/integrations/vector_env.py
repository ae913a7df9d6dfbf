"""Common part of the adapters of vectorised environments: building or checking the underlying environment."""

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
    """Build the underlying environment of an adapter, or check the given one.

    Args:
        adapter: Name of the adapter's class, for error messages.
        library: Name of the library, for error messages.
        env: An id, such as "routing/TSP-50", or a `RoutingVectorEnv`.
        num_envs: Number of lanes; only with an id.
        settings: Further arguments of `RoutingVectorEnv`; only with an id.
        needs: Values that `autoreset_mode` and other attributes must have.

    Raises:
        TypeError: `env` is neither an id nor a `RoutingVectorEnv`, `num_envs` is missing, or `num_envs` or settings
            are given with a `RoutingVectorEnv`.
        ValueError: An attribute does not have the needed value.
    """
    accepted = (
        "env: expected an id of a problem, such as 'routing/TSP-50', or a RoutingVectorEnv without wrappers "
        f"(for other environments, use {library}'s own adapters)"
    )
    found = type(env).__name__
    if isinstance(env, str):
        if num_envs is None:
            raise TypeError(f'num_envs is missing; as in {adapter}("{env}", num_envs=64)')
        try:
            made = gym.make_vec(env, num_envs, **{"autoreset_mode": needs["autoreset_mode"], **settings})
        except TypeError as error:
            if "routing/" in env:  # a setting is wrong
                raise
            raise TypeError(f"{accepted}; got {env!r}: {error}") from error
        found = f"{env!r}, a {type(made).__name__}"
    elif isinstance(env, RoutingVectorEnv) and (num_envs is not None or settings):
        given = [*(["num_envs"] if num_envs is not None else []), *settings]
        raise TypeError(f"{', '.join(given)}: only with an id; the {type(env).__name__} passed has its own")
    else:
        made = env
    if not isinstance(made, RoutingVectorEnv):
        raise TypeError(f"{accepted}; got {found}")
    for name, needed in needs.items():
        found = made.autoreset_mode.value if name == "autoreset_mode" else getattr(made, name)
        if found != needed:
            raise ValueError(f"{library} needs {name}={needed!r}, got {found!r}; pass {name}={needed!r}")
    return made


def lane_attributes(env: RoutingVectorEnv, name: str, lanes: Sequence[int]) -> list[Any]:
    """Return an attribute of some lanes, in the form of `RoutingEnv`."""
    value = getattr(env, f"single_{name}" if name in ("observation_space", "action_space") else name)
    if name in ("instance", "state"):
        return [select(value, [lane]) for lane in lanes]
    return [value[lane] for lane in lanes] if name in PER_LANE else [value] * len(lanes)
