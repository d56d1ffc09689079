"""Sums up a tree and copies down it, piece by piece: one tree per channel, whatever its shape.

A rank passes a piece on when it has it from all its children, or from its parent, and when its
piece before has left; so the copies of the first pieces go down while later ones are still summed.
"""

from __future__ import annotations

import numpy as np

from commsim.collectives.algorithm import Cost
from commsim.collectives.builder import NONE, Builder
from commsim.collectives.chunks import Chunks, Ints
from commsim.collectives.schedule import Schedule
from commsim.errors import ScheduleError


def tree_schedule(chunks: Chunks, parents: Ints, slots: int | None = None) -> Schedule:
    """The schedule of a whole buffer over trees: `parents[channel, rank]`, -1 at the root.

    reduce only sums up, broadcast only copies down, all_reduce and barrier do both. Each channel
    has an equal share of the chunks, one per piece. slots: how many pieces a connection holds; the
    next waits until the receiver has passed on the first of them. What a rank keeps, it takes at
    once.
    """
    channels, n = parents.shape
    depth = depths(parents)
    pieces, rest = divmod(chunks.parts, channels)
    if rest or (slots is not None and slots < 1):
        raise ScheduleError(
            f"tree: expected the same number of pieces on each channel and at least 1 slot, got "
            f"{chunks.parts} pieces, {channels} channels and {slots} slots"
        )
    sums, copies = chunks.reduces, chunks.operation != "reduce"

    # From here on a rank of a channel is one number, and index -1 (no such rank) gives "no op".
    below = np.flatnonzero(parents >= 0)
    parent = np.full(channels * n + 1, NONE)
    parent[below] = parents.ravel()[below] + below // n * n
    children = _children(parent)
    depth = depth.ravel()
    climbing = below[np.argsort(-depth[below], kind="stable")] if sums else below[:0]
    falling = below[np.argsort(depth[below], kind="stable")] if copies else below[:0]
    per_piece = len(climbing) + len(falling)
    up, down = np.full((2, channels * n + 1), NONE)  # the ops between a rank and its parent
    up[climbing] = np.arange(len(climbing))
    down[falling] = np.arange(len(climbing), per_piece)

    whole = np.full_like(children, NONE)  # the ops that complete a rank's result
    whole[:, 0] = down
    root = np.flatnonzero(parent[:-1] < 0)
    whole[root] = up[children[root]]
    onward = np.full((len(climbing), children.shape[1]), NONE)
    onward[:, 0] = up[parent[climbing]]
    needs = np.concatenate([up[children[climbing]], whole[parent[falling]]])
    onward = np.concatenate([onward, down[children[falling]]])

    piece, op = np.divmod(np.arange(pieces * per_piece), per_piece)

    def earlier(ops: Ints, lag: int) -> Ints:
        """The same piece's ops, or those of `lag` pieces before."""
        known = (ops[op] >= 0) & (piece >= lag)
        return np.where(known, (piece - lag) * per_piece + ops[op], NONE)

    after = [earlier(each, 0) for each in needs.T] + [earlier(np.arange(per_piece), 1)]
    if slots is not None:
        after += [earlier(each, slots) for each in onward.T]
    ends = np.concatenate([climbing, falling])
    rises = np.arange(per_piece) < len(climbing)
    deepest = int(depth.max())
    hop = np.where(rises, deepest - depth[ends], sums * deepest + depth[ends] - 1)
    builder = Builder(chunks)
    builder.append(
        np.where(rises, ends, parent[ends])[op] % n,
        np.where(rises, parent[ends], ends)[op] % n,
        ends[op] // n * pieces + piece,
        reduces=rises[op],
        after=after,
        channel=ends[op] // n,
        round=hop[op] + piece * (2 if slots == 1 else 1),
    )
    return builder.build()


def tree_cost(chunks: Chunks, parents: Ints) -> Cost:
    """A piece on every hop of the deepest tree, up and down, and all other pieces behind it.

    Holds where every pair of ranks has a link of its own ("pairs"). Channels of the same tree share
    its links evenly. Where different trees, or sums and copies, meet on a link, all is taken to be
    late by the pieces that meet on one such link, which neglects where they meet again.
    """
    trees, channels = np.unique(parents, axis=0, return_counts=True)
    depth, n = depths(trees), parents.shape[1]
    tree, child = np.nonzero(trees >= 0)
    parent, deep = trees[tree, child], depth[tree, child]
    deepest, most = int(depth.max()), int(channels.max())
    pieces = chunks.parts // len(parents)
    sums, copies = chunks.reduces, chunks.operation != "reduce"
    up = (child * n + parent, deepest - deep)  # links, and in which hop their first pieces go
    down = (parent * n + child, sums * deepest + deep - 1)
    links, hops = np.concatenate([up] * sums + [down] * copies, axis=1)
    order = np.lexsort((hops, links))
    meets = np.diff(links[order]) == 0
    late = (pieces - np.diff(hops[order]))[meets].clip(0).max(initial=0)
    return Cost(
        rounds=(sums + copies) * deepest,
        nbytes=float(((sums + copies) * deepest + pieces - 1 + late) * most * chunks.nbytes.max()),
        exact=not meets.any() and bool((depth.max(axis=1) == deepest).all()),
    )


def depths(parents: Ints) -> Ints:
    """Hops from every rank up to the root of its channel's tree: [channel, rank]."""
    depth = np.zeros_like(parents)
    lane = np.arange(len(parents))[:, np.newaxis]
    above = parents
    for _ in range(parents.shape[1]):
        depth += above >= 0
        above = np.where(above >= 0, parents[lane, above], NONE)
    roots = (parents < 0).sum(axis=1)
    for channel in np.flatnonzero((roots != 1) | (above >= 0).any(axis=1)):
        raise ScheduleError(
            f"channel {channel}: expected a tree over {parents.shape[1]} ranks: one root and no "
            f"circle, got the parents {parents[channel].tolist()}"
        )
    return depth


def _children(parent: Ints) -> Ints:
    """Every rank's children, -1 after the last."""
    by_parent = np.argsort(parent, kind="stable")
    by_parent = by_parent[parent[by_parent] >= 0]
    count = np.bincount(parent[by_parent], minlength=len(parent))
    place = np.arange(len(by_parent)) - np.repeat(np.cumsum(count) - count, count)
    children = np.full((len(parent), int(count.max())), NONE)
    children[parent[by_parent], place] = by_parent
    return children
