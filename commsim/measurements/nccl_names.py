"""How NCCL's log writes algorithms, protocols and operations, and how commsim does."""

from __future__ import annotations

ALGORITHMS = ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
PROTOCOLS = ("LL", "LL128", "Simple")
_ALGORITHM = {name.replace("_", ""): name for name in ALGORITHMS}
_PROTOCOL = {name.lower(): name for name in PROTOCOLS}
OPERATIONS = {
    "Broadcast": "broadcast", "Reduce": "reduce", "AllGather": "all_gather",
    "ReduceScatter": "reduce_scatter", "AllReduce": "all_reduce",
}  # fmt: skip


def algorithm(text: str) -> str:
    """`collnet_direct` of CollNetDirect, COLLNET_DIRECT or 2; a name not known stays."""
    text = text.strip()
    if text.isdecimal() and int(text[:4]) < len(ALGORITHMS):
        return ALGORITHMS[int(text[:4])]
    return _ALGORITHM.get(text.replace("_", "").lower(), text)


def protocol(text: str) -> str:
    """`Simple` of SIMPLE, Simple or 2; a name not known stays."""
    text = text.strip()
    if text.isdecimal() and int(text[:4]) < len(PROTOCOLS):
        return PROTOCOLS[int(text[:4])]
    return _PROTOCOL.get(text.lower(), text)
