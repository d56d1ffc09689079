"""What the lab builds, as values: ranks, machines, link rates, and the same as a Cluster."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from commsim.errors import SpecError, UnitError
from commsim.topology.cluster import Cluster, Fabric
from commsim.topology.node import Cpu, Gpu, Nic, NodeLink, NodeTopology
from commsim.topology.parts import GpuPart
from commsim.units import Bytes, BytesPerSecond, parse_rate

MBIT = 1e6 / 8

UNSHAPED = math.inf

# tbf's burst by link rate: enough tokens that a timer's delay costs no bandwidth, and the largest
# packet that the stack builds (gso) below it, so that tbf never cuts packets itself.
BURSTS = ((1000 * MBIT, 128 << 10), (500 * MBIT, 64 << 10), (0, 32 << 10))

_TEXT = re.compile(r"(?:(\d+)x)?(\d+)@([^,]+)(?:,([^,]+))?")
EXAMPLES = '"4@500Mbit/s" (one switch) or "2x3@1Gbit/s,150Mbit/s" (machines, ranks, link, uplink)'
MOST_RANKS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """`machines` of `per_machine` ranks. link: one rank to its switch; uplink: one machine's switch
    to the core, 0 where all ranks are on one switch. Each direction; infinite: not held back."""

    machines: int
    per_machine: int
    link: BytesPerSecond
    uplink: BytesPerSecond = 0.0

    @property
    def n(self) -> int:
        return self.machines * self.per_machine

    @property
    def slowest(self) -> BytesPerSecond:
        """The slowest link, bytes/s."""
        return min(self.link, self.uplink or self.link)

    @property
    def name(self) -> str:
        """`star:4@500` or `two-level:2x3@1000/150`, in Mbit/s."""
        link, up = f"{self.link / MBIT:.6g}", f"{self.uplink / MBIT:.6g}"
        if not self.uplink:
            return f"star:{self.n}@{link}"
        return f"two-level:{self.machines}x{self.per_machine}@{link}/{up}"

    @property
    def shape(self) -> str:
        """`star` or `two-level:2x3`: the topology without its rates."""
        return self.name.partition("@")[0] if self.uplink else "star"


def parse(text: str) -> Layout:
    """The layout of `4@500Mbit/s` or `2x3@1Gbit/s,150Mbit/s`. Raises SpecError."""
    found = _TEXT.fullmatch(text.strip())
    if not found:
        raise SpecError([f"topology {text!r}: expected {EXAMPLES}"])
    machines, ranks, link, uplink = found.groups()
    if bool(machines) != bool(uplink):
        raise SpecError([f"topology {text!r}: several machines need an uplink: {EXAMPLES}"])
    try:
        rates = [parse_rate(rate) for rate in (link, uplink) if rate]
    except UnitError as error:
        raise SpecError([f"topology {text!r}: {error}"]) from None
    if machines:
        made = Layout(
            machines=int(machines), per_machine=int(ranks), link=rates[0], uplink=rates[1]
        )
    else:
        made = Layout(machines=int(ranks), per_machine=1, link=rates[0])
    if not 2 <= made.n <= MOST_RANKS or min(rates) <= 0:
        raise SpecError([f"topology {text!r}: expected 2 to {MOST_RANKS} ranks and rates above 0"])
    return made


def cluster(layout: Layout) -> Cluster:
    """What the lab is, for commsim: CPU machines with one network port each; where several ranks
    share a machine, each reaches the port and the others over a link of its own."""
    cpus = [f"cpu{i}" for i in range(layout.per_machine)]
    own = [NodeLink(source=cpu, target="numa0", kind="pcie", bandwidth=layout.link) for cpu in cpus]
    node = NodeTopology(
        cpus=(Cpu(name="numa0", numa=0, arch="x86_64", vendor="other"),),
        gpus=tuple(Gpu(name=cpu, index=i, part="CPU") for i, cpu in enumerate(cpus)),
        nics=(Nic(name="eth0", index=0, card="eth0", rate=layout.uplink or layout.link),),
        links=tuple(own) if layout.uplink else (),
    )  # fmt: skip
    return Cluster(
        name=layout.name, nodes=layout.machines, node=node, gpu=GpuPart(name="CPU"),
        fabric=Fabric(kind="single-switch", transport="tcp"),
        interconnect="pcie-host", default_library="gloo",
    )  # fmt: skip


def burst(rate: BytesPerSecond) -> Bytes:
    """Bytes that a link of this rate lets pass at once after a pause."""
    return next(size for least, size in BURSTS if rate >= least)


def gso(rate: BytesPerSecond) -> Bytes:
    """Bytes of the largest packet that the network stack hands to a link of this rate."""
    return burst(rate) // 2
