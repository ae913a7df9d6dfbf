"""Attributes of the VRP family, and the presets: the problems that combine them, by name."""

from __future__ import annotations

from itertools import compress, product
from typing import Any

from routing_gym.problems.vrp.attribute import Attribute
from routing_gym.problems.vrp.depots import Depots, Fleet, Penalties
from routing_gym.problems.vrp.limits import MAX_LENGTH, MAX_LENGTH_OF_PAIRS, LengthLimit, TimeWindows
from routing_gym.problems.vrp.loads import Backhauls, Deliveries, MixedBackhauls
from routing_gym.problems.vrp.pairs import Pairs

# In the order in which instances are drawn and actions are checked: goods, then limits, then depots and fleets.
ATTRIBUTES: dict[str, Attribute] = {
    rules.letters: rules for rules in (Backhauls(), MixedBackhauls(), Pairs(), LengthLimit(), TimeWindows())
} | {rules.letters: rules for rules in (Depots(), Fleet(), Penalties())}
DELIVERIES = Deliveries()  # without B, MB and PD
SETTINGS: dict[str, dict[str, Any]] = {
    "O": {"open_routes": True},
    "B": {"backhauls": True},
    "MB": {"mixed_backhauls": True},
    "PD": {"pairs": True},
    "L": {"max_length": MAX_LENGTH},
    "TW": {"time_windows": True},
    "MD": {"several_depots": True},
    "HF": {"fleet": True},
    "PC": {"penalties": True},
}
PREFIXES, SUFFIXES = ("PC", "PD", "HF", "MD", "O"), ("B", "MB", "L", "TW")
GOODS = {"B", "MB", "PD"}  # which exclude each other


def preset_name(attributes: frozenset[str]) -> str:
    """Return the id of a set of attributes: {"O", "B", "TW"} is OVRPBTW."""
    parts = [one for one in (*PREFIXES, "VRP", *SUFFIXES) if one == "VRP" or one in attributes]
    return "".join(parts)


def settings_of(attributes: frozenset[str]) -> dict[str, Any]:
    """Return the arguments of `VRP` for a set of attributes."""
    settings = {key: value for one in SETTINGS if one in attributes for key, value in SETTINGS[one].items()}
    return settings | ({"max_length": MAX_LENGTH_OF_PAIRS} if {"PD", "L"} <= attributes else {})


# All valid sets of attributes; those of O, B, L and TW come first.
LETTERS = ("MB", "PD", "HF", "MD", "PC", "O", "B", "L", "TW")
COMBINATIONS = {
    preset_name(attributes): attributes
    for chosen in product((False, True), repeat=len(LETTERS))
    if (attributes := frozenset(compress(LETTERS, chosen))) and len(attributes & GOODS) < 2
}
PRESETS = {name: settings_of(attributes) for name, attributes in COMBINATIONS.items()}
ORIGINAL = [name for name, attributes in COMBINATIONS.items() if attributes <= {"O", "B", "L", "TW"}]
LISTED = [
    *ORIGINAL,
    *(name for name, attributes in COMBINATIONS.items() if len(attributes) == 1 and name not in ORIGINAL),
]
