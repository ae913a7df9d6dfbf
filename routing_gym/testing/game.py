"""`check_game`: checks the contract of `Game` on random instances and random actions."""

from __future__ import annotations

import dataclasses
import warnings
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector.utils import batch_space

from routing_gym.arrays import concatenate, converter, select, to_backend, to_numpy
from routing_gym.multi_agent.game import AnyGame, Game
from routing_gym.testing.compare import call, difference, expect
from routing_gym.testing.problem import check_generate

TOLERANCE = 1e-5  # on observations between backends
ROUNDING = 1e-9  # on sums of prizes, in float64
UNMASKED = 0.1  # share of the actions that are drawn without the mask


def check_game(game: AnyGame, *, batch_size: int = 16, seed: int = 0, device: str | None = None) -> None:
    """Check the contract of `Game` on random instances and actions, some of them illegal.

    - `generate` returns valid instances, the same in one batch or in two.
    - Action 0 is always legal; an illegal action has the effect of 0.
    - Prize is conserved: the agents' gains equal the decrease of the remaining prize.
    - The gains add up to `replay`, which is implemented independently.
    - Agents are exchangeable: permuting them permutes gains, masks and observations, exactly.
    - Every episode takes `num_ticks` steps; a step after that changes and gains nothing.
    - Observations and global states are within their spaces. The sum of rewards does not depend on `cooperation`.
    - No method changes its arguments; rows are independent and may be at different ticks.
    - NumPy and torch agree: on masks, on gains within 1e-9, and on observations within 1e-5.

    Args:
        game: Game, a frozen dataclass.
        batch_size: Number of instances.
        seed: Random seed of the instances and the actions.
        device: Torch device for the comparison of backends, such as "cuda".

    Raises:
        TypeError: The argument is not a game.
        ContractViolation: A check fails. The message has the part of the contract, the location and the value found.

    Warns:
        UserWarning: torch is not installed, so that only NumPy was checked.
    """
    if not isinstance(game, Game):
        raise TypeError(f"check_game takes a game, such as CompetitiveOP(20, num_agents=2), got {game!r}")
    instance = check_generate(game, batch_size, seed)
    rng = np.random.default_rng(seed)
    played = play(game, instance, rng)
    check_replay(game, instance, played)
    check_rewards(game, played)
    check_exchangeable(game, instance, played, rng.permutation(game.num_agents))
    check_rows_are_independent(game, instance, played)
    if find_spec("torch") is None:
        warnings.warn("check_game: torch is not installed, so only NumPy was checked", stacklevel=2)
        return
    check_backends_agree(game, instance, played, device)


@dataclass(frozen=True)
class PlayedGame:
    """Complete games of B rows."""

    states: list[Any]  # T + 1 states
    seen: list[dict[str, Any]]  # T + 1 results of `see`
    actions: list[npt.NDArray[Any]]  # T arrays (B, m) or (B, m, ...)
    gains: list[npt.NDArray[np.float64]]  # T arrays (B, m)


def see(game: AnyGame, instance: Any, state: Any) -> dict[str, Any]:
    """Return the observations and masks of all agents: arrays (B, m, ...)."""
    masks = {} if game.num_actions is None else {"mask": game.action_mask(instance, state)}
    return {**game.observe(instance, state), **masks}


def play(game: AnyGame, instance: Any, rng: np.random.Generator) -> PlayedGame:
    """Play random games, checking every step."""
    state = call(game, "initial", instance)
    num_rows = len(game.remaining(instance, state))
    played = PlayedGame([state], [see(game, instance, state)], [], [])
    for tick in range(game.num_ticks + 1):
        where = f"tick {tick}"
        check_seen(game, instance, state, where)
        finished = call(game, "done", instance, state)
        ends = f"rows {np.flatnonzero(finished)} are done, of {num_rows}; num_ticks is {game.num_ticks}"
        expect(finished.all() if tick == game.num_ticks else not finished.any(), game, where, ends)
        action = draw(game, instance, state, rng)
        new_state, gains = call(game, "step", instance, state, action)
        form = f"gains are {gains.dtype} {gains.shape}, expected float64 {(num_rows, game.num_agents)}"
        expect(gains.dtype == np.float64 and gains.shape == (num_rows, game.num_agents), game, where, form)
        left = call(game, "remaining", instance, state) - call(game, "remaining", instance, new_state)
        lost = np.abs(left - gains.sum(axis=1))
        row = int(np.argmax(lost))
        told = f"row {row}: the agents gained {gains[row]}, but {left[row]} less is left"
        expect(lost[row] <= ROUNDING and (gains >= 0).all(), game, where, told)
        if tick == game.num_ticks:
            apart = difference(see(game, instance, state), see(game, instance, new_state))
            expect(apart is None, game, "a step after the end", f"changes what is seen: {apart}")
            expect(not gains.any(), game, "a step after the end", f"gains {gains[gains != 0]}")
            break
        check_illegal(game, instance, state, action, (new_state, gains), where)
        state = new_state
        played.states.append(state)
        played.seen.append(see(game, instance, state))
        played.actions.append(action)
        played.gains.append(gains)
    return played


