"""What MPI moves where distances double and halve, and in algorithms made of two.

Source: R. Thakur, R. Rabenseifner, W. Gropp, IJHPCA 19(1), 2005, 10.1177/1094342005051521.
"""

from __future__ import annotations

from dataclasses import replace

from commsim.cost.host_layout import (
    Layout,
    Traffic,
    even,
    far_rounds,
    log2_up,
    log_share,
    middle,
    per_host,
    spread,
    then,
)
from commsim.cost.host_rings import linear_all_to_all, ring
from commsim.cost.host_trees import binomial_parts

# ---- doubling and halving ----


def _fold(at: Layout) -> int:
    """2 extra messages where n is no power of two: ranks beyond it hand their data over and get the
    result."""
    return 0 if at.n & (at.n - 1) == 0 else 2


def recursive_doubling_all_reduce(at: Layout, size: float) -> Traffic:
    rounds = at.n.bit_length() - 1 + _fold(at)
    return even(
        rounds, rounds, (rounds - _fold(at) / 2) * size,
        node=far_rounds(at) * at.per_host * size, cut=at.n / 2 * size if at.hosts > 1 else 0.0,
        reduced=rounds * size, far=log_share(at), far_rounds=log_share(at),
    )  # fmt: skip


def rabenseifner(at: Layout, size: float, folds: int = 2) -> Traffic:
    """Recursive halving reduce-scatter with the nearest rank first, then recursive doubling
    all-gather.

    Where n is no power of two, some ranks first take the data of a neighbour, one size, and give it
    the result at the end, another (folds: how many of the two). If their number is odd, the last
    one's first partner is free and sends its half meanwhile through the same port.
    """
    power = 1 << (at.n.bit_length() - 1)
    folds = folds if _fold(at) else 0
    rounds = 2 * (at.n.bit_length() - 1) + folds
    extra = (folds + (at.n - power) % 2 / 2) * size
    most = max(2.0, power / at.near)  # machines, as far as the power of two goes
    return even(
        rounds, rounds, 2 * (1 - 1 / power) * size + extra,
        node=2 * at.per_host / at.near * (1 - 1 / most) * size + extra if at.hosts > 1 else 0.0,
        cut=size if at.hosts > 1 else 0.0, reduced=(1 - 1 / power) * size + min(1, folds) * size,
        far=(1 / at.near - 1 / at.n) / (1 - 1 / at.n) if at.hosts > 1 else 0.0,
        far_rounds=log_share(at),
    )  # fmt: skip


def rabenseifner_reduce(at: Layout, size: float) -> Traffic:
    """Recursive halving reduce-scatter, then a binomial gather to the root, which only receives in
    it."""
    both = rabenseifner(at, size, folds=1)
    return replace(both, handled=both.handled * 3 / 4, mean_handled=both.mean_handled * 3 / 4)


def recursive_doubling_all_gather(at: Layout, size: float) -> Traffic:
    return even(
        log2_up(at.n), log2_up(at.n), (at.n - 1) / at.n * size,
        node=per_host(at, size), cut=middle(at, size), copied=size / at.n,
        far=spread(at), far_rounds=log_share(at),
    )  # fmt: skip


def bruck_all_gather(at: Layout, size: float) -> Traffic:
    return replace(recursive_doubling_all_gather(at, size), copied=size)


def recursive_halving(at: Layout, size: float) -> Traffic:
    """Reduce-scatter, farthest rank first."""
    rounds = at.n.bit_length() - 1 + _fold(at)
    return even(
        rounds, rounds, (at.n - 1) / at.n * size + _fold(at) / 2 * size,
        node=per_host(at, size), cut=middle(at, size), reduced=(at.n - 1) / at.n * size,
        far=spread(at), far_rounds=log_share(at),
    )  # fmt: skip


def pairwise(at: Layout, size: float) -> Traffic:
    """n - 1 rounds, size/n to another rank at each."""
    return replace(linear_all_to_all(at, size), rounds=at.n - 1, far_rounds=spread(at), peers=0)


def pairwise_reduce_scatter(at: Layout, size: float) -> Traffic:
    return replace(pairwise(at, size), reduced=(at.n - 1) / at.n * size)


def bruck_all_to_all(at: Layout, size: float) -> Traffic:
    """log2(n) rounds, half of the data at each, with a rotation before and after."""
    rounds = log2_up(at.n)
    return even(
        rounds, rounds, rounds / 2 * size,
        node=_bruck_node(at) * size / 2, cut=middle(at, size), copied=2 * size,
        far=spread(at), far_rounds=log_share(at),
    )  # fmt: skip


def _bruck_node(at: Layout) -> int:
    """Ranks of a machine whose partner at distance 1, 2, 4 ... is on another one, summed over the
    rounds."""
    if at.hosts == 1:
        return 0
    return sum(min(1 << j, at.near) * at.per_host // at.near for j in range(log2_up(at.n)))


def scatter_doubling(at: Layout, size: float) -> Traffic:
    """Broadcast as a binomial scatter and a recursive doubling all-gather."""
    return then(binomial_parts(at, size), recursive_doubling_all_gather(at, size))


def scatter_ring(at: Layout, size: float) -> Traffic:
    """Broadcast as a binomial scatter and a ring all-gather."""
    return then(binomial_parts(at, size), replace(ring(at, size, 1, 1.0), peers=0))
