"""What each rank sends and receives: sizes of its buffers, and what must lie in them afterwards.

Counted in elements. `position` is a rank's index in its group, `root` the root's.
"""

from __future__ import annotations

from dataclasses import dataclass

IN_PLACE = frozenset({"all_gather", "all_reduce", "broadcast", "gather", "reduce",
                      "reduce_scatter", "scatter"})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """`length` elements from `offset` of a rank's result are those from `start` of what the rank at
    position `source` sends; None: of what all of them send, reduced."""

    offset: int
    length: int
    source: int | None
    start: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One rank's buffers. In place the smaller one is a part of the larger, from `inside` on;
    None: the rank has only one of them."""

    send: int
    receive: int
    inside: int | None
    pieces: tuple[Piece, ...]


def layout(operation: str, n: int, position: int, root: int | None, elements: int) -> Layout:
    """The buffers of the rank at `position`; `elements` is nccl-tests' size in elements, for
    shared operations a multiple of n."""
    here = root is None or position == root
    part = elements // n
    mine = position * part
    match operation:
        case "barrier":
            return Layout(send=0, receive=0, inside=None, pieces=())
        case "all_reduce":
            return _layout(elements, elements, 0, Piece(offset=0, length=elements, source=None,
                                                        start=0))  # fmt: skip
        case "reduce":
            whole = Piece(offset=0, length=elements, source=None, start=0)
            return _layout(elements, elements, 0, *([whole] if here else []))
        case "broadcast":
            whole = Piece(offset=0, length=elements, source=root or 0, start=0)
            return _layout(elements, elements, 0, whole)
        case "reduce_scatter":
            reduced = Piece(offset=0, length=part, source=None, start=mine)
            return _layout(elements, part, mine, reduced)
        case "scatter":
            own = Piece(offset=0, length=part, source=root or 0, start=mine)
            return _layout(elements if here else 0, part, mine, own)
        case "all_gather" | "gather":
            parts = [Piece(offset=j * part, length=part, source=j, start=0) for j in range(n)]
            receives = operation == "all_gather" or here
            return _layout(part, elements if receives else 0, mine, *(parts if receives else []))
        case "all_to_all":
            parts = [Piece(offset=j * part, length=part, source=j, start=mine) for j in range(n)]
            return Layout(send=elements, receive=elements, inside=None, pieces=tuple(parts))
        case "send_recv":
            return _send_recv(n, position, root, elements)
    raise AssertionError(operation)


def _layout(send: int, receive: int, inside: int, *pieces: Piece) -> Layout:
    alone = not (send and receive)
    return Layout(
        send=send, receive=receive, inside=None if alone else inside,
        pieces=tuple(p for p in pieces if p.length),
    )  # fmt: skip


def _send_recv(n: int, position: int, root: int | None, elements: int) -> Layout:
    """Around the ring; with a root, from it to the other one."""
    source, target = neighbours(n, position, root)
    piece = [] if source is None else [Piece(offset=0, length=elements, source=source, start=0)]
    return Layout(
        send=0 if target is None else elements, receive=0 if source is None else elements,
        inside=None, pieces=tuple(piece),
    )  # fmt: skip


def neighbours(n: int, position: int, root: int | None) -> tuple[int | None, int | None]:
    """Whom a send_recv receives from, and whom it sends to; None: nobody."""
    if root is None:
        return (position - 1) % n, (position + 1) % n
    return (None, 1 - root) if position == root else (root, None)
