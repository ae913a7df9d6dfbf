"""Train the attention model of Kool et al. (2019) with REINFORCE on any of the routing problems.

    python agents/am_reinforce.py                                  # TSP-20, 6 minutes on two cores
    python agents/am_reinforce.py --env-id routing/CVRP-50
    python agents/am_reinforce.py --env-id routing/TSP-50 --init-from runs/NAME   # from TSP-20, say
    python agents/am_reinforce.py --model pointer                  # like Bello et al. (2016)
    python agents/am_reinforce.py --resume runs/NAME               # continues where the run stopped
    python agents/am_reinforce.py --plan plan.toml                 # several runs, in turn
    torchrun --nnodes=2 --nproc-per-node=2 ... agents/am_reinforce.py             # several machines

Every random number is a function of the seed and the step, so a resumed run with the same number of threads repeats an
uninterrupted one bit for bit, wherever it was stopped (in three processes or more: up to rounding). Ctrl-C stops after
the current step and saves the run.
"""

from __future__ import annotations

import os

# Waiting threads must sleep: if they spin, training becomes much slower as soon as another program is busy.
# The OpenMP library reads the variable when torch is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import dataclasses
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import tyro
from torch import Tensor, nn

from routing_agents import checkpoint, runs
from routing_agents.arguments import flags
from routing_agents.optimizers import LEARNING_RATES, make_optimizers
from routing_agents.policies.attention.decoding import Choice, decode, log_probability, sampling_choice
from routing_agents.policies.attention.features import features_of
from routing_agents.policies.attention.model import ModelConfig, make_network
from routing_agents.policies.attention.saved import check_start, describe, warm_start
from routing_agents.policies.attention.value import CostCritic
from routing_agents.policies.attention.views import symmetric_views
from routing_agents.policies.pointer import saved as pointer_saved
from routing_agents.policies.pointer.model import PointerConfig
from routing_agents.policies.pointer.policy import PointerPolicy
from routing_agents.policies.pointer.tasks import TASKS
from routing_agents.policies.protocol import PolicyNetwork
from routing_agents.runs import MOST_COUNT, TrainingDivergedError, check_integers, check_numbers, stream
from routing_agents.terminal import command_line
from routing_agents.trained import find_checkpoint
from routing_agents.training import distributed, held_out, loop, plan
from routing_agents.training.averaging import WeightAverage
from routing_agents.training.baselines import (
    Baseline,
    CriticBaseline,
    ExponentialBaseline,
    NoBaseline,
    RolloutBaseline,
    SharedBaseline,
)
from routing_agents.training.distribution import check_generator
from routing_agents.training.losses import LOSSES, Loss, reinforce
from routing_agents.training.problem_trainer import ProblemTrainer, check_network
from routing_agents.training.report import Column
from routing_agents.training.stopping import reason_to_stop
from routing_agents.training.trainer import RunArgs
from routing_agents.training.tuning import choose_precision
from routing_gym.arrays import batch_size, cast_instance, to_backend
from routing_gym.data import save_npz
from routing_gym.generators import GENERATORS
from routing_gym.problem import AnyProblem
from routing_gym.problems import make_problem
from routing_gym.rollout import Rollout


