"""Others on the network, or flows that meet on one link: less bandwidth, and unsteady."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from commsim.diagnosis.alter import nics_at
from commsim.diagnosis.fault import Fault, Setup, Variant

SHARES = ((0.8, 0.3), (0.6, 0.3), (0.4, 0.25), (0.2, 0.15))
UNSTEADY = ((0.17, 0.5), (0.45, 0.5))
"""Standard deviation of ln(time) from one size to the next, and how often. A network that others
use: one program ran from 28 % faster to 41 % slower than its average (Bhatele et al., There Goes
the Neighborhood, SC13, 10.1145/2503210.2503247; from memory), four standard deviations,
ln(1.41 / 0.72) / 4. Flows that meet: one alone, with another or with two gets 1, 1/2 or 1/3 of a
link, whose logarithms deviate by 0.45."""


def variants(setup: Setup) -> Iterator[Variant]:
    """The network at a share of its rate, unsteady from size to size."""
    if setup.networked:
        for (left, share), (scatter, often) in product(SHARES, UNSTEADY):
            yield Variant(
                detail=f"{left:.0%} of the network is left, give or take {scatter:.0%}",
                share=share * often,
                cluster=nics_at(setup.cluster, left), seen=setup.cluster,
                library=setup.library, profile=setup.profile, scatter=scatter,
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
