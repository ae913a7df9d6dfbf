"""Train the attention model of Kool et al. (2019) with REINFORCE in JAX, on TSP or CVRP.

    python agents/jax_reinforce.py                              # TSP-20
    python agents/jax_reinforce.py --env-id routing/CVRP-50
    python agents/jax_reinforce.py --env-id routing/TSP-50 --init-from runs/NAME

One compiled program draws instances, samples tours, scores them and makes the optimiser step. The network, the loss
(with the mean cost of an instance's other tours as baseline) and the optimiser are those of am_reinforce.py. So are the
checkpoints: weights are a dict with torch's names, and evaluate.py reads the checkpoints of this script.
"""

from __future__ import annotations

import json
import math
import re
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from routing_gym.optional import explain_missing

with explain_missing("jax_reinforce.py", "agents,jax", script=True):
    import jax
    import jax.numpy as jnp
    import optax
    from safetensors import SafetensorError, safe_open
    from safetensors.numpy import save as serialize

    from routing_agents.arguments import parse
    from routing_agents.header import FORMAT

from routing_gym.arrays import to_backend
from routing_gym.files import printable, write_atomically
from routing_gym.integrations.jax import Episodes, generate, rollout
from routing_gym.problem import AnyProblem
from routing_gym.problems import make_problem

Weights = dict[str, jax.Array]
DIM, HEADS, LAYERS, HIDDEN, CLIPPING = 128, 8, 3, 512, 10.0  # the paper's sizes
SHORTEST = 1e-4  # shorter edges count as this long in `nearness`
SIZES = {"embed_dim": DIM, "num_heads": HEADS, "num_layers": LAYERS, "feed_forward_dim": HIDDEN}
CONFIG = {**SIZES, "tanh_clipping": CLIPPING, "normalization": "batch"}
READ_PROBLEMS = ("TSP", "CVRP")  # the network has inputs for their observations only
READ_FEATURES = ("embed_node", "embed_depot")  # not for Muon: the inputs of these layers are numbers, not embeddings
HELD_OUT = (20190307, 1, 0)  # seed of the held-out instances, that of am_reinforce.py
LEARNING_RATES = {"muon": 3e-3, "adam": 5e-4}


@dataclass(frozen=True)
class Args:
    """Arguments of a run."""

    env_id: str = "routing/TSP-20"
    """Problem and number of nodes: routing/TSP-NODES or routing/CVRP-NODES."""
    seed: int = 1
    """Random seed for the weights, the instances and the tours."""
    epochs: int = 16
    """Number of epochs; each ends with an evaluation and a checkpoint."""
    steps_per_epoch: int = 100
    """Number of training steps per epoch, one batch each."""
    batch_size: int = 256
    """Number of instances per batch."""
    num_tours: int = 8
    """Number of tours per instance; each is compared with the mean cost of the others."""
    optimizer: Literal["muon", "adam"] = "muon"
    """Optimiser: Muon (with Adam for vectors) or Adam alone, like in am_reinforce.py."""
    learning_rate: float | None = None
    """Initial learning rate, which falls linearly to zero. Default: 3e-3 with Muon and 5e-4 with Adam."""
    max_grad_norm: float = 1.0
    """Largest norm of the gradients; larger ones are scaled down."""
    held_out: int = 1_000
    """Number of held-out instances for the greedy cost after each epoch."""
    init_from: Path | None = None
    """Run folder or checkpoint of the same problem whose weights the training starts from, written by this script or
    am_reinforce.py."""
    runs: Path = Path("runs")
    """Folder in which run folders are made."""
    name: str = ""
    """Name of the run's folder. Default: "jax", the problem and the time."""

    def __post_init__(self) -> None:
        bounds = {"seed": (0, 2**31 - 1), "epochs": (1, 2**31 - 1), "steps_per_epoch": (1, 2**31 - 1)}
        bounds |= {"batch_size": (1, 10**6), "num_tours": (2, 10**6), "held_out": (1, 10**6)}  # in memory
        for name, (least, most) in bounds.items():
            if not least <= (value := getattr(self, name)) <= most:
                raise ValueError(f"--{name.replace('_', '-')} must be at least {least} and at most {most}, got {value}")
        for name, number in (("learning-rate", self.learning_rate), ("max-grad-norm", self.max_grad_norm)):
            if number is not None and not 0 < number < math.inf:
                raise ValueError(f"--{name} must be positive, got {number}")
        if self.name and (not re.fullmatch(r"[\w.+-]+", self.name) or not self.name.strip(".")):
            raise ValueError(f"--name {self.name!r}: use letters, digits and . _ + - only")


