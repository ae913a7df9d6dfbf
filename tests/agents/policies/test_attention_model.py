"""The attention model: what it computes, apart from how fast."""

from __future__ import annotations

import copy
import math
from dataclasses import fields, replace
from functools import partial
from itertools import pairwise, permutations

import numpy as np
import pytest
import torch

from problem_names import ONE_OF_EACH
from routing_agents import checkpoint
from routing_agents.header import CheckpointError
from routing_agents.policies.attention import model as attention_model
from routing_agents.policies.attention import saved
from routing_agents.policies.attention.decoding import (
    Decoding,
    decode,
    first_nodes,
    greedy_choice,
    log_probability,
    sampling_choice,
    solve,
)
from routing_agents.policies.attention.encoder import fixed_edges, partners
from routing_agents.policies.attention.features import CODE_SIZE, features_named, features_of
from routing_agents.policies.attention.matrices import node_codes, successions
from routing_agents.policies.attention.model import AttentionModel, ModelConfig
from routing_agents.policies.attention.operations import FEW_NODES, attend
from routing_agents.policies.attention.views import symmetric_views
from routing_agents.search import active as eas
from routing_agents.search.beam import Beam, beam_search, branch, simulation_guided_search
from routing_gym.arrays import select, to_backend
from routing_gym.problems import VRP, make_problem
from routing_gym.problems.geometry import symmetry

SMALL = ModelConfig(embed_dim=16, num_heads=4, num_layers=2, feed_forward_dim=32)


def small(name: str, num_nodes: int = 7, batch_size: int = 6, options: bool = False, glimpse_layer: int | None = None):
    """A problem, instances of it and a small model with weights away from symmetry, perhaps with all options."""
    problem = make_problem(name, num_nodes)
    instance = to_backend(problem.generate(np.random.default_rng(3), batch_size), "torch")
    edges = {"nearness": options, "edge_logits": options and bool(features_named(name).per_edge)}
    config = replace(SMALL, **edges, glimpse_layer=24 * options if glimpse_layer is None else glimpse_layer)
    model = AttentionModel(features_named(name), config, torch.Generator().manual_seed(5))
    return problem, instance, model


def generator(seed: int = 11) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def play(problem, instance, encoding, model, num_tours=1, force_starts=False):
    return decode(
        model, problem, instance, encoding, sampling_choice(generator()), num_tours, force_starts, record=True
    )


@pytest.mark.parametrize("name", ONE_OF_EACH)
@pytest.mark.parametrize("num_tours", [1, 3])
def test_one_parallel_pass_scores_as_step_by_step(name, num_tours):
    """The probability of a tour is the product of the probabilities its steps had when played."""
    problem, instance, model = small(name)
    encoding = model.eval().encode(problem.observe_static(instance))
    stepwise = []

    def choose(logits):
        action = sampling_choice(generator(len(stepwise)))(logits)
        stepwise.append(logits.log_softmax(-1).gather(-1, action[..., None])[..., 0])
        return action

    played = decode(model, problem, instance, encoding, choose, num_tours, record=True)
    torch.testing.assert_close(log_probability(model, encoding, played), sum(stepwise), rtol=1e-5, atol=1e-5)


