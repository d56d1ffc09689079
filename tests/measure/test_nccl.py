"""The whole NCCL path for one rank, on a CPU: backend, session and trials are the real ones, while
torch.cuda and NCCL's calls are played (fake_cuda)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from commsim.collectives.collective import OPERATIONS, Collective  # noqa: E402
from commsim.errors import MeasureError  # noqa: E402
from commsim.measure import steps, torch_backend  # noqa: E402
from commsim.measure.backends import nccl  # noqa: E402
from commsim.measure.devices import cuda as cuda_device  # noqa: E402
from commsim.measure.devices.cuda import Cuda  # noqa: E402
from commsim.measure.follow import follow  # noqa: E402
from commsim.measure.launcher import _free_port  # noqa: E402
from commsim.measure.plan import Plan, Settings, Step  # noqa: E402
from commsim.measure.rendezvous import Place  # noqa: E402
from commsim.measure.session import Session  # noqa: E402
from commsim.measure.trial import trial  # noqa: E402
from tests.measure.fake_cuda import FakeCuda, FakeNccl  # noqa: E402

MS = 1e-3
ONE = tuple(name for name in OPERATIONS if name != "send_recv")  # which one rank has


@pytest.fixture
def cuda() -> FakeCuda:
    return FakeCuda()


@pytest.fixture
def library(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeNccl]:
    fake = FakeNccl(cuda, torch.distributed)
    monkeypatch.setattr(torch_backend, "dist", fake)
    monkeypatch.setattr(torch_backend, "ALL_GATHER", fake.all_gather)
    monkeypatch.setattr(torch_backend, "REDUCE_SCATTER", fake.reduce_scatter)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda.nccl, "version", lambda: (2, 30, 7, "meta"))
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(cuda_device, "Cuda", lambda index: Cuda(index, cuda=cuda, place="cpu"))
    yield fake
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def place(**more: Any) -> Place:
    about = {"rank": 0, "n_ranks": 1, "local_rank": 0, "launcher": "torchrun"}
    return Place(**(about | {"address": ("127.0.0.1", _free_port())} | more))


def carried_out(found: tuple[Step, ...], **settings: Any) -> tuple[dict[str, Any], list[Any]]:
    """The header and the records of these steps, on one rank of NCCL."""
    how = Settings(backend="nccl", **({"iterations": 10, "warmup": 2} | settings))
    backend = nccl.join(place(), 30.0)
    headers: list[dict[str, Any]] = []
    records: list[Any] = []
    plan = Plan(run="r", n_ranks=1, settings=how, steps=found)
    follow(plan, backend, headers.append, lambda index, more: records.extend(more))
    backend.close()
    return headers[0], records


def sweep(operation: str, nbytes: int, wanted: str = "both", **settings: Any) -> tuple[Step, ...]:
    how = Settings(backend="nccl", **settings)
    return steps.sweep(
        Collective(operation), (nbytes,), 1, steps.forms(operation, how, wanted)
    )  # fmt: skip


def test_a_rank_joins_on_its_own_gpu(library: FakeNccl) -> None:
    header, _ = carried_out(sweep("all_reduce", 1024))
    assert library.joined["backend"] == "nccl"
    assert library.joined["device_id"] == torch.device("cuda", 0)
    assert (header["library"], header["library_version"]) == ("nccl", "2.30.7")  # no suffix
    assert header["versions"]["cuda"] == "13.0"
    assert header["settings"]["timing"] == "loop"
    assert header["ranks"][0]["device"] == "a GPU"


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("timing", ["loop", "isolated"])
def test_every_operation_is_checked_and_timed_on_its_stream(
    library: FakeNccl, cuda: FakeCuda, timing: str, graph: bool
) -> None:
    """A call takes 1 ms on NCCL's stream: that is what the events on ours must tell."""
    names = [name for name in ONE if not (graph and name == "barrier")]
    found = tuple(step for name in names for step in sweep(name, 4096))
    _, records = carried_out(found, timing=timing, cudagraph=graph)
    assert {r["operation"] for r in records} == set(names)
    for record in records:
        assert record["wrong"] == 0, record
        assert record["duration_s"] == pytest.approx(MS), record
    assert (cuda.graphs > 0) is graph
    assert cuda.replays == (len(records) * (1 + 2 + 10) if graph else 0)  # check, warm-up, runs