# --- the network: that of routing_agents/policies/attention/model.py, on plain dicts


def initial_weights(problem: AnyProblem, key: Any) -> tuple[Weights, Weights]:
    """Draw weights from U(-1/sqrt(fan-in), 1/sqrt(fan-in)); return them and the running statistics."""
    shapes, fixed, stats = {"embed_node.weight": (DIM, 3 if problem.has_depot else 2)}, {}, {}
    if problem.has_depot:
        shapes |= {"embed_depot.weight": (DIM, 2), "embed_depot.bias": (DIM,), "project_context.weight": (DIM, DIM + 1)}
    else:
        shapes |= {"placeholder": (2 * DIM,), "project_context.weight": (DIM, 2 * DIM)}
    shapes |= {"embed_node.bias": (DIM,), "project_nodes.weight": (3 * DIM, DIM)}
    shapes |= {"project_mean.weight": (DIM, DIM), "project_glimpse.weight": (DIM, DIM)}
    for layer in (f"layers.{number}." for number in range(LAYERS)):
        shapes |= {layer + "project_qkv.weight": (3 * DIM, DIM), layer + "project_out.weight": (DIM, DIM)}
        shapes |= {layer + "expand.weight": (HIDDEN, DIM), layer + "expand.bias": (HIDDEN,)}
        shapes |= {layer + "contract.weight": (DIM, HIDDEN), layer + "contract.bias": (DIM,)}
        for norm in (layer + "attention_norm.norm.", layer + "feed_forward_norm.norm."):
            fixed |= {norm + "weight": jnp.ones(DIM), norm + "bias": jnp.zeros(DIM)}
            stats |= {norm + "running_mean": jnp.zeros(DIM), norm + "running_var": jnp.ones(DIM)}
    weights = {}
    for number, (name, shape) in enumerate(shapes.items()):
        matrix = shapes.get(name.replace("bias", "weight"), shape)
        bound = 1 / math.sqrt(matrix[1] if len(matrix) == 2 else DIM)
        weights[name] = jax.random.uniform(jax.random.fold_in(key, number), shape, jnp.float32, -bound, bound)
    return weights | fixed | {"nearness_weight": jnp.asarray(2.0)}, stats


def linear(weights: Weights, name: str, x: jax.Array) -> jax.Array:
    """Multiply by a matrix (out, in), and add the bias if there is one."""
    return x @ weights[name + ".weight"].T + weights.get(name + ".bias", 0.0)


def batch_norm(weights: Weights, stats: Weights, name: str, x: jax.Array, train: bool) -> tuple[jax.Array, Weights]:
    """Apply batch normalisation to (B, A, d), per feature; in training, return updated running statistics."""
    mean, var = (stats[f"{name}.running_{kind}"] for kind in ("mean", "var"))
    if train:
        mean_now, var_now, count = x.mean((0, 1)), x.var((0, 1)), x.shape[0] * x.shape[1]
        moved = 0.9 * mean + 0.1 * mean_now, 0.9 * var + 0.1 * var_now * count / (count - 1)
        stats = stats | dict(zip((f"{name}.running_mean", f"{name}.running_var"), moved, strict=True))
        mean, var = mean_now, var_now
    x = (x - mean) * jax.lax.rsqrt(var + 1e-5)
    return x * weights[name + ".weight"] + weights[name + ".bias"], stats


def attend(query: jax.Array, keys: jax.Array, values: jax.Array, mask: Any = True) -> jax.Array:
    """Compute attention (B, Q, d) with several heads: queries (B, Q, d), keys and values (B, A, d), mask (B, Q, A)."""
    query, keys, values = (x.reshape(*x.shape[:2], HEADS, -1) for x in (query, keys, values))
    scores = jnp.einsum("bqhd,bahd->bhqa", query, keys) / math.sqrt(DIM / HEADS)
    shares = jax.nn.softmax(jnp.where(mask if mask is True else mask[:, None], scores, -jnp.inf), axis=-1)
    return jnp.einsum("bhqa,bahd->bqhd", shares, values).reshape(*query.shape[:2], DIM)


