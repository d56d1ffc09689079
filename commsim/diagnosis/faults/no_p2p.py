"""No peer-to-peer between the GPUs of a machine: they exchange through host memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from commsim.diagnosis.alter import env_of, with_env, with_node
from commsim.diagnosis.evidence import Clue, Evidence
from commsim.diagnosis.fault import Fault, Setup, Variant

SLOWER = ((1.0, 0.4), (2.0, 0.25), (4.0, 0.15), (8.0, 0.1), (16.0, 0.1))
"""How many times as long copies through host memory take, over PCIe, and how often: sockets, NUMA
nodes and shared buffers slow them beyond what the links carry."""

OVER_NVLINK = 1 / 6
"""How likely this is on machines with NVLink or xGMI, where only a setting or a container takes
peer-to-peer away: none of two published incidents, by Jeffreys' rule (0 + 1/2) / (2 + 1)."""


def variants(setup: Setup) -> Iterator[Variant]:
    """NCCL_P2P_DISABLE=1; over PCIe also a driver that refuses, where copies may cost more."""
    cluster = setup.cluster
    if not setup.nccl or env_of(setup.library).get("NCCL_P2P_DISABLE") == "1":
        return
    off = with_env(setup.library, {"NCCL_P2P_DISABLE": "1"})
    refused = with_node(cluster, replace(cluster.node, gpu_peer_access=False))
    fast = any(link.kind in ("nvlink", "xgmi") for link in cluster.node.links)
    for factor, share in ((1.0, OVER_NVLINK),) if fast else SLOWER:
        yield Variant(
            detail="through host memory" + (f", {factor:g} times as long" if factor > 1 else ""),
            share=share, cluster=refused, library=off, profile=setup.profile, transfer=factor,
        )  # fmt: skip


def clues(evidence: Evidence, setup: Setup) -> Iterator[Clue]:
    """Connections through shared memory, refused peer access, the variable."""
    yield from evidence.told("host_memory", "peer")
    if evidence.set_to("NCCL_P2P_DISABLE") == "1":
        yield Clue(text="NCCL log: NCCL_P2P_DISABLE=1 is set")


FAULT = Fault(
    cause="no_p2p",
    what="GPUs of a node exchange through host memory instead of peer to peer",
    check="nvidia-smi topo -p2p r (NS, CNS are not OK); 'via SHM' in NCCL_DEBUG=INFO; "
    "p2pBandwidthLatencyTest of the CUDA samples; NCCL_P2P_DISABLE, NCCL_P2P_LEVEL",
    fix="unset NCCL_P2P_DISABLE; clear ACS on the bridges above the GPUs; the same PID namespace "
    "and --ipc=host for containers; BIOS: above 4G decoding, ordering of peer writes",
    incidents=(
        "ai-dynamo/aiconfigurator, L40S",
        "NVIDIA/nccl-tests issue 332",
    ),
    variants=variants,
    clues=clues,
    settings=frozenset({"NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE"}),
)
