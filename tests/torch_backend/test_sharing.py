"""Operations under way at once: what each gets of the links, by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commsim.collectives.collective import Collective
from commsim.prediction import predict
from commsim.simulation import simulate as play
from commsim.topology.load import load_cluster
from commsim.workload.communication import NIC_SHARE

pytest.importorskip("torch")

from commsim.torch_backend import Options, run
from commsim.torch_backend.footprint import Footprint
from commsim.torch_backend.groups import Groups
from commsim.torch_backend.records import Group, Operation
from commsim.torch_backend.sharing import Flow, Traffic

GROUP = Group(name="0", ranks=(0, 1))


def flow(
    ready: float, rates: dict[int, float], left: float = 1.0, after: tuple[Operation, ...] = (),
    several: bool = False,
) -> Flow:  # fmt: skip
    """An operation that takes so many bytes/s of these links."""
    takes = Footprint(links=np.array(list(rates)), rates=np.array(list(rates.values())))
    operation = Operation(group=GROUP, move=lambda _: None)
    return Flow(
        operation=operation, ready=ready, after=after, left=left, takes=lambda: takes,
        several=several,
    )  # fmt: skip


def traffic(*flows: Flow) -> Traffic:
    """Three links of 10 bytes/s."""
    found = Traffic(capacity=lambda: np.full(3, 10.0))
    for each in flows:
        found.add(each)
    return found


def times(*flows: Flow) -> list[tuple[float, float]]:
    return [(f.operation.start, pytest.approx(f.operation.end, rel=1e-12)) for f in flows]


def play_out(found: Traffic) -> None:
    while found.advance():
        pass


def test_alone_an_operation_takes_its_time() -> None:
    a = flow(3.0, {0: 10.0}, left=2.0)
    play_out(traffic(a))
    assert times(a) == [(3.0, 5.0)]


def test_two_on_a_link_take_twice_as_long_and_a_third_elsewhere_its_own_time() -> None:
    a, b, c = flow(0, {0: 10.0}), flow(0, {0: 10.0, 1: 1.0}), flow(0, {2: 10.0})
    play_out(traffic(a, b, c))
    assert times(a, b, c) == [(0, 2.0), (0, 2.0), (0, 1.0)]


def test_a_link_that_is_wide_enough_slows_nobody() -> None:
    a, b = flow(0, {0: 6.0}), flow(0, {0: 4.0})
    play_out(traffic(a, b))
    assert times(a, b) == [(0, 1.0), (0, 1.0)]


def test_only_the_time_together_is_shared() -> None:
    a, b = flow(0, {0: 10.0}), flow(0.5, {0: 10.0})
    play_out(traffic(a, b))
    # a: half alone, the rest at half speed: 0.5 + 1; b: half done by then, the rest alone
    assert times(a, b) == [(0, 1.5), (0.5, 2.0)]


def test_shares_are_max_min_fair() -> None:
    a, b = flow(0, {0: 5.0}), flow(0, {0: 10.0})
    play_out(traffic(a, b))
    # 5 v + 10 v = 10: 2/3 each; both end at 1.5
    assert times(a, b) == [(0, 1.5), (0, 1.5)]


def test_one_that_stands_for_several_slows_itself() -> None:
    a = flow(0, {0: 40.0}, several=True)
    play_out(traffic(a))
    assert times(a) == [(0, 4.0)]


def test_what_follows_another_begins_at_its_end() -> None:
    a = flow(0, {0: 10.0})
    b = flow(0.25, {0: 10.0}, after=(a.operation,))
    play_out(traffic(a, b))
    assert times(a, b) == [(0, 1.0), (1.0, 2.0)]


def test_one_that_comes_late_gets_what_was_left() -> None:
    a = flow(0, {0: 6.0}, left=1.0)
    found = traffic(a)
    play_out(found)
    b = flow(0.5, {0: 10.0})
    found.add(b)
    play_out(found)
    # from 0.5 to 1 at 0.4 speed: 0.2 done; the rest alone
    assert times(a, b) == [(0, 1.0), (0.5, 1.8)]
    c = flow(0.75, {0: 4.0}, left=0.1)
    found.add(c)
    play_out(found)
    # a and b leave nothing until 1, and b all but nothing until 1.8
    assert times(c) == [(0.75, 1.9)]
    found.forget(1.5)
    assert all(stretch.end > 1.5 for stretch in found.past)


def test_sisters_are_groups_moved_by_a_constant_on_the_same_machines() -> None:
    groups = Groups(present=frozenset({0}), per_machine=4)
    data = [(0, 4), (1, 5), (2, 6), (3, 7), (8, 12)]
    for ranks in [tuple(range(16)), *data, (0, 1), (2, 3), (4, 5), (9,), (5, 1)]:
        groups.add(ranks)
    assert groups.sisters((0, 4)) == ((1, 5), (2, 6), (3, 7))
    assert groups.sisters((0, 1)) == ((2, 3),)  # 4 and 5 are on another machine
    everybody = Groups(present=frozenset(range(16)), per_machine=4, known=groups.known)
    assert everybody.sisters((0, 4)) == ()


SIDE_BY_SIDE = """
import torch, torch.distributed as dist
dist.init_process_group("nccl")
rank = dist.get_rank()
groups = [dist.new_group([0, 2]), dist.new_group([1, 3])]
dist.all_reduce(torch.empty(1 << 26), group=groups[rank % 2])
"""


def side_by_side(folder: Path, nics: int, script: str = SIDE_BY_SIDE, **options: Any) -> Any:
    """Two ranks on each of two machines with so many NICs of 50 GB/s."""
    path = folder / "script.py"
    path.write_text(script)
    cluster = load_cluster("dgx-h100", nodes=2, **{"node.nics.count": nics})
    found = run(path, cluster=cluster, options=Options(nproc_per_node=2, **options))
    assert found.failure is None, found.failure
    return found


def test_two_groups_over_one_nic_take_twice_as_long(tmp_path: Path) -> None:
    nbytes = 4 << 26
    found = side_by_side(tmp_path, 1)
    alone = side_by_side(tmp_path, 1, share_links=False)
    # a rank sends 2 (n - 1) / n of the buffer, which alone fills the NIC, or all but fills it; then
    # two do: either way each has half of what it had, or half of the NIC
    wire = nbytes / (NIC_SHARE * 50e9)
    assert alone.duration == pytest.approx(wire, rel=0.01)
    assert found.duration == pytest.approx(2 * min(alone.duration, wire), rel=1e-9)
    cluster = load_cluster("dgx-h100", nodes=2, **{"node.nics.count": 1})
    both = [Collective("all_reduce", nbytes, ranks=(i, 8 + i)) for i in (0, 1)]
    # all transfers of both played on the links
    assert found.duration == pytest.approx(play(both, cluster).duration, rel=0.05)
    assert any("slowed each other: 2 of 2" in note for note in found.notes)


def test_two_groups_over_nics_of_their_own_do_not_slow_each_other(tmp_path: Path) -> None:
    found = side_by_side(tmp_path, 8)
    cluster = load_cluster("dgx-h100", nodes=2)
    one = predict(Collective("all_reduce", 4 << 26, ranks=(0, 8)), cluster).duration
    assert found.duration == pytest.approx(one, rel=1e-12)
    assert not any("slowed" in note for note in found.notes)


@pytest.mark.parametrize("ranks", [(0,), (0, 2)])
def test_a_rank_that_stands_for_others_shares_with_their_groups(
    ranks: tuple[int, ...], tmp_path: Path
) -> None:
    whole = side_by_side(tmp_path, 1)
    assert side_by_side(tmp_path, 1, ranks=ranks).duration == pytest.approx(
        whole.duration, rel=1e-12
    )


def test_messages_share_a_nic_too(tmp_path: Path) -> None:
    script = """
