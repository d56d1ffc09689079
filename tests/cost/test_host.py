"""The cost of host-based libraries: worked by hand, its laws, and the lab's runs."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import numpy as np
import pytest

from commsim.collectives.collective import OPERATIONS, Collective
from commsim.cost.cost import Cost
from commsim.cost.host import Wires, cost, join, wires_of
from commsim.cost.profile import Constant, Profile, Spread, shipped
from commsim.libraries.gloo import Gloo
from commsim.libraries.host import HostFacts
from commsim.libraries.library import Library
from commsim.libraries.mpi import Mpi
from commsim.prediction import predict
from commsim.topology.cluster import Cluster, Fabric
from commsim.topology.load import load_cluster
from commsim.topology.node import Cpu, Gpu, Nic, NodeLink, NodeTopology
from commsim.topology.parts import GpuPart
from commsim.topology.placement import place

CONSTANTS = {
    "launch": 5e-6, "hop": 10e-6, "message": 1e-6, "byte": 1e-10, "copy_byte": 0.0,
    "reduce_byte": 0.0, "efficiency": 1.0, "overlap": 1.0, "local_hop": 1e-6,
    "local_message": 0.5e-6, "local_byte": 5e-11,
}  # fmt: skip


def profile(**changed: float) -> Profile:
    """Round constants, so that the expected numbers can be worked out by hand."""
    return Profile(
        name="round", source="this test",
        constants={
            name: Constant(value=value, unit="", meaning="", birthplace="this test")
            for name, value in (CONSTANTS | changed).items()
        },
        spreads=dict.fromkeys(
            ("latency", "middle", "bandwidth"), Spread(low=-0.1, high=0.2, points=1)
        ),
        fitted={"max_ranks": ("8",), "max_port": ("1e9",), "operation": OPERATIONS},
    )  # fmt: skip


def machines(nodes: int, ranks: int = 1, rate: float = 1e9, **fabric: object) -> Cluster:
    """CPU machines of `ranks` processes with one network port of `rate` bytes/s."""
    node = NodeTopology(
        gpus=tuple(Gpu(name=f"cpu{i}", index=i, part="CPU") for i in range(ranks)),
        nics=(Nic(name="eth0", index=0, card="eth0", rate=rate),),
    )
    settings = {"kind": "single-switch", "transport": "tcp"} | fabric
    return Cluster(
        name="machines", nodes=nodes, node=node, fabric=Fabric(**settings),  # type: ignore[arg-type]
        gpu=GpuPart(name="CPU"), interconnect="pcie-host", default_library="gloo",
    )  # fmt: skip


def price(
    library: Library, collective: Collective, cluster: Cluster, book: Profile | None = None
) -> Cost:
    choice = library.choose(collective, cluster)
    assert isinstance(choice.facts, HostFacts)
    return cost(collective, cluster, choice.chosen, choice.facts, book)


FLAT = Mpi(env={"MPIR_CVAR_NOLOCAL": "1"})


# ---- worked by hand ----


def test_gloo_ring_all_reduce() -> None:
    # 4 machines, 8 MB. 6 steps of 2 MB chunks in 2 segments: 12 sends and 12 receives.
    # launch 5 + 6 hops x 10 + 24 messages x 1 = 89 us; 12 MB sent + 12 MB received x 0.1 ns = 2.4
    # ms network 12 MB / 1 GB/s = 12 ms; no overlap (p = 1)
    found = price(Gloo(), Collective("all_reduce", 8_000_000), machines(4), profile())
    assert found.duration == pytest.approx(89e-6 + 2.4e-3 + 12e-3)
    assert dict(found.breakdown)["network"] == pytest.approx(12e-3)
    assert found.bottleneck == "a machine's network port at 1 GB/s"


def test_ranks_of_a_machine_share_its_port_only_at_the_ends_of_the_ring() -> None:
    # 2 machines x 4 ranks: 2 x 7/8 x 8 MB = 14 MB through each port, once and not four times
    found = price(Gloo(), Collective("all_reduce", 8_000_000), machines(2, 4), profile())
    assert dict(found.breakdown)["network"] == pytest.approx(14e-3)
    # rank order 0, 4, 1, 5 ... leaves each machine four times
    mixed = Collective("all_reduce", 8_000_000, ranks=(0, 4, 1, 5, 2, 6, 3, 7))
    found = price(Gloo(), mixed, machines(2, 4), profile())
    assert dict(found.breakdown)["network"] == pytest.approx(4 * 14e-3)


def test_all_to_all_sends_every_ranks_data_through_the_port() -> None:
    # 2 machines x 4 ranks, 8 MB each: 4 ranks x 4 peers x 1 MB
    found = price(Gloo(), Collective("all_to_all", 8_000_000), machines(2, 4), profile())
    assert dict(found.breakdown)["network"] == pytest.approx(16e-3)


def test_gloo_broadcast_floods_the_roots_link() -> None:
    # 8 machines, L = 3: 3 + 2 + 1 = 6 times the size through a port on the longest chain
    found = price(Gloo(), Collective("broadcast", 1_000_000), machines(8), profile())
    assert dict(found.breakdown)["network"] == pytest.approx(6e-3)
    # 4 machines x 2: the first one's 2 ranks send to 2 others each, then 1 each: 2 x (2 + 1)
    found = price(Gloo(), Collective("broadcast", 1_000_000), machines(4, 2), profile())
    assert dict(found.breakdown)["network"] == pytest.approx(6e-3)


@pytest.mark.parametrize(("n", "sizes"), [(2, 1), (3, 2), (4, 3), (5, 4), (6, 5), (7, 5), (8, 6)])
def test_gloo_broadcast_over_any_number_of_ranks(n: int, sizes: int) -> None:
    # 3: the root sends to 1 and 2. 5: to 1, 2, 4, then 1 to 3. 6: then 1 to 3 and 5. 7: so it is,
    # while 2 sends to 6 alone. Each after the other in sizes: 2, 3 + 1, 3 + 2, 3 + 2.
    found = price(Gloo(), Collective("broadcast", 1_000_000), machines(n), profile())
    assert dict(found.breakdown)["network"] == pytest.approx(sizes * 1e-3)


def test_gloo_broadcast_over_a_shared_uplink() -> None:
    # 2 machines x 3: 0 to 4, 1 to 3 and 5 cross; 3 machines x 2: 0 to 2 and 4, 1 to 3 and 5
    found = price(Gloo(), Collective("broadcast", 1_000_000), machines(2, 3), profile())
    assert dict(found.breakdown)["network"] == pytest.approx(3e-3)
    found = price(Gloo(), Collective("broadcast", 1_000_000), machines(3, 2), profile())
    assert dict(found.breakdown)["network"] == pytest.approx(4e-3)


def test_a_rank_s_own_link_may_be_the_narrowest() -> None:
    cpus = machines(2, 3)
    own = tuple(
        NodeLink(source=gpu.name, target="numa0", kind="pcie", bandwidth=0.25e9)
        for gpu in cpus.node.gpus
    )
    memory = (Cpu(name="numa0", numa=0, arch="x86_64", vendor="other"),)
    slow = replace(cpus, node=replace(cpus.node, links=own, cpus=memory))
    # a ring over 6 ranks: 2 x 5/6 x 6 MB = 10 MB over each link at 0.25 GB/s
    found = price(Gloo(), Collective("all_reduce", 6_000_000), slow, profile())
    assert dict(found.breakdown)["network"] == pytest.approx(40e-3)
    assert found.bottleneck == "a rank's own link at 0.25 GB/s"


def test_mpich_folds_ranks_beyond_a_power_of_two() -> None:
    # 3 ranks: 0 hands 1 all its data, while 2 sends 1 its half: 1.5 sizes into 1. Then 1 sends 2
    # its half, they exchange halves, and 0 gets the result: 0.5 + 0.5 + 1. 6 ranks fold two pairs,
    # whose first exchange is with each other: 1 + (0.5 + 0.25) x 2 + 1.
    for n, sizes in ((3, 3.5), (6, 3.5), (5, 4.0), (4, 1.5)):
        found = price(FLAT, Collective("all_reduce", 1_000_000), machines(n), profile())
        assert dict(found.breakdown)["network"] == pytest.approx(sizes * 1e-3), n


def test_mpich_reduces_over_ranks_beyond_a_power_of_two() -> None:
    # 3 ranks: 1.5 sizes into 1 as before, its half to 2, and a half to the root: nothing goes back
    for n, sizes in ((3, 2.5), (4, 1.5)):
        found = price(FLAT, Collective("reduce", 1_000_000), machines(n), profile())
        assert dict(found.breakdown)["network"] == pytest.approx(sizes * 1e-3), n


def test_torch_copies_what_gloo_gathered() -> None:
    # at 1 ns a byte: the own MB into a buffer of torch's, all 4 from there to the caller's; an
    # all_reduce is in place
    book = profile(copy_byte=1e-9)
    found = price(Gloo(), Collective("all_gather", 4_000_000), machines(4), book)
    assert dict(found.breakdown)["copying"] == pytest.approx(5e-3)
    found = price(Gloo(), Collective("all_reduce", 4_000_000), machines(4), book)
    assert dict(found.breakdown)["copying"] == 0


def test_few_cores_copy_in_turns() -> None:
    # 5 ranks on 2 cores: the last has waited twice, with its own MB before and all 5 after
    asked, where = Collective("all_gather", 5_000_000), machines(5)
    choice = Gloo().choose(asked, where)
    assert isinstance(choice.facts, HostFacts)
    wires = Wires(port=1e9, cores=2)
    book = profile(copy_byte=1e-9)
    found = cost(asked, where, choice.chosen, choice.facts, book, wires)
    assert dict(found.breakdown)["copying"] == pytest.approx(3 * 6e-3)


def test_a_word_of_readiness_waits_behind_what_was_sent_before() -> None:
    # 4 ranks, 4 MB: 3 MB through a port at 1 GB/s, and 50 kB ahead; no more than a chunk of 1 kB
    book = profile(queue=50_000.0)
    found = price(Gloo(), Collective("all_gather", 4_000_000), machines(4), book)
    assert dict(found.breakdown)["network"] == pytest.approx(3.05e-3)
    found = price(Gloo(), Collective("all_gather", 4_000), machines(4), book)
    assert dict(found.breakdown)["network"] == pytest.approx(4e-6)


def test_ranks_behind_one_port_copy_one_after_the_other() -> None:
    # 2 machines x 3 on 2 cores: first six copy 1 MB each in three turns; at the end two at once, so
    # nobody waits
    asked, where = Collective("all_gather", 6_000_000), machines(2, 3)
    choice = Gloo().choose(asked, where)
    assert isinstance(choice.facts, HostFacts)
    found = cost(
        asked, where, choice.chosen, choice.facts, profile(copy_byte=1e-9), Wires(port=1e9, cores=2)
    )
    assert dict(found.breakdown)["copying"] == pytest.approx(3 * 1e-3 + 6e-3)


def test_what_comes_in_is_acknowledged_through_the_same_port() -> None:
    # a ring sends and receives 6 MB, and 1 % of that as acknowledgements; one message gets none
    book = profile(acknowledgements=0.01)
    found = price(Gloo(), Collective("all_reduce", 4_000_000), machines(4), book)
    assert dict(found.breakdown)["network"] == pytest.approx(6.06e-3)
    one = Collective("send_recv", 1_000_000, ranks=(0, 1), root=0)
    found = price(Gloo(), one, machines(2), book)
    assert dict(found.breakdown)["network"] == pytest.approx(1e-3)


def test_mpich_broadcasts_one_child_after_the_other_and_then_scatters() -> None:
    # 4 ranks: binomial, 2 sends of 1 MB; 8 ranks: scatter 7/8 + ring all-gather 7/8
    found = price(FLAT, Collective("broadcast", 1_000_000), machines(4), profile())
    assert dict(found.breakdown)["network"] == pytest.approx(2e-3)
    found = price(FLAT, Collective("broadcast", 1_000_000), machines(8), profile())
    assert dict(found.breakdown)["network"] == pytest.approx(1.75e-3)


def test_mpich_rabenseifner_with_latency() -> None:
    # 8 ranks, 8 MB: 6 rounds; launch 5 + 6 x 10 + 12 messages = 77 us; 2 x 14 MB x 0.1 ns = 2.8 ms
    found = price(FLAT, Collective("all_reduce", 8_000_000), machines(8), profile())
    assert found.duration == pytest.approx(77e-6 + 2.8e-3 + 14e-3)


def test_a_barrier_moves_no_bytes() -> None:
    # 8 ranks: 3 rounds, 3 sends and 3 receives
    found = price(Gloo(), Collective("barrier", 1 << 30), machines(8), profile())
    assert found.duration == pytest.approx(5e-6 + 3 * 10e-6 + 6e-6)


def test_one_way_message() -> None:
    one = Collective("send_recv", 1_000_000, ranks=(0, 1), root=0)
    found = price(Gloo(), one, machines(2), profile())
    assert found.duration == pytest.approx(5e-6 + 10e-6 + 1e-6 + 0.1e-3 + 1e-3)


def test_overlap_joins_between_the_larger_and_the_sum() -> None:
    assert join(3.0, 4.0, 1.0) == pytest.approx(7.0)
    assert join(3.0, 4.0, 2.0) == pytest.approx(5.0)
    assert join(3.0, 4.0, 1e3) == pytest.approx(4.0)
    assert join(0.0, 4.0, 2.0) == 4.0


def test_both_ways_over_one_connection_delays_gloo() -> None:
    book = profile(**{"duplex.linear.all_to_all": 1.0, "duplex_decay": 0.5})
    everyone = Collective("all_to_all", 5_000_000)
    found = [price(Gloo(), everyone, machines(n), book) for n in (2, 5)]
    network = [dict(each.breakdown)["network"] for each in found]
    # 2.5 MB x (1 + 1) and 4 MB x (1 + 4^-0.5)
    assert network == pytest.approx([5e-3, 6e-3])


def test_gpu_buffers_go_through_the_host_and_cpu_buffers_do_not() -> None:
    gpus = load_cluster("dgx-h100")
    staging = wires_of(gpus, place(gpus, None), None, 1).staging
    found = price(Gloo(), Collective("all_gather", 8 << 20), gpus)
    # the rank's own MiB in, all 8 MiB out
    assert dict(found.breakdown)["staging"] == pytest.approx((9 << 20) / staging)
    assert 10e9 < staging <= 64e9  # a PCIe 5.0 x16 link or part of one
    assert (
        dict(price(Gloo(), Collective("all_gather", 8 << 20), machines(4)).breakdown)["staging"]
        == 0
    )


def test_an_oversubscribed_fabric_slows_what_crosses_its_middle() -> None:
    name = {"fabric.kind": "fat-tree", "fabric.oversubscription": 4.0}
    plain, thin = load_cluster("dgx-h100", nodes=128), load_cluster("dgx-h100", nodes=128, **name)
    half = tuple(range(512)), tuple(range(512, 1024))
    assert thin.cut_bandwidth(*half) < plain.cut_bandwidth(*half)
    wires = wires_of(thin, place(thin, None), None, 1)
    assert wires.cut == pytest.approx(thin.cut_bandwidth(*half) * wires.port / 400e9)
    # half of the 1,024 ranks send half of their data across
    found = price(Gloo(), Collective("all_to_all", 1 << 30), thin, profile())
    assert dict(found.breakdown)["network"] == pytest.approx(256 * (1 << 30) / wires.cut)
    assert "the fabric between halves of the machines" in found.bottleneck


# ---- laws ----

CLUSTERS = [
    machines(2), machines(3), machines(5, 3), machines(8, 4), machines(1, 7),
    load_cluster("dgx-h100"), load_cluster("dgx-h100", nodes=2), load_cluster("dgx-h100", nodes=7),
    load_cluster("dgx-h100", nodes=64, **{"fabric.kind": "torus"}),
    load_cluster("dgx-h100", nodes=64, **{"fabric.kind": "dragonfly"}),
    load_cluster("dgx-h100", nodes=64, **{"fabric.transport": "efa"}),
    load_cluster("dgx-h100", nodes=2048),
]  # fmt: skip
LIBRARIES = [Gloo(), Mpi(), FLAT, Mpi(version="mpich@4.2")]
SIZES = [0, 1, 8, 1000, 4096, 1 << 16, 1 << 20, (1 << 20) + 4, 1 << 24, 1 << 30, 1 << 34]


def least_through_a_port(operation: str, size: float, n: int, k: int) -> float:
    """Bytes that some machine must send or receive whatever the algorithm: k of n ranks lie on
    it."""
    away = (n - k) / n
    return {
        "all_reduce": 2 * away * size, "all_gather": away * size, "reduce_scatter": away * size,
        "gather": away * size, "scatter": away * size, "all_to_all": k * away * size, "barrier": 0,
    }.get(operation, size)  # fmt: skip


@pytest.mark.parametrize("cluster", CLUSTERS, ids=lambda c: f"{c.name}-{c.nodes}-{c.fabric.kind}")
@pytest.mark.parametrize("library", LIBRARIES, ids=lambda x: f"{x.name}-{len(x.env)}-{x.version}")
def test_laws(library: Library, cluster: Cluster) -> None:
    at = place(cluster, None)
    for operation in OPERATIONS:
        before: dict[str, float] = {}
        for size in SIZES:
            collective = Collective(operation, size)
            choice = library.choose(collective, cluster)
            assert isinstance(choice.facts, HostFacts)
            found = cost(collective, cluster, choice.chosen, choice.facts)
            assert 0 < found.duration < math.inf
            assert sum(s for _, s in found.breakdown) == pytest.approx(found.duration)
            assert all(seconds >= 0 for _, seconds in found.breakdown)
            assert found.spread[0] < 0 < found.spread[1]
            if at.hosts > 1:
                bytes_ = least_through_a_port(operation, size, at.n, at.max_per_host)
                assert found.duration >= bytes_ / cluster.node.nics[0].rate
            name = choice.chosen.algorithm
            assert found.duration >= before.get(name, 0.0), (operation, size)
            before[name] = found.duration


@pytest.mark.parametrize("library", [Gloo(), FLAT], ids=["gloo", "mpi"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_slower_ports_are_never_faster(library: Library, operation: str) -> None:
    times = [
        price(library, Collective(operation, 1 << 20), machines(4, 2, rate)).duration
        for rate in (1e10, 1e9, 1e8, 1e7)
    ]
    assert times == sorted(times)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_groups_of_any_shape_are_answered(operation: str) -> None:
    cluster = load_cluster("dgx-h100", nodes=4)
    for ranks in ((0, 1), (0, 31), (3, 9, 27), (0, 8, 16, 24), (0, 1, 2, 8), (31, 0, 17, 5, 2)):
        for library in LIBRARIES:
            found = price(library, Collective(operation, 1 << 20, ranks=ranks), cluster)
            assert 0 < found.duration < math.inf


@pytest.mark.parametrize("library", [Gloo(), Mpi()], ids=["gloo", "mpi"])
def test_a_prediction_s_interval_is_e_to_the_spread(library: Library) -> None:
    cluster = load_cluster("dgx-h100", nodes=2)
    p = predict(Collective("all_reduce", 1 << 20), cluster, library, profile())
    doubts = len(p.cost.extrapolated)
    assert doubts == 3  # 16 ranks, a port of 50 GB/s, copies from and to the GPUs
    assert p.cost.spread == pytest.approx((-0.3375, 0.675))  # -0.1 and 0.2 times 1.5^3
    assert p.interval[0] == pytest.approx(p.duration * 0.713552, rel=1e-5)  # e^-0.3375
    assert p.interval[1] == pytest.approx(p.duration * 1.964033, rel=1e-5)  # e^0.675
    q = predict(Collective("all_reduce", 1 << 20), cluster, library)
    low, high = q.cost.spread
    ends = {(s.low, s.high) for s in shipped(library.name).spreads.values()}
    widened = 1.5 ** len(q.cost.extrapolated)
    assert any((low, high) == pytest.approx((a * widened, b * widened)) for a, b in ends)


def test_every_doubt_widens_the_interval() -> None:
    known = price(Gloo(), Collective("all_reduce", 1 << 20), machines(8), profile())
    assert not known.extrapolated
    assert known.spread == pytest.approx((-0.1, 0.2))
    faster = price(Gloo(), Collective("all_reduce", 1 << 20), machines(9, 1, 2e9), profile())
    assert len(faster.extrapolated) == 2  # 9 ranks, 2 GB/s
    assert faster.spread == pytest.approx((-0.1 * 1.5**2, 0.2 * 1.5**2))


@pytest.mark.parametrize("library", [Gloo(), Mpi()], ids=["gloo", "mpi"])
def test_a_warm_answer_takes_under_a_millisecond(library: Library) -> None:
    cluster = load_cluster("dgx-h100", nodes=2048)
    for operation in OPERATIONS:
        taken = []
        for _ in range(20):
            start = time.process_time()
            price(library, Collective(operation, 1 << 20), cluster)
            taken.append(time.process_time() - start)
        assert min(taken) < 1e-3


# ---- against the lab ----


@pytest.mark.parametrize(("name", "rows"), [("gloo", 287), ("mpi", 28)])
def test_held_out_runs_are_within_ten_percent(name: str, rows: int) -> None:
    lab = pytest.importorskip("validation.fit_host", reason="run from the repository's root")
    backend = {"gloo": "gloo", "mpi": "mpich"}[name]
    train, held = lab.split([row for row in lab.read() if row.backend == backend])
    assert not set(train) & set(held)
    large = [row for row in held if row.nbytes >= 256 * 1024]
    k = dict(shipped(name).values(())) | {"lab_start": 0.0}
    off = np.abs(np.expm1(-lab.errors(large, k)))
    assert len(large) == rows
    assert np.median(off) < 0.1


@pytest.mark.parametrize("op", ["all_reduce", "broadcast", "all_gather", "send_recv"])
def test_held_out_bulk_transfers_are_within_two_percent(op: str) -> None:
    lab = pytest.importorskip("validation.fit_host", reason="run from the repository's root")
    _, held = lab.split([row for row in lab.read() if row.backend == "gloo"])
    large = [row for row in held if row.nbytes >= 4 << 20 and row.op == op]
    off = np.abs(np.expm1(-lab.errors(large, dict(shipped("gloo").values(())))))
    assert len(large) == 21
    assert np.median(off) < 0.02


def test_constants_say_where_they_come_from() -> None:
    for name in ("gloo", "mpi"):
        for constant in shipped(name).constants.values():
            assert "validation/published/gloo_lab.csv" in constant.birthplace
            assert constant.meaning
