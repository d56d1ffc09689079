"""Which layers lie on which pipeline stage, and in which of its chunks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from commsim.workload.layer import Layer
from commsim.workload.layout import Layout
from commsim.workload.model import Model
from commsim.workload.pipeline import pipeline

# What stands at the two ends of a model counts as a layer each where layers are balanced.
_EMBEDDING = _HEAD = 1


@dataclass(frozen=True, slots=True)
class Chunk:
    """Layers `first` to before `stop`, in the model's order; with the embedding or head or not.

    The head's chunk also holds the multi-token-prediction layers.
    """

    first: int
    stop: int
    embedding: bool = False
    head: bool = False

    @property
    def layers(self) -> int:
        """How many layers it holds."""
        return self.stop - self.first


class Contents(NamedTuple):
    """What a stage holds: the kinds of its layers and how many of each; how often the embedding and
    the head; how many chunks."""

    layers: tuple[tuple[Layer, int], ...]
    embedding: int
    head: int
    chunks: int

    @property
    def n_layers(self) -> int:
        """How many layers it holds."""
        return sum(count for _, count in self.layers)


def stages(model: Model, layout: Layout) -> tuple[tuple[Chunk, ...], ...]:
    """Per pipeline stage, the chunks of the model it holds.

    Stage i of p holds parts i, i + p, i + 2p ... (Narayanan et al., SC'21, section 2.2,
    doi:10.1145/3458817.3476209); with "dualpipe" parts i and p - 1 - i (DeepSeek-AI 2024,
    arXiv:2412.19437, section 3.2.1); where the way leads down and back up, i and 2p - 1 - i.
    Layers that do not go evenly into the parts are spread as the frameworks do, embedding and head
    counting as a layer each: Megatron gives the first parts one more, torchtitan too and always
    (0.3.0, distributed/pipeline_parallel.py), DeepSpeed fills all but the last parts to the least
    possible maximum (0.6.0, runtime/utils.py, partition_balanced; 0.19.8 spreads more evenly).
    Raises UnknownNameError for a schedule.
    """
    return _stages(
        model.n_layers, model.mtp, layout.pp, layout.interleave, layout.schedule, layout.framework
    )


def contents(model: Model, layout: Layout) -> tuple[tuple[Contents, ...], tuple[int, ...]]:
    """What stages hold, each but once, and which of them each stage holds."""
    return _contents(model, layout.pp, layout.interleave, layout.schedule, layout.framework)


@lru_cache(maxsize=4096)
def _contents(
    model: Model, pp: int, interleave: int, schedule: str, framework: str
) -> tuple[tuple[Contents, ...], tuple[int, ...]]:
    found: dict[Contents, int] = {}
    which = []
    for chunks in _stages(model.n_layers, model.mtp, pp, interleave, schedule, framework):
        layers: Counter[Layer] = Counter()
        start = 0
        for layer, count in model.stacks:
            for chunk in chunks:
                inside = min(chunk.stop, start + count) - max(chunk.first, start)
                if inside > 0:
                    layers[layer] += inside
            start += count
        one = Contents(
            tuple(layers.items()),
            sum(chunk.embedding for chunk in chunks),
            sum(chunk.head for chunk in chunks),
            len(chunks),
        )
        which.append(found.setdefault(one, len(found)))
    return tuple(found), tuple(which)


@lru_cache(maxsize=4096)
def _stages(
    layers: int, mtp: int, pp: int, interleave: int, schedule: str, framework: str
) -> tuple[tuple[Chunk, ...], ...]:
    route = pipeline(schedule).route if pp > 1 else "loop"
    if route == "both":
        parts = _parts(layers, mtp, pp, framework)
        return tuple((parts[i], parts[pp - 1 - i]) for i in range(pp))
    if route == "v":
        parts = _parts(layers, mtp, pp * 2, framework)
        return tuple((parts[i], parts[2 * pp - 1 - i]) for i in range(pp))
    parts = _parts(layers, mtp, pp * interleave, framework)
    return tuple(tuple(parts[i::pp]) for i in range(pp))


def _parts(layers: int, mtp: int, count: int, framework: str) -> tuple[Chunk, ...]:
    sizes = _sizes(layers, mtp, count, framework)
    starts = [sum(sizes[:i]) for i in range(count)]
    return tuple(
        Chunk(start, start + size, embedding=i == 0, head=i == count - 1)
        for i, (start, size) in enumerate(zip(starts, sizes, strict=True))
    )


def _sizes(layers: int, mtp: int, count: int, framework: str) -> list[int]:
    """Layers of each part."""
    if layers % count == 0 and framework != "torchtitan":
        return [layers // count] * count
    head = _HEAD + mtp
    units = layers + _EMBEDDING + head
    most = -(-units // count)
    if framework == "deepspeed":
        sizes = [max(0, min(most, units - most * i)) for i in range(count)]
    else:
        sizes = [units // count + (i < units % count) for i in range(count)]
    sizes[0] -= _EMBEDDING
    sizes[-1] -= head
    # A head with more beside it than one part holds leaves its own layers to the parts before.
    for i in range(count - 1, 0, -1):
        if sizes[i] < 0:
            sizes[i - 1] += sizes[i]
            sizes[i] = 0
    return sizes
