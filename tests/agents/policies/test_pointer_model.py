"""The network of Vinyals et al.: its equations computed anew, padding, masks, and decoding against enumeration."""

import itertools
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from test_devices import RefusesToMix

from helpers import ROOT
from routing_agents.policies.pointer.decoding import beam_search, evaluate, predict
from routing_agents.policies.pointer.model import (
    PointerConfig,
    PointerNetwork,
    chosen_before,
    log_likelihood,
)
from routing_agents.policies.pointer.tasks import TASKS, tour_lengths

POINTS = torch.rand(4, 5, 2, generator=torch.Generator().manual_seed(0))


def network(holds="some", fixed_size=None, **settings):
    config = PointerConfig(**{"units": 16, "num_layers": 1, "num_heads": 4, **settings})
    return PointerNetwork(config, holds, fixed_size, torch.Generator().manual_seed(1)).eval()


@pytest.mark.parametrize("encoder", ["lstm", "transformer"])
def test_pointing_is_the_paper_s_equation(encoder):
    """u_ij = v' tanh(W1 e_j + W2 d_i), term by term, for every step and point; choice 0 is the end."""
    model = network(encoder=encoder)
    encoding = model.encode(POINTS)
    previous = torch.tensor([[0, 3, 1]]).expand(4, 3)
    inputs = torch.stack([encoding.inputs[b, previous[b]] for b in range(4)])
    decoded, _ = model.decoder(inputs, encoding.last)
    attention = model.answer.attention
    w1, w2, v = (part.weight for part in (attention.project_key, attention.project_query, attention.combine))
    logits = model.decode(encoding, previous)
    assert logits.shape == (4, 3, 6)
    for b, i, j in itertools.product(range(4), range(3), range(5)):
        u = v[0] @ torch.tanh(w1 @ encoding.states[b, j] + w2 @ decoded[b, i])
        assert logits[b, i, j + 1].item() == pytest.approx(u.item(), abs=1e-5)
    assert logits[0, 0, 0].item() == pytest.approx((v[0] @ torch.tanh(model.answer.end + w2 @ decoded[0, 0])).item())


def test_the_comparisons_are_the_paper_s_equations():
    """p = softmax(W d_i); and with content-based attention W [d_i; sum_j softmax(u_i)_j e_j]."""
    previous = torch.tensor([[0, 3, 1]]).expand(4, 3)
    for answer in ("sequence", "attention"):
        model = network(encoder="lstm", answer=answer, fixed_size=5)
        encoding = model.encode(POINTS)
        inputs = torch.stack([encoding.inputs[b, previous[b]] for b in range(4)])
        decoded, _ = model.decoder(inputs, encoding.last)
        if answer == "attention":
            attention = model.answer.attention
            scores = attention(attention.project_key(encoding.states), decoded)
            context = torch.stack(
                [torch.stack([scores[b, i].softmax(0) @ encoding.states[b] for i in range(3)]) for b in range(4)]
            )
            decoded = torch.cat([decoded, context], dim=2)
        assert torch.allclose(model.decode(encoding, previous), model.answer.dictionary(decoded), atol=1e-6)


@pytest.mark.parametrize("holds", ["every", "some", "repeated"])
def test_probabilities_of_all_answers_sum_to_one(holds):
    """Enumerated: all tours of 3 points; all sets in all orders and an end; with repetition up to 2 points and more."""
    model, points = network(holds), POINTS[:1, :3]

    def probability(answer):
        log_p, _ = log_likelihood(model, points, torch.tensor([answer]))
        return log_p.sum().exp().item()

    if holds == "every":
        total = sum(probability(answer) for answer in itertools.permutations(range(3)))
    elif holds == "some":
        total = sum(probability([*answer, -1][:3]) for size in (0, 1, 2, 3) for answer in orders(size))
    else:  # what is left for longer answers is the probability of not ending within two points
        ended = sum(
            probability([*answer, -1]) for size in (0, 1) for answer in itertools.product(range(3), repeat=size)
        )
        longer = sum(prefix_probability(model, points, pair) for pair in itertools.product(range(3), repeat=2))
        total = ended + longer
    assert total == pytest.approx(1, abs=1e-5)


