from __future__ import annotations

import pytest

from commsim.collectives.algorithms.torus_2d import Torus2D
from commsim.collectives.collective import Collective
from commsim.collectives.verify import verify
from commsim.errors import CollectiveError


@pytest.mark.parametrize(
    ("n", "rows", "rounds"),
    # 2 (C - 1) + 2 (R - 1): 4 x 4; 3 x 4; 2 x 8 as asked; 7 is prime, one row.
    [(16, None, 12), (12, None, 10), (16, 2, 16), (7, None, 12)],
)
def test_rounds_and_bytes(n: int, rows: int | None, rounds: int) -> None:
    nbytes = n * 256
    cost = Torus2D(rows=rows).cost(Collective("all_reduce", nbytes), n)
    assert (cost.rounds, cost.nbytes) == (rounds, 2 * (n - 1) * 256)  # Mikami et al. 2018
    schedule = Torus2D(rows=rows).schedule(Collective("all_reduce", nbytes), n)
    assert set(schedule.sent()) == {2 * (n - 1) * 256}
    half = Torus2D(rows=rows).cost(Collective("all_gather", nbytes), n)
    assert (half.rounds, half.nbytes) == (rounds // 2, (n - 1) * 256)


def test_only_neighbours_in_the_grid_talk() -> None:
    collective = Collective("all_reduce", 1000)
    schedule = Torus2D(rows=3).schedule(collective, 12, 2)
    verify(schedule, collective)
    for op in schedule:
        (row, column), (to_row, to_column) = divmod(op.source, 4), divmod(op.destination, 4)
        right = (to_row, to_column) == (row, (column + 1) % 4)
        down = (to_row, to_column) == ((row + 1) % 3, column)
        assert right or down or not op.nbytes


def test_rows_must_divide() -> None:
    with pytest.raises(CollectiveError, match="divisor of 12 ranks, got 5"):
        Torus2D(rows=5).schedule(Collective("all_reduce", 8), 12)
