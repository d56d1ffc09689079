"""What a chunk's ranks exchange for data parallelism, message by message, as the frameworks cut it.

    ddp      buckets of 25 MiB in the order of backward, the first of 1 MiB (PyTorch)
    others   buckets of as many elements as exchange.py says, or a message for each layer

Experts' gradients lie in buckets of their own, for other ranks reduce them. With ZeRO-3 each unit
is gathered and reduced alone. Neglected: that tensor parallelism leaves some tensors whole.
"""

from __future__ import annotations

from collections.abc import Sequence

from commsim.workload import exchange
from commsim.workload.beats import Unit
from commsim.workload.buckets import Bucket as Filled
from commsim.workload.buckets import fill, megatron_buckets, torch_buckets
from commsim.workload.layout import Layout
from commsim.workload.model import Model
from commsim.workload.overlap import Parameter
from commsim.workload.passes import Sent, Setting
from commsim.workload.step_works import Bucket, Exchanged, Sending

DTYPE = {2: "bfloat16", 4: "float32"}


def buckets(
    model: Model, layout: Layout, s: Setting, units: Sequence[Unit], first: bool
) -> tuple[Bucket, ...]:
    """A chunk's gradients and parameters in the order in which they are reduced (zero_stage 0 to
    2). first: it is the first chunk of the first stage."""
    found = []
    for kind, expert in (("dp", False), ("edp", True)):
        for filled in _filled(layout, _parameters(model, s, units, expert), first):
            ready = min(int(p.name.partition(".")[0]) for p in filled.parameters)
            operation = "reduce_scatter" if layout.zero_stage else "all_reduce"
            reduce = s.messages.of(operation, kind, filled.nbytes)
            gather = None
            if layout.zero_stage:
                gather = s.messages.of("all_gather", kind, filled.numel * s.shape.bytes)
            found.append(Bucket(ready, reduce, gather))
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
    size = exchange.bucket(layout, first)
    if size:
        return megatron_buckets(parameters, size)
    by_unit: dict[str, list[Parameter]] = {}
    for p in parameters:
        by_unit.setdefault(p.name.partition(".")[0], []).append(p)
    return [fill(each, (float("inf"),))[0] for each in by_unit.values()][::-1]


def _parameters(model: Model, s: Setting, units: Sequence[Unit], expert: bool) -> list[Parameter]:
    """What is trained of the units on one rank, named by unit, in order of registration."""
    found = []
    dtype = DTYPE[s.framework.grad_bytes]
    for i, unit in enumerate(units):
        held = unit.share.trained_expert if expert else unit.share.trained_dense
        sizes = [1]
        if unit.layer is not None and model.lora is None:
            tensors = unit.layer.tensors(model.hidden, model.norm)
            sizes = [t.numel for t in tensors if (t.split == "expert") == expert]
        for j, size in enumerate(sizes if held else ()):
            part = round(held * size / sum(sizes))
            found.append(Parameter(name=f"{i}.{j}", shape=(part,), dtype=dtype))
    return found
