"""How many messages and bytes each algorithm of a host-based library moves, and past which points.

Formulas count the busiest process, the busiest machine and the middle of the cluster, for a group
of n ranks, `near` of them in a row on each of `hosts` machines. Sizes are nccl-tests' (see
Collective). Sources: R. Thakur, R. Rabenseifner, W. Gropp, IJHPCA 19(1), 2005,
10.1177/1094342005051521 (MPI); Gloo's allreduce.cc, allgather.cc, broadcast.cc, reduce.cc,
barrier.cc (github.com/pytorch/gloo).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

from commsim.errors import LibraryError

# Children of a process in MPICH's shared-memory trees: MPIR_CVAR_REDUCE_INTRANODE_TREE_KVAL.
MAX_FAN = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A group of n ranks: per_host on the fullest of `hosts` machines; near: how many neighbours in
    rank order share a machine (1 where ranks are scattered); crossings: ring connections that leave
    the busiest machine."""

    n: int
    hosts: int
    per_host: int
    near: int
    crossings: int
    segment: int = 0
    itemsize: int = 4
    one_way: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What an algorithm moves. All counts are for one operation.

    rounds: messages that wait for one another, end to end. messages, handled: sends plus receives
    of the process that is busy longest, and their bytes; mean_*: averaged over the processes.
    node: bytes through the network port of the busiest machine in its busier direction. cut: bytes
    between the halves of the cluster, one direction. own: as node, if every rank were a machine of
    its own: what passes the busiest rank's own link. duplex: share of these bytes that comes in
    while they go out, and is acknowledged the same way. peers: connections of a process with a port
    of its own that carry bulk data in both directions at once (0: none). ahead: bytes that a
    process sends before the word that it is ready to receive.
    copied: bytes a process moves in its own memory before or after all else, `copiers` processes
    at once (0: all, or one a machine where ranks behind one port end one after the other).
    reduced: bytes it adds up meanwhile.
    far, far_rounds: share of handled bytes, and of rounds, that cross the network.
    """

    rounds: float
    messages: float
    handled: float
    mean_messages: float
    mean_handled: float
    node: float = 0.0
    cut: float = 0.0
    own: float = 0.0
    duplex: float = 0.0
    copied: float = 0.0
    copiers: float = 0.0
    reduced: float = 0.0
    peers: int = 0
    ahead: float = 0.0
    far: float = 0.0
    far_rounds: float = 0.0


@lru_cache(maxsize=1 << 16)
def log2_up(n: int) -> int:
    """ceil(log2 n): rounds of a doubling algorithm."""
    return max(0, (n - 1).bit_length())


def _even(rounds: float, messages: float, sent: float, **rest: float) -> Traffic:
    """Traffic in which every process sends and receives the same."""
    return Traffic(
        rounds=rounds, messages=2 * messages, handled=2 * sent,
        mean_messages=2 * messages, mean_handled=2 * sent, duplex=1.0, **rest,  # type: ignore[arg-type]
    )  # fmt: skip


def _spread(at: Layout) -> float:
    """Share of a rank's peers that sit on other machines."""
    return (at.n - at.per_host) / (at.n - 1)


def _log_share(at: Layout) -> float:
    """Share of the doubling distances that leave the machine."""
    return _far_rounds(at) / max(1, log2_up(at.n))


