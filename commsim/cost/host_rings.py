"""What Gloo and MPI move in rings, and where all is posted at once.

Sources: Gloo's allreduce.cc, allgather.cc, reduce.cc, barrier.cc (github.com/pytorch/gloo).
"""

from __future__ import annotations

from dataclasses import replace

from commsim.cost.host_layout import (
    Layout,
    Traffic,
    even,
    log2_up,
    log_share,
    middle,
    per_host,
    spread,
)

# ---- rings ----


def ring(at: Layout, size: float, passes: int, segments: float, **rest: float) -> Traffic:
    """passes x (n - 1) steps, each rank passing size/n on at each."""
    steps, sent = passes * (at.n - 1), passes * (at.n - 1) / at.n * size
    far = 1.0 if at.hosts > 1 else 0.0
    return even(
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
    return ring(at, size, 2, _segments(at, size), reduced=(at.n - 1) / at.n * size)


def ring_slice(at: Layout, size: float) -> Traffic:
    """torch copies all parts into one buffer first, and the rank's own out of it at the end."""
    return replace(ring_all_reduce(at, size), copied=size + size / at.n, copiers=at.n)


def ring_all_gather(at: Layout, size: float) -> Traffic:
    """Gloo halves every chunk and copies the rank's own into a new buffer before it sends any, and
    torch copies what was gathered from there to the caller's; MPI (segment 0) does neither. Two
    ranks use one connection both ways. Gloo's ranks post their first send before their first
    receive."""
    halves, copied = (2.0, size) if at.segment else (1.0, size / at.n)
    return replace(
        ring(at, size, 1, min(halves, max(1.0, size / at.itemsize / at.n)), copied=copied),
        peers=1 if at.n == 2 else 0,
        prepared=size / at.n if at.segment else 0.0,
        ahead=size / at.n if at.segment and at.n > 2 else 0.0,
    )


def ring_reduce(at: Layout, size: float) -> Traffic:
    """Ring reduce-scatter, then every rank sends its chunk to the root."""
    scattered = ring(at, size, 1, _segments(at, size), reduced=(at.n - 1) / at.n * size)
    part = (at.n - 1) / at.n * size
    return replace(
        scattered,
        rounds=scattered.rounds + 1,
        messages=scattered.messages + at.n - 1,
        handled=scattered.handled + part,
        mean_messages=scattered.mean_messages + 2 * (at.n - 1) / at.n,
        mean_handled=scattered.mean_handled + 2 * part / at.n,
        node=scattered.node + (at.n - at.per_host) / at.n * size,
        cut=scattered.cut + (size / 2 if at.hosts > 1 else 0.0),
    )


# ---- everything at once ----


def linear_all_to_all(at: Layout, size: float) -> Traffic:
    return even(
        1, at.n - 1, (at.n - 1) / at.n * size,
        node=per_host(at, size), cut=middle(at, size), copied=size / at.n,
        peers=at.n - 1 if at.hosts == at.n else 0,  # other ranks fill a shared port meanwhile
        far=spread(at), far_rounds=float(at.hosts > 1),
    )  # fmt: skip


def linear_root(at: Layout, size: float) -> Traffic:
    """Gather or scatter straight to or from the root."""
    part = (at.n - 1) / at.n * size
    return Traffic(
        rounds=1, messages=at.n - 1, handled=part,
        mean_messages=2 * (at.n - 1) / at.n, mean_handled=2 * part / at.n,
        node=(at.n - at.per_host) / at.n * size, cut=size / 2 if at.hosts > 1 else 0.0,
        copied=size / at.n, far=spread(at), far_rounds=float(at.hosts > 1),
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
    return even(
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
    return even(rounds, rounds, 0.0, far=log_share(at), far_rounds=log_share(at))
