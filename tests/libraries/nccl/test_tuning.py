"""NCCL's estimate and choice against figures computed apart from this program."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from functools import cache

import pytest

from commsim.collectives.collective import Collective
from commsim.errors import LibraryError
from commsim.libraries.nccl import launch, rules, tuning
from commsim.libraries.nccl.constants import Version, constants, modelled, parse_version
from commsim.libraries.nccl.environment import freeze, read
from commsim.libraries.nccl.facts import NcclFacts
from commsim.libraries.nccl.graph import Communicator, PathType
from commsim.libraries.nccl.nccl import Nccl
from commsim.topology.load import load_cluster
from tests.libraries.nccl.vectors import nominal, oracle, rows

OPERATIONS = ("broadcast", "reduce", "all_gather", "reduce_scatter", "all_reduce")
SAME = {"all_reduce": (), "all_gather": ("reduce_scatter",), "broadcast": ("reduce",)}
V2307: Version = (2, 30, 7)


@cache
def usable(
    c: Communicator, version: Version, operation: str, dtype: str = "float32"
) -> tuple[tuning.Entry, ...]:
    table = tuning.table(c, version, read((), version), operation)
    return tuple(
        e
        for e in table
        if e.bandwidth and not rules.unsupported(c, version, operation, e.algorithm, dtype, "sum")
    )


def entry_of(entries: tuple[tuning.Entry, ...], algorithm: str, protocol: str) -> tuning.Entry:
    return next(e for e in entries if (e.algorithm, e.protocol) == (algorithm, protocol))


def pick(
    c: Communicator, version: Version, operation: str, nbytes: int
) -> tuple[tuning.Entry, float]:
    entries = usable(c, version, operation)
    times = [tuning.estimate_us(c, version, operation, e, nbytes) for e in entries]
    best = min(range(len(times)), key=times.__getitem__)
    return entries[best], times[best]


# --- the machines' own answers: NCCL 2.30.7's host code ---


def test_every_table_entry_of_nccl_2307() -> None:
    told = {
        (r["topo"], r["nodes"], r["coll"], r["algo"], r["proto"]): (
            float(r["latency_us"]),
            float(r["bandwidth_gbps"]),
        )
        for r in rows("nccl_vectors_oracle_tables")
    }
    ours = {}
    for r in rows("nccl_vectors_oracle_comm"):
        c = oracle(r["topo"], r["nodes"])
        for operation in OPERATIONS:
            for e in tuning.table(c, V2307, read((), V2307), operation):
                if e.bandwidth:
                    key = (r["topo"], r["nodes"], operation, e.algorithm, e.protocol.lower())
                    ours[key] = (e.latency, e.bandwidth)
                else:
                    assert e.reason
    assert set(ours) == set(told)
    assert len(told) == 1191
    for key, values in told.items():
        assert ours[key] == pytest.approx(values, rel=2e-7), key


def test_every_choice_of_nccl_2307() -> None:
    settings, checked = read((), V2307), 0
    for r in rows("nccl_vectors_oracle_selection"):
        c, operation, size = oracle(r["topo"], r["nodes"]), r["coll"], int(r["first"])
        picks = itertools.chain.from_iterable(
            [p] * int(count) for count, _, p in (w.partition("x") for w in r["picks"].split())
        )
        for wanted, time in zip(picks, r["times_us"].split(), strict=True):
            nbytes = size // c.n * c.n if operation in ("all_gather", "reduce_scatter") else size
            entry, ours = pick(c, V2307, operation, nbytes)
            on = launch.launch(
                c, V2307, settings, operation, entry.algorithm, entry.protocol, nbytes
            )
            found = f"{entry.algorithm}/{entry.protocol.lower()}/{on.most}/{on.threads // 32}"
            assert found == wanted, (r["topo"], r["nodes"], operation, nbytes)
            assert ours == pytest.approx(float(time), rel=1e-6)
            assert 1 <= on.channels <= on.most
            size, checked = 2 * size, checked + 1
    assert checked == 10932


# --- releases 2.18 to 2.30: figures from the published formulae ---


@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "broadcast"])
def test_picks_by_release(collective: str) -> None:
    wrong = []
    for r in rows("nccl_vectors"):
        if r["collective"] != collective:
            continue
        c, version = nominal(r["system"], int(r["nodes"]), r["version"])
        for operation in (collective, *SAME[collective]):
            if operation == "reduce" and version < (2, 21, 0):
                continue
            entry, time = pick(c, version, operation, int(r["nbytes"]))
            if (entry.algorithm, entry.protocol) != (r["algorithm"], r["protocol"]) or abs(
                time - float(r["time_us"])
            ) > 0.006 + 2e-6 * time:
                wrong.append((operation, *r.values(), entry.algorithm, entry.protocol, time))
    assert not wrong


def test_tables_by_release() -> None:
    for r in rows("nccl_vectors_tables"):
        c, version = nominal(r["system"], int(r["nodes"]), r["version"])
        entry = next(
            e
            for e in usable(c, version, r["collective"])
            if (e.algorithm, e.protocol) == (r["algorithm"], r["protocol"])
        )
        assert entry.latency == pytest.approx(float(r["latency_us"]), abs=0.0051), r
        assert entry.bandwidth == pytest.approx(float(r["bandwidth_gb_per_s"]), abs=0.0051), r


def test_every_candidate_of_one_case() -> None:
    c, version = nominal("H100x8", 2, "2.27.7")
    entries = {(e.algorithm, e.protocol): e for e in usable(c, version, "all_reduce")}
    lines = rows("nccl_vectors_candidates")
    assert set(entries) == {(r["algorithm"], r["protocol"]) for r in lines}
    for r in lines:
        entry = entries[r["algorithm"], r["protocol"]]
        time = tuning.estimate_us(c, version, "all_reduce", entry, int(r["nbytes"]))
        assert time == pytest.approx(float(r["time_us"]), rel=1e-6, abs=0.0101), r
        if r["chosen"] == "1":
            assert pick(c, version, "all_reduce", int(r["nbytes"]))[0] is entry


def test_ring_simple_by_hand() -> None:
    # 16 nodes of 8 H100, 2.27: 8 channels x 48 GB/s x 128/254; 254 steps, 30 over the network;
    # (8.4 + 224 x 3.4 + 30 x 14) x 1.4 us of latency.
    c, version = nominal("H100x8", 16, "2.27.7")
    entry = entry_of(usable(c, version, "all_reduce"), "ring", "Simple")
    time = tuning.estimate_us(c, version, "all_reduce", entry, 1 << 32)
    assert time == pytest.approx(1666.0 + 4294967296 / (1000 * 384 * 128 / 254), rel=1e-6)


def test_pat_by_hand() -> None:
    # 16 nodes of one H100, 2.27: 2 x 24 GB/s x 0.75; 8 + 4 x 14/3.5 + 16 x 2.8 us
    c, version = nominal("H100x1", 16, "2.27.7")
    entry = next(e for e in usable(c, version, "all_gather") if e.algorithm == "pat")
    assert (entry.latency, entry.bandwidth) == pytest.approx((68.8, 36.0), rel=1e-6)


def test_sharp_by_hand() -> None:
    # 2 nodes of 8 H100 with SHARP, 2.27: NVLS min(40, 48) x 8 x 5/6 GB/s and 25 + 18 us;
    # CollNetDirect 8 x 40 x 0.85 / 2 and 2 x (3.7 + 7 x 0.4) + 31; CollNetChain 8 x 40 / 2 and
    # 2 x 7 x 2.8 + 30.
    c, version = nominal("H100x8", 2, "2.27.7")
    assert c.nvls is not None
    graph = replace(c.nvls, bw_inter=48.0)
    c = replace(c, collnet=True, collnet_direct=graph, collnet_chain=graph)
    found = {
        e.algorithm: (e.latency, e.bandwidth)
        for e in usable(c, version, "all_reduce")
        if e.algorithm in ("nvls", "collnet_direct", "collnet_chain")
    }
    assert found["nvls"] == pytest.approx((43.0, 320 * 5 / 6), rel=1e-6)
    assert found["collnet_direct"] == pytest.approx((44.0, 136.0), rel=1e-6)
    assert found["collnet_chain"] == pytest.approx((69.2, 160.0), rel=1e-6)


def test_nvls_all_gather_bandwidth_by_release() -> None:
    # 8 x 40/60 on one node: x 5/6; as is; min(40 x 7/8, 54) x 8; min(40 x .85 x 7/8 x 7/8, 60) x 8
    for version, wanted in (
        ("2.21.5", 320 * 5 / 6), ("2.23.4", 320.0), ("2.27.7", 280.0), ("2.30.7", 208.25),
    ):  # fmt: skip
        c, parsed = nominal("H100x8", 1, version)
        entry = next(e for e in usable(c, parsed, "all_gather") if e.algorithm == "nvls")
        assert entry.bandwidth == pytest.approx(wanted, rel=1e-6)


def test_processor_vendor_decides_ll_over_several_nodes() -> None:
    # 4 nodes of 8 A100 behind AMD: LL ceiling 19.0 and 2 us a step; behind Intel 20.4 and 1 us.
    c, version = nominal("A100x8", 4, "2.27.7")
    hosts = (("amd", 19.0, 2.0), ("intel", 20.4, 1.0), ("mixed", 19.0, 1.0))
    for vendor, ceiling, overhead in hosts:
        entries = usable(replace(c, cpu_vendor=vendor), version, "all_reduce")
        entry = entry_of(entries, "ring", "LL")
        assert entry.bandwidth == pytest.approx(ceiling * 32 / 62, rel=1e-6)
        assert entry.latency == pytest.approx(6.6 + 56 * overhead + 6 * 2.7, rel=1e-6)


# --- what is ruled out, and why ---


def reason(
    c: Communicator, version: Version, operation: str, algorithm: str, protocol: str = "Simple",
    env: dict[str, str] | None = None,
) -> str:  # fmt: skip
    table = tuning.table(c, version, read(freeze(env), version), operation)
    return next(e.reason for e in table if (e.algorithm, e.protocol) == (algorithm, protocol))


@pytest.mark.parametrize(
    ("intra", "inter", "version", "safe"),
    [
        (PathType.NVL, PathType.PIX, "2.27.7", True),
        (PathType.NVL, PathType.PXN, "2.27.7", True),
        (PathType.NVL, PathType.PXN, "2.27.3", False),
        (PathType.NVL, PathType.P2C, "2.27.3", True),
        (PathType.NVL, PathType.PHB, "2.30.7", False),
        (PathType.PIX, PathType.PIX, "2.30.7", False),
        (PathType.NVB, PathType.PIX, "2.30.7", True),
        (PathType.NVB, PathType.PIX, "2.18.1", False),
    ],
)
def test_ll128_needs_a_safe_path(
    intra: PathType, inter: PathType, version: str, safe: bool
) -> None:
    c, parsed = nominal("H100x8", 2, "2.27.7")[0], parse_version(version)
    c = replace(c, ring=replace(c.ring, type_intra=intra, type_inter=inter))
    assert bool(reason(c, parsed, "all_reduce", "ring", "LL128")) != safe


@pytest.mark.parametrize(
    ("low", "high", "version", "safe"),
    [
        (89, 89, "2.26.6", False), (89, 89, "2.27.7", True), (120, 120, "2.24.3", False),
        (120, 120, "2.25.1", True), (80, 90, "2.30.7", False), (90, 100, "2.29.7", False),
        (90, 100, "2.30.7", True), (60, 60, "2.30.7", False),
    ],
)  # fmt: skip
def test_ll128_needs_a_trusted_gpu(low: int, high: int, version: str, safe: bool) -> None:
    c = replace(nominal("H100x8", 1, "2.27.7")[0], min_capability=low, max_capability=high)
    assert bool(reason(c, parse_version(version), "all_reduce", "ring", "LL128")) != safe


def test_ll128_over_c2c_can_be_turned_off() -> None:
    c, version = nominal("H100x8", 2, "2.30.7")
    c = replace(c, ring=replace(c.ring, type_inter=PathType.PXN))
    assert not reason(c, version, "all_reduce", "ring", "LL128")
    assert "PXB" in reason(c, version, "all_reduce", "ring", "LL128", {"NCCL_LL128_C2C": "0"})


def test_reasons_name_the_cause() -> None:
    c, version = nominal("H100x8", 1, "2.30.7")
    assert "several nodes" in reason(c, version, "all_reduce", "nvls_tree")
    assert "SHARP" in reason(c, version, "all_reduce", "collnet_chain")
    assert "8 ranks on 1 node" in reason(c, version, "all_gather", "pat")
    c2 = nominal("H100x8", 2, "2.30.7")[0]
    assert "2 nodes" in reason(c2, version, "all_reduce", "nvls")
    a100 = nominal("A100x8", 1, "2.30.7")[0]
    assert "8.0" in reason(a100, version, "all_reduce", "nvls")
    off = reason(c, version, "all_reduce", "nvls", env={"NCCL_NVLS_ENABLE": "0"})
    assert off == "NCCL_NVLS_ENABLE=0"


@pytest.mark.parametrize(
    ("version", "operation", "dtype", "op", "able"),
    [
        ("2.30.7", "all_reduce", "float32", "sum", True),
        ("2.30.7", "all_reduce", "float32", "max", False),
        ("2.30.7", "all_reduce", "bfloat16", "max", True),
        ("2.30.7", "all_reduce", "bfloat16", "avg", False),
        ("2.30.7", "all_reduce", "int8", "sum", False),
        ("2.30.7", "all_gather", "int8", "sum", True),
        ("2.21.5", "all_gather", "int8", "sum", False),
        ("2.30.7", "reduce_scatter", "float8_e4m3fn", "sum", False),
    ],
)
def test_what_the_switch_can_reduce(
    version: str, operation: str, dtype: str, op: str, able: bool
) -> None:
    c, parsed = nominal("H100x8", 1, "2.30.7")[0], parse_version(version)
    assert bool(rules.unsupported(c, parsed, operation, "nvls", dtype, op)) != able


def test_nvls_halves_are_limited_to_32_local_ranks() -> None:
    c, version = nominal("NVL72", 1, "2.30.7")
    assert "72" in rules.unsupported(c, version, "all_gather", "nvls", "float32", "sum")
    assert not rules.unsupported(c, version, "all_reduce", "nvls", "float32", "sum")


def test_pat_follows_its_variable() -> None:
    c, version = nominal("H100x1", 4, "2.30.7")
    assert not reason(c, version, "all_gather", "pat")
    assert reason(c, version, "all_gather", "pat", env={"NCCL_PAT_ENABLE": "0"})
    c, version = nominal("H100x8", 4, "2.30.7")
    assert reason(c, version, "all_gather", "pat")
    assert not reason(c, version, "all_gather", "pat", env={"NCCL_PAT_ENABLE": "1"})
    assert rules.unsupported(c, version, "reduce_scatter", "pat", "float32", "avg")


def test_fp8_avoids_the_ring_beyond_8_ranks() -> None:
    c, version = nominal("A100x8", 2, "2.30.7")
    ring = next(e for e in usable(c, version, "all_reduce") if e.algorithm == "ring")
    plain = tuning.estimate_us(c, version, "all_reduce", ring, 1 << 20)
    fp8 = tuning.estimate_us(c, version, "all_reduce", ring, 1 << 20, dtype="float8_e4m3fn")
    assert fp8 == pytest.approx(1024 * plain)


def test_post_overhead_variable() -> None:
    c, version = nominal("H100x8", 2, "2.30.7")
    settings = read(freeze({"NCCL_NET_OVERHEAD": "4000"}), version)
    entry = entry_of(tuning.table(c, version, settings, "all_reduce"), "ring", "LL")
    # 28 steps inside at 4 us each, 2 over the network
    assert entry.latency == pytest.approx(6.6 + 28 * 4.0 + 2 * 2.7, rel=1e-6)


# --- constants of point releases ---


def test_point_releases_differ_as_published() -> None:
    assert constants((2, 18, 1)).hop_latency["tree"][0][2] == 28
    assert constants((2, 18, 3)).hop_latency["tree"][0][2] == 4
    assert constants((2, 28, 3)).ring_ll128[3] == (73.4, 73.4, 73.4)
    assert constants((2, 28, 7)).ring_ll128[3] == (73.4, 34.6, 73.4)
    assert constants((2, 28, 7)).hop_latency["nvls_tree"][2][2] == 14
    assert constants((2, 28, 9)).hop_latency["nvls_tree"][2][2] == 20.9
    assert constants((2, 29, 3)).ring_ll128[3] == (34.5, 34.6, 34.5)
    assert constants((2, 29, 7)).ring_ll128[3] == (40.0, 40.0, 40.0)
    assert constants((2, 30, 3)) == constants((2, 30, 7))


@pytest.mark.parametrize(
    ("text", "parsed", "stands_in"),
    [
        ("2.27", (2, 27, 7), (2, 27, 7)), ("2.27.3", (2, 27, 3), (2, 27, 3)),
        ("2.4.8", (2, 4, 8), (2, 18, 1)),
        ("2.31.2", (2, 31, 2), (2, 30, 7)), ("2.20.5-1", (2, 20, 5), (2, 20, 5)),
    ],
)  # fmt: skip
def test_versions(text: str, parsed: Version, stands_in: Version) -> None:
    assert parse_version(text) == parsed
    assert modelled(parsed) == stands_in


@pytest.mark.parametrize("text", ["", "two", "2", "2.x", "2.27.7.1", "-2.27"])
def test_a_version_that_is_none(text: str) -> None:
    with pytest.raises(LibraryError, match="library version: expected"):
        parse_version(text)


def test_estimates_grow_with_size_within_an_entry() -> None:
    c, version = nominal("H100x8", 2, "2.30.7")
    for e in usable(c, version, "all_gather"):
        times = [tuning.estimate_us(c, version, "all_gather", e, 16 * 2**k) for k in range(28)]
        assert all(map(math.isfinite, times))
        assert times == sorted(times)


# --- a real machine ---


@pytest.mark.parametrize("ranks", [2, 4])
def test_the_table_that_nccl_2292_printed_on_h100(ranks: int) -> None:
    choice = Nccl(version="2.29.2").choose(
        Collective("all_reduce", 8, ranks=tuple(range(ranks))), load_cluster("hgx-h100")
    )
    assert isinstance(choice.facts, NcclFacts)
    c = choice.facts.communicator
    printed = [r for r in rows("nccl_vectors_h100_log") if r["ranks"] == str(ranks)]
    for operation in OPERATIONS:
        ours = {
            (e.algorithm, e.protocol): (e.latency, e.bandwidth)
            for e in tuning.table(c, (2, 29, 2), read((), (2, 29, 2)), operation)
            if e.bandwidth
        }
        theirs = {
            (r["algorithm"], r["protocol"]): (
                float(r["latency_us"]),
                float(r["bandwidth_gb_per_s"]),
            )
            for r in printed
            if r["collective"] == operation
        }
        assert set(ours) == set(theirs)
        for pair, values in theirs.items():
            assert ours[pair] == pytest.approx(values, abs=0.051), (operation, pair)
