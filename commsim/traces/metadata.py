"""What PyTorch writes about an operation of NCCL: the arguments of record_param_comms and kernels.

Source: PyTorch 2.13, torch/csrc/profiler/util.h (the names of the arguments).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from commsim.traces import call_names as names
from commsim.traces.recording import MOST_RANKS, RECEIVE, SEND, Call, Group

NAME = "Collective name"
Arguments = Mapping[str, Any]


def number(value: Any) -> int | None:
    """An int of a JSON number or text; None where it is none."""
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return None


def ranks_of(value: Any) -> tuple[int, ...]:
    """The ranks of "[0, 1, 2]" or a list; () where they are not all there ("[0, 1, ..., 7]")."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return ()
    if not isinstance(value, list):
        return ()
    found = [number(v) for v in value]
    whole = tuple(v for v in found if v is not None and v >= 0)
    return whole if len(whole) == len(found) and len(set(whole)) == len(whole) else ()


def group_of(arguments: Arguments) -> Group | None:
    """The process group that an operation names."""
    name = arguments.get("Process Group Name")
    size = number(arguments.get("Group size")) or 0
    if name is None and size <= 0:
        return None
    ranks = ranks_of(arguments.get("Process Group Ranks"))
    first = number(arguments.get("Global rank start"))
    stride = number(arguments.get("Global rank stride"))
    if (
        len(ranks) != size
        and first is not None
        and stride
        and first >= 0
        and 0 < size <= MOST_RANKS
    ):
        ranks = tuple(range(first, first + size * stride, stride))
    return Group(
        name=str(name if name is not None else ""), ranks=ranks, size=max(size, 0),
        description=str(arguments.get("Process Group Description", "")),
    )  # fmt: skip


def call_of(arguments: Arguments, kernel: str = "") -> Call | None:
    """What an operation was asked to do; None where the arguments do not name one."""
    operation = names.operation(str(arguments.get(NAME, "")))
    if operation is None:
        return None
    dtype = names.dtype(str(arguments.get("dtype", "")))
    sent = number(arguments.get("In msg nelems"))
    received = number(arguments.get("Out msg nelems"))
    n = number(arguments.get("Group size")) or len(ranks_of(arguments.get("Process Group Ranks")))
    nbytes = None
    if sent is not None or received is not None or operation == "barrier":
        nbytes = names.size(operation, max(0, sent or 0), max(0, received or 0), n, dtype)
    peer = {SEND: arguments.get("Dst Rank"), RECEIVE: arguments.get("Src Rank")}.get(operation)
    asynchronous = arguments.get("Is asynchronized op")
    return Call(
        operation=operation, nbytes=nbytes, dtype=dtype,
        group=str(arguments.get("Process Group Name", "")),
        sequence=_or(number(arguments.get("Seq")), -1), peer=number(peer),
        reduce_op=names.of_kernel(kernel)[2], uneven=_uneven(arguments),
        blocking=None if asynchronous is None else str(asynchronous).lower() in ("0", "false"),
    )  # fmt: skip


def _uneven(arguments: Arguments) -> bool:
    """Whether the splits of an all_to_all differ."""
    for name in ("In split size", "Out split size"):
        splits = ranks_like(arguments.get(name))
        if len(set(splits)) > 1:
            return True
    return False


def ranks_like(value: Any) -> tuple[int, ...]:
    """The whole numbers of "[4, 0, 4]"; () where it is anything else."""
    try:
        found = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return ()
    return tuple(v for v in found if isinstance(v, int)) if isinstance(found, list) else ()


def _or(value: int | None, default: int) -> int:
    return default if value is None else value