def original_logits(model: AttentionModel, observation: dict, context: torch.Tensor, embeddings: torch.Tensor):
    """One decoding step written out as in the paper, without any of our rearrangements."""
    d, num_heads = model.config.embed_dim, model.config.num_heads
    keys, values, logit_keys = model.project_nodes(embeddings).chunk(3, dim=-1)
    if model.features.per_step:
        shifts = model.project_step(observation[model.features.per_step][..., None]).chunk(3, dim=-1)
        keys, values, logit_keys = keys + shifts[0], values + shifts[1], logit_keys + shifts[2]
    query = model.project_mean(embeddings.mean(dim=1)) + model.project_context(context)
    mask = observation["action_mask"]
    heads = []
    for h in range(num_heads):
        part = slice(h * d // num_heads, (h + 1) * d // num_heads)
        scores = (keys[..., part] @ query[:, part, None])[..., 0] / (d / num_heads) ** 0.5
        weights = scores.masked_fill(~mask, -torch.inf).softmax(-1)
        heads.append((weights[:, None] @ values[..., part])[:, 0])
    glimpse = model.project_glimpse(torch.cat(heads, dim=-1))
    if model.config.glimpse_layer:
        glimpse = glimpse + query
        glimpse = glimpse + model.contract_glimpse(model.expand_glimpse(glimpse).relu())
    logits = (logit_keys @ glimpse[..., None])[..., 0] / d**0.5
    logits = model.config.tanh_clipping * logits.tanh()
    if model.config.nearness and (model.features.depot or not mask.all()):  # the TSP's first city has none before it
        rows = torch.arange(len(mask))
        current = observation["current_node"]
        if model.features.per_edge:
            chances = successions(observation["distances"])
            to_be_left = mask.scatter(1, current[:, None], True)
            near = (chances[rows, current] / (chances * to_be_left[:, :, None]).sum(dim=1)).log()
        else:
            coords = observation["coords"]
            near = -(coords - coords[rows, current][:, None]).norm(dim=-1).clamp(min=1e-4).log()
        if model.features.depot:  # nothing is driven to end a tour at the depot
            near[:, 0] = near[:, 0].where(current != 0, 0.0)
        logits = logits + model.nearness_weight * near
        if model.config.edge_logits:
            lengths, chances = observation["distances"], successions(observation["distances"])
            seen = torch.stack([lengths / lengths.mean(dim=(1, 2), keepdim=True), chances], dim=-1)
            there, back = seen[rows, current], seen[rows, :, current]
            logits = logits + model.embed_edge_logits(torch.cat([there, back], dim=-1))[..., 0]
    return logits.masked_fill(~mask, -torch.inf)


@pytest.mark.parametrize("name", ONE_OF_EACH)
@pytest.mark.parametrize("options", [False, True], ids=["paper", "options"])
@pytest.mark.parametrize("glimpse_layer", [0, 24])
@pytest.mark.parametrize("few_pairs", [0, 32])
@torch.no_grad()
def test_decoder_equals_the_paper_equations(name, options, glimpse_layer, few_pairs, monkeypatch):
    """Folded projections, the rank-one shifts of SDVRP, transposed keys and tables of pairs change nothing."""
    monkeypatch.setattr(attention_model, "FEW_PAIRS", few_pairs)
    problem, instance, model = small(name, options=options, glimpse_layer=glimpse_layer)
    static = problem.observe_static(instance)
    embeddings = model.eval().encode_nodes(static)
    state = problem.initial(instance)
    rows = torch.arange(len(embeddings))
    for step in range(5):
        observation = {
            **static,
            **problem.observe_dynamic(instance, state),
            "action_mask": problem.action_mask(instance, state),
        }
        nodes = [embeddings[rows, observation[key]] for key in model.features.context_nodes]
        scalars = [observation[key] for key in model.features.context_scalars]
        context = torch.cat([*nodes, *scalars], dim=-1)
        if step == 0 and not model.features.depot:
            context = model.placeholder.expand(len(embeddings), -1)
        queries = {key: value[:, None] for key, value in observation.items() if key not in static}
        encoding, expected = model.encode(static), original_logits(model, observation, context, embeddings)
        for logits in (partial(model.logits, encoding), model.stepwise_logits(encoding, num_tours=1)):
            torch.testing.assert_close(logits(queries)[:, 0], expected)
        state, _ = problem.step(instance, state, expected.argmax(-1))


@pytest.mark.parametrize("num_nodes", [FEW_NODES, FEW_NODES + 1])
@pytest.mark.parametrize("shifted", [False, True])
def test_attention_with_few_nodes_is_torchs_own(num_nodes, shifted):
    """Values and gradients, on either side of where the way to compute them changes."""
    tensors = torch.randn(3, 2, 4, num_nodes, 8, generator=generator()).unbind()
    shift = torch.randn(2, 4, num_nodes, num_nodes, generator=generator()) if shifted else None
    results = []
    for attention in (attend, torch.nn.functional.scaled_dot_product_attention):
        query, key, value = (tensor.clone().requires_grad_() for tensor in tensors)
        out = attention(query, key, value, shift)
        results.append((out, *torch.autograd.grad(out.square().sum(), (query, key, value))))
    for ours, torchs in zip(*results, strict=True):
        torch.testing.assert_close(ours, torchs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_every_parameter_has_a_gradient(name):
    problem, instance, model = small(name, options=True)
    encoding = model.encode(problem.observe_static(instance))
    log_probability(model, encoding, play(problem, instance, encoding.detach(), model)).sum().backward()
    missing = [key for key, parameter in model.named_parameters() if parameter.grad is None or not parameter.grad.any()]
    assert missing == []


@pytest.mark.parametrize("name", ONE_OF_EACH)
@pytest.mark.parametrize("num_tours", [1, 4])
def test_tours_are_feasible_and_cost_what_objective_says(name, num_tours):
    problem, instance, model = small(name)
    found = solve(model, problem, instance, Decoding(num_tours, sample=True), generator(), tours_at_once=8)
    np.testing.assert_allclose(problem.objective(instance, found.actions), found.cost, atol=1e-5)


def test_best_of_more_samples_is_never_worse_than_its_own_first():
    """The first tour of k is among the k: the minimum over k cannot exceed the cost of any."""
    problem, instance, model = small("TSP")
    encoding = model.eval().encode(problem.observe_static(instance))
    played = play(problem, instance, encoding, model, num_tours=5)
    best = solve(model, problem, instance, Decoding(5, sample=True), generator())
    assert torch.equal(best.cost, played.cost.view(-1, 5).min(dim=1).values)


@pytest.mark.parametrize("name", ["TSP", "CVRP"])
def test_forced_starts(name):
    """Tour k starts at the k-th node that is no depot."""
    problem, instance, model = small(name)
    encoding = model.encode(problem.observe_static(instance))
    played = play(problem, instance, encoding.detach(), model, num_tours=4, force_starts=True)
    first = [0, 1, 2, 3] if name == "TSP" else [1, 2, 3, 4]
    assert played.actions[:, 0].view(-1, 4).tolist() == [first] * 6
    with pytest.raises(ValueError, match="num_tours is 8, with forced starts at 7 nodes"):
        decode(model, problem, instance, encoding, greedy_choice, 8, force_starts=True)


def test_no_depot_is_a_first_node():
    class AnyFirst(VRP):
        any_first_node = True

    assert first_nodes(AnyFirst(5, several_depots=True, num_depots=2), 3).tolist() == [2, 3, 4]


@pytest.mark.parametrize("name", [name for name in ONE_OF_EACH if features_named(name).coords])
def test_symmetries_never_hurt(name):
    """The identity is the first of the eight, so the best of eight costs at most what greedy does."""
    problem, instance, model = small(name)
    eight = solve(model, problem, instance, Decoding(symmetries=8))
    assert (eight.cost <= solve(model, problem, instance).cost).all()
    np.testing.assert_allclose(problem.objective(instance, eight.actions), eight.cost, atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_tours": 0}, "num_tours must be at least 1, got 0"),
        ({"num_tours": 2}, "2 greedy tours from one start are the same"),
        ({"symmetries": 9}, "symmetries must be 1 to 8, got 9"),
        ({"temperature": 0.0}, "temperature must be positive"),
        ({"temperature": math.inf}, "temperature must be positive and finite, got inf"),  # would play illegal actions
    ],
)
def test_bad_decodings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Decoding(**settings)


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_beam_of_width_one_is_greedy(name):
    problem, instance, model = small(name)
    greedy, beam = solve(model, problem, instance), beam_search(model, problem, instance, 1, tours_at_once=4)
    assert torch.equal(beam.actions, greedy.actions)
    torch.testing.assert_close(beam.cost, greedy.cost)


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_wide_beam_holds_every_tour(name):
    """With two nodes there are fewer tours than beams, so the beam finds the optimum of all samples."""
    problem, instance, model = small(name, num_nodes=2)
    beam = beam_search(model, problem, instance, 40)
    np.testing.assert_allclose(problem.objective(instance, beam.actions), beam.cost, atol=1e-5)
    samples = solve(model, problem, instance, Decoding(200, sample=True), generator())
    assert (beam.cost <= samples.cost + 1e-6).all()


@pytest.mark.parametrize("name", [name for name in ONE_OF_EACH if name != "SPCTSP"])
def test_simulation_guided_search(name):
    """As greedy where it does not branch, never worse where it does, and optimal where it keeps everything."""
    problem, instance, model = small(name, num_nodes=4, batch_size=3)
    greedy = solve(model, problem, instance)
    plain = simulation_guided_search(model, problem, instance, 1, 1, tours_at_once=2)
    np.testing.assert_allclose(plain.cost, greedy.cost, atol=1e-6)
    guided = simulation_guided_search(model, problem, instance, 2, 2)
    np.testing.assert_allclose(problem.objective(instance, guided.actions), guided.cost, atol=1e-5)
    assert (guided.cost <= greedy.cost + 1e-6).all()
    everything = simulation_guided_search(model, problem, instance, 200, 5)
    samples = solve(model, problem, instance, Decoding(1000, sample=True), generator())
    assert (everything.cost <= samples.cost + 1e-6).all()


def test_beams_are_different_tours():
    """Two pairs have six tours, so that six beams hold all, though only two pickups are legal in the first step."""
    problem, instance, model = small("PDP", num_nodes=4, batch_size=50)
    orders = [order for order in permutations((1, 2, 3, 4)) if order.index(1) < order.index(3)]
    tours = [[*order, 0] for order in orders if order.index(2) < order.index(4)]
    optima = np.min([problem.objective(instance, np.tile(tour, (50, 1))) for tour in tours], axis=0)
    assert len(tours) == 6
    found = simulation_guided_search(model, problem, instance, width=6, expansion=5)
    np.testing.assert_allclose(found.cost, optima, atol=1e-5)


@pytest.mark.parametrize("name", [name for name in ONE_OF_EACH if features_named(name).coords and name != "SPCTSP"])
def test_beams_under_symmetries(name):
    """The best of eight views, the first of which is the instance itself; each view is searched as if it were alone."""
    problem, instance, model = small(name, batch_size=3)
    for search in (partial(beam_search, width=2), partial(simulation_guided_search, width=2, expansion=2)):
        plain, eight = search(model, problem, instance), search(model, problem, instance, symmetries=8)
        np.testing.assert_allclose(problem.objective(instance, eight.actions), eight.cost, atol=1e-5)
        assert (eight.cost <= plain.cost + 1e-6).all()
        turned = replace(instance, coords=symmetry(instance.coords, 5))
        assert (eight.cost <= search(model, problem, turned).cost + 1e-4).all()
        np.testing.assert_allclose(
            search(model, problem, instance, symmetries=8, tours_at_once=1).cost, eight.cost, atol=1e-5
        )
    with pytest.raises(ValueError, match="symmetries must be 1 to 8, got 9"):
        beam_search(model, problem, instance, 2, symmetries=9)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"width": 2.5}, "width must be an integer, got 2.5"),
        ({"expansion": True}, "expansion must be an integer, got True"),
        ({"width": 0}, "width and expansion must be at least 1, got 0 and 4"),
        ({"symmetries": 0}, "symmetries must be 1 to 8, got 0"),
    ],
)
def test_bad_beams_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Beam(**settings)


