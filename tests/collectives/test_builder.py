from __future__ import annotations

import numpy as np
import pytest

from commsim.collectives.algorithms.ring import Ring
from commsim.collectives.builder import Builder, frontier, then
from commsim.collectives.chunks import cut, split
from commsim.collectives.collective import Collective
from commsim.collectives.verify import verify
from commsim.errors import CollectiveError, ScheduleError


def test_chunks_round_up_and_the_last_are_smaller() -> None:
    assert split(10, 4).tolist() == [3, 3, 3, 1]
    assert split(2, 4).tolist() == [1, 1, 0, 0]
    assert split(0, 2).tolist() == [0, 0]
    assert split(40, 4, 4).tolist() == [12, 12, 12, 4]
    # all_gather of 7 bytes on 3 ranks: blocks of 3, 3, 1, each cut in two
    assert cut(Collective("all_gather", 7), 3, 2).nbytes.tolist() == [2, 1, 2, 1, 1, 0]


def test_a_root_must_be_in_the_group() -> None:
    assert cut(Collective("reduce", 8, ranks=(4, 9, 2), root=9), 3).root == 1
    with pytest.raises(CollectiveError, match="root"):
        cut(Collective("reduce", 8, root=3), 3)
    with pytest.raises(CollectiveError, match="3 listed"):
        cut(Collective("reduce", 8, ranks=(4, 9, 2)), 4)


def test_more_channels_than_a_schedule_can_number() -> None:
    collective = Collective("all_gather", 1 << 30)
    Ring().schedule(collective, 2, 32_768)
    with pytest.raises(ScheduleError, match="channel 32768: a schedule has at most 32,768"):
        Ring().schedule(collective, 2, 32_769)


def test_an_op_is_readable() -> None:
    collective = Collective("all_reduce", 12)
    op = Ring().schedule(collective, 3)[3]
    assert (op.source, op.destination, op.reduces, op.round) == (0, 1, True, 1)
    assert op.pieces[0].source_place == 1  # rank 0 got block 1 from rank 2, whose sum it passes on
    assert op.waits == (0, 2)
    assert str(op) == "op 3 (reduce 4 B from 0 to 1, channel 0, round 1)"


def test_two_schedules_join_at_their_frontiers() -> None:
    n, whole = 5, Collective("all_reduce", 20)
    first = Ring().schedule(Collective("reduce_scatter", 20), n)
    second = Ring().schedule(Collective("all_gather", 20), n)
    # A rank's last send and its last receive end the first half.
    assert [len(ops) for ops in frontier(first).ops] == [2] * n
    joined = then(first, second, cut(whole, n, n))
    verify(joined, whole)
    assert len(joined) == 2 * n * (n - 1)
    begins = joined[len(first)]
    waited = set(frontier(first)[begins.source]) | set(frontier(first)[begins.destination])
    assert set(begins.waits) == waited


def test_scratch_to_scratch_needs_its_size() -> None:
    builder = Builder(cut(Collective("broadcast", 8), 2), scratch=2)
    with pytest.raises(ScheduleError, match="nbytes"):
        builder.append(0, 1, 1, 2)


def test_columns_cannot_be_written() -> None:
    schedule = Ring().schedule(Collective("all_reduce", 8), 2)
    with pytest.raises(ValueError, match="read-only"):
        schedule.nbytes[0] = 3
    assert schedule.waits.dtype == np.int32


def test_an_op_that_has_only_left_is_not_behind_its_receiver() -> None:
    # 0 sends to 1 twice on two channels; the second waits until the first has left, not arrived.
    builder = Builder(cut(Collective("broadcast", 8), 2, 2))
    builder.append(0, 1, 0, channel=0)
    builder.append(0, 1, 1, channel=1, after=(0,))
    assert frontier(builder.build()).ops == ((1,), (0, 1))
    builder = Builder(cut(Collective("broadcast", 8), 2, 2))
    builder.append(0, 1, 0)
    builder.append(0, 1, 1, after=(0,))
    assert frontier(builder.build()).ops == ((1,), (1,))
