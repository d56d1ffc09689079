"""Predicted against measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from commsim.calibration.agreement import agreement, compare
from commsim.cost.profile import shipped
from commsim.errors import CalibrationError, ProfileError
from commsim.libraries.gloo import Gloo
from commsim.measurements.measurement import Measurement

from .machines import SIZES, changed, cluster, measured


def off() -> list[Measurement]:
    """Each 1.25 times slower than predicted: errors of 20 %, a bias of 0.8."""
    return measured(cluster("dgx-h100"), bent=dict.fromkeys(SIZES, 1.25))


def test_errors_and_bias() -> None:
    rows = {(row.kind, row.group): row for row in agreement(compare(off()))}
    whole = rows["all", "all"]
    assert whole.points == len(SIZES)
    assert (whole.median, whole.mean, whole.worst_tenth) == pytest.approx((0.2, 0.2, 0.2))
    assert whole.bias == pytest.approx(0.8)
    # 8 x 4^k: up to 64 KiB k = 0 ... 6, below 16 MiB k = 7 ... 10, the rest to k = 13 (512 MiB)
    assert rows["regime", "latency"].points == 7
    assert rows["nodes/regime", "one node/middle"].points == 4
    assert rows["regime", "bandwidth"].points == 3


def test_the_profile_that_made_them_agrees() -> None:
    truth = changed(shipped("nccl"), {"base": 1.3, "nvls.link": 0.9})
    (whole, *_) = agreement(compare(measured(cluster("dgx-h100"), truth), truth))
    assert whole.mean == pytest.approx(0.0, abs=1e-12)
    assert whole.inside == 1.0


def test_groups_come_in_order() -> None:
    found = compare(off() + measured(cluster("dgx-h100", 2)))
    rows = [row for row in agreement(found) if row.kind in ("nodes", "nodes/regime")]
    assert [row.group for row in rows if row.kind == "nodes"] == ["1", "2"]
    assert [row.group for row in rows if row.kind == "nodes/regime"] == [
        f"{nodes}/{regime}"
        for nodes in ("one node", "multi-node")
        for regime in ("latency", "middle", "bandwidth")
    ]


def test_several_libraries_each_with_its_own_profile() -> None:
    both = off() + measured(cluster("dgx-h100", 2), library=Gloo())
    (whole, *_) = agreement(compare(both))
    assert whole.points == 2 * len(SIZES)
    with pytest.raises(ProfileError, match="is missing"):
        compare(both, shipped("nccl"))


def test_nothing_to_compare() -> None:
    wrong = [replace(m, wrong=2) for m in off()]
    with pytest.raises(CalibrationError, match="right result"):
        compare(wrong)
