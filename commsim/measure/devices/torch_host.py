"""Host memory as torch tensors: what Gloo works on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from commsim.errors import MeasureError
from commsim.measure import tensors
from commsim.measure.device import Device, Spans, Stopwatch
from commsim.measure.host import HostStopwatch, available, cache_bytes, in_a_thread, processor
from commsim.units import Bytes


class TorchHost(Device):
    kind = "cpu"
    clocked = True

    def raw(self, nbytes: Bytes) -> Any:
        return torch.zeros(nbytes, dtype=torch.uint8)

    def typed(self, raw: Any, dtype: str) -> Any:
        return raw.view(getattr(torch, dtype))

    def words(self, buffer: Any) -> Any:
        return tensors.words(buffer)

    def encode(self, values: npt.NDArray[Any], dtype: str) -> Any:
        return tensors.encode(values, dtype)

    def values(self, buffer: Any) -> npt.NDArray[np.float64]:
        return tensors.values(buffer)

    def stopwatch(self) -> Stopwatch:
        return HostStopwatch()

    def finish(self) -> None:
        pass

    def graph(self, work: Callable[[], None]) -> Callable[[], None]:
        raise MeasureError("--cudagraph: expected --backend nccl, got one on the CPU")

    def matmul(self, m: int, n: int, k: int, dtype: str) -> Callable[[], None]:
        return tensors.matmul(m, n, k, dtype, "cpu")

    def beside(
        self, work: Callable[[int], None], times: int, other: Callable[[], None], ratio: float
    ) -> tuple[Spans, Spans]:
        return in_a_thread(work, times, other)

    @property
    def cache(self) -> Bytes:
        return cache_bytes()

    @property
    def free(self) -> Bytes:
        return available()

    def facts(self) -> dict[str, object]:
        return {"device": processor(), "threads": torch.get_num_threads()}
