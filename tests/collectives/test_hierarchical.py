from __future__ import annotations

from time import process_time

import pytest

from commsim.collectives.algorithms.hierarchical import Hierarchical
from commsim.collectives.algorithms.ring import Ring
from commsim.collectives.collective import Collective
from commsim.collectives.verify import verify
from commsim.engine import reference
from commsim.engine.ideal import Pairs
from commsim.engine.network import lay
from commsim.engine.plan import make_plan, punctual
from commsim.errors import CollectiveError, UnknownNameError


@pytest.mark.parametrize(
    ("operation", "rounds", "inside", "across"),
    # Groups of 8, 3 of them: 7 rounds of an eighth inside, 2 of a 24th across, per half.
    [
        ("all_reduce", 18, 2 * 7 * 384, 2 * 2 * 128),
        ("reduce_scatter", 9, 7 * 384, 2 * 128),
        ("all_gather", 9, 7 * 384, 2 * 128),
    ],
)
def test_rounds_and_bytes_of_three_groups(
    operation: str, rounds: int, inside: int, across: int
) -> None:
    collective = Collective(operation, 3072)
    cost = Hierarchical().cost(collective, 24)
    assert (cost.rounds, cost.nbytes, cost.exact) == (rounds, inside + across, True)
    schedule = Hierarchical().schedule(collective, 24, 2)
    crossed = [0] * 24
    for op in schedule:
        if op.source // 8 != op.destination // 8:
            assert op.source % 8 == op.destination % 8  # on its rail
            crossed[op.source] += op.nbytes
    assert crossed == [across] * 24
    assert schedule.sent().tolist() == [inside + across] * 24


@pytest.mark.parametrize(("n", "group"), [(7, 8), (11, 8), (12, 1)])
def test_one_level_is_a_ring(n: int, group: int) -> None:
    # 7 ranks are one group, 11 have no divisor up to 8 but 1.
    collective = Collective("all_reduce", n * 8)
    schedule = Hierarchical(group=group).schedule(collective, n)
    away = [op for op in schedule if op.source != op.destination]
    ring = list(Ring().schedule(collective, n))
    assert [(op.source, op.destination, op.nbytes) for op in away] == [
        (op.source, op.destination, op.nbytes) for op in ring
    ]
    assert Hierarchical(group=group).cost(collective, n) == Ring().cost(collective, n)


def test_the_parts_may_be_any_algorithms() -> None:
    collective = Collective("all_reduce", 1 << 12)
    # One round inside, log2 4 across, one inside: 7/8 + 2 * 1/8 + 7/8 of the buffer.
    cost = Hierarchical(inside="direct", across="recursive_doubling").cost(collective, 32)
    assert (cost.rounds, cost.nbytes) == (4, 2 * (1 << 12))
    for across in ("recursive_doubling", "one_shot"):  # which use scratch
        for each in (Hierarchical(inside="nvls", across=across), Hierarchical(across=across)):
            verify(each.schedule(collective, 24, 2), collective)
    # Pairs in fours in eights: 2 (1 + 1 + 1 + 3) rounds of rings.
    nested = Hierarchical(inside=Hierarchical(group=4, inside=Hierarchical(group=2)))
    assert nested.cost(collective, 32).rounds == 12
    verify(nested.schedule(collective, 32, 2), collective)


@pytest.mark.parametrize(("pieces", "duration"), [(1, 144), (3, 96)])
def test_pieces_overlap_where_links_differ(pieces: int, duration: float) -> None:
    # Two pairs, 96 B, a link of 1 B/s for every pair of ranks, no latency. In one piece: 48 s
    # inside, twice 24 s across, 48 s inside. In three of 16, 8 + 8 and 16 s: the link inside sums
    # piece 0 until 16, piece 1 until 32; then piece 0 is back and shares it with piece 2, both
    # until 64; piece 1 gathers until 80, piece 2 (across from 64 to 80) until 96, never idle.
    schedule = Hierarchical(group=2, pieces=pieces).schedule(Collective("all_reduce", 96), 4)
    network = Pairs(vertices=4, bandwidth=1.0)
    times = reference.play(make_plan([punctual(lay(schedule, network))], network.capacity))
    assert times.arrived.max() == pytest.approx(duration)


def test_what_is_refused() -> None:
    collective = Collective("all_reduce", 64)
    with pytest.raises(CollectiveError, match=r"Pairwise: .* got all_reduce"):
        Hierarchical(group=2, across="pairwise").schedule(collective, 4)
    with pytest.raises(UnknownNameError, match="ring"):
        Hierarchical(inside="rings").schedule(collective, 4)
    with pytest.raises(CollectiveError, match=r"group: .* got 0"):
        Hierarchical(group=0).cost(collective, 4)
    with pytest.raises(CollectiveError, match=r"pieces .* got 0"):
        Hierarchical(pieces=0).schedule(collective, 4)


@pytest.mark.parametrize("operation", ["all_reduce", "all_gather"])
def test_128_groups_of_8_are_built_at_once(operation: str) -> None:
    collective = Collective(operation, 1 << 30)
    Hierarchical().schedule(collective, 16)
    start = process_time()
    schedule = Hierarchical().schedule(collective, 1024)
    assert process_time() - start < 0.6  # 0.1 s on an idle core; the margin is for a busy one
    assert len(schedule) > 100_000
