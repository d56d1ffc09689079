"""Host memory as numpy arrays: what MPI works on, without torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from commsim.collectives.collective import DTYPES
from commsim.errors import MeasureError
from commsim.measure.device import WORDS
from commsim.measure.host import Host, processor
from commsim.units import Bytes

OPAQUE = {"bfloat16": "uint16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8"}  # only moved


class NumpyHost(Host):
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

    def matmul(self, m: int, n: int, k: int, dtype: str) -> Callable[[], None]:
        if dtype not in ("float32", "float64"):
            raise MeasureError(f"--gemm: numpy multiplies float32 and float64, got {dtype}")
        a, b = np.ones((m, k), dtype), np.ones((k, n), dtype)
        out = np.empty((m, n), dtype)

        def multiply() -> None:
            np.matmul(a, b, out=out)

        return multiply

    def facts(self) -> dict[str, object]:
        return {"device": processor()}
