"""Host memory as numpy arrays: what MPI works on, without torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from commsim.collectives.collective import DTYPES
from commsim.errors import MeasureError
from commsim.measure.device import WORDS, Device, Spans, Stopwatch
from commsim.measure.host import HostStopwatch, available, cache_bytes, in_a_thread, processor
from commsim.units import Bytes

OPAQUE = {"bfloat16": "uint16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8"}  # only moved


class NumpyHost(Device):
    kind = "cpu"
    clocked = True

    def raw(self, nbytes: Bytes) -> Any:
        return np.zeros(nbytes, np.uint8)

    def typed(self, raw: Any, dtype: str) -> Any:
        return raw.view(OPAQUE.get(dtype, dtype))

    def words(self, buffer: Any) -> Any:
        return buffer.view(WORDS[buffer.itemsize])

    def encode(self, values: npt.NDArray[Any], dtype: str) -> Any:
        return values.astype(OPAQUE.get(dtype, dtype)).view(WORDS[DTYPES[dtype]])

    def values(self, buffer: Any) -> npt.NDArray[np.float64]:
        return np.asarray(buffer, np.float64)

    def stopwatch(self) -> Stopwatch:
        return HostStopwatch()

    def finish(self) -> None:
        pass

    def graph(self, work: Callable[[], None]) -> Callable[[], None]:
        raise MeasureError("--cudagraph: expected --backend nccl, got one on the CPU")

    def matmul(self, m: int, n: int, k: int, dtype: str) -> Callable[[], None]:
        if dtype not in ("float32", "float64"):
            raise MeasureError(f"--gemm: numpy multiplies float32 and float64, got {dtype}")
        a, b = np.ones((m, k), dtype), np.ones((k, n), dtype)
        out = np.empty((m, n), dtype)

        def multiply() -> None:
            np.matmul(a, b, out=out)

        return multiply

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
        return {"device": processor()}
