"""MSCCL's XML: per GPU thread blocks that go through steps, for the MSCCL runtime to carry out.

Source: Cowan, Maleki, Musuvathi, Saarikivi and Xiong, "MSCCLang: Microsoft collective communication
language", ASPLOS 2023, doi:10.1145/3575693.3575724, and the files of msccl-tools.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from commsim.collectives.chunks import APART
from commsim.errors import ScheduleError
from commsim.traces.events import RECEIVE, SEND
from commsim.traces.msccl_buffers import INPUT, NAMES, OUTPUT, Buffers
from commsim.traces.msccl_file import read
from commsim.traces.msccl_order import schedule
from commsim.traces.msccl_steps import Gpu, gpus
from commsim.traces.trace import Trace, TraceReader, TraceWriter
from commsim.units import Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Msccl(TraceReader, TraceWriter):
    """MSCCL's XML files.

    nbytes, dtype: of the collective that is read, which no file says. in_place: whether a result
    lies in the memory of the input; None: in place wherever file and operation can. protocol: what
    is written for the runtime to use. Written are only sends, receives, copies and sums, each
    connection in a thread block of its own; read are the fused steps too. The root of a broadcast
    is an attribute that the runtime does not know; left out it is 0.
    """

    nbytes: Bytes = 1 << 20
    dtype: str = "float32"
    in_place: bool | None = None
    protocol: str = "Simple"

    def read(self, path: str | os.PathLike[str]) -> Trace:
        algo = read(path, self.nbytes, self.dtype, self.in_place)
        return Trace(
            collective=algo.collective,
            schedule=schedule(algo, Path(path).name),
            name=algo.name,
        )

    def write(self, trace: Trace, path: str | os.PathLike[str]) -> None:
        chunks = trace.schedule.chunks
        if chunks.operation not in NAMES:
            raise ScheduleError(
                f"MSCCL: expected one of {', '.join(sorted(NAMES))}, got {chunks.operation}"
            )
        if trace.schedule.switches:
            raise ScheduleError(
                f"MSCCL: {chunks.operation}: expected a schedule between GPUs, "
                f"got one with {trace.schedule.switches} switches"
            )
        apart = chunks.operation in APART
        if apart and self.in_place:
            raise ScheduleError(f"MSCCL: {chunks.operation}: its schedules do not work in place")
        buffers = Buffers(chunks=chunks, in_place=not apart and self.in_place is not False)
        algo = _element(
            "algo",
            name=trace.name,
            proto=self.protocol,
            nchannels=int(trace.schedule.channel.max(initial=0)) + 1,
            nchunksperloop=chunks.inputs,
            ngpus=chunks.n,
            coll=NAMES[chunks.operation],
            inplace=int(buffers.in_place),
            outofplace=int(not buffers.in_place),
            minBytes=0,
            maxBytes=0,  # of any size
        )
        if chunks.root:
            algo.set("root", str(chunks.root))
        for rank, (gpu, scratch) in enumerate(gpus(trace.schedule, buffers)):
            algo.append(_gpu(gpu, rank, scratch, buffers))
        ElementTree.indent(algo)
        Path(path).write_bytes(ElementTree.tostring(algo) + b"\n")


def _gpu(gpu: Gpu, rank: int, scratch: int, buffers: Buffers) -> ElementTree.Element:
    found = _element(
        "gpu",
        id=rank,
        i_chunks=buffers.size(INPUT),
        o_chunks=buffers.size(OUTPUT),
        s_chunks=scratch,
    )
    number = {lane: i for i, lane in enumerate(gpu.blocks)}
    for lane, steps in gpu.blocks.items():
        kind, peer, channel = lane
        send, receive = (peer if kind == way else -1 for way in (SEND, RECEIVE))
        block = _element("tb", id=number[lane], send=send, recv=receive, chan=channel)
        for i, step in enumerate(steps):
            depid, deps = (number[step.after[0]], step.after[1]) if step.after else (-1, -1)
            block.append(
                _element(
                    "step",
                    s=i,
                    type=step.kind,
                    srcbuf=step.source[0],
                    srcoff=step.source[1],
                    dstbuf=step.destination[0],
                    dstoff=step.destination[1],
                    cnt=step.count,
                    depid=depid,
                    deps=deps,
                    hasdep=int(step.signals),
                )
            )
        found.append(block)
    return found


def _element(tag: str, **attributes: int | str) -> ElementTree.Element:
    return ElementTree.Element(tag, {name: str(value) for name, value in attributes.items()})
