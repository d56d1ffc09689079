"""Streams: times by hand, what is exposed, and sharing as a matter of what is there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commsim.errors import ScheduleError
from commsim.workload.contention import Gpu, communicating, computing
from commsim.workload.streams import Task, play


def task(name: str, duration: float, stream: str = "compute", *after: int, **more: object) -> Task:
    return Task(
        name=name, kind=name.rstrip("0123456789"), stream=stream, duration=duration, after=after,
        **more,  # type: ignore[arg-type]
    )  # fmt: skip


# ---- by hand ----


def test_streams_keep_their_order() -> None:
    spans = play(
        [
            task("backward1", 2.0),
            task("reduce1", 4.0, "communication", 0),
            task("backward2", 1.0),
            task("reduce2", 1.0, "communication", 2),
            task("update", 0.5, "compute", 1, 3),
        ]
    )
    # reduce2 is ready at 3 but reduce1 has the stream until 6.
    assert spans.starts.tolist() == [0, 2, 2, 6, 7]
    assert spans.ends.tolist() == [2, 6, 3, 7, 7.5]
    assert spans.duration == 7.5
    assert spans.busy() == 3.5
    assert spans.busy("communication") == 5
    assert spans.exposed() == {"reduce": 4.0}
    assert spans.exposed("communication") == {"backward": 2.0, "update": 0.5}


def test_what_is_exposed_is_put_down_to_what_was_waited_for() -> None:
    # The update waits from 1 to 6: for the gather from 4 on, before it for the reduction, which
    # began at 1. The long broadcast on a third stream runs the while, and nobody waits for it.
    spans = play(
        [
            task("backward", 1.0),
            task("reduce", 3.0, "first", 0),
            task("gather", 2.0, "second", 1),
            task("broadcast", 6.0, "third"),
            task("update", 1.0, "compute", 2),
        ]
    )
    assert spans.exposed() == {"reduce": 3.0, "gather": 2.0}


def test_what_ends_last_is_exposed_after_the_last_compute() -> None:
    spans = play([task("backward", 1.0), task("reduce", 3.0, "communication", 0)])
    assert spans.exposed() == {"reduce": 3.0}


def test_nothing_to_do() -> None:
    spans = play([])
    assert spans.duration == 0
    assert spans.exposed() == {}
    assert play([], {}).duration == 0


# ---- sharing, by hand ----


def test_two_communicators_share_a_nic() -> None:
    # 40 and 40 of 50: each gets 25. The first has 1 s alone = 40 to send: done at 1.6; the second
    # has 2 s = 80: 40 by 1.6, the other 40 at 40/s: 2.6.
    nic = (("nic", 40.0),)
    spans = play(
        [task("a", 1.0, "first", uses=nic), task("b", 2.0, "second", uses=nic)], {"nic": 50.0}
    )
    assert spans.ends == pytest.approx([1.6, 2.6])
    assert spans.stretched() == pytest.approx({"a": 0.6, "b": 0.6})


def test_channels_take_sms_from_compute() -> None:
    # 132 SMs, 20 channels: compute runs at 112/132 while they are there, and they do not notice.
    gpu = Gpu(sms=132, memory=3e12, wires=(("nvlink", 450e9),))
    reduce = communicating(task("reduce", 1.0, "communication"), gpu, 20, 0, "nvlink")
    spans = play([computing(task("multiply", 2.0), gpu), reduce], gpu.capacity)
    assert spans.ends[1] == 1.0
    assert spans.ends[0] == pytest.approx(1.0 + (2.0 - 112 / 132))


def test_memory_bound_kernels_and_collectives_slow_each_other() -> None:
    # The collective sends 400 GB/s: 1.2e12 of HBM's 3e12 at 3 a byte; the kernel wants all 3e12.
    # Both at speed x: 4.2 x = 3, x = 5/7; without the channels' SMs in the way.
    gpu = Gpu(sms=132, memory=3e12, wires=(("nvlink", 450e9),))
    reduce = communicating(task("reduce", 1.0, "communication"), gpu, 16, int(400e9), "nvlink")
    add = computing(task("add", 1.0), gpu, moved=int(3e12), spread=0.5)
    spans = play([add, reduce], gpu.capacity)
    assert spans.ends == pytest.approx([1.4, 1.4])


def test_what_must_be_held_is_waited_for() -> None:
    held = (("sm", 80.0),)
    spans = play(
        [task("a", 1.0, "first", holds=held), task("b", 1.0, "second", holds=held)], {"sm": 132.0}
    )
    assert spans.starts.tolist() == [0, 1]
    assert spans.exposed("second") == {"a": 1.0}


# ---- laws ----


@st.composite
def programs(draw: st.DrawFn) -> list[Task]:
    tasks: list[Task] = []
    for i in range(draw(st.integers(1, 12))):
        after = draw(st.lists(st.integers(0, i - 1), max_size=3)) if i else []
        uses = [(name, draw(st.sampled_from([0.0, 0.4, 1.0, 1.5]))) for name in ("nic", "sm")]
        tasks.append(
            Task(
                name=f"t{i}",
                kind=draw(st.sampled_from(["x", "y"])),
                stream=draw(st.sampled_from(["compute", "communication", "third"])),
                duration=draw(st.sampled_from([0.0, 0.25, 1.0, 2.0, 3.5])),
                after=tuple(after),
                uses=tuple(uses),
            )
        )
    return tasks


AMPLE = {"nic": 100.0, "sm": 100.0}
SCARCE = {"nic": 1.5, "sm": 1.5}


@settings(max_examples=150, deadline=None)
@given(programs(), st.sampled_from([None, AMPLE, SCARCE]))
def test_laws(tasks: list[Task], capacity: dict[str, float] | None) -> None:
    spans = play(tasks, capacity)
    streams = {t.stream for t in tasks}
    free = dict.fromkeys(streams, 0.0)
    for i, t in enumerate(tasks):
        ready = max([free[t.stream], *(spans.ends[j] for j in t.after)])
        assert spans.starts[i] == pytest.approx(ready, abs=1e-9)
        assert spans.ends[i] - spans.starts[i] >= t.duration - 1e-9
        free[t.stream] = float(spans.ends[i])
    alone = {s: sum(t.duration for t in tasks if t.stream == s) for s in streams}
    assert max(alone.values()) <= spans.duration + 1e-9
    if capacity is not SCARCE:
        assert spans.duration <= sum(alone.values()) + 1e-9
        assert not spans.stretched()
    for stream in streams:
        told = spans.busy(stream) + sum(spans.exposed(stream).values())
        assert told == pytest.approx(spans.duration, abs=1e-9)


@settings(max_examples=100, deadline=None)
@given(programs())
def test_shared_resources_are_never_overdrawn(tasks: list[Task]) -> None:
    spans = play(tasks, SCARCE)
    # What a task uses in all is its duration times its rate, however slowly it goes.
    for name, capacity in SCARCE.items():
        total = sum(t.duration * dict(t.uses)[name] for t in tasks)
        assert total <= capacity * spans.duration * (1 + 1e-9) + 1e-9


@settings(max_examples=60, deadline=None)
@given(programs())
def test_with_enough_of_everything_sharing_changes_nothing(tasks: list[Task]) -> None:
    assert play(tasks, AMPLE).ends == pytest.approx(play(tasks).ends, abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(programs(), st.integers(0, 11))
def test_a_longer_task_makes_nothing_shorter(tasks: list[Task], which: int) -> None:
    i = which % len(tasks)
    longer = [*tasks]
    longer[i] = replace(tasks[i], duration=tasks[i].duration + 1)
    assert (play(longer).ends >= play(tasks).ends - 1e-9).all()


# ---- refusals ----


def test_what_cannot_be_played() -> None:
    with pytest.raises(ScheduleError, match=r"task 0 \(a\): after: expected places of earlier"):
        play([task("a", 1.0, "compute", 0)])
    with pytest.raises(ScheduleError, match="duration: expected 0 s or more, got -1"):
        play([task("a", -1.0)])
    with pytest.raises(ScheduleError, match=r"expected 0 or more of nic, got 1\.0 of sm"):
        play([task("a", 1.0, uses=(("sm", 1.0),))], {"nic": 1.0})
    with pytest.raises(ScheduleError, match="holds more than there is"):
        play([task("a", 1.0, holds=(("sm", 2.0),))], {"sm": 1.0})
    with pytest.raises(ScheduleError, match="tasks a: nothing is left"):
        play([task("a", 1.0, uses=(("sm", 1.0),))], {"sm": 0.0})
    assert np.isfinite(play([task("a", 0.0)], {}).duration)
