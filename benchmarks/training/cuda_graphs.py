"""Train with am_reinforce.py on a GPU; tours are sampled by replaying a CUDA graph of one step.

    python benchmarks/training/cuda_graphs.py --env-id routing/TSP-100 --batch-size 512 --loss preference

A step of a rollout starts some 80 small kernels (TSP; 135 with the attributes of OVRPBLTW), and the CPU takes longer to
start them than the GPU to run them. Here a graph is captured once for each problem and size, and replayed with one call
per step. The first tours of each graph are replayed without it as a check. docs/research/2026-11-training-on-a-gpu.md
has the figures.

The arguments are those of am_reinforce.py; the baseline must be `shared`, without `--force-starts` and `--symmetries`.
`--sizes` are rounded to multiples of 20, so that there are few graphs. Without a GPU, the same steps run one by one.
Continue a run with `cuda_graphs.py --resume RUN`; am_reinforce.py continues it, too, without graphs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import am_reinforce  # isort: skip  (first: it sets how threads wait, which is read when torch is loaded)

import torch
from torch import Tensor

from routing_agents.policies.attention.decoding import Choice, sampling_choice
from routing_agents.policies.attention.model import AttentionModel, Encoding
from routing_agents.runs import TrainingDivergedError
from routing_agents.terminal import command_line
from routing_agents.training import distributed
from routing_agents.training.losses import LOSSES
from routing_gym import arrays
from routing_gym.arrays import map_arrays, select
from routing_gym.problem import AnyProblem
from routing_gym.rollout import Rollout, rollout

CHECKED_STEPS = 8  # steps between checks whether all rows are done; each check makes the CPU wait for the GPU
SIZES = 20  # `--sizes` are rounded to multiples of this


class GraphedPlay:
    """Sampler of `num_tours` tours of each of B instances; on a GPU with a CUDA graph, elsewhere step by step.

    Args:
        model: Network; its weights are read in place, not copied.
        problem: Problem of the instances.
        instance: The instances, repeated to B * num_tours rows; all later ones must have the same shapes.
        encoding: Encoding of the B instances.
        num_tours: Number of tours per instance.
        choose: Function that picks actions from logits. On a GPU it must draw from the default generator, which CUDA
            graphs support.
    """

    pool: Any = None  # memory pool that all graphs share

    def __init__(
        self,
        model: AttentionModel,
        problem: AnyProblem,
        instance: Any,
        encoding: Encoding,
        num_tours: int,
        choose: Choice,
    ) -> None:
        self.model, self.problem, self.num_tours, self.choose = model, problem, num_tours, choose
        self.instance, self.encoding = copied(instance), encoding.map(lambda x: x.contiguous().clone())
        self.state = copied(problem.initial(self.instance))
        rows, steps, device = arrays.batch_size(instance), problem.horizon, arrays.device_of(instance)
        self.step_number = torch.zeros(1, dtype=torch.int64, device=device)
        self.cost = torch.zeros(rows, device=device)
        self.actions = torch.zeros(rows, steps, dtype=torch.int64, device=device)
        self.finished = torch.zeros(steps, dtype=torch.bool, device=device)
        self.seen = {key: torch.stack([value] * steps, dim=1) for key, value in self.observe().items()}
        self.begin, self.step = self.capture() if torch.device(device).type == "cuda" else (self._begin, self._step)

    def observe(self) -> dict[str, Tensor]:
        """Return the observation of the policy."""
        mask = self.problem.action_mask(self.instance, self.state)
        return {**self.problem.observe_dynamic(self.instance, self.state), "action_mask": mask}

    def capture(self) -> tuple[Callable[[], None], Callable[[], None]]:
        """Capture `_begin` and `_step`; return the functions that replay them."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # libraries are initialised by the first call, not in a capture
            self._begin()
            self._step()
        torch.cuda.current_stream().wait_stream(side)
        if GraphedPlay.pool is None:
            GraphedPlay.pool = torch.cuda.graph_pool_handle()
        begin, step = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(begin, pool=GraphedPlay.pool):
            self._begin()
        with torch.cuda.graph(step, pool=GraphedPlay.pool):
            self._step()
        return begin.replay, step.replay

    def _begin(self) -> None:
        self.logits = self.model.stepwise_logits(self.encoding, self.num_tours)
        copy_into(self.state, self.problem.initial(self.instance))
        for total in (self.step_number, self.cost, self.finished):
            total.zero_()

    def _step(self) -> None:
        seen = self.observe()
        queries = {key: value.view(-1, self.num_tours, *value.shape[1:]) for key, value in seen.items()}
        action = self.choose(self.logits(queries)).flatten()
        state, cost = self.problem.step(self.instance, self.state, action)
        done = self.problem.done(self.instance, state).all()
        for key, value in seen.items():
            self.seen[key].index_copy_(1, self.step_number, value[:, None])
        self.actions.index_copy_(1, self.step_number, action[:, None])
        self.finished.index_copy_(0, self.step_number, done[None])
        self.cost += cost
        copy_into(self.state, state)
        self.step_number += 1

    @torch.no_grad()
    def play(self, instance: Any, encoding: Encoding) -> Rollout:
        """Sample tours of other instances. The next call overwrites the returned tensors."""
        copy_into(self.instance, instance)
        for mine, other in zip(tensors(self.encoding), tensors(encoding), strict=True):
            mine.copy_(other)
        self.begin()
        steps = self.problem.horizon
        for step in range(1, steps + 1):
            self.step()
            if not self.problem.fixed_length and step % CHECKED_STEPS == 0 and bool(self.finished[step - 1]):
                break
        if not self.problem.fixed_length:
            steps = step + 1 - int(self.finished[:step].sum())
        return Rollout(self.actions[:, :steps], self.cost, {key: value[:, :steps] for key, value in self.seen.items()})

    @torch.no_grad()
    def check(self, played: Rollout) -> None:
        """Replay the actions of the latest instances without the graph, and compare masks and costs.

        Raises:
            RuntimeError: Masks or costs differ.
        """
        assert played.observations is not None
        masks, number = played.observations["action_mask"], 0

        def repeat(observation: dict[str, Tensor]) -> Tensor:
            nonlocal number
            action, mask = played.actions[:, number], observation["action_mask"]
            if not (torch.equal(mask, masks[:, number]) and bool(mask.gather(1, action[:, None]).all())):
                raise RuntimeError(f"{self.problem}: step {number} of the graph differs from the rules")
            number += 1
            return action

        again = rollout(self.problem, self.instance, repeat)
        if again.actions.shape != played.actions.shape or not torch.allclose(again.cost, played.cost, atol=1e-4):
            raise RuntimeError(f"{self.problem}: tours of the graph cost something else by the rules")


