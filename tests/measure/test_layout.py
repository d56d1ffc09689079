from __future__ import annotations

import numpy as np
import pytest

from commsim.collectives.collective import OPERATIONS
from commsim.measure.layout import IN_PLACE, Piece, layout, neighbours


def test_all_to_all_by_hand() -> None:
    # three ranks, six elements each: rank 1 gets the middle two of everybody's, in order
    found = layout("all_to_all", 3, 1, None, 6)
    assert (found.send, found.receive, found.inside) == (6, 6, None)
    assert found.pieces == (
        Piece(offset=0, length=2, source=0, start=2),
        Piece(offset=2, length=2, source=1, start=2),
        Piece(offset=4, length=2, source=2, start=2),
    )


def test_only_the_root_gathers_and_scatters() -> None:
    root, other = layout("gather", 2, 1, 1, 8), layout("gather", 2, 0, 1, 8)
    assert (root.send, root.receive, root.inside) == (4, 8, 4)
    assert (other.send, other.receive, other.inside, other.pieces) == (4, 0, None, ())
    root, other = layout("scatter", 2, 1, 1, 8), layout("scatter", 2, 0, 1, 8)
    assert (root.send, root.receive, root.inside) == (8, 4, 4)
    assert (other.send, other.receive) == (0, 4)


def test_messages_go_around_the_ring_or_from_the_root() -> None:
    assert [neighbours(3, p, None) for p in range(3)] == [(2, 1), (0, 2), (1, 0)]
    assert [neighbours(2, p, 1) for p in range(2)] == [(1, None), (None, 0)]


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("n", [2, 3, 5])
def test_every_element_that_is_received_is_said_once(operation: str, n: int) -> None:
    root = 1 if operation in ("broadcast", "reduce", "gather", "scatter") else None
    elements = 0 if operation == "barrier" else 4 * n
    for position in range(n):
        found = layout(operation, n, position, root, elements)
        seen = np.zeros(found.receive, int)
        for piece in found.pieces:
            seen[piece.offset : piece.offset + piece.length] += 1
        if operation != "reduce" or position == root:
            assert (seen == 1).all()
        if found.inside is not None:
            assert operation in IN_PLACE
            small, large = sorted((found.send, found.receive))
            assert 0 <= found.inside <= large - small