@dataclass(frozen=True)
class Args(RunArgs):
    """Arguments of a run; the defaults train TSP-20 on two CPU cores in about 6 minutes."""

    local = ("runs", "init_from", "resume", "plan")
    advanced = ("env_kwargs", "generator", "variants", "decay", "max_grad_norm", "force_starts", "symmetries")
    advanced += ("patience", "hours", "average", "loss", "baseline_size", "held_out", "held_out_file", "attention")
    advanced += ("pointer", "processes", "threads", "profile", "log", "runs", "plan")

    env_id: str = "routing/TSP-20"
    """Problem and number of nodes, as in routing/CVRP-50: TSP, CVRP, SDVRP, OP, PCTSP, SPCTSP, PDP, MTSP, TSPFE, ATSP,
    or one of the VRP family such as VRPTW."""
    env_kwargs: dict[str, str] = dataclasses.field(default_factory=dict)
    """Settings of the problem, such as `--env-kwargs prize uniform`."""
    seed: int = 1
    """Random seed for the weights, the training instances and the sampled tours."""
    epochs: int = 16
    """Number of epochs; each ends with an evaluation and a checkpoint."""
    steps_per_epoch: int = 100
    """Number of training steps per epoch, one batch each."""
    batch_size: int = 256
    """Number of instances per batch, over all processes."""
    sizes: tuple[int, int] | None = None
    """Smallest and largest number of nodes to train on, drawn for each batch; the held-out instances keep the size of
    the id."""
    generator: str = "uniform"
    """Distribution of the training instances: uniform; mixed (uniform and clustered; ATSP: random matrices and
    streets); x (as in CVRPLIB's set X; CVRP, SDVRP); windows (subproblems of large-neighbourhood search; TSPFE); roads
    (matrices of lengths along streets); random (matrices of random lengths); salesmen (2 to 10 of them; MTSP); settings
    (other capacities, costs, penalties, windows and numbers of vehicles; CVRP, SDVRP, VRP family); or one that you add
    to routing_gym.generators.GENERATORS. The held-out instances are those that the problem generates itself, or those
    of --held-out-file."""
    variants: bool = False
    """Train one model for this problem of the VRP family and all that lack some of its attributes (sixteen for
    OVRPBLTW), one of them per batch. The held-out instances are those of the id."""
    optimizer: Literal["muon", "adam"] | None = None
    """Optimiser: Muon (with Adam for vectors) learns from several times fewer instances than Adam, the paper's.
    Default: Muon for the attention model, Adam for the pointer network."""
    learning_rate: float | None = None
    """Initial learning rate. Default: 3e-3 with Muon, 5e-4 with Adam, 1e-3 for the pointer network."""
    decay: float = 1.0
    """Last fraction of the run, over which the learning rate falls linearly to zero."""
    patience: int = 0
    """Number of epochs after which the run ends if the greedy cost has fallen by less than 0.1 % in them; 0 for
    never."""
    hours: float | None = None
    """Time limit in hours; the run ends with the epoch in which it is reached. Default: no limit."""
    max_grad_norm: float = 1.0
    """Largest norm of the gradients; larger ones are scaled down."""
    average: float = 0.0
    """Decay per step of an exponential moving average of the weights, such as 0.99. The average is evaluated and saved
    for use instead of the latest weights; 0 for no average."""
    loss: Literal["reinforce", "preference", "best-anchored"] = "reinforce"
    """Loss: REINFORCE; preference, over all pairs of the tours of an instance (Pan et al. 2025); or best-anchored, the
    best tour against the others (BOPO, Liao et al. 2025). The last two need the shared baseline's tours."""
    baseline: Literal["rollout", "exponential", "critic", "shared", "none"] = "shared"
    """Baseline of REINFORCE: the mean of the other tours of the instance (shared), the greedy tour of a frozen policy
    (rollout, Kool et al. 2019), a moving average (exponential), a predicted cost (critic), or none."""
    num_tours: int = 8
    """Number of sampled tours per instance with the shared baseline."""
    force_starts: bool = False
    """Start tour k of the shared baseline at node k, like POMO, for problems whose tours may start at any node (TSP,
    CVRP). This suits multi-start decoding; the first node of a single greedy tour is then never learnt."""
    symmetries: bool = False
    """Sample tour k of the shared baseline under the k-th of the eight symmetries of the square (Kim et al. 2022), for
    problems with coordinates; with matrices under the k-th order of the nodes' codes. Each is encoded separately."""
    baseline_size: int = 10_000
    """Number of instances in the t-test of the rollout baseline, which are of the problem and size of the id."""
    held_out: int = 1_000
    """Number of held-out instances for the greedy cost after each epoch and, for TSP, the gap."""
    held_out_file: Annotated[str, tyro.conf.arg(metavar="FILE")] = ""
    """File with the held-out instances, of which the first --held-out are taken: an .npz file of
    routing_gym.data.save_npz, rl4co or RouteFinder."""
    model: str = "attention"
    """Kind of network: attention, the attention model; pointer, a pointer network (TSP only); or one that you add to
    routing_agents.policies.attention.model.NETWORKS."""
    attention: tyro.conf.OmitArgPrefixes[ModelConfig] = ModelConfig(nearness=True)
    """Sizes and options of the attention model."""
    pointer: PointerConfig = PointerConfig()
    """Kind and size of the pointer network."""
    device: str = "auto"
    """Device for training: cpu, cuda, or auto for cuda where there is one."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of the encoder's matrix products in training and its evaluations; auto takes bfloat16 if the processor
    has instructions for it."""
    processes: int = 0
    """Number of processes on this machine that share each batch; 0 starts two on a CPU with several cores, else one."""
    threads: int = 0
    """Number of CPU threads per process; 0 uses one in each of several processes, or all cores in a single one."""
    init_from: Annotated[Path | None, tyro.conf.arg(metavar="RUN")] = None
    """Run, checkpoint or published weights such as TSP-50 whose weights the training starts from, of any problem and
    size, where they fit."""
    profile: bool = False
    """Write torch's profile of five early steps to trace.json in the run's folder, for chrome://tracing or Perfetto."""
    log: Literal["tensorboard", "wandb"] = "tensorboard"
    """Log of the metrics: TensorBoard, or TensorBoard and Weights & Biases (wandb)."""
    runs: Path = Path("runs")
    """Folder in which run folders are made."""
    name: str = ""
    """Name of the run's folder. Default: the problem, the baseline, the seed and the time."""
    resume: Annotated[Path | None, tyro.conf.arg(metavar="RUN")] = None
    """Folder of a run to resume, with the arguments it was started with."""
    plan: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """TOML file with runs to train in turn, a table of arguments for each."""

    def __post_init__(self) -> None:
        check_integers(self, "seed", least=0)
        check_integers(self, "epochs", "steps_per_epoch")
        check_integers(self, "batch_size", "num_tours", "baseline_size", "held_out", most=MOST_COUNT)
        check_numbers(self, "learning_rate", "max_grad_norm", "decay", "hours")
        if self.decay > 1:
            raise ValueError(f"--decay must be in (0, 1], got {self.decay}")
        check_numbers(self, "average", zero=True, most=0.9999)
        if self.loss != "reinforce" and self.baseline != "shared":
            found = f"--baseline {self.baseline} samples one"
            raise ValueError(f"--loss {self.loss} compares several tours of an instance; {found}, take shared")
        unused = "attention" if self.model == "pointer" else "pointer"
        usual = getattr(type(self), unused)  # the default
        if getattr(self, unused) != usual:
            given = next(flags(self, dataclasses.replace(self, **{unused: usual})))
            raise ValueError(f"{given} has no effect on --model {self.model}; leave it out")
        check_integers(self, "processes", "threads", least=0, most=runs.MOST_THREADS)
        if self.processes and self.batch_size % self.processes:
            raise ValueError(f"--batch-size {self.batch_size} cannot be shared by {self.processes} processes")
        check_integers(self, "patience", least=0)
        if self.sizes is not None and not 2 <= self.sizes[0] <= self.sizes[1]:
            raise ValueError(f"--sizes takes the smallest and the largest number of nodes, from 2 on, got {self.sizes}")
        if self.sizes is not None and self.force_starts and self.num_tours > self.sizes[0]:
            found = f"--num-tours is {self.num_tours}, --sizes starts at {self.sizes[0]}"
            raise ValueError(f"--force-starts needs a node per tour: {found}; choose fewer tours or larger sizes")
        if self.force_starts and self.baseline != "shared":
            raise ValueError(f"--force-starts has no effect: --baseline {self.baseline} samples one tour; leave it out")
        if self.symmetries and (self.baseline != "shared" or self.force_starts):
            found = "--force-starts" if self.baseline == "shared" else f"--baseline {self.baseline}"
            raise ValueError(f"--symmetries makes the tours of the shared baseline differ; leave out {found}")

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Args:
        """Convert JSON to arguments, like `RunArgs.from_json`; also those of published weights with older names."""
        values = {key: value for key, value in values.items() if key not in cls.local}
        if "num_starts" in values:
            values["num_tours"] = values.pop("num_starts")
        if not isinstance(values["model"], str):  # older files hold the sizes of the attention model here
            values |= {"model": "attention", "attention": values["model"], "pointer": {}}
        return super().from_json(values)

    def to_json(self) -> dict[str, Any]:
        return super().to_json() | {"held_out_file": held_out.FILE if self.held_out_file else ""}

    def in_folder(self, folder: Path) -> Args:
        return dataclasses.replace(self, held_out_file=str(folder / held_out.FILE)) if self.held_out_file else self

    def chosen(self) -> Args:
        """Return the arguments with the optimiser and the learning rate that are used if none are given."""
        optimizer = self.optimizer or ("adam" if self.model == "pointer" else "muon")
        usual = 1e-3 if self.model == "pointer" else LEARNING_RATES[optimizer]
        rate = usual if self.learning_rate is None else self.learning_rate
        return dataclasses.replace(self, optimizer=optimizer, learning_rate=rate)

    def make_problem(self) -> AnyProblem:
        """Build the problem, and check the arguments that depend on it or name something.

        Raises:
            ValueError: There is no such problem, generator or network, or an argument does not fit the problem.
        """
        problem = runs.problem_of(self.env_id, self.env_kwargs)
        if self.variants and len(problem.variants) == 1:
            raise ValueError(f"--variants takes a problem of the VRP family, such as OVRPBLTW-50; got {self.env_id}")
        others = runs.read_settings(self.env_kwargs).keys() - {"num_nodes", "capacity", "matrices"}
        if self.variants and others:
            raise ValueError(
                f"--variants: all have num_nodes, capacity and matrices; leave out {', '.join(sorted(others))}"
            )
        if self.variants and self.attention.normalization == "batch":
            told = "each batch has one problem, whose statistics suit no other; add --normalization instance"
            raise ValueError(f"--variants: {told}")
        for size in self.sizes or (problem.num_nodes,):
            rng = stream(self.seed, runs.TRAINING_STREAM, 0)
            check_generator(self.generator, self.variant(problem.name, size), rng)
        check_network(self.model, pointer_saved.NETWORK)
        if self.model == pointer_saved.NETWORK and problem.name != PointerPolicy.problem:
            told = f"--model pointer answers {PointerPolicy.problem} only"
            raise ValueError(f"{told}, got {self.env_id}; take --model attention")
        if self.force_starts and not problem.any_first_node:
            raise ValueError(f"--force-starts: the first node of a tour matters in {problem.name}; leave it out")
        if self.baseline == "shared":
            SharedBaseline(problem, self.num_tours, self.force_starts, self.symmetries)  # checks these
        held_out.instances(problem, 1, self.held_out_file)
        return problem

    def initial_weights(self) -> Path:
        """Return the path of the weights that `init_from` names.

        Raises:
            ValueError: There are none.
        """
        assert self.init_from is not None
        matrices = runs.problem_of(self.env_id, self.env_kwargs).matrices
        return find_checkpoint(self.init_from, matrices=matrices)[0]

    def check_initial_weights(self, earlier: Args | None) -> None:
        """Check that the network can start from the weights that `init_from` names.

        Args:
            earlier: Arguments of the run that will train these weights, if it is an earlier one of the same plan.

        Raises:
            ValueError: There are no such weights, or they do not fit.
        """
        assert self.init_from is not None
        model = make_model(self, runs.problem_of(self.env_id, self.env_kwargs))
        if earlier is None:
            warm_start(model, self.initial_weights())
        else:
            problem = runs.problem_of(earlier.env_id, earlier.env_kwargs)
            header = {**describe(problem, make_model(earlier, problem)), "network": earlier.model}
            check_start(model, header, self.init_from)

    def variant(self, name: str, num_nodes: int) -> AnyProblem:
        """Build the named problem with the settings of this one and another size."""
        return make_problem(name, **{**runs.read_settings(self.env_kwargs), "num_nodes": num_nodes})


