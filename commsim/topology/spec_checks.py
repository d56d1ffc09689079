"""What one key of a cluster file says about another: GPUs that suit their links, NICs that join."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import TypeAlias, get_args

from commsim.errors import UnknownNameError
from commsim.topology import hosts, parts
from commsim.topology.defaults import default_domain
from commsim.topology.parts import GpuPart
from commsim.topology.spec import ClusterSpec, Interconnect, NicsSpec, NodeSpec
from commsim.units import format_rate

_Problems: TypeAlias = Iterator[tuple[str, str]]


def cross_checks(spec: ClusterSpec) -> _Problems:
    """(key, problem) for each contradiction between keys that are each sound."""
    if hosts.on_cpus(spec.node) and not (spec.device or spec.link):
        yield from hosts.problems(spec)
        return
    part, problem = _known_gpu(spec)
    if problem:
        yield "node.gpu", problem
    if spec.fabric and spec.fabric.kind == "cabled" and spec.fabric.cabling is None:
        yield "fabric.cabling", 'missing, expected a file of ibnetdiscover, such as "fabric.txt"'
    if spec.device or spec.link:
        yield from _check_graph(spec)
        return
    node = spec.node
    if node.gpus is None:
        yield "node.gpus", "missing, expected a whole number of GPUs, such as 8"
    if node.interconnect is None:
        choices = ", ".join(f'"{c}"' for c in get_args(Interconnect))
        yield "node.interconnect", f"missing, expected one of {choices}"
    if node.nics is not None:
        yield from _check_nics(node.nics)
    yield from _check_cpus(node)
    if part is None or node.gpus is None or node.interconnect is None:
        return
    yield from _check_interconnect(node, part)
    yield from _check_domain(spec, part)


def _known_gpu(spec: ClusterSpec) -> tuple[GpuPart | None, str | None]:
    if spec.node.gpu is None:
        if any(d.kind == "gpu" and d.part for d in spec.device):
            return None, None
        return None, 'missing, expected a GPU of the catalogue, such as "H100-SXM5-80GB"'
    try:
        part = parts.gpu(spec.node.gpu)
        if spec.node.mig:
            part.slice(spec.node.mig)
    except UnknownNameError as error:
        return None, str(error)
    return part, None


def _check_nics(nics: NicsSpec) -> _Problems:
    if nics.part is not None:
        try:
            parts.nic(nics.part)
        except UnknownNameError as error:
            yield "node.nics.part", str(error)
    elif nics.rate is None:
        yield "node.nics.rate", 'missing, expected a rate such as "400Gbit/s", or a `part`'
    if nics.rate == 0:
        yield "node.nics.rate", 'expected a rate above zero such as "400Gbit/s", got 0'
    if nics.count % nics.ports_per_card:
        yield (
            "node.nics.ports_per_card",
            f"expected a divisor of node.nics.count = {nics.count}, got {nics.ports_per_card}",
        )


def _check_cpus(node: NodeSpec) -> _Problems:
    if node.cpu_part is not None:
        try:
            parts.cpu(node.cpu_part)
        except UnknownNameError as error:
            yield "node.cpu_part", str(error)
    if node.gpu_numa is not None and node.gpus is not None and len(node.gpu_numa) != node.gpus:
        yield (
            "node.gpu_numa",
            f"expected a NUMA node for each of {node.gpus} GPUs, got {len(node.gpu_numa)}",
        )


def _suits(part: GpuPart) -> tuple[str, ...]:
    """The interconnects a GPU can have."""
    pcie = ("pcie-switch", "pcie-host") if part.pcie_generation and not part.c2c_count else ()
    if part.vendor == "amd":
        return ("xgmi-mesh", *pcie)
    if part.vendor != "nvidia":
        return pcie
    c2c = ("nvlink-c2c",) if part.c2c_count else ()
    if part.bridge:
        return ("nvlink-pairs", *(("nvlink-mesh",) if part.bridge > 2 else ()), *pcie)
    if part.link_count:
        return ("nvswitch", "nvlink-mesh", "nvlink-pairs", *c2c, *pcie)
    return (*c2c, *pcie)


def _check_interconnect(node: NodeSpec, part: GpuPart) -> _Problems:
    gpus = node.gpus or 0
    suits = _suits(part)
    if node.interconnect not in suits:
        what = ", ".join(f'"{s}"' for s in suits)
        expected = f"expected {'one of ' if len(suits) > 1 else ''}{what}"
        if not suits:
            expected = "none of a cluster file suits it: describe it with [[device]] and [[link]]"
        yield "node.interconnect", f'{part.name} has no "{node.interconnect}"; {expected}'
        return
    if node.interconnect == "nvlink-pairs" and gpus % 2 and gpus > 1:
        yield (
            "node.gpus",
            f"nvlink-pairs joins two by two, expected an even number, got {gpus}",
        )
    if node.interconnect == "xgmi-mesh" and gpus > part.domain and gpus % part.domain:
        yield (
            "node.gpus",
            f"xGMI joins {part.domain} {part.name}; expected up to that or a multiple, got {gpus}",
        )
    cube = part.link_kind == "nvlink2" and gpus == 8  # the hybrid cube mesh of a DGX-1V
    if node.interconnect == "nvlink-mesh" and gpus - 1 > part.link_count and not cube:
        yield (
            "node.gpus",
            f"{part.name} has {part.link_count} NVLinks, too few for a mesh of {gpus};"
            f" expected at most {part.link_count + 1} GPUs",
        )


def _check_domain(spec: ClusterSpec, part: GpuPart) -> _Problems:
    gpus = spec.node.gpus or 1
    stated = spec.fabric.scale_up_domain if spec.fabric else None
    domain = stated or default_domain(spec, part)
    if stated and stated % gpus and gpus % stated:
        yield (
            "fabric.scale_up_domain",
            f"expected a multiple of node.gpus = {gpus}, got {stated}",
        )
        return
    if stated and stated > gpus and spec.node.interconnect != "nvswitch":
        yield (
            "fabric.scale_up_domain",
            f'"{spec.node.interconnect}" ends at the machine; expected at most {gpus}, got {stated}'
            ' (or node.interconnect = "nvswitch")',
        )
        return
    per_domain = max(1, domain // gpus)
    domains = -(-spec.nodes // per_domain)
    if spec.node.nics is None and domains > 1:
        yield (
            "node.nics",
            f"missing: {spec.nodes} machines are {domains} NVLink domains or PCIe machines that"
            " nothing joins; expected a [node.nics] table"
            ' (count = 8, rate = "400Gbit/s"), or fewer nodes',
        )


def _check_graph(spec: ClusterSpec) -> _Problems:
    for key in sorted(spec.node.model_fields_set - {"gpu", "p2p"}):
        yield f"node.{key}", "[[device]] and [[link]] describe the machine; leave this key out"
    names = [d.name for d in spec.device]
    for name in sorted({n for n in names if names.count(n) > 1}):
        yield "device", f'name "{name}" is used twice; expected a name of its own for each device'
    if not any(d.kind == "gpu" for d in spec.device):
        yield "device", 'no device of kind "gpu"; expected at least one'
    for i, device in enumerate(spec.device):
        if device.kind == "nic" and device.rate is None:
            yield f"device[{i}].rate", 'missing, expected a rate such as "400Gbit/s"'
        if device.kind == "gpu" and device.part is not None:
            try:
                parts.gpu(device.part)
            except UnknownNameError as error:
                yield f"device[{i}].part", str(error)
    cards = {d.card for d in spec.device if d.card}
    for i, link in enumerate(spec.link):
        for end, name in (("source", link.source), ("target", link.target)):
            if name not in names and name not in cards:
                close = difflib.get_close_matches(name, names, n=1)
                hint = f'; did you mean "{close[0]}"?' if close else ""
                yield f"link[{i}].{end}", f'no device is called "{name}"{hint}'
        if link.bandwidth is None and not (link.kind == "pcie" and link.speed):
            yield (
                f"link[{i}].bandwidth",
                'missing, expected a rate such as "25GB/s" (for kind "pcie" a speed will do)',
            )
        elif link.bandwidth == 0:
            yield f"link[{i}].bandwidth", "expected a rate above zero, got " + format_rate(0.0)
    if spec.nodes > 1 and not any(d.kind == "nic" for d in spec.device):
        yield "device", f'{spec.nodes} machines, but no device of kind "nic"; expected at least one'
