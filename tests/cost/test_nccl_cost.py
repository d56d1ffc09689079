"""The cost of NCCL's and RCCL's operations: where it goes, its floors, its doubts, plugins."""

from __future__ import annotations

import math

import pytest

from commsim.collectives.collective import OPERATIONS, Collective
from commsim.cost.bound import bound
from commsim.cost.calibrated import regime
from commsim.cost.cost import Cost
from commsim.cost.family import BOOST_GHZ, TYPICAL_GHZ
from commsim.cost.nccl import SINGLE_LAUNCH, cost
from commsim.cost.profile import Constant, Profile, Spread, shipped
from commsim.libraries.nccl import plugin
from commsim.libraries.nccl.facts import NcclFacts
from commsim.libraries.nccl.nccl import Nccl
from commsim.prediction import Prediction, predict
from commsim.topology.cluster import Cluster
from commsim.topology.load import load_cluster
from commsim.topology.placement import place

SIZES = (8, 1 << 16, 1 << 20, 1 << 24, 1 << 30)
KIB, MIB = 1 << 10, 1 << 20


def ask(
    preset: str, operation: str, nbytes: int, nodes: int = 1, *, profile: Profile | None = None,
    launch: str = "processes", env: dict[str, str] | None = None,
) -> Prediction:  # fmt: skip
    cluster = load_cluster(preset, nodes=nodes)
    library = Nccl(env=env, launch=launch)
    return predict(Collective(operation, nbytes=nbytes), cluster, library, profile)


def all_candidates(p: Prediction) -> list[Cost]:
    assert isinstance(p.choice.facts, NcclFacts)
    return [
        cost(p.collective, p.cluster, c, p.choice.facts, p.profile)
        for c in p.choice.candidates
        if c.available
    ]


# ---- where the time goes ----


@pytest.mark.parametrize("nodes", [1, 2, 16])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_parts_of_every_candidate_sum_to_its_duration(operation: str, nodes: int) -> None:
    for nbytes in SIZES:
        for found in all_candidates(ask("dgx-h100", operation, nbytes, nodes)):
            parts = dict(found.breakdown)
            assert sum(parts.values()) == pytest.approx(found.duration, rel=1e-12)
            assert {"launch", "hops", "transfer"} <= set(parts)
            assert min(parts.values()) >= 0


def test_the_bottleneck_names_what_binds() -> None:
    assert ask("dgx-h100", "all_reduce", 8, env={"NCCL_ALGO": "Tree"}).bottleneck != ""
    inside = ask("dgx-h100", "all_reduce", 1 << 32).bottleneck
    assert "nvlink" in inside
    assert "GB/s" in inside
    outside = ask("dgx-h100", "all_reduce", 1 << 32, 4).bottleneck
    assert "8 NICs of 50 GB/s (infiniband)" in outside
    assert "hops" in ask("dgx-h100", "all_reduce", 8, 128).bottleneck


@pytest.mark.parametrize(
    ("preset", "bandwidth", "nics"),
    [
        ("dgx-a100", 200.0, True),  # 8 x 25 GB/s below 240 GB/s that NCCL counts of NVLink
        ("alps", 100.0, True),  # 4 x 25 GB/s below 450 GB/s of NVLink
        ("rtx-pro-6000x8", 200.0, False),  # 4 x 50 GB/s above 64 GB/s of PCIe Gen5
    ],
)
def test_twice_the_bottleneck_is_faster_and_twice_another_is_not(
    preset: str, bandwidth: float, nics: bool
) -> None:
    base = load_cluster(preset, nodes=3)
    assert sum(nic.rate for nic in base.node.nics) == pytest.approx(bandwidth * 1e9)
    p = ask(preset, "all_gather", 1 << 32, 3)
    assert ("NIC" in p.bottleneck) is nics
    assert p.breakdown["transfer"] > 0.9 * p.duration
    rate = base.node.nics[0].rate * 2 * 8 / 1e9
    twice = load_cluster(preset, nodes=3, **{"node.nics.rate": f"{rate:g}Gbit/s"})
    q = predict(p.collective, twice, p.library)
    assert (p.duration / q.duration > 1.1) is nics
    assert p.duration >= q.duration * (1 - 1e-9)