@pytest.mark.parametrize(
    "search",
    [
        solve,
        partial(beam_search, width=2),
        partial(simulation_guided_search, width=2, expansion=2),
        partial(eas.active_search, iterations=1, generator=generator()),
    ],
)
def test_empty_batches_are_refused(search):
    problem, instance, model = small("TSP")
    with pytest.raises(ValueError, match="the batch is empty; give at least one instance"):
        search(model, problem, select(instance, slice(0, 0)))


def test_simulation_guided_search_is_refused():
    problem, instance, model = small("SPCTSP")
    with pytest.raises(ValueError, match="SPCTSP: completing tours uses values that only a visit reveals"):
        simulation_guided_search(model, problem, instance, 2, 2)
    with pytest.raises(ValueError, match="width and expansion must be at least 1, got 2 and 0"):
        simulation_guided_search(model, problem, instance, 2, 0)


@pytest.mark.parametrize("embeddings", [False, True])
@pytest.mark.parametrize("name", [name for name in ONE_OF_EACH if name != "SPCTSP"])
def test_active_search(name, embeddings):
    """Never worse than greedy, better for some of the six instances; reproducible; weights stay."""
    problem, instance, model = small(name, num_nodes=5)
    greedy, weights = solve(model, problem, instance), copy.deepcopy(model.state_dict())
    found = eas.active_search(model, problem, instance, 4, generator(), embeddings, tours_at_once=300)
    np.testing.assert_allclose(problem.objective(instance, found.actions), found.cost, atol=1e-5)
    assert (found.cost <= greedy.cost + 1e-6).all()
    assert (found.cost < greedy.cost - 1e-3).any()
    again = eas.active_search(model, problem, instance, 4, generator(), embeddings, tours_at_once=300)
    assert torch.equal(again.actions, found.actions)
    assert all(torch.equal(weight, weights[name]) for name, weight in model.state_dict().items())
    assert all(weight.grad is None for weight in model.parameters())


