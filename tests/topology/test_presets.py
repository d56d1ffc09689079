"""Every preset against the figures of its vendor's pages, written here by hand."""

from __future__ import annotations

from collections import Counter

import pytest

from commsim.topology.cluster import Cluster
from commsim.topology.load import load_cluster, presets
from commsim.topology.node import NodeLink, NodeTopology
from commsim.units import GIB

GB = 1e9

# Preset: GPUs of a machine, GB/s of NVLink or xGMI leaving one GPU (one direction: half of the
# number data sheets print), Gbit/s of all NICs of a machine, GiB of one GPU, GPUs in one domain.
FACTS: dict[str, tuple[int, float, float, int, int]] = {
    "a100-pcie-bridges": (4, 300, 400, 80, 2),
    "a100-pcie-bridges-x4": (4, 300, 400, 80, 2),
    "a100-pcie-bridges-x8": (8, 300, 400, 80, 2),
    "alps": (4, 450, 800, 96, 4),
    "aws-g5": (8, 0, 100, 24, 1),
    "aws-g6e": (8, 0, 400, 48, 1),
    "aws-p3dn": (8, 150, 100, 32, 8),
    "aws-p4d": (8, 300, 400, 40, 8),
    "aws-p4de": (8, 300, 400, 80, 8),
    "aws-p5": (8, 450, 3200, 80, 8),
    "aws-p5e": (8, 450, 3200, 141, 8),
    "aws-p5en": (8, 450, 3200, 141, 8),
    "aws-p6-b200": (8, 900, 3200, 180, 8),
    "aws-p6-b300": (8, 900, 6400, 288, 8),
    "aws-p6e-gb200": (4, 900, 1600, 186, 72),
    "azure-nd-a100-v4": (8, 300, 1600, 40, 8),
    "azure-nd-a100-v4-40": (8, 300, 1600, 40, 8),
    "azure-nd-a100-v4-80": (8, 300, 1600, 80, 8),
    "azure-nd-h100-v5": (8, 450, 3200, 80, 8),
    "azure-nd-h200-v5": (8, 450, 3200, 141, 8),
    "azure-nd-v2": (8, 150, 100, 32, 8),
    "dgx-1v": (8, 150, 400, 32, 8),
    "dgx-2": (16, 150, 800, 32, 16),
    "dgx-a100": (8, 300, 1600, 80, 8),
    "dgx-a100-40": (8, 300, 1600, 40, 8),
    "dgx-a100-80": (8, 300, 1600, 80, 8),
    "dgx-b200": (8, 900, 3200, 180, 8),
    "dgx-b300": (8, 900, 6400, 288, 8),
    "dgx-h100": (8, 450, 3200, 80, 8),
    "dgx-h200": (8, 450, 3200, 141, 8),
    "dgx-spark": (1, 0, 200, 128, 1),
    "frontier": (8, 350, 800, 64, 8),
    "gb200-nvl72": (4, 900, 1600, 186, 72),
    "gb300-nvl72": (4, 900, 3200, 288, 72),
    "gcp-a3-high": (8, 450, 800, 80, 8),
    "gcp-a3-mega": (8, 450, 1600, 80, 8),
    "gcp-a3-ultra": (8, 450, 3200, 141, 8),
    "gcp-a4": (8, 900, 3200, 180, 8),
    "gcp-a4x": (4, 900, 1600, 186, 72),
    "gh200": (1, 0, 400, 96, 1),
    "gh200-quad": (4, 450, 800, 96, 4),
    "h100-pcie-bridges-x2": (2, 300, 400, 80, 2),
    "hgx-b200": (8, 900, 3200, 180, 8),
    "hgx-b300": (8, 900, 6400, 288, 8),
    "hgx-h100": (8, 450, 3200, 80, 8),
    "hgx-h20": (8, 450, 3200, 96, 8),
    "hgx-h200": (8, 450, 3200, 141, 8),
    "hgx-h800": (8, 200, 3200, 80, 8),
    "l40sx4": (4, 0, 400, 48, 1),
    "l40sx8": (8, 0, 800, 48, 1),
    "lumi": (8, 350, 800, 64, 8),
    "mi250x": (8, 350, 800, 64, 8),
    "mi300a-quad": (4, 384, 800, 128, 4),
    "mi300x": (8, 448, 3200, 192, 8),
    "mi325x": (8, 448, 3200, 256, 8),
    "mi350x": (8, 535.5, 3200, 288, 8),
    "mi355x": (8, 535.5, 3200, 288, 8),
    "mig-a100-1g": (7, 0, 100, 10, 1),
    "mig-a100-2g": (3, 0, 100, 20, 1),
    "mig-a100-3g": (2, 0, 100, 40, 1),
    "mig-h100-1g": (7, 0, 100, 10, 1),
    "mig-h100-2g": (3, 0, 100, 20, 1),
    "mig-h100-3g": (2, 0, 100, 40, 1),
    "oci-b4": (8, 300, 1600, 40, 8),
    "oci-gm4": (8, 300, 1600, 80, 8),
    "oci-h100": (8, 450, 3200, 80, 8),
    "oci-h200": (8, 450, 3200, 141, 8),
    "oci-mi300x": (8, 448, 3200, 192, 8),
    "perlmutter": (4, 300, 800, 40, 4),
    "polaris": (4, 300, 400, 40, 4),
    "rtx-pro-6000x8": (8, 0, 1600, 96, 1),
    "rtx3090x2": (2, 56.25, 10, 24, 2),
    "rtx4090x7": (7, 0, 10, 24, 1),
    "rtx4090x8": (8, 0, 100, 24, 1),
    "rtx5090x7": (7, 0, 10, 32, 1),
    "rtx5090x8": (8, 0, 100, 32, 1),
}


