"""How PyTorch, NCCL and their tools call operations and element types, and how commsim does.

Sources: PyTorch 2.13, torch/csrc/profiler/util.h and torch/csrc/distributed/c10d (names of
collectives in the metadata, of scalar types); NCCL 2.27, src/device/generate.py (kernels' names).
"""

from __future__ import annotations

import re
from functools import lru_cache

from commsim.collectives.collective import DTYPES
from commsim.traces.recording import RECEIVE, SEND
from commsim.units import Bytes

OPERATIONS = {
    "allreduce": "all_reduce", "allreducesparse": "all_reduce", "allreducecoalesced": "all_reduce",
    "allgather": "all_gather", "allgatherbase": "all_gather", "allgathersingle": "all_gather",
    "allgatherintotensor": "all_gather", "allgathercoalesced": "all_gather",
    "allgatherintotensorcoalesced": "all_gather", "allgathersinglecoalesced": "all_gather",
    "allgatherv": "all_gather",
    "reducescatter": "reduce_scatter", "reducescatterbase": "reduce_scatter",
    "reducescatterv": "reduce_scatter", "reducescattertensor": "reduce_scatter",
    "reducescattersingle": "reduce_scatter", "reducescattertensorcoalesced": "reduce_scatter",
    "reducescattersinglecoalesced": "reduce_scatter", "reducescatterblock": "reduce_scatter",
    "alltoall": "all_to_all", "alltoallv": "all_to_all", "alltoallbase": "all_to_all",
    "alltoallsingle": "all_to_all",
    "broadcast": "broadcast", "broadcastoop": "broadcast", "reduce": "reduce",
    "reduceoop": "reduce", "gather": "gather", "scatter": "scatter", "barrier": "barrier",
    "send": SEND, "recv": RECEIVE, "recvanysource": RECEIVE, "sendrecv": "send_recv",
}  # fmt: skip
SCALARS = {
    "float": "float32", "double": "float64", "half": "float16", "bfloat16": "bfloat16",
    "char": "int8", "signedchar": "int8", "byte": "uint8", "unsignedchar": "uint8",
    "short": "int16", "int": "int32", "unsignedint": "uint32", "long": "int64", "longint": "int64",
    "longlong": "int64", "unsignedlong": "uint64", "bool": "bool", "float8_e4m3fn": "float8_e4m3fn",
    "float8_e5m2": "float8_e5m2", "complexfloat": "complex64", "c10::half": "float16",
    "c10::bfloat16": "bfloat16", "c10::float8_e4m3fn": "float8_e4m3fn",
    "c10::float8_e5m2": "float8_e5m2", "uint32": "uint32", "uint64": "uint64",
    "f32": "float32", "f64": "float64", "f16": "float16", "bf16": "bfloat16", "i8": "int8",
    "u8": "uint8", "i32": "int32", "u32": "uint32", "i64": "int64", "u64": "uint64",
    "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2",
}  # fmt: skip
KERNEL = re.compile(r"(?:nccl|rccl)(?:Dev)?Kernel_?(?P<rest>\w*)")
KERNEL_OPERATION = re.compile(
    r"(AllReduce|AllGather|ReduceScatter|AllToAll|Broadcast|SendRecv|Reduce)(?![a-z])"
)
REDUCTION = re.compile(r"_(Sum|Prod|Min|Max|MinMax|PreMulSum|SumPostDiv|Avg)_")
REDUCE_OPS = {"sum": "sum", "prod": "prod", "min": "min", "max": "max", "avg": "avg",
              "sumpostdiv": "avg"}  # fmt: skip
NOT_LETTERS = re.compile(r"[^a-z]")


@lru_cache(maxsize=4096)
def operation(text: str) -> str | None:
    """commsim's name of "_allgather_base", "c10d::allreduce_", "nccl:all_gather" or "AllReduce";
    None where there is none ("wait", "coalesced")."""
    name = text.rsplit(":", 1)[-1].split(" ")[0]
    return OPERATIONS.get(NOT_LETTERS.sub("", name.lower()))


@lru_cache(maxsize=1024)
def dtype(text: str) -> str:
    """torch's name of a scalar type ("Float", "c10::BFloat16", "Tensor(float)"); other types travel
    as bytes, "uint8"."""
    plain = text.strip().lower().removeprefix("tensor(").removesuffix(")").replace(" ", "")
    plain = plain.removeprefix("torch.")
    found = SCALARS.get(plain, plain)
    return found if found in DTYPES else "uint8"


@lru_cache(maxsize=4096)
def is_communication(kernel: str) -> bool:
    """Whether a GPU kernel of that name is NCCL's or RCCL's."""
    return KERNEL.search(kernel) is not None


@lru_cache(maxsize=4096)
def of_kernel(kernel: str) -> tuple[str | None, str | None, str]:
    """Operation, element type and reduction that a kernel's name tells; None where it does not.

    The algorithm and protocol in the name are those of the launch stub, not of the operation.
    """
    match = KERNEL.search(kernel)
    rest = match["rest"] if match else ""
    named = KERNEL_OPERATION.search(rest)
    found = operation(named[1]) if named else None
    typed = next((SCALARS[w] for w in rest.split("_") if w in SCALARS and w[-1].isdigit()), None)
    reduction = REDUCTION.search(rest)
    return found, typed, REDUCE_OPS.get(reduction[1].lower(), "sum") if reduction else "sum"


def size(operation: str, sent: int, received: int, n: int, dtype: str) -> Bytes:
    """Bytes as Collective counts them, of elements that one rank of n puts in and gets out."""
    n = max(n, 1)
    elements = {
        "all_gather": received or sent * n,
        "gather": max(received, sent * n),
        "reduce_scatter": sent or received * n,
        "scatter": max(sent, received * n),
        "barrier": 0,
        RECEIVE: received or sent,
    }.get(operation, sent or received)
    return elements * DTYPES[dtype]
