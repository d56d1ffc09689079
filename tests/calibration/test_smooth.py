"""The smooth rest: a Gaussian process, what is shared, and that spikes bend nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from commsim.calibration import smooth as s
from commsim.calibration.smooth import SIZES, smooth
from commsim.cost.calibrated import Case, any_choice, any_group, message


def case(ranks: int = 8, protocol: str = "LL") -> Case:
    return Case(
        hardware="hopper/nvlink/none", operation="all_reduce", ranks=ranks, nodes=1,
        algorithm="ring", protocol=protocol,
    )  # fmt: skip


def everywhere(n: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.ones(n, dtype=np.bool_)


def kernel() -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    logs = np.log(SIZES)
    d = np.sqrt(3) * np.abs(logs[:, None] - logs[None, :]) / s.LENGTH
    return np.asarray((1 + d) * np.exp(-d))


def test_one_group_is_a_plain_gaussian_process() -> None:
    # At kept sizes and with residuals far below the noise the weights are (4 + 1) / 4, at most 1:
    # the mean is K (K + noise^2)^-1 r, Rasmussen and Williams, equation 2.23; K is twice HEIGHT^2.
    at = [3, 6, 9]
    sizes = np.array([8.0 * SIZES[i] for i in at])  # a ring of 8 ranks cuts them into 8 messages
    off = np.array([0.010, 0.011, 0.012])
    height = 2 * s.HEIGHT**2 * kernel()
    small = height[np.ix_(at, at)] + s.NOISE**2 * np.eye(3)
    expected = height[:, at] @ np.linalg.solve(small, off)
    found = smooth([case()] * 3, sizes, off, everywhere(3))
    assert found.logs[case()] == pytest.approx(expected, abs=2e-5)


def test_choices_and_groups_share_as_their_covariance_says() -> None:
    """The same equation for three cells at once, every pair's covariance written out: 1/2 for all,
    and 1/2 each for one choice, one group, one cell, all times HEIGHT^2."""
    cells = [case(4), case(8), case(8, "Simple")]
    at = [2, 5, 9]  # points of each cell, at kept sizes
    sizes = np.concatenate([np.array([SIZES[i] for i in at]) * c.ranks for c in cells])
    off = np.array([0.010, 0.012, 0.013, 0.020, 0.022, 0.021, 0.015, 0.016, 0.014])

    def share(a: Case, b: Case) -> float:
        choice = (a.algorithm, a.protocol) == (b.algorithm, b.protocol)
        group = (a.ranks, a.nodes) == (b.ranks, b.nodes)
        return 0.5 * (1 + choice + group + (choice and group)) * s.HEIGHT**2

    small = np.block([[share(a, b) * kernel()[np.ix_(at, at)] for b in cells] for a in cells])
    small += s.NOISE**2 * np.eye(9)
    # a group, or a choice, that is none of the three's, and where what is known of it is kept
    others = {
        any_group(case(2)): case(2),
        any_choice(case(8)): case(8, "LL128"),
        any_choice(any_group(case(2))): case(16, "LL128"),
    }
    found = smooth([c for c in cells for _ in at], sizes, off, everywhere(9))
    for near, one in {c: c for c in (*cells, case(4, "Simple"))}.items() | others.items():
        cross = np.hstack([share(one, b) * kernel()[:, at] for b in cells])
        mean = cross @ np.linalg.solve(small, off)
        assert found.logs[near] == pytest.approx(mean, abs=1e-4)


def test_it_fades_away_from_what_was_measured() -> None:
    found = smooth([case()] * 2, np.array([8.0, 32.0]), np.array([0.2, 0.2]), everywhere(2))
    logs = found.logs[case()]  # messages of 1 and 4 B
    assert logs[0] > 0.17
    assert np.all(np.diff(logs[1:]) < 0)
    assert logs[-1] < 0.002


def test_a_spike_bends_nothing() -> None:
    sizes = np.array([float(8 * 2**k) for k in range(12)])
    off = np.full(12, 0.05)
    off[5] = 1.6  # five times slower than its neighbours
    found = smooth([case()] * 12, sizes, off, everywhere(12))
    assert found.at([case()] * 12, sizes) == pytest.approx(np.full(12, 0.05), abs=0.02)


def test_another_group_gets_what_is_shared_at_the_size_of_its_message() -> None:
    """A dent at messages of 1 KiB on 4 ranks is at 1 KiB on 64 ranks, which is another size."""
    sizes = np.array([4.0 * size for size in SIZES[2:9]])
    off = np.where(sizes == 4 << 10, 0.3, 0.0)
    found = smooth([case(4)] * 7, sizes, off, everywhere(7))
    many = found.at([case(64)] * 3, np.array([4 << 10, 64 << 10, 1 << 20]) * 1.0)
    assert many == pytest.approx(found.at([case(4)] * 3, np.array([256.0, 4096.0, 65536.0])))
    assert many[1] == max(many)
    assert many[1] > 0.15
    tree = replace(case(64), algorithm="tree")  # whose messages are not cut by the ranks
    assert message(tree, 4096.0) == 4096.0


def test_a_group_that_was_not_measured_is_like_the_nearest() -> None:
    sizes = np.array([8.0, 8.0])
    nodes = [replace(case(8 * n), nodes=n) for n in (1, 2, 8)]
    found = smooth(nodes, np.array([c.ranks * 64.0 for c in nodes]), np.array([0.0, 0.1, 0.3]),
                   everywhere(3))  # fmt: skip
    asked = [replace(case(8 * n), nodes=n) for n in (3, 32)]
    near = found.at(asked, np.array([c.ranks * 64.0 for c in asked]))
    assert near == pytest.approx([found.logs[nodes[1]][3], found.logs[nodes[2]][3]])
    alone = smooth(nodes[:1], sizes[:1], np.array([0.2]), everywhere(1))
    # of one machine alone several get what all groups have in common: half
    both = alone.at([nodes[0], asked[0]], np.array([8.0, 24.0]))
    assert both[1] == pytest.approx(both[0] / 2)


def test_points_held_back_have_no_say() -> None:
    sizes = np.array([64.0, 256.0, 1024.0])
    use = np.array([True, False, True])
    one = smooth([case()] * 3, sizes, np.array([0.1, 5.0, 0.1]), use)
    other = smooth([case()] * 3, sizes, np.array([0.1, -5.0, 0.1]), use)
    assert np.array_equal(one.logs[case()], other.logs[case()])
