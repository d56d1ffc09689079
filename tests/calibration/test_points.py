"""From measurements to points."""

from __future__ import annotations

from dataclasses import replace

import pytest

from commsim.calibration.points import family, points
from commsim.collectives.collective import Collective
from commsim.errors import CalibrationError
from commsim.libraries.gloo import Gloo
from commsim.libraries.nccl.nccl import Nccl
from commsim.measurements.measurement import Measurement

from .machines import cluster

SMALL = Collective("all_reduce", nbytes=1024)


def one(duration: float, **more: object) -> Measurement:
    return Measurement(SMALL, duration=duration, cluster=cluster("dgx-h100"), **more)  # type: ignore[arg-type]


def test_repeats_are_one_point_with_their_median() -> None:
    (point,) = points([one(1e-5), one(5e-5), one(2e-5)], "nccl")
    assert point.measured == 2e-5
    assert len(point.measurements) == 3
    assert (point.case.operation, point.case.ranks, point.case.nodes) == ("all_reduce", 8, 1)
    assert point.case.hardware == "hopper/nvlink/none"
    assert str(point) == "all_reduce of 1 KiB (float32), 8 ranks on 1 node"


def test_out_of_place_counts_where_there_is_both() -> None:
    (point,) = points([one(1e-5), one(9e-5, in_place=True)], "nccl")
    assert point.measured == 1e-5
    (point,) = points([one(9e-5, in_place=True)], "nccl")
    assert point.measured == 9e-5


def test_wrong_results_and_empty_messages_are_passed_over() -> None:
    empty = Measurement(
        Collective("all_reduce", nbytes=0), duration=1e-5, cluster=cluster("dgx-h100")
    )
    assert points([one(1e-5, wrong=3), empty], "nccl") == ()


def test_where_a_point_comes_from() -> None:
    (point,) = points([one(1e-5, provenance={"file": "a.log", "line": 7})], "nccl")
    assert point.where == "a.log:7"


def test_another_library_is_another_point() -> None:
    found = points([one(1e-5), one(2e-5, library=Nccl(version="2.21.5"))], "nccl")
    assert len(found) == 2


def test_no_cluster_says_what_to_pass() -> None:
    blind = Measurement(SMALL, duration=1e-5, n_ranks=8, provenance={"file": "x", "line": 3})
    for asked in (lambda: family([blind]), lambda: points([blind], "nccl")):
        with pytest.raises(CalibrationError, match=r"x:3: .* pass --cluster"):
            asked()


def test_one_library_at_a_time() -> None:
    assert family([one(1e-5)]) == "nccl"
    with pytest.raises(CalibrationError, match=r"of one library, got nccl .* and gloo"):
        family([one(1e-5), one(1e-5, library=Gloo())])
    with pytest.raises(CalibrationError, match="expected one at least, got none"):
        family([])


def test_what_the_library_refuses_is_named() -> None:
    amd = replace(one(1e-5, provenance={"file": "x", "line": 9}), cluster=cluster("mi300x"))
    with pytest.raises(CalibrationError, match=r"^x:9: .*NVIDIA"):
        points([replace(amd, library=Nccl())], "nccl")
