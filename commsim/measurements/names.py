"""How benchmarks call operations, element types and reductions, and how commsim does."""

from __future__ import annotations

import re
from functools import lru_cache

from commsim.collectives.collective import OPERATIONS, REDUCE_OPS

_OPERATIONS = {name.replace("_", ""): name for name in OPERATIONS}
_OPERATIONS |= {
    "allgatherbase": "all_gather", "allgatherintotensor": "all_gather",
    "alltoallsingle": "all_to_all", "bcast": "broadcast", "reducescatterbase": "reduce_scatter",
    "p2p": "send_recv", "reducescattertensor": "reduce_scatter",
    "reducescatterblock": "reduce_scatter",
}  # fmt: skip
TYPES = {
    "half": "float16", "float": "float32", "double": "float64", "char": "int8", "uchar": "uint8",
    "int": "int32", "uint": "uint32", "bf16": "bfloat16", "fp16": "float16", "fp32": "float32",
    "fp64": "float64", "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2",
    "fp8_e4m3": "float8_e4m3fn", "fp8_e5m2": "float8_e5m2", "int8": "int8", "uint8": "uint8",
    "int32": "int32", "uint32": "uint32", "int64": "int64", "uint64": "uint64",
    "bfloat16": "bfloat16", "float16": "float16", "float32": "float32", "float64": "float64",
    "int16": "int16", "float8_e4m3fn": "float8_e4m3fn", "float8_e5m2": "float8_e5m2",
}  # fmt: skip
_NOT_LETTERS = re.compile(r"[^a-z0-9]")
_IN_A_NAME = re.compile(
    r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast|bcast|send_?recv"
)


@lru_cache(maxsize=256)
def operation(text: str) -> str:
    """commsim's name: "alltoall", "AllToAll" and "all_to_all_perf" are "all_to_all"; ValueError."""
    found = _OPERATIONS.get(_NOT_LETTERS.sub("", text.lower()).removesuffix("perf"))
    if found is None:
        raise ValueError(f"an operation ({', '.join(OPERATIONS)}), got {text[:40]!r}")
    return found


def operation_in(file_name: str) -> str | None:
    """The operation that a file is named after, if it is one and only one."""
    found = {operation(word) for word in _IN_A_NAME.findall(file_name.lower().replace("-", "_"))}
    return found.pop() if len(found) == 1 else None


@lru_cache(maxsize=256)
def dtype(text: str) -> str:
    """torch's name of an element type: "half" is "float16"; raises ValueError."""
    found = TYPES.get(text.strip().lower().removeprefix("torch.").removeprefix("nccl"))
    if found is None:
        raise ValueError(f"an element type ({', '.join(sorted(TYPES))}), got {text[:40]!r}")
    return found


@lru_cache(maxsize=256)
def reduce_op(text: str) -> str:
    """sum, prod, min, max or avg; the sum where there is none (or a scaled sum, `mulsum`)."""
    word = text.strip().lower()
    return word if word in REDUCE_OPS else "sum"
