"""Group-relative policy optimisation: weights go to the sampler, samples come back, then a step.

Each rank samples with a copy of the policy, so the trained weights are gathered first (all of a
module at a time; with LoRA only its adapters), then completions and rewards are gathered from all
ranks for the groups' advantages, then training goes on as usual.
Sources: Shao et al., "DeepSeekMath", arXiv:2402.03300, section 4.1; TRL's GRPOTrainer; Hu et al.,
"LoRA", arXiv:2106.09685.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

from commsim.units import Bytes, Seconds
from commsim.workload.overlap import Cost, Line, Overlap, Step
from commsim.workload.streams import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Grpo(Overlap):
    """sampling: s of generation; scoring: s of rewards and reference. completions: bytes of all
    ranks' token ids; rewards: of all ranks' rewards. sharded: parameters are gathered from shards;
    else every rank has them. training: how the step itself is done (None: no exchange of gradients,
    as on one rank)."""

    names: ClassVar[tuple[str, ...]] = ("grpo",)
    sampling: Seconds = 0.0
    scoring: Seconds = 0.0
    completions: Bytes = 0
    rewards: Bytes = 0
    sharded: bool = True
    training: Overlap | None = field(default=None)

    def tasks(self, step: Step, cost: Cost) -> list[Task]:
        """Weights, sampling, completions, scoring, rewards, training."""
        line = Line(cost)
        there: list[int] = []
        if self.sharded:
            for piece in step.pieces:
                nbytes = sum(p.nbytes for p in piece.parameters)
                if nbytes:
                    there.append(line.collective("all_gather", f"weights {piece.name}", nbytes))
        sampled = line.compute("sampling", "sampling", self.sampling, there)
        if self.completions:
            sampled = line.collective("all_gather", "completions", self.completions, (sampled,))
        scored = line.compute("scoring", "scoring", self.scoring, (sampled,))
        if self.rewards:
            scored = line.collective("all_gather", "rewards", self.rewards, (scored,))
        if self.training is None:
            line.forward(step)
            line.backward(step)
            line.optimizer(step)
            return line.tasks
        begin = len(line.tasks)
        for task in self.training.tasks(step, cost):
            after = tuple(i + begin for i in task.after)
            line.add(replace(task, after=(*after, scored)))
        return line.tasks
