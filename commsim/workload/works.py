"""What a pipeline schedule is: for every stage the works it does, in order. No time in it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from commsim.errors import ScheduleError

KINDS = ("F", "B", "W", "BW")
ROUTES = ("loop", "v", "both")


class Work(NamedTuple):
    """What a stage does at one go with one micro-batch in one of its model chunks.

    kind: "F" forward; "B" backward for the input's gradient, which the stage before waits for;
    "W" backward for the weights' gradients, which nobody waits for; "BW" both in one.
    joined: it runs together with the work before it, kernels and transfers interleaved: both begin
    when the inputs of both are there, and end when the time of both has passed.
    """

    kind: str
    chunk: int
    micro_batch: int
    joined: bool = False


Order = tuple[tuple[Work, ...], ...]  # per stage


class Pipeline(ABC):
    """One way to order the forwards and backwards of all micro-batches on every stage.

    names: what frameworks call it. route: how a micro-batch travels through `chunks` parts of the
    model on each of p stages: "loop": stage 0 to p - 1, then the next chunk from stage 0 again;
    "v": down through chunk 0, back up through chunk 1; "both": half of the micro-batches down
    through chunk 0, the others up through chunk 1, which holds the same layers in reverse.
    splits: whether it takes backward apart, so that s of both parts must be known.
    """

    __slots__ = ()
    names: ClassVar[tuple[str, ...]]
    splits: ClassVar[bool] = False
    route: str = "loop"

    @abstractmethod
    def works(self, stage: int, stages: int, micro_batches: int, chunks: int) -> Sequence[Work]:
        """What one stage does, in order.

        Raises ScheduleError where the schedule does not exist for such numbers.
        """

    def period(self, stages: int) -> int:
        """Micro-batches after which the order repeats itself in mid-step; 0: never."""
        return stages


@dataclass(frozen=True, slots=True, kw_only=True)
class Table(Pipeline):
    """A schedule of one's own: the works of every stage, written out."""

    names: ClassVar[tuple[str, ...]] = ("table",)
    splits: ClassVar[bool] = True
    order: Order
    route: str = "loop"

    def works(self, stage: int, stages: int, micro_batches: int, chunks: int) -> Sequence[Work]:
        """The stage's line of the table."""
        if stages != len(self.order):
            raise ScheduleError(
                f"table: expected {len(self.order)} stages, one a line, got {stages}"
            )
        return self.order[stage]

    def period(self, stages: int) -> int:
        """0: a table need not repeat itself."""
        return 0


def turns(
    stages: int, micro_batches: int, chunks: int, backward: bool = False
) -> Iterator[tuple[int, int]]:
    """(chunk, micro-batch) as a stage takes them on where it holds several chunks: a group of
    micro-batches through one chunk, then the same group through the next.

    Groups of as many micro-batches as there are stages (Narayanan et al., "Efficient Large-Scale
    Language Model Training on GPU Clusters Using Megatron-LM", SC'21, section 2.2,
    doi:10.1145/3458817.3476209); what is left over goes to all groups alike, as torch has it, or
    where that cannot be, and Megatron and torch refuse, to the first.
    """
    first = 0
    for size in groups(stages, micro_batches):
        for chunk in range(chunks):
            for micro_batch in range(first, first + size):
                yield (chunks - 1 - chunk if backward else chunk), micro_batch
        first += size


def groups(stages: int, micro_batches: int) -> list[int]:
    """Sizes of the groups, in order."""
    count = max(1, micro_batches // stages)
    if micro_batches % count == 0:
        return [micro_batches // count] * count
    return [micro_batches - stages * (count - 1)] + [stages] * (count - 1)


def warm_up(stage: int, stages: int, micro_batches: int, chunks: int) -> int:
    """Forwards that a stage does before its first pair of a forward and a backward, so that the
    first gradient meets it just then (Megatron's and torch's rule)."""
    after = stages - stage - 1
    group = groups(stages, micro_batches)[0]
    wanted = after if chunks == 1 else 2 * after + (chunks - 1) * group
    return min(wanted, micro_batches * chunks)
