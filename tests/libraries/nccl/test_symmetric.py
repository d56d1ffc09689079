"""Symmetric-memory kernels against figures computed apart from this program."""

from __future__ import annotations

import pytest

from commsim.libraries.nccl.symmetric import pick
from tests.libraries.nccl.vectors import rows


@pytest.mark.parametrize("row", rows("nccl_vectors_symmetric"), ids=lambda r: "-".join(r.values()))
def test_kernel_blocks_and_time(row: dict[str, str]) -> None:
    got = pick(row["collective"], int(row["nbytes"]), 8, int(row["capability"]), nvls=True)
    assert got is not None
    assert (got.name, got.blocks) == (row["kernel"], int(row["blocks"]))
    assert got.time_us == pytest.approx(float(row["time_us"]), abs=0.006)


def test_smallest_all_reduce_by_hand() -> None:
    # 9 x 8 x 8 = 576 bytes by one multicast LL block: softmin(71.5, 320, 65) = 70.5 x 1073.74 B/us;
    # 4.5 + ln(1 + e^(576 / 75700 - 1)) = 4.815 us
    got = pick("all_reduce", 8, 8, 90, nvls=True)
    assert got is not None
    assert got.name == "AGxLLMC_R"
    assert got.time_us == pytest.approx(4.815, abs=0.001)


def test_without_nvls_no_multicast_kernel() -> None:
    for operation in ("all_reduce", "all_gather", "reduce_scatter"):
        for k in range(3, 33):
            got = pick(operation, 1 << k, 8, 90, nvls=False)
            assert got is not None
            assert "MC" not in got.name


def test_limits() -> None:
    assert pick("broadcast", 1 << 20, 8, 90, nvls=True) is None
    assert pick("all_reduce", 1 << 37, 8, 90, nvls=True) is None
    capped = pick("all_gather", 1 << 16, 8, 90, nvls=True, most_blocks=2)
    assert capped is not None
    assert capped.blocks <= 2
