"""Buffers in rotation: each run of an operation finds other ones than those before it.

Without it small buffers would stay in a GPU's L2, and be faster than those of a real program.
"""

from __future__ import annotations

from typing import Any

from commsim.errors import MeasureError
from commsim.measure.device import Device
from commsim.measure.layout import Layout
from commsim.units import Bytes, format_size

ALIGNMENT = 256  # what cudaMalloc gives, and what NCCL wants for its widest loads
SHARE = 0.8  # of the free memory that buffers may take
Slot = tuple[Any, Any]


def aligned(nbytes: Bytes) -> Bytes:
    """Bytes up to the next multiple of ALIGNMENT."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def rotation(need: Bytes, rotate: Bytes, most: int) -> tuple[int, Bytes]:
    """How many buffers of `need` bytes, and how far apart: evenly over `rotate` bytes, one at
    least, `most` at most."""
    slots = max(1, min(most, rotate // need)) if need else 1
    return slots, max(need, rotate // slots // ALIGNMENT * ALIGNMENT if need else 0)


def slots(
    device: Device,
    layout: Layout,
    dtype: str,
    itemsize: Bytes,
    *,
    in_place: bool,
    rotate: Bytes,
    most: int,
    sharers: int,
) -> list[Slot]:
    """(send, receive) for each run, in turn; None where the rank has none. Raises MeasureError."""
    one = in_place or not (layout.send and layout.receive)
    sizes = (layout.send * itemsize, layout.receive * itemsize)
    need = aligned(max(sizes)) if one else aligned(sizes[0]) + aligned(sizes[1])
    count, apart = rotation(need, rotate, most)
    if count * apart * sharers > SHARE * device.free:
        raise MeasureError(
            f"expected buffers of {format_size(int(SHARE * device.free))} at most in each machine,"
            f" got {sharers} ranks x {count} x {format_size(apart)}; lower -e or --rotate"
        )
    raw = device.raw(count * apart)
    found = []
    for i in range(count):
        piece = raw[i * apart : i * apart + need]
        if in_place and layout.inside is not None:
            found.append(_inside(device, piece, layout, dtype, itemsize))
        else:
            send = _typed(device, piece, 0, sizes[0], dtype)
            after = aligned(sizes[0])
            found.append((send, _typed(device, piece, after, sizes[1], dtype)))
    return found


def _inside(device: Device, piece: Any, layout: Layout, dtype: str, itemsize: Bytes) -> Slot:
    """The smaller buffer as a part of the larger."""
    large = max(layout.send, layout.receive) * itemsize
    small = min(layout.send, layout.receive) * itemsize
    whole = _typed(device, piece, 0, large, dtype)
    part = _typed(device, piece, (layout.inside or 0) * itemsize, small, dtype)
    if layout.send == layout.receive:
        return whole, whole
    return (whole, part) if layout.send > layout.receive else (part, whole)


def _typed(device: Device, piece: Any, start: Bytes, nbytes: Bytes, dtype: str) -> Any:
    return device.typed(piece[start : start + nbytes], dtype) if nbytes else None