def draw(game: AnyGame, instance: Any, state: Any, rng: np.random.Generator) -> npt.NDArray[Any]:
    """Draw an action for every agent; discrete actions are mostly legal."""
    space = game.action_space()
    num_rows = len(game.done(instance, state))
    if game.num_actions is None:
        low, high = (getattr(space, bound) for bound in ("low", "high"))
        velocity: npt.NDArray[Any] = rng.uniform(low, high, (num_rows, game.num_agents, *low.shape)).astype(space.dtype)
        return velocity
    mask = call(game, "action_mask", instance, state)
    weights = rng.random(mask.shape)
    legal = np.argmax(weights * mask, axis=-1)
    return np.asarray(np.where(rng.random(legal.shape) < UNMASKED, np.argmax(weights, axis=-1), legal))


def check_seen(game: AnyGame, instance: Any, state: Any, where: str) -> None:
    """Check masks, observations and global states against their types and spaces."""
    seen, whole = call(game, "observe", instance, state), call(game, "global_state", instance, state)
    num_rows = len(whole)
    described = game.observation_space().spaces
    expect(seen.keys() == described.keys(), game, where, f"observes {[*seen]}, expected {[*described]}")
    for key, values in seen.items():
        space = batch_space(batch_space(described[key], game.num_agents), num_rows)
        inside = values.dtype == space.dtype and values in space
        expect(inside, game, where, f"observation {key!r}, {values.dtype} {values.shape}, is outside {space}")
    states = batch_space(game.state_space(), num_rows)
    expect(whole.dtype == np.float32 and whole in states, game, where, f"global_state is outside {states}")
    if game.num_actions is None:
        return
    mask = call(game, "action_mask", instance, state)
    form = (num_rows, game.num_agents, game.num_actions)
    found = f"action_mask is {mask.dtype} {mask.shape}, expected bool {form}"
    expect(mask.dtype == np.bool_ and mask.shape == form, game, where, found)
    expect(mask[..., 0].all(), game, where, f"action 0 is illegal at (row, agent) {np.argwhere(~mask[..., 0])[:5]}")
    same = np.array_equal(seen.get("action_mask", mask), mask)
    expect(same, game, where, "the observation's action_mask differs from action_mask()")


def check_illegal(
    game: AnyGame, instance: Any, state: Any, action: npt.NDArray[Any], result: tuple[Any, Any], where: str
) -> None:
    """Check that illegal actions have the effect of 0."""
    if game.num_actions is None:
        return
    legal = np.take_along_axis(game.action_mask(instance, state), action[..., None], axis=-1)[..., 0]
    apart = difference(result, game.step(instance, state, np.where(legal, action, 0)))
    expect(apart is None, game, where, f"an illegal action differs from 0: {apart}")


