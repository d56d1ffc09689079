from __future__ import annotations

from pathlib import Path

import pytest

from commsim.collectives.collective import Collective
from commsim.errors import CollectiveError, ScheduleError, SpecError
from commsim.prediction import predict
from commsim.topology.load import load_cluster
from commsim.traces.analysis import critical_path, played_overlap, recorded_overlap, table
from commsim.traces.joining import Step, join
from commsim.traces.kineto import Kineto
from commsim.traces.recording import COMMUNICATION
from commsim.traces.replay import Replay, Where, price, replay

from .kineto_files import NCCL, Event, kernel, metadata, runtime, step, write

US = 1e-6


def recorded(tmp_path: Path, ranks: list[list[Event]], world: int | None = None) -> Step:
    return join(
        r
        for rank, events in enumerate(ranks)
        for r in Kineto().recordings(
            write(tmp_path / f"{rank}.json", events, rank=rank, world=world or len(ranks))
        )
    )


def spans(played: Replay) -> dict[tuple[int, str], tuple[float, float]]:
    """By rank and name, when it ran."""
    return {
        (rank, part.name.split("(")[0]): (
            float(played.spans.starts[i]),
            float(played.spans.ends[i]),
        )
        for i, (rank, _) in enumerate(played.places)
        if (part := played.part(i)) is not None
    }


def test_as_measured_everything_takes_place_when_it_was_recorded(tmp_path: Path) -> None:
    found = recorded(tmp_path, [step(), step(late=40.0)])
    played = replay(found)
    for rank, line in found.lines.items():
        for i, part in enumerate(played.parts[rank]):
            if part.event >= 0:
                event = line.recording.events[part.event]
                at = played.task[rank, i]
                assert played.spans.ends[at] == pytest.approx(
                    event.end + found.offsets[rank], abs=1e-12
                )
    assert played.duration == pytest.approx(found.duration, rel=1e-12)


def test_waiting_is_split_from_transfer(tmp_path: Path) -> None:
    """Rank 0 comes at 150 us, rank 1 at 190, both leave at 300."""
    (operation,) = recorded(tmp_path, [step(), step(late=40.0)]).operations
    assert operation.waiting(0) == pytest.approx(40 * US)
    assert operation.waiting(1) == 0
    assert operation.transfer == pytest.approx(110 * US)
    (row,) = table(price(recorded(tmp_path, [step(), step(late=40.0)])))
    assert (row.operation, row.nbytes, row.ranks, row.count) == ("all_reduce", 4 << 20, 2, 1)
    assert row.measured == pytest.approx((150 + 110) / 2 * US)
    assert row.waiting == pytest.approx(20 * US)
    assert row.transfer == pytest.approx(110 * US)
    assert row.predicted is None


def test_of_one_rank_alone_waiting_cannot_be_told(tmp_path: Path) -> None:
    found = recorded(tmp_path, [step()], world=2)
    assert found.operations[0].transfer is None
    assert any("1 of 2 ranks are recorded" in note for note in found.notes)


def test_on_another_cluster_only_communication_changes(tmp_path: Path) -> None:
    """backward_1 ends at 150 us (rank 1: at 190); then the all_reduce takes what is predicted; the
    optimizer begins 3 us after all it waits for, as it did."""
    cluster = load_cluster("dgx-h100")
    wanted = predict(Collective("all_reduce", 4 << 20, ranks=(0, 1)), cluster).duration
    found = recorded(tmp_path, [step(), step(late=40.0)])
    at = spans(replay(found, Where(cluster=cluster)))
    for rank in (0, 1):
        begun, ended = at[rank, "ncclDevKernel_AllReduce_Sum_f32_RING_LL"]
        assert begun == pytest.approx((190 - 10) * US)  # the first launch, at 10 us, is 0
        assert ended - begun == pytest.approx(wanted)
        free = max(ended, at[rank, "backward_2"][1])
        assert at[rank, "optimizer"][0] == pytest.approx(free + 3 * US, abs=1e-9)
    price_of = price(found, Where(cluster=cluster))
    assert price_of[0].duration == wanted
    (row,) = table(price_of)
    assert row.ratio == pytest.approx(wanted / (110 * US))


def test_computing_scales_with_its_factor(tmp_path: Path) -> None:
    found = recorded(tmp_path, [step()], world=2)
    at = spans(replay(found, Where(compute=0.5)))
    begin, end = at[0, "backward_1"]
    assert end - begin == pytest.approx(65 * US)
    with pytest.raises(ScheduleError, match="compute: expected a factor above 0"):
        Where(compute=0)


def test_overlap_and_critical_path(tmp_path: Path) -> None:
    """The all_reduce runs from 150 to 300, of which backward_2 hides 60; in all 20 + 130 + ..."""
    found = recorded(tmp_path, [step()], world=2)
    (overlap,) = map(recorded_overlap, found.recordings)
    assert overlap.communicating == pytest.approx(150 * US)
    assert overlap.exposed == pytest.approx(90 * US)
    assert overlap.computing == pytest.approx((130 + 60 + 20) * US)
    assert overlap.hidden == pytest.approx(0.4)
    played = replay(found)
    (again,) = played_overlap(played)
    assert again.exposed == pytest.approx(90 * US)
    path = critical_path(played)
    assert sum(path.values()) == pytest.approx(played.duration)
    assert path["all_reduce"] == pytest.approx(150 * US)
    assert path["computing"] == pytest.approx(150 * US)
    assert path["host and launches"] == pytest.approx((10 + 3) * US)


