"""What kernels and collectives take of a GPU, so that overlapped ones slow each other.

A compute kernel uses the SMs in proportion to its speed, and HBM for the bytes it moves. A
collective holds one SM for each channel, uses HBM for a multiple of what it sends, and its wire.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from commsim.units import Bytes, BytesPerSecond
from commsim.workload.streams import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """What of a GPU is shared. sms, memory (bytes/s of HBM that kernels reach), wires (bytes/s in
    one direction, by name: "nvlink", "nic") are the machine's.

    sms_per_channel: NCCL runs one thread block a channel, of up to 640 threads, whose registers
    leave little room for another on its SM (NCCL's src/device; Hu et al., "Demystifying NCCL",
    arXiv:2507.04786). memory_per_byte: bytes of HBM for each that a GPU sends in a ring or tree:
    reducing reads its own data and what has arrived, and what arrives is written; passing on reads
    and writes what has arrived: 3 with the copies to and from NCCL's buffers, 2 where peers write
    straight into each other's memory.
    """

    sms: float
    memory: BytesPerSecond
    wires: tuple[tuple[str, BytesPerSecond], ...] = ()
    sms_per_channel: float = 1.0
    memory_per_byte: float = 3.0

    @property
    def capacity(self) -> dict[str, float]:
        """Of every resource, for `streams.play`."""
        return {"sm": self.sms, "memory": self.memory, **dict(self.wires)}


def computing(task: Task, gpu: Gpu, moved: Bytes = 0, spread: float = 1.0) -> Task:
    """The task as a kernel that moves `moved` bytes of HBM and needs this share of the SMs."""
    if not task.duration:
        return task
    return replace(
        task, uses=(("sm", spread * gpu.sms), ("memory", min(gpu.memory, moved / task.duration)))
    )


def communicating(task: Task, gpu: Gpu, channels: int, sent: Bytes, wire: str) -> Task:
    """The task as a collective over so many channels, each GPU of which sends `sent` bytes."""
    if not task.duration:
        return task
    rate = sent / task.duration
    limit = dict(gpu.wires)[wire]
    return replace(
        task,
        uses=(
            (wire, min(rate, limit)),
            ("memory", min(gpu.memory, gpu.memory_per_byte * rate)),
        ),
        holds=(("sm", min(gpu.sms, channels * gpu.sms_per_channel)),),
    )
