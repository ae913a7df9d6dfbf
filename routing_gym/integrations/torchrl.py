"""TorchRL: many lanes of a routing problem as one `EnvBase`."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from routing_gym.envs.vector import RoutingVectorEnv
from routing_gym.integrations.vector_env import make_vector_env
from routing_gym.optional import explain_missing

with explain_missing("TorchRL", "torchrl"):
    import torch
    from tensordict import TensorDict, TensorDictBase  # type: ignore[import-untyped, import-not-found, unused-ignore]
    from torchrl.data import Binary, Bounded, Categorical, Composite, Unbounded  # type: ignore[import-untyped, import-not-found, unused-ignore]
    from torchrl.envs import EnvBase  # type: ignore[import-untyped, import-not-found, unused-ignore]

NEEDS = {
    "autoreset_mode": "Disabled",
    "copy": True,
}  # TorchRL resets lanes itself, and keeps observations until the rollout ends


class RoutingTensorDictEnv(EnvBase):  # type: ignore[misc]  # TorchRL has no types
    """Vectorised environment of one routing problem for TorchRL; steps all lanes at once.

    `RoutingTensorDictEnv("routing/TSP-20", num_envs=64)` has batch size (64,). It is equivalent to the underlying
    `RoutingVectorEnv`. Differences from TorchRL's `GymWrapper` around a `RoutingVectorEnv`:

    - Actions are int64 (B,), not one-hot; `action_mask` is bool, the type that `MaskedCategorical` expects.
    - `rand_action`, and so `rand_step` and `rollout` without a policy, choose legal actions only; no
      `ActionMask` is needed. TorchRL's `RandomPolicy` ignores masks: pass `env.rand_action` instead.
    - `backend="torch"` works, also with `device="cuda"`; no data then passes through the CPU. On the CPU the
      default, NumPy, is faster.
    - `set_seed(seed)` takes effect at the next full `reset`, which is then equivalent to
      `RoutingVectorEnv.reset(seed=seed)`.
    - `reset(options={"instance": instance})` uses your own instances for this reset.

    Rewards are float32 (B, 1). Lanes are never truncated, so there is no "truncated".

    Attributes:
        vector_env: The underlying `RoutingVectorEnv`.

    Args:
        env: An id, such as "routing/TSP-50", or a `RoutingVectorEnv` with `autoreset_mode="Disabled"` and
            `copy=True`.
        num_envs: Number of lanes; only with an id.
        **settings: Further arguments of `RoutingVectorEnv`, such as `num_nodes`; only with an id.

    Raises:
        TypeError: `env` is neither an id nor a `RoutingVectorEnv`, `num_envs` is missing, or `num_envs` or settings
            are given with a `RoutingVectorEnv`.
        ValueError: TorchRL cannot use the environment, or an argument is invalid.
    """

    def __init__(self, env: str | RoutingVectorEnv, num_envs: int | None = None, **settings: Any) -> None:
        vector_env = make_vector_env("RoutingTensorDictEnv", "TorchRL", env, num_envs, settings, NEEDS)
        super().__init__(device=vector_env.device or "cpu", batch_size=(vector_env.num_envs,))
        self.vector_env = vector_env
        self._next_seed: int | None = None
        lanes = self.batch_size
        spaces: Any = vector_env.single_observation_space
        self.observation_spec = Composite({key: self._spec(key, space) for key, space in spaces.items()}, shape=lanes)
        self.action_spec = self._spec("action", vector_env.single_action_space)
        self.reward_spec = Unbounded((*lanes, 1), device=self.device)
        flag = Binary(1, (*lanes, 1), device=self.device, dtype=torch.bool)
        self.done_spec = Composite(done=flag, terminated=flag.clone(), shape=lanes)

    def _spec(self, key: str, space: Any) -> Any:
        """Convert the Gymnasium space of one lane to a TorchRL spec of all lanes."""
        if key == "action_mask":
            return Binary(space.n, (*self.batch_size, space.n), device=self.device, dtype=torch.bool)
        if isinstance(space, gym.spaces.Discrete):
            return Categorical(int(space.n), self.batch_size, device=self.device)
        low, high = (torch.as_tensor(bound, device=self.device) for bound in (space.low, space.high))
        shape = (*self.batch_size, *space.shape)
        return Bounded(low.expand(shape), high.expand(shape), shape, device=self.device, dtype=low.dtype)

    def _reset(
        self,
        tensordict: TensorDictBase | None = None,
        *,
        seed: int | None = None,
        options: dict[str, Any] | None = None,
    ) -> TensorDictBase:
        """Start an episode in every lane, or in those that "_reset" marks."""
        marked = None if tensordict is None else tensordict.get("_reset", None)
        if marked is not None and not bool(marked.all()):
            options = {**(options or {}), "reset_mask": marked.reshape(self.batch_size)}
        else:
            seed, self._next_seed = self._next_seed if seed is None else seed, None
        observations, _ = self.vector_env.reset(seed=seed, options=options)
        return self._tensordict(observations)

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Apply one action in every lane, or in those that "_step" marks."""
        action, marked = tensordict["action"], tensordict.get("_step", None)
        if marked is None:
            observations, rewards, terminated, *_ = self.vector_env.step(action)
        else:
            observations, rewards, terminated = self.vector_env.step_some(action, marked.reshape(self.batch_size))
        reward = torch.as_tensor(rewards, dtype=torch.float32)[:, None]
        done = torch.as_tensor(terminated)[:, None]
        return self._tensordict({**observations, "reward": reward, "done": done, "terminated": done})

    def _tensordict(self, values: dict[str, Any]) -> TensorDictBase:
        """Return a TensorDict of arrays or tensors (B, ...); those already on the device are not copied."""
        tensors = {key: torch.as_tensor(value, device=self.device) for key, value in values.items()}
        tensors["action_mask"] = tensors["action_mask"].bool()
        return TensorDict(tensors, batch_size=self.batch_size, device=self.device)

    def rand_action(self, tensordict: TensorDictBase | None = None) -> TensorDictBase:
        """Sample a legal action in each lane, uniformly, with torch's global random number generator."""
        mask = torch.as_tensor(self.vector_env.action_masks(), device=self.device)
        action = torch.rand(mask.shape, device=self.device).masked_fill_(~mask, -1.0).argmax(dim=-1)
        if tensordict is None:
            tensordict = TensorDict(batch_size=self.batch_size, device=self.device)
        return tensordict.set("action", action)

    def _set_seed(self, seed: int | None) -> None:
        self._next_seed = seed