def test_table_of_active_search_by_hand(monkeypatch):
    """With alpha 1/2 and sigma 3, steps taken with probability 1 and 1/4 get the factors 3 and 3 / (1/2) = 6.

    CVRP: the tour 0-2-1-0 and a row that waits at the depot. TSP: 1-2-0, whose first step comes from nowhere.
    """
    monkeypatch.setattr(eas, "ALPHA", 0.5)
    monkeypatch.setattr(eas, "SIGMA", 3.0)
    log_q = torch.tensor([[0.25, 0.25, 1.0, 1.0]]).log()
    table = eas.log_table(make_problem("CVRP", 2), torch.tensor([[2, 1, 0, 0]]), log_q).exp()
    torch.testing.assert_close(table, torch.tensor([[[1.0, 1.0, 6.0], [3.0, 1.0, 1.0], [1.0, 6.0, 1.0]]]))
    table = eas.log_table(make_problem("TSP", 3), torch.tensor([[1, 2, 0]]), log_q[:, 1:]).exp()
    torch.testing.assert_close(table, torch.tensor([[[1.0, 1.0, 1.0], [1.0, 1.0, 3.0], [3.0, 1.0, 1.0]]]))


@torch.no_grad()
def test_tours_of_active_search_follow_the_table():
    """With factors as good as infinite, PDP's sampled tours are the one in the table."""
    problem, instance, model = small("PDP", num_nodes=6)
    encoding = model.encode(problem.observe_static(instance))
    play = partial(eas.play, model, problem, instance, encoding)
    first, log_q = play(torch.zeros(6, 7, 7), greedy_choice, 1)
    found, _ = play(200 * eas.log_table(problem, first.actions, log_q), sampling_choice(generator()), 3)
    assert torch.equal(found.actions, first.actions)


