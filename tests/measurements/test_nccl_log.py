"""Logs of NCCL_DEBUG=INFO: every kind of line in short made-up logs, and texts that are none."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commsim.errors import SpecError
from commsim.measurements.nccl_log import NcclLog, read_nccl_log

# Two machines of two GPUs; one process per GPU, as NCCL 2.23 and later print it.
LOG = r"""
[2] NCCL INFO comes without a prefix here
a:10:10 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to =eth0
a:10:10 [0] NCCL INFO cudaDriverVersion 12040
a:10:10 [0] NCCL INFO NCCL version 2.23.4+cuda12.6
a:10:11 [0] NCCL INFO NET/Plugin: Loaded net plugin Example Fabric (v8)
a:10:11 [0] NCCL INFO NET/Plugin: Loaded collnet plugin SHARP (v8)
a:10:11 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB/SHARP [1]mlx5_bond_1:2/RoCE [RO]; OOB eth0:1.2.3.4<0>
a:10:11 [0] NCCL INFO Using network IB
a:10:11 [0] NCCL INFO ncclCommInitRank comm 0xa rank 0 nranks 4 cudaDev 0 nvmlDev 0 busId 7000 commId 0xc1 - Init START
a:12:13 [1] NCCL INFO ncclCommInitRank comm 0xb rank 1 nranks 4 cudaDev 1 nvmlDev 1 busId f000 commId 0xc1 - Init START
b:10:11 [0] NCCL INFO ncclCommInitRank comm 0xc rank 2 nranks 4 cudaDev 0 nvmlDev 0 busId 7000 commId 0xc1 - Init START
a:10:11 [0] NCCL INFO GPU/7000 :GPU/7000 (0/5000.000000/LOC) NET/0 (3/24.000000/PIX)
a:10:11 [0] NCCL INFO NCCL_CROSS_NIC set by environment to 1.
a:10:11 [0] NCCL INFO comm 0xa rank 0 nRanks 4 nNodes 2 localRanks 2 localRank 0 MNNVL 0
a:10:11 [0] NCCL INFO Pattern 4, crossNic 0, nChannels 2, bw 20.500000/12.000000, type NVL/PIX, sameChannels 1
a:12:13 [1] NCCL INFO Pattern 3, crossNic 1, nChannels 1, bw 24.000000/24.000000, type SYS/PHB, sameChannels 0
a:10:11 [0] NCCL INFO  0 : NET/0 GPU/0 GPU/1 NET/0
a:12:13 [1] NCCL INFO  0 : NET/1 GPU/1 GPU/0 NET/1
a:10:11 [0] NCCL INFO  1 : NET/1 GPU/1 GPU/0 NET/1
a:10:11 [0] NCCL INFO NVLS multicast support is available on dev 0 (NVLS_NCHANNELS 16)
b:10:11 [0] NCCL INFO NVLS multicast support is not available on dev 1
a:10:11 [0] NCCL INFO Channel 00/02 : 0 1 2 3
a:10:11 [0] NCCL INFO Channel 01/02 :    0   3   2  ...
a:10:11 [0] NCCL INFO Trees [0] 1/2/-1->0->-1 [1] -1/-1/-1->0->3
a:10:11 [0] NCCL INFO Tree 2 : -1 -> 0 -> 1/-1/-1
a:10:11 [0] NCCL INFO Ring 02 : 3 -> 0 -> 1
a:10:11 [0] NCCL INFO threadThresholds 8/8/64 | 16/8/64 | 512 | 512
a:10:11 [0] NCCL INFO 2 coll channels, 3 collnet channels, 4 nvls channels, 5 p2p channels, 6 p2p channels per peer
a:10:11 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read
a:10:11 [0] NCCL INFO Channel 00/0 : 3[1] -> 0[0] [receive] via NET/IB/0(1)/GDRDMA/Shared
a:10:11 [0] NCCL INFO Channel 01/0 : 0[0] -> 3[1] [send] via NET/AWS Libfabric/3/GDRDMA(PCI)/Shared
a:10:11 [0] NCCL INFO Channel 01/0 : 1[1] -> 2[0] [send] via NET/IB/1
a:10:11 [0] NCCL INFO Channel 01 : 1[b3000] -> 0[7000] via SHM/direct/direct
a:10:11 [0] NCCL INFO CollNet 00/0 : 0 [send] via COLLNET/SHARP/0/GDRDMA
a:10:11 [0] NCCL INFO Connected all rings, use ring PXN 0 GDR 1
a:10:10 [0] NCCL INFO AllReduce: 1048576 Bytes -> Algo 1 proto 2 time 41.500000
a:10:10 [0] NCCL INFO ReduceScatter: 4096 Bytes -> Algo COLLNET_DIRECT proto LL128 channel{Lo..Hi}={0..7}