def scale_up(node: NodeTopology, gpu: str) -> float:
    return sum(
        link.bandwidth
        for link in node.links
        if link.kind in ("nvlink", "xgmi") and gpu in (link.source, link.target)
    )


def parent(node: NodeTopology, name: str) -> str:
    (target,) = [x.target for x in node.links if x.kind == "pcie" and x.source == name]
    return target


def pcie(node: NodeTopology, name: str) -> NodeLink:
    (found,) = [x for x in node.links if x.kind == "pcie" and x.source == name]
    return found


def pairs(node: NodeTopology) -> dict[tuple[int, int], int]:
    """Links between GPU i and GPU j."""
    index = {g.name: g.index for g in node.gpus}
    return {
        (index[x.source], index[x.target]): x.width
        for x in node.links
        if x.source in index and x.target in index
    }


def test_every_preset_has_its_facts_here() -> None:
    assert set(presets()) == set(FACTS)


@pytest.mark.parametrize("name", sorted(FACTS))
def test_figures(name: str) -> None:
    gpus, each, network, memory, domain = FACTS[name]
    cluster = load_cluster(name)
    node = cluster.node
    assert cluster.name == name
    assert len(node.gpus) == gpus == cluster.gpus_per_node
    leaving = {scale_up(node, gpu.name) for gpu in node.gpus}
    if cluster.gpu.mesh == "mi250x":
        # Not all of its seven links are cabled inside the machine: see the test of its mesh.
        assert max(leaving) == each * GB
    elif name in ("mig-a100-1g", "dgx-spark") or each == 0:
        assert leaving == {0.0}
    else:
        assert leaving == {each * GB}
    assert sum(nic.rate for nic in node.nics) * 8 == pytest.approx(network * 1e9)
    assert cluster.gpu.memory == memory * GIB
    assert cluster.fabric.scale_up_domain == domain


