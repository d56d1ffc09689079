"""Simulations against the closed form, against physics, and against figures worked out by hand."""

from __future__ import annotations

import itertools
import json
import math
import os
import random
import subprocess
import sys
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from commsim.collectives.algorithms.ring import Ring
from commsim.collectives.collective import OPERATIONS, Collective
from commsim.collectives.schedule import Window
from commsim.cost.bound import bound
from commsim.engine.conditions import Conditions, Jitter, LinkFault, Traffic
from commsim.engine.timeline import Timeline
from commsim.engine.waiting import split_time
from commsim.errors import CollectiveError, ConditionError, UnknownNameError, UnreachableError
from commsim.libraries.library import Library
from commsim.libraries.lookup import library
from commsim.prediction import Prediction, predict
from commsim.simulation import simulate
from commsim.topology.cluster import Cluster
from commsim.topology.load import load_cluster
from commsim.topology.placement import place
from commsim.units import GIB, KIB, MIB

MS, US = 1e-3, 1e-6
CLOSE = 0.03
RING = library("nccl", env={"NCCL_ALGO": "Ring"})
AS_WELL = 1e-3  # what finding the pace leaves open


@lru_cache(maxsize=64)
def machines(name: str, nodes: int = 1, **changes: Any) -> Cluster:
    """The same cluster for all, so that what is known about it is known."""
    return load_cluster(name, nodes=nodes, **{k.replace("__", "."): v for k, v in changes.items()})


def closed_form(asked: Collective, cluster: Cluster, by: Library | None = None) -> Prediction:
    return predict(asked, cluster, by)


# ---- on an idle cluster, what the closed form says ----

RACK = {1: 18, 2: 36, 5: 20}  # trays: one NVLink domain, two, and one with a few of another
PRESETS = {
    "dgx-h100": "NVSwitch", "dgx-1v": "a mesh of NVLink", "alps": "GH200 and Slingshot",
    "mi300x": "a mesh of xGMI", "frontier": "xGMI and Slingshot", "rtx4090x8": "PCIe without peers",
    "aws-p5": "EFA with 32 NICs", "gh200": "one GPU", "mig-a100-1g": "slices of one GPU",
    "gb200-nvl72": "racks",
}  # fmt: skip
CASES = ((1, 64 * MIB), (2, 1), (2, 64 * MIB), (5, MIB))
SMALL = ((1, 0), (1, KIB), (2, 0), (5, KIB))  # of these only some presets


def sizes(name: str, operation: str) -> list[tuple[int, int]]:
    """Machines and bytes to try."""
    found = []
    for nodes, nbytes in (*CASES, *(SMALL if name in ("dgx-h100", "rtx4090x8", "gh200") else ())):
        if operation == "barrier":
            nbytes = 0
        if (name, nodes) == ("gh200", 1) or (name == "gb200-nvl72" and nodes > 1 and nbytes > MIB):
            continue
        found.append((RACK[nodes] if name == "gb200-nvl72" else nodes, nbytes))
    return list(dict.fromkeys(found))


def check_physics(x: Timeline, p: Prediction) -> None:
    """No time below the bound, and no link with more bytes than it can carry."""
    asked = p.collective
    assert x.duration >= bound(asked, p.cluster, place(p.cluster, asked.ranks)) * (1 - 1e-9)
    assert max(x.link_utilization.values(), default=0.0) <= 1 + 1e-9
    needs = x.link_bytes / x.network.capacity
    assert float(needs.max(initial=0.0)) <= x.duration * (1 + 1e-9)
    assert not x.stalled


def check_closed_form(x: Timeline, p: Prediction) -> None:
    """As long as predicted."""
    ratio = x.duration / p.duration
    assert abs(ratio - 1) <= CLOSE, f"{p.cluster.name} x {p.cluster.nodes}, {p.collective}: {ratio}"


@pytest.mark.parametrize("name", PRESETS)
def test_every_operation_takes_what_the_closed_form_says(name: str) -> None:
    for operation in OPERATIONS:
        for nodes, nbytes in sizes(name, operation):
            asked, cluster = Collective(operation, nbytes), machines(name, nodes)
            p, x = closed_form(asked, cluster), simulate(asked, cluster)
            check_physics(x, p)
            check_closed_form(x, p)


