"""A bad cable, port or node: some link carries less than its rate, and nobody is told.

A ring or tree is as fast as its slowest edge, so one bad link of many slows all.
"""

from __future__ import annotations

from collections.abc import Iterator

from commsim.diagnosis.alter import links_at, nics_at
from commsim.diagnosis.evidence import Clue, Evidence
from commsim.diagnosis.fault import Fault, Setup, Variant
from commsim.topology.node import NodeTopology

SHARES = ((0.75, 0.2), (0.5, 0.3), (0.35, 0.15), (0.25, 0.2), (0.1, 0.15))
"""What is left of the link, and how often; a port that trains at half or a quarter of its lanes."""
NVLINK = frozenset({"nvlink", "xgmi"})


def variants(setup: Setup) -> Iterator[Variant]:
    """The slowest NIC, or the slowest GPU's NVLinks, at 3/4 ... 1/10."""
    cluster = setup.cluster
    fast = any(link.kind in NVLINK for link in cluster.node.links)
    both = setup.networked and fast
    for left, share in SHARES:
        if setup.networked:
            yield Variant(
                detail=f"a network link at {left:.0%}", share=share * (0.7 if both else 1.0),
                cluster=nics_at(cluster, left), seen=cluster,
                library=setup.library, profile=setup.profile,
            )  # fmt: skip
        if fast:
            yield Variant(
                detail=f"NVLink or xGMI of a GPU at {left:.0%}",
                share=share * (0.3 if both else 1.0), seen=cluster,
                cluster=links_at(cluster, NVLINK, left),
                library=setup.library, profile=setup.profile,
            )  # fmt: skip


def _fewest(node: NodeTopology) -> tuple[int, str]:
    """Of the GPU with fewest NVLinks (or xGMI links): how many, and its name."""
    links = {gpu.name: 0 for gpu in node.gpus}
    for link in node.links:
        if link.kind in NVLINK:
            for end in {link.source, link.target} & links.keys():
                links[end] += link.width
    return min((count, name) for name, count in links.items())


def clues(evidence: Evidence, setup: Setup) -> Iterator[Clue]:
    """Warnings of the network in the log; a GPU of the topology with fewer NVLinks than it has."""
    if evidence.node is not None and any(k.kind in NVLINK for k in evidence.node.links):
        (shown, name), (expected, _) = _fewest(evidence.node), _fewest(setup.cluster.node)
        if shown < expected:
            yield Clue(text=f"topology: {name} has {shown} NVLinks, {expected} expected")
    for clue in evidence.told("warning"):
        if any(word in clue.text for word in ("error", "timeout", "retry", "completion", "status")):
            yield Clue(text=clue.text, factor=5.0)


FAULT = Fault(
    cause="bad_link",
    what="a bad cable, port or node: some link carries less than its rate",
    check="pairwise send_recv over all nodes to find the slow one; ibqueryerrors, perfquery "
    "(symbol errors, link downed); ethtool -S; nvidia-smi nvlink -e and -s; dcgmi diag -r 3",
    fix="take the node out, clean or swap cable and transceiver, reseat or replace the card",
    incidents=("xxrjun/nccl-tests-cluster, cluster00",),
    variants=variants,
    clues=clues,
)
