"""A mapping of ranks as launchers and frameworks take it.

hostfile    a line for each rank, its machine: Slurm's SLURM_HOSTFILE with srun
            --distribution=arbitrary, Open MPI's --hostfile with --map-by seq
torch       a DeviceMesh with the global ranks at their places in the layout, or new_group calls
ranks       the physical rank of logical rank 0, 1, 2 ...
"""

from __future__ import annotations

from collections.abc import Sequence

from commsim.errors import PlanError, UnknownNameError
from commsim.planning.placement import Mapping, Traffic
from commsim.planning.space import DP_BEFORE_PP, PP_BEFORE_DP
from commsim.topology.cluster import Cluster
from commsim.workload.layout import Layout

FORMATS = ("hostfile", "torch", "ranks")
DIMENSIONS = ("pp", "dp", "cp", "tp")  # the slowest first, as a tensor's axes
NUMBERS = 16  # of a list in a line
OWN, SWAPPED = "no flag: its own order", "--use-tp-pp-dp-mapping"


def written(
    form: str,
    mapping: Mapping,
    cluster: Cluster,
    layout: Layout | None = None,
    traffic: Sequence[Traffic] = (),
    hosts: Sequence[str] | None = None,
) -> str:
    """The text of one of FORMATS. layout: whose dimensions torch's mesh has; traffic: the groups,
    where there is none. hosts: names of the machines in order (None: node0, node1 ...)."""
    if form == "ranks":
        return _listed(mapping.ranks, "") + "\n"
    if form == "hostfile":
        return "".join(f"{name}\n" for name in _hosts(mapping, cluster, hosts))
    if form == "torch":
        return _mesh(mapping, layout) if layout is not None else _groups(mapping, traffic)
    raise UnknownNameError("format of a mapping", form, FORMATS)


def megatron(order: str, layout: Layout) -> str:
    """What Megatron-LM is told for an order of the dimensions; "" for one that it has no flag for.

    The second order goes without cp and ep (megatron-bridge 0.3.1, training/config.py).
    """
    if _wide(order, layout) == _wide(DP_BEFORE_PP, layout):
        return OWN
    apart = layout.cp == layout.ep == 1
    return SWAPPED if apart and _wide(order, layout) == _wide(PP_BEFORE_DP, layout) else ""


def _wide(order: str, layout: Layout) -> list[str]:
    return [name for name in order.split("-") if getattr(layout, name) > 1]


def devices(mapping: Mapping, cluster: Cluster) -> tuple[int, ...] | None:
    """Which GPU of its machine each logical rank is to take; None where launchers give it so by
    themselves: a machine's ranks in order to its GPUs in order."""
    local = tuple(rank % cluster.gpus_per_node for rank in mapping.ranks)
    taken: dict[int, int] = {}
    for rank, gpu in zip(mapping.ranks, local, strict=True):
        host = rank // cluster.gpus_per_node
        if taken.setdefault(host, 0) != gpu:
            return local
        taken[host] += 1
    return None


def _hosts(mapping: Mapping, cluster: Cluster, hosts: Sequence[str] | None) -> list[str]:
    names = list(hosts or (f"node{i}" for i in range(cluster.nodes)))
    if len(names) != cluster.nodes:
        raise PlanError(
            f"placement: hosts: expected {cluster.nodes} names, one a machine, got {len(names)}"
        )
    return [names[rank // cluster.gpus_per_node] for rank in mapping.ranks]


def _mesh(mapping: Mapping, layout: Layout) -> str:
    wide = [name for name in DIMENSIONS if getattr(layout, name) > 1] or ["dp"]
    shape = ", ".join(str(getattr(layout, name)) for name in wide)
    names = ", ".join(f'"{name}"' for name in wide) + ("," if len(wide) == 1 else "")
    return (
        "import torch\n"
        "from torch.distributed.device_mesh import DeviceMesh\n\n"
        f"ranks = torch.tensor([\n{_listed(mapping.ranks, '    ')},\n])\n"
        f'mesh = DeviceMesh("cuda", ranks.view({shape}), mesh_dim_names=({names}))\n'
    )


def _groups(mapping: Mapping, traffic: Sequence[Traffic]) -> str:
    lines = ["import torch.distributed as dist\n"]
    for one in traffic:
        placed = [[mapping.ranks[rank] for rank in group] for group in one.groups]
        lines.append(f"{one.kind} = [dist.new_group(ranks) for ranks in {placed}]")
    return "\n".join(lines) + "\n"


def _listed(ranks: Sequence[int], indent: str) -> str:
    lines = [ranks[i : i + NUMBERS] for i in range(0, len(ranks), NUMBERS)]
    return ",\n".join(indent + ", ".join(map(str, line)) for line in lines)
