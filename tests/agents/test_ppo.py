"""PPO: the estimate of advantages, the first ratio, rollouts, learning, and what a run leaves behind."""

from __future__ import annotations

import math
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
import torch

import am_reinforce
import helpers
import ppo
import routing_agents
from helpers import check_resumption, logged
from problem_names import ONE_OF_EACH
from routing_agents import checkpoint
from routing_agents.policies.attention.decoding import sampling_choice, solve
from routing_agents.policies.attention.features import features_named
from routing_agents.policies.attention.model import NETWORKS, AttentionModel, ModelConfig
from routing_agents.policies.attention.saved import load_model
from routing_agents.runs import TrainingDivergedError, held_out_instances
from routing_gym.arrays import select, to_backend
from routing_gym.problems import make_problem

TINY = ppo.Args(
    env_id="routing/TSP-10",
    epochs=2,
    steps_per_epoch=1,
    num_envs=16,
    lanes_per_instance=4,
    num_minibatches=2,
    held_out=16,
    attention=ModelConfig(embed_dim=16, num_heads=4, num_layers=1, feed_forward_dim=16, normalization="instance"),
    precision="float32",
    threads=1,
)


@pytest.fixture
def tiny(tmp_path):
    return replace(TINY, runs=tmp_path)


def make_agent(name: str, args: ppo.Args, generator: torch.Generator) -> ppo.Agent:
    return ppo.Agent(AttentionModel(features_named(name), args.attention, generator), generator)


