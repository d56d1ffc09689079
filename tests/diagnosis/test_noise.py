"""The likelihood of a curve, on cases that are worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from commsim.diagnosis.noise import Array, log_likelihood

SIZES = np.arange(10.0, 30.0)
CURVE = np.full(20, 1e-3)
SPREAD = np.tile([-0.128, 0.128], (20, 1))  # 10 % and 90 % of a deviation of 0.1


def likelihood(measured: Array, scatter: float = 0.0) -> float:
    return log_likelihood(measured, CURVE, SPREAD, SIZES, scatter=scatter)


def test_the_curve_itself_is_likeliest() -> None:
    at = likelihood(CURVE)
    for factor in (0.8, 0.95, 1.05, 1.3):
        assert likelihood(CURVE * factor) < at


def test_a_common_offset_is_likelier_than_the_same_scatter() -> None:
    up = likelihood(CURVE * 1.1)
    zigzag = likelihood(CURVE * np.where(np.arange(20) % 2, 1.1, 1 / 1.1))
    assert zigzag < up


def test_one_spike_costs_little_and_a_plateau_much() -> None:
    spike, plateau = CURVE.copy(), CURVE.copy()
    spike[7] *= 5
    plateau[7:] *= 5
    assert likelihood(CURVE) - likelihood(spike) < 0.7 * (likelihood(CURVE) - likelihood(plateau))


def test_scatter_explains_what_jumps() -> None:
    jumping = CURVE * np.exp(0.3 * np.random.default_rng(1).standard_normal(20))
    assert likelihood(jumping, scatter=0.3) > likelihood(jumping)
    assert likelihood(CURVE, scatter=0.3) < likelihood(CURVE)


def test_the_wider_side_forgives_more() -> None:
    wide = np.tile([-0.128, 0.5], (20, 1))
    slower = log_likelihood(CURVE * 1.4, CURVE, wide, SIZES)
    faster = log_likelihood(CURVE / 1.4, CURVE, wide, SIZES)
    assert slower > faster


def test_a_fault_of_large_effect_is_known_less_well() -> None:
    """1.3 times a curve that is itself 5 times the healthy one is no surprise."""
    off = likelihood(CURVE * 1.3) - likelihood(CURVE)
    blurred = [
        log_likelihood(CURVE * factor, CURVE, SPREAD, SIZES, healthy=CURVE / 5)
        for factor in (1.0, 1.3)
    ]
    assert off < blurred[1] - blurred[0] < 0


def test_an_unknown_constant_explains_its_own_shape_only() -> None:
    """Where nobody knows a constant to better than a factor e, small sizes twice as slow are no
    surprise, if it is theirs; it costs something to leave it open, and helps no other sizes."""
    small = (np.arange(20) < 10).astype(float)[:, None]
    slow = CURVE * np.where(np.arange(20) < 10, 2.0, 1.0)
    late = CURVE * np.where(np.arange(20) < 10, 1.0, 2.0)

    def open_to(measured: Array) -> float:
        return log_likelihood(measured, CURVE, SPREAD, SIZES, slopes=small)

    assert open_to(slow) > likelihood(slow) + 1
    assert open_to(CURVE) < likelihood(CURVE)
    assert open_to(late) < open_to(slow)


def test_an_unknown_constant_widens_as_a_wider_normal() -> None:
    """One point: variances add, 0.1^2 + 0.3^2 = 0.1, so the scale is sqrt(0.1) = 0.316."""
    wide = np.tile([-0.3162 * 1.2816, 0.3162 * 1.2816], (1, 1))
    at = np.array([1.3])
    one = np.ones(1)
    opened = log_likelihood(at, one, SPREAD[:1], SIZES[:1], slopes=np.array([[0.3]]))
    assert opened == pytest.approx(log_likelihood(at, one, wide, SIZES[:1]), abs=0.01)


def test_many_points_count_as_six() -> None:
    """Every density is a function of z alone here; 20 and 100 points of one offset differ by the
    determinant only, which a common power keeps from growing five times."""
    few, many = (
        log_likelihood(np.full(n, 2e-3), np.full(n, 1e-3), np.tile([-0.128, 0.128], (n, 1)),
                       np.linspace(10, 30, n))
        - log_likelihood(np.full(n, 1e-3), np.full(n, 1e-3), np.tile([-0.128, 0.128], (n, 1)),
                         np.linspace(10, 30, n))
        for n in (20, 100)
    )  # fmt: skip
    assert many == pytest.approx(few, rel=0.5)


def test_one_point_is_a_density() -> None:
    """Over ln(measured) from -3 to 3 it sums to one, but for the one in twenty that is a spike."""
    x = np.linspace(-3, 3, 2001)
    one = [
        math.exp(log_likelihood(np.array([math.exp(v)]), np.ones(1), SPREAD[:1], SIZES[:1]))
        for v in x
    ]
    assert np.trapezoid(one, x) == pytest.approx(0.95, abs=0.01)
