"""Chrome traces, parsed back: every transfer is there with its times, and no row overlaps."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from commsim.collectives.algorithms.ring import Ring
from commsim.collectives.collective import Collective
from commsim.engine.timeline import Timeline
from commsim.traces import chrome, lookup
from commsim.traces.chrome import events, write
from tests.engine.timelines import MB, MS, US, chain, played, ports, timelines

Event = dict[str, Any]
Rows = dict[tuple[int, int], list[tuple[int, int]]]
RING = Ring().schedule(Collective("all_gather", 4 * MB, dtype="uint8"), 4, 2)


def ns(us: float) -> int:
    """As a reader that cuts to whole ns."""
    return int(us * 1000)


def names(found: list[Event], what: str) -> dict[tuple[int, int], str]:
    return {(e["pid"], e["tid"]): e["args"]["name"] for e in found if e["name"] == f"{what}_name"}


def check(found: list[Event], timeline: Timeline) -> None:
    """The slices nest, and are the spans."""
    rows: Rows = defaultdict(list)
    software: Rows = defaultdict(list)
    for e in found:
        assert set(e) >= {"ph", "pid", "name"}
        if e["ph"] == "X":
            kind = software if e["name"] == "software" else rows
            kind[e["pid"], e["tid"]].append((ns(e["ts"]), ns(e["ts"]) + ns(e["dur"])))
    for row, slices in rows.items():
        slices.sort()
        for (_, end), (begin, _) in pairwise(slices):
            assert end <= begin
        for begin, end in software[row]:  # at the beginning of a slice, and no longer
            assert any(first == begin < end <= last for first, last in slices)
    assert set(software) <= set(rows)

    process, thread = names(found, "process"), names(found, "thread")
    seen: Counter[tuple[object, ...]] = Counter()
    for e in found:
        if e["ph"] == "X" and "op" in e.get("args", {}):
            who = process[e["pid"], 0].removeprefix("rank ")
            direction = thread[e["pid"], e["tid"]].split(" (")[0].split(",")[0].split()[-1]
            lost = "never" in e["name"]
            seen[who, direction, e["args"]["op"], e["args"]["bytes"],
                 ns(e["ts"]), None if lost else ns(e["ts"]) + ns(e["dur"])] += 1  # fmt: skip
    due: Counter[tuple[object, ...]] = Counter()
    for s in timeline.spans:
        if s.begun != s.begun:  # nan: never
            continue
        marks = [None if t != t else round(t * 1e9) for t in (s.ready, s.begun, s.sent, s.arrived)]
        ready, begun, sent, arrived = marks
        ends = (str(s.source), str(s.destination))
        if s.source == s.destination:
            due[ends[0], "local", s.op, s.nbytes, ready, arrived] += 1
        else:
            due[ends[0], "send", s.op, s.nbytes, ready, sent] += 1
            due[ends[1], "receive", s.op, s.nbytes, begun, arrived] += 1
    assert seen == due


@settings(max_examples=100, deadline=None)
@given(timeline=timelines(whole=False))
def test_slices_nest_and_are_the_spans(timeline: Timeline) -> None:
    check(list(events(timeline)), timeline)


def test_the_file_of_two_collectives(tmp_path: Path) -> None:
    timeline = played(RING, chain(MB, 2), network=ports(4), launch=10 * US, late={1: 1 * MS})
    for name in ("a.json", "b.json"):
        write(timeline, tmp_path / name)
    text = (tmp_path / "a.json").read_text("utf-8")
    assert text == (tmp_path / "b.json").read_text("utf-8")
    found = json.loads(text)["traceEvents"]
    check(found, timeline)
    assert list(names(found, "process").values()) == [
        "rank 0", "rank 1", "rank 2", "rank 3", "links (the 8 hottest)",
    ]  # fmt: skip
    assert [name for (pid, _), name in names(found, "thread").items() if pid == 1] == [
        "all_gather 0",
        "channel 0 receive, all_gather 0",
        "channel 0 send, all_gather 0",
        "channel 1 receive, all_gather 0",
        "channel 1 send, all_gather 0",
        "broadcast 1",
        "channel 0 send, broadcast 1",
    ]
    assert found[0] == {"ph": "i", "s": "g", "pid": 0, "tid": 0, "ts": 0.0, "name": "made up"}
    late = [e for e in found if e["ph"] == "X" and e["pid"] == 2 and e["name"].startswith("all_g")]
    assert [e["ts"] for e in late] == [1010.0]  # us: rank 1's delay and its launch
    assert late[0]["args"] == {"algorithm": "ring", "protocol": "Simple", "ranks": 4}


def test_what_happens_at_once_gets_rows_of_its_own() -> None:
    """Rank 0 sends two messages of one channel at the same time."""
    timeline = played(chain(MB, 2), chain(MB, 2), network=ports(2))
    one = list(events(played(chain(MB, 2), network=ports(2))))
    assert "channel 0 send" in names(one, "thread").values()
    assert not any("(2)" in name for name in names(one, "thread").values())
    check(list(events(timeline)), timeline)


def test_the_load_of_a_link_is_a_counter() -> None:
    """The first of two hops fills its links for half of the time."""
    found = list(events(played(chain(), network=ports(3))))
    counts = [e for e in found if e["ph"] == "C" and e["name"] == "rank0 -> switch"]
    assert counts[0]["ts"] == 0.0
    assert counts[0]["args"]["share"] == 1.0
    assert counts[-1]["args"]["share"] == 0.0
    assert counts[-1]["ts"] == pytest.approx(1003, abs=2003 / chrome.STEPS)
    assert len(counts) == 3  # full, the step in which it ends, empty


def test_of_too_many_the_first_rounds_are_kept() -> None:
    """The ring has 3 rounds of 4 ranks and 2 channels: 24 transfers."""
    timeline = played(RING, network=ports(4))
    found = list(events(timeline, most=16))
    assert found[0]["name"] == "only 16 of 24 transfers are shown: those of the first rounds"
    shown = {e["args"]["op"]: e["args"]["round"] for e in found if "op" in e.get("args", {})}
    assert sorted(shown) == list(range(16))
    assert set(shown.values()) == {0, 1}
    assert not any("shown" in e["name"] for e in events(timeline, most=24))


def test_what_never_arrives_is_named_so() -> None:
    """Rank 1 dies at 0.5 ms, and with it the first hop, which is drawn that far."""
    found = list(events(played(chain(), network=ports(3), deaths={1: 0.5 * MS})))
    ops = [e for e in found if "op" in e.get("args", {})]
    assert [e["name"] for e in ops] == [
        "976.6 KiB to 1 (never arrives)",
        "976.6 KiB from 0 (never arrives)",
    ]
    assert [e["dur"] for e in ops] == [500.0, 500.0]


def test_it_is_no_format_of_schedules() -> None:
    assert "chrome" not in (*lookup.readers(), *lookup.writers())
