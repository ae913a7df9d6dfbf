"""The methods that an evaluation compares, built from the user's text: solvers and models with their settings."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from rich.markup import escape
from rich.progress import Progress

from routing_agents.evaluation.decoding import CHUNK_SIZE, Decoder, DecodeWork, Tours, decode_all, threads_of
from routing_agents.policies.attention.decoding import Decoding, check_symmetries, first_nodes, solve
from routing_agents.runs import BEST, LAST
from routing_agents.search.active import active_search
from routing_agents.search.beam import beam_search, simulation_guided_search
from routing_agents.terminal import plain_console
from routing_agents.trained import TrainedModel, checkpoint_named, find_checkpoint, find_weights, load
from routing_agents.trained.pointer import TrainedPointer
from routing_gym import arrays
from routing_gym.files import printable
from routing_gym.problem import AnyProblem
from routing_gym.rollout import Rollout
from routing_gym.solvers import SOLVERS, Solution, make_solver
from routing_gym.solvers.runtime.work import Executor

TRAINED = "trained"
SEARCHES = {
    "beam": ("expansion", "symmetries"),
    "active": ("embeddings",),
}  # settings that select a search: options


@dataclass(frozen=True)
class Setup:
    """Settings and resources that all methods of an evaluation share.

    Attributes:
        seed: Random seed for sampled tours and randomised solvers.
        tours_at_once: Number of tours that a model decodes at a time; None for 1,024, or fewer if instances are large.
        workers: Number of processes for solvers that take one instance at a time.
        executor: Executor of all methods; None for solvers in worker processes, and models in this process.
        cache: Folder for solutions of solvers; None keeps nothing.
        tours: Folder for tours of models; None keeps nothing.
        chunk_size: Number of instances that a model gets at a time.
        device: Device of models.
        first_row: Index of the first instance in a larger batch.
    """

    seed: int = 1234
    tours_at_once: int | None = None
    workers: int = 1
    executor: Executor | None = None
    cache: Path | None = None
    tours: Path | None = None
    chunk_size: int = CHUNK_SIZE
    device: str = "cpu"
    first_row: int = 0


def parse_method(text: str) -> tuple[str, dict[str, Any]]:
    """Split NAME:key=value,key=value into the name and its settings.

    Raises:
        ValueError: A setting has no value, is empty, or is set twice.
    """
    name, colon, listed = text.partition(":")
    settings: dict[str, Any] = {}
    for setting in listed.split(",") if colon else ():
        key, equals, value = setting.partition("=")
        if not setting:
            raise ValueError(f"{text!r}: a setting is empty; write {name}:SETTING=VALUE, or leave the colon out")
        if key in settings:
            raise ValueError(f"{text!r}: {key} is set twice; leave one out")
        if not equals:
            raise ValueError(f"{text!r}: {setting!r} has no value; write {name}:{setting}=VALUE")
        try:
            settings[key] = json.loads(value)
        except json.JSONDecodeError:
            settings[key] = value
    return name, settings


def make_method(text: str, setup: Setup, problem: AnyProblem) -> Callable[[AnyProblem, Any], Solution]:
    """Build one method and check that it can solve the problem, before any work is done.

    Raises:
        ValueError: The name is neither a solver nor a checkpoint, the method is unsuitable for the problem, a setting
            is wrong, or the cluster cannot be reached.
        ImportError: A solver's package is missing.
        OSError: The folder for solutions of solvers cannot be made.
    """
    name, settings = parse_method(text)
    if name in SOLVERS:
        solver = make_solver(name, **settings)
        solver.check(problem)
        solver.load()
        if setup.cache is not None:
            try:
                setup.cache.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise OSError(f"--cache {setup.cache}: cannot be made ({error.strerror}); choose another") from error
        if setup.executor is not None:
            setup.executor.prepare(solver.work(problem, setup.seed))
        return partial(
            solver.solve,
            seed=setup.seed,
            num_workers=setup.workers,
            progress=True,
            cache=setup.cache,
            executor=setup.executor,
            first_row=setup.first_row,
        )
    path = weights_of(name, problem)
    if path != Path(name):
        plain_console(stderr=True).print(printable(f"{name}: {path}"), soft_wrap=True)
    model = load(path)
    model.check(problem)
    problem = model.as_read(problem)
    searches = any(key in settings and settings.keys() <= {key, *options} for key, options in SEARCHES.items())
    decoder, several = (search_decoder if searches else plain_decoder)(text, dict(settings), model, problem)
    work = DecodeWork(text, problem, decoder, setup.seed, setup.tours_at_once, setup.device, threads_of(setup.executor))
    if setup.executor is not None:
        setup.executor.prepare(work)
    about = {"weights": weights_digest(path), "settings": settings, "problem": problem.name, **asdict(problem)}
    about |= {"chunk_size": setup.chunk_size, "tours_at_once": setup.tours_at_once, "seed": setup.seed}
    about |= {"torch": str(torch.__version__), "num_nodes": problem.num_nodes}
    if setup.device != "cpu":  # its random numbers and times are others
        about |= {"device": setup.device.partition(":")[0]}
    kept = None if setup.tours is None else Tours(setup.tours, about)
    return partial(decode_with_bar, work, setup, kept, several and problem.stochastic)


def weights_of(name: str, problem: AnyProblem) -> Path:
    """Return the path of a run, a checkpoint or published weights; for "trained", of those that suit the problem best.

    "VRPB-50" names the weights of the family. Weights of another size than the name's are not taken.

    Raises:
        ValueError: The name is none of these.
    """
    if Path(name).is_file() and Path(name).suffix not in (".safetensors", ".pt"):
        told = "expected a method, found a file that is no checkpoint; give one file of instances, and then methods"
        raise ValueError(f"{name}: {told}")
    if name == TRAINED:
        return find_weights(problem.name, problem.num_nodes, matrices=problem.matrices)
    try:
        return checkpoint_named(name)
    except ValueError as error:
        with suppress(ValueError):
            path, asked = find_checkpoint(name)
            if asked is not None and path.stem.endswith(name.removeprefix(asked)):
                return path
        raise ValueError(f"{error}; nor a solver: {', '.join(SOLVERS)}") from None


def digest_of(text: str, problem: AnyProblem) -> str:
    """Return the hash of a method's weights; empty for a solver."""
    name, _ = parse_method(text)
    return "" if name in SOLVERS else weights_digest(weights_of(name, problem))


