"""Host memory as torch tensors: what Gloo works on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from commsim.measure import tensors
from commsim.measure.host import Host, processor
from commsim.units import Bytes


class TorchHost(Host):
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

    def matmul(self, m: int, n: int, k: int, dtype: str) -> Callable[[], None]:
        return tensors.matmul(m, n, k, dtype, "cpu")

    def facts(self) -> dict[str, object]:
        return {"device": processor(), "threads": torch.get_num_threads()}
