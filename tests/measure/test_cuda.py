"""The GPU's part on a CPU: torch.cuda is replaced by streams and events of a clock of their own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from commsim.measure.devices.cuda import Cuda, EventStopwatch  # noqa: E402
from commsim.measure.layout import Piece, layout  # noqa: E402
from commsim.measure.pattern import Pattern  # noqa: E402
from commsim.measure.plan import Settings  # noqa: E402
from commsim.measure.session import Session  # noqa: E402
from commsim.measure.statistics import overlapped  # noqa: E402
from tests.measure.fake_cuda import FakeCuda  # noqa: E402


@pytest.fixture
def fake() -> FakeCuda:
    return FakeCuda()


@pytest.fixture
def device(fake: FakeCuda) -> Cuda:
    return Cuda(0, cuda=fake, place="cpu")


def test_events_tell_seconds_since_the_first(fake: FakeCuda) -> None:
    fake.work(7.0)
    watch = EventStopwatch(fake)
    for duration in (0.0, 0.25, 0.5):
        fake.work(duration)
        watch.mark()
    assert watch.read() == pytest.approx([0.0, 0.25, 0.75])
    assert watch.read() == []


def test_free_memory_counts_what_torch_keeps(device: Cuda) -> None:
    assert device.free == (10 + 3 - 1) << 30
    assert device.facts()["cache_bytes"] == device.cache == 50 << 20


def alone(device: Cuda, **settings: Any) -> Session:
    """A session of one rank."""
    backend = SimpleNamespace(
        device=device, rank=0, n_ranks=1, everyone=lambda value: [value], share=lambda value: value
    )
    return Session(backend, Settings(backend="nccl", **settings))  # type: ignore[arg-type]


def test_a_gpu_loops_over_buffers_of_twice_its_cache(fake: FakeCuda, device: Cuda) -> None:
    session = alone(device)
    assert session.loops
    assert session.rotate == 100 << 20
    run = session.run(lambda i: fake.work(1e-3 * (1 + i)), 10)
    assert run is not None
    # a fifth of the ten runs is one sample: their mean
    assert run.durations == pytest.approx([1.5e-3, 3.5e-3, 5.5e-3, 7.5e-3, 9.5e-3])
    assert run.host < 1e-2  # the calls only enqueue


def test_isolated_runs_on_a_gpu_take_what_its_events_say(fake: FakeCuda, device: Cuda) -> None:
    run = alone(device, timing="isolated").run(lambda i: fake.work(2e-3), 3)
    assert run is not None
    assert run.durations == pytest.approx([2e-3] * 3)
    assert run.starts == sorted(run.starts)


def test_a_graph_replays_what_it_captured(fake: FakeCuda, device: Cuda) -> None:
    calls = []

    def work() -> None:
        calls.append(1)
        fake.work(0.5)

    replay = device.graph(work)
    called, before = len(calls), fake.stream_now.end
    replay()
    replay()
    assert fake.stream_now.end - before == pytest.approx(1.0)
    assert len(calls) == called == 4  # three to warm up, one captured, none when replayed


def test_both_streams_are_kept_busy(fake: FakeCuda, device: Cuda) -> None:
    # a collective of 4 ms, a product of 1 ms: four products a collective, and some ahead
    mine, others = device.beside(lambda i: fake.work(4e-3), 10, lambda: fake.work(1e-3), 4.0)
    assert [b - a for a, b in mine] == pytest.approx([4e-3] * 10)
    assert len(others) == 44
    assert others[-1][1] >= mine[-1][1]
    assert len(overlapped(mine, others)) == 10
    assert len(overlapped(others, mine)) in (39, 40)  # the last one ends within a rounding


def test_a_slow_product_overlaps_too(fake: FakeCuda, device: Cuda) -> None:
    mine, others = device.beside(lambda i: fake.work(1e-3), 40, lambda: fake.work(8e-3), 1 / 8)
    assert len(others) == 4 + 5
    assert len(overlapped(mine, others)) == 40


@pytest.mark.parametrize(
    "dtype",
    ["bool", "int8", "uint8", "int32", "uint32", "int64", "float16", "bfloat16", "float32",
     "float64", "float8_e4m3fn", "float8_e5m2", "complex64"],
)  # fmt: skip
def test_patterns_in_every_dtype(device: Cuda, dtype: str) -> None:
    pieces = layout("all_to_all", 2, 1, None, 2048).pieces
    pattern = Pattern(device, "all_to_all", 2, dtype)
    itemsize = torch.empty(0, dtype=getattr(torch, dtype)).element_size()
    sent = [device.typed(device.raw(2048 * itemsize), dtype) for _ in range(2)]
    received = device.typed(device.raw(2048 * itemsize), dtype)
    for position, buffer in enumerate(sent):
        pattern.fill(buffer, position)
    pattern.spoil(received, pieces)
    assert pattern.wrong(received, pieces) == 2048
    for position, buffer in enumerate(sent):
        received[position * 1024 : (position + 1) * 1024] = buffer[1024:]
    assert pattern.wrong(received, pieces) == 0
    device.words(received)[7] ^= 1
    assert pattern.wrong(received, pieces) == 1


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float8_e4m3fn", "float32"])
def test_sums_of_halves_are_exact(device: Cuda, dtype: str) -> None:
    pattern = Pattern(device, "all_reduce", 8, dtype)
    kind = getattr(torch, dtype)
    total = torch.zeros(1000, dtype=kind)
    for position in range(8):
        buffer = torch.zeros(1000, dtype=kind)
        pattern.fill(buffer, position)
        total = (total.float() + buffer.float()).to(kind)  # rounded after each, as in a ring
    assert pattern.wrong(total, (Piece(offset=0, length=1000, source=None, start=0),)) == 0
    assert len(torch.unique(total.float())) > 3


def test_products_compute(device: Cuda) -> None:
    for dtype in ("float32", "bfloat16", "float64"):
        device.matmul(4, 5, 6, dtype)()
    with pytest.raises(Exception, match="expected a floating dtype such as bfloat16, got int32"):
        device.matmul(4, 5, 6, "int32")
    assert np.isfinite(device.values(torch.ones(2, dtype=torch.bfloat16))).all()