BY_MECHANISM = (
    ("dgx-h100", 1, "all_gather", 4 * MIB, "ring"),
    ("dgx-a100", 1, "all_reduce", 64 * MIB, "ring"),
    ("rtx4090x8", 1, "all_reduce", 16 * MIB, "ring"),
    ("dgx-h100", 1, "all_reduce", 16 * MIB, "nvls"),
    ("dgx-h100", 2, "all_reduce", MIB, "tree"),
    ("dgx-h100", 8, "all_reduce", 4 * MIB, "tree"),
    ("dgx-a100", 4, "all_reduce", 16 * MIB, "tree"),
    ("dgx-h100", 1, "broadcast", 256 * MIB, "ring"),
    ("dgx-h100", 8, "broadcast", 64 * MIB, "ring"),
    ("dgx-h100", 64, "broadcast", GIB, "ring"),
    ("dgx-a100", 4, "reduce", 256 * MIB, "ring"),
    ("l40sx8", 3, "all_to_all", 64 * MIB, "p2p"),
)


@pytest.mark.parametrize(("name", "nodes", "operation", "nbytes", "algorithm"), BY_MECHANISM)
def test_with_the_profiles_hops_it_takes_what_the_closed_form_says(
    name: str, nodes: int, operation: str, nbytes: int, algorithm: str
) -> None:
    """Blocks that go on whole, pieces that stream, legs through a switch, machine after machine: no
    hop is adjusted."""
    asked, cluster = Collective(operation, nbytes), machines(name, nodes)
    p, x = closed_form(asked, cluster), simulate(asked, cluster)
    assert p.algorithm == algorithm
    assert x.duration == pytest.approx(p.duration, rel=AS_WELL)
    assert not [note for note in x.notes if note.startswith("hops take")]


@pytest.mark.parametrize(("name", "nodes"), [("dgx-b200", 2), ("oci-h200", 8)])
def test_pieces_are_small_enough_for_the_stages_of_an_nvls_tree(name: str, nodes: int) -> None:
    """In a switch, in the tree and in a switch again there is a whole piece each."""
    asked, cluster = Collective("all_reduce", GIB), machines(name, nodes)
    p, x = closed_form(asked, cluster), simulate(asked, cluster)
    assert p.algorithm == "nvls_tree"
    check_closed_form(x, p)


def test_where_hops_are_adjusted_it_is_said() -> None:
    """LL128 over a network is taken to hide no hop behind bytes; a ring of blocks hides some."""
    x = simulate(Collective("all_gather", 16 * MIB), machines("dgx-h100", 2))
    assert [note for note in x.notes if note.startswith("hops take")]


@pytest.mark.parametrize("by", ["gloo", "mpi"])
@pytest.mark.parametrize("name", ["dgx-h100", "l40sx8"])
def test_host_libraries_take_what_the_closed_form_says(name: str, by: str) -> None:
    for nodes, operation in itertools.product((1, 5), OPERATIONS):
        for nbytes in (0, MIB, 64 * MIB) if operation != "barrier" else (0,):
            asked, cluster = Collective(operation, nbytes), machines(name, nodes)
            p, x = closed_form(asked, cluster, library(by)), simulate(asked, cluster, library(by))
            check_closed_form(x, p)
            assert not x.stalled


@pytest.mark.parametrize(
    ("name", "nodes"), [("dgx-h100", 1), ("dgx-h100", 4), ("mi300x", 3), ("alps", 4), ("aws-p5", 2)]
)
@pytest.mark.parametrize("operation", ["all_reduce", "all_gather", "all_to_all", "broadcast"])
def test_folded_or_not_it_takes_as_long(name: str, nodes: int, operation: str) -> None:
    cluster = machines(name, nodes)
    for nbytes in (KIB, MIB if operation == "broadcast" else 64 * MIB):
        asked = Collective(operation, nbytes)
        folded, plain = (simulate(asked, cluster, fold=fold) for fold in (True, False))
        assert folded.duration == pytest.approx(plain.duration, rel=0.01)


@pytest.mark.parametrize("nodes", [1, 2, 5])
def test_a_barrier_is_hops_alone(nodes: int) -> None:
    cluster = machines("dgx-h100", nodes)
    barrier, empty = Collective("barrier"), Collective("all_reduce", 0)
    x = simulate(barrier, cluster)
    assert x.duration == pytest.approx(closed_form(barrier, cluster).duration, rel=CLOSE)
    assert x.duration == pytest.approx(simulate(empty, cluster).duration, rel=CLOSE)
    # Less than 1 KiB passes over any link.
    assert float(x.link_bytes.max()) < KIB


