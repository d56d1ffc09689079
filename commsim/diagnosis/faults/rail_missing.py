"""NICs (rails) that do not take part: a dead port, a driver that did not load, NCCL_IB_HCA."""

from __future__ import annotations

from collections.abc import Iterator

from commsim.diagnosis.alter import nics_kept
from commsim.diagnosis.evidence import SHOWN, Clue, Evidence
from commsim.diagnosis.fault import Fault, Setup, Variant


def variants(setup: Setup) -> Iterator[Variant]:
    """One NIC gone, or all but a half, a quarter ... one."""
    count = len(setup.cluster.node.nics)
    if not setup.networked or count < 2:
        return
    kept = {count - 1: 0.5}
    left = count // 2
    while left >= 1:
        kept.setdefault(left, 0.25)
        left //= 2
    for many, share in kept.items():
        yield Variant(
            detail=f"{count - many} of {count} NICs missing",
            share=share / sum(kept.values()), cluster=nics_kept(setup.cluster, many),
            library=setup.library, profile=setup.profile,
        )  # fmt: skip


def clues(evidence: Evidence, setup: Setup) -> Iterator[Clue]:
    """Fewer NICs in the log or the topology than there should be."""
    expected = len(setup.cluster.node.nics)
    yield from evidence.told("nics")
    if (names := evidence.set_to("NCCL_IB_HCA")) is not None:
        yield Clue(text=f"NCCL log: NCCL_IB_HCA={names} is set", factor=3.0)
    if evidence.log is not None and evidence.log.nics:
        by_host: dict[tuple[str, str], set[int]] = {}
        for nic in evidence.log.nics:
            by_host.setdefault((nic.host, nic.network), set()).add(nic.index)
        fewest = min(len(indices) for indices in by_host.values())
        if fewest < expected:
            yield Clue(text=f"NCCL log: {fewest} NICs used, {expected} expected")
        else:
            yield Clue(text=f"NCCL log: {fewest} NICs used, as expected", factor=1 / SHOWN)
    if evidence.node is not None and evidence.node.nics and len(evidence.node.nics) < expected:
        yield Clue(text=f"topology: {len(evidence.node.nics)} NICs, {expected} expected")


FAULT = Fault(
    cause="rail_missing",
    what="one or more NICs (rails) of a node take no part",
    check="ibstat or ibdev2netdev on every node: all ports Active; 'NET/IB : Using' in "
    "NCCL_DEBUG=INFO lists all of them; NCCL_IB_HCA leaves none out",
    fix="bring the port up (cable, transceiver, switch port, driver), or correct NCCL_IB_HCA",
    incidents=("NVIDIA/nccl issue 2409, runs with 1, 2 and 4 rails",),
    variants=variants,
    clues=clues,
    settings=frozenset({"NCCL_IB_HCA"}),
)