def weights_digest(path: Path) -> str:
    """Return a hash that identifies a checkpoint, or the best one of a run."""
    path = path / BEST if path.is_dir() else path
    return sha256(path.read_bytes()).hexdigest()[:16]


def search_decoder(
    text: str, settings: dict[str, Any], model: TrainedModel, problem: AnyProblem
) -> tuple[Decoder, bool]:
    """Build active search or a beam search; return it, and whether it chooses among several tours.

    Raises:
        ValueError: A setting is of a wrong kind, or the model or the problem does not allow the search.
    """
    embeddings = settings.pop("embeddings", False)
    if not isinstance(embeddings, bool):
        raise ValueError(f"{text!r}: embeddings must be true or false, got {embeddings!r}")
    for key, value in settings.items():
        if type(value) is not int or value < 1:
            raise ValueError(f"{text!r}: {key} must be an integer of at least 1, got {value!r}")
    completing = "".join(settings.keys() & {"active", "expansion"})  # one of them, or neither
    if isinstance(model, TrainedPointer):
        if others := ", ".join(sorted(settings.keys() - {"beam"})):
            raise ValueError(f"{text!r}: a pointer network has beam alone; leave {others} out")
        decoding = Decoding(settings["beam"], force_starts=settings["beam"] > 1)
        return Decoder(model.network, partial(decode_pointer, model, decoding)), False
    if completing and problem.stochastic:
        raise ValueError(f"{text!r}: completing tours of {problem.name} shows prizes early; take beam alone")
    symmetries = settings.pop("symmetries", 1)
    try:
        check_symmetries(symmetries, problem)
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}") from error
    decode: Callable[..., Rollout]
    if completing == "active":
        decode = partial(active_search, iterations=settings["active"], embeddings=embeddings)
    else:
        search = partial(simulation_guided_search, expansion=settings["expansion"]) if completing else beam_search
        decode = partial(search, width=settings["beam"], symmetries=symmetries)
    several = symmetries > 1 or settings != {"beam": 1}
    return Decoder(model.network, decode, random=completing == "active"), several


def plain_decoder(
    text: str, settings: dict[str, Any], model: TrainedModel, problem: AnyProblem
) -> tuple[Decoder, bool]:
    """Build a decoder from fields of `Decoding`; return it, and whether it chooses among several tours.

    Raises:
        ValueError: A setting is unknown or wrong.
    """
    known = [field.name for field in fields(Decoding)]
    if search := next((key for key in SEARCHES if key in settings), None):
        others = ", ".join(sorted(settings.keys() - {search, *SEARCHES[search]}))
        raise ValueError(f"{text!r}: {search} goes with {' and '.join(SEARCHES[search])} only; leave out {others}")
    if unknown := sorted(settings.keys() - set(known)):
        raise ValueError(
            f"{text!r}: no setting {', '.join(unknown)}; a model has {', '.join(known)}; or beam, expansion "
            "and symmetries; or active, and embeddings"
        )
    try:
        decoding = Decoding(**settings)
        if decoding.force_starts:
            first_nodes(problem, decoding.num_tours)
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}") from error
    if isinstance(model, TrainedPointer):
        return Decoder(model.network, partial(decode_pointer, model, decoding)), False
    several = decoding.num_tours * decoding.symmetries > 1
    return Decoder(model.network, partial(solve, decoding=decoding), random=True), several


def decode_pointer(
    model: TrainedPointer,
    decoding: Decoding,
    network: torch.nn.Module,
    problem: AnyProblem,
    instance: Any,
    tours_at_once: int | None,
    progress: Callable[[int], None] | None,
) -> Rollout:
    """Decode with a pointer network, with the signature of the attention model's decoders; it decodes all at once."""
    return model.solve_batch(problem, instance, decoding, progress=progress)


def decode_with_bar(
    work: DecodeWork, setup: Setup, kept: Tours | None, is_bound: bool, problem: AnyProblem, instance: Any
) -> Solution:
    """Decode with a progress bar.

    The best of several tours of a stochastic problem is a bound: no policy could choose it.
    """
    with Progress(console=plain_console(stderr=True)) as progress:
        task = progress.add_task(escape(printable(work.name)), total=arrays.batch_size(instance))

        def advance(done: int) -> None:
            progress.advance(task, done)

        return decode_all(work, instance, setup.executor, setup.first_row, setup.chunk_size, kept, advance, is_bound)


def labels(methods: tuple[str, ...]) -> list[str]:
    """Shorten the paths of checkpoints to the names of their runs, if these are unique among the methods."""
    short = []
    for text in methods:
        name, colon, settings = text.partition(":")
        path = Path(name)
        run = path.parent.name if path.name in (BEST, LAST) else path.stem
        short.append(text if name in (*SOLVERS, TRAINED) else run + colon + settings)
    return [one if short.count(one) == 1 else text for one, text in zip(short, methods, strict=True)]