def test_times_beyond_two_to_the_31_nanoseconds() -> None:
    """2 TiB around a ring of NVLink is 8 s and more: 2 x 7/8 x 2^41 B at 450 GB/s."""
    asked, cluster = Collective("all_reduce", 1 << 41), machines("dgx-h100")
    x = simulate(asked, cluster, RING)
    assert x.duration == pytest.approx(closed_form(asked, cluster, RING).duration, rel=CLOSE)
    assert x.duration > 2 * 7 / 8 * (1 << 41) / 450e9 > 8
    late = simulate(Collective("all_reduce", MIB), cluster, conditions=Conditions(late={0: 1e4}))
    assert late.duration == pytest.approx(1e4, rel=1e-6)


def test_a_group_of_the_ranks_has_the_links_to_itself() -> None:
    cluster, ranks = machines("dgx-h100", 2), (3, 11)
    asked = Collective("all_reduce", 64 * MIB, ranks=ranks)
    x = simulate(asked, cluster)
    assert x.duration == pytest.approx(closed_form(asked, cluster).duration, rel=CLOSE)
    used = {name for link in x.link_utilization for name in link.split(" -> ")}
    gpus = {name for name in used if "/gpu" in name}
    assert gpus == {"node0/gpu3", "node1/gpu3"}


# ---- laws ----

IDLE = Conditions(late={0: 0.0})  # no disturbance, but every machine is played
DISTURBED: dict[str, Conditions] = {
    "half a NIC": Conditions(faults=(LinkFault(link="node1/nic2", share=0.5),)),
    "a tenth of a cable from then on": Conditions(
        faults=(LinkFault(link="node0/nic1 -> *", share=0.1, time=50 * US),)
    ),
    "half of a GPU's links": Conditions(faults=(LinkFault(link="node0/gpu1", share=0.5),)),
    "half of everything": Conditions(faults=(LinkFault(link="*", share=0.5),)),
    "a late rank": Conditions(late={5: 80 * US}),
    "all ranks late": Conditions(late=dict.fromkeys(range(8), 80 * US)),
    "a slow rank": Conditions(slow={2: 1.7}),
    "a slow rank with half its links": Conditions(
        slow={2: 1.7}, faults=(LinkFault(link="node0/gpu2", share=0.9),)
    ),
    "jitter": Conditions(jitter=Jitter(mean=2 * US)),
    "other traffic": Conditions(traffic=(Traffic(source=1, destination=9, nbytes=16 * MIB),)),
}
PLAYED = (
    ("dgx-h100", "all_reduce", MIB),
    ("dgx-h100", "all_reduce", 64 * MIB),
    ("dgx-h100", "all_to_all", 16 * MIB),
    ("dgx-h100", "all_gather", 16 * MIB),
    ("mi300x", "all_reduce", 64 * MIB),
    ("mi300x", "broadcast", MIB),
    ("mi300x", "reduce_scatter", 16 * MIB),
)


@lru_cache(maxsize=256)
def disturbed(name: str, operation: str, nbytes: int, what: str | None) -> float:
    conditions = DISTURBED[what] if what else IDLE
    return simulate(
        Collective(operation, nbytes), machines(name, 2), conditions=conditions
    ).duration


@pytest.mark.parametrize("what", DISTURBED)
@pytest.mark.parametrize(("name", "operation", "nbytes"), PLAYED)
def test_no_disturbance_makes_anything_faster(
    name: str, operation: str, nbytes: int, what: str
) -> None:
    healthy = disturbed(name, operation, nbytes, None)
    assert disturbed(name, operation, nbytes, what) >= healthy * (1 - AS_WELL)


def test_disturbances_do_disturb() -> None:
    """Each one costs some of these operations more than 1 %."""
    for what in DISTURBED:
        costs = [disturbed(*each, what) / disturbed(*each, None) for each in PLAYED]
        assert max(costs) > 1.01, what


def test_the_worse_the_slower() -> None:
    cluster, asked = machines("dgx-h100", 2), Collective("all_gather", 16 * MIB)
    for grow in (
        [Conditions(faults=(LinkFault(link="node0/nic3", share=1 / k),)) for k in (1, 2, 4, 8)],
        [Conditions(slow={3: k}) for k in (1.0, 1.5, 3.0, 9.0)],
        [Conditions(slow={3: 3.0}, faults=(LinkFault(link="node0/gpu3", share=s),))
         for s in (1.0, 0.9, 0.2)],
        [Conditions(late={3: k * 50 * US}) for k in range(4)],
        [Conditions(traffic=(Traffic(source=3, destination=11, nbytes=k * 8 * MIB),))
         for k in range(4)],
        [Conditions(jitter=Jitter(mean=k * US)) for k in range(4)],
    ):  # fmt: skip
        times = [simulate(asked, cluster, conditions=c).duration for c in grow]
        assert times == sorted(times)
        assert times[-1] > times[0] * 1.01


