"""One small file of every format, typed here in its style; the figures are made up."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import commsim
from commsim.errors import SpecError
from commsim.measurements.reading import read_measurements, readers

NCCL_TESTS = """\
# Collective test starting: all_reduce_perf
# 1 nodes, 4 ranks
#       size         count      type   redop    root     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)
        2000           500     float     sum      -1    10.00    0.20    0.30      0
"""
JSON = json.dumps(
    {
        "nccl_version": "2.28.3",
        "args": ["./build/all_gather_perf", "-g", "2"],
        "devices": [{"rank": 0, "hostname": "a"}, {"rank": 1, "hostname": "b"}],
        "results": [
            {
                "size": 4000, "count": 1000, "type": "half", "redop": "none", "root": -1,
                "out_of_place": {"time": 5.0, "alg_bw": 0.8, "bus_bw": 0.4, "nwrong": 3},
                "in_place": {"time": 8.0, "alg_bw": 0.5, "bus_bw": 0.25, "nwrong": 0},
            }
        ],
    },
    indent=1,
)  # fmt: skip
OSU = """\
$ mpirun -np 4 ./osu_allgather -d cuda
# OSU MPI-CUDA Allgather Latency Test v7.4
# Datatype: MPI_CHAR.
# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations
8                       6.50              6.00              7.00        1000
"""
BENCH_OLD = """\
The average bandwidth of all_reduce with a 4.0GB payload (5 trials, 4 ranks):
 algbw: 200.000 GBps (1600.0 Gbps)
 busbw: 300.000 GBps (2400.0 Gbps)
"""
BENCH_NEW = """\
The average bandwidth of all_reduce over 8 ranks (5 warmups / 20 trials):

| payload |    busbw   |    algbw   |
| ------: | ---------: | ---------: |
|    32KB |   0.00GBps |   0.00GBps |
|     1GB | 175.00GBps | 100.00GBps |
"""
PARAM = """\
 MPI environment: {'world_size': 8, 'local_size': 8}
	COMMS-RES-all_reduce-float32	size (B)	nElementsPerRank	Latency(us):p50	p75	p95	Min	Max
	COMMS-RES-all_reduce-float32	1024	256	40.5	41.0	42.0	39.0	43.0