def play(args: ppo.Args, seed: int = 0) -> tuple[ppo.Agent, ppo.Experience]:
    """One rollout of an untrained agent, whose value head is made to say something."""
    envs = ppo.make_envs(args, "cpu")
    generator = torch.Generator().manual_seed(seed)
    agent = make_agent(envs.problem.name, args, generator)
    torch.nn.init.ones_(agent.critic.value.weight)
    instance = envs.problem.generate(np.random.default_rng(seed), args.num_envs // args.lanes_per_instance)
    return agent, ppo.collect(agent, envs, instance, sampling_choice(generator), args)


def test_gae_by_hand():
    """Three steps, values 1, 2, 3, then 4; rewards 1, 0, 2; gamma = 1/2, lambda = 1/2; nothing ends.

    Errors: 1 + 2/2 - 1 = 1; 0 + 3/2 - 2 = -1/2; 2 + 4/2 - 3 = 1. Advantages, each a quarter of the next one on
    top: 1; -1/2 + 1/4 = -1/4; 1 - 1/16 = 15/16.
    If step 2 ends its episode: errors 1; 0 - 2 = -2; 1. Advantages 1; -2; 1 - 2/4 = 1/2.
    """
    rewards, values, next_value = torch.tensor([1.0, 0.0, 2.0]), torch.tensor([1.0, 2.0, 3.0]), torch.tensor(4.0)
    goes_on = torch.tensor([False, False, False])
    assert ppo.gae(rewards, values, goes_on, next_value, 0.5, 0.5).tolist() == [15 / 16, -1 / 4, 1]
    ends = torch.tensor([False, True, False])
    assert ppo.gae(rewards, values, ends, next_value, 0.5, 0.5).tolist() == [1 / 2, -2, 1]


def test_nothing_passes_from_one_episode_to_the_one_before():
    """Whatever comes after the end of an episode, its advantages stay the same."""
    values, ends = torch.rand(4), torch.tensor([False, True, False, False])
    first, second = (
        ppo.gae(torch.tensor([1.0, 2.0, *later]), values, ends, torch.tensor(bootstrap), 1.0, 0.9)
        for later, bootstrap in (((3.0, 4.0), 5.0), ((-30.0, 0.0), 7.0))
    )
    assert torch.equal(first[:2], second[:2])
    assert not torch.isclose(first[2:], second[2:]).any()


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_first_ratio_is_one(tiny, name):
    """Scored in parallel, from an encoding of half the instances, the steps are as probable as when taken."""
    args = replace(tiny, env_id=f"routing/{name}-10")
    agent, rollout = play(args)
    losses = ppo.minibatch_losses(agent, rollout, torch.tensor([3, 1]), args)
    assert losses["approx_kl"].item() == pytest.approx(0.0, abs=1e-6)
    assert losses["clipfrac"].item() == 0.0
    assert losses["policy_loss"].item() == pytest.approx(0.0, abs=1e-5)  # minus the mean of normalised advantages
    encoding = agent.actor.encode(rollout.static)
    log_p, _, values = agent.evaluate(encoding, rollout.observations, rollout.actions)
    torch.testing.assert_close(log_p, rollout.log_p, rtol=0, atol=1e-5)
    torch.testing.assert_close(values, rollout.values, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_every_tour_of_a_rollout(tiny, name):
    """Values are zero before training; with lambda = gamma = 1 the advantage of a tour's first step is then the
    tour's return, in the single environment on the same instance too, tour after tour to the end of the rollout."""
    args = replace(tiny, env_id=f"routing/{name}-10", gae_lambda=1.0)
    envs = ppo.make_envs(args, "cpu")
    generator = torch.Generator().manual_seed(0)
    instance = envs.problem.generate(np.random.default_rng(0), 4)
    agent = make_agent(name, args, generator)
    rollout = ppo.collect(agent, envs, instance, sampling_choice(generator), args)
    env = gym.make(args.env_id, on_illegal="raise")
    first_returns = []
    for lane in range(args.num_envs):
        steps = slice(lane % 4 * envs.problem.horizon, (lane % 4 + 1) * envs.problem.horizon)
        begin = steps.start
        env.reset(options={"instance": select(instance, [lane // 4])})
        for step in range(steps.start, steps.stop):
            *_, terminated, _, info = env.step(rollout.actions[lane // 4, step].item())
            if terminated:
                assert rollout.advantages[lane // 4, begin].item() == pytest.approx(-info["cost"], abs=1e-4)
                first_returns += [-info["cost"]] if begin == steps.start else []
                begin = step + 1
                env.reset(options={"instance": select(instance, [lane // 4])})
    assert len(first_returns) == args.num_envs
    assert rollout.episodic_return == pytest.approx(np.mean(first_returns), abs=1e-4)


@pytest.mark.parametrize("name", ["TSP", "SDVRP"])
def test_two_rollouts(tiny, name):
    """The log has finite numbers under CleanRL's names, and the checkpoint is one of the attention model."""
    horizon = make_problem(name, 10).horizon
    folder = ppo.main(replace(tiny, env_id=f"routing/{name}-10"))
    rows = logged(folder)
    assert [(row["global_step"], row["instances"]) for row in rows] == [(16 * horizon, 4), (32 * horizon, 8)]
    assert all(math.isfinite(value) for row in rows for value in row.values())
    assert {"cost", "approx_kl", "value_loss", "clipfrac", "explained_variance"} <= rows[0].keys()
    model, problem, header = load_model(folder)
    assert problem == make_problem(name, 10)
    assert header["metrics"]["greedy"] == min(row["greedy"] for row in rows)
    held_out = held_out_instances(problem, 16)
    greedy = solve(model, problem, to_backend(held_out, "torch")).cost.double().mean().item()
    assert greedy == pytest.approx(header["metrics"]["greedy"], abs=1e-5)


def test_it_learns(tiny):
    """TSP-10 in 20 rollouts of 256 tours: sampled tours at least 30 % shorter than random ones, greedy ones 35 %; about
    45 % is what there is to gain."""
    args = replace(
        tiny,
        epochs=1,
        steps_per_epoch=20,
        num_envs=256,
        lanes_per_instance=8,
        num_minibatches=4,
        held_out=256,
        attention=ModelConfig(embed_dim=32, num_heads=4, num_layers=2, feed_forward_dim=64, normalization="instance"),
    )
    problem = make_problem("TSP", 10)
    rng = np.random.default_rng(0)
    tours = rng.permuted(np.tile(np.arange(10), (2000, 1)), axis=1)
    random_cost = problem.objective(problem.generate(rng, 2000), tours).mean()
    trainer = ppo.PPOTrainer(args)
    for _ in range(20):
        cost = trainer.learn()["cost"]
        trainer.step += 1
    assert cost < 0.7 * random_cost
    assert trainer.end_epoch()["greedy"] < 0.65 * random_cost


def test_muon_gets_the_matrices_between_embeddings(tiny):
    trainer = ppo.PPOTrainer(replace(tiny, env_id="routing/CVRP-10"))
    by_muon = {id(p) for p in trainer.optimizers["muon"].param_groups[0]["params"]}
    others = {key for key, p in trainer.model.named_parameters() if p.ndim == 2 and id(p) not in by_muon}
    assert others == {"actor.embed_node.weight", "actor.embed_depot.weight", "critic.value.weight"}


def test_exact_resume(tiny, monkeypatch):
    """In the middle of an epoch; the scale of the rewards is that of the untrained agent."""
    check_resumption(monkeypatch, ppo, ppo.PPOTrainer, replace(tiny, steps_per_epoch=2), 3)


def test_a_network_of_ones_own(tiny, monkeypatch):
    """Resumed bit for bit, without its dropout; loaded by its name."""
    args = replace(tiny, model="deep-sets", steps_per_epoch=2)
    with pytest.raises(ValueError, match="--model 'deep-sets': choose one of attention, or add one of your own to"):
        ppo.main(args)
    monkeypatch.setitem(NETWORKS, "deep-sets", helpers.DeepSets)
    trainer = ppo.PPOTrainer(args)
    instance, generator = trainer.draw(0)
    rollout = ppo.collect(trainer.model, trainer.envs, instance, sampling_choice(generator), args)
    losses = ppo.minibatch_losses(trainer.model, rollout, torch.arange(4), args)
    assert losses["approx_kl"].item() == pytest.approx(0, abs=1e-6)  # no dropout: the policy has not changed yet
    folder, _ = check_resumption(monkeypatch, ppo, ppo.PPOTrainer, args, 3)
    assert type(routing_agents.load(folder).network) is helpers.DeepSets
    with pytest.raises(checkpoint.CheckpointError, match="last.safetensors: it is for --resume; give the run's folder"):
        routing_agents.load(folder / "last.safetensors")
    with pytest.raises(checkpoint.CheckpointError, match="a network of kind 'deep-sets'; add --model deep-sets"):
        ppo.PPOTrainer(replace(tiny, init_from=folder))


def test_start_from_another_run(tiny, capsys):
    """PPO starts from a policy of REINFORCE; its checkpoint tells so."""
    network = replace(tiny.attention, nearness=True)
    first = am_reinforce.main(replace(helpers.TINY, attention=network, epochs=1, runs=tiny.runs, name="first"))
    trainer = ppo.PPOTrainer(replace(tiny, attention=network, init_from=first))
    weights = checkpoint.group(checkpoint.load(first / "best.safetensors")[0], "model")
    assert all(torch.equal(value, weights[name]) for name, value in trainer.model.actor.state_dict().items())
    capsys.readouterr()
    folder = ppo.main(replace(tiny, attention=network, init_from=first))
    assert "new: none" in capsys.readouterr().out
    (origin,) = checkpoint.load(folder / "best.safetensors")[1]["history"]
    assert origin["args"]["env_id"] == "routing/TSP-10"
    with pytest.raises(
        checkpoint.CheckpointError, match="has no weights of this network; give the folder of a run, or"
    ):
        ppo.PPOTrainer(replace(tiny, attention=network, init_from=folder / "last.safetensors"))


def test_same_seed_same_weights_other_seed_other_weights(tiny):
    weights = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        folder = ppo.main(replace(tiny, name=name, seed=seed))
        weights.append(checkpoint.load(folder / "best.safetensors")[0])
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])
    assert not torch.equal(weights[0]["model.embed_node.weight"], weights[2]["model.embed_node.weight"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_envs": 0}, "--num-envs must be an integer of at least 1, got 0"),
        ({"num_envs": 12}, "--num-envs 12 is not a multiple of --lanes-per-instance 4 times --num-minibatches 2"),
        ({"gamma": -1.0}, r"--gamma must be a number in \[0, 1\], got -1.0"),
        ({"vf_coef": math.nan}, "--vf-coef must be a number in .*, got nan"),
        ({"epochs": 10**30}, "--epochs must be at most 9223372036854775807, got 1000"),
        ({"learning_rate": 0.0}, "--learning-rate must be a positive number of at most .*, got 0.0"),
        ({"attention": ModelConfig()}, "--normalization batch does not go with PPO"),
    ],
)
def test_bad_arguments(changes, message):
    with pytest.raises(ValueError, match=message):
        replace(TINY, **changes)


def test_refused_before_a_folder_is_made(tiny, tmp_path):
    message = r"--env-kwargs: prize is '\[\[.*'; expected a number, true, false or a"
    with pytest.raises(ValueError, match=message):
        ppo.main(replace(tiny, env_kwargs={"prize": "[" * 10**5}))
    assert list(tmp_path.iterdir()) == []


def test_existing_run_is_left_alone(tiny, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "args.json").touch()
    with pytest.raises(FileExistsError, match="mine exists; continue it with --resume .*, or choose another --name"):
        ppo.main(replace(tiny, name="mine"))
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["args.json"]


def test_diverging_training_stops(tiny):
    with pytest.raises(TrainingDivergedError, match="the batch is in .*npz. Start again with a lower --learning-rate"):
        ppo.main(replace(tiny, learning_rate=1e30))
