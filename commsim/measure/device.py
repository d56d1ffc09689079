"""The contract of a device: where buffers lie, how time is told there, and what computes there.

One file each in `devices/`. Arrays (of numpy, or tensors of torch) are `Any` here: what is done
with them, slices, comparisons and sums, is written the same for both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from commsim.units import Bytes, Seconds

WORDS = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}
Spans = list[tuple[Seconds, Seconds]]


class Stopwatch(ABC):
    """Marks instants in the order in which a device works."""

    @abstractmethod
    def mark(self) -> None:
        """Notes the instant at which the device gets here."""

    @abstractmethod
    def read(self) -> list[Seconds]:
        """Every mark in s, once the device has got there; from then on there are none."""


class Device(ABC):
    """One rank's device. `clocked`: its stopwatches tell the time of time.monotonic."""

    kind: str
    clocked: bool

    @abstractmethod
    def raw(self, nbytes: Bytes) -> Any:
        """New memory as bytes."""

    @abstractmethod
    def typed(self, raw: Any, dtype: str) -> Any:
        """The same memory as elements of `dtype`."""

    @abstractmethod
    def words(self, buffer: Any) -> Any:
        """The same memory as whole numbers of the elements' size."""

    @abstractmethod
    def encode(self, values: npt.NDArray[Any], dtype: str) -> Any:
        """These values as elements of `dtype`, as words."""

    @abstractmethod
    def values(self, buffer: Any) -> npt.NDArray[np.float64]:
        """A buffer's elements as numbers."""

    @abstractmethod
    def stopwatch(self) -> Stopwatch:
        """A new one."""

    @abstractmethod
    def finish(self) -> None:
        """Returns when the device has done all it was given."""

    @abstractmethod
    def graph(self, work: Callable[[], None]) -> Callable[[], None]:
        """What replays `work` as a CUDA graph; MeasureError where there are none."""

    @abstractmethod
    def matmul(self, m: int, n: int, k: int, dtype: str) -> Callable[[], None]:
        """What multiplies an m x k by a k x n matrix of `dtype` once; MeasureError for others."""

    @abstractmethod
    def beside(
        self, work: Callable[[int], None], times: int, other: Callable[[], None], ratio: float
    ) -> tuple[Spans, Spans]:
        """Runs `work` `times` times and `other` all the while; when each run began and ended.

        ratio: how many of `other` take about as long as one `work`.
        """

    @property
    @abstractmethod
    def cache(self) -> Bytes:
        """Its last-level cache; 0: not known."""

    @property
    @abstractmethod
    def free(self) -> Bytes:
        """Memory that can be had."""

    @abstractmethod
    def facts(self) -> dict[str, object]:
        """What it is, for the record."""


def spans(marks: Sequence[Seconds]) -> Spans:
    """Beginnings and ends that were marked in turn."""
    return list(zip(marks[::2], marks[1::2], strict=True))
