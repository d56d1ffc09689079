"""Consecutive layers of a pipeline stage: what one micro-batch costs in them, what a rank holds."""

from __future__ import annotations

from dataclasses import dataclass, replace

from commsim.workload import bucketing, ends, exchange, passes
from commsim.workload.exchange import Unit
from commsim.workload.layer import Layer
from commsim.workload.layout import Layout
from commsim.workload.layouts import shares
from commsim.workload.layouts.shares import Share
from commsim.workload.layouts.stages import Chunk
from commsim.workload.listed import listed
from commsim.workload.model import Model
from commsim.workload.operations import Matmul, Work
from commsim.workload.passes import Pass, Setting


@dataclass(frozen=True, slots=True, eq=False)
class ChunkCost:
    """forward, backward: of one micro-batch, with what ZeRO-3 adds; share: parameters of one rank;
    units: its layers and ends, equal ones once with their number; first: it has the embedding."""

    forward: Pass
    backward: Pass
    share: Share
    units: tuple[tuple[int, Share, Layer | None], ...]
    first: bool

    @property
    def layers(self) -> int:
        """How many layers and ends."""
        return max(1, sum(count for count, _, _ in self.units))

    def pieces(
        self, model: Model, layout: Layout, size: float | None = None
    ) -> tuple[float, float]:
        """Buckets of its dense gradients and of its experts'; of this size instead of the
        framework's own, but for chunks that it never cuts."""
        full = bucketing.bucket_size(layout, self.first)
        if size is not None and full < float("inf"):
            full = size

        def buckets(expert: bool) -> float:
            found = 0.0
            for count, share, layer in self.units:
                sizes = bucketing.trained(model, layer, share, layout.ep, expert)
                found += count * bucketing.buckets_of(sizes, full)
            return max(1.0, found)

        return buckets(False), buckets(True)


def chunk_cost(
    model: Model, layout: Layout, s: Setting, chunk: Chunk, made: dict[object, ChunkCost]
) -> ChunkCost:
    """The cost of a chunk; equal chunks are worked out once, in `made`."""
    within = kinds(model, chunk.first, chunk.stop)
    key = within, chunk.embedding, chunk.head
    found = made.get(key)
    if found is None:
        found = made[key] = _cost(model, layout, s, within, chunk)
    return found


def kinds(model: Model, first: int, stop: int) -> tuple[tuple[Layer, int], ...]:
    """The layers from first to before stop, equal neighbours together."""
    found, at = [], 0
    for layer, count in model.stacks:
        inside = min(at + count, stop) - max(at, first)
        if inside > 0:
            found.append((layer, inside))
        at += count
    return tuple(found)


def _cost(
    model: Model,
    layout: Layout,
    s: Setting,
    within: tuple[tuple[Layer, int], ...],
    chunk: Chunk,
) -> ChunkCost:
    parts: list[tuple[Pass, Pass, int, Share, Layer | None]] = []
    before, after = shares.of_ends(model, layout)
    if chunk.embedding:
        if model.kind == "list":
            first = ends.of_work(listed(model, layout), s, before)
        else:
            first = ends.embedding(model, s, before)
        parts.append((*first, 1, before, None))
    for layer, count in within:
        share = shares.of_layer(model, layer, layout)
        parts.append((*_layer(layer, s, share), count, share, layer))
    if chunk.head and model.kind != "list":
        heads = ends.head(model, s, after)
        if model.mtp:
            layer = model.stacks[-1][0]
            extra = _layer(layer, s, shares.of_layer(model, layer, layout))
            project = Matmul(s.shape.tokens, model.hidden / s.shape.tp, 2 * model.hidden)
            joined = ends.of_work(Work((project,)), s, Share())
            for _ in range(model.mtp):
                heads = tuple(
                    h.plus(e).plus(j).plus(p)
                    for h, e, j, p in zip(
                        heads,
                        extra,
                        joined,
                        ends.head(model, s, Share()),
                        strict=True,
                    )
                )  # type: ignore[assignment]
        parts.append((*heads, 1, after, None))
    ahead = back = Pass()
    units = []
    for f, b, count, share, _ in parts:
        ahead, back = ahead.plus(f, count), back.plus(b, count)
        units.append(Unit(count, f.total, b.total, share))
    if layout.zero_stage == 3 and layout.pp == 1:
        forward, backward = exchange.sharded(units, s, layout)
        ahead = replace(ahead, sent=ahead.sent + forward)
        back = replace(back, sent=back.sent + backward)
    total = Share()
    for unit in units:
        total = total.plus(unit.share, unit.count)
    held = tuple((count, share, kind) for _, _, count, share, kind in parts)
    return ChunkCost(ahead, back, total, held, chunk.embedding)


def _layer(layer: Layer, s: Setting, share: Share) -> tuple[Pass, Pass]:
    forward = passes.forward(layer, s)
    backward = passes.backward(layer, s, forward, share.trained)
    return passes.together(forward, backward, s) if s.paired else (forward, backward)
