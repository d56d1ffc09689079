from __future__ import annotations

import json
import math
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commsim.errors import ScheduleError, SpecError
from commsim.traces import plain_pickle
from commsim.traces.flight_recorder import FlightRecorder
from commsim.traces.joining import join
from commsim.traces.reading import read_recordings, recognised
from commsim.traces.replay import replay

MS = 1_000_000


def entry(seq: int, name: str, created: int, **more: Any) -> dict[str, Any]:
    """An operation as the Flight Recorder notes it; times in ns."""
    return {
        "frames": [], "record_id": seq, "pg_id": 0, "process_group": ("0", "default_pg"),
        "collective_seq_id": seq, "p2p_seq_id": 0, "op_id": seq, "profiling_name": name,
        "time_created_ns": created, "input_sizes": [[1024]], "input_dtypes": ["Float"],
        "output_sizes": [[1024]], "output_dtypes": ["Float"], "state": "completed",
        "time_discovered_started_ns": created + MS,
        "time_discovered_completed_ns": created + 3 * MS,
        "retired": True, "timeout_ms": 600000, "is_p2p": False, **more,
    }  # fmt: skip


def dump(entries: list[dict[str, Any]], ranks: int = 2) -> dict[str, Any]:
    return {
        "version": "2.10", "entries": entries,
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(ranks)))}},
        "pg_status": {"0": {"last_enqueued_collective": 1}}, "comm_lib_version": "",
    }  # fmt: skip


def pickled(path: Path, entries: list[dict[str, Any]]) -> Path:
    path.write_bytes(pickle.dumps(dump(entries)))
    return path


@pytest.mark.parametrize("form", ["pickle", "json"])
def test_entries_are_operations(tmp_path: Path, form: str) -> None:
    entries = [
        entry(1, "nccl:all_reduce", 0),
        entry(2, "nccl:_all_gather_base", 10 * MS, output_sizes=[[2, 1024]]),
        entry(0, "nccl:send 0->1", 20 * MS, is_p2p=True),
        entry(3, "nccl:coalesced", 30 * MS),
    ]
    path = tmp_path / "nccl_trace_rank_1"
    if form == "pickle":
        pickled(path, entries)
    else:
        path.write_text(json.dumps(dump(entries)))
    assert recognised(path) == FlightRecorder()
    (found,) = FlightRecorder().recordings(path)
    assert (found.rank, found.world, found.backend) == (1, 2, "nccl")
    reduce, gather, send = found.communication
    assert reduce.call is not None
    assert gather.call is not None
    assert send.call is not None
    assert (reduce.call.operation, reduce.call.nbytes, reduce.call.sequence) == (
        "all_reduce", 4096, 1,
    )  # fmt: skip
    assert (reduce.start, reduce.end) == (pytest.approx(1e-3), pytest.approx(3e-3))
    assert (gather.call.operation, gather.call.nbytes) == ("all_gather", 8192)
    assert (send.call.operation, send.call.peer) == ("send", 1)
    assert any("1 entries of coalesced" in note for note in found.notes)


def test_durations_that_were_timed_are_used(tmp_path: Path) -> None:
    path = pickled(tmp_path / "fr_0", [entry(1, "nccl:all_reduce", 0, duration_ms=0.5)])
    (reduce,) = FlightRecorder().recordings(path)[0].communication
    assert reduce.duration == pytest.approx(0.5e-3)


def test_what_hangs_has_no_end(tmp_path: Path) -> None:
    hanging = entry(1, "nccl:all_reduce", 0, time_discovered_completed_ns=None)
    found = FlightRecorder().recordings(pickled(tmp_path / "fr_0", [hanging]))[0]
    assert math.isnan(found.communication[0].end)
    assert any("1 of 1 operations have no end" in note for note in found.notes)


def test_gloo_leaves_the_groups_name_out(tmp_path: Path) -> None:
    whole = dump([entry(1, "gloo:all_reduce", 0)])
    whole["pg_config"] = {"": {"name": "", "desc": "", "ranks": "[0, 1]"}}
    path = tmp_path / "fr_trace_0"
    path.write_bytes(pickle.dumps(whole))
    assert FlightRecorder().recordings(path)[0].groups["0"].ranks == (0, 1)


def test_ranks_that_disagree_are_named(tmp_path: Path) -> None:
    for rank, name in enumerate(("nccl:all_reduce", "nccl:_reduce_scatter_base")):
        pickled(tmp_path / f"fr_{rank}", [entry(1, "nccl:all_reduce", 0), entry(2, name, MS)])
    step = join(read_recordings([tmp_path]))
    (said,) = step.mismatches
    assert "operation 2 of group 0: rank 0 called all_reduce" in said
    assert "rank 1 called reduce_scatter" in said
    with pytest.raises(ScheduleError, match="operation 2 of group 0"):
        replay(step)


def test_a_rank_that_never_came_is_named(tmp_path: Path) -> None:
    pickled(tmp_path / "fr_0", [entry(1, "nccl:all_reduce", 0), entry(2, "nccl:barrier", MS)])
    pickled(tmp_path / "fr_1", [entry(1, "nccl:all_reduce", 0)])
    (said,) = join(read_recordings([tmp_path])).mismatches
    assert said == (
        "operation 2 of group 0: rank 1 never called it (its last was 1); ranks 0 called barrier"
    )


# ---- files that would run programs, or are broken ----


class Evil:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, ...]]:
        return os.mkdir, (str(self.target),)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_nothing_in_a_pickle_is_run(tmp_path: Path, protocol: int) -> None:
    target = tmp_path / "made"
    data = pickle.dumps({"entries": [Evil(target)]}, protocol=protocol)
    with pytest.raises(plain_pickle.NotPlainError):
        plain_pickle.loads(data)
    path = tmp_path / "fr_0"
    path.write_bytes(data)
    with pytest.raises(SpecError, match=r"could run any program|no known trace"):
        read_recordings([path])
    assert not target.exists()


def test_a_pickle_cannot_ask_for_much_memory() -> None:
    with pytest.raises(plain_pickle.NotPlainError, match="remembers item"):
        plain_pickle.loads(b"\x80\x02K\x01r\xff\xff\xff\x7f.")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (3, "a pickled int"),
        ({"entries": 3}, "a pickled dict"),
        ({"entries": [3]}, r"entries\[0\]: expected a dict, found int"),
        ({"entries": [{}]}, r"entries\[0\]: expected a profiling_name"),
        ({"entries": []}, "no entry is an operation"),
    ],
)
def test_foreign_pickles_are_refused(tmp_path: Path, value: Any, said: str) -> None:
    path = tmp_path / "fr_0"
    path.write_bytes(pickle.dumps(value))
    with pytest.raises(SpecError, match=said):
        read_recordings([path])


def test_a_truncated_pickle_is_refused(tmp_path: Path) -> None:
    data = pickle.dumps(dump([entry(1, "nccl:all_reduce", 0)]))
    path = tmp_path / "fr_0"
    for length in range(2, len(data) - 1, 31):
        path.write_bytes(data[:length])
        with pytest.raises(SpecError, match="broken pickle"):
            read_recordings([path])
