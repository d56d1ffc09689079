from __future__ import annotations

import numpy as np
import pytest

from commsim.measure.statistics import isolated, looped, overlapped, summary, waiting


def test_waiting_for_the_last_rank_is_no_part_of_the_operation() -> None:
    # two runs of three ranks: the second rank comes 2 s late to the first one
    starts = np.array([[0.0, 10.0], [2.0, 10.0], [0.5, 10.5]])
    ends = np.array([[5.0, 11.0], [4.0, 12.0], [4.5, 11.5]])
    samples, skew = isolated(starts, ends)
    assert samples.tolist() == [3.0, 1.5]  # 5 - 2, 12 - 10.5
    assert skew.tolist() == [2.0, 0.5]
    assert waiting(starts) == [1.25, 0.25, 0.75]  # medians of (2, .5), (0, .5), (1.5, 0)


def test_a_loop_counts_as_nccl_tests_does() -> None:
    samples, skew = looped(np.array([[1.0, 3.0], [2.0, 5.0]]))
    assert (samples.tolist(), skew.tolist()) == ([1.5, 4.0], [1.0, 2.0])


def test_one_outlier_moves_the_mean_and_not_the_duration() -> None:
    found = summary([1.0, 2.0, 3.0, 4.0, 100.0])
    assert (found["duration_s"], found["quartiles_s"]) == (3.0, [2.0, 4.0])
    assert (found["mean_s"], found["min_s"], found["max_s"]) == (22.0, 1.0, 100.0)
    assert found["samples_s"] == [1.0, 2.0, 3.0, 4.0, 100.0]


def test_only_runs_within_the_time_of_the_others_count() -> None:
    others = [(1.0, 2.0), (2.0, 3.0)]
    mine = [(0.5, 1.5), (1.5, 2.25), (2.25, 3.0), (2.9, 3.1)]
    assert overlapped(mine, others) == pytest.approx([0.75, 0.75])
    assert overlapped(mine, []) == []
