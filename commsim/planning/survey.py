"""What workers do: which layouts fit and what they take at least, then what they take.

Tasks carry plain data and give plain data, so that they can run in this process, in another, or on
another machine, and their results can be kept in a file. All floats survive the journey bit by bit.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.metadata import version
from typing import Any, NamedTuple

from commsim.cost.profile import Profile
from commsim.planning import buckets
from commsim.planning.bound import Costs
from commsim.planning.space import Space, variants
from commsim.planning.tuning import Tuned
from commsim.planning.tuning import tune as tune_step
from commsim.units import Seconds
from commsim.workload.layout import Layout
from commsim.workload.memory import Memory, memory
from commsim.workload.simulated_step import simulate_step
from commsim.workload.step import predict_step, step_with
from commsim.workload.trust import tags_of

COMPONENTS = ("parameters", "gradients", "optimizer", "activations", "logits", "buffers")


class Surveyed(NamedTuple):
    """What is known of a layout at once. missing: what takes most of a memory that is too small;
    "" where it fits. needed: bytes on the worst GPU; bound: s that a step takes at least."""

    missing: str
    needed: float
    bound: Seconds


class Timed(NamedTuple):
    """The fastest variant of a layout (its place among `variants`) and its step, s; bucket: the
    elements of its buckets, where not the framework's own."""

    variant: int
    duration: Seconds
    bucket: float | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """Space and profile as bytes that a worker opens once; digest: the same for equal questions."""

    pickled: bytes
    digest: str

    @classmethod
    def of(cls, space: Space, profile: Profile) -> Question:
        """The question of a space under a profile."""
        fresh = replace(space, cluster=replace(space.cluster))  # without what it has cached
        asked = f"{version('commsim')}\n{fresh!r}\n{profile!r}"
        digest = hashlib.sha256(asked.encode()).hexdigest()
        return cls(pickle.dumps((fresh, profile)), digest)


@lru_cache(maxsize=4)
def _opened(question: Question) -> tuple[Space, Profile, Costs]:
    space, profile = pickle.loads(question.pickled)
    sample = Layout(framework=space.framework, dtype=space.dtype)
    values = profile.values(tags_of(space.cluster, sample))
    return space, profile, Costs(space.model, space.cluster, values)


def survey(question: Question, listed: Sequence[tuple[Layout, ...]]) -> list[list[Surveyed]]:
    """For every layout of every ladder whether it fits, and its bound where it does.

    A larger micro-batch never takes less: max over stages of static + micro-batch x in flight, and
    micro-batch x min(stages, micro-batches) does not fall. So the first that does not fit is the
    last one looked at, and its reason stands for those above.
    """
    space, _, costs = _opened(question)
    found = []
    for ladder in listed:
        row: list[Surveyed] = []
        for layout in ladder:
            took = memory(space.model, space.cluster, layout, brief=True)
            if not took.fits:
                worst = Surveyed(lacking(took), took.worst.needed, 0.0)
                row.extend([worst] * (len(ladder) - len(row)))
                break
            beside = next(variants(layout, space))
            row.append(Surveyed("", took.worst.needed, costs.bound(beside)))
        found.append(row)
    return found


def lacking(took: Memory) -> str:
    """The component that takes most of the worst GPU."""
    parts = took.worst.components
    return max(COMPONENTS, key=lambda name: parts[name])


def time(question: Question, listed: Sequence[Layout]) -> list[Timed]:
    """The fastest variant of every layout, with its best buckets; of equal ones the first."""
    space, profile, costs = _opened(question)
    found = []
    for layout in listed:
        best: Timed | None = None
        for i, variant in enumerate(variants(layout, space)):
            step = step_with(
                space.model,
                space.cluster,
                variant,
                costs.values,
                profile,
                made=costs.made(variant),
            )
            size = buckets.best(step)
            took = buckets.with_size(step, size).duration
            if best is None or took < best.duration:
                best = Timed(i, took, size)
        assert best is not None
        found.append(best)
    return found


def play(question: Question, listed: Sequence[Layout]) -> list[Seconds]:
    """The step of every layout, s, played task by task by the event engine; it knows the
    frameworks' own buckets alone, so what others save is the share that the formula says."""
    space, profile, _ = _opened(question)
    found = []
    for layout in listed:
        step = predict_step(space.model, space.cluster, layout, profile)
        share = buckets.with_size(step, buckets.best(step)).duration / step.duration
        found.append(share * simulate_step(space.model, space.cluster, layout, profile).duration)
    return found


def tune(question: Question, listed: Sequence[Layout]) -> list[Tuned]:
    """The step of every layout with its best settings of the library, and buckets."""
    space, profile, _ = _opened(question)
    found = []
    for layout in listed:
        step = predict_step(space.model, space.cluster, layout, profile)
        found.append(tune_step(step, buckets.best(step)))
    return found


READ: dict[Any, Callable[[Any], Any]] = {
    survey: lambda rows: [[Surveyed(*one) for one in row] for row in rows],
    time: lambda row: [Timed(*one) for one in row],
    play: list,
    tune: lambda row: [
        Tuned(took, saved, tuple((name, value) for name, value in variables), bucket)
        for took, saved, variables, bucket in row
    ],
}
"""From the plain lists of a file to the results of a function."""