@pytest.mark.parametrize("name", sorted(FACTS))
def test_the_machine_is_sound(name: str) -> None:
    node = load_cluster(name).node
    assert [gpu.index for gpu in node.gpus] == list(range(len(node.gpus)))
    assert [nic.index for nic in node.nics] == list(range(len(node.nics)))
    hosts = {cpu.name for cpu in node.cpus}
    names = hosts | {g.name for g in node.gpus} | {s.name for s in node.switches}
    names |= {nic.card for nic in node.nics} | {"nvswitch"}
    busids = [g.busid for g in node.gpus] + [s.busid for s in node.switches]
    assert len(set(busids)) == len(busids)
    for link in node.links:
        assert {link.source, link.target} <= names
        assert link.bandwidth > 0
    # Each GPU, switch and card has one way up, which ends at a CPU.
    for start in (*(g.name for g in node.gpus), *{nic.card for nic in node.nics}):
        at = start
        for _ in range(4):
            at = parent(node, at)
            if at in hosts:
                break
        assert at in hosts
    assert len(pairs(node)) == len([x for x in node.links if x.kind in ("nvlink", "xgmi")]) or (
        node.nvswitch is not None
    )


@pytest.mark.parametrize("name", sorted(FACTS))
def test_each_preset_takes_any_number_of_machines(name: str) -> None:
    for nodes in (1, 2, 36, 1024):
        cluster = load_cluster(name, nodes=nodes)
        assert cluster.n_ranks == nodes * FACTS[name][0]
        assert cluster.node is load_cluster(name).node  # the same machine, not a copy


def test_hybrid_cube_mesh() -> None:
    # DGX-1 white paper, figure 4: every GPU has six links to four neighbours; the two quads
    # are joined by 0-4, 1-5, 2-6 and 3-7, the outer two with two links.
    mesh = pairs(load_cluster("dgx-1v").node)
    degree: Counter[int] = Counter()
    for (i, j), count in mesh.items():
        degree[i] += count
        degree[j] += count
    assert dict(degree) == dict.fromkeys(range(8), 6)
    assert len(mesh) == 16
    assert {pair: n for pair, n in mesh.items() if pair[0] < 4 <= pair[1]} == {
        (0, 4): 2,
        (1, 5): 2,
        (2, 6): 1,
        (3, 7): 1,
    }
    assert (1, 4) not in mesh


def test_four_gpu_boards_are_full_meshes() -> None:
    # 12 NVLinks of an A100, 18 of a GH200, over three peers; 6 xGMI of an MI300A.
    assert set(pairs(load_cluster("polaris").node).values()) == {4}
    assert set(pairs(load_cluster("gh200-quad").node).values()) == {6}
    assert set(pairs(load_cluster("mi300a-quad").node).values()) == {2}
    assert len(pairs(load_cluster("alps").node)) == 6
    # 150 GB/s in each direction between two GH200 (Fusco et al. 2024).
    link = next(x for x in load_cluster("alps").node.links if x.kind == "nvlink")
    assert link.bandwidth == 150 * GB


def test_bridges_join_two_by_two() -> None:
    node = load_cluster("a100-pcie-bridges-x8").node
    assert pairs(node) == {(0, 1): 12, (2, 3): 12, (4, 5): 12, (6, 7): 12}
    assert pairs(load_cluster("rtx3090x2").node) == {(0, 1): 4}


def test_mi250x_dies() -> None:
    # Frontier user guide: 200 GB/s inside a package, 50 or 100 GB/s between packages;
    # Pearson 2023, figure 1: dies 0-6 and 2-4 have two links.
    node = load_cluster("frontier").node
    mesh = pairs(node)
    assert [mesh[i, i + 1] for i in (0, 2, 4, 6)] == [4, 4, 4, 4]
    assert {pair for pair, n in mesh.items() if n == 2} == {(0, 6), (2, 4)}
    assert {x.bandwidth for x in node.links if x.kind == "xgmi"} == {50e9, 100e9, 200e9}
    # No die has more than the seven links it can use for peers; even ones all of them.
    for die in range(8):
        links = sum(n for pair, n in mesh.items() if die in pair)
        assert links == (7 if die % 2 == 0 else 6)
    # The guide: dies 4 and 5 on NUMA node 0, 2 and 3 on 1, 6 and 7 on 2, 0 and 1 on 3.
    assert parent(node, parent(node, "gpu4")) == "cpu0"
    assert parent(node, parent(node, "gpu1")) == "cpu3"
    assert pcie(node, "gpu0").bandwidth == 36 * GB


