"""By which NICs a library's traffic leaves: ways written out by hand."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from commsim.collectives.algorithms.nvls import Nvls
from commsim.collectives.algorithms.send_recv import SendRecv
from commsim.collectives.collective import Collective
from commsim.engine.cluster_network import ClusterNetwork
from commsim.engine.network import Ways, lay
from commsim.engine.nic_choice import ChosenNics
from commsim.topology.cluster import Cluster
from commsim.topology.load import load_cluster

Crossed = dict[str, float]  # link: bytes on it for each byte sent


def crossed(
    cluster: Cluster,
    *pairs: tuple[int, int],
    channel: int = 0,
    ranks: tuple[int, ...] | None = None,
    **choice: Any,
) -> list[Crossed]:
    """What each pair of positions puts on which links."""
    base = ClusterNetwork(cluster=cluster, ranks=ranks)
    network = ChosenNics(base=base, **choice)
    schedule = SendRecv().schedule(
        Collective("send_recv", 64), len(ranks or range(cluster.n_ranks))
    )
    source, target = np.array(pairs).T
    ways = network.ways(schedule, source, target, np.full_like(source, channel), 0 * source)
    return [links(network, ways, way) for way in range(len(pairs))]


def links(network: ChosenNics, ways: Ways, way: int) -> Crossed:
    inside = slice(ways.start[way], ways.start[way + 1])
    names = [network.links[i] for i in ways.crossing[inside]]
    assert len(set(names)) == len(names)
    return dict(zip(names, ways.weight[inside].tolist(), strict=True))


def walk(*vertices: str, share: float = 1.0) -> Crossed:
    return {f"{a} -> {b}": share for a, b in pairwise(vertices)}


def out(host: int, gpu: int, nic: int | None = None) -> tuple[str, ...]:
    """From a GPU of a DGX H100 to the NIC on its own PCIe switch."""
    nic = gpu if nic is None else nic
    return tuple(
        f"node{host}/{name}" for name in (f"gpu{gpu}", f"pcie{nic}", f"card{nic}", f"nic{nic}")
    )


def into(host: int, gpu: int) -> tuple[str, ...]:
    return out(host, gpu)[::-1]


def passed(host: int, first: int, second: int) -> Crossed:
    """From GPU to GPU over the NVSwitch."""
    return walk(f"node{host}/gpu{first}", f"node{host}/nvswitch", f"node{host}/gpu{second}")


DGX = load_cluster("dgx-h100", nodes=2)  # NIC i of GPU i on leaf i


def exits(n: int, **of: int) -> list[list[int]]:
    """One channel in which only some ranks (r3=5: rank 3) leave by a NIC of the ring's choice."""
    return [[of.get(f"r{rank}", -1) for rank in range(n)]]


def test_by_itself_a_rank_sends_and_receives_through_its_own() -> None:
    near, far = crossed(DGX, (0, 1), (2, 10))
    assert near == passed(0, 0, 1)
    assert far == walk(*out(0, 2), "leaf2", *into(1, 2))


def test_a_ring_leaves_by_the_gpu_that_owns_the_exit() -> None:
    """NCCL's PXN: the data goes to that GPU over NVLink first."""
    (way,) = crossed(DGX, (3, 13), exits=exits(16, r3=5))
    assert way == passed(0, 3, 5) | walk(*out(0, 5), "leaf5", *into(1, 5))


def test_a_ring_that_leaves_by_the_ranks_own_goes_straight() -> None:
    assert crossed(DGX, (5, 13), exits=exits(16, r5=5)) == crossed(DGX, (5, 13))


def test_inside_a_machine_the_exit_does_not_matter() -> None:
    assert crossed(DGX, (3, 4), exits=exits(16, r3=5)) == crossed(DGX, (3, 4))


def test_channels_take_turns_over_the_exits() -> None:
    two = exits(16, r3=5) + exits(16, r3=6)
    for channel, nic in ((0, 5), (1, 6), (2, 5)):
        (way,) = crossed(DGX, (3, 8 + nic), channel=channel, exits=two)
        assert f"node0/card{nic} -> node0/nic{nic}" in way


def test_a_ring_enters_where_it_says() -> None:
    """By NIC 2 of the other machine, which is not GPU 5's own: over the PCIe of its CPU."""
    (way,) = crossed(DGX, (5, 13), exits=exits(16, r5=5), entries=exits(16, r13=2))
    assert way["node0/nic5 -> leaf5"] == way["leaf2 -> node1/nic2"] == 1
    assert way["node1/nic2 -> node1/card2"] == way["node1/pcie5 -> node1/gpu5"] == 1


def test_without_nvlink_a_ring_leaves_by_any_nic_itself() -> None:
    """GPU 0 of an L40S machine by the NIC of the other switch: nobody passes on for it."""
    (way,) = crossed(load_cluster("l40sx8", nodes=2), (0, 8), exits=exits(16, r0=1))
    assert "node0/card1 -> node0/nic1" in way
    assert not any("gpu" in name and "gpu0" not in name for name in way if "node0" in name)


def test_a_device_of_several_nics_spreads_over_them() -> None:
    """p5: the second device's NICs 4 to 7, to which GPU 1 passes on what GPU 0 sends."""
    groups = tuple(tuple(range(4 * i, 4 * i + 4)) for i in range(8))
    p5 = load_cluster("aws-p5", nodes=2)
    (way,) = crossed(p5, (0, 8), exits=exits(16, r0=1), entries=exits(16, r8=0), devices=groups)
    assert way["node0/gpu0 -> node0/nvswitch"] == 1
    for nic in range(4):
        assert way[f"node0/card{4 + nic} -> node0/nic{4 + nic}"] == 0.25
        assert way[f"node1/nic{nic} -> node1/card{nic}"] == 0.25


