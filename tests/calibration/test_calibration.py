"""Calibrations of made-up machines: what is learnt, what it is good for, and its limits."""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commsim.calibration.calibration import calibrate
from commsim.collectives.collective import Collective
from commsim.cost.bound import bound
from commsim.cost.nccl import setting
from commsim.cost.profile import Profile, shipped, to_toml
from commsim.errors import CalibrationError, ProfileError
from commsim.libraries.gloo import Gloo
from commsim.libraries.library import Library
from commsim.libraries.mpi import Mpi
from commsim.libraries.nccl.nccl import Nccl
from commsim.libraries.rccl import Rccl
from commsim.measurements.measurement import Measurement
from commsim.prediction import PROFILES, predict
from commsim.topology.cluster import Cluster
from commsim.topology.placement import place

from .machines import SIZES, changed, cluster, measured

SLOWER = {"base": 1.3, "hop.ll": 1.2, "net.ll": 1.2, "nic": 0.9, "link": 0.9, "nvls.link": 0.9}
THREE = (SIZES[0], SIZES[7], SIZES[-1])


def errors(profile: Profile | None, truth: list[Measurement]) -> np.ndarray[tuple[int], np.dtype]:
    """|predicted / measured - 1| of each."""
    return np.array(
        [
            abs(predict(m.collective, m.cluster, m.library, profile).duration / m.duration - 1)  # type: ignore[arg-type]
            for m in truth
        ]
    )


@lru_cache
def truth() -> Profile:
    return changed(shipped("nccl"), SLOWER)


@lru_cache
def two_nodes() -> tuple[tuple[Measurement, ...], Profile]:
    """Two DGX H100 that are slower than others, and their profile."""
    found = measured(cluster("dgx-h100", 2), truth())
    return tuple(found), calibrate(found)


def test_three_sizes_say_most_of_the_others() -> None:
    machine = cluster("dgx-h100", 2)
    profile = calibrate(measured(machine, truth(), sizes=THREE))
    unseen = measured(machine, truth(), sizes=[n for n in SIZES if n not in THREE])
    assert np.median(errors(None, unseen)) > 0.08
    assert np.median(errors(profile, unseen)) < 0.04


def test_many_sizes_are_met() -> None:
    found, profile = two_nodes()
    assert np.max(errors(profile, list(found))) < 0.03
    report = profile.report
    assert report is not None
    assert (report.points, report.measurements) == (14, 14)
    assert report.fitted < 0.01
    assert 0 < report.error() < 0.05


def test_two_nodes_teach_four() -> None:
    _, profile = two_nodes()
    four = measured(cluster("dgx-h100", 4), truth())
    assert np.median(errors(profile, four)) < 0.6 * np.median(errors(None, four))


def test_what_is_learnt_goes_the_right_way() -> None:
    profile = calibrate(measured(cluster("dgx-a100"), changed(shipped("nccl"), {"base": 1.5})))
    assert profile.report is not None
    base = profile.constants["base"].value / shipped("nccl").constants["base"].value
    assert base > 1.15
    assert profile.constants["base"].birthplace.startswith("calibrated on 14 points, x ")
    assert profile.constants["base"].error < shipped("nccl").constants["base"].machines
    names = [row.name for row in profile.report.learnt]
    assert "base" in names
    ratios = [row.after / row.before for row in profile.report.learnt]
    assert ratios == sorted(ratios)
    assert ratios[-1] < 0.9


def test_inside_what_was_measured_the_interval_is_narrow_and_outside_wide_with_a_note() -> None:
    _, profile = two_nodes()
    base, machine = shipped("nccl"), cluster("dgx-h100", 2)

    def width(p: Profile, operation: str, nbytes: int, on: Cluster = machine) -> float:
        low, high = predict(Collective(operation, nbytes=nbytes), on, profile=p).interval
        return math.log(high / low)

    def doubts(operation: str, nbytes: int, on: Cluster = machine) -> str:
        asked = Collective(operation, nbytes=nbytes)
        return " ".join(predict(asked, on, profile=profile).cost.extrapolated)

    assert width(profile, "all_reduce", 4096) < width(base, "all_reduce", 4096)
    assert doubts("all_reduce", 4096) == ""
    assert doubts("all_reduce", 8 << 30).startswith("8 GiB: the profile was calibrated on")
    assert width(profile, "all_reduce", 8 << 30) > width(profile, "all_reduce", 1 << 30)
    assert "4 nodes: the profile was calibrated on 2" in doubts(
        "all_reduce", 4096, cluster("dgx-h100", 4)
    )
    assert "not calibrated on broadcast" in doubts("broadcast", 4096)
    assert width(profile, "broadcast", 4096) > width(base, "broadcast", 4096) * 1.4
    assert "not calibrated on all_reduce of ampere" in doubts(
        "all_reduce", 4096, cluster("dgx-a100", 2)
    )


