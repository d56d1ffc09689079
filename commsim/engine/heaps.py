"""Binary heaps in arrays, compiled: the compiled engine's queues."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from commsim.engine.compilation import compiled

Array = NDArray[Any]


@compiled
def push(keys: Array, values: Array, size: int, key: float, value: int) -> None:
    """Add a value; the caller counts the size up."""
    at = size
    while at > 0:
        above = (at - 1) >> 1
        if keys[above] <= key:
            break
        keys[at] = keys[above]
        values[at] = values[above]
        at = above
    keys[at] = key
    values[at] = value


@compiled
def pop(keys: Array, values: Array, size: int) -> None:
    """Take away the least, which the caller has read at [0]; the caller counts the size down."""
    size -= 1
    key, value = keys[size], values[size]
    at = 0
    while True:
        below = 2 * at + 1
        if below >= size:
            break
        if below + 1 < size and keys[below + 1] < keys[below]:
            below += 1
        if key <= keys[below]:
            break
        keys[at] = keys[below]
        values[at] = values[below]
        at = below
    keys[at] = key
    values[at] = value


@compiled
def place(heap: Array, where: Array, keys: Array, size: int, item: int) -> int:
    """Put an item whose key has changed, or that is new (where < 0), at its place; the new size.

    `heap` holds items by position, `where` positions by item, `keys` keys by item.
    """
    at = where[item]
    if at < 0:
        at = size
        size += 1
    key = keys[item]
    while at > 0:
        above = (at - 1) >> 1
        other = heap[above]
        if keys[other] <= key:
            break
        heap[at] = other
        where[other] = at
        at = above
    while True:
        below = 2 * at + 1
        if below >= size:
            break
        if below + 1 < size and keys[heap[below + 1]] < keys[heap[below]]:
            below += 1
        other = heap[below]
        if key <= keys[other]:
            break
        heap[at] = other
        where[other] = at
        at = below
    heap[at] = item
    where[item] = at
    return size


@compiled
def remove(heap: Array, where: Array, keys: Array, size: int, item: int) -> int:
    """Take an item out, wherever it is; the new size."""
    at = where[item]
    if at < 0:
        return size
    where[item] = -1
    size -= 1
    last = heap[size]
    if last != item:
        where[last] = at
        heap[at] = last
        place(heap, where, keys, size, last)
    return size
