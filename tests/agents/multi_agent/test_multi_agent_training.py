"""MAPPO and MADDPG: exact resumption, wrong input, what is learnt and what is measured."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

import maddpg
import mappo
import routing_agents
from helpers import AGENTS, check_resumption, logged, stop_after
from routing_agents import checkpoint
from routing_agents.header import CheckpointError
from routing_agents.multi_agent import pictures
from routing_agents.multi_agent.extractor import Layout, flatten, to_rivals
from routing_agents.multi_agent.networks import AgentNetwork, NetworkConfig
from routing_agents.multi_agent.players import collected, compare, greedy, heuristic, play_one, seats
from routing_agents.multi_agent.saved import load_policy, load_values
from routing_agents.multi_agent.training import GameTrainer
from routing_agents.runs import BEST, LAST, TrainingDivergedError
from routing_agents.training.policy_gradient import clipped_losses
from routing_gym import CompetitiveOP
from routing_gym.multi_agent.environments import GameVectorEnv
from routing_gym.multi_agent.heuristics import nearest, rival_aware

SIZES = {"width": 8, "token_width": 4, "num_heads": 2, "query_dim": 4, "value_dim": 4, "hidden": 8}
CRITIC = NetworkConfig(**SIZES)
POLICY = replace(CRITIC, share_heads=True)
COMMON = {"num_agents": 3, "epochs": 3, "steps_per_epoch": 2, "games": 4, "held_out": 6, "threads": 1}
COMMON |= {"policy": POLICY, "critic": CRITIC}
TINY = {
    mappo: mappo.Args(**COMMON, num_minibatches=2, update_epochs=1),
    maddpg: maddpg.Args(**COMMON, buffer=3, updates=2, batch_size=16),
}
TRAINERS = {mappo: mappo.MappoTrainer, maddpg: maddpg.MaddpgTrainer}
BOTH = pytest.mark.parametrize("script", [mappo, maddpg], ids=["mappo", "maddpg"])


@pytest.mark.parametrize(
    ("script", "steps", "central"), [(mappo, 5, True), (maddpg, 4, False)], ids=["mappo", "maddpg"]
)
def test_resumed_run_equals_uninterrupted_run(tmp_path, monkeypatch, script, steps, central):
    """Three epochs of two steps, stopped after epoch 2 (4 steps) or within epoch 3, against three in one go."""
    args = replace(TINY[script], runs=tmp_path, central_policy=central, rivals_seen=0 if central else 1)
    _, parts = check_resumption(monkeypatch, script, GameTrainer, args, steps)
    for file in ("args.json", "curve.png", "game.png", "tensorboard"):
        assert (parts / file).exists(), file
    with pytest.raises(CheckpointError, match="kind 'multi-agent', trained by .*, which solves no instances"):
        routing_agents.load(parts)


def test_minibatches_of_one_tick(tmp_path):
    """1,000 and 2,000 minibatches of fewer ticks are one each, and so is what is logged. With one vehicle, an advantage
    has nothing to be compared with."""
    args = replace(TINY[mappo], runs=tmp_path, epochs=1)
    first, second = (logged(mappo.main(replace(args, name=str(k), num_minibatches=k)))[0] for k in (1000, 2000))
    for key in ("gain", "entropy", "approx_kl", "clipfrac", "policy_loss", "value_loss"):
        assert first[key] == second[key]
    with pytest.raises(ValueError, match="--num-minibatches 1000: each holds fewer than 2 decisions of vehicles"):
        mappo.main(replace(args, name="one", num_agents=1, heuristics=0.0, num_minibatches=1000))


def test_mappo_learns(tmp_path):
    """Forty steps: the last gains are a quarter above the first, which are those of chance."""
    args = replace(TINY[mappo], runs=tmp_path, games=32, epochs=4, steps_per_epoch=10, learning_rate=5e-3)
    rows = logged(mappo.main(args))
    assert rows[-1]["gain"] > 1.25 * rows[0]["gain"]
    assert rows[-1]["explained_variance"] > max(0.0, rows[0]["explained_variance"])


def test_what_heuristics_play_is_not_learnt(tmp_path):
    """They play `rival_aware`; other advantages, returns and probabilities of theirs change no loss."""
    trainer = mappo.MappoTrainer(replace(TINY[mappo], runs=tmp_path, heuristics=0.6))
    instance, generator = trainer.draw(0)
    rollout = trainer.play(instance, generator)
    assert 0 < rollout.learns.float().mean() < 1
    first = rollout.learns.view(16, 4, 3)[0]
    game, state = trainer.game, trainer.game.initial(instance)
    assert torch.equal(rollout.actions[:4][~first], rival_aware(game, instance, state)[~first])
    rows = torch.arange(len(rollout.actions))
    noise = torch.where(rollout.learns, 0.0, 1.0)
    names = ("advantages", "returns", "log_p")
    other = replace(rollout, **{name: getattr(rollout, name) + noise for name in names})
    expected, found = trainer.losses(rollout, rows), trainer.losses(other, rows)
    assert {key: value.item() for key, value in expected.items()} == {key: value.item() for key, value in found.items()}
    own = replace(rollout, returns=rollout.returns + 1 - noise)
    assert trainer.losses(own, rows)["value_loss"] != expected["value_loss"]


def test_a_best_response_begins_with_what_it_responds_to(tmp_path):
    """Policy and values are the other run's; its greedy policy plays all vehicles but one, and stays what it was."""
    args = replace(TINY[mappo], runs=tmp_path, epochs=1)
    hosts = mappo.main(replace(args, name="hosts"))
    answer = replace(args, respond_to=str(hosts / LAST), name="answer")
    trainer = mappo.MappoTrainer(answer)
    theirs = checkpoint.group(checkpoint.load(hosts / LAST)[0], "model")
    theirs |= {name.replace("policy.", "rival."): weight for name, weight in theirs.items()}
    assert all(torch.equal(weight, theirs[name]) for name, weight in trainer.model.state_dict().items())
    against_itself = trainer.end_epoch()
    assert (against_itself["self_play"], against_itself["among"]) == (1, 1)
    instance, generator = trainer.draw(0)
    rollout = trainer.play(instance, generator)
    assert (rollout.learns.sum(dim=1) == 1).all()
    first, env = rollout.learns.view(16, 4, 3)[0], GameVectorEnv(trainer.game, 4, backend="torch")
    observation, _ = env.reset(options={"instance": instance})
    expected = greedy(load_policy(hosts / LAST)[0])(env, observation)
    assert torch.equal(rollout.actions[:4][~first], expected[~first])
    folder = mappo.main(answer)
    assert not torch.equal(load_policy(folder)[0].heads.out_weight, theirs["policy.heads.out_weight"])
    with pytest.raises(
        ValueError, match=r"--respond-to .*hosts: its game is CompetitiveOP\(num_agents=3.*, and this run"
    ):
        mappo.MappoTrainer(replace(answer, respond_to=str(hosts), num_agents=4))
    with pytest.raises(ValueError, match=r"--respond-to .*hosts: its critic is NetworkConfig\(.*, and this run"):
        mappo.MappoTrainer(replace(answer, respond_to=str(hosts), critic=replace(CRITIC, mixing="mean")))


