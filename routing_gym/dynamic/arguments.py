"""Arguments of the environments of the dynamic VRPTW: the source of the days, and the form of the actions."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from routing_gym.dynamic.days import Day, DaySource, ResampledDays
from routing_gym.dynamic.forms import DispatchForm, Form, RouteForm
from routing_gym.dynamic.generated import GeneratedDays
from routing_gym.dynamic.routers import Router
from routing_gym.dynamic.solver import ROUTERS
from routing_gym.dynamic.static import StaticInstance, read_static
from routing_gym.envs.arguments import check_instance, keywords
from routing_gym.problems.checks import check_flag

ActionForm = Literal["dispatch", "route"]


def choose_source(
    env_class: type, static: str | Path | StaticInstance | None, source: DaySource | None, settings: dict[str, Any]
) -> DaySource:
    """Build the source of days that an environment's arguments describe.

    Raises:
        TypeError: A setting does not exist, or the source is not a source.
        ValueError: A value is invalid, or a source is given together with settings.
    """
    if source is not None:
        if static is not None or settings:
            given = "static" if static is not None else next(iter(settings))
            raise ValueError(f"source has its own settings; leave out {given}")
        missing = [name for name in ("num_slots", "num_locations", "has_coords", "draw") if not hasattr(source, name)]
        if missing or isinstance(source, type):
            found = f"the class {source.__name__}" if isinstance(source, type) else f"one without {', '.join(missing)}"
            raise TypeError(f"source: expected an object like a DaySource, got {found}")
        return source
    kind = GeneratedDays if static is None else ResampledDays
    names = [field.name for field in dataclasses.fields(kind) if field.name != "static"]
    unknown = sorted(set(settings) - set(names))
    if unknown:
        raise TypeError(
            f"routing/DVRPTW got an unexpected keyword argument {unknown[0]!r}; settings of "
            f"{'generated days' if static is None else 'days from a static instance'} are {', '.join(names)}; "
            f"other keywords of {env_class.__name__}: {keywords(env_class)}"
        )
    if static is None:
        return GeneratedDays(**settings)
    return ResampledDays(read_static(static) if isinstance(static, (str, Path)) else static, **settings)


def make_form(source: DaySource, action: ActionForm, router: str | Router, observe_durations: bool) -> Form:
    """Build the form that an environment's arguments describe.

    Raises:
        TypeError: The router is not a router.
        ValueError: A value is invalid.
    """
    if action not in get_args(ActionForm):
        raise ValueError(f"action must be one of {', '.join(get_args(ActionForm))}; got {action!r}")
    with_durations = check_flag("observe_durations", observe_durations) or not source.has_coords
    if action == "route":
        if router != "nearest":
            raise ValueError(f'router {router!r} has no effect with action="route"; leave it out')
        return RouteForm(source, with_durations)
    if isinstance(router, str):
        if router not in ROUTERS:
            raise ValueError(f"router must be one of {', '.join(ROUTERS)}, or a function; got {router!r}")
        router = ROUTERS[router]
    if not callable(router) or isinstance(router, type):
        found = f"the class {router.__name__}" if isinstance(router, type) else repr(router)
        raise TypeError(f"router: expected a name or a function of days, got {found}")
    return DispatchForm(source, router, with_durations)


def draw_days(form: Form, generators: Sequence[np.random.Generator]) -> Day:
    """Draw one day from each random number generator; days of a source of the user's own are checked.

    Raises:
        TypeError: The source returned an object that is not a `Day`.
        InvalidInstance: See `check_day`.
        ValueError: The source returned another number of days.
    """
    day = form.source.draw(generators)
    if type(form.source) in (GeneratedDays, ResampledDays):
        return day
    checked: Day = check_instance(form, day, len(generators), "source.draw")
    return checked
