from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from commsim.errors import SpecError
from commsim.traces.joining import join
from commsim.traces.nsys import Nsys
from commsim.traces.reading import recognised
from commsim.traces.recording import COMPUTE, COPY
from commsim.traces.replay import replay

NAMES = {
    1: "gemm_kernel", 2: "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(args)",
    3: "ncclDevKernel_Generic_4(args)", 4: "cudaLaunchKernel_v7000",
    5: "cudaDeviceSynchronize_v3020",
}  # fmt: skip
US = 1000  # ns


def export(
    path: Path, processes: int = 1, payload: str | None = '{"Message size [bytes]": 4096}'
) -> Path:
    """A process per GPU: a product, an all_reduce behind it, an all_gather of a generic kernel."""
    with sqlite3.connect(path) as base:
        base.executescript(
            """
            CREATE TABLE StringIds (id INTEGER, value TEXT);
            CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER,
                streamId INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER,
                shortName INTEGER);
            CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER,
                streamId INTEGER, correlationId INTEGER, globalPid INTEGER, bytes INTEGER);
            CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER,
                correlationId INTEGER, nameId INTEGER);
            CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, globalTid INTEGER, text TEXT,
                textId INTEGER, jsonText TEXT);
            """
        )
        base.executemany("INSERT INTO StringIds VALUES (?, ?)", NAMES.items())
        for p in range(processes):
            pid = (7 + p) << 24
            tid = pid | 42
            kernels = [(10, 100, 7, 1, 1), (100, 150, 20, 2, 2), (150, 160, 20, 3, 3)]
            base.executemany(
                "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                [(a * US, b * US, p, s, c, pid, n, n) for a, b, s, c, n in kernels],
            )
            base.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?, ?, ?, 7, 9, ?, 64)",
                (160 * US, 165 * US, p, pid),
            )
            base.executemany(
                "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?)",
                [(5 * US, 6 * US, tid, 1, 4), (7 * US, 8 * US, tid, 2, 4),
                 (20 * US, 21 * US, tid, 3, 4), (30 * US, 170 * US, tid, 4, 5)],
            )  # fmt: skip
            base.executemany(
                "INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, NULL, ?)",
                [(6500, 9 * US, tid, "ncclAllReduce", payload),
                 (19 * US, 22 * US, tid, "ncclAllGather", None),
                 (0, 300 * US, tid, "training step", None)],
            )  # fmt: skip
    base.close()
    return path


def test_kernels_launches_and_ranges(tmp_path: Path) -> None:
    path = export(tmp_path / "report_rank3.sqlite")
    assert recognised(path) == Nsys()
    (found,) = Nsys().recordings(path)
    assert found.rank == 3
    kinds = [e.kind for e in found.events if e.kind in (COMPUTE, COPY)]
    assert kinds == [COMPUTE, COPY]
    reduce, gather = (e.call for e in found.communication)
    assert reduce is not None
    assert gather is not None
    assert (reduce.operation, reduce.dtype, reduce.nbytes) == ("all_reduce", "bfloat16", 4096)
    assert (gather.operation, gather.nbytes) == ("all_gather", None)
    assert any("1 operations do not say how many bytes" in note for note in found.notes)
    step = join([found])
    assert replay(step).duration == pytest.approx(step.duration)
    assert step.duration == pytest.approx(
        (170 - 5) * 1e-6
    )  # from the first launch to the wait's end


def test_a_process_per_gpu_is_a_rank_each(tmp_path: Path) -> None:
    found = Nsys().recordings(export(tmp_path / "report.sqlite", processes=2))
    assert [(r.rank, r.world) for r in found] == [(0, 2), (1, 2)]
    step = join(found)
    assert [op.call.operation for op in step.operations] == ["all_reduce", "all_gather"]
    assert step.operations[0].transfer == pytest.approx(50e-6)


def test_sizes_that_pytorch_writes_into_ranges(tmp_path: Path) -> None:
    path = export(tmp_path / "r.sqlite", payload=None)
    with sqlite3.connect(path) as base:
        base.execute(
            "UPDATE NVTX_EVENTS SET text = ? WHERE text = 'ncclAllReduce'",
            ("c10d::allreduce_, seq = 3, op_id = 4, sizes = [[[1000]], [], []]",),
        )
    base.close()
    call = Nsys().recordings(path)[0].communication[0].call
    assert call is not None
    assert call.nbytes == 2000


def test_broken_and_foreign_databases_are_refused(tmp_path: Path) -> None:
    path = export(tmp_path / "r.sqlite")
    data = path.read_bytes()
    cut = tmp_path / "cut.sqlite"
    for length in (16, 100, len(data) // 3):
        cut.write_bytes(data[:length])
        with pytest.raises(SpecError, match=r"expected an nsys SQLite export"):
            Nsys().recordings(cut)
    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as base:
        base.execute("CREATE TABLE notes (id INTEGER)")
    base.close()
    with pytest.raises(SpecError, match="notes; expected an nsys SQLite export"):
        Nsys().recordings(other)
    with pytest.raises(FileNotFoundError):
        Nsys().recordings(tmp_path / "none.sqlite")