import torch, torch.distributed as dist
dist.init_process_group("nccl")
rank, x = dist.get_rank(), torch.empty(1 << 26)
dist.send(x, rank + 2) if rank < 2 else dist.recv(x, rank - 2)
"""
    single = script.replace("rank < 2 else", "rank < 1 else None if rank % 2 else")
    one = side_by_side(tmp_path, 1, single)
    two = side_by_side(tmp_path, 1, script)
    assert two.duration == pytest.approx(2 * (4 << 26) / (NIC_SHARE * 50e9), rel=1e-9)
    assert two.duration > 1.9 * one.duration


def test_what_a_group_does_later_shares_with_what_another_did_then(simulate: Callable) -> None:
    """Ranks 2 and 3 come first in this process, and yet are under way together with 0 and 1."""
    body = """
import torch, torch.distributed as dist
dist.init_process_group("nccl")
rank = dist.get_rank()
groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
for _ in range(3):
    dist.all_reduce(torch.empty(1 << 20), group=groups[rank // 2])
"""
    found, _ = simulate(body, 4)
    cluster = load_cluster("dgx-h100")
    one = predict(Collective("all_reduce", 4 << 20, ranks=(0, 1)), cluster).duration
    # NVLink of the one pair is not that of the other
    assert found.duration == pytest.approx(3 * one, rel=1e-12)
