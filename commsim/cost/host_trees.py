"""What Gloo and MPI move over trees, through the network and through shared memory.

Sources: Gloo's broadcast.cc (github.com/pytorch/gloo); R. Thakur, R. Rabenseifner, W. Gropp, IJHPCA
19(1), 2005, 10.1177/1094342005051521 (MPI).
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from commsim.cost.host_layout import (
    Layout,
    Traffic,
    far_rounds,
    log2_up,
    log_share,
    spread,
    then,
)

# Children of a process in MPICH's shared-memory trees: MPIR_CVAR_REDUCE_INTRANODE_TREE_KVAL.
MAX_FAN = 4

# ---- trees ----


def flooded_binomial(at: Layout, size: float) -> Traffic:
    """Gloo's broadcast: a rank that has the data sends to all its children at once, which share its
    machine's port and so have it at the same time: see _flood.
    """
    deep = log2_up(at.n)
    chain, through, across = _flood(at)
    handled = _flood(replace(at, hosts=at.n, per_host=1, near=1, crossings=1))[0] * size
    return Traffic(
        rounds=deep, messages=deep + 1, handled=handled,
        mean_messages=2 * (at.n - 1) / at.n, mean_handled=2 * (at.n - 1) / at.n * size,
        node=max(chain, through) * size, cut=across * size,
        far=log_share(at), far_rounds=log_share(at),
    )  # fmt: skip


@lru_cache(maxsize=256)
def _flood(at: Layout) -> tuple[float, float, float]:
    """Of Gloo's broadcast, in sizes: the longest chain, the busiest port, what crosses the middle.

    Rank v sends to v + 2^i for every 2^i above v (broadcast.cc). All sends of a machine share its
    port, then those of the machines that it feeds follow: chain(m) = sends(m) + max chain(fed by
    m), which for 2^L machines of one rank is L (L + 1) / 2. Ranks that do not lie machine by
    machine are taken one by one, and share the port with as many others.
    """
    packed = at.near == at.per_host
    hosts = at.hosts if packed else at.n
    host = [v // at.per_host if packed else v for v in range(at.n)]
    sends, feeds, takes = [0] * hosts, [set[int]() for _ in range(hosts)], [0] * hosts
    across = 0
    for child in range(1, at.n):
        a, b = host[child - (1 << (child.bit_length() - 1))], host[child]
        if a != b:
            sends[a], takes[b] = sends[a] + 1, takes[b] + 1
            feeds[a].add(b)
            across += a < hosts // 2 <= b
    chain = [0.0] * hosts
    for m in reversed(range(hosts)):
        chain[m] = sends[m] + max((chain[other] for other in feeds[m]), default=0.0)
    if at.hosts == 1:
        return 0.0, 0.0, 0.0
    share = 1 if packed else at.per_host  # ranks of a machine that the chain passes at once
    return chain[0] * share, float(max(max(sends), max(takes))), float(across)


def binomial(at: Layout, size: float) -> Traffic:
    """Broadcast down, or reduction up, a binomial tree, one child after the other: log2(n) x
    size."""
    deep = log2_up(at.n)
    return Traffic(
        rounds=deep, messages=deep, handled=deep * size,
        mean_messages=2 * (at.n - 1) / at.n, mean_handled=2 * (at.n - 1) / at.n * size,
        node=far_rounds(at) * size, cut=size if at.hosts > 1 else 0.0,
        far=log_share(at), far_rounds=log_share(at),
    )  # fmt: skip


def binomial_reduce(at: Layout, size: float) -> Traffic:
    return replace(binomial(at, size), reduced=log2_up(at.n) * size)


def binomial_parts(at: Layout, size: float) -> Traffic:
    """Gather or scatter over a binomial tree: half, a quarter ... of the data at each step of the
    root."""
    deep, part = log2_up(at.n), (at.n - 1) / at.n * size
    return Traffic(
        rounds=deep, messages=deep, handled=part,
        mean_messages=2 * (at.n - 1) / at.n, mean_handled=deep / at.n * size,
        node=(at.n - at.per_host) / at.n * size, cut=size / 2 if at.hosts > 1 else 0.0,
        copied=size / at.n, far=spread(at), far_rounds=log_share(at),
    )  # fmt: skip


# ---- shared memory ----


def release_gather(at: Layout, size: float) -> Traffic:
    """Broadcast through one shared buffer: the root writes, the others read, chunk by chunk."""
    deep = max(1, (log2_up(at.n) + 1) // 2)
    return Traffic(
        rounds=deep, messages=2 * deep, handled=size,
        mean_messages=2 * deep, mean_handled=size,
    )  # fmt: skip


def release_gather_reduce(at: Layout, size: float) -> Traffic:
    """Reduction through a shared tree: a parent adds up what its children wrote."""
    return replace(release_gather(at, size), reduced=min(at.n - 1, MAX_FAN) * size)


def release_gather_all_reduce(at: Layout, size: float) -> Traffic:
    return then(release_gather_reduce(at, size), release_gather(at, size))


def release_gather_barrier(at: Layout, size: float) -> Traffic:
    return then(release_gather(at, 0), release_gather(at, 0))