"""
CSV = "op,bytes,time_us,ranks\nalltoall,1MiB,40,8\nall_reduce,2000,3,2\n"
HARNESS = """\
{"commsim_measure":1,"kind":"run","run":"a1","library":"gloo","library_version":"2.13.0"}
{"commsim_measure":1,"kind":"collective","run":"a1","operation":"all_reduce","size_bytes":4096,\
"dtype":"float32","reduce_op":"sum","root":null,"ranks":[0,1],"n_ranks":2,"nodes":1,\
"in_place":true,"wrong":0,"timing":"isolated","duration_s":2e-4,"samples_s":[1e-4,2e-4,3e-4]}
"""
SAMPLES = {
    "nccl_tests": NCCL_TESTS, "json_records": JSON, "osu": OSU, "all_reduce_bench": BENCH_NEW,
    "param_comms": PARAM, "table": CSV, "harness": HARNESS,
}  # fmt: skip


def read(folder: Path, text: str, name: str = "run.log") -> list[commsim.Measurement]:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return list(read_measurements(path))


def test_every_format_has_a_sample_that_it_alone_recognises() -> None:
    assert {reader.name for reader in readers()} == set(SAMPLES)
    for name, text in SAMPLES.items():
        assert [reader.name for reader in readers() if reader.recognises(text)] == [name]


def test_json_of_nccl_tests(tmp_path: Path) -> None:
    out, within = read(tmp_path, JSON)
    assert out.collective == commsim.Collective("all_gather", 4000, "float16")
    assert (out.duration, within.duration) == pytest.approx((5e-6, 8e-6))
    assert (out.in_place, within.in_place, out.wrong) == (False, True, 3)
    assert (out.n_ranks, out.nodes) == (2, 2)
    assert ("library_version", "2.28.3") in out.provenance


def test_json_a_record_a_line(tmp_path: Path) -> None:
    lines = [
        {"op": "broadcast", "nbytes": 64, "duration_s": 2e-6, "n_ranks": 4, "root": 1,
         "samples_s": [1e-6, 3e-6]},
        {"name": "AllReduce", "ranks": 2, "size": "4096", "type": "float", "redop": "sum",
         "inPlace": "1", "time": "7.5", "algBw": "0.5", "busBw": "0.5", "wrong": "0"},
    ]  # fmt: skip
    own, rccl = read(tmp_path, "\n".join(map(json.dumps, lines)))
    assert own.collective == commsim.Collective("broadcast", 64, root=1)
    assert own.duration == pytest.approx(2e-6)
    assert own.samples == (1e-6, 3e-6)
    assert (rccl.in_place, rccl.n_ranks, rccl.wrong) == (True, 2, 0)
    assert rccl.duration == pytest.approx(7.5e-6)


def test_osu(tmp_path: Path) -> None:
    (found,) = read(tmp_path, OSU)
    assert found.collective == commsim.Collective("all_gather", 32, "int8")  # 8 B of each of 4
    assert found.duration == pytest.approx(6.5e-6)
    path = tmp_path / "bare"
    path.write_text(OSU.partition("\n")[2])
    (bare,) = read_measurements(path, cluster=commsim.load_cluster("dgx-h100"))
    assert bare.collective.nbytes == 64
    with pytest.raises(SpecError, match="bare:4: expected the number of ranks"):
        read_measurements(path)
    pair = "# OSU MPI Latency Test v5.6\n# Size          Latency (us)\n4  2.50\n"
    (sent,) = read(tmp_path, pair)
    assert (sent.collective.operation, sent.collective.root, sent.n_ranks) == ("send_recv", 0, 2)
    barrier = "# srun -n 8\n# OSU MPI Barrier Latency Test v5.6\n# Avg Latency(us)\n   9.75\n"
    (waited,) = read(tmp_path, barrier)
    assert (waited.collective.operation, waited.n_ranks) == ("barrier", 8)
    assert waited.duration == pytest.approx(9.75e-6)


def test_osu_non_blocking(tmp_path: Path) -> None:
    """The time of the operation alone counts, not the one that hides behind computation."""
    text = (
        "# srun -n 4\n# OSU MPI-CUDA Non-blocking Allgather Latency Test v5.9\n"
        "# Overall = Coll. Init + Compute + MPI_Test + MPI_Wait\n\n"
        "# Size           Overall(us)       Compute(us)    Pure Comm.(us)        Overlap(%)\n"
        "8                      14.20              6.10              7.25             0.00\n"
    )
    (found,) = read(tmp_path, text)
    assert found.collective == commsim.Collective("all_gather", 32)
    assert found.duration == pytest.approx(7.25e-6)
    full = (
        "# mpirun -np 2\n# OSU MPI Non-blocking Barrier Latency Test v7.4\n"
        "#     Overall(us)  Compute(us)  Coll. Init(us)  MPI_Wait(us)  Pure Comm.(us)  Overlap(%)\n"
        "          9.00         4.00            0.50          3.00            4.75       0.00\n"
    )
    (waited,) = read(tmp_path, full)
    assert (waited.collective.operation, waited.duration) == ("barrier", pytest.approx(4.75e-6))


def test_osu_bandwidth(tmp_path: Path) -> None:
    """2 MiB at 10 GB/s take 209.7152 us; both ways the rate is the sum of two directions."""
    rows = "1                       3.10\n2097152             10000.00\n"
    one, both = (
        read(tmp_path, f"# OSU MPI {kind}Bandwidth Test v7.4\n# Size      Bandwidth (MB/s)\n{rows}")
        for kind in ("", "Bi-Directional ")
    )
    assert [(m.collective.nbytes, m.collective.root, m.n_ranks) for m in one] == [(1 << 21, 0, 2)]
    assert one[0].duration == pytest.approx(209.7152e-6)
    assert [(m.collective.operation, m.collective.root) for m in both] == [("send_recv", None)]
    assert both[0].duration == pytest.approx(2 * 209.7152e-6)
    assert ("duration_from", "bandwidth of a window of messages") in one[0].provenance
    small = "# OSU MPI Bandwidth Test v7.4\n# Size      Bandwidth (MB/s)\n4  12.50\n8  25.00\n"
    with pytest.raises(SpecError, match=r"run\.log:3: expected a bandwidth of messages of 1 MiB"):
        read(tmp_path, small)


def test_all_reduce_bench(tmp_path: Path) -> None:
    (old,) = read(tmp_path, BENCH_OLD)
    assert (old.collective.nbytes, old.n_ranks) == (4 * 10**9, 4)
    assert old.duration == pytest.approx(0.02)  # 4 GB at 200 GB/s
    (new,) = read(tmp_path, BENCH_NEW)  # a bandwidth of 0.00 tells no time
    assert (new.collective.nbytes, new.n_ranks) == (1 << 30, 8)
    assert new.bus_bandwidth == pytest.approx(175e9)


def test_param_comms(tmp_path: Path) -> None:
    (found,) = read(tmp_path, PARAM)
    assert found.collective == commsim.Collective("all_reduce", 1024)
    assert found.n_ranks == 8
    assert found.duration == pytest.approx(40.5e-6)


def test_csv(tmp_path: Path) -> None:
    first, second = read(tmp_path, CSV)
    assert first.collective == commsim.Collective("all_to_all", 1 << 20)
    assert [m.duration for m in (first, second)] == pytest.approx([40e-6, 3e-6])
    assert [m.n_ranks for m in (first, second)] == [8, 2]
    both = "# mine\nop;size;nranks;time_us_oop;time_us_ip;busbw_oop\nall_reduce;8;2;1.5;;9\n"
    (half,) = read(tmp_path, both)
    assert not half.in_place
    assert half.duration == pytest.approx(1.5e-6)
    rated = 'op,"bytes",ranks,bus_bandwidth_bytes_per_s\nall_reduce,300,4,150\n'
    (rate,) = read(tmp_path, rated)
    assert rate.duration == pytest.approx(3.0)  # 300 * 1.5 / 150


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("all_reduce,8,abc,2", "run.log:2: expected a number, got 'abc'"),
        ("all_reduce,8,1", "run.log:2: expected 4 cells, got 3"),
        ("all_shuffle,8,1,2", "run.log:2: expected an operation .* got 'all_shuffle'"),
        ("all_reduce,1.5,1,2", "run.log:2: expected a whole number of bytes"),
        ("all_reduce,8,1,1", "run.log:2: expected 2 ranks or more, got 1"),
        ("all_reduce,99999999999999999999,1,2", "run.log:2: .*less than 2.63 bytes"),
    ],
)
def test_what_is_wrong_with_a_line(tmp_path: Path, row: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        read(tmp_path, f"op,bytes,time_us,ranks\n{row}\n")


def test_a_time_without_its_unit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="a time with its unit, such as time_us or duration_s"):
        read(tmp_path, "op,bytes,time,ranks\nall_reduce,8,1,2\n")


def test_files_and_folders(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "a.csv").write_text(CSV)
    (tmp_path / "deep" / "b.log").write_text(NCCL_TESTS)
    (tmp_path / "README").write_text("nothing measured here\n")
    assert len(read_measurements(tmp_path)) == 3
    assert len(read_measurements([tmp_path / "a.csv", str(tmp_path / "deep" / "b.log")])) == 3
    with pytest.raises(SpecError, match=r"README:1: expected measurements .* got 'nothing meas"):
        read_measurements(tmp_path / "README")
    with pytest.raises(SpecError, match="no_such_file: expected a file that can be read"):
        read_measurements(tmp_path / "no_such_file")
    (tmp_path / "empty").mkdir()
    with pytest.raises(SpecError, match="expected files with measurements, got 0 without"):
        read_measurements(tmp_path / "empty")


def read_or_refuse(path: Path, raw: bytes) -> None:
    """Anything but a SpecError of its file is an error of the test."""
    path.write_bytes(raw)
    problems: tuple[str, ...] = ()
    found: tuple[commsim.Measurement, ...] = ()
    try:
        found = read_measurements(path)
    except SpecError as error:
        problems = error.problems
    assert bool(found) != bool(problems)
    assert len(problems) <= 21
    assert all(problem.startswith(str(path)) and "\n" not in problem for problem in problems)


FUZZ = settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@FUZZ
@given(data=st.data())
def test_damaged_files_are_read_or_refused(tmp_path: Path, data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(sorted(SAMPLES.values())))
    lines = text.splitlines(keepends=True)
    random.Random(data.draw(st.integers(0, 99))).shuffle(lines)
    damaged = "".join(lines) if data.draw(st.booleans()) else text
    raw = bytearray(damaged.encode())
    for at, byte in data.draw(
        st.lists(st.tuples(st.integers(0, len(raw) - 1), st.integers(0, 255)), max_size=6)
    ):
        raw[at] = byte
    read_or_refuse(tmp_path / "fuzz", bytes(raw[: data.draw(st.integers(0, len(raw)))]))


@FUZZ
@given(raw=st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(tmp_path: Path, raw: bytes) -> None:
    read_or_refuse(tmp_path / "fuzz", raw)


@pytest.mark.parametrize("name", sorted(SAMPLES))
@pytest.mark.parametrize("unit", ["9", "9 ", "9,", "[", "a_perf", "|", " ", "| 9", "Rank 1 on x "])
def test_endless_lines_take_no_time(tmp_path: Path, name: str, unit: str) -> None:
    begin = time.process_time()
    read_or_refuse(tmp_path / "huge", (SAMPLES[name] + unit * 100_000).encode())
    read_or_refuse(tmp_path / "huge", (unit * 100_000 + "\n" + SAMPLES[name]).encode())
    assert time.process_time() - begin < 2


def test_osu_in_python(tmp_path: Path) -> None:
    """OMB-Py's titles, and those of mpi4py's own copy, with its square brackets."""
    for title in ("OMB-Py MPI Allreduce", "OMB Python MPI Allreduce", "MPI Allreduce"):
        for header in ("Size (B)      Latency (us)", "Size [B]         Latency [us]"):
            text = f"# mpirun -np 4\n# {title} Latency Test\n# {header}\n1024   12.50\n"
            (found,) = read(tmp_path, text)
            assert (found.collective.operation, found.collective.nbytes) == ("all_reduce", 1024)
            assert (found.duration, found.n_ranks) == (pytest.approx(12.5e-6), 4)