def _far_rounds(at: Layout) -> int:
    return 0 if at.hosts == 1 else log2_up(-(-at.n // at.near))


def _per_host(at: Layout, size: float) -> float:
    """Bytes a machine sends where every rank sends size/n to each rank of the other machines."""
    return at.per_host * (at.n - at.per_host) / at.n * size


def _middle(at: Layout, size: float) -> float:
    """Bytes across the middle where every rank sends size/n to every other rank."""
    return 0.0 if at.hosts == 1 else at.n / 4 * size


# ---- rings ----


def _ring(at: Layout, size: float, passes: int, segments: float, **rest: float) -> Traffic:
    """passes x (n - 1) steps, each rank passing size/n on at each."""
    steps, sent = passes * (at.n - 1), passes * (at.n - 1) / at.n * size
    far = 1.0 if at.hosts > 1 else 0.0
    return _even(
        steps, steps * segments, sent,
        node=at.crossings * sent,
        cut=sent * max(far, at.crossings * at.hosts / 2 if at.crossings > 1 else far),
        far=far, far_rounds=min(1.0, at.crossings * at.hosts / at.n),
        **rest,
    )  # fmt: skip


def _segments(at: Layout, size: float) -> float:
    """Messages per chunk of Gloo's ring: at least 2, at most `segment` bytes each, fewer where
    elements run out."""
    if not at.segment:
        return 1.0
    most = max(1.0, size / at.itemsize / at.n)
    return min(max(2.0, -(-size // (at.n * at.segment))), most)


def ring_all_reduce(at: Layout, size: float) -> Traffic:
    return _ring(at, size, 2, _segments(at, size), reduced=(at.n - 1) / at.n * size)


def ring_slice(at: Layout, size: float) -> Traffic:
    """torch copies all parts into one buffer first, and the rank's own out of it at the end."""
    return replace(ring_all_reduce(at, size), copied=size + size / at.n, copiers=at.n)


def ring_all_gather(at: Layout, size: float) -> Traffic:
    """Gloo halves every chunk, and torch copies what was gathered from a buffer of its own to the
    caller's; MPI (segment 0) does neither. Two ranks use one connection both ways. Gloo's ranks
    post their first send before their first receive."""
    halves, copied = (2.0, size) if at.segment else (1.0, size / at.n)
    return replace(
        _ring(at, size, 1, min(halves, max(1.0, size / at.itemsize / at.n)), copied=copied),
        peers=1 if at.n == 2 else 0,
        ahead=size / at.n if at.segment and at.n > 2 else 0.0,
    )


def ring_reduce(at: Layout, size: float) -> Traffic:
    """Ring reduce-scatter, then every rank sends its chunk to the root."""
    ring = _ring(at, size, 1, _segments(at, size), reduced=(at.n - 1) / at.n * size)
    part = (at.n - 1) / at.n * size
    return replace(
        ring,
        rounds=ring.rounds + 1,
        messages=ring.messages + at.n - 1,
        handled=ring.handled + part,
        mean_messages=ring.mean_messages + 2 * (at.n - 1) / at.n,
        mean_handled=ring.mean_handled + 2 * part / at.n,
        node=ring.node + (at.n - at.per_host) / at.n * size,
        cut=ring.cut + (size / 2 if at.hosts > 1 else 0.0),
    )


# ---- everything at once ----


def linear_all_to_all(at: Layout, size: float) -> Traffic:
    return _even(
        1, at.n - 1, (at.n - 1) / at.n * size,
        node=_per_host(at, size), cut=_middle(at, size), copied=size / at.n,
        peers=at.n - 1 if at.hosts == at.n else 0,  # other ranks fill a shared port meanwhile
        far=_spread(at), far_rounds=float(at.hosts > 1),
    )  # fmt: skip


def linear_root(at: Layout, size: float) -> Traffic:
    """Gather or scatter straight to or from the root."""
    part = (at.n - 1) / at.n * size
    return Traffic(
        rounds=1, messages=at.n - 1, handled=part,
        mean_messages=2 * (at.n - 1) / at.n, mean_handled=2 * part / at.n,
        node=(at.n - at.per_host) / at.n * size, cut=size / 2 if at.hosts > 1 else 0.0,
        copied=size / at.n, far=_spread(at), far_rounds=float(at.hosts > 1),
    )  # fmt: skip


def p2p(at: Layout, size: float) -> Traffic:
    """One message to the next rank; one_way: only the root sends."""
    far = float(at.hosts > 1)
    if at.one_way:
        return Traffic(
            rounds=1, messages=1, handled=size,
            mean_messages=2 / at.n, mean_handled=2 * size / at.n,
            node=size * far, cut=size * far, far=far, far_rounds=far,
        )  # fmt: skip
    cut = size * max(1.0, at.crossings * at.hosts / 2 if at.crossings > 1 else 1.0) * far
    return _even(
        1,
        1,
        size,
        node=at.crossings * size,
        cut=cut,
        far=far,
        far_rounds=far,
    )


def dissemination(at: Layout, size: float) -> Traffic:
    rounds = log2_up(at.n)
    return _even(rounds, rounds, 0.0, far=_log_share(at), far_rounds=_log_share(at))


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
        far=_log_share(at), far_rounds=_log_share(at),
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
        node=_far_rounds(at) * size, cut=size if at.hosts > 1 else 0.0,
        far=_log_share(at), far_rounds=_log_share(at),
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
        copied=size / at.n, far=_spread(at), far_rounds=_log_share(at),
    )  # fmt: skip


# ---- doubling and halving ----


def _fold(at: Layout) -> int:
    """2 extra messages where n is no power of two: ranks beyond it hand their data over and get the
    result."""
    return 0 if at.n & (at.n - 1) == 0 else 2


def recursive_doubling_all_reduce(at: Layout, size: float) -> Traffic:
    rounds = at.n.bit_length() - 1 + _fold(at)
    return _even(
        rounds, rounds, (rounds - _fold(at) / 2) * size,
        node=_far_rounds(at) * at.per_host * size, cut=at.n / 2 * size if at.hosts > 1 else 0.0,
        reduced=rounds * size, far=_log_share(at), far_rounds=_log_share(at),
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
    return _even(
        rounds, rounds, 2 * (1 - 1 / power) * size + extra,
        node=2 * at.per_host / at.near * (1 - 1 / most) * size + extra if at.hosts > 1 else 0.0,
        cut=size if at.hosts > 1 else 0.0, reduced=(1 - 1 / power) * size + min(1, folds) * size,
        far=(1 / at.near - 1 / at.n) / (1 - 1 / at.n) if at.hosts > 1 else 0.0,
        far_rounds=_log_share(at),
    )  # fmt: skip


def rabenseifner_reduce(at: Layout, size: float) -> Traffic:
    """Recursive halving reduce-scatter, then a binomial gather to the root, which only receives in
    it."""
    both = rabenseifner(at, size, folds=1)
    return replace(both, handled=both.handled * 3 / 4, mean_handled=both.mean_handled * 3 / 4)


def recursive_doubling_all_gather(at: Layout, size: float) -> Traffic:
    return _even(
        log2_up(at.n), log2_up(at.n), (at.n - 1) / at.n * size,
        node=_per_host(at, size), cut=_middle(at, size), copied=size / at.n,
        far=_spread(at), far_rounds=_log_share(at),
    )  # fmt: skip


def bruck_all_gather(at: Layout, size: float) -> Traffic:
    return replace(recursive_doubling_all_gather(at, size), copied=size)


def recursive_halving(at: Layout, size: float) -> Traffic:
    """Reduce-scatter, farthest rank first."""
    rounds = at.n.bit_length() - 1 + _fold(at)
    return _even(
        rounds, rounds, (at.n - 1) / at.n * size + _fold(at) / 2 * size,
        node=_per_host(at, size), cut=_middle(at, size), reduced=(at.n - 1) / at.n * size,
        far=_spread(at), far_rounds=_log_share(at),
    )  # fmt: skip


def pairwise(at: Layout, size: float) -> Traffic:
    """n - 1 rounds, size/n to another rank at each."""
    return replace(linear_all_to_all(at, size), rounds=at.n - 1, far_rounds=_spread(at), peers=0)


def pairwise_reduce_scatter(at: Layout, size: float) -> Traffic:
    return replace(pairwise(at, size), reduced=(at.n - 1) / at.n * size)


def bruck_all_to_all(at: Layout, size: float) -> Traffic:
    """log2(n) rounds, half of the data at each, with a rotation before and after."""
    rounds = log2_up(at.n)
    return _even(
        rounds, rounds, rounds / 2 * size,
        node=_bruck_node(at) * size / 2, cut=_middle(at, size), copied=2 * size,
        far=_spread(at), far_rounds=_log_share(at),
    )  # fmt: skip


def _bruck_node(at: Layout) -> int:
    """Ranks of a machine whose partner at distance 1, 2, 4 ... is on another one, summed over the
    rounds."""
    if at.hosts == 1:
        return 0
    return sum(min(1 << j, at.near) * at.per_host // at.near for j in range(log2_up(at.n)))


def _then(first: Traffic, second: Traffic) -> Traffic:
    """One phase after the other."""
    handled, rounds = first.handled + second.handled, first.rounds + second.rounds
    far_rounds = first.far_rounds * first.rounds + second.far_rounds * second.rounds
    return Traffic(
        rounds=rounds, messages=first.messages + second.messages, handled=handled,
        mean_messages=first.mean_messages + second.mean_messages,
        mean_handled=first.mean_handled + second.mean_handled,
        node=first.node + second.node, cut=first.cut + second.cut,
        copied=first.copied + second.copied, reduced=first.reduced + second.reduced,
        far=(first.far * first.handled + second.far * second.handled) / handled if handled else 0.0,
        far_rounds=far_rounds / max(1, rounds),
    )  # fmt: skip


def scatter_doubling(at: Layout, size: float) -> Traffic:
    """Broadcast as a binomial scatter and a recursive doubling all-gather."""
    return _then(binomial_parts(at, size), recursive_doubling_all_gather(at, size))


def scatter_ring(at: Layout, size: float) -> Traffic:
    """Broadcast as a binomial scatter and a ring all-gather."""
    return _then(binomial_parts(at, size), replace(_ring(at, size, 1, 1.0), peers=0))


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
    return _then(release_gather_reduce(at, size), release_gather(at, size))


def release_gather_barrier(at: Layout, size: float) -> Traffic:
    return _then(release_gather(at, 0), release_gather(at, 0))


Count = Callable[[Layout, float], Traffic]
COUNTS: dict[tuple[str, str], Count] = {
    ("ring", "all_reduce"): ring_all_reduce,
    ("ring", "all_gather"): ring_all_gather,
    ("ring_then_slice", "reduce_scatter"): ring_slice,
    ("ring_then_gather", "reduce"): ring_reduce,
    ("linear", "all_to_all"): linear_all_to_all,
    ("scattered", "all_to_all"): linear_all_to_all,
    ("linear", "gather"): linear_root,
    ("linear", "scatter"): linear_root,
    ("flooded_binomial", "broadcast"): flooded_binomial,
    ("dissemination", "barrier"): dissemination,
    ("p2p", "send_recv"): p2p,
    ("binomial", "broadcast"): binomial,
    ("binomial", "reduce"): binomial_reduce,
    ("binomial", "gather"): binomial_parts,
    ("binomial", "scatter"): binomial_parts,
    ("recursive_doubling", "all_reduce"): recursive_doubling_all_reduce,
    ("recursive_doubling", "all_gather"): recursive_doubling_all_gather,
    ("rabenseifner", "all_reduce"): rabenseifner,
    ("rabenseifner", "reduce"): rabenseifner_reduce,
    ("bruck", "all_gather"): bruck_all_gather,
    ("bruck", "all_to_all"): bruck_all_to_all,
    ("recursive_halving", "reduce_scatter"): recursive_halving,
    ("pairwise", "reduce_scatter"): pairwise_reduce_scatter,
    ("pairwise", "all_to_all"): pairwise,
    ("scatter_doubling", "broadcast"): scatter_doubling,
    ("scatter_ring", "broadcast"): scatter_ring,
    ("release_gather", "broadcast"): release_gather,
    ("release_gather", "reduce"): release_gather_reduce,
    ("release_gather", "all_reduce"): release_gather_all_reduce,
    ("release_gather", "barrier"): release_gather_barrier,
}  # fmt: skip


def traffic(algorithm: str, operation: str, size: float, at: Layout) -> Traffic:
    """What `algorithm` moves for `operation` on `size` bytes. Raises LibraryError for a pair it
    does not know."""
    count = COUNTS.get((algorithm, operation))
    if count is None:
        known = sorted(a for a, o in COUNTS if o == operation)
        raise LibraryError(
            f"{operation}: unknown algorithm {algorithm!r} of a host-based library; "
            f"use one of {', '.join(known)}"
        )
    found = count(at, size)
    if at.hosts == 1 or at.hosts == at.n:
        return replace(found, own=found.node, copiers=found.copiers or at.n)
    alone = replace(at, hosts=at.n, per_host=1, near=1, crossings=1)
    return replace(found, own=count(alone, size).node, copiers=found.copiers or at.hosts)
