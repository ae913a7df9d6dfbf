"""Single Gymnasium environment of every routing problem; `vector.py` has the vectorised environment."""

from __future__ import annotations

import sys
from itertools import count
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import logger, spaces
from gymnasium.error import ResetNeeded

from routing_gym import render
from routing_gym.envs.arguments import (
    Generator,
    check_generator,
    check_options,
    check_render_mode,
    draw_instances,
    resolve_problem,
)
from routing_gym.envs.episodes import Episodes, OnIllegal, Reward, Snapshot
from routing_gym.envs.lanes import NO_LANES, NO_MODE, Info, Observation
from routing_gym.problem import AnyProblem
from routing_gym.render.figure import WINDOW

NUMBERS = count(1)  # of windows: each environment has its own, which its copies share


class RoutingEnv(gym.Env[Observation, np.int64]):
    """Environment of one routing problem, with one instance per episode. Each action is the node to visit next.

    ## Ids

    `routing/{TSP,CVRP,SDVRP,OP,PCTSP,SPCTSP,PDP,MTSP,TSPFE,ATSP}-{10,20,50,100,200,500,1000}`, those of the 255
    variants of the VRP family, such as `OVRP` and `OVRPBLTW`, and `routing/TSP` etc. with `num_nodes=`: the number of
    cities for TSP, TSPFE and ATSP, of customers (without the depot) for the others.

    ## Action space

    `Discrete(A)` over the A nodes. TSP, TSPFE, ATSP: cities 0 to n-1. Others: 0 is the depot, 1 to n the customers; VRP
    with MD or HF: the depots, then the customers. The class of each problem (`routing_gym.TSP` etc.) documents which
    nodes are legal and when an episode ends. The mask is in `obs["action_mask"]` and `info["action_mask"]` (int8), and
    `action_masks()` returns it as bool. 1 and True mean legal; at least one action is legal at every step.

    ## Observation space

    A `Dict` of the following. The value of a depot is 0 unless stated otherwise.

    | key | space | problems |
    |---|---|---|
    | `coords` | Box(0, 1, (A, 2), float32) | all but ATSP |
    | `distances` | Box(0, max, (A, A), float32) | ATSP; with `matrices` all |
    | `durations` | Box(0, max, (A, A), float32) | with `matrices` those with times |
    | `action_mask` | MultiBinary(A) | all |
    | `current_node` | Discrete(A) | all |
    | `first_node` | Discrete(A) | TSP, TSPFE, ATSP |
    | `partner` (A,) | Box(0, A - 1, int64), the other end of a fixed edge, the city itself for none | TSPFE |
    | `demand` (A,), `free_capacity` (1,) | Box(0, 1, float32), shares of the capacity | CVRP, SDVRP, VRP |
    | `remaining_demand` (A,) | Box(0, 1, float32), shares of the capacity | SDVRP |
    | `prize` (A,) | Box(0, max, float32); SPCTSP: the expected prize | OP, PCTSP, SPCTSP |
    | `penalty` (A,) | Box(0, max, float32) | PCTSP, SPCTSP, VRP with PC |
    | `remaining_prize` (1,) | Box(0, max, float32) | PCTSP, SPCTSP |
    | `pickup` (A,) | Box(0, A - 1, int64), node where its goods are picked up, 0 for none | PDP, VRP with PD |
    | `equal_share` (1,) | Box(0, 1, float32), 1 / number of salesmen | MTSP |
    | `salesmen_left` (1,) | Box(0, 1, float32), share of them; the one on tour counts | MTSP |
    | `current_length`, `longest_length` (1,) | Box(0, max, float32) | MTSP |
    | `remaining_length` (1,) | Box(0, max, float32) | OP, VRP with L |
    | `open_routes` (1,) | Box(0, 1, float32): always 1 | VRP with O |
    | `backhaul` (A,) | Box(0, 1, float32): 0 or 1 | VRP with B or MB |
    | `mixed_backhauls` (1,) | Box(0, 1, float32): always 1 | VRP with MB |
    | `free_for_pickups` (1,) | Box(0, 1, float32), share of the capacity | VRP with MB |
    | `is_depot` (A,) | Box(0, 1, float32): 0 or 1 | VRP with MD or HF |
    | `start_depot` | Discrete(A), where the route began | VRP with MD or HF |
    | `vehicle_capacity` (A,) | Box(0, max, float32), of a depot's vehicles, in capacities | VRP with HF |
    | `fixed_cost`, `cost_per_length` (A,) | Box(0, max, float32), of a depot's vehicles | VRP with HF |
    | `scarcity` (1,) | Box(0, 1, float32), 1 / (1 + number of vehicles left) | VRP with HF |
    | `ready_time`, `due_time`, `service_time` (A,), `current_time` (1,) | Box(0, max, float32) | VRP with TW |

    ## Rewards

    Minus the cost of the step ("dense"), or minus the cost of the whole tour on its last step ("sparse").
    The cost is the length of the tour; OP: minus the prizes; PCTSP, SPCTSP, VRP with PC: plus the penalties of the
    unvisited nodes, all charged on the last step; VRP with HF: lengths times the vehicle's cost per length, plus a
    fixed cost per route; MTSP: the length of the longest route.

    ## Starting state

    A random instance (see `generate` of the problem), at the depot, or before the first city where there is none.

    ## Episode end

    `terminated` is True once the tour is complete; `truncated` is never True. An illegal action ends the episode too:
    the state does not change, `info["illegal_action"]` is True, and the reward brings the episode's return to
    -(1 + b) (1 + l). Here b is an upper bound on the cost of any legal tour (OP: 0), and l the share of the task
    that was left (of customers, SDVRP: of demand, OP: of prizes). This return is below that of every legal
    tour, and increases with the progress. With `on_illegal="raise"`, the action raises InvalidAction instead.

    ## Info

    On reset and step: `action_mask`, `illegal_action` (bool), `cost` (float, of the episode so far).

    ## Reset options

    `options={"instance": instance}`: use this one-row instance of the problem's instance class for this reset.

    Args:
        problem: Name of a problem, or a `Problem`.
        num_nodes: Number of cities, or of customers; see Ids. Only with a name.
        generator: Function that replaces `Problem.generate`: called as `generator(rng, 1)`, returns one instance.
        reward: "dense" or "sparse".
        on_illegal: "terminate" or "raise".
        render_mode: None, "human", "rgb_array" or "ansi" (text).
        **settings: Settings of the problem, such as `capacity` and `matrices`; only with a name.

    Attributes:
        problem: The `Problem` of the instances.

    Raises:
        TypeError: A keyword is unknown, or `num_nodes` is missing, or given although `problem` is a `Problem`.
        ValueError: An argument has an invalid value.
    """

    metadata: dict[str, Any] = {"render_modes": ["human", "rgb_array", "ansi"], "render_fps": 4}  # noqa: RUF012

    def __init__(
        self,
        problem: str | AnyProblem = "TSP",
        num_nodes: int | None = None,
        *,
        generator: Generator | None = None,
        reward: Reward = "dense",
        on_illegal: OnIllegal = "terminate",
        render_mode: str | None = None,
        **settings: Any,
    ) -> None:
        self.problem = resolve_problem(type(self), problem, num_nodes, settings)
        self.render_mode = check_render_mode(self, render_mode)
        self.generator = check_generator(generator)
        self.action_space = spaces.Discrete(self.problem.num_actions)
        self.observation_space = self.problem.observation_space()
        self._episodes = Episodes(self.problem, (), reward, on_illegal)
        self._window = f"{WINDOW} {next(NUMBERS)}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.problem})"

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, Info]:
        """Start an episode; see `gymnasium.Env.reset` and "Reset options" above.

        Raises:
            TypeError: The instance is not of the problem's instance class.
            ValueError: An option is unknown, or the instance is invalid.
        """
        instance = check_options(options, self.problem, 1, ["instance"]).get("instance")
        super().reset(seed=seed)
        if instance is None:
            instance = draw_instances(self.problem, [self.np_random], self.generator)
        self._episodes.start(instance)
        return self._observe()

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, Info]:
        """Visit a node.

        Raises:
            InvalidAction: The action is not a single integer, not a node, or illegal with `on_illegal="raise"`.
            ResetNeeded: Before the first reset, or after the episode's end.
        """
        if self._episodes.started and self._episodes.finished[0]:
            raise ResetNeeded("the episode has ended; call reset() before step()")
        reward = self._episodes.step(action, NO_LANES)
        observation, info = self._observe()
        return observation, float(reward[0]), bool(self._episodes.finished[0]), False, info

    def _observe(self) -> tuple[Observation, Info]:
        self._episodes.refresh_mask()
        if self.render_mode == "human":
            self.render()
        observation = {key: value[0] for key, value in self._episodes.observe(copy=True).items()}
        info = self._episodes.info(copy=True)
        return observation, {
            "action_mask": info["action_mask"][0],
            "illegal_action": bool(info["illegal_action"][0]),
            "cost": float(info["cost"][0]),
        }

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """Return the mask of the legal actions, bool (A,), in the form that sb3-contrib expects."""
        self._episodes.require_start("action_masks()")
        return np.asarray(self._episodes.mask[0].copy())

    @property
    def instance(self) -> Any:
        """A copy of the instance: the problem's instance class with one row."""
        self._episodes.require_start("instance")
        return self._episodes.own(self._episodes.instance)

    @property
    def state(self) -> Any:
        """A copy of the state: the problem's state class with one row."""
        self._episodes.require_start("state")
        return self._episodes.own(self._episodes.state)

    @property
    def tour(self) -> npt.NDArray[np.int64]:
        """The actions of the episode so far, without an illegal one; valid after the end, until `reset`."""
        self._episodes.require_start("tour")
        return self._episodes.tours()[0]

    def get_state(self) -> Snapshot:
        """Return a copy of the complete state, the random number generator included, for search."""
        return self._episodes.save([self.np_random])

    def set_state(self, snapshot: Snapshot) -> None:
        """Restore the state that `get_state` returned, in this or another environment of the same problem.

        Raises:
            TypeError: The snapshot is not from `get_state`.
            ValueError: The snapshot belongs to another problem.
        """
        self._episodes.load(snapshot, [self.np_random])

    def render(self) -> Any:
        """Draw the instance and the tour so far.

        Returns:
            uint8 (height, width, 3) for "rgb_array", text for "ansi", None for "human".

        Raises:
            ImportError: matplotlib is missing ("human" and "rgb_array").
            ResetNeeded: Before the first reset.
        """
        if self.render_mode is None:
            logger.warn(NO_MODE)
            return None
        if self.render_mode != "human":
            return self._episodes.render(self.render_mode)[0]
        self._episodes.require_start("render()")
        render.show(self.problem, self.instance, self.tour, float(self._episodes.cost[0]), self._window)
        return None

    def close(self) -> None:
        """Close the window of "human" rendering, if there is one."""
        pyplot = sys.modules.get("matplotlib.pyplot")
        if self.render_mode == "human" and pyplot is not None:
            pyplot.close(self._window)
