"""Bounds on the sizes of networks, so that a wrong number raises an error before memory is allocated."""

from __future__ import annotations

MOST = 2**24  # num_layers times the square of the largest size: some 200 million weights, 0.8 GB


def check_sizes(num_layers: object, sizes: dict[str, object]) -> None:
    """Check that the sizes of a network are positive integers, and not too large together.

    Args:
        num_layers: Number of layers.
        sizes: All other sizes, by name.

    Raises:
        ValueError: A size is not a positive integer, or the sizes are too large. The message has the values.
    """
    numbers = []
    for name, value in {**sizes, "num_layers": num_layers}.items():
        if type(value) is not int or value < 1:
            raise ValueError(f"{name} must be an integer of at least 1, got {value!r}")
        numbers.append(value)
    if numbers[-1] * max(numbers) ** 2 > MOST:
        raise ValueError(
            f"the largest size is {max(numbers)} and num_layers {numbers[-1]}; expected that num_layers times the "
            f"square of the largest size is at most {MOST}: choose smaller sizes"
        )
