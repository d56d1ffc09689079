from __future__ import annotations

import numpy as np
import pytest

from commsim.errors import MeasureError
from commsim.measure.buffers import rotation, slots
from commsim.measure.devices.numpy_host import NumpyHost
from commsim.measure.layout import layout


def test_buffers_in_rotation_span_what_is_to_be_spanned() -> None:
    # 1 MiB buffers over 100 MiB: a hundred of them, side by side; at most as many as there are runs
    assert rotation(1 << 20, 100 << 20, 1000) == (100, 1 << 20)
    assert rotation(1 << 20, 100 << 20, 20) == (20, 5 << 20)
    assert rotation(256, 100 << 20, 20) == (20, 5 << 20)
    assert rotation(1 << 30, 100 << 20, 20) == (1, 1 << 30)  # larger than the cache already
    assert rotation(1 << 20, 0, 20) == (1, 1 << 20)
    assert rotation(0, 100 << 20, 20) == (1, 0)


def make(operation: str, position: int, *, in_place: bool, rotate: int = 0) -> list[tuple]:  # type: ignore[type-arg]
    found = layout(operation, 4, position, 0 if operation == "gather" else None, 1024)
    return slots(NumpyHost(), found, "float32", 4, in_place=in_place, rotate=rotate, most=8,
                 sharers=1)  # fmt: skip


def offset(part: np.ndarray, of: np.ndarray) -> int:  # type: ignore[type-arg]
    return int(part.ctypes.data - of.ctypes.data)


def test_out_of_place_buffers_are_apart() -> None:
    ((send, receive),) = make("all_gather", 2, in_place=False)
    assert (len(send), len(receive)) == (256, 1024)
    assert not np.shares_memory(send, receive)


def test_in_place_the_small_buffer_is_the_rank_s_part_of_the_large_one() -> None:
    ((send, receive),) = make("all_gather", 2, in_place=True)
    assert (len(send), len(receive), offset(send, receive)) == (256, 1024, 2 * 256 * 4)
    ((send, receive),) = make("reduce_scatter", 3, in_place=True)
    assert (len(send), len(receive), offset(receive, send)) == (1024, 256, 3 * 256 * 4)
    ((send, receive),) = make("all_reduce", 3, in_place=True)
    assert offset(receive, send) == 0
    ((send, receive),) = make("gather", 3, in_place=True)
    assert (len(send), receive) == (256, None)


def test_no_two_runs_share_a_buffer() -> None:
    found = make("all_reduce", 0, in_place=True, rotate=1 << 16)
    assert len(found) == 8
    addresses = sorted(send.ctypes.data for send, _ in found)
    assert np.diff(addresses).tolist() == [8192] * 7  # 64 KiB by 8
    assert all(address % 256 == addresses[0] % 256 for address in addresses)


def test_more_than_there_is_of_memory_is_refused() -> None:
    class Small(NumpyHost):  # a host with 10 MiB left
        @property
        def free(self) -> int:
            return 10 << 20

    plan = layout("all_reduce", 4, 0, None, 1 << 20)
    with pytest.raises(MeasureError, match=r"8 MiB at most .* 4 ranks x 1 x 4 MiB; lower -e"):
        slots(Small(), plan, "float32", 4, in_place=True, rotate=0, most=8, sharers=4)
