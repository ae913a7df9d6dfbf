"""Numbers of multiplications and additions in the attention model's tasks, computed from its sizes."""

from __future__ import annotations

from routing_agents.policies.attention.features import features_named
from routing_agents.policies.attention.model import AttentionModel, ModelConfig


def encoder_operations(model: AttentionModel, num_nodes: int) -> int:
    """Return the operations of encoding one instance, projections for the decoder included."""
    d, hidden = model.config.embed_dim, model.config.feed_forward_dim
    layer = 2 * num_nodes * (4 * d * d + 2 * d * hidden) + 4 * num_nodes**2 * d
    projections = 2 * num_nodes * (3 + len(model.features.context_nodes)) * d * d
    return model.config.num_layers * layer + projections


def step_operations(model: AttentionModel, num_nodes: int, num_tours: int, num_steps: int, rollout: bool) -> int:
    """Return the operations of one training step per instance; a backward pass counts as two forward passes."""
    query = 6 * num_nodes * model.config.embed_dim  # glimpse scores, glimpse, logits
    decode = query * num_steps * num_tours
    sampled = 3 * encoder_operations(model, num_nodes) + (1 + 3) * decode
    return sampled + (greedy_operations(model, num_nodes, num_steps) if rollout else 0)


def greedy_operations(model: AttentionModel, num_nodes: int, num_steps: int) -> int:
    """Return the operations of greedy decoding per instance."""
    return encoder_operations(model, num_nodes) + 6 * num_nodes * model.config.embed_dim * num_steps


def task_operations(task: str, problem: str, num_tours: int, num_steps: int) -> int:
    """Return the operations of a task per instance."""
    name, size = problem.split("-")
    model = AttentionModel(features_named(name), ModelConfig())
    num_nodes = int(size) + int(model.features.depot)
    if task == "greedy":
        return greedy_operations(model, num_nodes, num_steps)
    return step_operations(model, num_nodes, num_tours, num_steps, rollout=task == "rollout")
