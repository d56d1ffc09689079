"""#wrong: exactly the elements that were spoilt, wherever and however."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from commsim.measure.devices.numpy_host import NumpyHost
from commsim.measure.layout import Piece, layout
from commsim.measure.pattern import EXACT, PERIOD, Pattern, tables


def whole(length: int, source: int | None = None, start: int = 0) -> tuple[Piece, ...]:
    return (Piece(offset=0, length=length, source=source, start=start),)


def sent(pattern: Pattern, n: int, elements: int, dtype: str) -> list[Any]:
    host = NumpyHost()
    buffers = [host.typed(host.raw(elements * np.dtype(dtype).itemsize), dtype) for _ in range(n)]
    for position, buffer in enumerate(buffers):
        pattern.fill(buffer, position)
    return buffers


@pytest.mark.parametrize("dtype", ["int8", "uint8", "float16", "float32", "int64"])
@pytest.mark.parametrize("n", [2, 3, 300])
def test_sums_are_exact_in_any_order(dtype: str, n: int) -> None:
    pattern = Pattern(NumpyHost(), "all_reduce", n, dtype)
    buffers = sent(pattern, n, 1201, dtype)
    for order in (range(n), reversed(range(n))):
        total = np.zeros(1201, dtype)
        for i in order:
            total += buffers[i]  # rounds as the type does
        assert pattern.wrong(total, whole(1201)) == 0
    assert len(np.unique(total)) > 3


@pytest.mark.parametrize(("reduce_op", "how"), [("prod", np.multiply), ("min", np.minimum),
                                                ("max", np.maximum)])  # fmt: skip
def test_other_reductions(reduce_op: str, how: np.ufunc) -> None:
    pattern = Pattern(NumpyHost(), "all_reduce", 4, "int8", reduce_op)
    total = how.reduce(sent(pattern, 4, 700, "int8"))
    assert pattern.wrong(total, whole(700)) == 0
    assert len(np.unique(total)) > 1


def test_an_average_may_differ_by_roundings_only() -> None:
    pattern = Pattern(NumpyHost(), "all_reduce", 3, "float32", "avg")
    buffers = sent(pattern, 3, 600, "float32")
    third = np.float32(1 / 3)
    scaled = sum((b * third for b in buffers), np.zeros(600, np.float32))
    assert pattern.wrong(scaled, whole(600)) == 0
    scaled[17] *= np.float32(1.001)
    scaled[18] = np.nan
    assert pattern.wrong(scaled, whole(600)) == 2
    pattern.spoil(scaled, whole(600))
    assert pattern.wrong(scaled, whole(600)) == 600


def test_one_flipped_bit_is_one_wrong_element() -> None:
    pattern = Pattern(NumpyHost(), "broadcast", 2, "float32")
    _, buffer = sent(pattern, 2, 3 * PERIOD + 7, "float32")
    pieces = whole(len(buffer), source=1)
    assert pattern.wrong(buffer, pieces) == 0
    buffer.view(np.int32)[[5, PERIOD, len(buffer) - 1]] ^= 1
    assert pattern.wrong(buffer, pieces) == 3
    pattern.spoil(buffer, pieces)
    assert pattern.wrong(buffer, pieces) == len(buffer)


def test_parts_in_the_wrong_place_are_seen() -> None:
    n, elements = 4, 4 * 256
    pattern = Pattern(NumpyHost(), "all_gather", n, "int32")
    parts = sent(pattern, n, elements // n, "int32")
    pieces = layout("all_gather", n, 0, None, elements).pieces
    assert pattern.wrong(np.concatenate(parts), pieces) == 0
    swapped = np.concatenate([parts[1], parts[0], *parts[2:]])
    assert pattern.wrong(swapped, pieces) > elements / n  # most of two parts of 256
    late = np.concatenate([parts[0], np.roll(parts[1], 1), *parts[2:]])
    assert pattern.wrong(late, pieces) > 200


def test_a_part_of_a_buffer_begins_within_the_pattern() -> None:
    pattern = Pattern(NumpyHost(), "scatter", 3, "float64")
    root = sent(pattern, 3, 3 * 777, "float64")[0]
    assert pattern.wrong(root[777 : 2 * 777], layout("scatter", 3, 1, 0, 3 * 777).pieces) == 0


@pytest.mark.parametrize("dtype", EXACT)
def test_no_sum_is_beyond_what_the_type_counts(dtype: str) -> None:
    for n in (2, 8, 1024):
        values = tables("reduce_scatter", n, dtype, "sum")
        if dtype != "bool":
            assert values.sum(axis=0).max() <= EXACT[dtype]
        assert values.max() > 0