class Reinforce(nn.Module):
    """Loss of a batch, as a module for torch's DistributedDataParallel.

    Args:
        model: Policy to train.
        baseline: Baseline of the loss; it also determines how tours are sampled.
        loss: Function of costs, log-probabilities and baseline.
    """

    def __init__(self, model: PolicyNetwork, baseline: Baseline, loss: Loss = reinforce) -> None:
        super().__init__()
        self.model = model
        self.baseline = baseline
        self.loss = loss

    def forward(self, problem: AnyProblem, instance: Any, choose: Choice) -> tuple[Tensor, Tensor]:
        """Sample tours and return their loss.

        The batch is encoded once, with gradients. The tours are decoded from the detached encoding, and
        then scored from the same encoding in one parallel pass.

        Returns:
            The loss, and the means (3,) of cost, baseline and -log p. The last is an unbiased estimate of the entropy
            in nats per tour.
        """
        baseline = self.baseline
        if baseline.symmetries:  # B * K instances, one tour each
            views, observation = symmetric_views(problem, instance, range(baseline.num_tours))
            tours_of_each = 1
        else:
            views, observation = instance, problem.observe_static(instance)
            tours_of_each = baseline.num_tours
        encoding = self.model.encode(observation)
        played = self.play(problem, views, encoding.detach(), choose, tours_of_each)
        cost = played.cost.unflatten(0, (-1, baseline.num_tours))  # (B, K)
        expected = baseline.value(problem, instance, cost)
        log_p = log_probability(self.model, encoding, played, skip=int(baseline.force_starts)).view_as(cost)
        loss = self.loss(cost, log_p, expected)
        return loss, torch.stack([cost.mean(), expected.mean(), -log_p.mean()]).detach()

    def play(self, problem: AnyProblem, instance: Any, encoding: Any, choose: Choice, num_tours: int) -> Rollout:
        """Sample tours of instances from their encoding, and record the observations of the policy."""
        forced = self.baseline.force_starts
        return decode(self.model, problem, instance, encoding, choose, num_tours, forced, record=True)


