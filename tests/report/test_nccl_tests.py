from __future__ import annotations

import pytest

from commsim.errors import CollectiveError
from commsim.report.nccl_tests import sizes, whole


def test_sizes_double_as_with_f_2() -> None:
    assert sizes(8, 64) == (8, 16, 32, 64)
    assert sizes(8, 100) == (8, 16, 32, 64)  # the end itself only where a factor hits it
    assert len(sizes(8, 8 << 30)) == 31  # 2^3 .. 2^33


def test_sizes_add_as_with_i() -> None:
    assert sizes(100, 400, step=100) == (100, 200, 300, 400)
    assert sizes(0, 4, step=4) == (0, 4)


@pytest.mark.parametrize(
    ("low", "high", "factor", "step", "says"),
    [
        (8, 4, 2, None, "-e of at least -b"),
        (8, 64, 1, None, "-f of 2 or more"),
        (0, 64, 2, None, "-b of 1 or more"),
        (8, 64, 2, 0, "-i of 1 byte"),
    ],
)
def test_sizes_that_never_end_are_refused(
    low: int, high: int, factor: int, step: int | None, says: str
) -> None:
    with pytest.raises(CollectiveError, match=says):
        sizes(low, high, factor=factor, step=step)


def test_sizes_are_whole_elements_on_every_rank() -> None:
    # all_reduce of 11 bytes in float32: 2 elements, 8 bytes, on each rank
    assert whole("all_reduce", 11, 4, 8) == 8
    # all_gather of 1000 bytes over 8 ranks: 31 elements each, 31 x 4 x 8 = 992 bytes in all
    assert whole("all_gather", 1000, 4, 8) == 992
    assert whole("all_gather", 31, 4, 8) == 0
    assert whole("barrier", 1000, 4, 8) == 0
