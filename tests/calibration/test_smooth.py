"""The smooth rest: a Gaussian process, what is shared, and that spikes bend nothing."""

from __future__ import annotations

import numpy as np
import pytest

from commsim.calibration import smooth as s
from commsim.calibration.smooth import SIZES, smooth
from commsim.cost.calibrated import Case


def case(ranks: int = 8, protocol: str = "LL") -> Case:
    return Case(
        hardware="hopper/nvlink/none", operation="all_reduce", ranks=ranks, nodes=1,
        algorithm="ring", protocol=protocol,
    )  # fmt: skip


def everywhere(n: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.ones(n, dtype=np.bool_)


def test_one_group_is_a_plain_gaussian_process() -> None:
    # At kept sizes and with residuals far below the noise the weights are (4 + 1) / 4, at most 1:
    # the mean is K (K + noise^2)^-1 r, Rasmussen and Williams, equation 2.23.
    at = [3, 6, 9]
    sizes = np.array([float(SIZES[i]) for i in at])
    off = np.array([0.010, 0.011, 0.012])
    logs = np.log(SIZES)
    d = np.sqrt(3) * np.abs(logs[:, None] - logs[None, :]) / s.LENGTH
    kernel = s.HEIGHT**2 * (1 + d) * np.exp(-d)
    small = kernel[np.ix_(at, at)] + s.NOISE**2 * np.eye(3)
    expected = kernel[:, at] @ np.linalg.solve(small, off)
    found = smooth([case()] * 3, sizes, off, everywhere(3))
    assert found.logs[case()] == pytest.approx(expected, abs=2e-5)
    variance = np.diag(kernel - kernel[:, at] @ np.linalg.solve(small, kernel[at]))
    assert found.errors[case()] == pytest.approx(np.sqrt(variance), rel=1e-3)


def test_it_fades_away_from_what_was_measured() -> None:
    found = smooth([case()] * 2, np.array([8.0, 32.0]), np.array([0.2, 0.2]), everywhere(2))
    logs = found.logs[case()]
    assert logs[0] > 0.17
    assert np.all(np.diff(logs[1:]) < 0)
    assert logs[-1] < 0.002
    assert found.errors[case()][-1] == pytest.approx(s.HEIGHT, rel=1e-3)


def test_a_spike_bends_nothing() -> None:
    sizes = np.array([float(8 * 2**k) for k in range(12)])
    off = np.full(12, 0.05)
    off[5] = 1.6  # five times slower than its neighbours
    found = smooth([case()] * 12, sizes, off, everywhere(12))
    assert found.at([case()] * 12, sizes) == pytest.approx(np.full(12, 0.05), abs=0.02)


def test_another_group_gets_what_is_shared_and_another_protocol_nothing() -> None:
    sizes = np.array([float(8 * 4**k) for k in range(6)] * 2)
    cases = [case(4)] * 6 + [case(8)] * 6
    off = np.array([0.1] * 6 + [0.2] * 6)
    found = smooth(cases, sizes, off, everywhere(12))
    own = found.at([case(4), case(8), case(16), case(8, "Simple")], np.full(4, 512.0))
    assert own[0] == pytest.approx(0.1, abs=0.01)
    assert own[1] == pytest.approx(0.2, abs=0.01)
    # Two groups of equal variance tell the shared half (2 x 0.15 / 3 = 0.1) of their mean 0.15.
    assert own[2] == pytest.approx(0.1, abs=0.01)
    assert own[3] == 0.0


def test_points_held_back_have_no_say() -> None:
    sizes = np.array([64.0, 256.0, 1024.0])
    use = np.array([True, False, True])
    one = smooth([case()] * 3, sizes, np.array([0.1, 5.0, 0.1]), use)
    other = smooth([case()] * 3, sizes, np.array([0.1, -5.0, 0.1]), use)
    assert np.array_equal(one.logs[case()], other.logs[case()])
