"""Overlap schedules: steps by hand, frameworks' rules, and every gradient exactly once."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commsim.errors import ScheduleError, UnknownNameError
from commsim.units import MIB
from commsim.workload.buckets import fill, torch_buckets
from commsim.workload.compression import Compression, Half, PowerSgd, Quantized, sent_bytes
from commsim.workload.overlap import Overlap, Parameter, Piece, Step, _known, overlap
from commsim.workload.overlaps.async_tensor_parallel import AsyncTensorParallel
from commsim.workload.overlaps.compressed import Compressed
from commsim.workload.overlaps.ddp_buckets import DdpBuckets
from commsim.workload.overlaps.distributed_optimizer import DistributedOptimizer
from commsim.workload.overlaps.fsdp import Fsdp
from commsim.workload.overlaps.fused import Fused
from commsim.workload.overlaps.grpo import Grpo
from commsim.workload.overlaps.per_parameter import PerParameter
from commsim.workload.overlaps.pipeline_transfers import PipelineTransfers
from commsim.workload.pipeline import order
from commsim.workload.pipeline import play as play_pipeline
from commsim.workload.streams import Spans, Task, play


def vector(name: str, nbytes: int, dtype: str = "float32") -> Parameter:
    return Parameter(name=name, shape=(nbytes // (2 if "16" in dtype else 4),), dtype=dtype)


def per_byte(seconds: float, latency: float = 0.0):  # type: ignore[no-untyped-def]
    return lambda operation, nbytes: latency + seconds * nbytes


# Three modules of 1 s forward and 2 s backward, 8 bytes of gradients each.
THREE = Step(
    pieces=tuple(
        Piece(name=n, forward=1.0, backward=2.0, parameters=(vector(f"{n}.w", 8),)) for n in "abc"
    ),
    optimizer=0.5,
)


def spans_of(
    how: Overlap, step: Step = THREE, seconds: float = 0.25, latency: float = 0.0
) -> Spans:
    return play(how.tasks(step, per_byte(seconds, latency)))


def times(spans: Spans, kind: str) -> list[tuple[str, float, float]]:
    return [
        (t.name, float(s), float(e))
        for t, s, e in zip(spans.tasks, spans.starts, spans.ends, strict=True)
        if t.kind == kind
    ]


# ---- data parallelism by hand: 3 s forward, 6 s backward, 2 s for 8 bytes ----


def test_one_all_reduce_per_parameter_after_backward() -> None:
    spans = spans_of(PerParameter(), latency=1.0)
    assert times(spans, "all_reduce") == [("a.w", 9, 12), ("b.w", 12, 15), ("c.w", 15, 18)]
    assert spans.exposed() == {"all_reduce": 9.0}
    assert spans.duration == 18.5


def test_fused_pays_the_latency_once() -> None:
    spans = spans_of(Fused(), latency=1.0)
    assert times(spans, "all_reduce") == [("float32", 9, 16)]  # 1 + 24 / 4
    assert spans.duration == 16.5


def test_fused_copies_unless_gradients_are_views() -> None:
    # 24 bytes read and written at 48 bytes/s: 1 s there, 1 s back.
    assert spans_of(Fused(memory=48.0), latency=1.0).duration == 18.5


def test_buckets_hide_all_but_the_last() -> None:
    # c is there at 5 (3 + 2), b at 7, a at 9; each takes 3 s: 5-8, 8-11, 11-14.
    spans = spans_of(DdpBuckets(cap=8, first_cap=8), latency=1.0)
    assert times(spans, "all_reduce") == [
        ("bucket 0", 5, 8), ("bucket 1", 8, 11), ("bucket 2", 11, 14)
    ]  # fmt: skip
    assert spans.exposed() == {"all_reduce": 5.0}
    # Two in the second bucket: 5-8, then 9-14 (1 + 16 / 4).
    assert times(spans_of(DdpBuckets(cap=16, first_cap=8), latency=1.0), "all_reduce")[1:] == [
        ("bucket 1", 9, 14)
    ]


def test_no_sync_reduces_once_for_all_micro_batches() -> None:
    step = replace(THREE, micro_batches=3)
    once = spans_of(DdpBuckets(cap=8, first_cap=8), step)
    assert len(times(once, "all_reduce")) == 3
    assert once.duration == spans_of(DdpBuckets(cap=8, first_cap=8)).duration + 2 * 9.0
    always = spans_of(DdpBuckets(cap=8, first_cap=8, no_sync=False), step)
    assert len(times(always, "all_reduce")) == 9


def test_the_first_iteration_has_one_bucket() -> None:
    spans = spans_of(DdpBuckets(cap=8, first_cap=8, first_iteration=True))
    assert times(spans, "all_reduce") == [("bucket 0", 9, 15)]


def test_buckets_are_reduced_in_order() -> None:
    # The first bucket in order is of c's and a's 16-bit gradients, so all wait for a's.
    mixed = Step(
        pieces=(
            Piece(name="a", forward=1, backward=2, parameters=(vector("a.w", 8, "float16"),)),
            Piece(name="b", forward=1, backward=2, parameters=(vector("b.w", 8),)),
            Piece(name="c", forward=1, backward=2, parameters=(vector("c.w", 8, "float16"),)),
        )
    )
    spans = spans_of(DdpBuckets(cap=16, first_cap=16), mixed)
    assert [b.dtype for b in DdpBuckets().buckets(mixed)] == ["float16", "float32"]
    assert times(spans, "all_reduce") == [("bucket 0", 9, 13), ("bucket 1", 13, 15)]


def test_copies_into_buckets_take_compute() -> None:
    # 8 bytes read and written at 16 bytes/s: 1 s after each backward, and 1 s back for each bucket.
    spans = spans_of(DdpBuckets(cap=8, first_cap=8, memory=16.0))
    assert times(spans, "all_reduce") == [
        ("bucket 0", 6, 8), ("bucket 1", 9, 11), ("bucket 2", 12, 14)
    ]  # fmt: skip
    assert spans.duration == 14 + 1 + 0.5 + 0 * 2
    view = DdpBuckets(cap=8, first_cap=8, memory=16.0, gradient_as_bucket_view=True)
    assert spans_of(view).duration == spans_of(DdpBuckets(cap=8, first_cap=8)).duration


# ---- PyTorch's and Megatron's buckets ----


def test_torch_buckets_close_once_they_reach_their_cap() -> None:
    parameters = [
        vector(n, k * MIB) for n, k in [("a", 20), ("b", 10), ("c", 30), ("d", 2), ("e", 1)]
    ]
    names = [[p.name for p in b.parameters] for b in torch_buckets(parameters)]
    # From the last on: e fills the first (1 MiB); d and c the second (32 >= 25); b and a the third.
    assert names == [["e"], ["d", "c"], ["b", "a"]]


def test_torch_buckets_of_resnet50_like_sizes_follow_the_paper() -> None:
    # A small last layer must not wait in a large bucket (Li et al. 2020, section 3.2.3).
    parameters = [vector("a", 24 * MIB), vector("b", 24 * MIB), vector("c", 4)]
    assert [len(b.parameters) for b in torch_buckets(parameters)] == [2, 1]
    assert [len(b.parameters) for b in torch_buckets(parameters, find_unused=True)] == [2, 1]
    assert [b.parameters[0].name for b in torch_buckets(parameters, find_unused=True)] == ["b", "a"]


def test_the_first_bucket_is_small_only_with_the_default_cap() -> None:
    # torch.nn.parallel.distributed, _BucketCapacityConfig.create.
    step = Step(
        pieces=tuple(
            Piece(name=n, forward=1, backward=2, parameters=(vector(f"{n}.w", MIB),)) for n in "abc"
        )
    )
    assert [len(b.parameters) for b in DdpBuckets().buckets(step)] == [1, 2]
    assert [len(b.parameters) for b in DdpBuckets(cap=25 * MIB).buckets(step)] == [3]
    assert [len(b.parameters) for b in DdpBuckets(cap=2 * MIB).buckets(step)] == [2, 1]


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 40), st.sampled_from(["float32", "float16"])), min_size=1),
    st.sampled_from([(16.0, 40.0), (64.0,), (8.0, 16.0, 100.0)]),
)
def test_buckets_are_those_of_torch(
    tensors: list[tuple[int, str]], caps: tuple[float, ...]
) -> None:
    torch = pytest.importorskip("torch")
    real = [torch.empty(numel, dtype=getattr(torch, dtype)) for numel, dtype in tensors]
    limits = [int(cap) for cap in caps]
    expected, _ = torch.distributed._compute_bucket_assignment_by_size(real, limits)
    parameters = [
        Parameter(name=str(i), shape=(numel,), dtype=dtype)
        for i, (numel, dtype) in enumerate(tensors)
    ]
    found = [[int(p.name) for p in bucket.parameters] for bucket in fill(parameters, caps)]
    assert sorted(found) == sorted(expected)


def test_buckets_hold_one_dtype() -> None:
    parameters = [vector("a", 8), vector("b", 8, "bfloat16"), vector("c", 8)]
    assert [(b.dtype, b.nbytes) for b in fill(parameters, (1e9,))] == [
        ("float32", 16), ("bfloat16", 8)
    ]  # fmt: skip


def test_megatron_buckets_grow_with_the_ranks() -> None:
    # 30 M elements a module: with 8 ranks a bucket is full at 40 M, with 64 ranks at 64 M.
    step = Step(
        pieces=tuple(
            Piece(name=n, forward=1, backward=2, parameters=(vector(f"{n}.w", 120_000_000),))
            for n in "abcdef"
        )
    )
    assert [len(b.parameters) for b in DistributedOptimizer(ranks=8).buckets(step)] == [2, 2, 2]
    assert [len(b.parameters) for b in DistributedOptimizer(ranks=64).buckets(step)] == [3, 3]
    assert len(DistributedOptimizer(ranks=8, overlap_grad_reduce=False).buckets(step)) == 1
    assert len(DistributedOptimizer(ranks=8, bucketing=False).buckets(step)) == 1


# ---- sharded parameters by hand ----


def test_distributed_optimizer() -> None:
    # Gathers of 2 s: a 0-2, b's is issued with it 2-4, c's once a's forward is issued: after it,
    # 4-6. Forward a 2-3, b 4-5, c 6-7; backward c 7-9, b -11, a -13; reduced 9-11, 11-13, 13-15.
    spans = spans_of(DistributedOptimizer(bucket_size=2))
    assert times(spans, "all_gather") == [
        ("bucket 0", 0, 2),
        ("bucket 1", 2, 4),
        ("bucket 2", 4, 6),
    ]
    assert [s for _, s, _ in times(spans, "forward")] == [2, 4, 6]
    assert times(spans, "reduce_scatter")[-1] == ("bucket 2", 13, 15)
    assert spans.duration == 15.5
    assert spans.exposed() == {"all_gather": 4.0, "reduce_scatter": 2.0}
    # Nothing overlapped: 9 + 6 of reducing + 0.5 + 6 of gathering.
    plain = DistributedOptimizer(overlap_grad_reduce=False, overlap_param_gather=False)
    assert spans_of(plain).duration == 21.5


def test_fsdp() -> None:
    # Gathers of 2 s: a 0-2, b 2-4, c: the third waits until a's forward (2-3) is done: 4-6.
    # Forward c 6-7. Backward: c is still there, 7-9; b's gather is issued before it and follows
    # c's: 6-8. b's backward 9-11, a's gather is issued after c's reduction, 9-11: 11-13.
    spans = spans_of(Fsdp())
    assert times(spans, "all_gather") == [
        ("a", 0, 2), ("b", 2, 4), ("c", 4, 6), ("b", 6, 8), ("a", 11, 13)
    ]  # fmt: skip
    assert times(spans, "backward") == [("c", 7, 9), ("b", 9, 11), ("a", 13, 15)]
    assert times(spans, "reduce_scatter") == [("c", 9, 11), ("b", 13, 15), ("a", 15, 17)]
    assert spans.exposed() == {"all_gather": 6.0, "reduce_scatter": 2.0}


def test_fsdp_without_resharding_gathers_once() -> None:
    spans = spans_of(Fsdp(reshard_after_forward=False))
    assert len(times(spans, "all_gather")) == 3
    assert times(spans, "backward")[-1] == ("a", 11, 13)


def test_fsdp_without_prefetch_waits_for_reductions_too() -> None:
    # Where the host runs ahead, both prefetches put a gather before the reduction of the module
    # before; without, c is reduced 6-7 and only then b gathered, 7-8, while compute waits.
    pre, post, none = (
        spans_of(Fsdp(backward_prefetch=how), seconds=0.125).duration
        for how in ("pre", "post", None)
    )
    assert (pre, post, none) == (11.5, 11.5, 15.5)


def test_fsdp_limit_keeps_gathers_from_running_ahead() -> None:
    many = Step(
        pieces=tuple(
            Piece(name=f"{i}", forward=5.0, backward=5.0, parameters=(vector(f"{i}.w", 8),))
            for i in range(5)
        )
    )
    free = times(spans_of(Fsdp(limit_all_gathers=False), many), "all_gather")
    held = times(spans_of(Fsdp(), many), "all_gather")
    assert [s for _, s, _ in free[:5]] == [0, 2, 4, 6, 8]
    assert [s for _, s, _ in held[:5]] == [0, 2, 7, 12, 17]  # after the forward two before


def test_hsdp_reduces_shards_across_replicas_beside_the_rest() -> None:
    spans = spans_of(Fsdp(replicas=4, shards=2))
    across = [t for t in spans.tasks if t.kind == "all_reduce"]
    assert [t.nbytes for t in across] == [4, 4, 4]
    assert times(spans, "all_reduce") == [("c", 11, 12), ("b", 15, 16), ("a", 17, 18)]


# ---- tensor and pipeline parallelism ----


def test_async_tensor_parallel_by_hand() -> None:
    # 4 s of product, 16 bytes in 4 parts of 1 s: the gather hides behind the first three parts,
    # the scatter but for the last that is sent, beside the rank's own last part.
    step = Step(pieces=(Piece(name="a", forward=4.0, backward=8.0, activations=16),))
    spans = spans_of(AsyncTensorParallel(ranks=4), step)
    assert [e for _, _, e in times(spans, "forward")] == [1, 2, 3, 4]
    assert spans.duration == 4 + 8
    blocking = spans_of(AsyncTensorParallel(ranks=4, parts=1), step)
    assert blocking.duration == 12 + 4 * 4.0
    assert blocking.exposed() == {"all_gather": 8.0, "reduce_scatter": 8.0}


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zero_bubble"])
def test_pipeline_as_tasks_is_the_pipeline_in_arrays(schedule: str) -> None:
    forward, backward = [1.0, 1.5, 1.0, 2.0], [2.0, 3.5, 2.0, 2.5]
    pieces = tuple(
        Piece(name=str(i), forward=f, backward=b, activations=2)
        for i, (f, b) in enumerate(zip(forward, backward, strict=True))
    )
    tasks = PipelineTransfers(schedule=schedule).tasks(
        Step(pieces=pieces, micro_batches=9), per_byte(0.125)
    )
    half = [b / 2 for b in backward]
    expected = play_pipeline(order(schedule, 4, 9), forward, half, half, hop=0.25)
    assert play(tasks).duration == pytest.approx(expected.duration, rel=1e-12)


# ---- compression: bytes to the last one ----

MATRIX = Parameter(name="m", shape=(100, 20, 5))  # 100 x 100
BIAS = Parameter(name="b", shape=(10,))


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        (Half(), 2 * 10_010),
        (PowerSgd(rank=2), 4 * 2 * (100 + 100) + 4 * 10),
        (PowerSgd(rank=50), 4 * 10_010),  # no saving: as it is
        (Quantized(bits=1), 2 * 4 * (2504 // 8 + 4)),  # 10,010 / 4 ranks, whole bytes, twice
        (Quantized(bits=2), 2 * 4 * (2504 // 4 + 4)),
        (Quantized(bits=8, block=100), 2 * 4 * (2503 + 4 * 26)),
    ],
)
def test_bytes_of_compressed_gradients(how: Compression, expected: int) -> None:
    assert sent_bytes(how, (MATRIX, BIAS), ranks=4) == expected


def test_encoding_takes_memory_bandwidth() -> None:
    # fp16: 24 bytes read, 12 written, at 36 bytes/s: 1 s; 12 bytes in 3 s; 1 s back.
    spans = spans_of(Compressed(compression=Half(), memory=36.0))
    assert times(spans, "compress") == [("gradients", 9, 10), ("gradients", 13, 14)]
    assert spans.duration == 14.5


def test_hooks_compress_each_bucket_beside_backward() -> None:
    spans = spans_of(DdpBuckets(cap=8, first_cap=8, hook=Half()))
    assert times(spans, "all_reduce") == [
        ("bucket 0", 5, 6), ("bucket 1", 7, 8), ("bucket 2", 9, 10)
    ]  # fmt: skip
    assert spans.exposed() == {"all_reduce": 1.0}


# ---- samples and weights ----


def test_grpo_gathers_weights_samples_and_rewards() -> None:
    how = Grpo(sampling=10.0, scoring=1.0, completions=8, rewards=4, training=Fused())
    spans = spans_of(how)
    # Weights 3 x 2 s, sampling until 16, completions -18, scoring -19, rewards -20, then a step.
    assert times(spans, "forward")[0] == ("a", 20, 21)
    assert spans.duration == 20 + spans_of(Fused()).duration
    assert spans_of(Grpo(sampling=10.0, sharded=False)).duration == 10 + 9 + 0.5


# ---- laws ----

REDUCING = ("all_reduce", "reduce_scatter", "all_to_all")
EXCHANGING = {
    "per_parameter": PerParameter(),
    "overlapped": PerParameter(overlapped=True),
    "fused": Fused(),
    "ddp": DdpBuckets(cap=64, first_cap=16),
    "ddp unused": DdpBuckets(cap=64, first_cap=16, find_unused_parameters=True),
    "ddp first": DdpBuckets(first_iteration=True),
    "ddp fp16": DdpBuckets(cap=64, first_cap=16, hook=Half(), memory=100.0),
    "ddp powersgd": DdpBuckets(cap=64, first_cap=16, hook=PowerSgd(), memory=100.0, ranks=4),
    "ddp 2 bit": DdpBuckets(cap=64, first_cap=16, hook=Quantized(bits=2), ranks=4, memory=100.0),
    "compressed": Compressed(ranks=4, memory=100.0),
    "fsdp": Fsdp(no_sync=True),
    "fsdp post": Fsdp(no_sync=True, backward_prefetch="post", reshard_after_forward=False),
    "hsdp": Fsdp(no_sync=True, replicas=2, shards=2, limit_all_gathers=False),
    "megatron": DistributedOptimizer(bucket_size=16),
    "megatron plain": DistributedOptimizer(overlap_grad_reduce=False, overlap_param_gather=False),
    "grpo": Grpo(sampling=1.0, training=DdpBuckets(cap=64, first_cap=16)),
}


@st.composite
def steps(draw: st.DrawFn) -> Step:
    pieces = []
    for i in range(draw(st.integers(1, 5))):
        shapes = draw(st.lists(st.sampled_from([(1,), (3,), (8, 8), (2, 3, 4)]), max_size=3))
        dtype = draw(st.sampled_from(["float32", "bfloat16"]))
        pieces.append(
            Piece(
                name=f"p{i}", forward=draw(st.sampled_from([0.0, 0.5, 1.0])),
                backward=draw(st.sampled_from([0.25, 1.0, 2.0])),
                parameters=tuple(
                    Parameter(name=f"p{i}.{k}", shape=s, dtype=dtype) for k, s in enumerate(shapes)
                ),
            )
        )  # fmt: skip
    return Step(pieces=tuple(pieces), micro_batches=draw(st.integers(1, 3)), optimizer=0.5)


def mean_compute(tasks: list[Task]) -> float:
    return sum(t.duration for t in tasks if t.kind in ("forward", "backward"))


@pytest.mark.parametrize("name", EXCHANGING)
@settings(max_examples=25, deadline=None)
@given(step=steps())
def test_every_gradient_is_exchanged_exactly_once(name: str, step: Step) -> None:
    tasks = EXCHANGING[name].tasks(step, per_byte(0.01, 0.1))
    carried = Counter(p for t in tasks if t.kind in REDUCING for p in t.covers)
    assert carried == Counter(p.name for p in step.parameters)
    # Never before its backward has ended: the last one of its piece.
    spans = play(tasks)
    home = {p.name: piece.name for piece in step.pieces for p in piece.parameters}
    ready = {t.name: e for t, e in zip(tasks, spans.ends, strict=True) if t.kind == "backward"}
    for t, s in zip(tasks, spans.starts, strict=True):
        assert all(ready[home[p]] <= s for p in t.covers)
    # All compute is done, and the update comes after everything that carries gradients.
    each = sum(p.forward + p.backward for p in step.pieces)
    assert mean_compute(tasks) == pytest.approx(each * step.micro_batches)
    update = next(i for i, t in enumerate(tasks) if t.kind == "optimizer")
    reductions = [e for t, e in zip(tasks, spans.ends, strict=True) if t.kind in REDUCING]
    assert spans.starts[update] >= max(reductions, default=0.0)
    communication = sum(t.duration for t in tasks if t.stream in ("communication", "replicas"))
    assert (
        sum(spans.exposed().values())
        <= communication + sum(t.duration for t in tasks if t.stream == "hook") + 1e-9
    )


@settings(max_examples=50, deadline=None)
@given(steps())
def test_overlap_never_makes_a_step_longer(step: Step) -> None:
    cost = per_byte(0.01, 0.1)
    plain = play(PerParameter().tasks(step, cost)).duration
    assert play(PerParameter(overlapped=True).tasks(step, cost)).duration <= plain + 1e-9


def test_all_are_found_by_name() -> None:
    assert isinstance(overlap("DDP"), DdpBuckets)
    assert isinstance(overlap("one-bit-adam"), Compressed)
    assert overlap(Fused()) == Fused()
    assert {type(how) for how in EXCHANGING.values()} <= set(_known().values())
    with pytest.raises(UnknownNameError, match="did you mean 'fused'"):
        overlap("fuse")


def test_what_cannot_be_asked_for() -> None:
    with pytest.raises(ScheduleError, match="1 or more pieces"):
        Step(pieces=())
    with pytest.raises(ScheduleError, match='expected "pre", "post" or None'):
        Fsdp(backward_prefetch="during")
    with pytest.raises(ScheduleError, match="caps of more than 0 bytes"):
        DdpBuckets(cap=0).tasks(THREE, per_byte(1.0))
    with pytest.raises(ScheduleError, match="bits: expected 1, 2, 4 or 8, got 3"):
        Quantized(bits=3)
    with pytest.raises(ScheduleError, match="rank: expected 1 or more, got 0"):
        PowerSgd(rank=0)
    twice = replace(THREE, pieces=(THREE.pieces[0], THREE.pieces[0]))
    with pytest.raises(ScheduleError, match="names of their own"):
        DdpBuckets().tasks(twice, per_byte(1.0))
