"""The best layouts looked at closer: played by the event engine, their settings searched."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from commsim.cost.profile import Profile
from commsim.planning.engine import Engine
from commsim.planning.space import Space
from commsim.planning.survey import Question, play, tune
from commsim.planning.tuning import Tuned
from commsim.units import Seconds
from commsim.workload.layout import Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """What is known of layouts that were looked at closer: s as played, settings."""

    played: Mapping[Layout, Seconds]
    tuned: Mapping[Layout, Tuned]

    def duration(self, layout: Layout, before: Seconds) -> Seconds:
        """s of its step, which the formula gives as `before`: as played, if it was, less the share
        that NCCL's settings save."""
        took = self.played.get(layout, before)
        best = self.tuned.get(layout)
        return took if best is None else took * best.duration / before


def look(
    spaces: Sequence[Space], best: Sequence[Layout], profile: Profile, engine: Engine,
    simulate: int, tuned: int,
) -> Looked:  # fmt: skip
    """The first `simulate` layouts played, the first `tuned` tuned."""

    def each(function: Callable[[Question, Sequence[Layout]], Sequence[Any]], most: int) -> Any:
        found: dict[Layout, Any] = {}
        for space in spaces:
            mine = [one for one in best[:most] if one.framework == space.framework]
            tasks = [[one] for one in mine]
            results = engine.run(function, Question.of(space, profile), tasks, None)
            found |= {layout: answers[0] for layout, answers in zip(mine, results, strict=True)}
        return found

    return Looked(played=each(play, simulate), tuned=each(tune, tuned))
