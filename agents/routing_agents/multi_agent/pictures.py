"""Pictures of attention in a game: lines between vehicles, whose widths are the attention weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from torch import Tensor

from routing_agents.multi_agent.extractor import flatten
from routing_agents.multi_agent.networks import AgentNetwork
from routing_gym.multi_agent import CompetitiveOP, pictures
from routing_gym.render.figure import DARK

WIDEST = 24.0  # points, width of the line for a weight of 1


def draw_attention(
    game: CompetitiveOP, instance: Any, states: Sequence[Any], weights: np.ndarray, agent: int, **drawing: Any
) -> Figure:
    """Draw a game, and the attention weights of one agent for each of the others.

    Args:
        game: Game of the instance.
        instance: One instance: a NumPy batch of size 1.
        states: All states so far, one row each.
        weights: Attention weights (m, m), row i for agent i; see `listening`.
        agent: Index of the agent whose weights are drawn, as widths of lines to the others.
        **drawing: `title` and `axes` of `pictures.draw`.

    Raises:
        ValueError: The agent does not exist.
    """
    if not 0 <= agent < game.num_agents:
        raise ValueError(f"agent must be one of 0 to {game.num_agents - 1}, got {agent}")
    figure = pictures.draw(game, instance, states, **drawing)
    axes = drawing.get("axes") or figure.axes[0]
    position = states[-1].position[0]
    for other in range(game.num_agents):
        if other != agent:
            ends = position[[agent, other]].T
            axes.plot(*ends, color=DARK, lw=WIDEST * weights[agent, other], alpha=0.4, zorder=1, solid_capstyle="butt")
    axes.plot(*position[agent], "o", ms=16, mfc="none", mec=DARK, mew=1.5, zorder=5)
    return figure


def listening(network: AgentNetwork, observation: dict[str, Tensor]) -> np.ndarray:
    """Return the attention weights of the first row's agents, averaged over the attention heads: (m, m).

    Raises:
        TypeError: The network has no attention.
    """
    averaged: np.ndarray = network.attention(flatten(observation))[0].mean(dim=0).numpy()
    return averaged
