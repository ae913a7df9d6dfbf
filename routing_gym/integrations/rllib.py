"""RLlib: routing problems with the observations that its action-masking modules read. Importing it does not need Ray.

    from ray import tune
    from routing_gym.integrations.rllib import make_env

    tune.register_env("routing", make_env)
    config = PPOConfig().environment("routing", env_config={"env_id": "routing/TSP-20"})
    config.env_runners(num_envs_per_env_runner=64, gym_env_vectorize_mode="vector_entry_point")

With this vectorize mode, RLlib steps all lanes of an env runner at once; otherwise it loops over single
environments. Ray's newest release still pins Gymnasium 1.2.2: `make test-integrations` creates a virtual environment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space

from routing_gym.integrations.masked import FlatLayout, Library, MaskedEnv
from routing_gym.integrations.vector_env import make_vector_env

RLLIB = Library(
    name="RLlib",
    observation_key="observations",
    mask_key="action_mask",
    mask_dtype=np.float32,
    autoreset_mode=AutoresetMode.NEXT_STEP,
    advice="RLlib's ActionMaskingTorchRLModule and the module of examples/rllib_ppo.py choose legal actions only.",
)
CONFIG = {"env_id": None, "flat": True, "num_envs": None}  # keys that `make_env` reads itself, with defaults


class RLlibEnv(MaskedEnv):
    """Wrapper with observations `{"observations": ..., "action_mask": float32 (A,)}`, 1 if legal. See `MaskedEnv`."""

    library = RLLIB


class RLlibVectorEnv(VectorWrapper):  # not generic before Gymnasium 1.3
    """Wrapper like `RLlibEnv` for all lanes of a `RoutingVectorEnv` at once.

    `np.random.SeedSequence` derives the lanes' seeds from an integer seed. They are not seed + lane, because RLlib
    seeds its k-th env runner with seed + k, so most lanes would repeat a lane of the next runner.

    Args:
        env: `RoutingVectorEnv` on NumPy, with `autoreset_mode="NextStep"` and `copy=True`.
        flat: See `RLlibEnv`.

    Raises:
        TypeError: The environment is not a `RoutingVectorEnv`.
        ValueError: RLlib cannot use the environment.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], *, flat: bool = True) -> None:
        super().__init__(env)
        made: Any = env.unwrapped
        make_vector_env("RLlibVectorEnv", RLLIB.name, made, None, {}, RLLIB.needs)  # checks it
        self.layout = FlatLayout(RLLIB, env.single_observation_space, flat)
        self.single_observation_space = self.layout.single_space()
        self.observation_space = batch_space(self.single_observation_space, env.num_envs)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        if isinstance(seed, int):
            seed = np.random.SeedSequence(seed).generate_state(self.num_envs).tolist()
        observations, info = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]
        return self.layout.arrange(observations), info

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        with RLLIB.explain_illegal():
            observations, rewards, terminated, truncated, info = self.env.step(actions)
        return self.layout.arrange(observations), rewards, terminated, truncated, info


def make_env(config: Mapping[str, Any]) -> RLlibEnv | RLlibVectorEnv:
    """Build an environment for RLlib: `tune.register_env("routing", make_env)`.

    Args:
        config: `env_config`: "env_id", such as "routing/TSP-20"; "flat", see `RLlibEnv`; and arguments of
            `RoutingEnv`, such as "reward". RLlib adds "num_envs" for a vectorised environment.

    Raises:
        TypeError: "env_id" is missing or names another environment, or an argument is unknown.
        ValueError: An argument is invalid.
    """
    settings = dict(config)
    env_id, flat, num_envs = (settings.pop(key, default) for key, default in CONFIG.items())
    if env_id is None:
        raise TypeError('env_config: "env_id" is missing; as in env_config={"env_id": "routing/TSP-20"}')
    if num_envs is None:
        return RLlibEnv(gym.make(env_id, **settings), flat=flat)
    return RLlibVectorEnv(gym.make_vec(env_id, num_envs, **settings), flat=flat)
