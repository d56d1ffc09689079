"""Batches, derivatives and the robust least squares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from commsim.calibration.batch import (
    Array,
    Batch,
    Parameters,
    Values,
    derivatives,
    durations,
    placed,
)
from commsim.calibration.fit import robust, robust_slope, solve

SIZES = np.array([1e3, 1e4, 1e5, 1e6, 1e7, 1e8])
LIMITS = {"latency": (0.0, np.inf), "share": (0.1, 1.0), "idle": (0.0, np.inf)}


def line(rows: range, tags: list[dict[str, str]]) -> Batch:
    """t = latency + S / (share x 10^9), on some of the points."""
    nbytes = SIZES[list(rows)]

    def duration(k: Mapping[str, Any]) -> Array:
        return np.asarray(k["latency"] + nbytes / (k["share"] * 1e9))

    return Batch(rows=np.array(rows), tags=tags, duration=duration)


def machine() -> tuple[Parameters, list[Batch]]:
    p = Parameters(
        limits=LIMITS, kinds={"latency": ("generation",), "share": (), "idle": ("generation",)}
    )
    p.add(("latency", "", ""), np.log(1e-5), 0.5)
    p.add(("share", "", ""), np.log(0.5), 0.5)
    p.add(("latency", "generation", "old"), 0.0, 0.5)
    batches = [line(range(0, 4), [{"generation": "old"}] * 4), line(range(4, 6), [{}] * 2)]
    return p, batches


def test_a_constant_is_the_sum_of_its_entries_within_its_limits() -> None:
    p, batches = machine()
    first, second = placed(batches, p)
    theta = np.array([np.log(2e-5), np.log(3.0), np.log(1.5)])
    assert Values(theta, p, first)["latency"] == pytest.approx(np.full(4, 3e-5))
    assert Values(theta, p, second)["latency"] == pytest.approx(np.full(2, 2e-5))
    assert np.all(Values(theta, p, first)["share"] == 1.0)  # 3 is above its limit
    assert Values(theta, p, first).get("no such constant") is None
    fixed = placed(batches, p, lambda batch: {"latency": np.full(len(batch.rows), np.log(2.0))})
    assert Values(theta, p, fixed[0])["latency"] == pytest.approx(np.full(4, 6e-5))


def test_durations_stand_in_their_rows() -> None:
    p, batches = machine()
    found = durations(np.array([np.log(1e-5), np.log(0.5), 0.0]), p, placed(batches, p), 6)
    assert found == pytest.approx(1e-5 + SIZES / 0.5e9)


def test_derivatives_are_those_of_ln_duration() -> None:
    p, batches = machine()
    theta = np.array([np.log(1e-5), np.log(0.5), 0.2])
    logs, slopes = derivatives(theta, p, placed(batches, p), 6)
    latency = 1e-5 * np.where(np.arange(6) < 4, np.exp(0.2), 1.0)
    total = latency + SIZES / 0.5e9
    assert logs == pytest.approx(np.log(total))
    # d ln t / d ln latency = latency / t, d ln t / d ln share = -(S / rate) / t
    expected = np.stack([latency, -SIZES / 0.5e9, np.where(np.arange(6) < 4, latency, 0.0)], axis=1)
    assert slopes.toarray() == pytest.approx(expected / total[:, None], abs=2e-5)


def test_the_robust_residual_and_its_slope() -> None:
    r = np.array([-2.0, -0.1, -1e-7, 0.0, 1e-7, 0.05, 3.0])
    assert robust(np.array([1e-4])) == pytest.approx([1e-4 / 0.08], rel=1e-3)
    assert robust(np.array([8.0])) ** 2 == pytest.approx([2 * (np.sqrt(1 + 1e4) - 1)])
    step = 1e-6
    numeric = (robust(r + step) - robust(r - step)) / (2 * step)
    assert robust_slope(r) == pytest.approx(numeric, rel=1e-4)


def test_solve_finds_what_was_put_in_and_an_outlier_has_little_say() -> None:
    p, batches = machine()
    truth = 1.4e-5 * np.where(np.arange(6) < 4, 1.2, 1.0) + SIZES / 0.6e9
    points = placed(batches, p)
    exact = solve(p, points, truth, np.ones(6))
    assert exact.durations == pytest.approx(truth, rel=0.02)
    assert np.all(exact.error <= np.array(p.sd) * 1.001)
    spiked = truth.copy()
    spiked[1] *= 10
    assert solve(p, points, spiked, np.ones(6)).durations == pytest.approx(truth, rel=0.15)
    unseen = np.ones(6)
    unseen[1] = 0.0  # no say at all
    assert solve(p, points, spiked, unseen).durations == pytest.approx(truth, rel=0.02)
