"""Comparison of the backends: torch and JAX replay the episodes that NumPy has played."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt
from array_api_compat import device as device_of_array

from routing_gym.arrays import converter, device_of, to_backend, to_numpy, use_jax
from routing_gym.problem import AnyProblem
from routing_gym.testing.compare import attempt, call, difference, expect, expect_same_forms, form

TOLERANCE = 1e-5  # on costs, on observations and on the numbers that determine a mask
DRAWING_TOLERANCE = 1e-4  # on generated numbers
DRAWN_ALIKE = 0.99  # share of the numbers within it; float32 may round across the boundary between two integers


def installed_backends(checker: str) -> list[str]:
    """Return the names of the installed backends among torch and JAX.

    Warns:
        UserWarning: Not both are installed.
    """
    found = [name for name in ("torch", "jax") if find_spec(name) is not None]
    if missing := [name for name in ("torch", "jax") if name not in found]:
        checked = f"only NumPy and {found[0]} were checked" if found else "only NumPy was checked"
        warnings.warn(f"{checker}: {' and '.join(missing)} not installed, so {checked}", stacklevel=3)
    return found


def check_backend(problem: AnyProblem, instance: Any, played: Any, backend: str, device: str | None) -> None:
    """Replay the episodes and compare masks, costs, ends, observations and objectives with NumPy's.

    JAX runs compiled, and must compile once for all steps, without calling back into Python.

    Args:
        problem: Problem of the instances.
        instance: B instances, on NumPy.
        played: Episodes of NumPy on these instances, a `routing_gym.testing.problem.PlayedBatch`.
        backend: "torch" or "jax".
        device: Device of the backend.
    """
    both, move = f"{backend} and NumPy", converter(backend, device)
    moved = to_backend(instance, backend, device)
    traces: list[int] = []
    if backend == "jax":  # JAX arrays cannot be written to
        functions = readers(partial(attempt, problem, where="JAX"))
        begin, look, advance = (compiled(problem, function, traces) for function in functions)
    else:
        begin, look, advance = readers(partial(call, problem, where=backend))
    state, *found = begin(moved)
    expected = problem.observe_static(instance), problem.cost_bound(instance)
    for name, one, other in zip(("observe_static", "cost_bound"), found, expected, strict=True):
        apart = difference(one, other, TOLERANCE)
        expect(apart is None, problem, name, f"{both} differ: {apart}")
    for step, expected_state in enumerate(played.states):
        where = f"step {step}"
        mask, done, progress, seen = look(moved, state)
        for name, flags in (("action_mask", mask), ("done", done)):
            told = f"is {form(flags)} on {backend}, expected bool"
            expect(to_numpy(flags).dtype == bool, problem, f"{name}, {where}", told)
        expect(device_of_array(mask) == device_of(moved), problem, where, "the mask is on another device")
        disputed = to_numpy(mask) != played.masks[step]
        if disputed.any():
            disputed &= ~near_limit(problem, instance, expected_state)
        places = f"{both} disagree at (row, action) {np.argwhere(disputed)[:5].tolist()}"
        expect(not disputed.any(), problem, f"action_mask, {where}", places)
        expect(np.array_equal(to_numpy(done), played.done[step]), problem, f"done, {where}", f"{both} disagree")
        apart = difference(progress, problem.progress(instance, expected_state), TOLERANCE)
        expect(apart is None, problem, f"progress, {where}", f"{both} differ: {apart}")
        apart = difference(seen, problem.observe_dynamic(instance, expected_state), TOLERANCE)
        expect(apart is None, problem, f"observe_dynamic, {where}", f"{both} differ: {apart}")
        if step < played.actions.shape[1]:
            new_state, cost = advance(moved, state, move(played.actions[:, step]))
            expect_same_forms(problem, f"{where} on {backend}, the new state", state, new_state)
            state = new_state
            apart = difference(cost, played.costs[:, step].astype(np.float32), TOLERANCE)
            expect(apart is None, problem, where, f"{both} differ in the cost: {apart}")
    expect(len(traces) <= 3, problem, "JAX", f"compiled three functions {len(traces)} times for arrays of one shape")
    tours = played.actions[:, : max(played.lengths)]  # finished rows repeat their one legal action
    costs = attempt(problem, "objective", moved, move(tours), where=backend)
    apart = difference(costs, problem.objective(instance, tours), TOLERANCE)
    expect(apart is None, problem, "objective", f"{both} differ: {apart}")


def check_drawing(problem: AnyProblem, batch_size: int, seed: int) -> None:
    """Check that compiled `from_uniforms` gives the instances on JAX that it gives on NumPy."""
    jax = use_jax()
    uniforms = np.random.default_rng(seed).random((batch_size, problem.num_uniforms), dtype=np.float32)
    draw = jax.jit(lambda numbers: attempt(problem, "from_uniforms", numbers, where="JAX"))
    found, expected = draw(jax.numpy.asarray(uniforms)), problem.from_uniforms(uniforms.astype(np.float64))
    for name, values in vars(expected).items():
        one = getattr(found, name)
        if values is None or one is None:
            expect(one is values, problem, "from_uniforms", f"{name} is None on JAX or NumPy only")
            continue
        drawn = to_numpy(one)
        same = drawn.dtype.kind == values.dtype.kind and drawn.shape == values.shape
        forms = f"{name} is {form(one)} on JAX, {form(values)} on NumPy"
        expect(same, problem, "from_uniforms", forms)
        share = np.isclose(drawn, values, rtol=DRAWING_TOLERANCE, atol=DRAWING_TOLERANCE).mean()
        told = f"only {share:.0%} of the numbers in {name} are the same on JAX and NumPy"
        expect(share >= DRAWN_ALIKE, problem, "from_uniforms", told)


def readers(do: Callable[..., Any]) -> tuple[Callable[..., Any], ...]:
    """Return three functions: read an instance, read a state, and step. `do` calls a method by name."""
    return (
        lambda instance: tuple(do(name, instance) for name in ("initial", "observe_static", "cost_bound")),
        lambda instance, state: tuple(
            do(name, instance, state) for name in ("action_mask", "done", "progress", "observe_dynamic")
        ),
        lambda instance, state, action: do("step", instance, state, action),
    )


def compiled(problem: AnyProblem, function: Callable[..., Any], traces: list[int]) -> Callable[..., Any]:
    """Compile a function of batches with JAX, counted in `traces`; each call also compares it with `vmap` over rows."""
    jax = use_jax()
    row_by_row = jax.vmap(function)

    def both_ways(*arguments: Any) -> Any:
        rows = row_by_row(*jax.tree.map(lambda x: x[:, None], arguments))
        return function(*arguments), jax.tree.map(lambda x: x[:, 0], rows)

    def trace(*arguments: Any) -> Any:
        traces.append(1)
        program = str(jax.make_jaxpr(both_ways)(*arguments))
        expect("callback" not in program, problem, "JAX", "the compiled program calls back into Python")
        return both_ways(*arguments)

    run = jax.jit(trace)

    def checked(*arguments: Any) -> Any:
        together, one_by_one = run(*arguments)
        apart = difference(together, one_by_one, TOLERANCE)
        expect(apart is None, problem, "vmap", f"gives other rows than the batch: {apart}")
        return together

    return checked


def near_limit(problem: AnyProblem, instance: Any, state: Any) -> npt.NDArray[np.bool_]:
    """Return a mask of actions whose legality depends on changes of 1e-5 in a float field: bool (B, A)."""
    mask = problem.action_mask(instance, state)
    near = np.zeros_like(mask)
    for batch, number in ((instance, 0), (state, 1)):
        for field in dataclasses.fields(batch):
            values = getattr(batch, field.name)
            if values is None or not np.issubdtype(values.dtype, np.floating):
                continue
            for shift in (-TOLERANCE, TOLERANCE):
                arguments = [instance, state]
                arguments[number] = dataclasses.replace(batch, **{field.name: values + values.dtype.type(shift)})
                near |= problem.action_mask(*arguments) != mask
    return np.asarray(near)
