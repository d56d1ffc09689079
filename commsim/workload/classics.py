"""Data-parallel training of the models that papers measure: what bucketing and overlap are worth.

A model becomes pieces, one a parameter tensor, each with its share of the time that one GPU takes:

    share = what the roofline says (compute.py); of a transformer's, FLOP / ceiling

of its part of the forward pass (backward: twice that, of frozen ones once; and once more where all
is recomputed), so that gradients are there when they would be. The pieces go through an overlap
schedule; collectives take what `predict` says, and hold an SM for each of their channels, which
compute beside them does without. What is exposed comes out. Neglected: compute that waits for HBM,
for which collectives compete as well, and the host's time to launch kernels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from commsim.collectives.collective import DTYPES, Collective, bus_factor
from commsim.libraries.library import Library
from commsim.prediction import Prediction, predict
from commsim.topology.cluster import Cluster
from commsim.units import Bytes, Seconds
from commsim.workload.compute import Device, device, seconds
from commsim.workload.contention import Gpu, communicating, computing
from commsim.workload.layer import Layer
from commsim.workload.layout import Layout
from commsim.workload.listed import of_part
from commsim.workload.model import Model, Tensor
from commsim.workload.overlap import Overlap, Parameter, Piece, Step
from commsim.workload.overlaps.ddp_buckets import DdpBuckets
from commsim.workload.overlaps.fused import Fused
from commsim.workload.overlaps.per_parameter import PerParameter
from commsim.workload.streams import Spans, Task, play
from commsim.workload.trust import shipped, tags_of

SCHEDULES: Mapping[str, Overlap] = {
    "per parameter": PerParameter(),
    "fused": Fused(),
    "bucketed": DdpBuckets(),
}


SMS = 100  # of a GPU whose data sheet does not say


@dataclass(frozen=True, slots=True)
class _Share:
    """A piece before its time is known: s of its forward by the roofline."""

    name: str
    tensors: tuple[Tensor, ...]
    seconds: float

    @property
    def backward(self) -> int:
        """Times the forward: the input's gradient, and the weight's where it is not frozen."""
        return 1 if self.tensors and not any(t.trained for t in self.tensors) else 2


def step_of(
    model: Model,
    cluster: Cluster,
    batch: int,
    seq_len: int = 1,
    one_gpu: Seconds | None = None,
    dtype: str = "float32",
    recompute: bool = False,
) -> Step:
    """The step of one rank on a batch of `batch` samples.

    one_gpu: s that one GPU alone takes for it, as measured (None: the roofline's; of a transformer
    at the device's full rates, which no real step reaches). dtype: of the gradients. recompute:
    activations are computed again.
    """
    values = shipped().values(tags_of(cluster, Layout(framework="ddp", dtype="float16")))
    shares = list(_shares(model, device(cluster.gpu), values, batch, seq_len))
    backwards = [share.backward + recompute for share in shares]
    factor = 1.0
    if one_gpu is not None:
        every = zip(shares, backwards, strict=True)
        factor = one_gpu / sum(share.seconds * (1 + back) for share, back in every)
    return Step(
        pieces=tuple(
            Piece(
                name=share.name,
                forward=share.seconds * factor,
                backward=back * share.seconds * factor,
                parameters=tuple(
                    Parameter(name=t.name, shape=t.shape, dtype=dtype)
                    for t in share.tensors
                    if t.trained
                ),
            )
            for share, back in zip(shares, backwards, strict=True)
        )
    )


@dataclass(frozen=True, eq=False)
class Group:
    """All ranks of a cluster, or some, as data-parallel peers: what their collectives take."""

    cluster: Cluster
    ranks: tuple[int, ...] | None = None
    library: Library | None = None
    _found: dict[tuple[str, Bytes], Prediction] = field(default_factory=dict, repr=False)

    def prediction(self, operation: str, nbytes: Bytes) -> Prediction:
        """What `predict` says of it."""
        key = operation, nbytes
        if key not in self._found:
            collective = Collective(operation, nbytes=nbytes, dtype="uint8", ranks=self.ranks)
            self._found[key] = predict(collective, self.cluster, self.library)
        return self._found[key]

    def cost(self, operation: str, nbytes: Bytes) -> Seconds:
        """s of an operation."""
        return self.prediction(operation, nbytes).duration if nbytes else 0.0

    def play(self, tasks: Sequence[Task]) -> Spans:
        """When each task runs, compute and collectives sharing the GPU."""
        part = self.cluster.gpu
        gpu = Gpu(
            sms=float(part.sms or SMS), memory=part.memory_bandwidth, wires=(("wire", math.inf),)
        )
        return play([self._sharing(task, gpu) for task in tasks], gpu.capacity)

    def _sharing(self, task: Task, gpu: Gpu) -> Task:
        if not task.nbytes:
            return computing(task, gpu)
        p = self.prediction(task.kind, task.nbytes)
        sent = task.nbytes * bus_factor(task.kind, p.n_ranks)
        return communicating(task, gpu, p.channels, int(sent), "wire")


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One step under several schedules. alone: s without any communication."""

    alone: Seconds
    spans: Mapping[str, Spans]

    def duration(self, schedule: str) -> Seconds:
        """s of the step under a schedule."""
        return self.spans[schedule].duration

    def gain(self, of: str, over: str) -> float:
        """How many times as fast a step is under `of` as under `over`."""
        return self.duration(over) / self.duration(of)

    def hidden(self, schedule: str) -> float:
        """Share of the communication that runs beside compute."""
        spans = self.spans[schedule]
        total = sum(t.duration for t in spans.tasks if t.nbytes)
        return 1 - sum(spans.exposed().values()) / total if total else 1.0


def compare(step: Step, group: Group, schedules: Mapping[str, Overlap] = SCHEDULES) -> Comparison:
    """The step under every schedule."""
    alone = step.micro_batches * sum(p.forward + p.backward for p in step.pieces) + step.optimizer
    spans = {name: group.play(how.tasks(step, group.cost)) for name, how in schedules.items()}
    return Comparison(alone=alone, spans=spans)


def _shares(
    model: Model, d: Device, values: Mapping[str, float], batch: int, seq_len: int
) -> Iterator[_Share]:
    if model.kind == "list":
        for part in model.parts:
            work = of_part(part, batch, DTYPES["float16"])
            spent = seconds(work, d, values, narrow=False, fused=False, backward=False)
            yield _Share(part.name, part.tensors, spent.total)
        return
    tensors = list(model.tensors())
    named = {f"layers.{i}": layer for i, layer in enumerate(model.layers)}
    tokens = float(batch * seq_len)
    for tensor in tensors:
        layer = named.get(".".join(tensor.name.split(".")[:2]))
        flops = _flops(tensor, layer, tokens, seq_len)
        yield _Share(tensor.name, (tensor,), flops / d.ceiling)
    if model.tied and model.head:  # its gradient is whole only when the embedding's is there
        flops = 2.0 * tokens * model.hidden * model.vocab
        yield _Share("head", (), flops / d.ceiling)


def _flops(tensor: Tensor, layer: Layer | None, tokens: float, seq_len: int) -> float:
    """FLOP of forward that a tensor's product does; attention's core goes with its output."""
    if len(tensor.shape) < 2 or tensor.name.startswith("embed"):
        return 0.0
    flops = 2.0 * tokens * tensor.numel
    if layer is None:
        return flops
    if tensor.split == "expert":
        return flops * layer.met(tensor.numel) / tensor.numel
    if layer.attention and tensor.name.endswith("o_proj.weight"):
        flops += layer.attention.core_flops(tokens, seq_len, causal_half=False)
    return flops