def orders(size):
    return [list(order) + [-1] * (3 - size) for order in itertools.permutations(range(3), size)]


def prefix_probability(model, points, answer):
    log_p, _ = log_likelihood(model, points, torch.tensor([answer]))
    return log_p[0, : len(answer)].sum().exp().item()


@pytest.mark.parametrize("encoder", ["lstm", "transformer"])
def test_padding_changes_nothing(encoder):
    """Instances of 3, 5, 4 and 3 points in one batch are scored as each would be alone, whatever the padding holds."""
    model, lengths = network(encoder=encoder), torch.tensor([3, 5, 4, 3])
    answers = torch.tensor([[0, 2, -1], [4, 1, 0], [3, -1, -1], [1, 0, 2]])
    points = torch.where(torch.arange(5)[:, None] < lengths[:, None, None], POINTS, torch.nan)
    together, _ = log_likelihood(model, points, answers, lengths)
    for row, length in enumerate(lengths.tolist()):
        alone, _ = log_likelihood(model, POINTS[row : row + 1, :length], answers[row : row + 1])
        assert torch.allclose(together[row], alone[0], atol=1e-5)


def test_the_transformer_does_not_see_the_order_and_the_lstm_does():
    turned = POINTS.flip(1)
    for kind, same in (("transformer", True), ("lstm", False)):
        model = network(encoder=kind)
        here, there = (model.decode(model.encode(p), torch.zeros(4, 1, dtype=torch.int64)) for p in (POINTS, turned))
        assert torch.allclose(here[..., 1:], there[..., 1:].flip(2), atol=1e-5) == same


def test_the_paper_s_initial_weights():
    model = network(encoder="lstm", initial="paper", units=64)
    values = torch.cat([parameter.flatten() for parameter in model.parameters()])
    assert 0.0799 < values.abs().max().item() <= 0.08
    assert values.mean().abs().item() < 0.001


@pytest.mark.parametrize("each_once", [False, True])
@pytest.mark.parametrize("encoder", ["lstm", "transformer"])
def test_a_wide_beam_finds_the_most_probable_answer(encoder, each_once):
    """4 points: all 24 tours, or all 256 sequences of 4; a beam as wide as that misses none."""
    model = network("every", encoder=encoder, mask_chosen=False)
    points = POINTS[:1, :4]
    all_answers = itertools.permutations(range(4)) if each_once else itertools.product(range(4), repeat=4)

    def score(answer):
        log_p, _ = log_likelihood(model, points, torch.tensor([answer]))
        if not each_once:
            return log_p.sum().item()
        previous = torch.tensor([[0, *(index + 1 for index in answer[:-1])]])
        logits = model.decode(model.encode(points), previous).masked_fill(chosen_before(previous, 5), -torch.inf)
        return logits.log_softmax(-1)[0, range(4), [index + 1 for index in answer]].sum().item()

    best = max(all_answers, key=score)
    assert beam_search(model, points, 4, 256, each_once)[0].tolist() == list(best)


def test_decoding_follows_the_scores_of_whole_answers():
    """Greedy choices, scored in one call, are the most probable ones at every step; after the end comes padding."""
    model = network("some")
    answers = beam_search(model, POINTS, 6)
    previous = torch.nn.functional.pad(answers + 1, (1, -1))
    logits = model.decode(model.encode(POINTS), previous).masked_fill(chosen_before(previous, 6), -torch.inf)
    ended = ((answers == -1).cumsum(dim=1) - (answers == -1).int()) > 0
    assert (logits.argmax(dim=-1) == answers + 1)[~ended].all()
    assert (answers[ended] == -1).all()


@pytest.mark.parametrize(
    ("points", "options", "message"),
    [
        (np.full((1, 5, 2), np.nan), {}, "row 0: point 0 is at .*expected finite numbers"),
        (np.zeros((1, 2, 2)), {}, "row 0: 2 points; expected at least 3"),
        (np.zeros((1, 5, 2)), {"width": 0}, "width must be at least 1, got 0"),
        (np.zeros((1, 5, 2)), {"order": "any"}, "order must be one of sorted, given; got 'any'"),
    ],
)
def test_bad_input_of_predictions(points, options, message):
    with pytest.raises(ValueError, match=message):
        predict(network("some"), TASKS["convex-hull"], points.astype(np.float32), **options)


