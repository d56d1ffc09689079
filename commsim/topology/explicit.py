"""From [[device]] and [[link]] to the machine they describe."""

from __future__ import annotations

import math
from functools import lru_cache

from commsim.topology import parts
from commsim.topology.node import Cpu, Gpu, Nic, NodeLink, NodeTopology, NvSwitch, PcieSwitch
from commsim.topology.parts import PCIE_SPEED
from commsim.topology.spec import ClusterSpec, DeviceSpec
from commsim.units import BytesPerSecond


@lru_cache(maxsize=64)
def build_explicit(spec: ClusterSpec) -> tuple[NodeTopology, tuple[str, ...]]:
    """The machine that [[device]] and [[link]] describe, and the notes on what was assumed."""
    of_kind = {
        kind: [d for d in spec.device if d.kind == kind]
        for kind in ("gpu", "nic", "cpu", "pcie-switch", "nvswitch")
    }
    notes: list[str] = []
    gpus = []
    for i, d in enumerate(of_kind["gpu"]):
        part = parts.gpu(d.part or spec.node.gpu or "")
        gpus.append(
            Gpu(
                name=d.name,
                index=i if d.index is None else d.index,
                part=part.name,
                capability=part.capability if d.capability is None else d.capability,
                gpudirect=part.gpudirect if d.gpudirect is None else d.gpudirect,
                busid=d.busid,
            )
        )
    nics = tuple(
        Nic(
            name=d.name,
            index=i if d.index is None else d.index,
            card=d.card or d.name,
            rate=d.rate or 0.0,
            gpudirect=d.gpudirect is not False,
            port=d.port,
            guid=f"0x{0xA0000000 + 0x100 * i:x}",
            latency=d.latency,
            part=d.part or "",
            busid=d.busid,
        )
        for i, d in enumerate(of_kind["nic"])
    )
    cpus = []
    for i, d in enumerate(of_kind["cpu"]):
        cpu = parts.cpu(d.part or "other")
        if d.part is None:
            notes.append(f"device {d.name}: no part stated, a CPU of unknown make taken")
        cpus.append(
            Cpu(
                name=d.name,
                numa=i if d.numa is None else d.numa,
                arch=cpu.arch,
                vendor=cpu.vendor,
                family=cpu.family,
                model=cpu.model,
                part=cpu.name,
            )
        )
    first = parts.gpu(gpus[0].part)
    allowed = first.p2p if spec.node.p2p is None else spec.node.p2p
    switch = of_kind["nvswitch"]
    topology = NodeTopology(
        gpus=tuple(sorted(gpus, key=lambda g: g.index)),
        nics=tuple(sorted(nics, key=lambda n: n.index)),
        cpus=tuple(cpus),
        switches=tuple(
            PcieSwitch(name=d.name, busid=d.busid, capacity=_most(d))
            for d in of_kind["pcie-switch"]
        ),
        nvswitch=NvSwitch(name=switch[0].name, capacity=_most(switch[0])) if switch else None,
        links=tuple(_explicit_links(spec)),
        gpu_peer_access=None if allowed else False,
    )
    return topology, tuple(notes)


def _most(switch: DeviceSpec) -> BytesPerSecond:
    """What a switch passes on in all; inf where its rate is not stated."""
    return math.inf if switch.rate is None else switch.rate


def _explicit_links(spec: ClusterSpec) -> list[NodeLink]:
    generations = {speed: generation for generation, speed in PCIE_SPEED.items()}
    links = []
    for link in spec.link:
        speed = float(link.speed.removesuffix("GT/s")) if link.speed else 0.0
        bandwidth = link.bandwidth
        if bandwidth is None:
            bandwidth = parts.pcie_bandwidth(generations[speed], link.width)
        links.append(
            NodeLink(
                source=link.source,
                target=link.target,
                kind=link.kind,
                bandwidth=bandwidth,
                latency=link.latency,
                width=link.width,
                speed=speed,
            )
        )
    return links
