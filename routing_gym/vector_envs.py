"""Many routing instances side by side as one Gymnasium vector environment."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from routing_gym.arrays import Array
from routing_gym.env_arguments import Generator, resolve_problem
from routing_gym.episodes import Episodes, OnIllegal, Reward, Snapshot
from routing_gym.lanes import LaneVectorEnv
from routing_gym.problem import AnyProblem
from routing_gym.problems.checks import check_integer


class RoutingVectorEnv(LaneVectorEnv):
    """Many instances of one routing problem at once; the native form of `RoutingEnv`, which see.

    `gym.make_vec("routing/TSP-50", num_envs=1024)`. Lane i of `reset(seed=s)` plays the same instances as
    `gym.make(...).reset(seed=s + i)`, episode after episode. What `reset` and `step` return has the layout
    of Gymnasium's `SyncVectorEnv`, `final_obs` and `final_info` included; rewards are float64.

    ## Reset options

    - `{"instance": instance}`: play these `num_envs` instances, this time; lanes that start anew by
      themselves draw random ones.
    - `{"reset_mask": mask}`: begin an episode in the lanes that bool (`num_envs`,) marks, only.

    Args:
        problem: Name of a problem, or a `Problem`.
        num_nodes: As `RoutingEnv`'s; only with a name.
        num_envs: Number of lanes.
        autoreset_mode: "NextStep", "SameStep" or "Disabled", or a `gymnasium.vector.AutoresetMode`; the
            strings keep `spec.to_json()` working. NextStep ignores the action of a lane that starts anew.
        backend: "numpy" or "torch"; what `reset` and `step` return are arrays or tensors. Actions may be either.
        device: For torch, such as "cuda".
        copy: Without it, what is returned may share memory with the environment and change with the next
            step, and must not be written to; saves one copy of the observations per step.
        generator: Replaces `Problem.generate`: called per lane as `generator(rng, 1)`, returns one instance.
        reward: "dense" or "sparse".
        on_illegal: "terminate" or "raise".
        render_mode: None, "rgb_array" or "ansi" (text).
        **settings: The problem's own, such as `capacity`; only with a name.

    Raises:
        TypeError: An unknown keyword, `num_nodes` missing, or given although `problem` is a `Problem`.
        ValueError: An argument has an invalid value.
        ImportError: torch is missing for `backend="torch"`.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array", "ansi"], "render_fps": 4}  # noqa: RUF012
    _episodes: Episodes

    def __init__(
        self,
        problem: str | AnyProblem = "TSP",
        num_nodes: int | None = None,
        num_envs: int = 1,
        *,
        autoreset_mode: str | AutoresetMode = "NextStep",
        backend: str = "numpy",
        device: str | None = None,
        copy: bool = True,
        generator: Generator | None = None,
        reward: Reward = "dense",
        on_illegal: OnIllegal = "terminate",
        render_mode: str | None = None,
        **settings: Any,
    ) -> None:
        self.problem = resolve_problem(type(self), problem, num_nodes, settings)
        self.on_illegal = on_illegal
        shape = (check_integer("num_envs", num_envs, 1),)
        super().__init__(
            Episodes(self.problem, shape, reward, on_illegal, backend, device),
            self.problem.observation_space(),
            spaces.Discrete(self.problem.num_actions),
            autoreset_mode,
            copy,
            generator,
            render_mode,
        )

    def action_masks(self) -> Array:
        """Return the legal actions, bool (B, A), as sb3-contrib asks for them."""
        self._episodes.require_start("action_masks()")
        return self._episodes.copy(self._episodes.mask) if self.copy else self._episodes.mask

    @property
    def tour(self) -> list[npt.NDArray[np.int64]]:
        """Each lane's actions of the episode so far, as `RoutingEnv.tour`."""
        self._episodes.require_start("tour")
        return self._episodes.tours()

    def get_state(self) -> Snapshot:
        """Copy everything that decides what follows, the random generators included. For search."""
        return self._episodes.save(self._generators)

    def set_state(self, snapshot: Snapshot) -> None:
        """Go back to what `get_state` copied, in this or another environment of the same problem and size.

        Raises:
            TypeError: Not from `get_state`.
            ValueError: Of another problem or number of lanes.
        """
        self._episodes.load(snapshot, self.np_random)