def test_a_best_response_goes_on_against_the_rival_that_it_began_with(tmp_path, monkeypatch):
    """Stopped, and the other run's file is another's by the time that it goes on: as if nothing had happened."""
    args = replace(TINY[mappo], runs=tmp_path, epochs=1)
    hosts, others = (mappo.main(replace(args, name=f"hosts-{seed}", seed=seed)) for seed in (1, 2))
    answer = replace(args, respond_to=str(hosts / LAST))
    whole = mappo.main(replace(answer, name="whole"))
    with monkeypatch.context() as patch:
        stop_after(patch, mappo.MappoTrainer, 1)
        parts = mappo.main(replace(answer, name="parts"))
    shutil.copy(others / LAST, hosts / LAST)
    mappo.main(mappo.Args(resume=parts))
    expected, found = (checkpoint.load(folder / LAST)[0] for folder in (whole, parts))
    assert [key for key in expected if not torch.equal(expected[key], found[key])] == []


@pytest.mark.parametrize("central", [False, True])
def test_steering_learns_from_its_own_value_alone(tmp_path, monkeypatch, central):
    """With q^i = -|a^i - (1, 0)|^2 - 9 |a^j - (0, 1)|^2 for all j != i, every vehicle should steer to (1, 0).

    Were the others' values followed too, they would pull to (0, 1).
    """
    trainer = maddpg.MaddpgTrainer(replace(TINY[maddpg], runs=tmp_path, central_policy=central))
    right, up = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])

    class Known(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.unused = torch.nn.Parameter(torch.zeros(1))

        def forward(self, x):
            action = x[..., -2:]
            others = (action - up).square().sum(-1)
            values = -(action - right).square().sum(-1) - 9 * (others.sum(-1, keepdim=True) - others)
            return values + 0 * self.unused

    trainer.model["critic"] = trainer.model["target_critic"] = Known()
    monkeypatch.setattr(trainer, "decayed", lambda start: 1e-2)
    generator = torch.Generator().manual_seed(0)
    trainer.optimizers["policy"] = torch.optim.Adam(trainer.policy.parameters())
    trainer.optimizers["critic"] = torch.optim.Adam(trainer.model["critic"].parameters())
    trainer.play(trainer.draw(0)[0], 0, generator)
    for _ in range(200):
        trainer.improve(trainer.buffer.sample(1, 32, 1, generator), generator)
    seen = trainer.buffer.seen[0].flatten(0, 1)
    assert (trainer.policy(seen).mean(dim=(0, 1)) - right).abs().max() < 0.15


def test_the_buffer_gives_back_what_was_played(tmp_path):
    """The observations that follow are those of the next tick, and rewards those of the game played again."""
    trainer = maddpg.MaddpgTrainer(replace(TINY[maddpg], runs=tmp_path))
    instance, generator = trainer.draw(0)
    gain = trainer.play(instance, 0, generator)
    buffer, game = trainer.buffer, trainer.game
    env = GameVectorEnv(game, 4, autoreset_mode="Disabled", backend="torch")
    observation, _ = env.reset(options={"instance": instance})
    for tick in range(game.num_ticks):
        assert torch.equal(buffer.seen[0, :, tick], flatten(observation))
        observation, reward, *_ = env.step(buffer.actions[0, :, tick])
        assert torch.equal(buffer.rewards[0, :, tick], reward.float())
    assert gain == pytest.approx(float(buffer.rewards[0].sum(dim=1).mean()), rel=1e-5)
    for ahead in (1, 3):
        seen, _, rewards, after, goes_on = buffer.sample(1, 500, ahead, generator)
        time_left = 4  # its place in an observation
        ticks_left = 16 * seen[:, 0, time_left]
        assert torch.allclose(16 * after[:, 0, time_left], (ticks_left - ahead).clamp(min=0), atol=1e-5)
        assert torch.equal(goes_on[:, 0] == 0, ticks_left.round() <= ahead)
        first = torch.isclose(ticks_left, torch.tensor(16.0))
        expected = buffer.rewards[0, :, :ahead].sum(dim=1)
        assert all(torch.isclose(row, expected, atol=1e-6).all(dim=1).any() for row in rewards[first])


def test_clipped_losses_by_hand():
    """Advantages 1 and -1, of standard deviation sqrt(2): +-1 / sqrt(2). Ratios 2 and 1/2, clipped to 1.2 and 0.8.

    min(2, 1.2) / sqrt(2) = 1.2 / sqrt(2); min(-0.5, -0.8) / sqrt(2) = -0.8 / sqrt(2); their mean is 0.2 / sqrt(2).
    """
    log_p = torch.tensor([2.0, 0.5]).log()
    losses = clipped_losses(log_p, torch.zeros(2), torch.tensor([1.0, -1.0]), 0.2)
    assert losses["policy_loss"].item() == pytest.approx(-0.2 / 2**0.5, rel=1e-5)
    assert losses["clipfrac"].item() == 1.0
    assert losses["approx_kl"].item() == pytest.approx((2 + 0.5) / 2 - 1, rel=1e-5)  # the logarithms cancel


def test_heuristics_compared_with_themselves():
    """1 exactly; and `nearest`, which is worse, is below 1 both ways."""
    game = CompetitiveOP(4)
    instance = game.generate(np.random.default_rng(0), 64)
    same = compare(game, instance, heuristic(rival_aware), heuristic(rival_aware))
    assert same == {"self_play": 1.0, "among": 1.0}
    assert all(share < 0.97 for share in compare(game, instance, heuristic(nearest), heuristic(rival_aware)).values())


def test_every_seat_is_taken_equally_often():
    taken = seats(12, 4)
    assert taken.sum(dim=1).tolist() == [1] * 12
    assert taken.sum(dim=0).tolist() == [3] * 4


def test_a_policy_plays_with_other_numbers_of_vehicles(tmp_path):
    """Trained with three, played with five; and refused where each vehicle has a head of its own."""
    instance = CompetitiveOP(5, rivals_seen=3).generate(np.random.default_rng(0), 2)
    for shared in (True, False):
        args = replace(
            TINY[mappo], runs=tmp_path, name=str(shared), epochs=1, policy=replace(POLICY, share_heads=shared)
        )
        policy, game, header = load_policy(mappo.main(args))
        assert (game.num_agents, header["metrics"]["epoch"]) == (3, 1)
        larger = CompetitiveOP(5, rivals_seen=3)
        if shared:
            assert collected(larger, instance, greedy(policy)).shape == (2, 5)
        else:
            with pytest.raises(ValueError, match="made for 3 agents and has a head for each of them; got 5"):
                collected(larger, instance, greedy(policy))


def test_distances_to_rivals_by_hand():
    """Customer at (3, 4), rivals at (0, 0), at (3, 1), and one who is not there: 5, 3, and 2 by convention."""
    customer = torch.tensor([[1.0, 3.0, 4.0, 0.5, 5.0]])
    rivals = torch.tensor([[1.0, 0.0, 0.0, 0.0], [1.0, 3.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0]])
    assert to_rivals(customer, rivals).tolist() == [[5.0, 3.0, 2.0]]


def test_attention_is_drawn(tmp_path):
    """Seven lines from vehicle 2 to the others, the widest to the one that it listens to most."""
    game = CompetitiveOP(8)
    instance = game.generate(np.random.default_rng(0), 1)
    network = AgentNetwork(Layout.of(game), NetworkConfig(), 8, generator=torch.Generator().manual_seed(0))
    states, seen = play_one(game, instance, heuristic(rival_aware))
    weights = pictures.listening(network, seen[3])
    assert weights.sum(axis=1) == pytest.approx(np.ones(8))
    before = len(pictures.pictures.draw(game, instance, states[:4]).axes[0].lines)
    figure = pictures.draw_attention(game, instance, states[:4], weights, agent=2)
    lines = figure.axes[0].lines[before:-1]
    widths = {tuple(np.round(line.get_xydata()[1], 9)): line.get_linewidth() for line in lines}
    assert len(widths) == 7
    closest = max((other for other in range(8) if other != 2), key=lambda other: weights[2, other])
    assert max(widths, key=widths.get) == tuple(np.round(states[3].position[0, closest], 9))
    with pytest.raises(ValueError, match="agent must be one of 0 to 7, got 8"):
        pictures.draw_attention(game, instance, states[:4], weights, agent=8)


@pytest.mark.parametrize(
    ("script", "wrong", "message"),
    [
        (mappo, {"games": 0}, "--games must be an integer of at least 1, got 0"),
        (mappo, {"learning_rate": 1e300}, r"--learning-rate must be a positive number of at most 1e\+30, got 1e\+300"),
        (mappo, {"num_agents": 10**6}, "--num-agents must be at most 1024, got 1000000"),
        (mappo, {"heuristics": 1.0}, r"--heuristics must be in \[0, 1\), got 1.0"),
        (mappo, {"gae_lambda": 5.0}, r"--gae-lambda must be a number in \[0, 1\], got 5.0"),
        (maddpg, {"explore": 2.0}, r"--explore must be a number in \[0, 1\], got 2.0"),
        (maddpg, {"tau": 1.5}, r"--tau must be in \(0, 1\], got 1.5"),
        (maddpg, {"buffer": 0}, "--buffer must be an integer of at least 1, got 0"),
    ],
)
def test_wrong_arguments(script, wrong, message):
    with pytest.raises(ValueError, match=message):
        replace(TINY[script], **wrong)


def test_bad_input_comes_before_any_work(tmp_path):
    """The game's own settings; another script's run; weights that are no policy of a game."""
    with pytest.raises(ValueError, match="cooperation must be in"):
        mappo.main(replace(TINY[mappo], runs=tmp_path, cooperation=2.0))
    assert list(tmp_path.iterdir()) == []
    folder = mappo.main(replace(TINY[mappo], runs=tmp_path, name="run", epochs=1))
    with pytest.raises(ValueError, match=r"run: not a run of maddpg.py; its checkpoint names mappo.py"):
        maddpg.main(maddpg.Args(resume=folder))
    with pytest.raises(ValueError, match="--resume uses the run's own arguments; leave out --games"):
        mappo.main(mappo.Args(resume=folder, games=3))
    published = AGENTS / "routing_agents" / "weights" / "tsp-20.safetensors"
    with pytest.raises(CheckpointError, match="holds no policy of a game; train one with agents/mappo.py"):
        load_policy(published)
    steered = maddpg.main(replace(TINY[maddpg], runs=tmp_path, name="steered", epochs=1))
    with pytest.raises(CheckpointError, match="holds no state values; train them with agents/mappo.py"):
        load_values(steered)
    assert torch.equal(
        load_values(folder)[0].heads.out_bias, checkpoint.load(folder / BEST)[0]["model.critic.heads.out_bias"]
    )


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory):
    """Runs of one epoch, made once."""
    runs = tmp_path_factory.mktemp("runs")
    return {script: script.main(replace(TINY[script], runs=runs, name=script.__name__, epochs=1)) for script in TINY}


