from __future__ import annotations

from typing import Any

from commsim.collectives.collective import Collective
from commsim.measure import screen
from commsim.measure.expected import Expected
from commsim.measure.plan import Plan, Settings, Step

RECORD: dict[str, Any] = {
    "kind": "collective", "operation": "all_gather", "size_bytes": 4_000_000, "dtype": "float16",
    "reduce_op": "sum", "root": None, "ranks": [0, 1, 2, 3], "n_ranks": 4, "in_place": False,
    "wrong": 0, "duration_s": 2e-3, "algorithm_bandwidth_bytes_per_s": 2e9,
    "bus_bandwidth_bytes_per_s": 1.5e9,
}  # fmt: skip
STEP = Step(kind="collective", collective=Collective("all_gather", 4_000_000, "float16"))
HEADER: dict[str, Any] = {
    "library": "gloo", "library_version": "2.13.0+cpu", "versions": {"gloo": "2.13.0"},
    "n_ranks": 4, "nodes": 1, "hosts": {"a": {}}, "environment": {},
    "settings": {"iterations": 20, "warmup": 5, "timing": "isolated"},
    "ranks": [{"rank": i, "host": "a", "device": "CPU", "cores": 8, "clock_error_s": 0.0}
              for i in range(4)],
}  # fmt: skip


def plan(*steps: Step) -> Plan:
    return Plan(run="r", n_ranks=4, settings=Settings(backend="gloo"), steps=steps)


def test_a_row_of_nccl_tests_with_the_expected_time_behind() -> None:
    inside = RECORD | {"in_place": True, "duration_s": 1e-3, "wrong": 7}
    (row,) = screen.rows(STEP, [RECORD, inside], 2.5e-3)
    # 2 MB of half in four parts; root none; out of place 2000 us, 2 and 1.5 GB/s; in place 1000 us
    assert row.split() == [
        "4000000", "500000", "half", "none", "-1", "2000.00", "2.00", "1.50", "0", "1000.00",
        "2.00", "1.50", "7", "2500.00", "0.80", "0-3",
    ]  # fmt: skip
    (row,) = screen.rows(STEP, [RECORD], None)
    assert row.split()[9:] == ["N/A"] * 6 + ["0-3"]


def test_columns_stand_under_their_names() -> None:
    title, names, _ = screen.head(STEP)
    (row,) = screen.rows(STEP, [RECORD, RECORD | {"in_place": True}], 2.5e-3)
    assert len(names) == len(row)
    for name in ("size", "count", "type", "redop", "root", "#wrong", "expected", "ranks"):
        end = names.index(name) + len(name)
        assert row[end - 1] != " "
        assert row[end : end + 1] in ("", " ")
    assert title.index("out-of-place") < title.index("in-place")


def test_what_is_said_at_the_end() -> None:
    bad = RECORD | {"wrong": 3, "bus_bandwidth_bytes_per_s": 2.5e9}
    assert screen.footer(plan(STEP), [RECORD, bad]) == [
        "# Out of bounds values : 1 FAILED", "# Avg bus bandwidth    : 2",
    ]  # fmt: skip


def test_pairs_become_matrices() -> None:
    def message(a: int, b: int, nbytes: int, duration: float) -> dict[str, Any]:
        return RECORD | {
            "operation": "send_recv", "ranks": [a, b], "root": a, "size_bytes": nbytes,
            "duration_s": duration, "algorithm_bandwidth_bytes_per_s": nbytes / duration,
        }  # fmt: skip

    pairs = [message(0, 1, 8, 2e-6), message(0, 1, 1 << 20, 1e-3), message(1, 0, 8, 3e-6)]
    lines = screen.matrix(pairs)
    assert [" ".join(line.split()) for line in lines] == [
        "# us for 8 B, from row to column", "# 0 1", "# 0 - 2.00", "# 1 3.00 -",
        "# GB/s at 1 MiB, from row to column", "# 0 1", "# 0 - 1.05", "# 1 - -",
    ]  # fmt: skip
    (row,) = screen.rows(STEP, [pairs[0]], None)
    assert row.split()[-1] == "0>1"


def test_products_and_interference() -> None:
    summary = {"duration_s": 1e-3, "quartiles_s": [9e-4, 2e-3], "host_s": 5e-6}
    product = {"m": 10, "n": 20, "k": 30, "dtype": "bfloat16"}
    (row,) = screen.rows(Step(kind="gemm"), [product | summary | {"flops_per_s": 12e6}], None)
    assert row.split() == ["10", "20", "30", "bfloat16", "1000.00", "900.00", "..", "2000.00",
                           "5.00", "0.0000"]  # fmt: skip
    both = {"alone": summary, "together": {"duration_s": 3e-3}, "slowdown": 3.0}
    record = RECORD | product | {"collective": both,
                                 "gemm": both | {"together": None, "slowdown": None}}  # fmt: skip
    one, other = screen.rows(Step(kind="interference"), [record], None)
    assert one.split() == ["4000000", "all_gather", "1000.00", "3000.00", "3.00"]
    assert other.split() == ["4000000", "10x20x30", "bfloat16", "1000.00", "N/A", "N/A"]


# ---- expected times ----


def test_gloo_and_mpi_on_one_machine_are_expected() -> None:
    found = Expected(HEADER)
    assert found.cluster is not None
    assert found.cluster.n_ranks == 4
    assert found.library is not None
    assert (found.library.name, found.library.version) == ("gloo", "2.13.0")
    duration = found.duration(RECORD)
    assert duration is not None
    assert duration > 0
    mpi = HEADER | {"library": "mpi", "library_version": "mpich@5.0.2"}
    faster = Expected(mpi).duration(RECORD)  # through shared memory instead of loopback TCP
    assert faster is not None
    assert 0 < faster < duration
    some = found.duration(RECORD | {"ranks": [0, 2], "n_ranks": 2})
    assert some is not None
    assert 0 < some < duration  # half of the messages, half of the bytes


def test_why_there_is_no_expected_time() -> None:
    assert "--cluster" in Expected(HEADER | {"nodes": 2}).note
    nccl = HEADER | {"library": "nccl", "library_version": "2.27.3"}
    assert Expected(nccl).duration(RECORD) is None
    assert "name the machine with --cluster" in Expected(nccl).note
    open_mpi = HEADER | {"library": "mpi", "library_version": "openmpi@5.0.8"}
    assert "expected MPICH" in Expected(open_mpi).note
    crowded = [rank | {"cores": 2} for rank in HEADER["ranks"]]
    assert "here 4 share 2" in Expected(HEADER | {"ranks": crowded}).note


def test_a_gpu_machine_that_shows_its_topology_is_known() -> None:
    matrix = (
        "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV18\t0-31\t0\n"
        "GPU1\tNV18\t X \t0-31\t0"
    )
    ranks = [{"rank": i, "device": "NVIDIA H100 80GB HBM3", "cores": 8} for i in range(2)]
    found = Expected(
        HEADER | {"library": "nccl", "library_version": "2.27.3", "n_ranks": 2, "ranks": ranks,
                  "hosts": {"a": {"topology": matrix}}}
    )  # fmt: skip
    assert found.cluster is not None, found.note
    assert (found.cluster.gpu.name, found.cluster.n_ranks) == ("H100-SXM5-80GB", 2)
    assert found.duration(RECORD | {"ranks": [0, 1], "n_ranks": 2}) is not None
