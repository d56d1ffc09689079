"""How NCCL cuts what a connection carries: its buffer's slots, and slices.

Source: src/include/device.h, src/include/collectives.h (https://github.com/NVIDIA/nccl); figures
only, for buffers of the default size.
"""

from __future__ import annotations

from typing import Final

from commsim.units import KIB, Bytes

SLOTS: Final = 8
"""Slots of a connection's buffer, as many receives as are posted ahead (NCCL_STEPS)."""

SLOT: Final[dict[str, Bytes]] = {"LL": 32 * KIB, "LL128": 576_000, "Simple": 512 * KIB}
"""Bytes of data that a slot holds, without flags (docs/nccl.md)."""

SLICES: Final = 2
"""Of a ring's chunk by Simple (CHUNKSTEPS / SLICESTEPS)."""

SMALLEST_SLICE: Final[Bytes] = 32 * KIB
"""Bytes that Simple does not cut further: two slots over 32 (src/device/prims_simple.h)."""

RING_CHUNK: Final[dict[str, Bytes]] = {**SLOT, "Simple": SLOTS // 2 * SLOT["Simple"]}
"""Bytes of a ring's piece that a channel moves in one round: a slot, with Simple half the buffer
(CHUNKSTEPS)."""