def test_embeddings_learn_the_best_tours(monkeypatch):
    """Sampled tours of an untrained model get shorter on average; with steps of size 0 they do not."""
    problem, instance, model = small("CVRP", num_nodes=10, batch_size=8)
    means = {}
    for rate in (0.0, 0.05):
        costs = []

        def recorded(*args, costs=costs, **settings):
            costs.append((played := decode(*args, **settings)).cost.mean().item())
            return played

        monkeypatch.setattr(eas, "LEARNING_RATE", rate)
        monkeypatch.setattr(eas, "decode", recorded)
        eas.active_search(model, problem, instance, 30, generator(), embeddings=True)
        means[rate] = np.mean(costs[1:6]), np.mean(costs[-5:])  # the greedy tours come first
    assert means[0.05][1] < 0.9 * means[0.05][0]
    assert means[0.0][1] > 0.97 * means[0.0][0]


def test_active_search_is_refused():
    problem, instance, model = small("SPCTSP")
    with pytest.raises(ValueError, match="SPCTSP: completing tours uses values that only a visit reveals"):
        eas.active_search(model, problem, instance, 2, generator())
    problem, instance, model = small("TSP")
    with pytest.raises(ValueError, match="iterations must be at least 1, got 0"):
        eas.active_search(model, problem, instance, 0, generator())


def test_branching_by_hand():
    """Beams of probability 0.6 and 0.4; continuations (0.5, 0.5, 0) and (0.9, 0, 0.1): the best two of
    0.3, 0.3, 0, 0.36, 0, 0.04 are beam 1 with action 0 (0.36) and one of beam 0's (0.3)."""
    score = torch.tensor([[0.6, 0.4]]).log()
    steps = torch.tensor([[[0.5, 0.5, 0.0], [0.9, 0.0, 0.1]]]).log()
    best, beam, action = branch(score, steps)
    torch.testing.assert_close(best.exp(), torch.tensor([[0.36, 0.3]]))
    assert beam.tolist() == [[1, 0]]
    assert action[0, 0] == 0
    assert action[0, 1] in (0, 1)


