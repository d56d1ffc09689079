"""Pipelines: bubbles and memory from the papers, times by hand, laws, and the fast route."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commsim.errors import ScheduleError, UnknownNameError
from commsim.workload.pipeline import (
    PipelineTimes,
    in_flight,
    order,
    outline,
    pipeline,
    play,
)
from commsim.workload.pipeline_plan import bind
from commsim.workload.works import Table, Work

SCHEDULES = ("gpipe", "1f1b", "zero_bubble", "zero_bubble_v", "dualpipe")


def played(schedule: str, p: int, m: int, v: int, *times: Any, **more: Any) -> PipelineTimes:
    more["route"] = pipeline(schedule).route
    return play(order(schedule, p, m, v), *times, **more)


# ---- the papers' bubbles, of uniform stages and no transfers ----


@pytest.mark.parametrize(("p", "m"), [(1, 3), (2, 2), (4, 8), (8, 17)])
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_bubble_of_gpipe_and_1f1b(schedule: str, p: int, m: int) -> None:
    # Narayanan et al. 2021, section 2.2.1: (p - 1) (F + B), a fraction (p - 1) / m of the work.
    times = played(schedule, p, m, 1, 1.0, 2.0)
    assert times.idle == pytest.approx([(p - 1) * 3.0] * p)
    assert times.idle[0] / times.busy[0] == pytest.approx((p - 1) / m)


@pytest.mark.parametrize(("p", "m", "v"), [(2, 4, 2), (4, 8, 3), (8, 16, 2), (4, 4, 5)])
def test_bubble_of_interleaved_is_v_times_smaller(p: int, m: int, v: int) -> None:
    # The same, section 2.2.2: (p - 1) / (m v).
    times = played("interleaved", p, m, v, 1.0 / v, 2.0 / v)
    assert times.idle[0] / times.busy[0] == pytest.approx((p - 1) / (m * v))


@pytest.mark.parametrize(("f", "b", "w"), [(1.0, 1.0, 1.0), (1.0, 1.2, 0.8)])
@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 8), (8, 24)])
def test_bubble_of_zero_bubble(p: int, m: int, f: float, b: float, w: float) -> None:
    # Qi et al. 2024, table 2: (p - 1) (T_F + T_B - T_W), T_B being the input's gradient alone.
    times = played("zero_bubble", p, m, 1, f, b, w)
    assert times.idle[0] == pytest.approx((p - 1) * (f + b - w))
    if f == b == w:
        assert times.idle[0] == pytest.approx(played("1f1b", p, m, 1, f, b, w).idle[0] / 3)


@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 8), (8, 20), (16, 64)])
def test_bubble_of_dualpipe(p: int, m: int) -> None:
    # DeepSeek-V3, table 2: (PP/2 - 1) (F&B + B - 3W), B the whole backward: F = 1, B = 2, W = 1.
    times = played("dualpipe", p, m, 2, 1.0, 1.0, 1.0)
    assert times.idle == pytest.approx([(p / 2 - 1) * (3.0 + 2.0 - 3.0)] * p)


@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 8), (8, 40)])
def test_no_stage_of_zb_v_waits_once_it_has_begun(p: int, m: int) -> None:
    # Qi et al. 2024, section 6: zero bubble where F = B = W, within 1F1B's memory (2 p chunks).
    times = played("zbv", p, m, 2, 1.0, 1.0, 1.0)
    for starts, ends, busy in zip(times.starts, times.ends, times.busy, strict=True):
        assert ends[-1] - starts[0] == busy
    assert max(times.in_flight) <= 2 * p


# ---- memory ----


@pytest.mark.parametrize(("p", "m"), [(4, 2), (4, 8), (8, 64)])
def test_micro_batches_in_flight(p: int, m: int) -> None:
    assert in_flight("gpipe", p, m) == (m,) * p
    assert in_flight("1f1b", p, m) == tuple(min(m, p - i) for i in range(p))
    assert in_flight("zero_bubble", p, m) == (min(m, p),) * p  # Qi et al.: as the first of 1F1B


def test_interleaving_holds_more() -> None:
    # Korthikanti et al. 2022, arXiv:2205.05198, section 4.2: 1 + (p - 1) / (p m) times 1F1B's,
    # of chunks a m-th as large: p m + p - 1 of them on the first stage.
    assert in_flight("1f1b", 4, 16, 3)[0] == 4 * 3 + 4 - 1


def test_dualpipe_holds_one_more_than_stages() -> None:
    assert in_flight("dualpipe", 8, 32, 2) == (9,) * 8  # DeepSeek-V3, table 2: PP + 1


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_in_flight_of_long_steps_is_that_of_all_works(schedule: str) -> None:
    p, m, v = 4, 94, 2
    assert in_flight(schedule, p, m, v) == played(schedule, p, m, v, 1.0, 1.0, 1.0).in_flight


# ---- times by hand ----


def test_two_stages_with_a_transfer() -> None:
    # Stage 0: F0 0-1, F1 1-2, BW0 ..., stage 1: F0 arrives at 1.5.
    # Stage 1: F0 1.5-2.5, BW0 2.5-4.5, F1 (there since 2.5) 4.5-5.5, BW1 5.5-7.5.
    # Stage 0: BW0 arrives at 5: 5-7, BW1 arrives at 8: 8-10.
    times = play(order("1f1b", 2, 2), 1.0, 2.0, hop=0.5)
    assert times.starts[0].tolist() == [0, 1, 5, 8]
    assert times.starts[1].tolist() == [1.5, 2.5, 4.5, 5.5]
    assert times.duration == 10
    assert times.last_backward.tolist() == [[10.0], [7.5]]
    assert times.first_forward.tolist() == [[0.0], [1.5]]


def test_the_same_where_transfers_block_compute() -> None:
    # Stage 0: F0 0-1 and its sending until 1.5, F1 1.5-2.5, sent at 3.
    # Stage 1: F0 1.5-2.5, BW0 2.5-4.5, sent at 5, F1 5-6, BW1 6-8, sent at 8.5.
    # Stage 0: BW0 5-7, BW1 8.5-10.5: nothing to send.
    times = play(order("1f1b", 2, 2), 1.0, 2.0, hop=0.5, overlap=False)
    assert times.starts[0].tolist() == [0, 1.5, 5, 8.5]
    assert times.starts[1].tolist() == [1.5, 2.5, 5, 6]
    assert times.duration == 10.5


def test_a_link_carries_one_transfer_after_the_other() -> None:
    # F0 ends at 1, F1 at 2, F2 at 3; each takes 3 s on the link: they arrive at 4, 7, 10.
    times = play(order("gpipe", 2, 3), 1.0, 1.0, hop=3.0)
    assert times.starts[1][:3].tolist() == [4, 7, 10]


def test_each_link_has_its_own_hop() -> None:
    times = play(order("1f1b", 3, 1), 1.0, 1.0, hop=[0.25, 2.0, 99.0])
    assert times.duration == 6 * 1.0 + 2 * (0.25 + 2.0)


def test_the_slowest_stage_sets_the_pace() -> None:
    # Stage 2 begins at 2, does F0 and F1 until 5, waits for the gradient of stage 3 (there at
    # 2 + 1.5 + 1 + 2 = 6.5), and never again; two backwards of 2 follow its 50 turns of 5.
    f, b = np.array([1.0, 1.0, 1.5, 1.0]), np.array([2.0, 2.0, 3.5, 2.0])
    assert outline("1f1b", 4, 50, 1, f, b).duration == 2 + 50 * 5.0 + 1.5 + 2 + 2


def test_a_table_of_ones_own() -> None:
    table = Table(
        order=tuple((Work("F", 0, 0), Work("B", 0, 0), Work("W", 0, 0)) for _ in range(2))
    )
    # Stage 0 waits for the input's gradient of stage 1 alone: F F B B W.
    assert outline(table, 2, 1, 1, 1.0, 1.0, 5.0).duration == 1 + 1 + 1 + 1 + 5


# ---- laws ----

numbers = st.sampled_from([0.5, 1.0, 1.25, 3.0])


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    schedule = draw(st.sampled_from(SCHEDULES))
    p = draw(st.integers(1, 6))
    v = draw(st.integers(1, 3))
    m = draw(st.integers(1, 14))
    if schedule == "zero_bubble_v":
        v = 2
    if schedule == "dualpipe":
        p, v = 2 * ((p + 1) // 2), 2
        m = 2 * p + 2 * (m // 2)
    times = st.lists(numbers, min_size=p * v, max_size=p * v)
    return {
        "schedule": schedule, "stages": p, "micro_batches": m, "chunks": v,
        "forward": np.array(draw(times)).reshape(p, v),
        "backward": np.array(draw(times)).reshape(p, v),
        "weight": draw(numbers), "hop": draw(st.sampled_from([0.0, 0.125, 1.0, 4.0])),
        "overlap": draw(st.booleans()),
    }  # fmt: skip


def play_all(case: dict[str, Any]) -> PipelineTimes:
    numbers = (case[k] for k in ("stages", "micro_batches", "chunks"))
    times = (case[k] for k in ("forward", "backward", "weight"))
    return played(case["schedule"], *numbers, *times, hop=case["hop"], overlap=case["overlap"])


def before(kind: str, stage: int, chunk: int, case: dict[str, Any]) -> tuple[int, int] | None:
    """The (stage, chunk) whose output a forward or backward waits for."""
    p, v, route = case["stages"], case["chunks"], pipeline(case["schedule"]).route
    down = (kind == "F") == (route == "loop" or chunk == 0)
    giver = stage - 1 if down else stage + 1
    if 0 <= giver < p:
        return giver, chunk
    if route == "v":  # at the turn, from the stage's other chunk
        return (stage, 1 - chunk) if giver == p else None
    if route != "loop" or not 0 <= chunk + (giver - stage) < v:
        return None
    return giver % p, chunk + (giver - stage)


@settings(max_examples=150, deadline=None)
@given(cases())
def test_every_work_once_in_order_never_before_its_input(case: dict[str, Any]) -> None:
    times = play_all(case)
    p, v, m = case["stages"], case["chunks"], case["micro_batches"]
    at: dict[tuple[str, int, int, int], tuple[float, float]] = {}
    for stage, works in enumerate(times.works):
        free = 0.0
        spans = zip(works, times.starts[stage].tolist(), times.ends[stage].tolist(), strict=True)
        for work, start, end in spans:
            assert start >= free or work.joined
            free = end
            for kind in ("B", "W") if work.kind == "BW" else (work.kind,):
                key = (kind, stage, work.chunk, work.micro_batch)
                assert key not in at
                at[key] = (start, end)
    for (kind, stage, chunk, batch), (start, _) in at.items():
        if kind != "F":
            assert at["F" if kind == "B" else "B", stage, chunk, batch][0] <= start
        giver = before(kind, stage, chunk, case) if kind != "W" else None
        if giver is not None:
            hop = case["hop"] if giver[0] != stage else 0.0
            assert at[kind, *giver, batch][1] + hop <= start
    copies = 1 if case["schedule"] == "dualpipe" else v
    for kind in "FBW":
        assert sum(1 for key in at if key[0] == kind) == p * copies * m


@settings(max_examples=100, deadline=None)
@given(cases())
def test_duration_lies_between_the_busiest_stage_and_all_in_a_row(case: dict[str, Any]) -> None:
    times = play_all(case)
    works = sum(len(w) for w in times.works)
    most = sum(times.busy) + works * case["hop"]
    assert max(times.busy) <= times.duration * (1 + 1e-12)
    assert times.duration <= most * (1 + 1e-12)
    assert min(times.idle) >= -1e-9


@settings(max_examples=100, deadline=None)
@given(cases())
def test_more_micro_batches_are_never_faster(case: dict[str, Any]) -> None:
    if case["schedule"] in ("1f1b", "zero_bubble") and case["chunks"] != 1:
        more = case["stages"]  # whole groups: a rest changes the order of all
    else:
        more = 2
    longer = case | {"micro_batches": case["micro_batches"] + more}
    assert outline(**case).duration <= outline(**longer).duration * (1 + 1e-12)


@settings(max_examples=100, deadline=None)
@given(cases(), st.integers(8, 40))
def test_the_fast_route_is_the_same(case: dict[str, Any], times: int) -> None:
    m = case["micro_batches"] + times * case["stages"]
    long = case | {"micro_batches": m + (m % 2 if case["schedule"] == "dualpipe" else 0)}
    quick = outline(**long)
    exact = play_all(long)
    assert quick.duration == pytest.approx(exact.duration, rel=1e-9)
    assert quick.first_forward == pytest.approx(exact.first_forward, rel=1e-9)
    assert quick.last_backward == pytest.approx(exact.last_backward, rel=1e-9)


def test_the_fast_route_waits_until_the_pace_has_settled() -> None:
    # A stage that is slower by a hair takes long to be felt behind slow transfers.
    forward = np.array([1.0, 1.0, 1.0, 1.004])
    args = ("1f1b", 4, 1000, 1, forward, 2.0, None, 0.01)
    assert outline(*args).duration == pytest.approx(
        play(order("1f1b", 4, 1000), forward, 2.0, hop=0.01).duration, rel=1e-12
    )


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_schedule_says_whether_it_splits_backward(schedule: str) -> None:
    works = {w.kind for line in order(schedule, 4, 8, 2) for w in line}
    assert pipeline(schedule).splits == ("W" in works)


# ---- refusals ----


@pytest.mark.parametrize(
    ("works", "message"),
    [
        ([("F", 0, 0), ("F", 0, 0), ("BW", 0, 0)], "stage 0, chunk 0, micro-batch 0: .* twice"),
        ([("F", 0, 0)], "micro-batch 0: expected one backward"),
        ([("F", 0, 1), ("BW", 0, 1)], "micro-batch 0: expected one forward"),
        ([("BW", 0, 0), ("F", 0, 0)], "the backward comes before its forward"),
        ([("F", 0, 0), ("B", 0, 0)], "expected a W for each B"),
        ([("F", 0, 0), ("W", 0, 0), ("B", 0, 0)], "the W comes before its B"),
        ([("X", 0, 0)], "expected a kind of F, B, W, BW"),
        ([], "expected works, got none"),
    ],
)
def test_tables_that_are_no_schedule(works: list[tuple[str, int, int]], message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        bind((tuple(Work(*w) for w in works),), 1, "loop")


def test_stages_that_wait_for_each_other() -> None:
    first = (Work("F", 0, 0), Work("BW", 0, 0), Work("F", 0, 1), Work("BW", 0, 1))
    second = (Work("F", 0, 0), Work("F", 0, 1), Work("BW", 0, 0), Work("BW", 0, 1))
    with pytest.raises(ScheduleError, match=r"stage 0: BW of micro-batch 0, .* of stage 1"):
        play((first, second), 1.0, 1.0)


def test_what_cannot_be_asked_for() -> None:
    with pytest.raises(UnknownNameError, match="did you mean '1f1b'"):
        pipeline("1f1")
    with pytest.raises(ScheduleError, match="micro-batches: expected 1 or more, got 0"):
        order("1f1b", 4, 0)
    with pytest.raises(ScheduleError, match="even number of stages"):
        order("dualpipe", 3, 8, 2)
    with pytest.raises(ScheduleError, match="weight: expected s"):
        outline("zero_bubble", 4, 8, 1, 1.0, 1.0)
    with pytest.raises(ScheduleError, match="forward: expected one time, one for each of 4 stages"):
        outline("1f1b", 4, 8, 1, [1.0, 2.0], 1.0)
    with pytest.raises(ScheduleError, match="0 s or more"):
        outline("1f1b", 4, 8, 1, -1.0, 1.0)
    with pytest.raises(ScheduleError, match="expected 2 stages, one a line, got 3"):
        order(Table(order=((), ())), 3, 1)
