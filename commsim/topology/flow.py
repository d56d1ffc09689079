"""The largest flow between two vertices of a small network, bytes/s.

Dinic's algorithm (Dinitz, Soviet Math. Doklady 11, 1970). Written out here, although networkx and
scipy have one: predictions cannot wait for their import, and scipy's takes whole numbers only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from commsim.units import BytesPerSecond

INFINITE = float("inf")

Edge = tuple[str, str, BytesPerSecond]


def maximum_flow(edges: Iterable[Edge], source: str, target: str) -> BytesPerSecond:
    """The most that can flow from source to target, bytes/s; infinite if no edge limits it.

    Edges are directed; parallel ones add up. What is below 1e-12 of the largest finite capacity
    counts as nothing.
    """
    index: dict[str, int] = {source: 0, target: 1}
    heads: list[int] = []
    room: list[float] = []
    out: list[list[int]] = [[], []]
    for tail_name, head_name, capacity in edges:
        if capacity <= 0 or tail_name == head_name:
            continue
        ends = []
        for name in (tail_name, head_name):
            if name not in index:
                index[name] = len(index)
                out.append([])
            ends.append(index[name])
        tail, head = ends
        out[tail].append(len(heads))
        heads.append(head)
        room.append(capacity)
        out[head].append(len(heads))
        heads.append(tail)
        room.append(0.0)
    least = 1e-12 * max((r for r in room if r < INFINITE), default=0.0)
    total = 0.0
    while (levels := _levels(out, heads, room, least))[1] >= 0:
        pushed = _blocking_flow(out, heads, room, levels, least)
        if pushed == INFINITE:
            return INFINITE
        total += pushed
    return total


def _levels(out: list[list[int]], heads: list[int], room: list[float], least: float) -> list[int]:
    levels = [-1] * len(out)
    levels[0] = 0
    queue = deque([0])
    while queue:
        vertex = queue.popleft()
        for edge in out[vertex]:
            head = heads[edge]
            if levels[head] < 0 and room[edge] > least:
                levels[head] = levels[vertex] + 1
                queue.append(head)
    return levels


def _blocking_flow(
    out: list[list[int]],
    heads: list[int],
    room: list[float],
    levels: list[int],
    least: float,
) -> float:
    """Push along shortest paths until none is left; edges that failed once are not tried again."""
    tried = [0] * len(out)
    total = 0.0
    path: list[int] = []
    vertex = 0
    while True:
        if vertex == 1:
            amount = min(room[edge] for edge in path)
            if amount == INFINITE:
                return INFINITE
            total += amount
            for edge in path:
                room[edge] -= amount
                room[edge ^ 1] += amount
            path, vertex = [], 0
            continue
        while tried[vertex] < len(out[vertex]):
            edge = out[vertex][tried[vertex]]
            if room[edge] > least and levels[heads[edge]] == levels[vertex] + 1:
                break
            tried[vertex] += 1
        else:
            if not path:
                return total
            last = path.pop()
            vertex = heads[last ^ 1]
            tried[vertex] += 1
            continue
        path.append(edge)
        vertex = heads[edge]
