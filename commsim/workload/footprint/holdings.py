"""What the ranks of one pipeline stage hold at each moment of a step, in bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from commsim.workload.footprint import activations
from commsim.workload.footprint.activations import LayerActivations
from commsim.workload.footprint.keeping import Keeping
from commsim.workload.layer import Layer
from commsim.workload.layout import Layout
from commsim.workload.layouts import shares
from commsim.workload.layouts.groups import groups
from commsim.workload.layouts.shares import Share
from commsim.workload.layouts.stages import Contents
from commsim.workload.model import Model


class Moment(NamedTuple):
    """Bytes of tensors at one moment, by what they are for. cached: held by the allocator besides,
    from tensors that do not fit into what others left."""

    name: str
    parameters: float = 0.0
    gradients: float = 0.0
    optimizer: float = 0.0
    activations: float = 0.0
    logits: float = 0.0
    buffers: float = 0.0
    cached: float = 0.0

    @property
    def allocated(self) -> float:
        """Bytes of all tensors."""
        return sum(self[1:7])


class Holdings(NamedTuple):
    """The moments of a stage's step. per_flight: bytes that each micro-batch in flight adds to the
    first of them, in each of the stage's chunks."""

    moments: tuple[Moment, Moment, Moment]
    per_flight: float


class _Sizes(NamedTuple):
    """Parameters of a stage: all; of its largest layer, of the model's ends on it, of its largest
    tensor. Bytes of its activations: of one micro-batch; of the layer that takes most at work."""

    share: Share
    unit: float
    root: float
    largest: float
    stored: float
    working: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What the stages of a run have in common."""

    model: Model
    layout: Layout
    kept: Keeping
    shards: int
    expert_shards: int
    layers: dict[Layer, tuple[Share, LayerActivations]]
    ends: tuple[Share, Share]

    @classmethod
    def of(cls, model: Model, layout: Layout, kept: Keeping) -> Run:
        """The run of a model in a layout."""
        ranks = groups(layout)
        layers = {
            layer: (
                shares.of_layer(model, layer, layout),
                activations.of_layer(layer, model.hidden, layout),
            )
            for layer, _ in model.kinds
        }
        return cls(
            model=model,
            layout=layout,
            kept=kept,
            shards=ranks.size("shard"),
            expert_shards=ranks.size("expert_shard"),
            layers=layers,
            ends=shares.of_ends(model, layout),
        )

    def _states(self, dense: float, expert: float, nbytes: float, spread: bool) -> float:
        """Of so many parameters, at `nbytes` each, spread over their shard groups or not."""
        if spread:
            return nbytes * (dense / self.shards + expert / self.expert_shards)
        return nbytes * (dense + expert)

    def holdings(self, contents: Contents) -> Holdings:
        """What a stage of these contents holds."""
        layout, kept, sizes = self.layout, self.kept, self._sizes(contents)
        zero, share = layout.zero_stage, sizes.share
        trained = (share.trained_dense, share.trained_expert)
        weights = self._states(share.dense, share.expert, kept.weight, zero == 3)
        optimizer = self._states(*trained, kept.optimizer, zero >= 1)
        step = self._states(*trained, kept.step, zero >= 1)
        gradients = self._states(*trained, kept.gradient, zero >= 2)
        repeated = layout.micro_batches > 1
        whole = kept.accumulated * sum(trained) if repeated else 0.0
        gathered, reduced = self._buffers(sizes)
        logits = self._logits() if contents.head else 0.0
        forward = Moment(
            "forward",
            parameters=weights,
            gradients=whole or (gradients if kept.resident or repeated else 0.0),
            optimizer=optimizer,
            activations=max(0.0, sizes.working - logits),
            logits=logits,
            buffers=gathered,
            cached=self._states(*trained, kept.flat, zero >= 1),
        )
        backward = Moment(
            "backward",
            parameters=weights,
            gradients=whole or gradients,
            optimizer=optimizer,
            activations=sizes.stored / max(1, contents.n_layers) + sizes.working,
            buffers=reduced,
        )
        update = Moment(
            "step",
            parameters=weights,
            gradients=gradients,
            optimizer=optimizer + step,
            buffers=kept.besides,
        )
        return Holdings((forward, backward, update), sizes.stored / contents.chunks)

    def _sizes(self, contents: Contents) -> _Sizes:
        model, layout = self.model, self.layout
        share, unit, stored, working = Share(), 0.0, 0.0, 0.0
        for layer, count in contents.layers:
            held, acts = self.layers[layer]
            share = share.plus(held, count)
            unit = max(unit, held.total)
            stored += acts.kept * count
            redone = acts.whole - (acts.kept if layout.recompute == "selective" else 0.0)
            if layout.recompute == "none":
                redone = 0.0
            working = max(working, redone + acts.gradients)
        width = 4.0 if layout.dtype == "float32" else 2.0
        hidden = width * layout.micro_batch * layout.seq_len / layout.cp * model.hidden
        root = 0.0
        largest = unit / 3  # of a layer's dozen matrices the largest holds about a third
        for end, times in zip(self.ends, (contents.embedding, contents.head), strict=True):
            if times:
                share = share.plus(end, times)
                root += end.total * times
                largest = max(largest, end.total)
        if contents.head and model.vocab:  # the last norm's input and output
            stored += 2 * hidden / (layout.tp if layout.sequence_parallel else 1)
        if self.kept.outputs and layout.pp > 1:
            stored += hidden * contents.chunks
        for part in model.parts:
            stored += width * part.activations * layout.micro_batch
        return _Sizes(share, unit, root, largest, stored, working)

    def _buffers(self, sizes: _Sizes) -> tuple[float, float]:
        """After the forward pass, and in the backward pass.

        Fully sharded weights are gathered a layer at a time: the one at work, the next one and the
        buffer it arrives in; those outside of layers stay (PyTorch FSDP, Zhao et al. 2023,
        arXiv:2304.11277, section 4.1). Backward, gradients of a layer and of the one before are
        on their way.
        """
        kept, unit, root = self.kept, sizes.unit, sizes.root
        besides = kept.besides + kept.cast * sizes.largest
        zero = self.layout.zero_stage
        if not kept.gathered or zero < 2 or self.layout.world == 1:
            return besides, besides
        if zero == 2:
            return besides, besides + kept.reduced * 2 * unit
        forward = min(root + 3 * unit, kept.live)
        backward = min(root + 2 * unit, kept.live) + min(root + unit, kept.live)  # its gradients
        return (
            besides + kept.gathered * forward,
            besides + kept.gathered * backward + kept.reduced * max(root, 2 * unit),
        )

    def _logits(self) -> float:
        model, layout = self.model, self.layout
        if not (model.head and model.vocab):
            return 0.0
        tokens = layout.micro_batch * layout.seq_len / layout.cp * (1 + model.mtp)
        ways = layout.tp if self.kept.vocab_parallel else 1
        return self.kept.logits * tokens * model.vocab / ways