def test_a_thinner_fabric_is_never_faster() -> None:
    asked = Collective("all_to_all", 16 * MIB)
    times = [
        simulate(
            asked, machines("dgx-h100", 16, fabric__kind="fat-tree", fabric__oversubscription=o)
        ).duration
        for o in (1.0, 2.0, 4.0, 8.0)
    ]
    assert times == sorted(times)
    assert times[-1] > 2 * times[0]


def plain(x: Timeline) -> str:
    return json.dumps(x.to_dict())


HARD = Conditions(
    late={3: 5 * US}, slow={1: 1.2}, jitter=Jitter(mean=US, distribution="lognormal", seed=4),
    faults=(LinkFault(link="node1/nic*", share=0.7, time=20 * US),),
    traffic=(Traffic(source=2, destination=9, nbytes=MIB),),
)  # fmt: skip


def hard() -> Timeline:
    asked = ((Collective("all_reduce", MIB), 0.0), (Collective("all_to_all", MIB), 10 * US))
    cluster = load_cluster("dgx-h100", nodes=2)
    return simulate(asked, cluster, routing="ecmp", seed=3, conditions=HARD)


def test_equal_questions_have_equal_answers_to_the_last_byte() -> None:
    assert plain(hard()) == plain(hard())


def test_another_process_gives_the_same_answer() -> None:
    program = "from tests.test_simulation import hard, plain; print(plain(hard()))"
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert ran.stdout.strip() == plain(hard())


@pytest.mark.parametrize("nodes", [1, 2])
def test_renaming_ranks_of_equal_machines_changes_nothing(nodes: int) -> None:
    cluster, chance = machines("dgx-h100", nodes), random.Random(1)
    for operation in ("all_reduce", "all_gather", "reduce_scatter"):
        times = []
        for _ in range(2):
            ranks = tuple(
                host * 8 + gpu
                for host in chance.sample(range(nodes), nodes)
                for gpu in chance.sample(range(8), 8)
            )
            asked = Collective(operation, 8 * MIB, ranks=ranks)
            times.append(simulate(asked, cluster, RING).duration)
        assert times[1] == pytest.approx(times[0], rel=1e-6)
        own = Collective(operation, 8 * MIB)
        assert simulate(own, cluster, RING).duration == pytest.approx(times[0], rel=2 * AS_WELL)


def test_an_algorithm_of_ones_own_on_renamed_ranks() -> None:
    """A ring over an NVSwitch, in the order of the group, whichever it is."""
    cluster, chance = machines("dgx-h100"), random.Random(2)
    times = [
        simulate(
            Collective("all_gather", 8 * MIB, ranks=tuple(chance.sample(range(8), 8))),
            cluster,
            algorithm="ring",
            channels=2,
        ).duration
        for _ in range(4)
    ]
    assert times == pytest.approx([times[0]] * 4, rel=1e-9)


# ---- contention ----


@pytest.mark.parametrize(("by", "nodes"), [(None, 1), (RING, 1), (RING, 4)])
def test_two_all_reduces_on_all_links_take_twice_as_long(by: Library | None, nodes: int) -> None:
    asked, cluster = Collective("all_reduce", GIB), machines("dgx-h100", nodes)
    one, two = simulate(asked, cluster, by), simulate([asked, asked], cluster, by)
    for each in two.played:
        assert each.duration / one.duration == pytest.approx(2, rel=0.02)


def test_two_groups_without_a_link_in_common_are_not_in_each_others_way() -> None:
    cluster = machines("dgx-h100")
    halves = [Collective("all_reduce", 64 * MIB, ranks=r) for r in ((0, 1, 2, 3), (4, 5, 6, 7))]
    together = simulate(halves, cluster)
    for half, each in zip(halves, together.played, strict=True):
        assert each.duration == pytest.approx(simulate(half, cluster).duration, rel=AS_WELL)


def test_one_after_the_other_is_no_contention() -> None:
    cluster, asked = machines("dgx-h100"), Collective("all_gather", 64 * MIB)
    alone = simulate(asked, cluster, fold=False).duration
    first, second = simulate([asked, (asked, 2 * alone)], cluster).played
    assert first.duration == pytest.approx(alone, rel=1e-6)
    assert second.duration == pytest.approx(alone, rel=1e-6)
    assert second.end == pytest.approx(3 * alone, rel=1e-6)