def test_sampling_asks_for_a_generator():
    problem, instance, model = small("TSP")
    with pytest.raises(ValueError, match="pass a generator"):
        solve(model, problem, instance, Decoding(sample=True))


def test_solve_restores_training_mode_and_leaves_batch_statistics():
    problem, instance, model = small("TSP")
    before = copy.deepcopy(model.state_dict())
    solve(model.train(), problem, instance)
    assert model.training
    assert all(module.training for module in model.modules())
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())


@pytest.mark.parametrize("search", [solve, lambda *args, **options: beam_search(*args, 2, **options)])
def test_an_interrupted_search_restores_training_mode(search):
    problem, instance, model = small("TSP")

    def interrupt(done):
        raise InterruptedError("enough")

    with pytest.raises(InterruptedError, match="enough"):
        search(model.train(), problem, instance, progress=interrupt)
    assert model.training


def test_sampling_follows_the_probabilities():
    """p = (0.1, 0.2, 0.7): of 30,000 draws each share lies within 5 standard deviations, 5 x 0.0027."""
    logits = torch.tensor([0.1, 0.2, 0.7]).log().expand(30_000, 3)
    shares = torch.bincount(sampling_choice(generator())(logits), minlength=3) / 30_000
    torch.testing.assert_close(shares, torch.tensor([0.1, 0.2, 0.7]), atol=5 * 0.0027, rtol=0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"embed_dim": 10}, "not a multiple of num_heads"),
        ({"normalization": "group"}, "must be one of batch"),
        ({"nearness": 1}, "nearness must be true or false, got 1"),
        ({"edge_logits": 1}, "edge_logits must be true or false, got 1"),
        ({"glimpse_layer": -1}, "glimpse_layer must be an integer of at least 1, got -1"),
    ],
)
def test_bad_sizes_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        ModelConfig(**settings)


def test_problems_without_coordinates_and_matrices_are_refused():
    with pytest.raises(ValueError, match="reads coordinates or matrices, and the problem observes neither"):
        AttentionModel(replace(features_named("TSP"), coords=False), SMALL)


def test_edge_logits_need_matrices():
    with pytest.raises(ValueError, match="edge_logits reads matrices; choose ATSP or --env-kwargs matrices True"):
        AttentionModel(features_named("TSP"), replace(SMALL, edge_logits=True))


def test_sampling_never_draws_what_is_forbidden():
    """Also where the random number is as close to 1 as it gets, and the last nodes are forbidden."""
    logits = torch.full((1, 1, 7), -torch.inf)
    logits[..., 1:4] = torch.tensor([0.3, -0.2, 0.7])
    highest = torch.tensor([[[1 - 2**-24]]])
    with pytest.MonkeyPatch.context() as patch:
        for drawn, action in ((highest, 3), (torch.zeros(1, 1, 1), 1)):
            patch.setattr(torch, "rand", lambda *_, drawn=drawn, **__: drawn)
            assert sampling_choice(generator())(logits).item() == action


def test_where_fixed_edges_lead():
    """From (0, 1) to (4, 5) and back; nodes 1 and 3 have none."""
    coords = torch.arange(8).view(1, 4, 2).float()
    seen = fixed_edges(coords, torch.tensor([[2, 1, 0, 3]]))
    assert seen.tolist() == [[[1, 4, 4], [0, 0, 0], [1, -4, -4], [0, 0, 0]]]


SHORT_ROUND = torch.tensor([[[0.0, 3, 2], [1, 0, 9], [1, 2, 0]]])  # 0 -> 2 -> 1 -> 0 is 5 long, the other way 13