def encode(weights: Weights, stats: Weights, seen: dict[str, Any], train: bool) -> tuple[dict[str, Any], Weights]:
    """Encode B instances; return the inputs of the decoder, and the running statistics."""
    coords = seen["coords"]
    if "demand" in seen:
        customers = linear(weights, "embed_node", jnp.concatenate([coords, seen["demand"][..., None]], -1)[:, 1:])
        x = jnp.concatenate([linear(weights, "embed_depot", coords[:, :1]), customers], axis=1)
    else:
        x = linear(weights, "embed_node", coords)
    for layer in (f"layers.{number}." for number in range(LAYERS)):
        attended = attend(*jnp.split(linear(weights, layer + "project_qkv", x), 3, axis=-1))
        x, stats = batch_norm(
            weights, stats, layer + "attention_norm.norm", x + linear(weights, layer + "project_out", attended), train
        )
        hidden = jax.nn.relu(linear(weights, layer + "expand", x))
        x, stats = batch_norm(
            weights, stats, layer + "feed_forward_norm.norm", x + linear(weights, layer + "contract", hidden), train
        )
    keys, values, logit_keys = jnp.split(linear(weights, "project_nodes", x), 3, axis=-1)
    context = weights["project_context.weight"]
    if "demand" in seen:  # the context is the current node
        node_queries = [x @ context[:, :DIM].T]
    else:  # W [first; current] = W1 first + W2 current; index A is the placeholder, before there are such nodes
        parts = zip(jnp.split(context, 2, axis=1), jnp.split(weights["placeholder"], 2), strict=True)
        node_queries = [jnp.concatenate([x @ w.T, jnp.broadcast_to(w @ p, (len(x), 1, DIM))], axis=1) for w, p in parts]
    return {
        "coords": coords,
        "fixed_query": linear(weights, "project_mean", x.mean(axis=1, keepdims=True)),
        "node_queries": node_queries,
        "keys": keys,
        "values": values,
        "logit_keys": logit_keys @ weights["project_glimpse.weight"],  # (W_o g) . k = g . (W_o' k)
    }, stats


def nearness(coords: jax.Array, seen: dict[str, Any]) -> jax.Array:
    """Return -log of each node's distance from the current node, or 0 for steps without travel: (B, Q, A)."""
    here = jnp.take_along_axis(coords, seen["current_node"][..., None], axis=1)
    squares = jnp.square(here[:, :, None] - coords[:, None]).sum(axis=-1)
    near = -0.5 * jnp.log(jnp.maximum(squares, SHORTEST**2))
    if "free_capacity" in seen:  # from the depot to the depot
        return near.at[..., 0].set(jnp.where(seen["current_node"] == 0, 0.0, near[..., 0]))
    return jnp.where(seen["action_mask"].all(axis=-1, keepdims=True), 0.0, near)  # to the first node


def log_probabilities(weights: Weights, encoding: dict[str, Any], seen: dict[str, Any]) -> jax.Array:
    """Return log-probabilities of actions for Q observations per instance (B, Q, ...): (B, Q, A), -inf if illegal."""
    mask, query = seen["action_mask"], encoding["fixed_query"]
    nodes = ["current_node"] if "free_capacity" in seen else ["first_node", "current_node"]
    for projected, name in zip(encoding["node_queries"], nodes, strict=True):
        node = seen[name] if "free_capacity" in seen else jnp.where(mask.all(axis=-1), mask.shape[-1], seen[name])
        query = query + jnp.take_along_axis(projected, node[..., None], axis=1)
    if "free_capacity" in seen:
        query = query + seen["free_capacity"] * weights["project_context.weight"][:, DIM]
    glimpse = attend(query, encoding["keys"], encoding["values"], mask)
    logits = CLIPPING * jnp.tanh(jnp.einsum("bqd,bad->bqa", glimpse, encoding["logit_keys"]) / math.sqrt(DIM))
    if "nearness_weight" in weights:
        logits += weights["nearness_weight"] * nearness(encoding["coords"], seen)
    return jax.nn.log_softmax(jnp.where(mask, logits, -jnp.inf), axis=-1)


# --- REINFORCE


def decode(
    problem: AnyProblem, weights: Weights, encoding: dict[str, Any], instance: Any, tours: int, key: Any, sample: bool
) -> Episodes:
    """Decode `tours` tours of each of B instances; row b * tours + k is tour k of instance b."""
    repeated = jax.tree.map(lambda x: jnp.repeat(x, tours, axis=0), instance)

    def policy(params: Any, seen: dict[str, Any], key: Any) -> jax.Array:
        queries = {name: seen[name].reshape(-1, tours, *seen[name].shape[1:]) for name in dynamic}
        scores = log_probabilities(*params, queries)
        return (scores + jax.random.gumbel(key, scores.shape) if sample else scores).argmax(axis=-1).reshape(-1)

    dynamic = [*problem.observe_dynamic(repeated, problem.initial(repeated)), "action_mask"]
    return rollout(problem, policy, (weights, encoding), key, instance=repeated, record=True)


