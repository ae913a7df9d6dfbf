"""Checks of the environments' arguments and `reset` options, and the drawing of their instances."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from routing_gym.arrays import Array, batch_size, concatenate, to_numpy
from routing_gym.problem import AnyProblem, Problem
from routing_gym.problems import PROBLEMS, make_problem
from routing_gym.problems.checks import checked_instance
from routing_gym.problems.geometry import match_fields

Generator = Callable[[np.random.Generator, int], Any]  # like `Problem.generate`


def check_no_time_limit(settings: Mapping[str, Any]) -> None:
    """Check that `gym.make_vec` has not passed on a limit of steps, as it does with "vector_entry_point".

    Raises:
        ValueError: It has.
    """
    if "max_episode_steps" in settings:
        raise ValueError(
            "max_episode_steps: the native vector environment has no limit of steps, because every episode ends by "
            'itself; for a limit, call make_vec with vectorization_mode="sync"'
        )


def resolve_problem(
    env_class: type, problem: str | AnyProblem, num_nodes: int | None, settings: dict[str, Any]
) -> AnyProblem:
    """Build the problem that an environment's arguments describe.

    Raises:
        TypeError: A keyword is unknown, `problem` is neither a name nor a `Problem`, or `num_nodes` is missing, or
            given although `problem` is a `Problem`.
        ValueError: A name is unknown or a value is invalid.
    """
    if isinstance(problem, Problem):
        given = [*(["num_nodes"] if num_nodes is not None else []), *settings]
        if given:
            raise TypeError(f"{', '.join(given)}: already fixed by the {type(problem).__name__} passed as `problem`")
        return problem
    if not isinstance(problem, str):
        raise TypeError(
            f"problem: expected a name such as 'TSP' or a Problem such as TSP(50), got {problem!r}; a Problem does not "
            "survive spec.to_json(), a name and settings do"
        )
    if num_nodes is None:
        raise TypeError(f'num_nodes is missing; as in gym.make("routing/{problem}", num_nodes=50)')
    try:
        return make_problem(problem, num_nodes, **settings)
    except TypeError as error:
        known = [field.name for field in dataclasses.fields(PROBLEMS[problem])]
        unknown = [name for name in settings if name not in known]
        if not unknown:
            raise
        raise TypeError(  # begins like Python's own message: TorchRL's GymEnv tries `frameskip` and parses it
            f"{env_class.__name__} got an unexpected keyword argument {unknown[0]!r}: {error}. "
            f"Other keywords of {env_class.__name__}: {keywords(env_class)}"
        ) from error


def keywords(env_class: type) -> str:
    """Return the names of an environment's arguments, without the settings of its problem, for error messages."""
    return ", ".join(name for name in inspect.signature(env_class).parameters if name != "settings")


def check_generator(generator: Generator | None) -> Generator | None:
    """Check that the generator of instances can be called.

    Raises:
        TypeError: It cannot be called.
    """
    if generator is not None and not callable(generator):
        raise TypeError(
            f"generator: expected a function of a random generator and a number of instances, got {generator!r}; "
            "routing_gym.generators has functions of a problem, as in partial(windows, problem)"
        )
    return generator


def check_render_mode(env: Any, render_mode: str | None) -> str | None:
    """Check that an environment declares a render mode.

    Raises:
        ValueError: It does not. The message names the declared ones.
    """
    modes = env.metadata["render_modes"]
    if render_mode is not None and render_mode not in modes:
        raise ValueError(f"{type(env).__name__}: render_mode must be None, {', '.join(modes)}; got {render_mode!r}")
    return render_mode


def check_options(options: dict[str, Any] | None, problem: Any, num_envs: int, known: Sequence[str]) -> dict[str, Any]:
    """Check the options of `reset`, and return a copy with instance and mask as NumPy arrays.

    Raises:
        TypeError: The options are no mapping, the instance is not of the problem's instance class, or the mask is not
            bool.
        InvalidInstance: See `Problem.validate`.
        ValueError: An option is unknown, the number of rows is wrong, or the mask marks no lane.
    """
    if options is not None and not isinstance(options, Mapping):
        raise TypeError(f"options: expected a mapping such as {{'instance': ...}}, got {type(options).__name__}")
    checked = dict(options or {})
    unknown = sorted(map(str, set(checked) - set(known)))
    if unknown:
        raise ValueError(f"options: unknown {', '.join(unknown)}; known are {', '.join(known)}")
    if "instance" in checked:
        checked["instance"] = check_instance(problem, checked["instance"], num_envs, "options['instance']")
    if "reset_mask" in checked:
        checked["reset_mask"] = check_mask(checked["reset_mask"], num_envs, "options['reset_mask']")
    return checked


def check_mask(mask: Array, num_envs: int, source: str) -> npt.NDArray[np.bool_]:
    """Check a mask of lanes, and return it as NumPy array.

    Raises:
        TypeError: The mask is not bool.
        ValueError: The shape is wrong, or the mask marks no lane.
    """
    lanes = to_numpy(mask)
    if lanes.dtype != np.bool_:
        raise TypeError(f"{source}: expected bool, got {lanes.dtype}")
    if lanes.shape != (num_envs,):
        raise ValueError(f"{source}: expected shape ({num_envs},), got {lanes.shape}")
    if not lanes.any():
        raise ValueError(f"{source}: mark at least one lane")
    return lanes


def check_instance(problem: Any, instance: Any, num_rows: int, source: str) -> Any:
    """Check instances from the user and convert them to NumPy, with the dtypes of the contract.

    Args:
        problem: Problem or game of the instances.
        instance: Instances on any backend.
        num_rows: Expected number of instances.
        source: Origin of the instances, for the error message.

    Raises:
        TypeError: The instances are not of the problem's instance class.
        InvalidInstance: See `Problem.validate`.
        ValueError: The number of instances is not `num_rows`.
    """
    instance = checked_instance(problem, instance, source)
    found_rows = batch_size(instance)
    if found_rows != num_rows:
        raise ValueError(f"{source}: expected exactly {num_rows} row{'s' * (num_rows > 1)}, got {found_rows}")
    return instance


def draw_instances(problem: Any, generators: Sequence[np.random.Generator], generator: Generator | None) -> Any:
    """Draw one instance from each random generator, as NumPy arrays.

    Args:
        problem: Problem or game of the instances.
        generators: Random number generators, one per lane.
        generator: Function that replaces `Problem.generate`; called with one random number generator and 1.

    Raises:
        TypeError: `generator` returned an object that is not of the problem's instance class.
        InvalidInstance: See `Problem.validate`.
        ValueError: `generator` returned several rows.
    """
    if generator is not None:
        rows = [check_instance(problem, generator(rng, 1), 1, "generator(rng, 1)") for rng in generators]
        return concatenate(match_fields(rows))
    uniforms = np.empty((len(generators), problem.num_uniforms))
    for row, rng in zip(uniforms, generators, strict=True):
        rng.random(out=row)
    return problem.from_uniforms(uniforms)
