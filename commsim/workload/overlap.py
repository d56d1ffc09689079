"""What an overlap schedule is: the work of a training step on one rank, put on streams.

It says which collectives carry which gradients or parameters, after what, and on which stream;
`streams.play` says when, and what of it shows.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar

import commsim.workload.overlaps as here
from commsim.collectives.collective import DTYPES
from commsim.errors import ScheduleError, UnknownNameError
from commsim.units import Bytes, Seconds
from commsim.workload.streams import COMMUNICATION, COMPUTE, Task

Cost = Callable[[str, Bytes], Seconds]
"""s of an operation of so many bytes (as `Collective` counts them), on the group that does it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter as the framework registers it: its shape, and the dtype of its gradient."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"

    @property
    def numel(self) -> int:
        """Elements."""
        count = 1
        for length in self.shape:
            count *= length
        return count

    @property
    def nbytes(self) -> Bytes:
        """Bytes of the gradient."""
        return self.numel * DTYPES[self.dtype]


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One module: s of its forward and backward for a micro-batch, and its trained parameters.

    The gradients of all its parameters are there when its backward ends. activations: bytes of the
    whole sequence's activations that tensor parallelism gathers before it and reduces after it.
    """

    name: str
    forward: Seconds
    backward: Seconds
    parameters: tuple[Parameter, ...] = ()
    activations: Bytes = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step's pieces in the order of forward, how many micro-batches accumulate their gradients,
    and s of the optimizer."""

    pieces: tuple[Piece, ...]
    micro_batches: int = 1
    optimizer: Seconds = 0.0

    def __post_init__(self) -> None:
        if not self.pieces or self.micro_batches < 1:
            raise ScheduleError(
                f"step: expected 1 or more pieces and micro-batches, got {len(self.pieces)} and "
                f"{self.micro_batches}"
            )

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """All of them, in order of registration."""
        return tuple(p for piece in self.pieces for p in piece.parameters)


class Overlap(ABC):
    """One way to put a step's compute and communication on streams.

    names: what frameworks call it.
    """

    __slots__ = ()
    names: ClassVar[tuple[str, ...]]

    @abstractmethod
    def tasks(self, step: Step, cost: Cost) -> list[Task]:
        """The step's tasks in order of issue, for `streams.play`."""


@dataclass(slots=True)
class Line:
    """Tasks as they are issued; every method gives the new task's place."""

    cost: Cost
    tasks: list[Task] = field(default_factory=list)

    def compute(self, kind: str, name: str, duration: Seconds, after: Iterable[int] = ()) -> int:
        """A kernel on the compute stream."""
        return self.add(
            Task(name=name, kind=kind, stream=COMPUTE, duration=duration, after=tuple(after))
        )

    def collective(
        self,
        operation: str,
        name: str,
        nbytes: Bytes,
        after: Iterable[int] = (),
        covers: Iterable[Parameter] = (),
        stream: str = COMMUNICATION,
    ) -> int:
        """A collective of the step's group, as long as `cost` says."""
        return self.add(
            Task(
                name=name, kind=operation, stream=stream, duration=self.cost(operation, nbytes),
                after=tuple(after), nbytes=nbytes, covers=tuple(p.name for p in covers),
            )
        )  # fmt: skip

    def add(self, task: Task) -> int:
        """Any task."""
        self.tasks.append(task)
        return len(self.tasks) - 1

    def forward(self, step: Step) -> list[int]:
        """The forward of all pieces, nothing in between."""
        return [self.compute("forward", p.name, p.forward) for p in step.pieces]

    def backward(self, step: Step) -> dict[str, int]:
        """The backward of all pieces from the last one on; by piece, its task."""
        return {p.name: self.compute("backward", p.name, p.backward) for p in reversed(step.pieces)}

    def without_exchange(self, step: Step) -> None:
        """All micro-batches but the last: their gradients are only added up (no_sync)."""
        for _ in range(step.micro_batches - 1):
            self.forward(step)
            self.backward(step)

    def optimizer(self, step: Step, after: Iterable[int] = ()) -> int:
        """The update, once everything it needs is there."""
        return self.compute("optimizer", "optimizer", step.optimizer, after)


def overlap(name: str | Overlap) -> Overlap:
    """The overlap schedule of that name with its defaults; UnknownNameError names the known."""
    if isinstance(name, Overlap):
        return name
    known = _known()
    found = known.get(name.lower().replace("-", "_"))
    if found is None:
        raise UnknownNameError("overlap schedule", name, known)
    return found()


@lru_cache
def _known() -> dict[str, type[Overlap]]:
    found: dict[str, type[Overlap]] = {}
    for module in pkgutil.iter_modules(here.__path__):
        path = f"{here.__name__}.{module.name}"
        for value in vars(importlib.import_module(path)).values():
            if inspect.isclass(value) and issubclass(value, Overlap) and value.__module__ == path:
                found |= dict.fromkeys(value.names, value)
    return found