def test_few_channels_are_slow() -> None:
    """One block of an H100 moves some 20 to 40 GB/s, the 36.7 of NCCL's own table among them
    (src/graph/tuning.cc); all of them together what the links carry."""

    def bandwidth(**env: str) -> float:
        given = {"NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple", **env}
        return ask("dgx-h100", "all_reduce", 1 << 30, env=given).bus_bandwidth

    assert 20e9 < bandwidth(NCCL_MAX_NCHANNELS="1") < 40e9
    assert bandwidth(NCCL_MAX_NCHANNELS="4") == pytest.approx(
        4 * bandwidth(NCCL_MAX_NCHANNELS="1"), rel=0.1
    )
    assert bandwidth(NCCL_MAX_NCHANNELS="32") == bandwidth()
    few = ask("dgx-h100", "all_to_all", 1 << 30, env={"NCCL_MAX_NCHANNELS": "1"})
    assert few.bus_bandwidth < 0.5 * ask("dgx-h100", "all_to_all", 1 << 30).bus_bandwidth


def test_a_slow_nic_does_not_slow_links_inside() -> None:
    """The search keeps a ring at its NIC's pace; a tree's local part has PCIe's own."""
    slow = {"node.nics.rate": "10Gbit/s", "node.nics.count": 1}
    times = {}
    for preset in ("l40sx8", "dgx-a100"):
        cluster = load_cluster(preset, nodes=2, **slow)
        library = Nccl(env={"NCCL_ALGO": "Tree", "NCCL_PROTO": "Simple"})
        times[preset] = predict(Collective("all_reduce", nbytes=1 << 30), cluster, library).duration
    # a tree's S over 1.25 GB/s, whatever joins the GPUs
    assert min(times.values()) > (1 << 30) / 1.25e9
    assert times["l40sx8"] == pytest.approx(times["dgx-a100"], rel=0.05)


def test_a_lone_gpu_uses_the_nics_that_its_ring_has() -> None:
    # a DGX A100's first GPU has two NICs of 25 GB/s behind its switch; NCCL's rings take one
    p = predict(
        Collective("all_reduce", nbytes=1 << 30, ranks=(0, 8)), load_cluster("dgx-a100", nodes=2)
    )
    facts = p.choice.facts
    assert isinstance(facts, NcclFacts)
    assert {nic for pair in facts.communicator.ring.nets for nic in pair} == {0}
    assert p.duration >= (1 << 30) / 25e9


def round_profile(**changed: float) -> Profile:
    """The shipped constants without fitted factors: those of this test, else 0 or 1."""
    zero = {"s": 0.0}
    values = {name: zero.get(c.unit, 1.0) for name, c in shipped("nccl").constants.items()}
    return Profile(
        name="round", source="this test",
        constants={
            name: Constant(value=value, unit="", meaning="", birthplace="this test")
            for name, value in (values | changed).items()
        },
        spreads={"all": Spread(low=-0.1, high=0.2, points=1)},
        fitted={},
    )  # fmt: skip


def test_an_ideal_ring_by_hand() -> None:
    # All latencies 0, all shares 1, no copy, no fill: all_gather on 4 DGX A100 moves 31/32 of S
    # through each machine's 200 GB/s (8 x 25), and that is the slowest part.
    changed = {
        "ring.copy.simple": 0.0, "ring.fill": 0.0, "ring.start": 0.0, "ring.store": 0.0,
        "wire": 0.0,
    }  # fmt: skip
    profile = round_profile(**changed)
    p = ask("dgx-a100", "all_gather", 1 << 32, 4, profile=profile, env={"NCCL_PROTO": "Simple"})
    assert p.algorithm == "ring"
    assert p.duration == pytest.approx((1 << 32) * 31 / 32 / 200e9, rel=1e-9)