def loss(weights: Weights, stats: Weights, problem: AnyProblem, args: Args, key: Any) -> tuple[jax.Array, Any]:
    """Draw instances, sample tours, and return the loss of REINFORCE (Kool et al. 2019, eq. 9), statistics and cost.

    The tours are decoded from the encoding without gradients, then scored from it in one parallel pass.
    """
    draw_key, play_key = jax.random.split(key)
    instance = generate(problem, draw_key, args.batch_size)
    encoding, stats = encode(weights, stats, problem.observe_static(instance), train=True)
    fixed = jax.lax.stop_gradient((weights, encoding))
    played = decode(problem, *fixed, instance, args.num_tours, play_key, sample=True)
    cost = played.cost.reshape(-1, args.num_tours)
    others = (cost.sum(axis=1, keepdims=True) - cost) / (args.num_tours - 1)
    queries = {name: x.reshape(args.batch_size, -1, *x.shape[2:]) for name, x in played.observations.items()}
    scores = log_probabilities(weights, encoding, queries)
    actions = played.actions.reshape(args.batch_size, -1, 1)
    log_p = jnp.take_along_axis(scores, actions, axis=2).reshape(*cost.shape, -1).sum(axis=-1)
    return ((cost - others) * log_p).mean(), (stats, cost.mean())


def make_optimizer(args: Args, weights: Weights) -> optax.GradientTransformation:
    """Build Muon for the matrices that multiply embeddings and Adam for the rest, or Adam alone; clip the gradient."""
    schedule = optax.linear_schedule(
        args.learning_rate or LEARNING_RATES[args.optimizer], 0.0, args.epochs * args.steps_per_epoch
    )
    if args.optimizer == "adam":
        return optax.chain(optax.clip_by_global_norm(args.max_grad_norm), optax.adam(schedule))
    matrices = {
        name: optax.contrib.MuonDimensionNumbers() if x.ndim == 2 and not name.startswith(READ_FEATURES) else None
        for name, x in weights.items()
    }
    muon = optax.contrib.muon(schedule, muon_weight_dimension_numbers=matrices, consistent_rms=0.2)
    return optax.chain(optax.clip_by_global_norm(args.max_grad_norm), muon)


def make_update(problem: AnyProblem, args: Args, optimizer: optax.GradientTransformation) -> Any:
    """Return the compiled training step: (weights, stats, optimiser state), key -> the updated three, mean cost."""

    def update(training: Any, key: Any) -> tuple[Any, jax.Array]:
        weights, stats, state = training
        gradient, (stats, cost) = jax.grad(loss, has_aux=True)(weights, stats, problem, args, key)
        change, state = optimizer.update(gradient, state, weights)
        return (optax.apply_updates(weights, change), stats, state), cost

    return jax.jit(update, donate_argnums=0)


def make_greedy(problem: AnyProblem) -> Any:
    """Return compiled greedy decoding: weights, stats, instances -> tours."""

    def greedy(weights: Weights, stats: Weights, instance: Any) -> Episodes:
        encoding, _ = encode(weights, stats, problem.observe_static(instance), train=False)
        return decode(problem, weights, encoding, instance, 1, jax.random.key(0), sample=False)

    return jax.jit(greedy)


# --- checkpoints