def copied(batch: Any) -> Any:
    """Return a copy of a dataclass of tensors, with its own memory."""
    return map_arrays(lambda x: x.contiguous().clone(), batch)


def copy_into(old: Any, new: Any) -> None:
    """Copy the tensors of a dataclass into those of another one."""
    for mine, other in zip(vars(old).values(), vars(new).values(), strict=True):
        if mine is not None:
            mine.copy_(other)


def tensors(encoding: Encoding) -> list[Tensor]:
    """List the tensors of an encoding."""
    return [x for value in vars(encoding).values() for x in (value if isinstance(value, tuple) else (value,))]


class GraphReinforce(am_reinforce.Reinforce):
    """`Reinforce` for the shared baseline, with tours sampled by `GraphedPlay`."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.players: dict[tuple[AnyProblem, int], GraphedPlay] = {}

    def play(self, problem: AnyProblem, instance: Any, encoding: Encoding, choose: Choice, num_tours: int) -> Rollout:
        size = arrays.batch_size(instance)
        repeated = torch.arange(size, device=arrays.device_of(instance)).repeat_interleave(num_tours)
        rows, key = select(instance, repeated), (problem, size)
        known = key in self.players
        if not known:
            with torch.no_grad():
                self.players[key] = GraphedPlay(self.model, problem, rows, encoding, num_tours, choose)
        played = self.players[key].play(rows, encoding)
        if not known:
            self.players[key].check(played)
        return played


class GraphTrainer(am_reinforce.ReinforceTrainer):
    """`ReinforceTrainer` with the loss of `GraphReinforce`."""

    def __init__(self, args: am_reinforce.Args) -> None:
        if args.model != "attention" or args.baseline != "shared" or args.force_starts or args.symmetries:
            raise ValueError("graphs take --model attention and --baseline shared, no --force-starts and --symmetries")
        super().__init__(args)
        self.loss = distributed.parallel(GraphReinforce(self.model, self.baseline, LOSSES[self.args.loss]))
        on_gpu = self.device.startswith("cuda")
        if not on_gpu:
            print(f"cuda_graphs: the device is {self.device}, so steps run one by one, without graphs", file=sys.stderr)
        self.generator = torch.cuda.default_generators[torch.cuda.current_device()] if on_gpu else torch.Generator()
        self.choose = sampling_choice(self.generator)

    def batch_problem(self, step: int) -> AnyProblem:
        problem = super().batch_problem(step)
        if not self.args.sizes:
            return problem
        return self.args.variant(problem.name, SIZES * max(1, round(problem.num_nodes / SIZES)))

    def draw(self, problem: AnyProblem, step: int) -> tuple[Any, Choice]:
        instance, _ = super().draw(problem, step)
        self.generator.manual_seed(self.args.seed * 1_000_003 + step)
        return instance, self.choose


if __name__ == "__main__":
    train = partial(am_reinforce.main, trainer_type=GraphTrainer)
    command_line(train, am_reinforce.Args, __doc__, (TrainingDivergedError,))
