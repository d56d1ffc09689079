"""Corrections over sizes, what a calibration covers, and both through a file."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commsim.cost.calibrated import (
    Calibration,
    Case,
    Correction,
    Covered,
    HeldOut,
    Learnt,
    Outlier,
    Report,
    class_of,
    growing,
    table_of,
    uncovered,
)
from commsim.cost.profile import Profile, shipped, to_toml
from commsim.errors import ProfileError

CASE = Case(
    hardware="hopper/nvlink/none", operation="all_reduce", ranks=8, nodes=1, algorithm="ring",
    protocol="LL",
)  # fmt: skip


def correction(
    sizes: tuple[int, ...], logs: tuple[float, ...], ranks: int = 8, errors: float = 0.05
) -> Correction:
    return Correction(
        hardware=CASE.hardware, operation=CASE.operation, algorithm=CASE.algorithm,
        protocol=CASE.protocol, ranks=ranks, nodes=min(ranks, 1), sizes=sizes, logs=logs,
        errors=(errors,) * len(sizes),
    )  # fmt: skip


def calibration(*corrections: Correction) -> Calibration:
    return Calibration(
        made="2026-11-30", commsim="0.1.0", base='nccl ("x")', files=("a.log", "b c.log"),
        covered=(
            Covered(
                hardware=CASE.hardware, operation="all_reduce", ranks=(4, 8), nodes=(1, 1),
                sizes=(1024, 1 << 20), points=11,
            ),
        ),
        report=Report(
            measurements=22, points=11, fitted=0.01,
            held_out=(
                HeldOut(
                    left_out="size", group="all", points=11, median=0.05, mean=0.06,
                    worst_tenth=0.1, bias=0.99,
                ),
            ),
            learnt=(Learnt(name="hop", meaning="a hop", factor=1.1, before=0.2, after=0.05),),
            undetermined=("nothing over a network",),
            outliers=(Outlier(where="a.log:7", what="x", measured=1e-3, predicted=1e-4),),
        ),
        corrections=corrections,
    )  # fmt: skip


def test_growing_pools_what_falls() -> None:
    # 3 then 1 with equal weights meet at 2; with weights 1 and 3 at (3 + 3) / 4 = 1.5.
    assert growing([0.0, 3.0, 1.0, 5.0], [1, 1, 1, 1]) == [0.0, 2.0, 2.0, 5.0]
    assert growing([3.0, 1.0], [1, 3]) == [1.5, 1.5]
    assert growing([1.0, 2.0, 3.0], [1, 1, 1]) == [1.0, 2.0, 3.0]


def test_between_two_sizes_a_growing_factor_is_linear_in_ln_size() -> None:
    # From 1 at 1 KiB to e^0.2 at 16 KiB; 4 KiB is the middle in ln(size).
    made = calibration(correction((1 << 10, 1 << 14), (0.0, 0.2)))
    for size, expected in ((1 << 9, 0.0), (1 << 10, 0.0), (1 << 12, 0.1), (1 << 20, 0.2)):
        factor = made.factor(CASE, size, lambda s: 1e-5, "flat")
        assert math.log(factor) == pytest.approx(expected, abs=1e-12)


def test_a_shrinking_factor_is_linear_in_the_formula() -> None:
    # The formula is 1, 2, 4 s at 1, 4, 16 KiB: ln 2 above its start, it is half way up.
    made = calibration(correction((1 << 10, 1 << 14), (0.2, 0.0)))
    factor = made.factor(CASE, 1 << 12, lambda s: math.sqrt(s / 1024), "root")
    assert math.log(factor) == pytest.approx(0.1)


@given(
    logs=st.lists(st.floats(-1, 1), min_size=4, max_size=4),
    slopes=st.lists(st.floats(0, 1.5), min_size=4, max_size=4),
)
def test_more_bytes_never_take_less_whatever_the_correction(
    logs: list[float], slopes: list[float]
) -> None:
    knots = (1 << 6, 1 << 12, 1 << 18, 1 << 24)

    def curve(size: int) -> float:  # grows piece by piece, some pieces flat
        x, total = math.log(size), 0.0
        for low, slope in zip(knots, slopes, strict=True):
            total += slope * max(0.0, min(x - math.log(low), math.log(1 << 6)))
        return math.exp(total)

    made = calibration(correction(knots, tuple(logs)))
    sizes = [1 << step for step in range(4, 30)] + [3 << step for step in range(4, 26)]
    times = [curve(s) * made.factor(CASE, s, curve, "curve") for s in sorted(sizes)]
    assert all(b >= a * (1 - 1e-12) for a, b in pairwise(times))


def test_a_correction_that_needs_no_change_is_kept() -> None:
    logs = (0.1, -0.2, 0.05)
    table = table_of(correction((1, 1 << 10, 1 << 20), logs), lambda s: float(s))
    assert table.logs == pytest.approx(logs)


def test_a_group_that_was_not_measured_gets_what_all_have_in_common() -> None:
    own, shared = correction((8, 64), (0.1, 0.1)), correction((8, 64), (0.3, 0.3), ranks=0)
    made = calibration(own, shared)
    other = Case(
        hardware=CASE.hardware, operation=CASE.operation, ranks=4, nodes=1,
        algorithm=CASE.algorithm, protocol=CASE.protocol,
    )  # fmt: skip
    foreign = Case(
        hardware="ada/pcie/none", operation=CASE.operation, ranks=8, nodes=1,
        algorithm=CASE.algorithm, protocol=CASE.protocol,
    )  # fmt: skip
    assert made.correction(CASE) == own
    assert made.correction(other) == shared
    assert made.correction(foreign) is None
    assert made.factor(foreign, 64, lambda s: 1.0, "x") == 1.0


def test_what_lies_outside() -> None:
    covered = calibration().covered
    assert uncovered(covered, CASE, 4096) == ()
    assert uncovered(covered, CASE, 2 << 20) == ()  # one step beyond the largest
    (size,) = uncovered(covered, CASE, 1 << 30) or ()
    assert size == "1 GiB: the profile was calibrated on 1 KiB to 1 MiB"
    more = Case(
        hardware=CASE.hardware, operation="all_reduce", ranks=16, nodes=2, algorithm="tree",
        protocol="LL",
    )  # fmt: skip
    assert uncovered(covered, more, 4096) == ("2 nodes: the profile was calibrated on 1",)
    other = Case(
        hardware=CASE.hardware, operation="broadcast", ranks=8, nodes=1, algorithm="ring",
        protocol="LL",
    )  # fmt: skip
    assert uncovered(covered, other, 4096) is None


def test_classes() -> None:
    assert class_of(1, 64 * 1024) == "one node/latency"
    assert class_of(2, 1 << 20) == "multi-node/middle"
    assert class_of(9, 1 << 30) == "multi-node/bandwidth"


def with_calibration() -> Profile:
    base = shipped("nccl")
    return Profile(
        name="ours", source="a run", constants=base.constants, spreads=base.spreads,
        fitted=base.fitted, calibration=calibration(correction((8, 64), (0.1, 0.25))),
    )  # fmt: skip


def test_a_calibration_through_a_file(tmp_path: Path) -> None:
    profile = with_calibration()
    profile.save(tmp_path / "p.toml")
    back = Profile.load(tmp_path / "p.toml")
    assert back.calibration == profile.calibration
    assert back.report is not None
    assert back.report.error() == 0.05
    assert math.isnan(back.report.error("nodes"))
    assert str(back.report) == (
        "median error 1.0% on the 11 points of the fit; held out by size 5.0%"
    )
    assert to_toml(back) == to_toml(profile)


def test_an_existing_file_can_be_protected(tmp_path: Path) -> None:
    profile = with_calibration()
    profile.save(tmp_path / "p.toml")
    with pytest.raises(ProfileError, match="is there already"):
        profile.save(tmp_path / "p.toml", overwrite=False)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("points = 11\nfitted", "fitted", "calibration.report.points: field required"),
        ("logs = [0.1, 0.25]", "logs = [0.1]", "expected as many sizes as logs"),
        ("sizes = [8, 64]", "sizes = [64, 8]", "expected growing sizes"),
        ("logs = [0.1, 0.25]", 'logs = "x"', "calibration.corrections.0.logs"),
    ],
)
def test_a_bad_calibration_is_one_line(old: str, new: str, expected: str) -> None:
    text = to_toml(with_calibration())
    assert old in text
    with pytest.raises(ProfileError) as found:
        Profile.read(text.replace(old, new), "p.toml")
    (line,) = str(found.value).splitlines()
    assert line.startswith("p.toml: ")
    assert expected in line
