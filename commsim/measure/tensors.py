"""What the devices that hold torch tensors share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from commsim.errors import MeasureError
from commsim.measure.device import WORDS


def words(buffer: Any) -> Any:
    """The same memory as whole numbers of the elements' size."""
    return buffer.view(getattr(torch, WORDS[buffer.element_size()]))


def encode(values: npt.NDArray[Any], dtype: str) -> Any:
    """These values as elements of `dtype`, as words, on the CPU."""
    exact = torch.from_numpy(np.ascontiguousarray(values, np.float64))
    if dtype.startswith(("int", "uint")):
        exact = exact.to(torch.int64)
    return words(exact.to(getattr(torch, dtype)))


def values(buffer: Any) -> npt.NDArray[np.float64]:
    """A buffer's elements as numbers."""
    return np.asarray(buffer.to("cpu", torch.float64).numpy())


def matmul(m: int, n: int, k: int, dtype: str, device: str) -> Callable[[], None]:
    """What multiplies an m x k by a k x n matrix of `dtype` once, into the same place each time.

    fp8 is multiplied as frameworks do (torch._scaled_mm: scales of 1, the second matrix
    column-major, a bfloat16 result). Random values: constant ones draw less power on a GPU.
    """
    kind = getattr(torch, dtype, None)
    if kind is None or not (kind.is_floating_point or dtype == "int8"):
        raise MeasureError(f"--gemm: expected a floating dtype such as bfloat16, got {dtype}")
    random = torch.Generator(device).manual_seed(0)
    if dtype == "int8":
        a = torch.randint(-9, 9, (m, k), generator=random, device=device, dtype=kind)
        b = torch.randint(-9, 9, (k, n), generator=random, device=device, dtype=kind)
        product = torch.empty((m, n), device=device, dtype=torch.int32)

        def whole() -> None:
            torch._int_mm(a, b, out=product)

        return whole
    a, b = (
        torch.randn(shape, generator=random, device=device, dtype=torch.float32).to(kind)
        for shape in ((m, k), (k, n))
    )
    if dtype.startswith("float8"):
        one = torch.ones((), device=device)
        column_major = b.t().contiguous().t()

        def scaled() -> None:
            torch._scaled_mm(a, column_major, one, one, out_dtype=torch.bfloat16)

        return scaled
    out = torch.empty((m, n), device=device, dtype=kind)

    def multiply() -> None:
        torch.mm(a, b, out=out)

    return multiply
