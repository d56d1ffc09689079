"""Over every algorithm that the catalogue finds: it computes, and its two answers meet."""

from __future__ import annotations

import numpy as np
import pytest

from commsim.collectives.catalogue import algorithm, names
from commsim.collectives.collective import OPERATIONS, Collective
from commsim.collectives.schedule import Schedule
from commsim.collectives.verify import verify
from commsim.errors import CollectiveError, UnknownNameError

SERVED = [(n, o) for n in names() for o in sorted(algorithm(n).operations)]
IN_STEP = ("direct", "pairwise", "recursive_doubling", "ring")
ROOTED = ("broadcast", "reduce", "gather", "scatter")
SIZES = (0, 1, 1000, 1 << 16)  # nothing, one byte, does not divide, divides by powers of two


def roots(operation: str, n: int) -> tuple[int | None, ...]:
    return (0, n // 2, n - 1) if operation in ROOTED else (None,)


def by_rounds(schedule: Schedule) -> tuple[int, int]:
    """Rounds with transfers, and over them the sum of what the busiest vertex moves one way."""
    busiest = 0
    away = schedule.source != schedule.destination
    rounds = np.unique(schedule.round[away])
    for each in rounds:
        now = away & (schedule.round == each)
        moved = [
            np.bincount(end[now], weights=schedule.nbytes[now]).max()
            for end in (schedule.source, schedule.destination)
        ]
        busiest += int(max(moved))
    return len(rounds), busiest


@pytest.mark.parametrize("n", [*range(2, 18), 32])
@pytest.mark.parametrize(("name", "operation"), SERVED)
def test_every_schedule_computes_its_collective(name: str, operation: str, n: int) -> None:
    for nbytes in SIZES if n < 10 else (1000,):
        for root in roots(operation, n):
            for channels in (1, 2, 3):
                collective = Collective(operation, nbytes, root=root)
                verify(algorithm(name).schedule(collective, n, channels), collective)


@pytest.mark.parametrize("n", [64, 72])
@pytest.mark.parametrize(("name", "operation"), SERVED)
def test_larger_groups(name: str, operation: str, n: int) -> None:
    collective = Collective(operation, 1 << 20)
    verify(algorithm(name).schedule(collective, n), collective)


@pytest.mark.parametrize("n", [2, 3, 4, 5, 8, 12, 16])
@pytest.mark.parametrize(("name", "operation"), [s for s in SERVED if s[0] in IN_STEP])
def test_the_closed_form_is_what_the_rounds_add_up_to(name: str, operation: str, n: int) -> None:
    for nbytes in (1000, 3 * 5 * 7 * 4096):
        for channels in (1, 2):
            collective = Collective(operation, nbytes, dtype="uint8")
            schedule = algorithm(name).schedule(collective, n, channels)
            cost = algorithm(name).cost(collective, n, channels)
            assert by_rounds(schedule) == (cost.rounds, cost.nbytes)


@pytest.mark.parametrize(("name", "operation"), SERVED)
def test_ops_wait_only_for_earlier_rounds(name: str, operation: str) -> None:
    schedule = algorithm(name).schedule(Collective(operation, 1 << 12), 6, 2)
    for op in schedule:
        assert all(schedule[w].round < op.round for w in op.waits)


@pytest.mark.parametrize("name", names())
def test_equal_inputs_give_equal_schedules_and_others_are_refused(name: str) -> None:
    served = algorithm(name).operations
    collective = Collective(min(served), 1000)
    one, two = (algorithm(name).schedule(collective, 7, 2) for _ in range(2))
    assert list(one) == list(two)
    for operation in set(OPERATIONS) - served:
        with pytest.raises(CollectiveError, match=operation):
            algorithm(name).schedule(Collective(operation, 8), 4)


def test_an_unknown_name_lists_the_known_and_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'ring'"):
        algorithm("rings")
    assert "ring" in names("all_reduce")
    assert "ring" not in names("all_to_all")