# ---- another number of ranks ----


def test_more_data_parallel_ranks(tmp_path: Path) -> None:
    found = recorded(tmp_path, [step(), step()])
    cluster = load_cluster("dgx-h100", nodes=2)
    with pytest.raises(ScheduleError, match=r"not known.*--role 0=dp"):
        replay(found, Where(cluster=cluster, world=16))
    played = replay(found, Where(cluster=cluster, world=16, roles={"0": "dp"}))
    (operation,) = played.operations
    assert operation.ranks == tuple(range(16))
    assert operation.duration == predict(Collective("all_reduce", 4 << 20), cluster).duration
    assert any("2 data-parallel replicas became 16" in note for note in played.notes)


def test_tensor_parallel_groups_keep_their_size(tmp_path: Path) -> None:
    """4 ranks, tp pairs of neighbours, dp pairs at a distance of 2; 8 ranks: 4 replicas."""
    ranks = []
    for rank in range(4):
        tp = (rank // 2 * 2, rank // 2 * 2 + 1)
        dp = (rank % 2, rank % 2 + 2)
        ranks.append([
            kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 0, 5, NCCL,
                   **metadata("allreduce", 64, 1, tp, group=f"tp{tp[0]}",
                              **{"Process Group Description": "mesh_tp"})),
            kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 9, 5, NCCL,
                   **metadata("allreduce", 128, 1, dp, group=f"dp{dp[0]}",
                              **{"Process Group Description": "mesh_dp"})),
        ])  # fmt: skip
    found = recorded(tmp_path, ranks)
    played = replay(found, Where(cluster=load_cluster("dgx-h100"), world=8))
    assert {p.ranks for p in played.operations} == {
        (0, 1), (2, 3), (0, 2, 4, 6), (1, 3, 5, 7),
    }  # fmt: skip
    with pytest.raises(ScheduleError, match="expected a multiple of 2"):
        replay(found, Where(cluster=load_cluster("dgx-h100"), world=7))


def test_a_cluster_must_have_the_ranks(tmp_path: Path) -> None:
    found = recorded(tmp_path, [step()], world=9)
    with pytest.raises(CollectiveError, match="9 ranks, dgx-h100 with 1 nodes has room for 8"):
        replay(found, Where(cluster=load_cluster("dgx-h100")))


def test_fewer_ranks_than_gpus_on_a_machine(tmp_path: Path) -> None:
    found = recorded(tmp_path, [step(), step()])
    cluster = load_cluster("dgx-h100", nodes=2)
    (apart,) = price(found, Where(cluster=cluster, per_node=1))
    assert apart.ranks == (0, 1)
    assert (
        apart.duration == predict(Collective("all_reduce", 4 << 20, ranks=(0, 8)), cluster).duration
    )
    with pytest.raises(ScheduleError, match="ranks on a machine: expected 1 to 8, got 9"):
        Where(cluster=cluster, per_node=9)


def test_roles_of_groups_that_do_not_exist(tmp_path: Path) -> None:
    found = recorded(tmp_path, [step(), step()])
    with pytest.raises(SpecError, match="'1': no operation is on a group of that name"):
        replay(found, Where(world=4, roles={"1": "dp"}))
    with pytest.raises(SpecError, match="expected one of dp, tp"):
        replay(found, Where(world=4, roles={"0": "data"}))


# ---- other buckets ----


