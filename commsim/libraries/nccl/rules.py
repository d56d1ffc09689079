"""What NCCL may not use on a machine, by settings, or for a type - each with its reason in words.

Source: NVIDIA NCCL, src/graph/tuning.cc and src/enqueue.cc, releases 2.18.1 to 2.30.7.
"""

from __future__ import annotations

from typing import Final

from commsim.libraries.nccl.constants import (
    LOCAL_RANKS_DIRECT,
    LOCAL_RANKS_NVLS,
    PROTOCOLS,
    Version,
)
from commsim.libraries.nccl.environment import AUTOMATIC, OFF, Settings
from commsim.libraries.nccl.graph import Communicator, Graph, PathType

COLLNET: Final = ("collnet_direct", "collnet_chain")
NVLS: Final = ("nvls", "nvls_tree")
HALVES: Final = ("all_gather", "reduce_scatter")  # the two halves of an all_reduce
DISPLAY: Final = {
    "tree": "Tree", "ring": "Ring", "collnet_direct": "CollNetDirect",
    "collnet_chain": "CollNetChain", "nvls": "NVLS", "nvls_tree": "NVLSTree", "pat": "PAT",
}  # fmt: skip
# Types that the NVLink switch can reduce, by operation (PTX ISA, multimem.red).
_SWITCH_SUM: Final = frozenset(
    ("int32", "uint32", "int64", "uint64", "float16", "bfloat16", "float32", "float64", "complex64")
)
_SWITCH_MIN_MAX: Final = frozenset(("int32", "uint32", "int64", "uint64", "float16", "bfloat16"))


def searched(c: Communicator, algorithm: str) -> Graph | None:
    """The graph that an algorithm runs on."""
    if algorithm == "ring":
        return c.ring
    if algorithm in ("tree", "pat"):
        return c.tree
    if algorithm in NVLS:
        return c.nvls
    return c.collnet_direct if algorithm == "collnet_direct" else c.collnet_chain


def heads(graph: Graph) -> int:
    """GPUs that start a channel of an NVLS or CollNet graph."""
    return len({order[0] for order in graph.orders}) if graph.orders else graph.channels


def nodes_seen(c: Communicator, version: Version) -> int:
    """Nodes as the tuner counts them; 2.20 takes a multi-node NVLink domain for one."""
    return 1 if c.mnnvl and (2, 20, 0) <= version < (2, 21, 0) else c.nodes


def unavailable(c: Communicator, version: Version, settings: Settings, algorithm: str) -> str:
    """Why the machine rules an algorithm out whatever is asked; "" where it does not."""
    nodes = nodes_seen(c, version)
    if algorithm == "nvls_tree" and nodes == 1:
        return "NVLSTree joins several nodes; here is one"
    if algorithm in NVLS and settings.nvls == 0:
        return "NCCL_NVLS_ENABLE=0"
    if algorithm in NVLS and not c.nvls_support:
        if c.min_capability < 90:
            have = c.min_capability / 10
            return f"no NVLink SHARP: compute capability {have:.1f}, 9.0 or more needed"
        if not c.nvswitch:
            return "no NVLink SHARP: no NVSwitch"
        return f"no NVLink SHARP for {c.max_local_ranks} local ranks on this machine"
    if algorithm in NVLS and c.mnnvl and (2, 20, 0) <= version < (2, 21, 0):
        return "NCCL 2.20 has no NVLS on a multi-node NVLink domain"
    if algorithm == "nvls" and nodes > 1 and not c.collnet:
        return f"NVLS over {nodes} nodes needs CollNet (SHARP), which is off"
    if algorithm in COLLNET:
        if not c.collnet:
            return "CollNet (SHARP) is off or not there"
        if algorithm == "collnet_direct" and not c.nvswitch:
            return "CollNetDirect needs an NVSwitch"
        since = (2, 23, 0) if algorithm == "collnet_direct" else (2, 28, 0)
        if c.max_local_ranks > LOCAL_RANKS_DIRECT and version >= since:
            most, here = LOCAL_RANKS_DIRECT, c.max_local_ranks
            return f"{DISPLAY[algorithm]} takes at most {most} ranks a node; here {here}"
    if algorithm == "pat":
        return _no_pat(c, version, settings)
    return ""