def test_mi300x_has_a_link_to_each_of_seven_peers() -> None:
    node = load_cluster("mi300x").node
    assert set(pairs(node).values()) == {1}
    assert len(pairs(node)) == 28
    assert {x.bandwidth for x in node.links if x.kind == "xgmi"} == {64 * GB}


def test_dgx_h100_tree() -> None:
    node = load_cluster("dgx-h100").node
    assert node.nvswitch is not None
    assert [(cpu.family, cpu.model, cpu.vendor) for cpu in node.cpus] == [(6, 143, "intel")] * 2
    for g in range(8):
        assert parent(node, f"gpu{g}") == parent(node, f"card{g}")
        assert parent(node, parent(node, f"gpu{g}")) == f"cpu{g // 4}"
        assert (pcie(node, f"card{g}").speed, pcie(node, f"card{g}").width) == (32.0, 16)
    assert load_cluster("dgx-b200").node.cpus[0].model == 207


def test_dgx_a100_tree() -> None:
    # DGX A100 user guide: GPUs 0, 1 on NUMA node 3, then 1, 7, 5; two GPUs and two NICs a switch.
    node = load_cluster("dgx-a100").node
    assert [cpu.numa for cpu in node.cpus] == [1, 3, 5, 7]
    where = [parent(node, parent(node, f"gpu{g}")) for g in range(8)]
    assert where == ["cpu3", "cpu3", "cpu1", "cpu1", "cpu7", "cpu7", "cpu5", "cpu5"]
    assert parent(node, "gpu0") == parent(node, "gpu1") == parent(node, "card1")
    assert {x.speed for x in node.links if x.kind == "pcie"} == {16.0}
    sockets = {(x.source, x.target): x.bandwidth for x in node.links if x.kind == "socket"}
    assert len(sockets) == 6
    assert sockets["cpu1", "cpu3"] != sockets["cpu1", "cpu5"]


def test_azure_nd_a100_numa_order_is_that_of_its_topology_file() -> None:
    node = load_cluster("azure-nd-a100-v4").node
    where = [parent(node, parent(node, f"gpu{g}")) for g in range(8)]
    assert where == ["cpu1", "cpu1", "cpu0", "cpu0", "cpu3", "cpu3", "cpu2", "cpu2"]


def test_aws_trees() -> None:
    p5 = load_cluster("aws-p5").node
    assert Counter(parent(p5, nic.card) for nic in p5.nics) == {f"pcie{s}": 4 for s in range(8)}
    assert parent(p5, "card7") == parent(p5, "gpu1")
    assert p5.cpus[0].vendor == "amd"
    p4d = load_cluster("aws-p4d").node
    assert {x.speed for x in p4d.links if x.kind == "pcie"} == {8.0}
    assert parent(p4d, "card0") == parent(p4d, "gpu0") == parent(p4d, "gpu1")
    p3dn = load_cluster("aws-p3dn").node
    assert parent(p3dn, "card0") == "cpu0"
    assert not p3dn.nics[0].gpudirect


def test_two_ports_of_an_oracle_card_share_its_link() -> None:
    node = load_cluster("oci-b4").node
    assert [nic.card for nic in node.nics[:4]] == ["card0", "card0", "card1", "card1"]
    assert [nic.port for nic in node.nics[:4]] == [1, 2, 1, 2]
    assert pcie(node, "card0").bandwidth == pytest.approx(31.508 * GB, rel=1e-4)
    assert len({nic.guid for nic in node.nics}) == 8


