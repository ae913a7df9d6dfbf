"""Worker of `train_throughput.py` for this repository: the training step of `am_reinforce.py`, or greedy decoding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import am_reinforce  # isort: skip  (first: it sets how threads wait, which is read when torch is loaded)

from timing import timing
from worker import Job, serve

from routing_agents.policies.attention.decoding import solve
from routing_agents.training.tuning import keep_freed_memory


def prepare(job: Job) -> tuple[Callable[[], object], dict[str, Any]]:
    """Build the function that a job times; "rollout" and "shared" train with the baseline of that name."""
    if job["keep_memory"]:
        keep_freed_memory()
    batch_size, greedy = job["batch_size"], job["task"] == "greedy"
    settings = am_reinforce.Args(
        env_id=f"routing/{job['problem']}",
        baseline="none" if greedy else job["task"],
        optimizer="adam",  # the paper's, and rl4co's
        precision=job["precision"],
        num_tours=job["num_starts"],
        batch_size=batch_size,
        baseline_size=batch_size,
        held_out=batch_size,
        device=job["device"],
    )
    trainer = am_reinforce.ReinforceTrainer(settings)
    trainer.baseline.end_epoch(trainer.model)  # ends the warm-up of the rollout baseline

    def decode() -> Any:
        return solve(trainer.model, trainer.problem, trainer.held_out, tours_at_once=batch_size)

    facts = {"num_steps": decode().actions.shape[1], "num_tours": trainer.baseline.num_tours}
    return (decode if greedy else trainer.update), facts


if __name__ == "__main__":
    serve(("torch", "numpy"), timing(prepare))