[2025-03-20 11:36:16] a:10:11 [0] transport/net.cc:77 NCCL WARN NET/IB : Got completion with error 12
"""  # noqa: E501


@pytest.fixture(scope="module")
def log() -> NcclLog:
    return read_nccl_log(LOG)


def lines_with(text: str) -> tuple[int, ...]:
    return tuple(i for i, line in enumerate(LOG.split("\n"), start=1) if text in line)


def test_versions_hosts_ranks(log: NcclLog) -> None:
    assert log.version() == "2.23.4"
    assert log.version("cuda_driver") == "12.4"
    assert log.version("cuda_runtime") == "12.6"
    assert log.hosts == ("a", "b")
    assert log.communicators == ("0xc1",)
    assert log.ranks() == (0, 1, 2)
    assert (log.size(), log.nodes()) == (4, 2)
    assert {(m.rank, m.bus) for m in log.members if m.bus} == {
        (0, "7000"),
        (1, "f000"),
        (2, "7000"),
    }


def test_networks_nics_and_settings(log: NcclLog) -> None:
    assert log.networks == ("IB",)
    assert [(p.kind, p.name) for p in log.plugins] == [
        ("net", "Example Fabric (v8)"), ("collnet", "SHARP (v8)"), ("used", "IB"),
    ]  # fmt: skip
    assert [(n.index, n.name, n.port, n.link, n.sharp) for n in log.nics] == [
        (0, "mlx5_0", 1, "IB", True), (1, "mlx5_bond_1", 2, "RoCE", False),
    ]  # fmt: skip
    assert [(s.name, s.value) for s in log.settings] == [
        ("NCCL_SOCKET_IFNAME", "=eth0"), ("NCCL_CROSS_NIC", "1"),
    ]  # fmt: skip


def test_rings_trees_and_counts(log: NcclLog) -> None:
    assert [(r.channel, r.channels, r.order, r.complete) for r in log.rings] == [
        (0, 2, (0, 1, 2, 3), True), (1, 2, (0, 3, 2), False),
    ]  # fmt: skip
    assert [(t.channel, t.rank, t.parent, t.children) for t in log.trees] == [
        (0, 0, None, (1, 2)), (1, 0, 3, ()), (2, 0, None, (1,)),
    ]  # fmt: skip
    (place,) = log.ring_places
    assert (place.channel, place.previous, place.rank, place.following) == (2, 3, 0, 1)
    (counts,) = log.channel_counts
    assert (counts.coll, counts.collnet, counts.nvls) == (2, 3, 4)
    assert (counts.p2p, counts.p2p_per_peer) == (5, 6)
    assert log.thresholds[0].thresholds == ((8, 8, 64), (16, 8, 64), (512,), (512,))
    assert log.rings[0].communicator == "0xc1"


def test_connections(log: NcclLog) -> None:
    found = [
        (c.source, c.destination, c.direction, c.transport, c.network, c.nic, c.gpudirect)
        for c in log.connections
    ]
    assert found == [
        (0, 1, "", "P2P", "", None, None),
        (3, 0, "receive", "NET", "IB", 0, True),
        (0, 3, "send", "NET", "AWS Libfabric", 3, True),
        (1, 2, "send", "NET", "IB", 1, False),
        (1, 0, "", "SHM", "", None, None),
        (0, None, "send", "COLLNET", "SHARP", 0, True),
    ]
    assert log.connections[0].via == "P2P/CUMEM/read"


def test_graphs_of_two_threads_that_print_at_once(log: NcclLog) -> None:
    first, second = log.graphs
    assert (first.pattern, first.cross_nic, first.channels) == (4, 0, 2)
    assert (first.bandwidth_intra, first.bandwidth_inter) == (20.5e9, 12e9)
    assert (first.type_intra, first.type_inter, first.same_channels) == ("NVL", "PIX", True)
    assert first.paths == (
        ("NET/0", "GPU/0", "GPU/1", "NET/0"),
        ("NET/1", "GPU/1", "GPU/0", "NET/1"),
    )
    assert (second.type_intra, second.same_channels) == ("SYS", False)
    assert second.paths == (("NET/1", "GPU/1", "GPU/0", "NET/1"),)
    assert [(p.source, p.target, p.hops, p.bandwidth, p.type) for p in log.paths] == [
        ("GPU/7000", "GPU/7000", 0, 5e12, "LOC"), ("GPU/7000", "NET/0", 3, 24e9, "PIX"),
    ]  # fmt: skip


def test_choices_and_warnings(log: NcclLog) -> None:
    first, second = log.chosen
    assert (first.operation, first.nbytes) == ("all_reduce", 1 << 20)
    assert (first.algorithm, first.protocol, first.channels) == ("ring", "Simple", None)
    assert first.duration == pytest.approx(41.5e-6)
    assert (second.operation, second.algorithm) == ("reduce_scatter", "collnet_direct")
    assert (second.protocol, second.channels) == ("LL128", (0, 7))
    (warned,) = log.warnings
    assert (warned.host, warned.place) == ("a", "transport/net.cc:77")
    assert warned.text == "NET/IB : Got completion with error 12"
    assert [(m.gpu, m.available, m.channels) for m in log.multicast] == [
        (0, True, 16), (1, False, None),
    ]  # fmt: skip


def test_evidence_names_its_lines(log: NcclLog) -> None:
    found = {(f.kind, f.lines) for f in log.evidence()}
    assert found == {
        ("gpudirect", lines_with("1[1] -> 2[0]")),
        ("host_memory", lines_with("SHM/")),
        ("nvls", lines_with("not available")),
        ("nics", lines_with("mlx5_bond_1")),
        ("setting", lines_with("CROSS_NIC")),
        ("warning", lines_with("NCCL WARN")),
    }
    text = next(f.text for f in log.evidence() if f.kind == "gpudirect")
    assert text == "no GPUDirect RDMA over NIC IB/1: 1 -> 2"


TABLE = """
h:1:2 [0] NCCL INFO   Algorithm   |       Tree      |        Ring      |
h:1:2 [0] NCCL INFO   Protocol    |   LL |  LL128 | Simple |   LL |  LL128 | Simple | LL | LL128 |
h:1:2 [0] NCCL INFO  Max NThreads |  512 |    640 |    512 |  256 |    640 |    512 |
h:1:2 [0] NCCL INFO     AllReduce |  8.0/  61.1 | 16.5/ 180.6 | 16.4/ 232.2 |  7.8/ 141.0 | 1.0/  0.0 | 15.2/ 360.0 |
"""  # noqa: E501
OLD_TABLE = """
h:1:2 [0] NCCL INFO   Latency/AlgBw |    Tree/    LL |    Ring/Simple |
h:1:2 [0] NCCL INFO  Max NThreads |   512 |   256 |
h:1:2 [0] NCCL INFO     Broadcast |    8.0/   2.5 |   15.0/  10.0 |
"""


def test_the_tuning_table() -> None:
    entries = read_nccl_log(TABLE).tuning
    assert [(e.algorithm, e.protocol, e.threads) for e in entries] == [
        ("tree", "LL", 512), ("tree", "LL128", 640), ("tree", "Simple", 512),
        ("ring", "LL", 256), ("ring", "LL128", 640), ("ring", "Simple", 512),
    ]  # fmt: skip
    assert {e.operation for e in entries} == {"all_reduce"}
    assert entries[1].latency == pytest.approx(16.5e-6)
    assert entries[5].bandwidth == pytest.approx(360e9)


def test_the_table_of_older_versions() -> None:
    tree, ring = read_nccl_log(OLD_TABLE).tuning
    assert (tree.algorithm, tree.protocol, tree.threads) == ("tree", "LL", 512)
    assert (ring.algorithm, ring.protocol, ring.threads) == ("ring", "Simple", 256)
    assert ring.operation == "broadcast"
    assert ring.bandwidth == pytest.approx(10e9)


@pytest.mark.parametrize(
    "prefix",
    ["", "0: ", " 12: ", "[1,0]<stdout>:", "[rank0]:", "2025-03-20T11:36:16Z worker-0 ",
     "[2025-03-20 11:36:16] ", "\x1b[32m", "(worker pid=7) "],
)  # fmt: skip
def test_what_a_launcher_puts_before_a_line_does_not_matter(prefix: str) -> None:
    log = read_nccl_log(f"{prefix}n-1.x:7:8 [3] NCCL INFO Channel 00/01 : 0 1\r\n")
    (ring,) = log.rings
    assert (ring.host, ring.device, ring.order) == ("n-1.x", 3, (0, 1))


def test_figures_glued_to_a_line_do_not_make_a_host() -> None:
    says = "node:7:7 [0] NCCL INFO AllReduce: 8 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}"
    glued = f"{says}\n     8    2   float   sum   -1{says}\n  9.5  0.01  0.01   0{says}\n"
    log = read_nccl_log(glued)
    assert log.hosts == ("node",)
    assert len(log.chosen) == 3


def test_two_messages_on_one_line_are_two() -> None:
    log = read_nccl_log(
        "b:2:2 [1] NCCL INFO NCCL version 2.23.4\n"
        "a:1:1 [0] NCCL INFO Channel 00/02 : 0 1b:2:2 [1] NCCL INFO cudaDriverVersion 13010"
    )
    assert log.hosts == ("b", "a")
    assert log.rings[0].order == (0, 1)
    assert log.version("cuda_driver") == "13.1"


def test_the_order_of_processes_does_not_matter() -> None:
    lines = LOG.strip().split("\n")
    last = [x for x in lines if x.startswith(("b:", "a:12"))]
    mixed = read_nccl_log("\n".join([x for x in lines if x not in last] + last))
    assert {(g.pattern, g.paths) for g in mixed.graphs} == {
        (g.pattern, g.paths) for g in read_nccl_log(LOG).graphs
    }
    assert mixed.ranks() == (0, 1, 2)


def test_facts_belong_to_the_communicator_that_their_device_made_last() -> None:
    def init(device: int, rank: int, size: int, name: str) -> str:
        return f"h:1:{device} [{device}] NCCL INFO ncclCommInitRank comm 0x{device} rank {rank} nranks {size} busId 1 commId {name} - Init START"  # noqa: E501

    log = read_nccl_log("\n".join([
        init(0, 0, 4, "0xa"), init(1, 1, 4, "0xa"),
        "h:1:9 [0] NCCL INFO Channel 00/01 : 0 1 2 3",
        init(1, 0, 2, "0xb"),
        "h:1:9 [1] NCCL INFO Channel 00/01 : 0 1",
        "h:1:9 [0] NCCL INFO Channel 00/01 : 0 2 1 3",
    ]))  # fmt: skip
    assert log.communicators == ("0xa", "0xb")
    assert (log.size(), log.size("0xb")) == (4, 2)
    assert (log.ranks(), log.ranks("0xb")) == ((0, 1), (0,))
    assert [r.communicator for r in log.rings] == ["0xa", "0xb", "0xa"]


def test_communicators_without_an_id_go_by_their_size() -> None:
    log = read_nccl_log(
        "a:1:2 [0] NCCL INFO comm 0x7 rank 0 nranks 2 cudaDev 0 busId 7000 - Init COMPLETE\n"
        "a:1:2 [0] NCCL INFO ncclCommInitRank comm 0x7 rank 0 nranks 2 - Init COMPLETE\n"
        "b:1:2 [0] NCCL INFO ncclCommInitRank comm 0x9 rank 1 nranks 2 - Init COMPLETE\n"
        "b:1:2 [0] NCCL INFO comm 0x9 rank 1 nranks 2 cudaDev 0 busId 7000 - Destroy COMPLETE\n"
    )
    assert len(log.members) == 3
    assert log.communicators == ("2 ranks",)
    assert log.ranks() == (0, 1)


def test_sockets_are_evidence_only_between_nodes() -> None:
    def sockets(nodes: int) -> list[tuple[int, ...]]:
        log = read_nccl_log(
            "h:1:2 [0] NCCL INFO NET/IB : No device found.\n"
            "h:1:2 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>\n"
            "h:1:2 [0] NCCL INFO Using network Socket\n"
            f"h:1:2 [0] NCCL INFO comm 0x1 rank 0 nRanks 4 nNodes {nodes} localRanks 2 localRank 0"
        )
        assert [(n.name, n.port) for n in log.nics] == [("eth0", None)]
        return [f.lines for f in log.evidence() if f.kind == "sockets"]

    assert sockets(1) == []
    assert sockets(2) == [(1, 3)]


def test_all_ranks_on_one_host_need_no_network() -> None:
    def sockets(size: int) -> int:
        log = read_nccl_log(
            "h:1:2 [0] NCCL INFO Using network Socket\n"
            f"h:1:2 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks {size} - Init START\n"
            f"h:3:4 [1] NCCL INFO ncclCommInitRank comm 0x1 rank 1 nranks {size} - Init START\n"
        )
        return len([f for f in log.evidence() if f.kind == "sockets"])

    assert sockets(2) == 0
    assert sockets(4) == 1


def test_parts_of_plugins_and_affinities() -> None:
    log = read_nccl_log("\n".join(f"h:1:2 [0] NCCL INFO {text}" for text in (
        "NET/Plugin: Failed to find ncclNetPlugin_v10 symbol.",
        "TUNER/Plugin: Could not find: libnccl-tuner.so. Using internal tuner plugin.",
        "Plugin Path : /opt/x/libnccl-net.so",
        "P2P plugin v8 IBext_v8",
        "Plugin version : 1.2@cloud vendor",
        "Failed to initialize NET plugin IB",
        "NET/OFI Initializing aws-ofi-nccl 1.13.0",
        "NET/OFI Using Libfabric version 1.15",
        "NET/OFI Using CUDA driver version 12040 with runtime 12060",
        "Setting affinity for GPU 0 to ff,ffffffff",
        "ncclTopoGetCpuAffinity: Affinity for GPU 1 is 0-31,64-95. (GPU affinity = 0-31,64-95)",
    )))  # fmt: skip
    assert [(p.kind, p.name) for p in log.plugins] == [
        ("missing", "ncclNetPlugin_v10"), ("missing", "libnccl-tuner.so"),
        ("path", "/opt/x/libnccl-net.so"), ("p2p", "v8 IBext_v8"), ("failed", "IB"),
    ]  # fmt: skip
    assert [(v.what, v.version) for v in log.versions] == [
        ("plugin", "1.2@cloud"), ("aws_ofi_nccl", "1.13.0"), ("libfabric", "1.15"),
        ("cuda_driver", "12.4"), ("cuda_runtime", "12.6"),
    ]  # fmt: skip
    assert [(a.gpu, a.cpus) for a in log.affinities] == [(0, "ff,ffffffff"), (1, "0-31,64-95")]


def test_a_machine_with_fewer_nics_is_evidence() -> None:
    log = read_nccl_log(
        "a:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB e:1.1.1.1<0>\n"
        "b:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB e:1.1.1.2<0>\n"
    )
    (finding,) = log.evidence()
    assert (finding.kind, finding.lines) == ("nics", (2,))
    assert finding.text == "b has 1 IB NICs, others 2"


def test_speeds_of_nics() -> None:
    log = read_nccl_log(
        "h:1:2 [0] NCCL INFO NET/IB: [4] mlx5_4:uverbs4:1/IB provider=Mlx5 speed=400000 ar=1\n"
        "h:1:2 [0] NCCL INFO NET/IB : Made virtual device [5] name=mlx5_0+mlx5_1 speed=200000"
    )
    # 400 Gbit/s and 200 Gbit/s
    assert [(n.name, n.bandwidth) for n in log.nics] == [("mlx5_4", 50e9), ("mlx5_0+mlx5_1", 25e9)]


def test_gpudirect_and_topology_that_cannot_be_read() -> None:
    log = read_nccl_log(
        "h:1:2 [0] NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'\n"
        "h:1:2 [0] NCCL INFO Topology detection : could not read /sys/x/max_link_speed, ignoring\n"
        "h:1:2 [0] NCCL INFO Check P2P Type isAllDirectP2p 0 directMode 0\n"
    )
    assert [(f.kind, f.lines) for f in log.evidence()] == [
        ("gpudirect", (1,)), ("topology", (2,)), ("peer", (3,)),
    ]  # fmt: skip


def test_a_file_and_a_bare_version(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_bytes(b"\xff\x00garbage\nNCCL version 2.10.3+cuda11.1\n")
    for source in (path, str(path)):
        assert read_nccl_log(source).version("cuda_runtime") == "11.1"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "no text at all"),
        ("\n \n", "no text at all"),
        ("# nccl-tests\n 8 2 float\n", "2 lines, the first '# nccl-tests'"),
    ],
)
def test_a_text_without_nccl_is_one_problem(text: str, found: str) -> None:
    with pytest.raises(SpecError) as error:
        read_nccl_log(text)
    (problem,) = error.value.problems
    assert f"found {found};" in problem
    assert 'expected such as "host:1:1 [0] NCCL INFO ..."' in problem
    assert "\n" not in problem


@pytest.mark.parametrize("source", [Path("no/such/file"), "no/such/file", "nul\0", Path(".")])
def test_no_file_is_one_problem(source: str | Path) -> None:
    with pytest.raises(SpecError, match="expected a file or a text"):
        read_nccl_log(source)


WORDS = st.sampled_from([
    "NCCL INFO ", "NCCL WARN ", "h:1:2 [0] ", "Channel 00/02 : ", "0 1 2 ", "...", "Trees [0] ",
    "1/-1/-1->0->-1 ", "\n", "²", "٣", "|", "/", "  AllReduce |", "  Algorithm |", "  Protocol |",
    "0[0] -> 1[1] via NET/IB/0", "/GDRDMA", "Pattern 4, crossNic 0, nChannels 16, bw 20.0/20.0,",
    " type NVL/PIX", "\n 0 : GPU/0", "NET/IB : Using [0]", "threadThresholds ", "9" * 30,
    " 2 coll channels, ", "\x00", "NCCL version 2.", " Max NThreads |",
    "NCCL_A set by environment to ",
])  # fmt: skip


def safe(text: str) -> None:
    """Either a log, whose evidence lies within the text, or one SpecError."""
    try:
        log = read_nccl_log(text + "\n")
    except SpecError:
        return
    count = text.count("\n") + 1
    assert all(1 <= line <= count for f in log.evidence() for line in f.lines)


@given(st.lists(WORDS | st.text(max_size=8), max_size=60).map("".join))
def test_no_text_crashes(text: str) -> None:
    safe(text)


@given(st.integers(0, len(LOG)), st.integers(0, len(LOG)), st.integers(0, 1 << 30))
@settings(max_examples=50)
def test_logs_cut_and_shuffled(start: int, end: int, seed: int) -> None:
    safe(LOG[start:end])
    pieces = (LOG + TABLE).split(" ")
    random.Random(seed).shuffle(pieces)
    safe(" ".join(pieces))


@given(st.binary(max_size=400))
def test_binary_files(data: bytes) -> None:
    safe((b"h:1:2 [0] NCCL INFO " + data).decode("utf-8", errors="replace"))


@pytest.mark.parametrize(
    "line",
    ["Channel 00/02 :" + " " * 99_999 + "x", "Channel 00/02 :" + " 1" * 50_000 + "x",
     "Trees " + "[0] 1/1/" * 20_000, "NCCL INFO " * 9_999, "a-" * 50_000 + " NCCL INFO x",
     "AllReduce |" + "1/" * 50_000, "NET/IB : Using [0]" + "[1]a:" * 20_000,
     "Using network " + " " * 60_000 + "x", " 0 :" + " GPU/0" * 20_000 + "x", "1:" * 50_000],
)  # fmt: skip
def test_no_line_is_slow(line: str) -> None:
    start = time.process_time()
    safe("h:1:2 [0] NCCL INFO " + line)
    assert time.process_time() - start < 5
