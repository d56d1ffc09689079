"""GPUs that use NICs of the other socket: everything crosses the link between the CPUs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from commsim.diagnosis.alter import card_bandwidth, nics_capped, staged, with_node
from commsim.diagnosis.evidence import Clue, Evidence
from commsim.diagnosis.fault import Fault, Setup, Variant
from commsim.topology.capacity import nic_distance
from commsim.topology.cluster import Cluster
from commsim.topology.node import NodeTopology

FAR = 4
"""capacity.nic_distance of a NIC on another socket."""

SHARES = ((1.0, 0.3), (0.5, 0.4), (0.25, 0.3))
"""What the link between sockets, which all NICs share with the CPUs' own traffic, leaves of a NIC's
PCIe link, and how often: an assumption between the sheet's rate and a root complex's."""
HOPS = 1.2
"""How much longer a hop takes across sockets: an assumption."""


def _crossed(cluster: Cluster) -> Cluster | None:
    """The machine with the NICs of each CPU on the next one; None where there is but one CPU."""
    node = cluster.node
    if len(node.cpus) < 2:
        return None
    names = [cpu.name for cpu in node.cpus]
    above = {link.source: link.target for link in node.links if link.kind in ("pcie", "c2c")}
    cards = {nic.card for nic in node.nics}

    def moved(card: str) -> str:
        at = card
        while at in above:
            at = above[at]
        return names[(names.index(at) + len(names) // 2) % len(names)] if at in names else at

    links = tuple(
        replace(link, target=moved(link.source)) if link.source in cards else link
        for link in node.links
    )
    return with_node(cluster, replace(node, links=links))


def variants(setup: Setup) -> Iterator[Variant]:
    """NICs of the other socket: too far for GPUDirect RDMA, so NCCL chooses as without."""
    if not setup.networked or (crossed := _crossed(setup.cluster)) is None:
        return
    link = card_bandwidth(crossed)
    for part, share in SHARES:
        yield Variant(
            detail=f"NICs of the other socket, at {part:.0%} of their PCIe link", share=share,
            cluster=staged(nics_capped(crossed, part * link)), seen=staged(setup.cluster),
            library=setup.library, profile=setup.profile, hops=HOPS,
        )  # fmt: skip


def _nearest(node: NodeTopology) -> list[int]:
    return [min(nic_distance(node, g, n)[1] for n in range(len(node.nics)))
            for g in range(len(node.gpus))]  # fmt: skip


def clues(evidence: Evidence, setup: Setup) -> Iterator[Clue]:
    """A topology in which some GPU's nearest NIC is further away than it should be."""
    node = evidence.node
    if node is None or not node.nics or not setup.cluster.node.nics:
        return
    far = [g for g, d in enumerate(_nearest(node)) if d >= FAR]
    if far and max(_nearest(setup.cluster.node)) < FAR:
        yield Clue(text=f"topology: no NIC on the socket of GPU {', '.join(map(str, far))}")


FAULT = Fault(
    cause="wrong_affinity",
    what="GPUs use NICs that hang on another socket",
    check="nvidia-smi topo -m: each GPU's NIC is PIX or PXB; NCCL_DEBUG_SUBSYS=GRAPH: no SYS "
    "paths to NET; CPU affinity of the ranks (numactl -s)",
    fix="order NICs and GPUs alike (NCCL_IB_HCA, CUDA_VISIBLE_DEVICES), bind ranks to the socket "
    "of their GPU, give NCCL the real topology (NCCL_TOPO_FILE in virtual machines)",
    variants=variants,
    clues=clues,
)