def test_chances_of_succession():
    """Node 2 has 0 nearest, but goes to 1, which has nowhere else to go than 0."""
    chances = successions(SHORT_ROUND)[0]
    assert chances.argmax(dim=1).tolist() == [2, 0, 1]
    assert chances.diagonal().tolist() == [0, 0, 0]
    torch.testing.assert_close(successions(1e6 * SHORT_ROUND)[0], chances)
    chances = successions(torch.rand(5, 12, 12, generator=generator()))
    for dim, off in ((1, 1e-5), (2, 0.1)):  # columns were balanced last
        torch.testing.assert_close(chances.sum(dim), torch.ones(5, 12), atol=off, rtol=0)


def test_codes_show_who_follows():
    codes, follows, precedes = node_codes([successions(SHORT_ROUND)])[0].split(CODE_SIZE, dim=-1)
    assert (codes @ follows[0]).argmax() == 2
    assert (codes @ precedes[2]).argmax() == 0


def test_the_unit_of_lengths_does_not_matter():
    problem, instance, model = small("ATSP")
    static = problem.observe_static(instance)
    embeddings = model.eval().encode_nodes(static)
    torch.testing.assert_close(model.encode_nodes({"distances": 1e6 * static["distances"]}), embeddings)
    without_length = model.encode_nodes({"distances": 0 * static["distances"]})
    assert without_length.isfinite().all()


def test_views_of_a_matrix_are_orders_of_the_codes():
    """View 0 is the instance itself. In others nodes have each other's codes, so that tours differ and costs fall."""
    chances = successions(torch.rand(1, 9, 9, generator=generator()))
    codes = [node_codes([chances], torch.tensor([view]))[0, :, :CODE_SIZE] for view in range(8)]
    torch.testing.assert_close(codes[0], node_codes([chances])[0, :, :CODE_SIZE])
    for one, other in pairwise(codes):
        places = (one @ other.T).argmax(dim=1)  # where the other view has a node's code
        assert sorted(places.tolist()) == list(range(9))
        assert places.tolist() != list(range(9))
    problem, instance, model = small("ATSP")
    greedy, best = (solve(model, problem, instance, Decoding(symmetries=count)).cost for count in (1, 8))
    assert (best <= greedy).all()
    assert (best < greedy).any()


def test_durations_are_the_lengths_where_a_variant_has_none():
    """A network for VRPTW with matrices reads CVRP, which has lengths only, like durations that equal them."""
    network = AttentionModel(features_of(make_problem("VRPTW", 6, matrices=True)), SMALL, generator()).eval()
    problem = make_problem("CVRP", 6, matrices=True)
    static = problem.observe_static(to_backend(problem.generate(np.random.default_rng(0), 2), "torch"))
    assert "durations" not in static
    embeddings = network.encode_nodes(static)
    torch.testing.assert_close(network.encode_nodes(static | {"durations": static["distances"]}), embeddings)


def test_very_long_edges_look_alike():
    """100 and 1e6 stand for "no road" in two rows of the same lengths; a row without such edges stays as it is."""
    problem = make_problem("ATSP", 8)
    instance = select(problem.generate(np.random.default_rng(0), 1), np.zeros(3, dtype=np.int64))
    lengths = instance.distances
    lengths[:2, 2, 5] = 100.0, 1e6
    observed = symmetric_views(problem, to_backend(instance, "torch"), range(1))[1]["distances"].numpy()
    np.testing.assert_array_equal(observed[0], observed[1])
    np.testing.assert_array_equal(observed[2], lengths[2])
    assert lengths[2].max() < observed[0, 2, 5] < 10 * lengths[2].max()


def test_a_network_of_coordinates_starts_one_of_matrices(tmp_path):
    """With the matrix of the straight ways, it chooses what the first chooses; nearness is of the same lengths."""
    problem, instance, model = small("VRPTW", options=True)
    path = tmp_path / "plane.safetensors"
    checkpoint.save(path, checkpoint.prefixed("model", model.state_dict()), saved.describe(problem, model))
    rules = replace(problem, matrices=True)
    reader = AttentionModel(features_of(rules), replace(model.config, edge_logits=True), generator())
    saved.warm_start(reader, path)
    lengths = torch.cdist(instance.coords, instance.coords)
    on_matrices = replace(instance, distances=lengths, durations=lengths)
    expected = solve(model.eval(), problem, instance)
    found = solve(reader.eval(), rules, on_matrices)
    assert found.actions.equal(expected.actions)