def _no_pat(c: Communicator, version: Version, settings: Settings) -> str:
    if c.min_capability < 60 and version >= (2, 26, 0):
        return f"PAT needs compute capability 6.0; here {c.min_capability / 10:.1f}"
    if settings.pat != 2:
        return "" if settings.pat else "NCCL_PAT_ENABLE=0"
    if c.n != c.nodes:
        return (
            f"PAT is for one rank a node; here {c.n} ranks on {c.nodes} node{'s' * (c.nodes > 1)}"
        )
    return ""


def excluded(
    c: Communicator, version: Version, settings: Settings, operation: str, algorithm: str, p: int,
    g: Graph,
) -> str:  # fmt: skip
    """Why settings or the safety of LL128 rule a pair out; "" where they do not."""
    protocol = PROTOCOLS[p]
    if settings.algorithm_state(operation, algorithm) == OFF and not (
        version < (2, 19, 0) and algorithm == "ring" and operation != "all_reduce"
    ):
        return f"NCCL_ALGO={settings.algorithm_text} leaves {DISPLAY[algorithm]} out"
    state = settings.protocol_state(operation, protocol)
    if state == OFF:
        return f"NCCL_PROTO={settings.protocol_text} leaves {protocol} out"
    return _unsafe_ll128(c, version, settings, g) if state == AUTOMATIC else ""


def _unsafe_ll128(c: Communicator, version: Version, settings: Settings, g: Graph) -> str:
    """Why 128-byte stores may arrive out of order here."""
    low, high = c.min_capability, c.max_capability
    if low >= 90 and (2, 27, 0) <= version < (2, 27, 5) and settings.ll128_c2c:
        limit = PathType.P2C
    elif low >= 90 and (version < (2, 27, 5) or settings.ll128_c2c):
        limit = PathType.PXN
    else:
        limit = PathType.PXB
    # 2.27.0 to 2.27.4 and earlier rank P2C before PXN as PathType does; earlier releases know no
    # P2C.
    if g.type_inter > limit:
        return f"LL128 is safe up to {limit.name} between GPU and NIC; here {g.type_inter.name}"
    if g.type_intra > (PathType.NVL if version < (2, 18, 2) else PathType.NVB):
        return f"LL128 needs NVLink between all GPUs of a node; here {g.type_intra.name}"
    if low != high and not (version >= (2, 30, 0) and low >= 90):
        return f"LL128 needs equal GPUs; compute capabilities {low / 10:.1f} to {high / 10:.1f}"
    known = (70, 80, 90) if version < (2, 25, 0) else (70, 80, 90, 100, 120)
    if (low not in known) if version < (2, 27, 0) else low < 70:
        release = f"{version[0]}.{version[1]}"
        return f"NCCL {release} does not trust LL128 on compute capability {low / 10:.1f}"
    return ""


def unsupported(
    c: Communicator, version: Version, operation: str, algorithm: str, dtype: str, reduce_op: str
) -> str:
    """Why the type or the reduction rules an algorithm out; "" where they do not."""
    if algorithm == "pat" and operation == "reduce_scatter" and reduce_op == "avg":
        return "PAT reduce_scatter has no average"
    if algorithm not in NVLS:
        return ""
    if operation in HALVES:
        if version < (2, 27, 0) and c.nodes > 1:
            return f"NVLS {operation} is for one node up to NCCL 2.26"
        if version >= (2, 25, 0):
            most = c.n if version < (2, 27, 0) else c.max_local_ranks
            if most > LOCAL_RANKS_NVLS:
                return f"NVLS {operation} takes at most {LOCAL_RANKS_NVLS} local ranks; here {most}"
    if operation == "all_gather" and not (2, 20, 0) <= version < (2, 22, 0):
        return ""
    listed = _SWITCH_SUM if operation == "all_gather" or reduce_op == "sum" else (
        _SWITCH_MIN_MAX if reduce_op in ("min", "max") else frozenset()
    )  # fmt: skip
    if dtype not in listed:
        return f"the NVLink switch cannot reduce {dtype} with {reduce_op}"
    return ""
