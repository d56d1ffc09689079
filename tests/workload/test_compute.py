"""What a GPU takes for work, against rooflines worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commsim.topology.parts import gpu
from commsim.workload.compute import Device, core_seconds, device, product_seconds, seconds
from commsim.workload.operations import Core, Matmul, Work, backward

PLAIN = {
    "matmul": 1.0, "matmul8": 1.0, "flash": 0.5, "unfused": 0.5, "narrow_head": 0.5, "stream": 1.0,
    "cast": 0.0, "gap": 0.0, "host": 0.0, "ramp": 0.0, "wave": 0.0, "grouped": 0.5,
    "unaligned": 0.4,
}  # fmt: skip
SMALL = Device(
    name="small", generation="none", ceiling=1e12, ceiling8=2e12, memory=1e12,
    sms=4,
)  # fmt: skip


def test_a_large_product_takes_its_flop_at_the_ceiling() -> None:
    # 2 x 1024^3 = 2.147 GFLOP at 1 TFLOP/s; in 8 bit half of that; in groups twice
    product = Matmul(1024, 1024, 1024)
    assert product_seconds(product, SMALL, PLAIN, False) == pytest.approx(2 * 1024**3 / 1e12)
    assert product_seconds(product, SMALL, PLAIN, True) == pytest.approx(1024**3 / 1e12)
    grouped = Matmul(1024, 1024, 1024, grouped=True)
    assert product_seconds(grouped, SMALL, PLAIN, False) == pytest.approx(4 * 1024**3 / 1e12)


def test_a_thin_product_is_bound_by_memory() -> None:
    # one row: 2 bytes for each of 4096 x 4096 weights at 1 TB/s, and the row's in and out
    thin = product_seconds(Matmul(1, 4096, 4096), SMALL, PLAIN, False)
    assert thin == pytest.approx((2 * 4096**2 + 4 * 4096) / 1e12)


def test_five_tiles_on_four_multiprocessors_take_two_waves() -> None:
    # 5 tiles of 128 x 128 fill 8 places: 8/5 of the work where all unevenness shows
    uneven = PLAIN | {"wave": 1.0}
    product = Matmul(128, 5 * 128, 4096)
    even = product_seconds(product, SMALL, PLAIN, False)
    assert product_seconds(product, SMALL, uneven, False) == pytest.approx(even * 8 / 5)


def test_a_product_in_pieces_has_the_waves_of_its_pieces() -> None:
    # 4 rows of 5 tiles are 20 tiles, 5 whole waves of 4; piece by piece 4 times 2 waves
    uneven = PLAIN | {"wave": 1.0}
    whole = product_seconds(Matmul(512, 640, 4096), SMALL, uneven, False)
    cut = product_seconds(Matmul(512, 640, 4096, pieces=4), SMALL, uneven, False)
    assert cut == pytest.approx(whole * 8 / 5)


def test_only_the_products_beside_messages_are_cut() -> None:
    """Row-parallel ones backward too, for their gradient is gathered; weights' gradients never."""
    column, row = Matmul(512, 256, 128, pieces=4), Matmul(512, 128, 256, pieces=4, row=True)
    found = backward(Work((column, row)))
    assert [p.pieces for p in found.matmuls] == [1, 1, 4, 1]


def test_rows_that_are_no_multiple_of_sixteen_bytes_run_slowly() -> None:
    aligned = product_seconds(Matmul(4096, 4096, 4096), SMALL, PLAIN, False) * 4100 / 4096
    odd = product_seconds(Matmul(4096, 4096, 4100), SMALL, PLAIN, False)
    assert odd == pytest.approx(aligned / 0.4)


def test_fused_attention_skips_what_causality_masks_and_unfused_writes_its_maps() -> None:
    core = Core(batch=1, heads=8, queries=1024, keys=1024, width=128, value=128, seen=0.5)
    flops = 2 * 8 * 1024 * 1024 * 256
    fused = core_seconds(core, SMALL, PLAIN, fused=True, backward=False)
    assert fused == pytest.approx(flops * 0.5 / 0.5e12)
    back = core_seconds(core, SMALL, PLAIN, fused=True, backward=True)
    assert back == pytest.approx(2.5 * fused)
    unfused = core_seconds(core, SMALL, PLAIN, fused=False, backward=False)
    assert unfused == pytest.approx(flops / 0.5e12 + 7 * 2 * 8 * 1024 * 1024 / 1e12)


def test_many_small_kernels_are_bound_by_the_host() -> None:
    work = Work((), (), moved=1e6, launches=100)  # 1 us of traffic
    spent = seconds(work, SMALL, PLAIN | {"host": 1e-5}, False, True, False)
    assert spent.total == pytest.approx(100 * 1e-5)


@given(st.integers(1, 8192), st.integers(1, 8192), st.integers(8, 8192))
def test_more_work_never_takes_less(m: int, n: int, k: int) -> None:
    d, v = device(gpu("H100-SXM5-80GB")), PLAIN | {"wave": 0.6, "ramp": 200.0}
    took = product_seconds(Matmul(m, n, 8 * k), d, v, False)
    assert took > 0
    assert product_seconds(Matmul(2 * m, n, 8 * k), d, v, False) >= took * (1 - 1e-12)
    assert took >= 2 * m * n * 8 * k / d.ceiling * (1 - 1e-12)  # no faster than the ceiling


def test_a_capped_part_is_slower_by_the_cube_root_of_its_power() -> None:
    full, capped = device(gpu("H100-SXM5-80GB")), device(gpu("H100-SXM5-96GB"))
    assert full.ceiling == pytest.approx(794.5e12)  # measured on the 700 W part
    assert capped.ceiling == pytest.approx(0.8 * 989.4e12 * (500 / 700) ** (1 / 3), rel=0.01)


def test_every_gpu_of_the_catalogue_is_a_device() -> None:
    from commsim.topology.parts import gpus

    for part in gpus():
        found = device(part)
        assert 0 < found.ceiling <= found.ceiling8
        assert found.memory > 0