def test_messages_leave_on_the_receivers_rail() -> None:
    """Rank 0 sends to GPU 3 of the other machine: by GPU 3 here, so that no spine is crossed."""
    there, back, own = crossed(DGX, (0, 11), (11, 0), (3, 11), rails=True)
    assert there == passed(0, 0, 3) | walk(*out(0, 3), "leaf3", *into(1, 3))
    assert back == passed(1, 3, 0) | walk(*out(1, 0), "leaf0", *into(0, 0))
    assert own == walk(*out(0, 3), "leaf3", *into(1, 3))


def test_who_is_not_in_the_group_passes_nothing_on() -> None:
    """Positions are 0, 1 and 3, 2 of the other machine. GPU 3 here takes no part: so rank 0 leaves
    by its own NIC, and the receiver's rail is reached over a spine.
    """
    (way,) = crossed(DGX, (0, 2), ranks=(0, 1, 11, 10), rails=True)
    assert way == walk(*out(0, 0), "leaf0", "spine0", "leaf3", *into(1, 3))


def test_positions_are_not_ranks() -> None:
    ranks = tuple(reversed(range(16)))
    assert crossed(DGX, (15, 4), ranks=ranks, rails=True) == crossed(DGX, (0, 11), rails=True)


def test_without_nvlink_nobody_passes_on() -> None:
    """An L40S machine has two NICs, one on each switch with four GPUs, all on one leaf."""
    (way,) = crossed(load_cluster("l40sx8", nodes=2), (0, 12), rails=True)
    assert "node0/card0 -> node0/nic0" in way
    assert "leaf0 -> node1/nic1" in way
    assert not any("gpu" in name and "gpu0" not in name for name in way if "node0" in name)


def test_a_gpu_with_four_nics_uses_them_evenly() -> None:
    """p5: four NICs on the PCIe switch of every GPU; link by link a quarter, together all of it."""
    (way,) = crossed(load_cluster("aws-p5", nodes=2), (0, 8))
    for nic in range(4):
        assert way[f"node0/card{nic} -> node0/nic{nic}"] == 0.25
        assert way[f"node1/nic{nic} -> node1/card{nic}"] == 0.25
    assert way["node0/gpu0 -> node0/pcie0"] == way["node1/pcie0 -> node1/gpu0"] == 1
    assert sum(weight for name, weight in way.items() if name.startswith("node0/card")) == 1


@pytest.mark.parametrize("interfaces", [1, 2])
def test_sockets_share_the_first_interfaces(interfaces: int) -> None:
    for way in crossed(DGX, (0, 11), (7, 8), (3, 12), ports=interfaces):
        used = {name for name in way if "/nic" in name and "leaf" in name}
        expected = {f"node0/nic{i} -> leaf{i}" for i in range(interfaces)}
        assert used == expected | {f"leaf{i} -> node1/nic{i}" for i in range(interfaces)}
        assert {way[name] for name in used} == {1 / interfaces}


def test_inside_a_machine_sockets_go_nowhere_else() -> None:
    assert crossed(DGX, (3, 4), ports=1) == crossed(DGX, (3, 4))


def test_the_exit_of_a_rack_may_be_on_another_of_its_machines() -> None:
    """NIC 5 of a rack with four NICs a tray is the second tray's NIC 1: of rank 5, which is passed
    the data over the rack's NVSwitch; for the second rack the same again.
    """
    racks = load_cluster("gb200-nvl72", nodes=36)  # two racks of 18 trays, 72 ranks each
    first, second, other = crossed(
        racks, (0, 77), (4, 77), (76, 5), exits=exits(144, r0=5, r4=5, r76=5)
    )
    for way, near, far, source in ((first, 1, 19, 0), (second, 1, 19, 1), (other, 19, 1, 19)):
        domain = near // 18
        assert way[f"node{source}/gpu0 -> domain{domain}/nvswitch"] == 1
        assert way[f"domain{domain}/nvswitch -> node{near}/gpu1"] == 1
        assert way[f"node{near}/card1 -> node{near}/nic1"] == 1
        assert way[f"node{far}/nic1 -> node{far}/card1"] == 1
        assert sum(w for name, w in way.items() if "/nic" in name and "leaf" in name) == 2


def test_machines_of_a_rack_without_members_have_no_number() -> None:
    """Only trays 0 and 2 of the rack take part, and one of the other: NIC 5 is tray 2's NIC 1."""
    ranks = (*range(4), *range(8, 12), *range(72, 76))
    racks = load_cluster("gb200-nvl72", nodes=36)
    (way,) = crossed(racks, (0, 9), ranks=ranks, exits=exits(12, r0=5))
    assert way["node2/card1 -> node2/nic1"] == 1


def test_to_an_nvswitch_there_is_one_way() -> None:
    """A schedule's switch stands above NICs that are not asked for."""
    one = load_cluster("dgx-h100")
    schedule = Nvls(pieces=1).schedule(Collective("all_reduce", 1024), 8)
    base = ClusterNetwork(cluster=one)
    chosen = ChosenNics(base=base, exits=exits(8, r3=5))
    plain, found = lay(schedule, base).ways, lay(schedule, chosen).ways
    assert (plain.crossing == found.crossing).all()
    assert (plain.weight == found.weight).all()


def test_links_are_those_of_the_cluster() -> None:
    base = ClusterNetwork(cluster=DGX)
    chosen = ChosenNics(base=base, rails=True)
    assert chosen.links == base.links
    assert (chosen.capacity == base.capacity).all()
    assert (chosen.over_network == base.over_network).all()