def test_through_a_file_nothing_changes(tmp_path: Path) -> None:
    found, profile = two_nodes()
    profile.save(tmp_path / "ours.toml")
    back = Profile.load(tmp_path / "ours.toml")
    assert back.report == profile.report
    for m in found:
        asked = (m.collective, m.cluster, m.library)
        assert predict(*asked, back).to_dict() == predict(*asked, profile).to_dict()  # type: ignore[arg-type]


def test_equal_inputs_give_equal_profiles() -> None:
    found, profile = two_nodes()
    assert to_toml(calibrate(found)) == to_toml(profile)


def test_more_bytes_are_never_faster_and_physics_holds() -> None:
    """Measurements that no machine gives: they fall, jump, and beat the links."""
    machine = cluster("dgx-h100", 2)
    wild = {n: 3.0 if i % 2 else 0.3 for i, n in enumerate(SIZES)}
    profile = calibrate(measured(machine, bent=wild))
    last: dict[tuple[str, str], float] = {}
    for nbytes in sorted({*SIZES, *(int(n * 1.7) for n in SIZES), *(int(n * 3) for n in SIZES)}):
        asked = Collective("all_reduce", nbytes=nbytes)
        p = predict(asked, machine, profile=profile)
        kind = (p.algorithm, p.protocol)
        assert p.duration >= last.get(kind, 0.0) * (1 - 1e-12)
        last[kind] = p.duration
        assert p.duration >= bound(asked, machine, place(machine, None)) * (1 - 1e-12)
        assert sum(p.breakdown.values()) == pytest.approx(p.duration)
        assert p.interval[0] <= p.duration <= p.interval[1]


def test_an_outlier_is_named_and_has_no_say() -> None:
    machine, spike = cluster("dgx-h100", 2), SIZES[3]
    found = measured(machine, truth(), bent={spike: 4.0})
    profile = calibrate(found)
    assert profile.report is not None
    (outlier,) = profile.report.outliers
    assert outlier.where == "made-up.log:4"
    assert outlier.measured == pytest.approx(found[3].duration, rel=1e-4)
    rest = [m for m in found if m.collective.nbytes != spike]
    assert np.max(errors(profile, rest)) < 0.06


def test_errors_are_held_out_by_size_operation_and_nodes() -> None:
    found = [
        m
        for nodes in (1, 2)
        for operation in ("all_reduce", "all_gather")
        for m in measured(cluster("dgx-h100", nodes), truth(), operation=operation)
    ]
    told: list[tuple[int, int]] = []
    profile = calibrate(found, watch=lambda done, of: told.append((done, of)))
    assert profile.report is not None
    rows = {(row.left_out, row.group): row for row in profile.report.held_out}
    for key in (
        ("size", "all"), ("size", "all_gather"), ("size", "latency sizes"), ("size", "8 ranks"),
        ("size", "2 nodes"), ("operation", "all_reduce"), ("nodes", "1 node"), ("nodes", "all"),
    ):  # fmt: skip
        assert key in rows, key
    assert rows["size", "all"].points == len(found)
    assert rows["size", "all_gather"].points + rows["size", "all_reduce"].points == len(found)
    assert rows["size", "all"].median <= rows["size", "all"].worst_tenth
    assert told == [(i, 9) for i in range(1, 10)]  # five parts of sizes, two and two


def test_what_cannot_be_told_is_said() -> None:
    report = calibrate(measured(cluster("dgx-h100"), sizes=SIZES[:4])).report
    assert report is not None
    said = " ".join(report.undetermined)
    assert "no size from 16 MiB" in said
    assert "no size up to 64 KiB" not in said
    assert "nothing over a network" in said
    assert "only all_reduce" in said


def test_one_size_cannot_be_held_back() -> None:
    report = calibrate(measured(cluster("dgx-h100"), sizes=SIZES[:1])).report
    assert report is not None
    assert report.held_out == ()
    assert math.isnan(report.error())


def test_different_machines_in_one_profile() -> None:
    """A slow and a fast family: each keeps its own pace."""
    slow, fast = changed(shipped("nccl"), {"base": 1.5}), changed(shipped("nccl"), {"base": 0.7})
    found = measured(cluster("dgx-a100"), slow) + measured(cluster("dgx-h100"), fast)
    profile = calibrate(found)
    assert np.median(errors(profile, found)) < 0.02
    assert set(profile.constants["base"].by["generation"]) >= {"ampere", "hopper"}


