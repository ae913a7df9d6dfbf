"""Compare ways for the attention model to read matrices, alone and combined, after equal times of training.

    python benchmarks/training/matrix_networks.py

Each run trains from random weights with REINFORCE, like am_reinforce.py, for the same number of processor seconds, with
a learning rate that falls to zero. All have nearness, and the codes and attention shifts of the model. The additions:

- `log`: the network of shifts also reads logarithms of the probabilities of `successions`.
- `logits`: the decoder adds a number to the score of each node, which a similar network computes from the edge to that
  node (the model's option `edge_logits`). ICAM and RRNCO add lengths there, too.
- `svd`: nodes are also embedded from the factors of the singular value decomposition of these probabilities (RADAR).
- `gate`: the network of shifts reads each matrix separately, and the directions of the edges if there are coordinates;
  a gate mixes the results, edge by edge (RRNCO's neural adaptive bias).
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from am_reinforce import Reinforce
from benchmarks.arguments import check_problems
from benchmarks.output import OUT, Figures, check_kept, finish, keep, read_kept
from routing_agents.optimizers import LEARNING_RATES, make_optimizers
from routing_agents.policies.attention.decoding import Decoding, sampling_choice, solve
from routing_agents.policies.attention.encoder import EDGE_DIM, ModelConfig
from routing_agents.policies.attention.features import Features, features_of
from routing_agents.policies.attention.matrices import relative, successions
from routing_agents.policies.attention.model import RAREST, AttentionModel
from routing_agents.runs import check_integers, check_numbers, problem_of, stream
from routing_agents.terminal import command_line
from routing_agents.training.baselines import SharedBaseline
from routing_agents.training.tuning import fast_precision, keep_freed_memory
from routing_gym.arrays import to_backend
from routing_gym.problem import AnyProblem, instance_fields

ROOT = Path(__file__).parents[2]
WAYS = ("codes", "log", "logits", "svd", "gate")  # parts of the names of networks
RANK = 8  # factors of each matrix
SCALE = 10.0  # divisor of logarithms of probabilities, which are about 0 to -20
TRAINING, TEST = 7, 8  # streams of instances


@dataclass(frozen=True)
class Args:
    """Arguments of the benchmark."""

    problems: tuple[str, ...] = ("ATSP-20", "CVRP-20")
    """Problems; those with coordinates on streets."""
    networks: tuple[str, ...] = ("codes", "log", "logits", "svd", "gate", "log+logits", "log+logits+svd")
    """What is added to the codes, joined by +."""
    seeds: tuple[int, ...] = (1,)
    """Random seeds of weights and training."""
    seconds: float = 60.0
    """Processor seconds of a run's training."""
    batch_size: int = 128
    """Instances of a step."""
    num_tours: int = 8
    """Sampled tours of each instance."""
    held_out: int = 500
    """Instances that the runs are compared on."""
    samples: int = 16
    """Sampled tours of each of them, of which the best counts."""
    folder: Path = ROOT / "runs" / "matrix_networks"
    """Where the figures of complete runs lie, all with the same settings. They are not measured again, and all are
    shown."""
    out: Path = OUT / "matrix_networks.json"
    """Where the figures go. The docs show those in benchmarks/results."""

    def __post_init__(self) -> None:
        check_problems(*self.problems)
        if unknown := {way for network in self.networks for way in network.split("+")} - set(WAYS):
            raise ValueError(f"--networks: unknown {', '.join(sorted(unknown))}; choose from {', '.join(WAYS)}")
        check_integers(self, "seeds", least=0)
        check_integers(self, "batch_size", "num_tours", "held_out", "samples")
        check_numbers(self, "seconds")

    @property
    def settings(self) -> Figures:
        """Settings that all runs of a folder have in common."""
        return {key: getattr(self, key) for key in ("seconds", "batch_size", "num_tours", "held_out", "samples")}