def test_a_result_that_is_read_before_it_is_there_would_be_wrong(
    library: FakeNccl, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the other tests rely on: without the wait for the device nothing has been copied."""
    monkeypatch.setattr(Cuda, "finish", lambda self: None)
    (step,) = sweep("all_gather", 4096, "out")
    _, (record,) = carried_out((step,))
    assert record["wrong"] == 1024


def test_runs_rotate_through_more_than_the_cache(library: FakeNccl, cuda: FakeCuda) -> None:
    (step,) = sweep("all_gather", 8 << 20, "out")
    carried_out((step,), iterations=50, warmup=0, check=False)
    to = [address for name, address in library.calls if name == "all_gather"]
    # twice the 50 MiB of L2 over 16 MiB for each run: six pairs of buffers, in turn
    assert len(set(to)) == 6
    assert to[:6] == to[6:12]
    assert max(to) - min(to) + (8 << 20) > 50 << 20


def test_graphs_capture_once_for_each_buffer_and_call_nothing_after(
    library: FakeNccl, cuda: FakeCuda
) -> None:
    (step,) = sweep("all_gather", 8 << 20, "out")
    carried_out((step,), iterations=50, warmup=5, check=False, cudagraph=True)
    assert cuda.graphs == 6
    assert cuda.replays == 55
    assert len(library.calls) == 6 * (cuda_device.WARM_UP + 1)


def test_two_communicators_of_one_rank_run_at_once(library: FakeNccl, cuda: FakeCuda) -> None:
    """Each has a stream of its own: both are done when one would be alone."""
    session = Session(nccl.join(place(), 30.0), Settings(backend="nccl", timing="isolated"))
    asked = Collective("all_gather", 4096)
    records = trial(session, [asked, asked], False)
    assert records is not None
    assert [record["duration_s"] for record in records] == pytest.approx([MS, MS])
    assert [record["wrong"] for record in records] == [0, 0]


def test_a_product_and_a_collective_overlap(
    library: FakeNccl, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cuda, "matmul", lambda self, m, n, k, dtype: lambda: cuda.work(MS / 2))
    beside = steps.interference(sweep("all_gather", 4096, "out"), ((8, 8, 8),), "float32")
    _, (record,) = carried_out(beside)
    assert record["collective"]["slowdown"] == pytest.approx(1.0)
    assert record["gemm"]["slowdown"] == pytest.approx(1.0)
    assert record["wrong"] == 0


def test_graphs_are_refused_where_they_would_not_do(library: FakeNccl) -> None:
    how = Settings(backend="nccl", cudagraph=True)
    with pytest.raises(MeasureError, match="--cudagraph: expected an operation other than barrier"):
        steps.check(Collective("barrier"), 2, how)
    with pytest.raises(MeasureError, match="--cudagraph: expected groups without a common rank"):
        steps.check(Collective("all_reduce"), 3, how, ((0, 1), (1, 2)))
    steps.check(Collective("all_reduce"), 4, how, ((0, 1), (2, 3)))


def test_the_gpu_of_a_rank() -> None:
    assert nccl.index(place(n_ranks=8, local_rank=3), 8) == 3
    # srun --gpus-per-task=1 shows each rank one GPU, its own
    assert nccl.index(place(n_ranks=8, local_rank=3, launcher="srun"), 1) == 0
    assert nccl.index(place(n_ranks=8, local_rank=3, launcher="mpiexec"), 1) == 0
    with pytest.raises(MeasureError, match="got 1 GPUs and local rank 3; start fewer ranks"):
        nccl.index(place(n_ranks=8, local_rank=3), 1)


def test_without_a_gpu_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(MeasureError, match="expected an NVIDIA or AMD GPU and a torch built for"):
        nccl.join(place(), 30.0)


def test_events_of_a_long_run_keep_their_microseconds() -> None:
    """CUDA tells ms as a float32: after 1,000 s that is 61 us, but between neighbours far less."""

    class Event:
        def __init__(self, at: float) -> None:
            self.at = at

        def synchronize(self) -> None:
            pass

        def elapsed_time(self, later: Event) -> float:
            return float(np.float32(1e3 * (later.at - self.at)))

    watch = cuda_device.EventStopwatch(SimpleNamespace(), origin=Event(0.0))
    watch.events = [Event(1000.0 + 5e-6 * i) for i in range(4)]
    marks = watch.read()
    assert [b - a for a, b in pairwise(marks)] == pytest.approx([5e-6] * 3)
