"""What a chunk's ranks exchange for data parallelism, message by message, as the frameworks cut it.

The buckets of bucketing.py, filled in the order of backward (DDP's first one is smaller). Experts'
gradients lie in buckets of their own, for other ranks reduce them. With ZeRO-3 each unit is
gathered and reduced alone. Neglected: that tensor parallelism leaves some tensors whole.
"""

from __future__ import annotations

from collections.abc import Sequence

from commsim.workload import bucketing, exchange
from commsim.workload.buckets import Bucket as Filled
from commsim.workload.buckets import fill, megatron_buckets, torch_buckets
from commsim.workload.layout import Layout
from commsim.workload.model import Model
from commsim.workload.overlap import Parameter
from commsim.workload.passes import Sent, Setting
from commsim.workload.tasks.beats import Unit
from commsim.workload.tasks.works import Bucket, Exchanged, Sending

DTYPE = {2: "bfloat16", 4: "float32"}


def buckets(
    model: Model, layout: Layout, s: Setting, units: Sequence[Unit], first: bool
) -> tuple[Bucket, ...]:
    """What a chunk exchanges once a step, in the order in which it is reduced. first: it is the
    first chunk of the first stage."""
    if layout.zero_stage == 3:  # all reduced when the last gradient is there
        each = enumerate(of_units(layout, s, units))
        return tuple(Bucket(0, i, x.reduces, x.gathers) for i, x in each)[::-1]
    found = []
    operation = "reduce_scatter" if layout.zero_stage else "all_reduce"
    for kind, expert in (("dp", False), ("edp", True)):
        for filled in _filled(layout, _parameters(model, layout, s, units, expert), first):
            unit = min(int(p.name.partition(".")[0]) for p in filled.parameters)
            reduce = s.messages.of(operation, kind, filled.nbytes)
            gathers: tuple[Sending, ...] = ()
            if layout.zero_stage:
                gather = s.messages.of("all_gather", kind, filled.numel * s.shape.bytes)
                gathers = (("dp", gather, 1.0),)
            found.append(Bucket(unit, unit, (("dp", reduce, 1.0),), gathers))
    return tuple(sorted(found, key=lambda b: -b.ready))


def of_units(layout: Layout, s: Setting, units: Sequence[Unit]) -> tuple[Exchanged, ...]:
    """What ZeRO-3 gathers and reduces of each unit of a chunk, once."""
    return tuple(
        Exchanged(*(tuple(map(_sending, part)) for part in exchange.of_unit(u.share, s, layout)))
        for u in units
    )


def _sending(sent: Sent) -> Sending:
    replicas = sent.message.operation == "all_reduce"
    return "replicas" if replicas else "dp", sent.message, sent.count


def _filled(layout: Layout, parameters: list[Parameter], first: bool) -> list[Filled]:
    if not parameters:
        return []
    if layout.framework == "ddp":
        return torch_buckets(parameters)
    size = bucketing.bucket_size(layout, first)
    if size:
        return megatron_buckets(parameters, size)
    by_unit: dict[str, list[Parameter]] = {}
    for p in parameters:
        by_unit.setdefault(p.name.partition(".")[0], []).append(p)
    return [fill(each, (float("inf"),))[0] for each in by_unit.values()][::-1]


def _parameters(
    model: Model, layout: Layout, s: Setting, units: Sequence[Unit], expert: bool
) -> list[Parameter]:
    """What is trained of the units on one rank, named by unit, in order of registration."""
    dtype = DTYPE[s.framework.grad_bytes]
    return [
        Parameter(name=f"{i}.{j}", shape=(round(size),), dtype=dtype)
        for i, unit in enumerate(units)
        for j, size in enumerate(
            bucketing.trained(model, unit.layer, unit.share, layout.ep, expert)
        )
    ]