def test_hops_of_a_ring_by_hand() -> None:
    # 4 machines of 8: all_reduce makes 2 x 31 hops, 2 x 4 of them over the network. LL of 8 bytes
    # transfers nothing to speak of: 54 x 2 + 8 x (10 + 1.5 of InfiniBand) = 200 us, and the launch.
    values = {
        "base": 1e-6, "hop.ll": 2e-6, "net.ll": 10e-6, "hop.ll.tiny": 0.0, "overlap.ll": 1.0,
    }  # fmt: skip
    env = {"NCCL_ALGO": "Ring", "NCCL_PROTO": "LL"}
    p = ask("dgx-h100", "all_reduce", 8, 4, profile=round_profile(**values), env=env)
    assert p.breakdown["hops"] == pytest.approx(200e-6)
    assert p.breakdown["launch"] == pytest.approx(1e-6 * TYPICAL_GHZ / BOOST_GHZ["hopper"])
    assert p.breakdown["transfer"] < 1e-8


# ---- floors ----


def test_one_thread_launching_on_all_gpus_takes_its_time() -> None:
    # 6 us a GPU: 8 GPUs no faster than 48 us, however little there is to send.
    for nbytes in (8, 1024):
        each = ask("dgx-h100", "all_reduce", nbytes)
        single = ask("dgx-h100", "all_reduce", nbytes, launch="single")
        assert each.duration < single.duration
        assert single.duration == pytest.approx(max(each.duration, 48e-6))
        assert sum(single.breakdown.values()) == pytest.approx(single.duration)
    # Where there is much to send it hides behind it; with 4 GPUs a machine there are 4 launches.
    large = ask("dgx-h100", "all_reduce", 1 << 30)
    assert ask("dgx-h100", "all_reduce", 1 << 30, launch="single").duration == large.duration
    assert ask("alps", "all_reduce", 8, launch="single").duration >= 4 * SINGLE_LAUNCH


def test_nothing_is_faster_than_its_cut() -> None:
    # Constants that would give a machine twice its NICs' rate are stopped by the bound.
    # Alps: 4 x 200 Gbit/s a machine, well below its NVLinks.
    cluster = load_cluster("alps", nodes=4)
    for operation in ("all_gather", "reduce_scatter", "all_reduce"):
        slow, fast = (
            ask("alps", operation, 1 << 34, 4, profile=round_profile(nic=nic)) for nic in (0.5, 2.0)
        )
        least = bound(fast.collective, cluster, place(cluster, None))
        assert fast.duration == least
        assert sum(fast.breakdown.values()) == pytest.approx(least)
        assert slow.duration > 1.5 * least


# ---- how far it can be trusted ----


def test_regimes() -> None:
    sizes = (0, 64 * KIB, 64 * KIB + 1, 16 * MIB - 1, 16 * MIB)
    assert [regime(n) for n in sizes] == ["latency", "latency", "middle", "middle", "bandwidth"]


def test_the_interval_is_the_profile_s_quantiles_of_the_logarithm() -> None:
    spread = shipped("nccl").spreads["one node/bandwidth"]
    p = ask("dgx-h100", "all_reduce", 1 << 30)
    assert p.cost.extrapolated == ()
    assert p.interval[0] == pytest.approx(p.duration * math.exp(spread.low))
    assert p.interval[1] == pytest.approx(p.duration * math.exp(spread.high))


def width(p: Prediction) -> float:
    return math.log(p.interval[1] / p.interval[0])