@BOTH
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors, args: tensors.pop("critic.0.exp_avg"), "the state of critic does not fit: missing 0.exp_avg"),
        (
            lambda tensors, args: tensors.update({"policy.1.exp_avg_sq": torch.zeros(2, 7)}),
            r"the state of policy does not fit: 1.exp_avg_sq has shape \(2, 7\), expected",
        ),
        (lambda tensors, args: args["policy"].update(num_layers=10**7), "num_layers 10000000; expected"),
        (lambda tensors, args: args.update(held_out=10**10), "--held-out must be at most 1000000, got 10000000000"),
        (lambda tensors, args: args.update(critic=[1]), r"critic is \[1\]; expected an object"),
    ],
)
def test_resume_of_a_damaged_checkpoint(tmp_path, trained_once, script, change, message):
    path = shutil.copytree(trained_once[script], tmp_path / "run") / LAST
    tensors, header = checkpoint.load(path)
    change(tensors, header["args"])
    checkpoint.save(path, tensors, header)
    with pytest.raises(CheckpointError, match=message):
        script.main(script.Args(resume=path.parent))


def test_resume_needs_the_actions_of_the_buffer(tmp_path, trained_once):
    path = shutil.copytree(trained_once[maddpg], tmp_path / "run") / LAST
    tensors, header = checkpoint.load(path)
    checkpoint.save(path, {**tensors, "more.actions": torch.zeros(3)}, header)
    with pytest.raises(CheckpointError, match=r"more.actions has shape \(3,\), expected \(3, 4, 16, 3, 2\)"):
        maddpg.main(maddpg.Args(resume=path.parent))


@BOTH
def test_divergence_is_said_before_the_weights_are_lost(tmp_path, script):
    trainer = TRAINERS[script](replace(TINY[script], runs=tmp_path))
    before = trainer.policy.heads.out_weight.clone()
    with torch.no_grad():
        trainer.model["critic"].heads.out_bias.fill_(torch.nan)
    with pytest.raises(TrainingDivergedError, match="loss or gradient of (policy|critic) in step 0 is not finite"):
        trainer.update()
    assert torch.equal(trainer.policy.heads.out_weight, before)
