"""The attention model as a policy of sb3-contrib's MaskablePPO, for any routing problem.

    env = VecMonitor(RoutingVecEnv("routing/TSP-20", num_envs=128))
    MaskablePPO(AttentionPolicy, env, rollout_buffer_class=LaneRolloutBuffer, n_steps=20, batch_size=640, gamma=1.0)

Stable-Baselines3's own `MultiInputPolicy` flattens the nodes into one vector and has one output neuron per
action, so that nothing it learns about one node transfers to another. Here the decoder scores the actions
node by node. Everything else is inherited from sb3-contrib; its "features" are the concatenation of the
logits and the critic's hidden units.

B = observations, A = nodes, d = embedding size, U = different instances among the observations, Q = queries.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from routing_agents.policies.attention.encoder import ModelConfig
from routing_agents.policies.attention.features import Features, features_named
from routing_agents.policies.attention.model import AttentionModel, Encoding
from routing_agents.policies.attention.value import ValueHead
from routing_gym.optional import explain_missing
from routing_gym.problems import PROBLEMS
from routing_gym.problems.geometry import MATRICES

with explain_missing("sb3-contrib", "sb3"):
    from sb3_contrib.common.maskable.buffers import MaskableDictRolloutBuffer, MaskableDictRolloutBufferSamples
    from sb3_contrib.common.maskable.policies import MaskableMultiInputActorCriticPolicy
    from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
    from stable_baselines3.common.type_aliases import Schedule

DEFAULT_CONFIG = ModelConfig(normalization="instance")


class AttentionPolicy(MaskableMultiInputActorCriticPolicy):
    """The attention model for `MaskablePPO`.

    It applies the mask in the observations; the masks that sb3-contrib passes are applied in addition.

    Args:
        observation_space: Observation space of a routing environment, unflattened.
        action_space: Action space of the environment: its nodes.
        lr_schedule: Schedule of the learning rate.
        config: Sizes of the network: `MaskablePPO(..., policy_kwargs={"config": ModelConfig(...)})`.
        optimizer_class: Class of the optimiser; by default Adam.
        optimizer_kwargs: Arguments of the optimiser besides the learning rate.
        **unknown: Arguments of other policies; refused.

    Raises:
        TypeError: An argument is unknown, such as `use_sde`, which PPO passes, or `net_arch`.
        ValueError: No problem has these observations, or the config has batch normalisation.
    """

    def __init__(
        self,
        observation_space: spaces.Dict,
        action_space: spaces.Discrete,
        lr_schedule: Schedule,
        config: ModelConfig = DEFAULT_CONFIG,
        optimizer_class: type[torch.optim.Optimizer] = torch.optim.Adam,
        optimizer_kwargs: dict[str, Any] | None = None,
        **unknown: Any,
    ) -> None:
        if unknown:  # PPO passes `use_sde`; `net_arch` would be for the base class's MLPs
            raise TypeError(
                f"AttentionPolicy got unknown arguments {', '.join(unknown)}; it needs sb3_contrib.MaskablePPO, and "
                'sizes go in `config`, as in policy_kwargs={"config": ModelConfig(...)}'
            )
        self.config = config
        super().__init__(
            observation_space,
            action_space,
            lr_schedule,
            features_extractor_class=NodeExtractor,
            features_extractor_kwargs={"config": config},
            optimizer_class=optimizer_class,
            optimizer_kwargs=optimizer_kwargs,
        )

    def _build(self, lr_schedule: Schedule) -> None:
        """Build the modules after the extractor, and the optimiser; called by the base class."""
        num_nodes = int(self.action_space.n)
        self.mlp_extractor = Split(num_nodes)
        self.action_net = nn.Identity()  # the decoder's scores are the logits
        self.value_net = PerNode(self.features_extractor.value_head, num_nodes)
        self.optimizer = self.optimizer_class(self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs)

    def _get_constructor_parameters(self) -> dict[str, Any]:
        data = super()._get_constructor_parameters()
        names = ("observation_space", "action_space", "lr_schedule", "optimizer_class", "optimizer_kwargs")
        return {**{name: data[name] for name in names}, "config": self.config}


class NodeExtractor(BaseFeaturesExtractor):
    """Encoder and decoder: observations -> (B, A + d), the logits and the critic's hidden units.

    Args:
        observation_space: Observation space of a routing environment.
        config: Sizes of the network.

    Raises:
        ValueError: No problem has these observations, or the config has batch normalisation.
    """

    def __init__(self, observation_space: spaces.Dict, config: ModelConfig) -> None:
        features = find_features(observation_space)
        if config.normalization == "batch":
            raise ValueError(
                "normalization='batch' computes something else in updates than in rollouts, so that PPO's probability "
                "ratios are wrong from the start; pass 'instance', 'layer' or 'none'"
            )
        super().__init__(observation_space, int(observation_space["action_mask"].n) + config.embed_dim)
        self.model = AttentionModel(features, config)
        self.value_head = ValueHead(config.embed_dim)
        self.kept: Kept | None = None

    def forward(self, observation: dict[str, Tensor]) -> Tensor:
        """Decode B observations, preprocessed by Stable-Baselines3: all are float, indices one-hot."""
        features = self.model.features
        static = {key: observation[key] for key in features.static_keys}
        rows = torch.cat([value.flatten(1) for value in static.values()], dim=1)
        if torch.is_grad_enabled():
            table, instance, place = group_rows(rows)
            encoding = self.model.encode({key: value[table[:, 0]] for key, value in static.items()})
        else:
            instance = torch.arange(len(rows), device=rows.device)
            table, place = instance[:, None], torch.zeros_like(instance)
            encoding = self.recall(rows, static)
        queries = {key: observation[key] for key in features.dynamic_keys}
        queries["action_mask"] = observation["action_mask"].bool()
        for key in features.context_nodes:  # one-hot (B, A) from environments, (B, 1, A) from buffers
            queries[key] = queries[key].argmax(dim=-1).flatten()
        queries = {key: value[table] for key, value in queries.items()}  # (U, Q, ...)
        hidden = self.value_head.hidden(encoding, self.model.query(encoding, queries), queries["action_mask"])
        return torch.cat([self.model.logits(encoding, queries), hidden], dim=-1)[instance, place]

    def recall(self, rows: Tensor, static: dict[str, Tensor]) -> Encoding:
        """Encode without gradients, and only the lanes whose instance has changed since the last step.

        Args:
            rows: Concatenated static observations: float32 (B, any).
            static: Static observations.
        """
        weights = torch.cat([parameter.detach().flatten() for parameter in self.model.parameters()])
        kept = self.kept
        if kept is None or kept.rows.shape != rows.shape or not torch.equal(kept.weights, weights):
            self.kept = kept = Kept(rows, weights, self.model.encode(static))
        elif (new := (kept.rows != rows).any(dim=1)).any():
            fresh = self.model.encode({key: value[new] for key, value in static.items()})
            for old, values in zip(tensors(kept.encoding), tensors(fresh), strict=True):
                old[new] = values
            kept.rows = rows
        return kept.encoding


@dataclass
class Kept:
    """Values that the next step of a rollout can reuse."""

    rows: Tensor  # float32 (B, any), the static observations
    weights: Tensor  # float32 (any,), all weights of the model at the time of encoding
    encoding: Encoding


class Split(nn.Module):
    """Module that splits the output of `NodeExtractor` for actor and critic; it replaces the base class's two MLPs."""

    def __init__(self, num_nodes: int) -> None:
        super().__init__()
        self.num_nodes = num_nodes

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        return self.forward_actor(features), self.forward_critic(features)

    def forward_actor(self, features: Tensor) -> Tensor:
        return features[:, : self.num_nodes]

    def forward_critic(self, features: Tensor) -> Tensor:
        return features[:, self.num_nodes :]


