"""TEMPORARY: nominal channels of uniform machines until the graph search is in place; to be removed with it."""

from __future__ import annotations

from commsim.libraries.nccl.constants import Version
from commsim.libraries.nccl.graph import Communicator, Graph, PathType, Pattern
from commsim.topology.cluster import Cluster
from commsim.topology.placement import place

_ONE_NODE = {70: (6, 20.0), 80: (12, 20.0), 90: (12, 30.0), 100: (16, 45.0)}
_NVLS = {90: (40.0, 60.0), 100: (80.0, 90.0)}


def communicator(
    cluster: Cluster, ranks: tuple[int, ...] | None, version: Version, env: tuple[tuple[str, str], ...]
) -> Communicator:  # fmt: skip
    """A communicator from known results for common machines."""
    placement = place(cluster, ranks)
    capability = cluster.node.gpus[0].capability
    gen = next((g for g in (100, 90, 80) if capability >= g), 70)
    nodes, local = placement.domains, placement.max_per_domain
    fast = cluster.node.nvswitch is not None or any(k.kind == "nvlink" for k in cluster.node.links)
    intra = PathType.NVL if fast else PathType.SYS
    if local == 1:
        intra = PathType.LOC
    nics = len(cluster.node.nics)
    rate = min((n.rate for n in cluster.node.nics), default=0.0) / 1e9 * 0.96
    if nodes == 1:
        channels, bw = _ONE_NODE[gen] if fast else (1, 20.0)
        tree_bw, out = bw, bw
    else:
        channels = max(1, min(nics, 16))
        bw = out = rate
        tree_bw = rate * (2 if gen >= 100 else 1)
    ring = Graph(
        pattern=Pattern.RING, channels=channels, bw_intra=bw, bw_inter=out, type_intra=intra,
        type_inter=PathType.PIX, same_channels=nodes == 1,
    )  # fmt: skip
    tree = Graph(
        pattern=Pattern.BALANCED_TREE if nodes == 1 or gen < 90 else Pattern.TREE, channels=channels,
        bw_intra=tree_bw, bw_inter=out, type_intra=intra, type_inter=PathType.PIX, same_channels=nodes == 1,
    )  # fmt: skip
    able = gen >= 90 and cluster.node.nvswitch is not None and local > 1
    nvls = None
    if able:
        inside, outside = _NVLS[gen]
        nvls = Graph(
            pattern=Pattern.NVLS, channels=local, bw_intra=inside, bw_inter=outside if nodes == 1 else rate,
            type_intra=intra, type_inter=PathType.PIX, same_channels=False,
        )  # fmt: skip
    total = 2 * channels
    p2p = 1 << (total - 1).bit_length()
    cpu = cluster.node.cpus[0] if cluster.node.cpus else None
    return Communicator(
        n=placement.n, nodes=nodes, max_local_ranks=local, min_local_ranks=placement.min_per_domain,
        min_capability=capability, max_capability=capability, cpu_arch=cpu.arch if cpu else "x86_64",
        cpu_vendor=cpu.vendor if cpu else "intel", cpu_model="", nvswitch=cluster.node.nvswitch is not None,
        ring=ring, tree=tree, nvls=nvls, nvls_support=able, nvls_channels=16 if gen == 90 else 24,
        channels=total, coll_channels=total, p2p_channels=p2p, p2p_channels_per_peer=p2p if nodes == 1 else 2,
        all_nvlink=fast, all_direct_p2p=fast, min_net_bandwidth=rate, nic_count=nics,
        max_bw=channels * bw, total_bw=channels * bw,
    )  # fmt: skip
