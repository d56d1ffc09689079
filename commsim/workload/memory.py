"""Memory that training takes on each rank, by pipeline stage and by what it is for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from commsim.topology.cluster import Cluster
from commsim.topology.parts import GpuPart
from commsim.workload.footprint.activations import in_flight
from commsim.workload.footprint.holdings import Holdings, Moment, Run
from commsim.workload.footprint.keeping import Keeping, keeping
from commsim.workload.layout import Layout
from commsim.workload.layouts.groups import groups
from commsim.workload.layouts.stages import contents
from commsim.workload.model import Model
from commsim.workload.pipeline import pipeline

# A CUDA context with torch's kernels, loaded as they are used (CUDA 11.7's lazy loading).
CONTEXT: float = 0.5 * 2**30
# One connection of one NCCL channel: 4 MiB for Simple, 4.7 MiB for LL128, 0.5 MiB for LL (NCCL
# 2.30, src/include/comm.h and device.h); as many channels as a GPU has NVLinks, twice, at most 32.
CHANNEL: float = 9.2 * 2**20
PCIE_CHANNELS, MOST_CHANNELS = 4, 32
# Of a part's nominal memory, what a process can have: A100-80GB 81251 MiB, H100-80GB 81559 MiB,
# V100-16GB 16160 MiB, as nvidia-smi prints them.
USABLE = 0.99
# Schedules under which no stage has more micro-batches in flight than the one before it.
FALLING = ("1f1b", "gpipe", "zero_bubble", "dualpipe")

ALLOCATED = (
    "parameters", "gradients", "optimizer", "activations", "logits", "buffers", "cache",
)  # fmt: skip
OVERHEAD = ("margin", "nccl", "context")


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMemory:
    """Bytes on each rank of a pipeline stage at the moment when they are most.

    rank: the first of them. moment: "forward" (all activations are there), "backward" (of a layer)
    or "step" (of the optimizer). activations: with what a layer needs while it works. logits: with
    all that the loss needs. buffers: weights gathered, gradients under way, buckets.
    margin: what the allocator holds beyond that and needs; cached: what it holds but could give
    back. nccl: buffers of the communicators. context: CUDA's. cache: keys and values, in inference.
    """

    stage: int
    rank: int
    moment: str
    parameters: float
    gradients: float
    optimizer: float
    activations: float
    logits: float
    buffers: float
    margin: float
    cached: float
    nccl: float
    context: float
    cache: float = 0.0

    @property
    def allocated(self) -> float:
        """Bytes of all tensors: torch.cuda.max_memory_allocated."""
        return (
            self.parameters + self.gradients + self.optimizer
            + self.activations + self.logits + self.buffers + self.cache
        )  # fmt: skip

    @property
    def reserved(self) -> float:
        """Bytes the allocator holds: torch.cuda.max_memory_reserved."""
        return self.allocated + self.margin + self.cached

    @property
    def needed(self) -> float:
        """Bytes of the GPU without which it ends: all but what the allocator could give back."""
        return self.allocated + self.margin + self.nccl + self.context

    @property
    def device(self) -> float:
        """Bytes taken on the GPU: nvidia-smi."""
        return self.needed + self.cached

    @property
    def components(self) -> dict[str, float]:
        """Bytes by what they are for; their sum is `device`."""
        return {name: getattr(self, name) for name in (*ALLOCATED, *OVERHEAD, "cached")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Memory of all ranks. capacity: bytes of one GPU that a process can have. shows: which figure
    of a stage the framework's users see. notes: what was assumed."""

    by_stage: tuple[StageMemory, ...]
    capacity: float
    shows: str = "device"
    notes: tuple[str, ...] = ()

    @property
    def worst(self) -> StageMemory:
        """The stage whose ranks take most."""
        return max(self.by_stage, key=lambda stage: stage.needed)

    @property
    def peak(self) -> float:
        """Bytes on the worst rank as its framework shows them: what torch's allocator has given out
        (Megatron, NeMo, fsdp), what it holds (torchtitan, ddp), or nvidia-smi's figure (others)."""
        return {
            "allocated": self.peak_allocated,
            "reserved": self.peak_reserved,
            "device": self.peak_device,
        }[self.shows]

    @property
    def peak_allocated(self) -> float:
        """Bytes of tensors on the worst rank."""
        return self.worst.allocated

    @property
    def peak_reserved(self) -> float:
        """Bytes that the allocator of the worst rank holds."""
        return self.worst.reserved

    @property
    def peak_device(self) -> float:
        """Bytes taken on the worst GPU."""
        return self.worst.device

    @property
    def headroom(self) -> float:
        """Bytes left on the worst GPU; below zero: missing."""
        return self.capacity - self.worst.needed

    @property
    def fits(self) -> bool:
        """Has every GPU room for what its ranks need?"""
        return self.headroom >= 0

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON, keys with their unit."""
        return {
            "peak_bytes": self.peak,
            "peak_allocated_bytes": self.peak_allocated,
            "peak_reserved_bytes": self.peak_reserved,
            "peak_device_bytes": self.peak_device,
            "capacity_bytes": self.capacity,
            "headroom_bytes": self.headroom,
            "fits": self.fits,
            "worst_rank": self.worst.rank,
            "stages": [
                {"stage": s.stage, "rank": s.rank, "moment": s.moment}
                | {f"{name}_bytes": nbytes for name, nbytes in s.components.items()}
                for s in self.by_stage
            ],
            "notes": list(self.notes),
        }


def memory(
    model: Model,
    cluster: Cluster,
    layout: Layout,
    kept: Keeping | None = None,
    brief: bool = False,
) -> Memory:
    """Bytes of memory that training takes on every rank.

    The most of three moments: after the forward pass, parameters + optimizer + gradients kept +
    activations of the micro-batches in flight + logits; in the backward pass, all gradients and one
    layer at work; in the step, the optimizer's temporaries. Sizes of states: Rajbhandari et al.,
    SC'20, arXiv:1910.02054; of activations: Korthikanti et al. 2022, arXiv:2205.05198; what each
    framework adds: keeping.py. kept: what a trainer of one's own keeps (None: what the layout's
    framework does). brief: of stages that hold the same, only the first: later ones have no more
    micro-batches in flight, so the worst is there. Neglected: what kernels allocate for themselves,
    offloading. The layout is taken as valid (validity.check).
    """
    kept = keeping(layout) if kept is None else kept
    found = _memory(model, cluster, layout, kept, brief)
    if kept.accumulated and layout.micro_batches > 1 and not found.fits:
        note = "gradients are reduced after each micro-batch: unsharded they would not fit"
        found = _memory(model, cluster, layout, replace(kept, accumulated=0), brief)
        return replace(found, notes=(note,))
    return found


def _memory(model: Model, cluster: Cluster, layout: Layout, kept: Keeping, brief: bool) -> Memory:
    run = Run.of(model, layout, kept)
    nccl = communicators(layout, cluster.gpu, kept.groups)
    first = groups(layout).ranks("pp")
    distinct, which = contents(model, layout)
    held = tuple(run.holdings(one) for one in distinct)
    found = []
    looked_at: Iterable[tuple[int, int]] = enumerate(which)
    if brief and pipeline(layout.schedule).names[0] in FALLING:
        looked_at = zip(map(which.index, range(len(distinct))), range(len(distinct)), strict=True)
    for stage, kind in looked_at:
        holdings = held[kind]
        flying = in_flight(layout, stage, kept.buffered)
        moment, allocated = _most(holdings, flying * holdings.per_flight)
        found.append(
            StageMemory(
                stage=stage,
                rank=first[stage],
                moment=moment.name,
                parameters=moment.parameters,
                gradients=moment.gradients,
                optimizer=moment.optimizer,
                activations=moment.activations,
                logits=moment.logits,
                buffers=moment.buffers,
                margin=allocated * kept.margin,
                cached=moment.cached,
                nccl=nccl,
                context=CONTEXT,
            )
        )
    capacity = cluster.gpu.memory * USABLE
    return Memory(by_stage=tuple(found), capacity=capacity, shows=kept.shows)


def _most(holdings: Holdings, flying: float) -> tuple[Moment, float]:
    """The moment when most is allocated, and how much."""
    forward, backward, step = holdings.moments
    forward = forward._replace(activations=forward.activations + flying)
    sizes = [(moment.allocated, moment) for moment in (forward, backward, step)]
    allocated, moment = max(sizes, key=lambda size: size[0])
    return moment, allocated


def communicators(layout: Layout, gpu: GpuPart, each: int = 1) -> float:
    """Bytes of NCCL's buffers: of the world's communicator, and `each` of every kind of group."""
    if layout.world == 1:
        return 0.0
    sizes = (layout.tp, layout.dp * layout.cp, layout.cp, layout.pp, layout.ep)
    kinds = each * sum(size > 1 for size in sizes) + 1
    channels = min(2 * gpu.link_count, MOST_CHANNELS) if gpu.link_count else PCIE_CHANNELS
    return kinds * channels * CHANNEL