class PerNode(nn.Module):
    """Output of the value head times the number of nodes: costs grow with it, and small weights learn slowly."""

    def __init__(self, head: ValueHead, num_nodes: int) -> None:
        super().__init__()
        self.output, self.num_nodes = head.value, num_nodes

    def forward(self, hidden: Tensor) -> Tensor:
        return self.num_nodes * self.output(hidden)


class LaneRolloutBuffer(MaskableDictRolloutBuffer):
    """Rollout buffer with minibatches of whole lanes instead of scattered steps: one encoding per instance and epoch.

    A lane is the `n_steps` of one environment; choose a multiple of `n_steps` as `batch_size`.
    """

    def get(self, batch_size: int | None = None) -> Generator[MaskableDictRolloutBufferSamples, None, None]:
        if not self.generator_ready:
            names = ("actions", "values", "log_probs", "advantages", "returns", "action_masks")
            self.observations = {key: self.swap_and_flatten(value) for key, value in self.observations.items()}
            self.__dict__.update({name: self.swap_and_flatten(self.__dict__[name]) for name in names})
            self.generator_ready = True
        lanes = torch.randperm(self.n_envs).numpy()
        steps = (lanes[:, None] * self.buffer_size + np.arange(self.buffer_size)).ravel()
        size = batch_size or len(steps)
        for start in range(0, len(steps), size):
            yield self._get_samples(steps[start : start + size])


def find_features(space: spaces.Space[Any]) -> Features:
    """Return the features of a problem, of this package or registered, that has an environment's observations.

    Raises:
        ValueError: No problem has them.
    """
    found = set(space) if isinstance(space, spaces.Dict) else set()
    matrices = tuple(key for key in MATRICES if key in found)
    for plain in map(features_named, PROBLEMS):
        features = replace(plain, per_edge=matrices) if plain.coords else plain
        if found == {*features.static_keys, *features.dynamic_keys, "action_mask"}:
            return features
    got = f"the observations {', '.join(sorted(found))}" if found else str(space)
    raise ValueError(
        "AttentionPolicy reads the nodes of a routing environment, unflattened, as those of "
        f"RoutingVecEnv('routing/TSP-20', num_envs=128); got {got}. "
        "A problem of your own must have been registered by routing_gym.register"
    )


def tensors(encoding: Encoding) -> list[Tensor]:
    """Return all tensors of an encoding, each with a row per instance."""
    return [x for value in vars(encoding).values() for x in (value if isinstance(value, tuple) else (value,))]


def group_rows(rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Group equal rows.

    Args:
        rows: Rows (B, any).

    Returns:
        int64 (U, Q), the rows of each of the U groups, padded with the group's first row to the size of the largest;
        int64 (B,) and (B,), the group of each row and its position in the group.
    """
    _, group, sizes = torch.unique(rows, dim=0, return_inverse=True, return_counts=True)
    order = group.argsort(stable=True)  # the rows, group by group
    starts = sizes.cumsum(0) - sizes  # where each group begins in that order
    place = torch.empty_like(group)  # position in the group: position in that order minus the start of the group
    place[order] = torch.arange(len(rows), device=rows.device) - starts.repeat_interleave(sizes)
    table = order[starts, None].repeat(1, int(sizes.max()))  # filled with each group's first row, then with all rows
    table[group, place] = torch.arange(len(rows), device=rows.device)
    return table, group, place