def test_all_to_all_gets_the_cut_of_an_oversubscribed_fat_tree() -> None:
    """16 machines of 8 x 50 GB/s; leaves have 51 of their 64 ports down (4 to 1), 6 machines each:
    6, 6 and 4. Of the S bytes that each of a leaf's 8 k ranks sends, those for the 128 - 8 k ranks
    elsewhere go up, through 400 k / 4 GB/s: 8 (128 - 8 k) / 128 S / 100 GB/s, most for k = 4.
    """
    cluster = machines("dgx-h100", 16, fabric__kind="fat-tree", fabric__oversubscription=4.0)
    up = {c.source: c.bandwidth for c in cluster.wiring.cables if c.source.startswith("leaf")}
    assert up == {"leaf0": 600e9, "leaf1": 600e9, "leaf2": 400e9}
    x = simulate(Collective("all_to_all", GIB), cluster)
    cut = 8 * (128 - 32) / 128 * GIB / 100e9
    assert x.duration == pytest.approx(cut, rel=0.05)
    hottest = list(x.link_utilization)[:2]
    assert set(hottest) == {"leaf2 -> spine0", "spine0 -> leaf2"}


def test_ecmp_is_reproducible_and_never_faster_than_adaptive_routing() -> None:
    """2 to 1: five machines a leaf, 40 NICs below 1000 GB/s up, ten cables to each of two spines.
    Every rank sends to one five machines further on, on another leaf: at 25 GB/s if it is spread; a
    hash that puts m of the 40 on one cable leaves them 50 / m GB/s.
    """
    cluster = machines("dgx-h100", 24, fabric__kind="fat-tree", fabric__oversubscription=2.0)
    up = [c.bandwidth for c in cluster.wiring.cables if c.source == "leaf0"]
    assert up == [500e9, 500e9]
    ranks = tuple(8 * (5 * k % 24) + gpu for gpu in range(8) for k in range(24))
    asked = Collective("send_recv", 256 * MIB, ranks=ranks)
    adaptive = simulate(asked, cluster).duration
    assert adaptive == pytest.approx(256 * MIB / 25e9, rel=0.02)
    played = [simulate(asked, cluster, routing="ecmp", seed=seed) for seed in (0, 1, 2, 3, 0)]
    hashed = [x.duration for x in played]
    assert hashed[0] == hashed[-1]
    assert len(set(hashed)) > 1
    assert min(hashed) >= adaptive * (1 - 1e-9)
    for x in played:
        fullest = max(x.bytes_of(n) for n in x.link_utilization if "leaf" in n and "spine" in n)
        m = fullest / (256 * MIB)
        assert m == pytest.approx(round(m), rel=1e-9)
        assert m > 2
        # Not all of them wait for this way alone, so it may idle a little.
        assert 1 <= x.duration / (m * 256 * MIB / 50e9) < 1.1


def test_other_traffic_takes_its_bytes_and_leaves_the_link_free_when_it_ends() -> None:
    """64 MiB from rank 0's NIC to rank 8's, while ranks 0 and 8 exchange 1 GiB: as much longer as
    64 MiB need of 50 GB/s, whatever both got in the meantime.
    """
    cluster = machines("dgx-h100", 2)
    asked = Collective("send_recv", GIB, ranks=(0, 8), root=0)
    alone = simulate(asked, cluster).duration
    more = 64 * MIB / 50e9
    for start in (1 * MS, 5 * MS):
        other = Traffic(source=0, destination=8, nbytes=64 * MIB, start=start)
        x = simulate(asked, cluster, conditions=Conditions(traffic=(other,)))
        assert x.duration - alone == pytest.approx(more, rel=0.02)
    afterwards = Traffic(source=0, destination=8, nbytes=64 * MIB, start=2 * alone)
    x = simulate(asked, cluster, conditions=Conditions(traffic=(afterwards,)))
    assert x.duration == pytest.approx(alone, rel=1e-6)


def test_traffic_at_a_rate_takes_that_of_the_link() -> None:
    """5 of 50 GB/s all the time: what was bound by the NIC takes 1 / 0.9 as long."""
    cluster = machines("dgx-h100", 2)
    asked = Collective("send_recv", GIB, ranks=(0, 8), root=0)
    alone = simulate(asked, cluster).duration
    other = Traffic(source=0, destination=8, nbytes=GIB, rate=5e9)
    x = simulate(asked, cluster, conditions=Conditions(traffic=(other,)))
    assert x.duration == pytest.approx(alone / 0.9, rel=0.02)