def test_grace_machines() -> None:
    tray = load_cluster("gb200-nvl72").node
    assert [cpu.arch for cpu in tray.cpus] == ["arm64", "arm64"]
    c2c = [x for x in tray.links if x.kind == "c2c"]
    # 450 GB/s of one Grace for two GPUs: half each, as five links of 44.7 GB/s.
    assert [(x.width, x.target) for x in c2c] == [
        (5, "cpu0"),
        (5, "cpu0"),
        (5, "cpu1"),
        (5, "cpu1"),
    ]
    assert c2c[0].bandwidth == pytest.approx(225 * GB, rel=0.01)
    assert parent(tray, "card3") == "cpu1"
    alone = load_cluster("gh200").node
    assert next(x.bandwidth for x in alone.links if x.kind == "c2c") == pytest.approx(
        450e9, rel=0.01
    )
    # GB300: each ConnectX-8 is the switch between its GPU and Grace.
    new = load_cluster("gb300-nvl72").node
    assert parent(new, "gpu2") == parent(new, "card2") == "pcie2"
    assert pcie(new, "gpu2").speed == 64.0


def test_nvl72_racks() -> None:
    assert load_cluster("gb200-nvl72").n_ranks == 72
    two = load_cluster("gb200-nvl72", nodes=36)
    assert (two.n_ranks, two.hosts_per_domain) == (144, 18)
    assert load_cluster("gb300-nvl72").n_ranks == 72


def test_peer_to_peer_over_pcie() -> None:
    def allowed(name: str) -> bool | None:
        return load_cluster(name).node.gpu_peer_access

    for name in ("rtx4090x8", "rtx5090x8", "rtx4090x7", "rtx5090x7", "rtx3090x2", "mig-a100-1g"):
        assert allowed(name) is False
    for name in ("l40sx8", "rtx-pro-6000x8", "a100-pcie-bridges", "dgx-h100"):
        assert allowed(name) is None


def test_pcie_boards() -> None:
    seven = load_cluster("rtx5090x7").node
    assert len(seven.cpus) == 1
    assert not seven.switches
    assert {pcie(seven, gpu.name).speed for gpu in seven.gpus} == {32.0}
    assert {pcie(load_cluster("rtx4090x7").node, "gpu0").speed} == {16.0}
    eight = load_cluster("l40sx8").node
    assert Counter(parent(eight, gpu.name) for gpu in eight.gpus) == {"pcie0": 4, "pcie1": 4}
    # The NIC's switch is Gen5, the GPUs stay Gen4.
    assert (pcie(eight, "card0").speed, pcie(eight, "gpu0").speed) == (32.0, 16.0)


def test_mig_slices_share_their_gpus_link() -> None:
    cluster = load_cluster("mig-a100-1g")
    node = cluster.node
    assert {parent(node, gpu.name) for gpu in node.gpus} == {"die0"}
    assert pcie(node, "die0").bandwidth == pytest.approx(31.508 * GB, rel=1e-4)
    assert {gpu.part for gpu in node.gpus} == {"A100-SXM4-80GB:1g.10gb"}
    assert cluster.gpu.sms == 14
    assert cluster.interconnect == "pcie-switch"


def test_polaris_gpus_lie_backwards_on_numa_nodes() -> None:
    node = load_cluster("polaris").node
    assert [parent(node, f"gpu{g}") for g in range(4)] == ["cpu3", "cpu2", "cpu1", "cpu0"]
    assert {nic.part for nic in node.nics} == {"Cassini"}


def test_prices_are_those_of_the_listed_offers() -> None:
    def price(name: str) -> float | None:
        return load_cluster(name).price_per_gpu_hour

    assert price("dgx-h100") == 2.95
    assert price("dgx-a100-40") == 1.29
    assert price("gb200-nvl72") == 4.54
    assert price("aws-p5") is None


def test_transports() -> None:
    def transport(name: str) -> str:
        cluster: Cluster = load_cluster(name)
        return f"{cluster.fabric.kind} {cluster.fabric.transport}"

    assert transport("frontier") == transport("alps") == "dragonfly slingshot"
    assert transport("aws-p5en") == "fat-tree efa"
    assert transport("gcp-a3-high") == "fat-tree tcpx"
    assert transport("gcp-a3-mega") == "fat-tree tcpxo"
    assert transport("oci-h100") == "rail-optimized roce"
    assert transport("dgx-h100") == "rail-optimized infiniband"
    assert transport("rtx4090x7") == "single-switch tcp"
