"""Rendering of an instance and a tour as a figure (`draw`, `save`, `show`, `to_rgb_array`) or as text (`to_text`)."""

from routing_gym.render.figure import draw, save, show, to_rgb_array
from routing_gym.render.text import to_text

__all__ = ["draw", "save", "show", "to_rgb_array", "to_text"]
