"""What a network plugin changes of what NCCL sees: fused NICs and prescribed settings."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from commsim.topology.node import NodeTopology

SETTINGS: dict[str, tuple[tuple[str, str], ...]] = {
    "tcpx": (("NCCL_ALGO", "Ring"), ("NCCL_PROTO", "Simple"), ("NCCL_NVLS_ENABLE", "0")),
    "tcpxo": (("NCCL_ALGO", "Ring,Tree"), ("NCCL_PROTO", "Simple"), ("NCCL_NVLS_ENABLE", "0")),
}
"""What the plugin's documentation prescribes: Google Cloud, "Deploy and run NCCL on Slurm / GKE",
environment of GPUDirect-TCPX and GPUDirect-TCPXO."""


def settings(
    transport: str, env: tuple[tuple[str, str], ...]
) -> tuple[tuple[tuple[str, str], ...], str]:
    """The environment with what the transport's plugin prescribes where the user says nothing,
    and a note."""
    given = dict(env)
    added = tuple((k, v) for k, v in SETTINGS.get(transport, ()) if k not in given)
    if not added:
        return env, ""
    told = " ".join(f"{k}={v}" for k, v in added)
    return (
        tuple(sorted(given.items() | set(added))),
        f"{transport}: its plugin's documented settings {told} are assumed; "
        "set them otherwise to override",
    )


@lru_cache(maxsize=256)
def devices(node: NodeTopology, transport: str) -> tuple[tuple[int, ...], ...]:
    """The machine's network devices as NCCL sees them through the plugin, each by its NICs.

    aws-ofi-nccl (EFA) shows the NICs that hang under one PCIe switch as one multi-rail device of
    their summed rate: 32 x 100 Gbit/s on a p5 are 8 devices of 400 Gbit/s (aws-ofi-nccl,
    doc/efa-topology; release 1.7.0).
    """
    if transport != "efa":
        return tuple((i,) for i in range(len(node.nics)))
    parent = {link.source: link.target for link in node.links if link.kind == "pcie"}
    switches = {s.name for s in node.switches}
    groups: dict[str, list[int]] = {}
    for i, nic in enumerate(node.nics):
        above = parent.get(nic.card, "")
        groups.setdefault(above if above in switches else nic.name, []).append(i)
    return tuple(map(tuple, groups.values()))


@lru_cache(maxsize=256)
def seen(node: NodeTopology, transport: str) -> NodeTopology:
    """The machine as NCCL sees it through the plugin: every device as one NIC."""
    found = devices(node, transport)
    if len(found) == len(node.nics):
        return node
    kept = {
        node.nics[members[0]].name: sum(node.nics[i].rate for i in members) for members in found
    }
    gone = {n.card for n in node.nics if n.name not in kept}
    nics = tuple(n for n in node.nics if n.name in kept)
    return replace(
        node,
        nics=tuple(replace(n, index=i, rate=kept[n.name]) for i, n in enumerate(nics)),
        links=tuple(link for link in node.links if link.source not in gone),
    )