def check_replay(game: AnyGame, instance: Any, played: PlayedGame) -> None:
    """Check the gains of whole games, and of their beginnings, against the independent scorer."""
    for length in sorted({1, game.num_ticks // 2 or 1, game.num_ticks}):
        expected = call(game, "replay", instance, np.stack(played.actions[:length], axis=1))
        found = sum(played.gains[:length], np.zeros_like(expected))
        apart = difference(found, expected, ROUNDING)
        expect(apart is None, game, f"replay of {length} ticks", f"differs from the gains of step: {apart}")


def check_rewards(game: AnyGame, played: PlayedGame) -> None:
    """Check that `cooperation` redistributes rewards between agents without changing their sum."""
    gains = sum(played.gains, np.zeros_like(played.gains[0]))
    for cooperation in (0.0, 0.5, 1.0):
        rewards = dataclasses.replace(game, cooperation=cooperation).rewards(gains)  # type: ignore[type-var]
        apart = difference(rewards.sum(axis=1), gains.sum(axis=1), ROUNDING)
        expect(apart is None, game, f"rewards, cooperation {cooperation}", f"the sum changes: {apart}")
        wanted = (1 - cooperation) * gains + cooperation * gains.sum(axis=1, keepdims=True) / game.num_agents
        apart = difference(rewards, wanted, ROUNDING)
        expect(apart is None, game, f"rewards, cooperation {cooperation}", f"not (1 - c) own + c mean: {apart}")


def check_exchangeable(game: AnyGame, instance: Any, played: PlayedGame, order: npt.NDArray[np.int64]) -> None:
    """Check that permuting agents and actions permutes observations and gains."""
    permuted = call(game, "permute", instance, order)
    state = game.initial(permuted)
    for tick, expected in enumerate(played.seen):
        where = f"tick {tick}, agents in the order {order}"
        apart = difference(see(game, permuted, state), {key: value[:, order] for key, value in expected.items()})
        expect(apart is None, game, where, f"the agents are not exchangeable in what they see: {apart}")
        if tick < game.num_ticks:
            state, gains = game.step(permuted, state, played.actions[tick][:, order])
            apart = difference(gains, played.gains[tick][:, order])
            expect(apart is None, game, where, f"the agents are not exchangeable in what they gain: {apart}")


def check_rows_are_independent(game: AnyGame, instance: Any, played: PlayedGame) -> None:
    """Check that rows at different ticks, reordered or alone, give the same results as in lockstep."""
    ticks = sorted({0, game.num_ticks // 2, game.num_ticks - 1})
    num_rows = len(played.gains[0])
    everything = concatenate([instance] * len(ticks)), concatenate([played.states[tick] for tick in ticks])
    actions = np.concatenate([played.actions[tick] for tick in ticks])
    seen = {key: np.concatenate([played.seen[tick + 1][key] for tick in ticks]) for key in played.seen[0]}
    gains = np.concatenate([played.gains[tick] for tick in ticks])
    backwards = np.arange(len(actions))[::-1]
    for rows in (backwards, *(np.array([row]) for row in backwards[:: max(1, num_rows // 8)])):
        some, state = (select(batch, rows) for batch in everything)
        new_state, found = game.step(some, state, actions[rows])
        result = see(game, some, new_state), found
        apart = difference(result, ({key: value[rows] for key, value in seen.items()}, gains[rows]))
        where = f"rows {rows[:3]}... of ticks {ticks}, {len(rows)} at once"
        expect(apart is None, game, where, f"step depends on the other rows or their order: {apart}")


def check_backends_agree(game: AnyGame, instance: Any, played: PlayedGame, device: str | None) -> None:
    """Replay the games with torch, and compare observations, masks, global states and gains."""
    move = converter("torch", device)
    moved = to_backend(instance, "torch", device)
    state = call(game, "initial", moved)
    for tick, expected in enumerate(played.seen):
        where = f"tick {tick}"
        apart = difference(see(game, moved, state), expected, TOLERANCE)
        expect(apart is None, game, where, f"torch and NumPy differ in what is seen: {apart}")
        whole = game.global_state(moved, state), game.global_state(instance, played.states[tick])
        apart = difference(*whole, TOLERANCE)
        expect(apart is None, game, where, f"torch and NumPy differ in global_state: {apart}")
        if tick < game.num_ticks:
            state, gains = call(game, "step", moved, state, move(played.actions[tick]))
            apart = difference(gains, played.gains[tick], ROUNDING)
            expect(apart is None, game, where, f"torch and NumPy differ in the gains: {apart}")
    both = (call(game, "done", *pair) for pair in ((moved, state), (instance, played.states[-1])))
    apart = difference(*both)
    expect(apart is None, game, "done", f"torch and NumPy differ: {apart}")
    actions = move(np.stack(played.actions, axis=1))
    expected_gains = to_numpy(game.replay(moved, actions))
    apart = difference(expected_gains, sum(played.gains, np.zeros_like(expected_gains)), ROUNDING)
    expect(apart is None, game, "replay", f"torch and NumPy differ: {apart}")