def backward(buckets: list[int]) -> list[Event]:
    """A kernel of 100 us for each bucket, which is reduced behind it; then the optimizer."""
    events: list[Event] = []
    free = 0.0
    for i, nbytes in enumerate(buckets):
        ready = 100.0 * (i + 1)
        events.append(kernel(f"backward_{i}", ready - 100, 100, launch=2 * i + 1))
        begin = max(ready, free)
        events.append(
            kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", begin, 30, NCCL, 2 * i + 2,
                   **metadata("allreduce", nbytes // 4, i + 1))
        )  # fmt: skip
        free = begin + 30
        events += [runtime("cudaLaunchKernel", i - 10, 0.1, 2 * i + 1),
                   runtime("cudaLaunchKernel", i - 9.5, 0.1, 2 * i + 2)]  # fmt: skip
    events += [kernel("optimizer", free, 10, launch=99), runtime("cudaLaunchKernel", 50, 1, 99)]
    return events


@pytest.mark.parametrize(
    ("recorded_buckets", "size", "made"),
    [
        ([1000, 1000, 1000, 1000], 2000, [2000, 2000]),
        ([1000, 1000, 1000, 1000], 4000, [4000]),
        ([1000, 1000, 1000], 1200, [1200, 1200, 600]),
        ([4000], 1000, [1000, 1000, 1000, 1000]),
    ],
)
def test_buckets_are_joined_and_cut(
    tmp_path: Path, recorded_buckets: list[int], size: int, made: list[int]
) -> None:
    found = recorded(tmp_path, [backward(recorded_buckets)] * 2)
    cluster = load_cluster("dgx-h100")
    played = replay(found, Where(cluster=cluster, bucket=size, roles={"0": "dp"}))
    assert [p.call.nbytes for p in played.operations] == made
    reduces = [
        i for i, (rank, _) in enumerate(played.places)
        if rank == 0 and (part := played.part(i)) is not None and part.kind == COMMUNICATION
    ]  # fmt: skip
    # A bucket of whole recorded ones begins when the last of them was ready, if its stream is free.
    if size % recorded_buckets[0] == 0:
        first = float(played.spans.starts[reduces[0]])
        assert first == pytest.approx((size // recorded_buckets[0]) * 100 * US + 10 * US)
    optimizer = spans(played)[0, "optimizer"]
    assert optimizer[0] >= max(float(played.spans.ends[i]) for i in reduces) - 1e-12


def test_reductions_that_are_waited_for_are_not_joined(tmp_path: Path) -> None:
    """The second all_reduce comes after a kernel that waited for the first."""
    events = [
        kernel("a", 0, 100, launch=1), runtime("cudaLaunchKernel", -9, 1, 1),
        kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 100, 50, NCCL, 2,
               **metadata("allreduce", 250, 1)), runtime("cudaLaunchKernel", -7, 1, 2),
        kernel("b", 152, 100, launch=3), runtime("cudaLaunchKernel", -5, 1, 3),
        kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 252, 50, NCCL, 4,
               **metadata("allreduce", 250, 2)), runtime("cudaLaunchKernel", -3, 1, 4),
    ]  # fmt: skip
    found = recorded(tmp_path, [events], world=2)
    played = replay(
        found, Where(cluster=load_cluster("dgx-h100"), bucket=1 << 20, roles={"0": "dp"})
    )
    assert [p.call.nbytes for p in played.operations] == [1000, 1000]


# ---- ranks that do not fit together ----


def test_a_mismatch_is_named(tmp_path: Path) -> None:
    def one(collective: str) -> list[Event]:
        return [kernel("ncclDevKernel_Generic", 0, 5, NCCL, **metadata(collective, 64, 7))]

    found = recorded(tmp_path, [one("allreduce"), one("allreduce"), one("_allgather_base")])
    (said,) = found.mismatches
    assert "operation 7 of group 0" in said
    assert "ranks 0, 1 called all_reduce (256 bytes of float32)" in said
    assert "rank 2 called all_gather" in said
    with pytest.raises(ScheduleError, match="rank 2 called all_gather"):
        replay(found)
    assert [p.prediction for p in price(found, Where(cluster=load_cluster("dgx-h100")))] == [None]


def test_two_files_of_one_rank_are_refused(tmp_path: Path) -> None:
    first = Kineto().recordings(write(tmp_path / "a.json", step()))
    with pytest.raises(SpecError, match="both of rank 0; expected one file per rank"):
        join([*first, *first])


def test_clocks_of_other_machines_are_set(tmp_path: Path) -> None:
    a = write(tmp_path / "a.json", step(), rank=0, host="a")
    b = write(tmp_path / "b.json", step(late=40.0), rank=1, host="b", base=5_000_000_000)
    found = join([*Kineto().recordings(a), *Kineto().recordings(b)])
    (operation,) = found.operations
    assert operation.transfer == pytest.approx(110 * US, rel=1e-3)
    assert any("the clock of rank 1 (b) is set by -5.000000 s" in note for note in found.notes)


def test_messages_are_matched_in_order_of_their_pair(tmp_path: Path) -> None:
    """Rank 0 sends twice, rank 1 comes late to the first: it is buffered, and waits for nobody."""

    def message(name: str, start: float, duration: float, **args: int) -> Event:
        return kernel("ncclDevKernel_SendRecv", start, duration, NCCL,
                      **metadata(name, 256, 1, **args))  # fmt: skip

    sender = [
        message("send", 0, 10, **{"Dst Rank": 1}),
        message("send", 100, 60, **{"Dst Rank": 1}),
    ]
    receiver = [
        message("recv", 50, 5, **{"Src Rank": 0}),
        message("recv", 130, 30, **{"Src Rank": 0}),
    ]
    found = recorded(tmp_path, [sender, receiver])
    # Each file's times begin with its own first event; here both begin at 0 of one clock.
    first, second = found.operations
    assert set(first.starts) == set(second.starts) == {0, 1}
    assert not first.waits(0)
    assert second.waiting(0) == pytest.approx(30 * US)
    assert second.transfer == pytest.approx(30 * US)
    assert replay(found).duration == pytest.approx(found.duration)
    cluster = load_cluster("dgx-h100")
    wanted = predict(Collective("send_recv", 1024, ranks=(0, 1), root=0), cluster).duration
    assert {p.duration for p in price(found, Where(cluster=cluster))} == {wanted}
