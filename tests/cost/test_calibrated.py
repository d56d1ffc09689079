"""Corrections over sizes, what a calibration covers, and both through a file."""

from __future__ import annotations

import math
from dataclasses import replace
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
    message,
    parts,
    table_of,
    uncovered,
)
from commsim.cost.profile import Profile, shipped, to_toml
from commsim.errors import ProfileError

CASE = Case(
    hardware="hopper/nvlink/none", operation="all_reduce", ranks=8, nodes=1, algorithm="ring",
    protocol="LL",
)  # fmt: skip


def correction(sizes: tuple[int, ...], logs: tuple[float, ...], ranks: int = 8) -> Correction:
    return Correction(
        hardware=CASE.hardware, operation=CASE.operation, algorithm=CASE.algorithm,
        protocol=CASE.protocol, ranks=ranks, nodes=min(ranks, 1), sizes=sizes, logs=logs,
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


def test_what_falls_is_lowered() -> None:
    # 3 before 1: who sends fewer bytes could send more in 1.
    assert growing([0.0, 3.0, 1.0, 5.0]) == [0.0, 1.0, 1.0, 5.0]
    assert growing([1.0, 2.0, 3.0]) == [1.0, 2.0, 3.0]


def test_a_formula_that_falls_keeps_its_fall_under_a_correction() -> None:
    # A transport's shortest messages take 80 us, longer ones 20 and 40; measured: half of each.
    # What a correction alone makes fall (the last size: a third of its 90) is lowered as ever.
    took = {64: 80e-6, 256: 20e-6, 1024: 40e-6, 4096: 90e-6}
    logs = [math.log(0.5), math.log(0.5), math.log(0.9), math.log(1 / 3)]
    table = table_of(correction(tuple(took), tuple(logs)), lambda s: took[s])
    made = [t * math.exp(c) for t, c in zip(took.values(), table.logs, strict=True)]
    assert made == pytest.approx([40e-6, 10e-6, 30e-6, 30e-6])


def test_between_two_sizes_a_growing_factor_is_linear_in_ln_size() -> None:
    # A ring of 8 cuts a size into 8 messages: from 1 at 8 x 1 KiB to e^0.2 at 8 x 16 KiB; 8 x 4 KiB
    # is the middle in ln(size).
    made = calibration(correction((1 << 10, 1 << 14), (0.0, 0.2)))
    for size, expected in ((1 << 9, 0.0), (1 << 13, 0.0), (1 << 15, 0.1), (1 << 20, 0.2)):
        factor = made.factor(CASE, size, lambda s: 1e-5, "flat")
        assert math.log(factor) == pytest.approx(expected, abs=1e-12)


def test_a_shrinking_factor_is_linear_in_the_formula() -> None:
    # The formula is 1, 2, 4 s at 8 x 1, 4, 16 KiB: ln 2 above its start, it is half way up.
    made = calibration(correction((1 << 10, 1 << 14), (0.2, 0.0)))
    factor = made.factor(CASE, 1 << 15, lambda s: math.sqrt(s / 8192), "root")
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


def test_a_case_that_was_not_measured_gets_the_closest() -> None:
    own, far = correction((8, 64), (0.1, 0.1)), correction((8, 64), (0.2, 0.2), ranks=2)
    shared = correction((8, 64), (0.3, 0.3), ranks=0)
    group = replace(own, algorithm="", protocol="", logs=(0.4, 0.4))
    made = calibration(own, far, shared, group)
    assert made.correction(CASE) == own
    assert made.correction(replace(CASE, ranks=16)) == own  # the nearest group
    assert made.correction(replace(CASE, ranks=3)) == far  # 3 / 2 is less than 8 / 3
    # several machines are not like one: what all groups have in common
    assert made.correction(replace(CASE, ranks=16, nodes=2)) == shared
    assert made.correction(replace(CASE, protocol="Simple")) == group  # another choice
    foreign = replace(CASE, hardware="ada/pcie/none")
    assert made.correction(foreign) is None
    assert made.factor(foreign, 64, lambda s: 1.0, "x") == 1.0


@pytest.mark.parametrize(
    ("operation", "algorithm", "expected"),
    [("all_reduce", "ring", 8), ("all_reduce", "tree", 1), ("all_to_all", "p2p", 8),
     ("all_gather", "nvls", 8), ("broadcast", "ring", 1), ("send_recv", "p2p", 1)],
)  # fmt: skip
def test_into_how_many_messages_a_size_is_cut(
    operation: str, algorithm: str, expected: int
) -> None:
    case = replace(CASE, operation=operation, algorithm=algorithm)
    assert parts(case) == expected
    assert message(case, 4096.0) == 4096 / expected


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


def test_corrections_of_an_older_format_are_refused() -> None:
    """They were by the size of the operation, not of a message."""
    text = to_toml(with_calibration()).replace("format = 3", "format = 2")
    with pytest.raises(ProfileError, match=r"p\.toml: format: expected 3 of a calibrated profile"):
        Profile.read(text, "p.toml")
