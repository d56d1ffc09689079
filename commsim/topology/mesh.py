"""Which GPUs are cabled directly, without a switch, and by how many links."""

from __future__ import annotations

from itertools import combinations

from commsim.topology.parts import GpuPart
from commsim.topology.spec import NodeSpec

# Links between the GPUs of a DGX-1V: two joined quads, each GPU with six links.
# https://images.nvidia.com/content/pdf/dgx1-v100-system-architecture-whitepaper.pdf, figure 4
HYBRID_CUBE_MESH = {
    (0, 1): 1, (0, 2): 1, (0, 3): 2, (0, 4): 2,
    (1, 2): 2, (1, 3): 1, (1, 5): 2,
    (2, 3): 2, (2, 6): 1, (3, 7): 1,
    (4, 5): 1, (4, 6): 1, (4, 7): 2,
    (5, 6): 2, (5, 7): 1, (6, 7): 2,
}  # fmt: skip

# Links between the eight dies of four MI250X: four inside a package, one or two between packages.
# C. Pearson, Interconnect Bandwidth Heterogeneity on AMD MI250x and Infinity Fabric, 2023,
# arXiv:2302.14827, figure 1
MI250X_MESH = {
    (0, 1): 4, (0, 2): 1, (0, 6): 2, (1, 3): 1, (1, 5): 1, (2, 3): 4,
    (2, 4): 2, (3, 7): 1, (4, 5): 4, (4, 6): 1, (5, 7): 1, (6, 7): 4,
}  # fmt: skip


def scale_up_pairs(node: NodeSpec, part: GpuPart) -> dict[tuple[int, int], int]:
    """Links between GPU i and GPU j (i < j) that are cabled directly, without a switch."""
    gpus, kind = node.gpus or 1, node.interconnect
    if gpus < 2 or node.mig:
        return {}
    if kind == "nvlink-pairs":
        return {(i, i + 1): part.link_count for i in range(0, gpus, 2)}
    if kind == "nvlink-mesh":
        if part.link_kind == "nvlink2" and gpus == 8:
            return HYBRID_CUBE_MESH
        each = part.link_count // (gpus - 1)
        if part.link_kind == "nvlink2":
            each = min(each, 2)  # V100 boards join a pair by at most two links
        return dict.fromkeys(combinations(range(gpus), 2), each)
    if kind == "xgmi-mesh":
        hive, pairs = min(part.domain, gpus), {}
        each = max(1, part.link_count // (part.domain - 1))
        for first in range(0, gpus, hive):
            for i, j in combinations(range(hive), 2):
                links = MI250X_MESH.get((i, j), 0) if part.mesh == "mi250x" else each
                if links:
                    pairs[first + i, first + j] = links
        return pairs
    return {}
