"""Algorithms told by the bytes that ranks send to one another."""

from __future__ import annotations

import numpy as np
import pytest

from validation.lab.identify import apart, identify

SIZE = 1 << 20


def test_a_ring_backwards_is_a_ring() -> None:
    # 2 x 3/4 of the size, every rank to the one before
    pairs = 1.5 * SIZE * np.roll(np.eye(4), -1, axis=1)
    found = identify("all_reduce", SIZE, pairs)
    assert found is not None
    assert found.names == ("ring",)


def test_halving_and_doubling_sends_as_much_to_others() -> None:
    # to the neighbour 1/2 + 1/2, to the one two away 1/4 + 1/4
    near = np.kron(np.eye(2), [[0, 1], [1, 0]])
    far = np.roll(np.eye(4), 2, axis=1)
    found = identify("all_reduce", SIZE, SIZE * (near + 0.5 * far))
    assert found is not None
    assert found.names == ("rabenseifner",)


def test_torch_reduces_everything_before_it_scatters() -> None:
    found = identify("reduce_scatter", SIZE, 1.5 * SIZE * np.roll(np.eye(4), 1, axis=1))
    assert found is not None
    assert found.names == ("ring_then_slice",)


def test_what_no_algorithm_sends_has_no_name() -> None:
    pairs = np.zeros((4, 4))
    pairs[0, 1] = 3.0 * SIZE
    found = identify("all_gather", SIZE, pairs)
    assert found is not None
    assert found.names == ()
    assert "none known" in str(found)


def test_a_few_bytes_tell_nothing() -> None:
    assert identify("all_reduce", 1024, np.ones((2, 2))) is None
    assert identify("barrier", SIZE, np.ones((2, 2))) is None
    assert identify("all_reduce", SIZE, np.zeros((2, 2))) is None


def test_control_messages_do_not_hide_the_algorithm() -> None:
    noise = np.random.default_rng(0).uniform(0, 0.01 * SIZE, (5, 5))
    found = identify("all_gather", SIZE, 0.8 * SIZE * np.roll(np.eye(5), 1, axis=1) + noise)
    assert found is not None
    assert found.names[0] == "ring"


@pytest.mark.parametrize("n", [2, 3, 5, 8])
def test_who_is_who_does_not_matter(n: int) -> None:
    rng = np.random.default_rng(n)
    pairs = rng.uniform(size=(n, n))
    order = rng.permutation(n)
    assert apart(pairs, pairs[np.ix_(order, order)]) == pytest.approx(0)


def test_ranks_that_send_almost_the_same_are_not_mixed_up() -> None:
    # three sends of the root, two of the next; a byte more or less must not exchange them
    pairs = np.zeros((6, 6))
    pairs[0, [1, 2, 4]] = SIZE + 1
    pairs[1, [3, 5]] = SIZE + 90
    found = identify("broadcast", SIZE, pairs)
    assert found is not None
    assert found.names == ("flooded_binomial",)
