"""Operators of a training step under their GPU's roof: FLOP, bytes and s of each."""

from __future__ import annotations

from dataclasses import dataclass

from commsim.units import BytesPerSecond, Seconds
from commsim.workload import compute, operations
from commsim.workload.operations import Matmul, Work
from commsim.workload.passes import Setting
from commsim.workload.step import StepPrediction, setting
from commsim.workload.trust import tags_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One kind of product of a layer: FLOP, bytes that it must read and write once, and s."""

    name: str
    flops: float
    nbytes: float
    duration: Seconds

    @property
    def intensity(self) -> float:
        """FLOP for each byte."""
        return self.flops / self.nbytes

    @property
    def rate(self) -> float:
        """FLOP/s reached."""
        return self.flops / self.duration


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """sheet: the data sheet's dense FLOP/s; reached: the best product's with the profile; memory:
    the data sheet's bytes/s."""

    gpu: str
    sheet: float
    reached: float
    memory: BytesPerSecond
    operators: tuple[Operator, ...]


def roofline(step: StepPrediction) -> Roofline:
    """Products and attention of every kind of layer, forward and backward, of one micro-batch.

    bytes: both inputs read and the result written once, (m k + k n + m n) x element; attention's
    core reads queries, keys and values and writes the result. Ignored: caches, what is read twice.
    """
    values = step.profile.values(tags_of(step.cluster, step.layout))
    s = setting(step.model, step.cluster, step.layout, values)
    found: dict[str, Operator] = {}
    for number, (layer, _) in enumerate(step.model.stacks):
        work = operations.forward(layer, step.model.hidden, s.shape)
        back = operations.backward(work)
        kind = f" (layer kind {number + 1})" if len(step.model.stacks) > 1 else ""
        for direction, each in (("forward", work), ("backward", back)):
            for operator in _operators(each, s, direction == "backward", f"{direction}{kind}"):
                found.setdefault(operator.name, operator)
    device = s.device
    return Roofline(
        gpu=step.cluster.gpu.name, sheet=compute.sheet_rate(step.cluster.gpu, step.layout.dtype),
        reached=device.ceiling8 * values["matmul8"] if s.narrow
        else device.ceiling * values["matmul"],
        memory=step.cluster.gpu.memory_bandwidth, operators=tuple(found.values()),
    )  # fmt: skip


def _operators(work: Work, s: Setting, backward: bool, words: str) -> list[Operator]:
    rows = [
        Operator(
            name=f"{'grouped ' * p.grouped}product {p.m:.0f} x {p.n:.0f} x {p.k:.0f}, {words}",
            flops=p.flops, nbytes=_bytes(p, s),
            duration=compute.product_seconds(p, s.device, s.values, s.narrow),
        )
        for p in work.matmuls
    ]  # fmt: skip
    fused = s.framework.fused_attention
    for core in work.cores:
        seen = core.seen if fused else 1.0
        flops = core.flops * seen * ((2.5 if fused else 2.0) if backward else 1.0)
        lines = core.batch * (
            core.heads * core.queries * (core.width + core.value)
            + core.kv_heads * core.keys * (core.width + core.value)
        )
        rows.append(
            Operator(
                name=f"attention {core.queries:.0f} x {core.keys:.0f}, {words}", flops=flops,
                nbytes=lines * s.shape.bytes * (2 if backward else 1),
                duration=compute.core_seconds(core, s.device, s.values, fused, backward),
            )
        )  # fmt: skip
    return rows


def _bytes(p: Matmul, s: Setting) -> float:
    narrow = 1 if s.narrow and p.narrow else s.shape.bytes
    return p.count * ((p.m * p.k + p.k * p.n) * narrow + p.m * p.n * s.shape.bytes)
