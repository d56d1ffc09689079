"""The probe tells from unshaped runs how much slower the cores are, and in what."""

from __future__ import annotations

import numpy as np
import pytest

from commsim.cost.host_speed import Speed
from commsim.units import KIB, MIB
from validation.lab.compare import expected
from validation.lab.cores import Cores
from validation.lab.layout import UNSHAPED, Layout, parse
from validation.lab.probe import PLACES, RUNS, THEN, Key, published, read, speed
from validation.lab.run import Case, Result


def on(cores: Cores, backend: str) -> dict[Key, float]:
    """What the probe's runs would take on these cores, if the formula were right."""
    layout = Layout(machines=PLACES[backend][2], per_machine=1, link=UNSHAPED)
    return {key: expected(backend, layout, *key, cores) for key in RUNS[backend]}


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("validation.lab.probe.HERE", Cores(number=2))


def test_the_profile_s_own_machine_has_no_factor() -> None:
    for backend in RUNS:
        then = published(backend)
        found = speed(backend, {key: then[key] for key in RUNS[backend]}, then)
        assert (found.messages, found.nbytes, found.copies) == pytest.approx((1, 1, 1))


def test_what_the_formula_has_wrong_cancels() -> None:
    # the published times are up to 2 times what the formula says; times 3, they are 3 times slower
    then = published("gloo")
    found = speed("gloo", {key: 3 * then[key] for key in RUNS["gloo"]}, then)
    assert (found.messages, found.nbytes, found.copies) == pytest.approx((3, 3, 3), rel=1e-3)


def test_three_kinds_of_work_are_told_apart() -> None:
    slow = Speed(messages=4.0, nbytes=1.25, copies=2.5)
    now = on(Cores(number=2, speed=slow), "gloo")
    found = speed("gloo", now, on(THEN, "gloo"))
    assert found.messages == pytest.approx(4.0, rel=1e-2)
    assert found.nbytes == pytest.approx(1.25, rel=1e-2)
    assert found.copies == pytest.approx(2.5, rel=1e-2)


def test_one_run_that_was_disturbed_moves_the_factors_little() -> None:
    now = on(Cores(number=2, speed=Speed(messages=2.0, nbytes=2.0, copies=2.0)), "gloo")
    now["all_reduce", 16 * MIB] *= 1.5
    found = speed("gloo", now, on(THEN, "gloo"))
    assert found.messages == pytest.approx(2.0, rel=0.2)
    assert found.nbytes == pytest.approx(2.0, rel=0.35)


def test_medians_of_the_runs_are_read() -> None:
    then = published("gloo")
    results = [
        Result(
            case=Case(op=op, nbytes=n),
            times=(2 * t, 2 * t, 9 * t),
            device=(),
            pairs=np.zeros((4, 4)),
        )
        for (op, n) in RUNS["gloo"]
        if (t := then[op, n])
    ]
    cores = read("gloo", results)
    assert cores.number == 2
    assert cores.speed.messages == pytest.approx(2.0, rel=1e-3)
    assert "messages 2.00, bytes 2.00, copies 2.00" in str(cores)


def test_slow_cores_show_where_no_link_holds_anything_back() -> None:
    slow = Cores(number=2, speed=Speed(messages=3.0, nbytes=3.0, copies=3.0))
    shaped = parse("4@300Mbit/s")
    free = Layout(machines=4, per_machine=1, link=UNSHAPED)
    for op, n in (("send_recv", 64 * KIB), ("all_reduce", 16 * MIB), ("all_gather", 16 * MIB)):
        by = [expected("gloo", each, op, n, slow) / expected("gloo", each, op, n, THEN)
              for each in (free, shaped)]  # fmt: skip
        # all of it is the cores' work there; 16 MiB take 600 ms of wire here, and 20 ms of cores
        assert by[0] == pytest.approx(3.0)
        assert by[1] < (1.2 if n > MIB else 3.0)
