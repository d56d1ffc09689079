"""A played training step: beside the closed form, by hand, and in what frameworks' rules say."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from commsim.errors import LayoutError, ScheduleError
from commsim.topology.load import load_cluster
from commsim.workload import simulated_step
from commsim.workload.layout import Layout
from commsim.workload.load import load_model
from commsim.workload.simulated_step import StepSpan, StepTimeline, simulate_step
from commsim.workload.tasks.shared_play import Table, play

H100 = load_cluster("dgx-h100", nodes=4)
SMALL = load_model("llama3-8b")
MIXTURE = load_model("mixtral-8x7b")
Task = tuple[int, float, int, bool, float, float]  # stream, s, rank, computes, NICs, NVLink


def table(tasks: list[Task], pairs: list[tuple[int, int]]) -> Table:
    """pairs: (a task, the one that waits for it)."""
    stream, duration, rank, computes, nics, scale_up = zip(*tasks, strict=True)
    first, second = zip(*pairs, strict=True) if pairs else ((), ())
    return Table(
        ranks=max(rank) + 1, stream=np.array(stream), duration=np.array(duration, dtype=float),
        sender=np.array(rank), receiver=np.array(rank), computes=np.array(computes, dtype=bool),
        slows=~np.array(computes, dtype=bool), nics=np.array(nics, dtype=float),
        scale_up=np.array(scale_up, dtype=float), source=np.array(first, dtype=np.int64),
        target=np.array(second, dtype=np.int64),
    )  # fmt: skip


def test_messages_share_their_ways_and_slow_compute() -> None:
    """Two messages of 1 s take 0.8 of the NICs each: 1.25 s of work a second for both, so 1.6 s.
    Compute of 2 s goes on at 0.8 x 0.8 meanwhile: 1.024 s are done, 0.976 s are left."""
    tasks: list[Task] = [
        (0, 2.0, 0, True, 0, 0), (1, 1.0, 0, False, 0.8, 0), (2, 1.0, 0, False, 0.8, 0),
        (0, 1.0, 0, True, 0, 0),
    ]  # fmt: skip
    start, end, blame = play(table(tasks, [(2, 3)]), slowed=0.2)
    assert end == pytest.approx([2.576, 1.6, 1.6, 3.576])
    assert start == pytest.approx([0, 0, 0, 2.576])
    assert blame.tolist() == [-1, -1, -1, 0]


def test_a_message_that_shares_nothing_is_not_slowed() -> None:
    """NICs hold two of the three: 0.9 + 0.6 x speed each; NVLink has the third to itself. The first
    and the second go at 1 / 1.5; when the shorter has ended, the other is alone."""
    tasks: list[Task] = [
        (0, 1.0, 0, False, 0.9, 0), (1, 2.0, 0, False, 0.6, 0), (2, 1.0, 0, False, 0, 1.0),
        (3, 1.0, 1, False, 0.9, 0),
    ]  # fmt: skip
    _, end, _ = play(table(tasks, []), slowed=0.0)
    assert end == pytest.approx([1.5, 1.5 + 1.0, 1.0, 1.0])


def test_who_asks_for_little_gets_it_all() -> None:
    """Max-min fair in speed: one bound by NVLink, shared by two, leaves NICs to another. NVLink: 2
    of 1.0 at speed 1/2; NICs: 0.4 x 1/2 + 0.8 x 1 = 1."""
    tasks: list[Task] = [
        (0, 1.0, 0, False, 0.4, 1.0), (1, 1.0, 0, False, 0, 1.0), (2, 1.0, 0, False, 0.8, 0),
    ]  # fmt: skip
    _, end, _ = play(table(tasks, []), slowed=0.0)
    assert end == pytest.approx([2.0, 2.0, 1.0])


def test_tasks_that_wait_for_each_other_are_refused() -> None:
    tasks: list[Task] = [(0, 1.0, 0, True, 0, 0), (1, 1.0, 0, True, 0, 0)]
    with pytest.raises(ScheduleError, match="waits for ever"):
        play(table(tasks, [(0, 1), (1, 0)]), slowed=0.0)


def megatron(**changes: object) -> Layout:
    return replace(Layout(global_batch=64, seq_len=4096), **changes)  # type: ignore[arg-type]


def fsdp(**changes: object) -> Layout:
    return megatron(**({"framework": "fsdp", "zero_stage": 3} | changes))


SPREAD = {
    "tp": megatron(tp=8, dp=4),
    "tp, no sequence parallelism": megatron(tp=8, dp=4, sequence_parallel=False),
    "tp_comm_overlap": megatron(tp=8, dp=4, tp_comm_overlap=True),
    "full recompute in 8 bit": megatron(tp=4, dp=8, dtype="float8", recompute="full"),
    "pp": megatron(tp=4, pp=2, dp=4),
    "interleaved": megatron(tp=2, pp=4, dp=4, schedule="interleaved", interleave=2),
    "gpipe": megatron(tp=2, pp=4, dp=4, schedule="gpipe"),
    "zero_bubble": megatron(pp=4, dp=8, schedule="zero_bubble"),
    "zero_bubble, tp": megatron(tp=2, pp=4, dp=4, schedule="zero_bubble"),
    "zero 1": megatron(dp=32),
    "zero 1, nothing overlaps": megatron(
        dp=32, overlap_grad_reduce=False, overlap_param_gather=False
    ),
    "zero 2": megatron(dp=32, zero_stage=2, framework="deepspeed"),
    "zero 3, a matrix at a time": fsdp(dp=32, framework="deepspeed", dtype="float16"),
    "ddp": megatron(dp=32, zero_stage=0, framework="ddp"),
    "fsdp": fsdp(dp=32),
    "hsdp": fsdp(dp=32, hsdp=8),
    "fsdp, tp": fsdp(dp=16, tp=2),
    "fsdp, cp": fsdp(dp=16, cp=2, seq_len=16384),
    "fsdp, pp": fsdp(dp=8, pp=4),
}
EXPERTS = {
    "ep": megatron(dp=32, ep=8),
    "ep, tp, pp": megatron(tp=2, dp=8, pp=2, ep=4, etp=1),
    "dualpipe": megatron(dp=8, pp=4, ep=8, schedule="dualpipe", global_batch=128),
}


@pytest.fixture(scope="module")
def played() -> dict[str, StepTimeline]:
    return {name: simulate_step(SMALL, H100, layout) for name, layout in SPREAD.items()} | {
        name: simulate_step(MIXTURE, H100, layout) for name, layout in EXPERTS.items()
    }


@pytest.mark.parametrize("name", [*SPREAD, *EXPERTS])
def test_the_closed_form_agrees(played: dict[str, StepTimeline], name: str) -> None:
    found = played[name]
    assert found.duration == pytest.approx(found.predicted.duration, rel=0.03)


@pytest.mark.parametrize("name", [*SPREAD, *EXPERTS])
def test_laws(played: dict[str, StepTimeline], name: str) -> None:
    found = played[name]
    assert all(v >= -1e-9 for v in found.breakdown.values()), found.breakdown
    assert sum(found.breakdown.values()) == pytest.approx(found.duration, rel=1e-9)
    by_stream = defaultdict(list)
    for span in found.spans:
        assert span.end - span.start >= span.alone * (1 - 1e-9)
        by_stream[span.stage, span.stream].append(span)
    for line in by_stream.values():  # a stream does one thing at a time
        for before, after in pairwise(line):
            assert after.start >= before.end - 1e-12
    # compute is what the closed form counts, but for rounding of what is cut
    stage = found.predicted.busiest
    kinds = ("forward", "backward", "weight")
    total = sum(s.alone for s in found.spans if s.stage == stage and s.kind in kinds)
    assert total == pytest.approx(found.predicted.spent.total, rel=1e-6)


def test_a_pipeline_without_messages_is_its_formula() -> None:
    """1F1B with equal stages takes (m + p - 1)(forward + backward); here stages differ by the ends,
    so the bubble lies between those of the fastest and the slowest stage."""
    found = simulate_step(SMALL, H100, megatron(pp=4, dp=8, global_batch=128))
    times = [
        sum(c.forward.spent.total + c.backward.spent.total for c in row)
        for row in found.predicted.grid
    ]
    assert 3 * min(times) < found.bubble + found.exposed["pp"] < 3 * max(times) * 1.05


def spans(found: StepTimeline, kind: str, name: str = "", stage: int = 0) -> list[StepSpan]:
    return [s for s in found.spans if (s.kind, s.stage) == (kind, stage) and name in s.name]


def test_fsdp_gathers_no_more_than_two_units_ahead() -> None:
    found = simulate_step(SMALL, H100, fsdp(dp=32, global_batch=32))
    forwards = {s.name: s for s in spans(found, "forward")}
    gathers = spans(found, "dp", "all_gather")
    # forward: the embedding, 32 layers, the head; backward: all but the head, which is still there
    assert len(gathers) == 34 + 33
    for i in range(2, 32):
        gather = next(s for s in gathers if s.name.endswith(f" layer {i}"))
        assert gather.end <= forwards[f"layer {i}"].start + 1e-12
        assert gather.start >= forwards[f"layer {i - 2}"].end - 1e-12
    reduces = spans(found, "dp", "reduce_scatter")
    assert [s.name.split(" ", 1)[1] for s in reduces] == [
        "head", *(f"layer {i}" for i in reversed(range(32))), "embedding"
    ]  # fmt: skip


def test_ddp_reduces_in_buckets_of_25_mib_beside_the_last_backward() -> None:
    layout = megatron(dp=32, zero_stage=0, framework="ddp")
    found = simulate_step(SMALL, H100, layout)
    reduces = spans(found, "dp", "all_reduce")
    assert layout.micro_batches == 2
    last = [s for s in spans(found, "backward") if s.micro_batch == 1]
    assert min(s.start for s in reduces) >= last[0].end - 1e-12
    # Tensors are not cut: every bucket but the first holds 25 MiB or more.
    assert len(reduces) <= 4 * SMALL.parameters / (25 * 2**20) + 1
    more = simulate_step(SMALL, H100, replace(layout, overlap_grad_reduce=False))
    assert more.duration > found.duration


def test_two_communicators_share_the_network() -> None:
    """A ring of keys and values across machines beside gathers of parameters across machines."""
    layout = fsdp(dp=8, cp=4, seq_len=32768, order="tp-dp-cp-pp", global_batch=16)
    found = simulate_step(SMALL, H100, layout)
    assert found.stretched > 0
    apart = simulate_step(SMALL, H100, replace(layout, cp=1, dp=32, global_batch=64))
    assert apart.stretched == pytest.approx(0, abs=1e-9)


def test_dualpipe_hides_what_experts_send() -> None:
    """Works that run together compute while the other waits for its all_to_all: more than half of
    what is sent is hidden, played and in closed form."""
    found = simulate_step(MIXTURE, H100, EXPERTS["dualpipe"])
    messages = [sent for sent in found.predicted.messages if sent.kind == "ep"]
    sent = sum(m.message.duration * m.count for m in messages)
    assert 0 < found.exposed["ep"] < 0.5 * sent
    assert 0 < found.predicted.exposed["ep"] < 0.5 * sent


def test_replicas_are_reduced_beside_the_shards() -> None:
    """HSDP: the all_reduce has a stream and, across machines, NICs of its own."""
    found = simulate_step(SMALL, H100, SPREAD["hsdp"])
    shards = [s for s in found.spans if s.stream == "dp"]
    replicas = [s for s in found.spans if s.stream == "replicas"]
    assert len(replicas) == 2 * 34  # micro-batches, units
    assert any(a.start < b.end and b.start < a.end for a in shards for b in replicas)
    assert found.stretched == pytest.approx(0, abs=1e-9)


def test_a_pipeline_keeps_what_zero_3_gathers() -> None:
    """torch's pipelining gathers in the first forward and reduces after the last backward."""
    found = simulate_step(SMALL, H100, SPREAD["fsdp, pp"])
    for stage in range(4):
        units = len(found.program.grid[stage][0])
        assert len(spans(found, "dp", "all_gather", stage)) == units
        reduces = spans(found, "dp", "reduce_scatter", stage)
        assert len(reduces) == units
        last = spans(found, "backward", "", stage)[-1]
        assert reduces[0].start >= last.end - 1e-12


def test_micro_batches_left_out_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    layout = megatron(tp=2, pp=4, dp=4, schedule="interleaved", interleave=2, global_batch=400)
    whole = simulate_step(SMALL, H100, layout)
    monkeypatch.setattr(simulated_step, "MOST", 1000)
    folded = simulate_step(SMALL, H100, layout)
    assert (whole.micro_batches_left_out, folded.micro_batches_left_out) == (0, 44)
    assert folded.tasks < 0.6 * whole.tasks
    assert folded.duration == pytest.approx(whole.duration, rel=1e-6)
    for part, value in whole.breakdown.items():
        assert folded.breakdown[part] == pytest.approx(value, rel=1e-4, abs=1e-6), part


def test_impossible_layouts_are_refused() -> None:
    with pytest.raises(LayoutError):
        simulate_step(SMALL, H100, megatron(tp=3, dp=4))


def test_plain_figures() -> None:
    found = simulate_step(SMALL, H100, megatron(tp=8, dp=4)).to_dict()
    assert found["duration_s"] > 0
    assert sum(found["breakdown_s"].values()) == pytest.approx(found["duration_s"])
    assert set(found["exposed_s"]) == {"tp", "cp", "ep", "dp", "pp"}
