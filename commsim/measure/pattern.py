"""Known values for buffers, and how many elements of a result differ from them (#wrong).

A rank's buffer repeats a table of `PERIOD` values of its own; the period is a prime, so that a part
that is moved, repeated or missing shows. Reduced values stay so small that every dtype holds them
exactly, in whatever order they are added: only an average may differ by roundings.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from commsim.collectives.collective import REDUCTIONS
from commsim.measure.device import Device
from commsim.measure.layout import Piece

Values = npt.NDArray[np.int64]
PERIOD = 509
# The largest whole number up to which all are exact, also as a sum: 2^(mantissa bits + 1), or the
# largest value of the type. (IEEE 754-2019; OCP 8-bit floating point, revision 1.0.)
EXACT = {"bool": 1, "int8": 127, "uint8": 255, "float8_e4m3fn": 16, "float8_e5m2": 8,
         "bfloat16": 256, "float16": 2048}  # fmt: skip
ROUNDING = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24, "float64": 2.0**-53}


def tables(operation: str, n: int, dtype: str, reduce_op: str) -> Values:
    """What each of n ranks sends: n rows of PERIOD values."""
    random = np.random.default_rng(n)
    largest = min(EXACT.get(dtype, 1 << 20), 120)
    if operation not in REDUCTIONS or reduce_op in ("min", "max") or dtype == "bool":
        return random.integers(0, largest + 1, (n, PERIOD))
    if reduce_op == "prod":  # ones, and a two from up to three of the ranks
        factors = random.random((n, PERIOD)).argsort(axis=0) < random.integers(0, 4, PERIOD)
        return np.where(factors, 2, 1)
    limit = EXACT.get(dtype, 1 << 20)
    found = random.integers(0, max(1, min(100, limit // n)) + 1, (n, PERIOD))
    if n > limit:  # zeros but from as many ranks as the type can count
        found *= random.random((n, PERIOD)).argsort(axis=0) < limit
    return found


def reduced(values: Values, reduce_op: str) -> npt.NDArray[Any]:
    """The PERIOD values that a reduction of the rows gives; of `avg`, not rounded."""
    match reduce_op:
        case "prod":
            return np.asarray(values.prod(axis=0))
        case "min":
            return np.asarray(values.min(axis=0))
        case "max":
            return np.asarray(values.max(axis=0))
        case "avg":
            return np.asarray(values.sum(axis=0) / len(values))
    return np.asarray(values.sum(axis=0))


class Pattern:
    """The values of one collective in the memory of one device."""

    def __init__(
        self, device: Device, operation: str, n: int, dtype: str, reduce_op: str = "sum"
    ) -> None:
        self.device = device
        self.dtype = dtype
        self.values = tables(operation, n, dtype, reduce_op)
        self.reduced = reduced(self.values, reduce_op)
        exact = reduce_op != "avg" or operation not in REDUCTIONS
        self.tolerance = 0.0 if exact else n * ROUNDING.get(dtype, 0.0)

    def fill(self, buffer: Any, position: int) -> None:
        """What the rank at `position` sends."""
        table = self.device.encode(self.values[position], self.dtype)
        _repeat(self.device.words(buffer), table)

    def spoil(self, buffer: Any, pieces: tuple[Piece, ...]) -> None:
        """Where a result is to come: values that are wrong everywhere."""
        for piece in pieces:
            words = self.device.words(buffer)[piece.offset : piece.offset + piece.length]
            _repeat(words, ~self._table(piece))

    def wrong(self, buffer: Any, pieces: tuple[Piece, ...]) -> int:
        """Elements that are not what they must be."""
        return sum(self._wrong(buffer, piece) for piece in pieces)

    def _table(self, piece: Piece) -> Any:
        values = self.reduced if piece.source is None else self.values[piece.source]
        return self.device.encode(np.roll(values, -piece.start), self.dtype)

    def _wrong(self, buffer: Any, piece: Piece) -> int:
        found = buffer[piece.offset : piece.offset + piece.length]
        if not self.tolerance:
            return _different(self.device.words(found), self._table(piece))
        expected = np.resize(np.roll(self.reduced, -piece.start), piece.length)
        off = np.abs(self.device.values(found) - expected)
        return int((~(off <= self.tolerance * np.abs(expected))).sum())


def _repeat(words: Any, table: Any) -> None:
    whole = len(words) // PERIOD * PERIOD
    words[:whole].reshape(-1, PERIOD)[...] = table
    words[whole:] = table[: len(words) - whole]


def _different(words: Any, table: Any) -> int:
    whole = len(words) // PERIOD * PERIOD
    first = (words[:whole].reshape(-1, PERIOD) != table).sum()
    return int(first) + int((words[whole:] != table[: len(words) - whole]).sum())