@pytest.mark.parametrize("width", [1, 3])
def test_answers_do_not_depend_on_the_batch(width, monkeypatch):
    points = np.random.default_rng(0).random((7, 6, 2), dtype=np.float32)
    model, task = network("every"), TASKS["tsp"]
    whole = predict(model, task, points, width=width)
    monkeypatch.setattr("routing_agents.policies.pointer.decoding.MEMORY_ELEMENTS", 2 * width * 7 * 16)
    assert np.array_equal(predict(model, task, points, width=width), whole)
    assert (np.sort(whole, axis=1) == np.arange(6)).all()


def test_sorted_points_give_the_same_tour_in_any_order():
    """The answer names the caller's points."""
    points = np.random.default_rng(0).random((3, 6, 2), dtype=np.float32)
    shuffle = np.random.default_rng(1).permutation(6)
    model, task = network("every", encoder="lstm"), TASKS["tsp"]
    here, there = predict(model, task, points), predict(model, task, points[:, shuffle])
    assert np.array_equal(here, shuffle[there])


def test_evaluation_of_tours_without_mask():
    """Length and gap are those of decoding restricted to tours; "valid" is the share without."""
    points = np.random.default_rng(0).random((20, 6, 2), dtype=np.float32)
    model, task = network("every", mask_chosen=False), TASKS["tsp"]
    right = task.solve(points, "optimal")
    metrics = evaluate(model, task, points, right)
    kept = predict(model, task, points, each_once=True)
    assert metrics["length"] == pytest.approx(tour_lengths(points, kept).mean())
    assert metrics["valid"] == task.metrics(points, predict(model, task, points), right)["valid"] < 1


@pytest.mark.parametrize("encoder", ["lstm", "transformer"])
def test_bfloat16_is_close(encoder):
    model, answers = network("every", encoder=encoder), torch.tensor([[0, 1, 2, 3, 4]]).expand(4, 5)
    exact = log_likelihood(model, POINTS, answers)[0]
    model.multiply_in("bfloat16")
    assert torch.allclose(log_likelihood(model, POINTS, answers)[0], exact, atol=0.05)
    with pytest.raises(ValueError, match="precision must be float32 or bfloat16, got 'float16'"):
        model.multiply_in("float16")


def test_processors_without_avx512():
    """The tests named above pass where oneDNN and ATen may use AVX2 only, whatever processor runs them.

    Without AVX-512 there is no LSTM in bfloat16: "could not create a primitive descriptor".
    """
    limited = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}
    chosen = ["-k", "bfloat16 or float32", "-n", "0", "-q", "-p", "no:cacheprovider", __file__]
    command = [sys.executable, "-m", "pytest", *chosen]
    done = subprocess.run(command, cwd=ROOT, env=limited, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"units": 0}, "units must be an integer of at least 1, got 0"),
        ({"units": 10}, "units 10 is not a multiple of num_heads 4"),
        ({"encoder": "gru"}, "encoder must be one of lstm, transformer; got 'gru'"),
        ({"answer": "copy"}, "answer must be one of pointer, attention, sequence; got 'copy'"),
        ({"answer": "sequence"}, "'sequence' has a dictionary with one word per point, so all instances need one size"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        network(**settings)


def test_a_dictionary_of_another_size():
    with pytest.raises(ValueError, match='answers 6 points only; answer "pointer" takes any number'):
        network(answer="sequence", fixed_size=6).encode(POINTS)


@pytest.mark.parametrize("encoder", ["lstm", "transformer"])
def test_scoring_and_decoding_stay_on_one_device(encoder):
    model, points = network("every", encoder=encoder).to("meta"), POINTS.to("meta")
    with RefusesToMix():
        log_p, _ = log_likelihood(model, points, torch.zeros(4, 5, dtype=torch.int64, device="meta"))
        log_p.sum().backward()
        answers = beam_search(model, points, 5, 3, True)
    assert log_p.device.type == answers.device.type == "meta"