@pytest.mark.parametrize(
    ("name", "nodes", "library", "slower"),
    [
        ("dgx-h100", 1, Nccl(version="2.21.5"), {"base": 1.4}),
        ("mi300x", 1, Rccl(), {"base": 1.4, "p2p.start": 1.4}),
        ("dgx-h100", 2, Gloo(), {"message": 2.0, "byte": 1.8}),
        ("dgx-h100", 2, Mpi(), {"message": 2.0, "byte": 1.8}),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_every_library_can_be_calibrated(
    name: str, nodes: int, library: Library, slower: dict[str, float]
) -> None:
    machine = cluster(name, nodes)
    slow = changed(shipped(PROFILES[library.name]), slower)
    found = measured(machine, slow, library=library)
    profile = calibrate(found[::2])
    assert np.mean(errors(profile, found)) < 0.5 * np.mean(errors(None, found))
    assert profile.report is not None
    assert profile.report.error() < 0.2
    last: dict[str, float] = {}
    for m in found:
        p = predict(m.collective, machine, library, profile)
        assert p.duration >= last.get(p.algorithm, 0.0) * (1 - 1e-12)
        last[p.algorithm] = p.duration


def test_from_a_profile_of_ones_own() -> None:
    """Corrections of what is not measured again stay."""
    _, first = two_nodes()
    more = measured(cluster("dgx-h100", 2), truth(), operation="all_gather")
    second = calibrate(more, base=first)
    assert first.calibration is not None
    assert second.calibration is not None
    assert {c.operation for c in second.calibration.covered} == {"all_reduce", "all_gather"}
    assert second.calibration.base.startswith("calibrated (")
    kept = [c for c in second.calibration.corrections if c.operation == "all_reduce"]
    assert kept == [c for c in first.calibration.corrections if c.operation == "all_reduce"]
    assert np.median(errors(second, more)) < 0.02


def test_nothing_to_fit_and_a_wrong_base(tmp_path: Path) -> None:
    found, _ = two_nodes()
    with pytest.raises(CalibrationError, match="expected one at least, got none"):
        calibrate([])
    wrong = [
        Measurement(m.collective, duration=m.duration, cluster=m.cluster, wrong=1) for m in found
    ]
    with pytest.raises(CalibrationError, match="right result"):
        calibrate(wrong)
    with pytest.raises(ProfileError, match="cannot be read"):
        calibrate(found, base=tmp_path / "none.toml")
    with pytest.raises(ProfileError, match="is missing; use a profile made for this library"):
        calibrate(found, base=shipped("gloo"))


def slingshot(nodes: int, **env: str) -> tuple[Cluster, Nccl]:
    return cluster("alps", nodes), Nccl(version="2.23.4", env=env)


def test_settings_are_told_apart_and_meet_again_word_by_word() -> None:
    """Software matching makes hops 1.5 times as long; no formula knows. Measured on two and four
    nodes with and without it and with a longer queue, which changes nothing; eight nodes with both
    were not measured."""
    soft, queue = {"FI_CXI_RX_MATCH_MODE": "software"}, {"FI_CXI_DEFAULT_CQ_SIZE": "131072"}
    slower = changed(
        shipped("nccl"),
        {"net.ll": 1.5, "net.ll128": 1.5, "net.simple": 1.5, "net.tree.simple": 1.5},
    )
    shown = []
    for env, truth in (({}, shipped("nccl")), (queue, shipped("nccl")), (soft, slower)):
        for nodes in (2, 4):
            machine, library = slingshot(nodes, **env)
            shown += measured(machine, truth, library=library)
    profile = calibrate(shown)
    machine, library = slingshot(8, **soft, **queue)
    asked = Collective("all_reduce", nbytes=1024)
    truth = predict(asked, machine, library, slower).duration
    assert truth > 1.2 * predict(asked, machine, library, shipped("nccl")).duration
    assert predict(asked, machine, library, profile).duration == pytest.approx(truth, rel=0.06)
    found = predict(asked, *slingshot(4, FI_OTHER="1", **soft), profile)
    assert any(note.startswith("FI_OTHER=1: the profile was calibrated on") for note in found.notes)
    without = predict(asked, *slingshot(8), profile).duration
    quick = predict(asked, *slingshot(8), shipped("nccl")).duration
    assert without == pytest.approx(quick, rel=0.06)
    assert {c.setting[1:] for c in profile.calibration.corrections if c.nodes} == {  # type: ignore[union-attr]
        (), ("FI_CXI_DEFAULT_CQ_SIZE=131072",), ("FI_CXI_RX_MATCH_MODE=software",)
    }  # fmt: skip


def test_what_only_chooses_is_no_setting() -> None:
    machine = cluster("alps", 2)
    for env in ({"NCCL_ALGO": "Ring"}, {"NCCL_DEBUG": "INFO"}):
        facts: Any = Nccl(version="2.23.4", env=env).choose(Collective("barrier"), machine).facts
        assert setting(facts) == ("release=2.23",)
