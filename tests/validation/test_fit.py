"""The fit: it finds constants that were put in, and a platform left out has no say."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest

from commsim.calibration.batch import Array, Values, durations
from commsim.collectives.collective import Collective
from commsim.cost.nccl import cost
from commsim.libraries.nccl.facts import NcclFacts
from commsim.libraries.nccl.nccl import Nccl
from commsim.topology.load import load_cluster
from validation.fit import Fitter, spreads, to_profile
from validation.published import Point

SIZES = tuple(8 * 4**step for step in range(15))
MACHINES = (("dgx-h100", 1), ("dgx-h100", 4), ("dgx-a100", 1), ("dgx-a100", 2))
TRUTH = {"base": 1.3, "hop.ll": 0.8, "net.ll": 1.25, "hop.simple": 0.75, "nic": 0.97}
"""Factors on the prior's values, of which the synthetic platforms are made."""


def questions() -> list[Point]:
    """Rings on four platforms, without a measurement yet."""
    points = []
    for preset, nodes in MACHINES:
        cluster = load_cluster(preset, nodes=nodes)
        for protocol in ("LL", "Simple"):
            library = Nccl(env={"NCCL_ALGO": "Ring", "NCCL_PROTO": protocol})
            for operation in ("all_reduce", "all_gather"):
                points += [
                    Point(
                        platform=f"{preset} x {nodes}", collective=Collective(operation, nbytes=n),
                        cluster=cluster, library=library, logs=("made up",), times=(1.0,),
                    )
                    for n in SIZES
                ]  # fmt: skip
    return points


def made_up_theta(fitter: Fitter) -> Array:
    theta = np.array(fitter.p.mean)
    for name, factor in TRUTH.items():
        theta[fitter.p.place[name, "", ""]] += np.log(factor)
    return theta


@lru_cache(maxsize=1)
def made_up() -> Fitter:
    """The questions, answered by the formulas with the true constants."""
    blank = Fitter(questions())
    times = durations(made_up_theta(blank), blank.p, blank.placed, len(blank.points))
    points = [replace(p, times=(float(t),)) for p, t in zip(blank.points, times, strict=True)]
    return Fitter(points)


def test_a_fit_finds_the_constants_that_were_put_in() -> None:
    fitter = made_up()
    before = durations(np.array(fitter.p.mean), fitter.p, fitter.placed, len(fitter.points))
    assert np.median(np.abs(before / fitter.measured - 1)) > 0.05
    fit = fitter.fit()
    assert np.median(np.abs(fit.durations / fitter.measured - 1)) < 0.005
    assert np.max(np.abs(fit.durations / fitter.measured - 1)) < 0.05
    # What one machine gets of a constant is its value times the factors of its kind; the data tells
    # that product, the priors how it is shared between them.
    truth = made_up_theta(fitter)
    for together in (("base",), ("hop.ll", "speed"), ("hop.simple", "simple.speed")):
        moved = np.ones(1)
        for group in fitter.placed:
            found, put_in = Values(fit.theta, fitter.p, group), Values(truth, fitter.p, group)
            ratio = np.prod([found[name] / put_in[name] for name in together], axis=0)
            moved = np.append(moved, ratio)
        assert np.max(np.abs(moved - 1)) < 0.05, (together, moved)
    assert np.all(
        fit.error <= np.array(fitter.p.sd) * 1.001
    )  # data only ever adds to what is known


def test_a_platform_left_out_has_no_say() -> None:
    fitter = made_up()
    gone = "dgx-a100 x 2"
    wrong = Fitter(
        [replace(p, times=(10 * p.measured,)) if p.platform == gone else p for p in fitter.points]
    )
    honest, misled = fitter.fit(gone), wrong.fit(gone)
    np.testing.assert_array_equal(honest.theta, misled.theta)
    assert not np.array_equal(fitter.fit().theta, wrong.fit().theta)


def test_the_profile_predicts_what_the_fit_says() -> None:
    # Two ways from constants to a time: arrays in the fit, one question in commsim.
    fitter = made_up()
    fit = fitter.fit()
    profile = to_profile(fitter, fit, fit.durations)
    for point, expected in zip(fitter.points, fit.durations, strict=True):
        choice = point.library.choose(point.collective, point.cluster)
        assert isinstance(choice.facts, NcclFacts)
        found = cost(point.collective, point.cluster, choice.chosen, choice.facts, profile)
        assert found.duration == pytest.approx(expected, rel=1e-9)
    assert profile.fitted["max_nodes"] == ("4",)
    assert profile.fitted["operations"] == ("all_gather", "all_reduce")
    assert set(profile.fitted["generation"]) == {"ampere", "hopper"}


def test_spreads_are_quantiles_of_the_logarithm() -> None:
    # Every platform measures e^-0.2 ... e^0.2 of what is predicted, evenly: 10 % at -0.16.
    fitter = made_up()
    predicted = fitter.measured.copy()
    for name in fitter.platforms:
        mine = np.flatnonzero(fitter.platform == name)
        predicted[mine] *= np.exp(-np.linspace(-0.2, 0.2, len(mine)))
    found = spreads(fitter, predicted)["all"]
    assert found.low == pytest.approx(-0.16, abs=0.01)
    assert found.high == pytest.approx(0.16, abs=0.01)
    assert found.points == len(fitter.points)