@pytest.mark.parametrize(
    ("far", "near", "doubt"),
    [
        (("dgx-h100", "all_reduce", 512), ("dgx-h100", "all_reduce", 4), "512 nodes"),
        (("dgx-h100", "gather", 4), ("dgx-h100", "all_to_all", 4), "no measurement of gather"),
        (("rtx-pro-6000x8", "all_reduce", 1), ("l40sx8", "all_reduce", 1), "blackwell-pcie"),
    ],
)
def test_what_was_never_measured_widens_the_interval_and_says_so(
    far: tuple[str, str, int], near: tuple[str, str, int], doubt: str
) -> None:
    # 16 MiB: far enough from the bound, below which no interval reaches
    known, unknown = (ask(preset, op, 1 << 24, nodes) for preset, op, nodes in (near, far))
    assert known.cost.extrapolated == ()
    (sentence,) = unknown.cost.extrapolated
    assert doubt in sentence
    assert sentence in unknown.notes
    assert width(unknown) == pytest.approx(1.5 * width(known))


def test_two_doubts_widen_more_than_one() -> None:
    one = ask("dgx-h100", "all_reduce", 1 << 28, 512)
    two = ask("dgx-h100", "gather", 1 << 28, 512)
    assert len(two.cost.extrapolated) == 2
    assert width(two) == pytest.approx(1.5 * width(one))


# ---- network plugins ----


def test_efa_shows_four_cards_under_a_switch_as_one_device() -> None:
    # p5.48xlarge: 32 x 100 Gbit/s, four beside each GPU: 8 devices of 400 Gbit/s.
    node = load_cluster("aws-p5").node
    assert [nic.rate for nic in node.nics] == [12.5e9] * 32
    seen = plugin.seen(node, "efa")
    assert [nic.rate for nic in seen.nics] == [50e9] * 8
    assert [nic.index for nic in seen.nics] == list(range(8))
    assert {gpu.name for gpu in seen.gpus} == {gpu.name for gpu in node.gpus}
    ends = {link.source for link in seen.links} | {link.target for link in seen.links}
    assert all((nic.card in ends) == (nic.name in {n.name for n in seen.nics}) for nic in node.nics)
    assert plugin.seen(node, "infiniband") == node


def test_one_card_for_each_switch_stays_as_it_is() -> None:
    node = load_cluster("aws-p4d").node  # four cards, four switches
    assert plugin.seen(node, "efa") == node


def choices(cluster: Cluster, **env: str) -> set[tuple[str, str]]:
    library = Nccl(env=env)
    return {
        (p.algorithm, p.protocol)
        for nbytes in SIZES
        for p in [predict(Collective("all_reduce", nbytes=nbytes), cluster, library)]
    }


@pytest.mark.parametrize(
    ("preset", "algorithms"), [("gcp-a3-high", {"ring"}), ("gcp-a3-mega", {"ring", "tree"})]
)
def test_tcpx_settings_are_noted_and_can_be_overridden(preset: str, algorithms: set[str]) -> None:
    cluster = load_cluster(preset, nodes=4)
    assert {algorithm for algorithm, _ in choices(cluster)} <= algorithms
    assert {protocol for _, protocol in choices(cluster)} == {"Simple"}
    p = predict(Collective("all_reduce", nbytes=8), cluster)
    assert any("NCCL_PROTO=Simple" in note and "override" in note for note in p.notes)
    # LL in spite of the plugin's documentation; what is not said stays.
    own = choices(cluster, NCCL_PROTO="LL", NCCL_ALGO="Tree")
    assert own == {("tree", "LL")}
    q = predict(Collective("all_reduce", nbytes=8), cluster, Nccl(env={"NCCL_PROTO": "LL"}))
    assert q.protocol == "LL"
    assert not any("NCCL_PROTO=Simple" in note for note in q.notes)
    assert any("NCCL_NVLS_ENABLE=0" in note for note in q.notes)


def test_a_plugin_sets_nothing_where_no_network_is_used() -> None:
    one = predict(Collective("all_reduce", nbytes=1 << 30), load_cluster("gcp-a3-high"))
    assert one.algorithm == "nvls"
    assert not any("plugin" in note for note in one.notes)