def test_traffic_elsewhere_is_in_nobodys_way() -> None:
    cluster = machines("dgx-h100", 2)
    asked = Collective("all_reduce", 64 * MIB, ranks=(0, 8))
    alone = simulate(asked, cluster).duration
    elsewhere = Conditions(traffic=(Traffic(source=5, destination=13, nbytes=GIB),))
    assert simulate(asked, cluster, conditions=elsewhere).duration == alone


# ---- failures ----


def test_a_dead_rail_of_eight() -> None:
    """Its channels go to the other seven: the bytes over the network take 8/7 as long."""
    cluster, asked = machines("dgx-h100", 4), Collective("all_reduce", GIB)
    healthy = simulate(asked, cluster, RING)
    dead = simulate(asked, cluster, RING, conditions=fail("*/nic3"))
    network = closed_form(asked, cluster, RING).breakdown["transfer"]
    more = dead.duration - healthy.duration
    assert (network + more) / network == pytest.approx(8 / 7, rel=0.02)
    assert any("nic3 is not used on any machine" in note for note in dead.notes)
    assert not any("/nic3" in link for link in dead.link_utilization)


def fail(link: str, time: float = 0.0) -> Conditions:
    return Conditions(faults=(LinkFault(link=link, time=time),))


@pytest.mark.parametrize(
    "link", ["node1/nic3", "node?/nic3", "leaf3", "node1/nic3 -> leaf3", "leaf3 -> node2/nic3"]
)
def test_a_nic_dead_on_one_machine_is_left_idle_on_all(link: str) -> None:
    cluster, asked = machines("dgx-h100", 4), Collective("all_gather", 64 * MIB)
    everywhere, one = (simulate(asked, cluster, conditions=fail(each)) for each in ("*/nic3", link))
    assert one.duration == everywhere.duration


def test_without_any_nic_there_is_no_way() -> None:
    asked = Collective("all_reduce", MIB)
    with pytest.raises(UnreachableError, match="no path from gpu0 to a NIC"):
        simulate(asked, machines("dgx-h100", 2), conditions=fail("*/nic*"))
    inside = simulate(asked, machines("dgx-h100"), conditions=fail("*/nic*"))
    assert not inside.stalled


def test_a_machine_that_is_dead_is_more_than_its_nics() -> None:
    """The library could do without them, not without the GPUs that the fault means too."""
    x = simulate(Collective("all_reduce", MIB), machines("dgx-h100"), conditions=fail("node0*"))
    assert x.stalled


def test_a_schedule_whose_rounds_are_missing_is_refused() -> None:
    asked = Collective("all_gather", 64 * MIB)
    schedule = Ring(window=Window(rounds=4)).schedule(asked, 16)
    with pytest.raises(CollectiveError, match="11 rounds of the schedule are missing"):
        simulate(asked, machines("dgx-h100", 2), algorithm=schedule)


def test_a_nic_that_fails_on_the_way_stops_everybody() -> None:
    cluster, asked = machines("dgx-h100", 4), Collective("all_reduce", GIB)
    x = simulate(asked, cluster, RING, conditions=fail("node1/nic3", 3 * MS))
    assert x.stalled
    assert math.isinf(x.duration)
    assert x.to_dict()["duration_s"] is None
    reports = x.watchdog[0]
    assert {r.rank for r in reports} == set(range(32))
    for report in reports:
        assert report.cause.kind == "link"
        assert "node1/nic3" in str(report.cause.who)
        assert report.cause.time == 3 * MS
        assert report.time == pytest.approx(600, rel=1e-4)
    # What had arrived before stays: the cable carried its part of half of the time.
    assert 0 < x.bytes_of("node1/nic3 -> leaf3") < 2 * GIB / 8


def test_a_nic_that_fails_after_the_end_harms_nobody() -> None:
    cluster, asked = machines("dgx-h100", 2), Collective("all_reduce", MIB)
    x = simulate(asked, cluster, conditions=fail("node1/nic3", 1.0))
    assert x.duration == pytest.approx(simulate(asked, cluster, fold=False).duration, rel=1e-9)
    assert x.watchdog == ((),)


