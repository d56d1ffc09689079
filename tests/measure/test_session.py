"""The harness over ranks that are threads and a library that computes by definition."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from commsim.collectives.collective import OPERATIONS, Collective, bus_factor
from commsim.errors import CollectiveError, MeasureError
from commsim.measure import screen, steps
from commsim.measure.backend import Asked, offers
from commsim.measure.devices.numpy_host import NumpyHost
from commsim.measure.plan import Plan, Settings, Step
from tests.measure.threads import carry_out

QUICK = Settings(backend="mpi", iterations=3, warmup=1)


def plan(n_ranks: int, *todo: Step, settings: Settings = QUICK) -> Plan:
    return Plan(run="r", n_ranks=n_ranks, settings=settings, steps=todo, command=("commsim",))


def of(operation: str, nbytes: int = 4096, **more: Any) -> Step:
    forms = offers("mpi").forms[operation]
    return Step(
        kind="collective", collective=Collective(operation, nbytes, **more), forms=forms
    )  # fmt: skip


def test_every_operation_is_right_in_every_form() -> None:
    todo = [of(operation, 0 if operation == "barrier" else 4096) for operation in OPERATIONS]
    todo += [of("broadcast", 512, root=2, dtype="bfloat16"), of("reduce", root=1, reduce_op="max")]
    todo += [of("all_reduce", ranks=(0, 2), dtype="int8"), of("send_recv", ranks=(2, 1), root=1)]
    header, *records = carry_out(plan(4, *todo))
    assert header["n_ranks"] == len(header["ranks"]) == 4
    assert len(records) == sum(len(step.forms) for step in todo)
    for record in records:
        assert record["wrong"] == 0, record
        assert len(record["samples_s"]) == len(record["skew_s"]) == 3
        assert 0 < record["min_s"] <= record["duration_s"] <= record["max_s"]
        assert len(record["waiting_s"]) == record["n_ranks"] == len(record["ranks"])
        assert record["bus_bandwidth_bytes_per_s"] == pytest.approx(
            record["size_bytes"] / record["duration_s"]
            * bus_factor(record["operation"], record["n_ranks"])
        )  # fmt: skip


@pytest.mark.parametrize("in_place", [False, True])
def test_a_spoilt_result_is_counted(in_place: bool) -> None:
    def spoil(asked: Asked, receive: Any) -> None:
        if asked.position == 1:
            receive[[3, 700]] += 1

    step = Step(kind="collective", collective=Collective("all_reduce", 4096), forms=(in_place,))
    _, record = carry_out(plan(3, step), spoil)
    assert record["wrong"] == 2
    unchecked = Settings(backend="mpi", iterations=1, warmup=0, check=False)
    _, record = carry_out(plan(3, step, settings=unchecked), spoil)
    assert record["wrong"] is None


def test_a_result_that_never_comes_is_wrong_everywhere() -> None:
    def forget(asked: Asked, receive: Any) -> None:
        receive[...] = before.setdefault(asked.position, np.zeros_like(receive))

    before: dict[int, Any] = {}
    _, record = carry_out(plan(2, Step(kind="collective", collective=Collective(
        "all_gather", 8000))), forget)  # fmt: skip
    assert record["wrong"] > 0.9 * 2 * 2000


def test_rotation_and_loops() -> None:
    settings = Settings(
        backend="mpi", iterations=6, warmup=0, timing="loop", block=2, rotate=1 << 16
    )
    _, record = carry_out(plan(2, of("all_gather"), settings=settings))[:2]
    assert (record["timing"], len(record["samples_s"])) == ("loop", 3)  # two runs a sample
    assert "waiting_s" not in record


def test_groups_at_once_each_have_a_communicator() -> None:
    groups = ((0, 1), (2, 3), (0, 1))
    step = Step(kind="together", collective=Collective("all_reduce", 4096), groups=groups)
    _, *records = carry_out(plan(4, step))
    assert [r["kind"] for r in records] == ["collective", "together"] * 3
    for alone, together, group in zip(records[::2], records[1::2], groups, strict=True):
        assert alone["ranks"] == together["ranks"] == list(group)
        assert together["wrong"] == 0
        assert together["slowdown"] == together["duration_s"] / alone["duration_s"]


def test_a_product_beside_a_collective() -> None:
    step = Step(kind="interference", collective=Collective("all_reduce", 4096), gemm=(8, 16, 32))
    product = Step(kind="gemm", gemm=(8, 16, 32))
    _, record, gemm = carry_out(plan(2, step, product))
    assert (record["kind"], record["m"], record["n"], record["k"]) == ("interference", 8, 16, 32)
    for which in ("collective", "gemm"):
        found = record[which]
        if found["together"] is None:  # on busy cores no run may lie within one of the other's
            assert found["slowdown"] is None
            continue
        assert found["slowdown"] == found["together"]["duration_s"] / found["alone"]["duration_s"]
    assert record["wrong"] == 0
    assert gemm["flops_per_s"] == pytest.approx(2 * 8 * 16 * 32 / gemm["duration_s"])


def test_a_product_that_a_device_refuses_does_not_end_the_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = NumpyHost.matmul

    def matmul(self: NumpyHost, m: int, n: int, k: int, dtype: str) -> Any:
        if m == 1 and threading.current_thread().name == "rank 1":
            raise RuntimeError("m must be divisible by 16\nat some line")
        return real(self, m, n, k, dtype)

    monkeypatch.setattr(NumpyHost, "matmul", matmul)
    _, refused, done = carry_out(
        plan(2, Step(kind="gemm", gemm=(1, 8, 8)), Step(kind="gemm", gemm=(8, 8, 8)))
    )
    assert refused["error"] == "RuntimeError: m must be divisible by 16"
    assert done["flops_per_s"] > 0
    (row,) = screen.rows(Step(kind="gemm"), [refused], None)
    assert row.split()[:4] == ["1", "8", "8", "float32"]
    with pytest.raises(MeasureError, match="numpy multiplies float32 and float64, got int8"):
        carry_out(plan(2, Step(kind="gemm", gemm=(8, 8, 8), gemm_dtype="int8")))


def test_a_plan_travels_as_text() -> None:
    given = plan(
        4, of("all_reduce", ranks=(0, 2)), Step(kind="gemm", gemm=(1, 2, 3), gemm_dtype="int8"),
        Step(kind="together", collective=Collective("barrier"), groups=((0, 1), (2, 3))),
    )  # fmt: skip
    assert Plan.from_json(given.to_json()) == given


# ---- from what is asked to steps ----


def test_a_sweep_moves_whole_elements() -> None:
    found = steps.sweep(Collective("all_gather"), (4, 100, 101, 200), 3, (False,))
    # less than one float for each of three ranks; 96 twice; 192
    assert [step.collective.nbytes for step in found if step.collective] == [96, 192]
    with pytest.raises(CollectiveError, match="8 bytes are less than one float32 for each of 3"):
        steps.sweep(Collective("all_gather"), (4, 8), 3, (False,))
    assert len(steps.sweep(Collective("barrier"), (4, 8), 3, (False,))) == 1


def test_pairs_go_both_ways() -> None:
    found = steps.pairs(Collective("send_recv", ranks=(0, 2, 5)), (8,), 6)
    asked = [step.collective for step in found if step.collective]
    assert [(c.ranks, c.root) for c in asked] == [
        ((0, 2), 0), ((0, 5), 0), ((2, 0), 2), ((2, 5), 2), ((5, 0), 5), ((5, 2), 5),
    ]  # fmt: skip


def test_forms_are_those_that_the_library_has() -> None:
    gloo, copies = Settings(backend="gloo"), Settings(backend="gloo", copies=True)
    assert steps.forms("all_gather", gloo, "both") == (False, True)
    assert steps.forms("all_reduce", gloo, "both") == (True,)
    assert steps.forms("all_reduce", copies, "both") == (False, True)
    assert steps.forms("all_reduce", Settings(backend="mpi"), "out") == (False,)
    with pytest.raises(MeasureError, match=r"gloo's all_reduce is in place only .--copies"):
        steps.forms("all_reduce", gloo, "out")


def test_groups_that_cannot_run_at_once() -> None:
    asked = Collective("all_gather")
    with pytest.raises(CollectiveError, match="two groups or more of 2 ranks or more"):
        steps.together(asked, (64,), ((0, 1),), (False,))
    with pytest.raises(CollectiveError, match="expected groups of one size"):
        steps.together(asked, (64,), ((0, 1), (2, 3, 4)), (False,))