class Reader(AttentionModel):
    """The attention model with other ways to read matrices.

    Args:
        features: Observations to read.
        ways: Names of the additions; see the module docstring.
        generator: Source of the initial weights.
    """

    def __init__(self, features: Features, ways: frozenset[str], generator: torch.Generator) -> None:
        super().__init__(features, ModelConfig(nearness=True, edge_logits="logits" in ways), generator)
        self.ways, matrices = ways, len(features.per_edge)
        inputs = 4 * matrices
        if "log" in ways:
            inputs = 6 * matrices
            for network in (self.embed_edge, *([self.embed_edge_logits] if "logits" in ways else [])):
                network[0] = nn.Linear(inputs, EDGE_DIM)
        if "gate" in ways:
            sizes = [inputs // matrices] * matrices + [2] * features.coords
            self.embed_edge = Gate(sizes, self.embed_edge[2].out_features)
        if "svd" in ways:
            self.embed_node_factors = nn.Linear(2 * RANK * matrices, self.config.embed_dim, bias=False)
        weight = self.nearness_weight.detach().clone()
        self.initialise(generator)
        self.nearness_weight.data.copy_(weight)

    def edges(self, observation: dict[str, Tensor]) -> Tensor:
        """Return the inputs of each edge in both directions, matrix by matrix: (B, A, A, inputs)."""
        seen = []
        for key in self.features.per_edge:
            chances = successions(observation[key])
            views = [relative(observation[key]), chances]
            if "log" in self.ways:
                views.append(chances.clamp(min=RAREST).log() / SCALE)
            seen += [*views, *(view.transpose(1, 2) for view in views)]
        return torch.stack(seen, dim=-1)

    def edge_shifts(self, observation: dict[str, Tensor]) -> Any:
        """Return the shifts of each layer, like `AttentionModel.edge_shifts`, but from the inputs of `edges`."""
        seen = self.edges(observation)
        if "gate" in self.ways and self.features.coords:
            coords = observation["coords"]
            seen = torch.cat([seen, nn.functional.normalize(coords[:, None] - coords[:, :, None], dim=-1)], dim=-1)
        return self.embed_edge(seen).permute(0, 3, 1, 2).chunk(len(self.layers), dim=1)

    def embed(self, observation: dict[str, Tensor]) -> Tensor:
        """Embed the nodes like `AttentionModel.embed`; with "svd", also from their factors."""
        embedded = super().embed(observation)
        if "svd" not in self.ways:
            return embedded
        found = [factors(successions(observation[key])) for key in self.features.per_edge]
        return embedded + self.embed_node_factors(torch.cat(found, dim=-1))


class Gate(nn.Module):
    """Shifts of attention from several sources: each is read by its own network, and a gate mixes the results.

    Args:
        sizes: Number of inputs of each source.
        heads: Number of outputs.
    """

    def __init__(self, sizes: list[int], heads: int) -> None:
        super().__init__()
        self.sizes = sizes
        self.read = nn.ModuleList(nn.Sequential(nn.Linear(size, EDGE_DIM), nn.ReLU()) for size in sizes)
        self.weigh = nn.Linear(EDGE_DIM * len(sizes), len(sizes))
        self.write = nn.Linear(EDGE_DIM, heads)

    def forward(self, seen: Tensor) -> Tensor:
        """Return the shifts (B, A, A, heads) for the inputs of each edge (B, A, A, inputs)."""
        read = [network(part) for network, part in zip(self.read, seen.split(self.sizes, dim=-1), strict=True)]
        shares = self.weigh(torch.cat(read, dim=-1)).softmax(dim=-1)
        return self.write((torch.stack(read, dim=-1) * shares[..., None, :]).sum(dim=-1))


def factors(chances: Tensor) -> Tensor:
    """Return each node's factors as origin and as destination: (B, A, 2 RANK)."""
    left, values, right = torch.linalg.svd(chances)
    rank = min(RANK, chances.shape[1])
    left, right = left[..., :rank], right.transpose(1, 2)[..., :rank]
    largest = left.gather(1, left.abs().argmax(dim=1, keepdim=True)).sign()  # signs are free; this one is positive
    root = values[:, None, :rank].sqrt() * largest
    both = torch.cat([left * root, right * root], dim=-1)
    return nn.functional.pad(both, (0, 2 * (RANK - rank)))


def train(problem: AnyProblem, model: AttentionModel, args: Args, seed: int) -> int:
    """Train for `args.seconds` processor seconds; return the number of steps."""
    model.multiply_in(fast_precision("cpu"))
    loss = Reinforce(model, SharedBaseline(problem, args.num_tours, False, False))
    optimizers = make_optimizers(model, "muon", LEARNING_RATES["muon"])
    started, step = time.process_time(), 0
    while (left := 1 - (time.process_time() - started) / args.seconds) > 0:
        rng = stream(seed, TRAINING, step)
        instance = to_backend(problem.generate(rng, args.batch_size), "torch")
        choose = sampling_choice(torch.Generator().manual_seed(int(rng.integers(2**63))))
        model.zero_grad()
        loss(problem, instance, choose)[0].backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers.values():
            for group in optimizer.param_groups:
                group["lr"] = LEARNING_RATES["muon"] * left
            optimizer.step()
        step += 1
    return step


def measure(name: str, network: str, seed: int, args: Args) -> Figures:
    """Train and evaluate one network."""
    problem = problem_of(f"routing/{name}", {})
    if "coords" in instance_fields(problem):
        problem = replace(problem, matrices=True)
    ways = frozenset(network.split("+")) - {"codes"}
    model = Reader(features_of(problem), ways, torch.Generator().manual_seed(seed))
    steps = train(problem, model.train(), args, seed)
    instance = to_backend(problem.generate(stream(0, TEST, 0), args.held_out), "torch")
    greedy = float(solve(model, problem, instance).cost.double().mean())
    sampled = Decoding(args.samples, sample=True)
    best = solve(model, problem, instance, sampled, torch.Generator().manual_seed(seed)).cost.double().mean()
    weights = sum(parameter.numel() for parameter in model.parameters())
    return {"steps": steps, "greedy": greedy, "best": float(best), "weights": weights}


def main(args: Args) -> Figures:
    """Measure the missing runs; print and write the figures of all runs."""
    torch.set_num_threads(1)
    keep_freed_memory()
    check_kept(args.folder, args.settings)
    for seed in args.seeds:
        for name in args.problems:
            for network in args.networks:
                path = args.folder / f"{name}-{network}-{seed}.json"
                if read_kept(path, args.settings) is None:
                    run = {"problem": name, "network": network, "seed": seed, **measure(name, network, seed, args)}
                    keep(path, args.settings, run)
    runs = [json.loads(path.read_text()) for path in sorted(args.folder.glob("*.json"))]
    return finish(args, {"runs": runs}, "\n".join(rows(runs)))


def rows(runs: list[Figures]) -> list[str]:
    """Return the rows of a table: means over seeds, and half their range."""
    lines = ["| problem | network | steps | greedy | best |", "|---|---|---|---|---|"]
    for name, network in dict.fromkeys((run["problem"], run["network"]) for run in runs):
        some = [run for run in runs if (run["problem"], run["network"]) == (name, network)]
        cells = [f"{np.mean([run['steps'] for run in some]):.0f}"]
        for key in ("greedy", "best"):
            values = [run[key] for run in some]
            cells.append(f"{np.mean(values):.4f} ± {(max(values) - min(values)) / 2:.4f}")
        lines.append(f"| {name} | {network} | {' | '.join(cells)} |")
    return lines


if __name__ == "__main__":
    command_line(main, Args, __doc__)