def load(path: Path, problem: AnyProblem) -> tuple[Weights, Weights]:
    """Read the weights and statistics of a checkpoint, written by this script or by am_reinforce.py.

    Raises:
        ValueError: The file is not a checkpoint, is one of another problem, or its tensors do not fit.
    """
    if path.is_dir():
        path = path / "best.safetensors"
    try:
        with safe_open(path, framework="np") as file:
            names = [name for name in file.keys() if name.startswith("model.") and "batches" not in name]  # noqa: SIM118
            found = {name.removeprefix("model."): file.get_tensor(name).astype(np.float32) for name in names}
            header = json.loads((file.metadata() or {}).get("header", "{}"))
    except (SafetensorError, OSError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not a checkpoint ({error})") from error
    if not isinstance(header, dict):
        raise ValueError(f"{path}: not a checkpoint (its header is {header!r:.40}; expected an object)")
    if header.get("problem") != problem.name:
        raise ValueError(f"{path}: trained on {header.get('problem')}, not on {problem.name}")
    weights, stats = jax.eval_shape(lambda: initial_weights(problem, jax.random.key(0)))
    if "nearness_weight" not in found:
        del weights["nearness_weight"]
    expected = {name: x.shape for name, x in (weights | stats).items()}
    faults = sorted(set(expected.items()) ^ {(name, x.shape) for name, x in found.items()})
    if faults:
        raise ValueError(f"{path}: does not fit this script's network ({CONFIG}): {faults}")
    arrays = {name: jnp.asarray(x) for name, x in found.items()}
    return {name: arrays[name] for name in weights}, {name: arrays[name] for name in stats}


def save(path: Path, problem: AnyProblem, weights: Weights, stats: Weights, about: dict[str, Any]) -> None:
    """Write a checkpoint for `routing_agents.load`, completely or not at all."""
    tensors = {f"model.{name}": np.asarray(x) for name, x in (weights | stats).items()}
    tensors |= {
        name.replace("running_mean", "num_batches_tracked"): np.zeros((), np.int64)
        for name in tensors
        if name.endswith("running_mean")
    }
    model = {**CONFIG, "nearness": "nearness_weight" in weights}
    header = {"problem": problem.name, "settings": asdict(problem), "model": model, **about}  # type: ignore[call-overload]
    write_atomically(path, serialize(tensors, metadata={"format": FORMAT, "header": json.dumps(header)}))


# --- a run


def problem_of(env_id: str) -> AnyProblem:
    """Return the problem of an environment id.

    Raises:
        ValueError: The problem is neither TSP nor CVRP, or the size is missing.
    """
    name, _, size = env_id.removeprefix("routing/").partition("-")
    if name not in READ_PROBLEMS or not (size.isascii() and size.isdigit()):
        raise ValueError(f"--env-id must be routing/TSP-NODES or routing/CVRP-NODES, got {env_id!r}")
    return make_problem(name, int(size))


def main(args: Args) -> Path:
    """Train according to `args`; return the folder of the run, which holds metrics.jsonl and the best weights."""
    problem = problem_of(args.env_id)
    weights_key, key = jax.random.split(jax.random.key(args.seed))
    weights, stats = load(args.init_from, problem) if args.init_from else initial_weights(problem, weights_key)
    folder = args.runs / (
        args.name or f"jax-{problem.name.lower()}-{problem.num_nodes}-{time.strftime('%Y%m%d-%H%M%S')}"
    )
    if folder.exists():
        raise FileExistsError(f"{folder} exists; choose another --name, and --init-from to begin with its weights")
    folder.mkdir(parents=True)
    held_out = to_backend(problem.generate(np.random.default_rng(HELD_OUT), args.held_out), "jax")
    optimizer = make_optimizer(args, weights)
    training = (weights, stats, optimizer.init(weights))
    greedy = make_greedy(problem)
    started = time.perf_counter()
    update = make_update(problem, args, optimizer).lower(training, key).compile()
    print(f"compiled in {time.perf_counter() - started:.1f} s")
    best, seconds = math.inf, 0.0
    for epoch in range(1, args.epochs + 1):
        started, costs = time.perf_counter(), []
        for step in range(args.steps_per_epoch):
            training, cost = update(training, jax.random.fold_in(key, epoch * args.steps_per_epoch + step))
            costs.append(cost)
        sampled = float(jnp.stack(costs).mean())  # waits until the steps are computed
        took = time.perf_counter() - started
        seconds += took
        greedy_cost = float(greedy(*training[:2], held_out).cost.mean())
        if not math.isfinite(greedy_cost + sampled):
            raise FloatingPointError(f"epoch {epoch} diverged; try a lower --learning-rate. {folder} holds the best")
        row = {"epoch": epoch, "cost": sampled, "greedy": greedy_cost, "seconds": round(seconds, 3)}
        row["instances_per_second"] = args.steps_per_epoch * args.batch_size / took
        print(
            "  ".join(
                f"{name} {value:.4g}" if name != "greedy" else f"greedy {value:.4f}" for name, value in row.items()
            )
        )
        with (folder / "metrics.jsonl").open("a") as file:
            print(json.dumps(row), file=file)
        if greedy_cost < best:
            best = greedy_cost
            save(folder / "best.safetensors", problem, *training[:2], {"metrics": row, "seed": args.seed})
    return folder


if __name__ == "__main__":
    try:
        main(parse(Args, __doc__))
    except (ValueError, OSError, FloatingPointError) as error:
        sys.exit(printable(f"jax_reinforce: {error}"))
    except KeyboardInterrupt:
        sys.exit("jax_reinforce: stopped; the best weights so far are in the run's folder")
