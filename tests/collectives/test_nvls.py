from __future__ import annotations

import pytest

from commsim.collectives.algorithms.nvls import Nvls
from commsim.collectives.collective import Collective
from commsim.collectives.verify import verify


@pytest.mark.parametrize(
    ("operation", "pieces", "rounds", "nbytes"),
    [
        # Up 1024, the own eighth in and out again, down 1024: four legs of half a latency each.
        ("all_reduce", 1, 2, 2 * (1024 + 128)),
        ("all_reduce", 4, 2, 5 / 4 * (1024 + 128)),
        ("reduce_scatter", 1, 1, 1024 + 128),
        ("reduce_scatter", 4, 1, 1024 + 128 / 4),  # the last piece's eighth comes after all others
        ("all_gather", 4, 1, 128 / 4 + 1024),
        ("broadcast", 4, 1, 5 / 4 * 1024),
        ("reduce", 1, 1, 2 * 1024),
    ],
)
def test_rounds_and_bytes_on_eight_ranks(
    operation: str, pieces: int, rounds: int, nbytes: float
) -> None:
    collective = Collective(operation, 1024, dtype="uint8")
    for channels in (1, 2):
        cost = Nvls(pieces=pieces).cost(collective, 8, channels)
        assert (cost.rounds, cost.nbytes) == (rounds, nbytes)
        assert cost.exact == (operation != "all_reduce" or pieces == 1)
        verify(Nvls(pieces=pieces).schedule(collective, 8, channels), collective)


def test_a_rank_sends_and_receives_its_buffer_and_its_slice() -> None:
    schedule = Nvls().schedule(Collective("all_reduce", 1024), 8, 2)
    assert schedule.sent().tolist() == [1024 + 128] * 8 + [8 * (1024 + 128)]
    assert schedule.received().tolist() == schedule.sent().tolist()
    assert len(schedule) == 2 * 4 * (4 * 8 + 2)  # per channel and piece four legs and two joins