def make_model(args: Args, problem: AnyProblem) -> PolicyNetwork:
    """Build the network specified by `args`."""
    generator = torch.Generator().manual_seed(args.seed)
    if args.model != pointer_saved.NETWORK:
        return make_network(args.model, features_of(problem), args.attention, generator)
    return PointerPolicy(args.pointer, generator)


def make_baseline(args: Args, problem: AnyProblem, model: PolicyNetwork) -> Baseline:
    """Build the baseline specified by `args`."""
    if args.baseline == "rollout":
        return RolloutBaseline(problem, model, args.seed, args.baseline_size, GENERATORS[args.generator])
    if args.baseline == "shared":
        return SharedBaseline(problem, args.num_tours, args.force_starts, args.symmetries)
    if args.baseline == "critic":
        critic = CostCritic(model.features, args.attention, torch.Generator().manual_seed(args.seed + 1))
        rate = LEARNING_RATES["adam"] if args.optimizer == "muon" else args.learning_rate
        return CriticBaseline(critic.to(next(model.parameters()).device), rate, args.max_grad_norm)
    return ExponentialBaseline() if args.baseline == "exponential" else NoBaseline()


class ReinforceTrainer(ProblemTrainer):
    """State of one run: model, optimisers, baseline and progress.

    Args:
        args: The run's arguments.
    """

    script = "am_reinforce.py"

    def __init__(self, args: Args) -> None:
        super().__init__(args)
        self.device = distributed.start(self.device)
        if args.batch_size % distributed.world_size():
            raise ValueError(f"--batch-size {args.batch_size} cannot be shared by {distributed.world_size()} processes")
        # Chosen once and saved, so that a resumed run uses the same precision.
        self.args = args = dataclasses.replace(args.chosen(), precision=choose_precision(args.precision, self.device))
        self.problem, self.generate = args.make_problem(), GENERATORS[args.generator]
        self.model = make_model(args, self.problem)
        if args.init_from is not None:
            self.started_from, self.history = warm_start(self.model, args.initial_weights())
        self.model.to(self.device).multiply_in(args.precision)
        self.optimizers = make_optimizers(self.model, args.optimizer, args.learning_rate)
        self.baseline = make_baseline(args, self.problem, self.model)
        loss = Reinforce(self.model, self.baseline, LOSSES[args.loss])
        self.loss = distributed.parallel(loss, may_skip=self.own_network)
        self.average = WeightAverage(self.model, args.average) if args.average else None
        given = held_out.instances(self.problem, args.held_out, args.held_out_file)
        self.held_out = to_backend(given, "torch", self.device)

    @property
    def title(self) -> str:
        return f"{self.problem.name.lower()}-{self.problem.num_nodes}-{self.args.baseline}"

    @property
    def columns(self) -> tuple[Column, ...]:
        """Columns of `ProblemTrainer`, and the baseline, unless it is shared: its mean is the mean cost."""
        epoch, cost, *others = super().columns
        baseline = [] if self.args.baseline == "shared" else [Column("baseline", ".4f", sign=cost.sign)]
        return (epoch, cost, *baseline, *others)

    @property
    def result(self) -> PolicyNetwork:
        return self.model if self.average is None else self.average.model

    def prepare(self, folder: Path) -> None:
        if self.args.held_out_file:
            save_npz(folder / held_out.FILE, self.problem, to_backend(self.held_out, "numpy"))

    @property
    def learning_rate(self) -> float:
        """Learning rate of the current step: constant, then falling linearly to zero over the last part of the run."""
        left = 1 - self.step / self.args.total_steps
        return self.args.learning_rate * min(1.0, left / self.args.decay)

    def batch_problem(self, step: int) -> AnyProblem:
        """Return the problem of a step: that of the id; with `--sizes` or `--variants`, one drawn for all processes."""
        if self.args.sizes is None and not self.args.variants:
            return self.problem
        rng = stream(self.args.seed, runs.SIZE_STREAM, step)
        low, high = self.args.sizes or (self.problem.num_nodes, self.problem.num_nodes)
        num_nodes = int(rng.integers(low, high + 1))
        name = str(rng.choice(self.problem.variants)) if self.args.variants else self.problem.name
        return self.args.variant(name, num_nodes)

    def draw(self, problem: AnyProblem, step: int) -> tuple[Any, Choice]:
        """Return this process's instances of a step, and the function that samples its actions."""
        rng = stream(self.args.seed, runs.TRAINING_STREAM, step, distributed.rank())
        share = self.args.batch_size // distributed.world_size()
        drawn = problem.rescale(cast_instance(self.generate(problem, rng, share)))  # as trained models do
        if (found := batch_size(drawn)) != share:
            raise ValueError(f"--generator {self.args.generator}: drew {found} instances, expected {share}")
        instance = to_backend(drawn, "torch", self.device)
        return instance, sampling_choice(torch.Generator(self.device).manual_seed(int(rng.integers(2**63))))

    def learn(self) -> dict[str, Any]:
        problem = self.batch_problem(self.step)
        instance, choose = self.draw(problem, self.step)
        self.baseline.rate_share = self.learning_rate / self.args.learning_rate
        if self.own_network:  # its layers may draw from torch's generator, as dropout does
            rng = stream(self.args.seed, runs.LAYER_STREAM, self.step, distributed.rank())
            torch.manual_seed(int(rng.integers(2**63)))
        loss, means = self.loss(problem, instance, choose)
        norm = self.descend(loss, self.learning_rate)
        if self.average is not None:
            self.average.update(self.model, self.step + 1)
        cost, baseline, entropy = means.double()
        return {
            "cost": cost,
            "baseline": baseline,
            "entropy": entropy,
            "gradient_norm": norm.double(),
            "learning_rate": self.learning_rate,
        }

    def batch(self) -> tuple[AnyProblem, Any]:
        problem = self.batch_problem(self.step)
        return problem, self.draw(problem, self.step)[0]

    def latest_observations(self) -> Iterator[dict[str, Tensor]]:
        """Yield the static observations of the instances of the latest ten steps."""
        for step in range(max(0, self.step - 10), self.step):
            problem = self.batch_problem(step)
            yield problem.observe_static(self.draw(problem, step)[0])

    def end_epoch(self) -> dict[str, float]:
        """Evaluate the model, update the baseline, and return the metrics to log."""
        distributed.share_buffers(self.model)
        if self.average is not None:
            self.average.measure(self.latest_observations())
            distributed.share_buffers(self.average.model)
        greedy = distributed.greedy_cost(self.result, self.problem, self.held_out)
        return {
            "epoch": self.epoch,
            "instances": self.instances,
            **self.end_sums(),
            "greedy": float(greedy.double().mean()),
            **self.baseline.end_epoch(self.model),
        }

    def reason_to_stop(self, rows: list[dict[str, float]]) -> str:
        return reason_to_stop(rows, self.args.patience, self.args.hours)

    def describe(self) -> dict[str, Any]:
        pointer = isinstance(self.model, PointerPolicy)
        kind = pointer_saved.describe(self.model, TASKS["tsp"], "sorted") if pointer else {}
        said = {"variants": self.args.variants, **super().describe()}
        return {**describe(self.problem, self.model), **kind, **said}

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors = checkpoint.prefixed("baseline", self.baseline.tensors())
        if self.average is not None:
            tensors |= checkpoint.prefixed("average", self.average.model.state_dict())
        return tensors, {"processes": distributed.world_size()}

    def restore(self, tensors: dict[str, Tensor], header: dict[str, Any], path: Path) -> None:
        if (processes := header.get("processes")) != distributed.world_size():
            raise checkpoint.CheckpointError(
                f"{path}: written by a run of {processes} processes, resumed with {distributed.world_size()}; "
                f"start it by torchrun --nproc-per-node={processes}"
            )
        self.baseline.load(checkpoint.group(tensors, "baseline"), path)
        if self.average is not None:
            self.average.load(checkpoint.group(tensors, "average"), path)


def main(args: Args, trainer_type: type[ReinforceTrainer] = ReinforceTrainer) -> Path:
    """Train according to `args`; return the folder of the run."""
    return loop.train(trainer_type, args, args.profile)


def train_in_processes(args: Args) -> None:
    """Train in one or several processes, or follow a plan."""
    if args.plan is not None:
        sys.exit(plan.follow(args, __file__))
    if not distributed.launched() and (processes := distributed.choose_processes(args)) > 1:
        sys.exit(distributed.launch(processes, __file__, sys.argv[1:]))
    main(args)
    distributed.leave()


if __name__ == "__main__":
    command_line(train_in_processes, Args, __doc__, (TrainingDivergedError,))
