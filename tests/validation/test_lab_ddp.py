"""The step of DDP, worked by hand."""

from __future__ import annotations

import pytest

from validation.lab.ddp import Alone, buckets, step

MB = 1 << 20


def test_the_gradient_that_reaches_a_limit_closes_the_bucket() -> None:
    # reverse order; the first bucket up to 1 MiB, the others up to 25: 4 reaches 1, 4 + 20 + 2
    # reaches 25 (24 would not), the rest follows
    sizes = [3 * MB, 2 * MB, 20 * MB, 4 * MB, 4 * MB, 4096]
    assert buckets(sizes, [5, 4, 3, 2, 1, 0]) == [[5, 4], [3, 2, 1], [0]]


def test_buckets_wait_for_gradients_and_for_one_another() -> None:
    alone = Alone(forward=1.0, backward=3.0, after=0.5, ready=(3.0, 2.0, 1.0), nbytes=(4, 2, 2))
    # 1 s a byte: the last layer's at 1 + 2 = 3, the next is ready at 2 but starts at 3: 5, then 9
    assert step(alone, [[2], [1], [0]], float) == pytest.approx(1.0 + 9.0 + 0.5)
    # one bucket: all 8 bytes from 3 on
    assert step(alone, [[2, 1, 0]], float) == pytest.approx(1.0 + 11.0 + 0.5)


def test_fast_links_hide_all_but_the_last_bucket() -> None:
    alone = Alone(forward=1.0, backward=3.0, after=0.5, ready=(2.9, 2.0, 1.0), nbytes=(4, 2, 2))
    assert step(alone, [[2], [1], [0]], lambda n: n / 1e3) == pytest.approx(4.5)
    assert step(alone, [[2], [1], [0]], lambda n: n / 8) == pytest.approx(1.0 + 3.4 + 0.5)