def test_a_network_of_a_family_starts_one_of_a_variant(tmp_path):
    """What VRPTW lacks is zero for the family's network, so that both choose the same."""
    family = make_problem("OVRPBLTW", 7)
    network = AttentionModel(features_of(family), SMALL, generator()).eval()
    path = tmp_path / "family.safetensors"
    checkpoint.save(path, checkpoint.prefixed("model", network.state_dict()), saved.describe(family, network))
    problem, instance, model = small("VRPTW")
    told, _ = saved.warm_start(model, path)
    assert told.endswith("new: none")
    found, expected = (solve(one.eval(), problem, instance) for one in (model, network))
    assert found.actions.equal(expected.actions)
    torch.testing.assert_close(
        model.encode_nodes(problem.observe_static(instance)), network.encode_nodes(problem.observe_static(instance))
    )


class Forgetful(VRP):
    """VRPTW without the observation `current_time`."""

    @property
    def observations(self):
        seen = super().observations
        return replace(seen, context_scalars=tuple(x for x in seen.context_scalars if x != "current_time"))


def test_networks_read_what_their_problem_observed_when_they_were_trained(tmp_path):
    """The problem has another observation now: the same network is loaded, and starts one that reads it, too."""
    problem, instance, _ = small("VRPTW")
    before = Forgetful(**{field.name: getattr(problem, field.name) for field in fields(problem)})
    network = AttentionModel(features_of(before), SMALL, generator()).eval()
    path = tmp_path / "before.safetensors"
    checkpoint.save(path, checkpoint.prefixed("model", network.state_dict()), saved.describe(before, network))
    loaded, trained_on, _ = saved.load_model(path)
    assert trained_on == problem
    expected = solve(network, problem, instance).actions
    assert solve(loaded, problem, instance).actions.equal(expected)
    model = AttentionModel(features_of(problem), SMALL, generator())
    assert saved.warm_start(model, path)[0].endswith("new: none")
    assert solve(model.eval(), problem, instance).actions.equal(expected)


def test_a_network_that_reads_more_than_its_problem_observes_is_refused(tmp_path):
    problem, _, model = small("VRPTW")
    header = saved.describe(problem, model)
    header["observed"]["per_node"] = ("demand", "mood")
    checkpoint.save(tmp_path / "x.safetensors", checkpoint.prefixed("model", model.state_dict()), header)
    with pytest.raises(CheckpointError, match=r"x.safetensors: reads mood, which VRPTW does not observe; train again"):
        saved.load_model(tmp_path / "x.safetensors")


@pytest.mark.parametrize("name", ["PCVRP", "HFVRP", "PCMDVRP"])
def test_nothing_is_driven_from_a_depot_to_a_depot(name):
    """Neither to end the tour nor to choose a vehicle, which is where the vehicle is: nearness would always win."""
    problem, instance, model = small(name, options=True)
    state = problem.initial(instance)
    for node in (0, problem.num_depots):  # at the first depot, then at the first customer
        seen = problem.observe_dynamic(instance, state) | {"action_mask": problem.action_mask(instance, state)}
        encoding, queries = model.encode(problem.observe_static(instance)), {k: x[:, None] for k, x in seen.items()}
        distance = (instance.coords - instance.coords[:, node, None]).norm(dim=-1).clamp(min=1e-4)
        expected = -model.nearness_weight * distance.log()
        if node == 0:
            expected[:, : problem.num_depots] = 0
        for one in (encoding, model.tabulate(encoding)):
            terms = model.edge_terms(one, queries, model.context(queries))
            torch.testing.assert_close(terms[:, 0], expected, rtol=1e-4, atol=1e-5)
        state, _ = problem.step(instance, state, torch.full((len(terms),), problem.num_depots))


def test_where_partners_lie():
    """Node 1 is picked up for 3, node 2 for 4: each sees where the other lies; depot and node 5 see nothing."""
    coords = torch.arange(12).view(1, 6, 2).float()
    seen = partners(coords, torch.tensor([[0, 0, 0, 1, 2, 0]]))
    assert seen.tolist() == [
        [[0, 0, 0, 0], [1, 0, 6, 7], [1, 0, 8, 9], [0, 1, 2, 3], [0, 1, 4, 5], [0, 0, 0, 0]],
    ]
