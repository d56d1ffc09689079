"""No GPUDirect RDMA: what NICs send and receive stops in host memory."""

from __future__ import annotations

from collections.abc import Iterator

from commsim.diagnosis.alter import staged
from commsim.diagnosis.evidence import SHOWN, Clue, Evidence
from commsim.diagnosis.fault import Fault, Setup, Variant


def variants(setup: Setup) -> Iterator[Variant]:
    """Through host memory at the full PCIe rate, and where copies and sockets cost more of it."""
    cluster = setup.cluster
    if not setup.networked or not any(nic.gpudirect for nic in cluster.node.nics):
        return
    carrying = staged(cluster)
    for factor, share in ((1.0, 0.35), (1.5, 0.25), (2.5, 0.25), (4.0, 0.15)):
        yield Variant(
            detail="through host memory" + (f", {factor:g} times as long" if factor > 1 else ""),
            share=share, cluster=carrying, library=setup.library, profile=setup.profile,
            transfer=factor,
        )  # fmt: skip


def clues(evidence: Evidence, setup: Setup) -> Iterator[Clue]:
    """Lines without GDRDMA for it; every connection with it against it."""
    yield from evidence.told("gpudirect")
    if evidence.set_to("NCCL_NET_GDR_LEVEL") in ("0", "LOC"):
        yield Clue(text="NCCL log: NCCL_NET_GDR_LEVEL allows no GPUDirect RDMA")
    over_nics = [c.gpudirect for c in evidence.log.connections if c.nic is not None] if (
        evidence.log
    ) else []  # fmt: skip
    if over_nics and all(over_nics):
        yield Clue(text="NCCL log: every connection over a NIC says GDRDMA", factor=1 / SHOWN)


FAULT = Fault(
    cause="gdr_off",
    what="GPUDirect RDMA is off: data between GPU and NIC goes through host memory",
    check="NCCL_DEBUG=INFO shows NET/IB/0 without /GDRDMA; lsmod | grep nvidia_peermem; "
    "NCCL_NET_GDR_LEVEL is not set to LOC",
    fix="load nvidia-peermem (or use a kernel with DMA-BUF); unset NCCL_NET_GDR_LEVEL; NIC and "
    "GPU under one PCIe switch",
    incidents=("NVIDIA/nccl issue 2409, run with NCCL_NET_GDR_LEVEL=0",),
    variants=variants,
    clues=clues,
    settings=frozenset({"NCCL_NET_GDR_LEVEL", "NCCL_NET_GDR_READ"}),
)