def test_a_rank_that_dies_is_named_by_all_others() -> None:
    cluster, asked = machines("dgx-h100", 4), Collective("all_reduce", GIB)
    dead = Conditions(deaths={9: 3 * MS}, watchdog=10.0)
    x = simulate(asked, cluster, RING, conditions=dead)
    assert x.stalled
    assert {r.rank for r in x.watchdog[0]} == set(range(32)) - {9}
    assert {(r.cause.kind, r.cause.who, r.cause.time) for r in x.watchdog[0]} == {
        ("dead", 9, 3 * MS)
    }
    assert all(r.time == pytest.approx(10, rel=1e-3) for r in x.watchdog[0])


def test_who_dies_afterwards_or_elsewhere_harms_nobody() -> None:
    cluster, asked = machines("dgx-h100", 2), Collective("all_reduce", MIB, ranks=(0, 1, 8, 9))
    healthy = simulate(asked, cluster, fold=False).duration
    for deaths in ({0: 1.0}, {5: 0.0}):
        x = simulate(asked, cluster, conditions=Conditions(deaths=deaths))
        assert x.duration == pytest.approx(healthy, rel=1e-9)


# ---- late and slow ranks ----


@pytest.mark.parametrize("by", [None, RING])
@pytest.mark.parametrize("rank", [0, 5, 31])
def test_who_comes_2_ms_late_delays_the_end_by_2_ms(by: Library | None, rank: int) -> None:
    cluster, asked = machines("dgx-h100", 4), Collective("all_reduce", GIB)
    healthy = simulate(asked, cluster, by, fold=False)
    late = simulate(asked, cluster, by, conditions=Conditions(late={rank: 2 * MS}))
    assert late.duration - healthy.duration == pytest.approx(2 * MS, rel=0.02)


def test_lateness_of_many_is_that_of_the_latest() -> None:
    cluster, asked = machines("dgx-h100"), Collective("all_reduce", MIB)
    one = simulate(asked, cluster, conditions=Conditions(late={3: 2 * MS}))
    all_ = simulate(asked, cluster, conditions=Conditions(late=dict.fromkeys(range(8), 2 * MS)))
    healthy = simulate(asked, cluster, fold=False).duration
    assert all_.duration == pytest.approx(healthy + 2 * MS, rel=1e-9)
    assert one.duration <= all_.duration * (1 + 1e-9)


def test_a_rank_slow_by_4_is_what_a_ring_waits_for() -> None:
    """All that the ring moves passes through it, and 1 GiB is little else than bytes."""
    cluster, asked = machines("dgx-h100"), Collective("all_reduce", GIB)
    healthy = simulate(asked, cluster, RING)
    slow = simulate(asked, cluster, RING, conditions=Conditions(slow={5: 4.0}))
    assert slow.duration / healthy.duration == pytest.approx(4, rel=0.02)


def test_all_slow_by_2_is_slow_by_2() -> None:
    """Software, hops and links: everything of every rank."""
    cluster = machines("dgx-h100")
    for nbytes in (8, MIB, 64 * MIB):
        asked = Collective("all_gather", nbytes)
        healthy = simulate(asked, cluster, fold=False)
        slow = simulate(asked, cluster, conditions=Conditions(slow=dict.fromkeys(range(8), 2.0)))
        assert slow.duration == pytest.approx(2 * healthy.duration, rel=1e-6)


def test_slow_by_1_changes_nothing_and_less_is_faster() -> None:
    cluster, asked = machines("dgx-h100"), Collective("all_gather", MIB)
    healthy = simulate(asked, cluster, fold=False).duration
    for factor, expected in ((1.0, healthy), (0.5, healthy)):
        slow = simulate(asked, cluster, conditions=Conditions(slow={5: factor}))
        assert slow.duration == pytest.approx(expected, rel=AS_WELL)


