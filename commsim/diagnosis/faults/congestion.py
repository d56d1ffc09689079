"""Others on the network, or flows that meet on one link: less bandwidth, and unsteady."""

from __future__ import annotations

from collections.abc import Iterator

from commsim.diagnosis.alter import nics_at
from commsim.diagnosis.fault import Fault, Setup, Variant

SHARES = ((0.8, 0.3), (0.6, 0.3), (0.4, 0.25), (0.2, 0.15))
UNSTEADY = 4.0
"""Single sizes jump this much more than on a quiet network."""


def variants(setup: Setup) -> Iterator[Variant]:
    """The network at a share of its rate, unsteady from size to size."""
    if setup.networked:
        for left, share in SHARES:
            yield Variant(
                detail=f"{left:.0%} of the network is left, unsteadily", share=share,
                cluster=nics_at(setup.cluster, left), seen=setup.cluster,
                library=setup.library, profile=setup.profile, scatter=UNSTEADY,
            )  # fmt: skip


FAULT = Fault(
    cause="congestion",
    what="the network is congested: other jobs, or several flows on one link",
    check="repeat the run: times differ; on two nodes under one switch it is fast; port "
    "counters: PortXmitWait, pause frames (PFC), ECN marks",
    fix="adaptive routing (NCCL_IB_ADAPTIVE_ROUTING, NCCL_IB_SL), PFC and ECN on RoCE, ranks of "
    "one job close together, several queue pairs for ECMP (NCCL_IB_QPS_PER_CONNECTION)",
    variants=variants,
)
