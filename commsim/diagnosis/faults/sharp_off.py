"""SHARP off: the fabric's switches do not reduce although they could."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from commsim.diagnosis.evidence import Clue, Evidence
from commsim.diagnosis.fault import Fault, Setup, Variant


def variants(setup: Setup) -> Iterator[Variant]:
    """The same fabric without SHARP."""
    cluster = setup.cluster
    if setup.nccl and setup.networked and cluster.fabric.sharp:
        yield Variant(
            detail="no reduction in the switches", share=1.0,
            cluster=replace(cluster, fabric=replace(cluster.fabric, sharp=False)),
            library=setup.library, profile=setup.profile,
        )  # fmt: skip


def clues(evidence: Evidence, setup: Setup) -> Iterator[Clue]:
    """CollNet switched off, or a log in which no NIC offers it."""
    if evidence.set_to("NCCL_COLLNET_ENABLE") == "0":
        yield Clue(text="NCCL log: NCCL_COLLNET_ENABLE=0 is set")
    nics = evidence.log.nics if evidence.log else ()
    if nics and not any(nic.sharp for nic in nics):
        yield Clue(text="NCCL log: no NIC is marked SHARP", factor=5.0)


FAULT = Fault(
    cause="sharp_off",
    what="SHARP (reduction in the InfiniBand switches) is off",
    check="NCCL_DEBUG=INFO names CollNet and [SHARP] NICs; sharp_hello; the subnet manager runs "
    "with sharp_enabled",
    fix="NCCL_COLLNET_ENABLE=1 with the nccl-rdma-sharp plug-in; start sharp_am; ask the "
    "fabric's administrator for a reservation",
    variants=variants,
    clues=clues,
    settings=frozenset({"NCCL_COLLNET_ENABLE"}),
)