@pytest.mark.parametrize(
    "conditions",
    [
        Conditions(late={3: 2 * MS}),
        Conditions(late={0: 10 * US, 15: 100 * US}),
        Conditions(late={3: 50 * US}, slow={9: 2.0}, jitter=Jitter(mean=US)),
    ],
)
@pytest.mark.parametrize("operation", ["all_reduce", "all_gather", "all_to_all", "broadcast"])
def test_each_ranks_time_is_accounted_for(operation: str, conditions: Conditions) -> None:
    cluster, asked = machines("dgx-h100", 2), Collective(operation, MIB)
    x = simulate(asked, cluster, conditions=conditions)
    punctual = Conditions(slow=conditions.slow, jitter=conditions.jitter)
    y = simulate(asked, cluster, conditions=punctual, fold=False)
    ranks = split_time(x.played[0], y.played[0])
    assert [r.rank for r in ranks] == list(range(16))
    launch = x.played[0].launch
    for r in ranks:
        assert r.transferring + r.late + r.waiting == pytest.approx(r.end - r.arrival, rel=1e-9)
        assert min(r.transferring, r.late, r.waiting) >= 0
        slow = conditions.slow.get(r.rank, 1.0)
        expected = launch * slow + conditions.late.get(r.rank, 0.0)
        assert r.arrival == pytest.approx(expected, rel=1e-9)
    assert max(r.end for r in ranks) == pytest.approx(x.duration, rel=1e-9)
    late = {r.rank: r.late for r in ranks}
    assert conditions.slow or max(late.values()) > 0  # a slow rank may keep all others busy
    # Nobody waits longer for the late than the latest is late.
    assert max(late.values()) <= max(conditions.late.values()) * (1 + AS_WELL)


def test_waiting_is_not_split_against_folded_ranks() -> None:
    cluster, asked = machines("dgx-h100", 4), Collective("all_gather", 64 * MIB)
    late = simulate(asked, cluster, conditions=Conditions(late={3: MS}))
    with pytest.raises(ConditionError, match="some ranks stand for others; play it with fold"):
        split_time(late.played[0], simulate(asked, cluster).played[0])


# ---- what cannot be asked ----


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"conditions": Conditions(late={8: MS})}, ConditionError, "late: rank 8 does not exist"),
        ({"conditions": Conditions(slow={-1: 2.0})}, ConditionError, "slow: rank -1 does not"),
        ({"conditions": Conditions(deaths={99: 1.0})}, ConditionError, "deaths: rank 99 does not"),
        (
            {"conditions": Conditions(traffic=(Traffic(source=0, destination=8, nbytes=1),))},
            ConditionError,
            "traffic: rank 8 does not exist on dgx-h100; expected 0 .. 7",
        ),
        ({"conditions": fail("node9/*")}, UnknownNameError, "unknown link or device 'node9/\\*'"),
        ({"routing": "valiant"}, UnknownNameError, "routing 'valiant'.*adaptive, ecmp"),
        ({"algorithm": "rings"}, UnknownNameError, "algorithm 'rings'; did you mean 'ring'"),
        ({"algorithm": "pat"}, CollectiveError, "expected one of all_gather, reduce_scatter"),
        ({"algorithm": "ring", "channels": 0}, CollectiveError, "at least 1 part"),
    ],
)
def test_what_cannot_be_simulated(
    given: Mapping[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        simulate(Collective("all_reduce", MIB), machines("dgx-h100"), **given)


def test_there_is_something_to_simulate_and_a_time_for_it() -> None:
    cluster, asked = machines("dgx-h100"), Collective("all_reduce", MIB)
    with pytest.raises(CollectiveError, match="no collective given"):
        simulate([], cluster)
    for start in (-1.0, math.inf, math.nan):
        with pytest.raises(ConditionError, match="all_reduce: start: expected 0 s or more"):
            simulate((asked, start), cluster)
    with pytest.raises(CollectiveError, match="at least 2"):
        simulate(asked, machines("gh200"))


def test_watching_a_simulation() -> None:
    seen: list[tuple[int, int, float]] = []
    asked, cluster = Collective("all_reduce", MIB), machines("dgx-h100")
    x = simulate(asked, cluster, watch=lambda done, of, now: seen.append((done, of, now)))
    count = len(x.played[0].laid.schedule)
    assert seen[-1] == (count, count, x.played[0].end)
    assert {(done, of) for done, of, _ in seen[:-1]} == {(0, count)}  # finding the pace

    class Enough(Exception):
        pass

    def stop(done: int, of: int, now: float) -> None:
        raise Enough

    with pytest.raises(Enough):
        simulate(asked, cluster, watch=stop)


def test_start_is_where_the_clock_of_a_collective_begins() -> None:
    cluster, asked = machines("dgx-h100"), Collective("all_reduce", MIB)
    now, later = (simulate((asked, s), cluster, fold=False) for s in (0.0, 3.0))
    assert later.played[0].asked == 3.0
    assert later.duration == pytest.approx(now.duration, rel=1e-9)
    assert later.played[0].end == pytest.approx(3 + now.duration, rel=1e-12)
    ready = later.played[0].times.ready
    assert float(np.min(ready)) == pytest.approx(3 + later.played[0].launch, rel=1e-12)
