"""load_cluster: every kind of source, and how the machine follows from the file."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from commsim.errors import SpecError, UnknownNameError, UnnamedGpuError
from commsim.topology.imported import unnamed_machine
from commsim.topology.load import load_cluster
from commsim.topology.node import NodeTopology

PUBLISHED = Path(__file__).parents[2] / "validation" / "published" / "clusters.json"


def box(gpu: str, gpus: int, kind: str, nics: dict[str, Any] | None = None, **more: Any) -> Any:
    node = {"gpu": gpu, "gpus": gpus, "interconnect": kind, **more}
    if nics:
        node["nics"] = {"rate": "100Gbit/s", **nics}
    return load_cluster({"name": "box", "node": node})


def homes(node: NodeTopology) -> list[str]:
    up = {x.source: x.target for x in node.links if x.kind == "pcie"}
    return [up[nic.card] for nic in node.nics]


def test_every_published_cluster_loads() -> None:
    clusters = json.loads(PUBLISHED.read_text("utf-8"))
    assert len(clusters) > 30
    for name, tables in clusters.items():
        cluster = load_cluster(tables)
        assert cluster.nodes == tables["nodes"], name
        assert cluster.gpus_per_node == tables["node"]["gpus"]
        assert len(cluster.node.nics) == tables["node"].get("nics", {}).get("count", 0)
        assert cluster.interconnect == tables["node"]["interconnect"]


def test_a_file_and_a_dict_give_the_same_machine(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'name = "mine"\nnodes = 2\n[node]\ngpu = "H100-SXM5-80GB"\ngpus = 8\n'
        'interconnect = "nvswitch"\n[node.nics]\ncount = 8\nrate = "400Gbit/s"\n'
        'gpudirect = true\nplacement = "per-gpu"\n'
    )
    tables = {
        "name": "mine",
        "nodes": 2,
        "node": {
            "gpu": "H100-SXM5-80GB",
            "gpus": 8,
            "interconnect": "nvswitch",
            "nics": {
                "count": 8,
                "rate": "400Gbit/s",
                "gpudirect": True,
                "placement": "per-gpu",
            },
        },
    }
    of_file, of_dict = load_cluster(path), load_cluster(tables)
    assert of_file.node is of_dict.node
    assert (of_file.name, of_file.nodes, of_file.notes) == ("mine", 2, of_dict.notes)
    assert load_cluster(str(path), nodes=4).n_ranks == 32


def test_extends_changes_a_preset(tmp_path: Path) -> None:
    path = tmp_path / "half.toml"
    path.write_text('extends = "dgx-h100"\nname = "half"\n[node.nics]\ncount = 4\n')
    cluster = load_cluster(path, nodes=2)
    assert (len(cluster.node.nics), cluster.gpu.name) == (4, "H100-SXM5-80GB")
    (tmp_path / "other.toml").write_text('extends = "half.toml"\nnodes = 3\n')
    assert load_cluster(tmp_path / "other.toml").nodes == 3
    (tmp_path / "loop.toml").write_text('extends = "loop.toml"\n')
    with pytest.raises(SpecError, match="circle"):
        load_cluster(tmp_path / "loop.toml")
    with pytest.raises(UnknownNameError, match="did you mean 'dgx-h100'"):
        load_cluster({"extends": "dgx-h10"})


def test_unknown_sources(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"did you mean 'dgx-h100'.*commsim names clusters"):
        load_cluster("dgx-h1000")
    with pytest.raises(SpecError, match=r'no such file.*did you mean the preset "dgx-h100"'):
        load_cluster("dgx-h100.toml")
    with pytest.raises(SpecError, match="no such file"):
        load_cluster(tmp_path / "absent.xml")
    (tmp_path / "bad.toml").write_text("nodes = = 3")
    with pytest.raises(SpecError, match=r"bad\.toml: not valid TOML: .*line 1"):
        load_cluster(tmp_path / "bad.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SpecError, match="cannot be read as text"):
        load_cluster(tmp_path / "bytes.toml")
    with pytest.raises(SpecError, match="cannot be read"):
        load_cluster(tmp_path)


def test_presets_forgive_case_and_underscores() -> None:
    assert load_cluster("DGX_H100").name == "dgx-h100"


def test_placement_decides_where_nics_hang() -> None:
    def of(placement: str, count: int, gpu: str = "A100-SXM4-80GB") -> list[str]:
        return homes(box(gpu, 8, "nvswitch", {"count": count, "placement": placement}).node)

    assert of("per-gpu", 8) == [
        "pcie0",
        "pcie0",
        "pcie1",
        "pcie1",
        "pcie2",
        "pcie2",
        "pcie3",
        "pcie3",
    ]
    assert of("per-gpu", 8, "H100") == [f"pcie{g}" for g in range(8)]
    assert of("per-gpu", 16, "H100") == [f"pcie{g // 2}" for g in range(16)]
    assert of("per-gpu", 4, "H100") == ["pcie0", "pcie2", "pcie4", "pcie6"]
    assert of("per-pcie-switch", 4, "H100") == ["pcie0", "pcie1", "pcie2", "pcie3"]
    assert of("per-socket", 2) == ["cpu0", "cpu1"]
    assert of("single", 1) == ["pcie0"]


def test_nics_on_root_ports_where_there_is_no_switch() -> None:
    cluster = box("L40S", 8, "pcie-host", {"count": 2, "placement": "per-pcie-switch"})
    assert homes(cluster.node) == ["cpu0", "cpu1"]
    assert any("no PCIe switch" in note for note in cluster.notes)
    nics = {"count": 8, "placement": "per-gpu", "attach": "root"}
    assert set(homes(box("H100", 8, "nvswitch", nics).node)) == {"cpu0", "cpu1"}
    with pytest.raises(SpecError, match=r"box: node\.nics\.attach"):
        box("L40S", 8, "pcie-host", {"count": 8, "placement": "per-gpu", "attach": "switch"})


def test_a_nic_has_the_pcie_link_its_rate_needs() -> None:
    def speed(rate: str, gpu: str = "H100", **more: Any) -> float:
        nics = {"count": 8, "placement": "per-gpu", "rate": rate, **more}
        node = box(gpu, 8, "nvswitch", nics).node
        (link,) = [x for x in node.links if x.source == "card0"]
        return float(link.speed)

    assert speed("100Gbit/s") == 8.0  # 12.5 of 15.75 GB/s
    assert speed("200Gbit/s") == 16.0  # 25 of 31.5
    assert speed("400Gbit/s") == 32.0  # 50 of 63
    assert speed("800Gbit/s", "B300") == 64.0  # 100 of 121
    assert speed("100Gbit/s", pcie="gen5 x16") == 32.0
    # An A100's host offers Gen4: a 400G card gets 31.5 GB/s there, and a note says so.
    nics = {"count": 8, "placement": "per-gpu", "rate": "400Gbit/s"}
    cluster = box("A100-SXM4-80GB", 8, "nvswitch", nics)
    assert speed("400Gbit/s", "A100-SXM4-80GB") == 16.0
    assert sum("less than its ports" in note for note in cluster.notes) == 8


def test_cpus_follow_the_gpus_time() -> None:
    def model(gpu: str, kind: str, **more: Any) -> tuple[str, int]:
        cpu = box(gpu, 8, kind, **more).node.cpus[0]
        return cpu.vendor, cpu.model

    assert model("V100-SXM2-32GB", "nvlink-mesh") == ("intel", 85)  # Skylake
    assert model("A100-SXM4-80GB", "nvswitch") == ("intel", 106)  # Ice Lake
    assert model("H100", "nvswitch") == ("intel", 143)  # Sapphire Rapids
    assert model("B200", "nvswitch") == ("intel", 207)  # Emerald Rapids
    assert model("A100-SXM4-80GB", "nvswitch", cpu="amd") == ("amd", 49)  # Rome
    assert model("H100", "nvswitch", cpu="amd") == ("amd", 17)  # Genoa
    assert model("H100", "nvswitch", cpu="other") == ("other", 0)
    assert model("H100", "nvswitch", cpu_part="epyc-milan") == ("amd", 1)


def test_gpus_under_one_switch_lie_on_one_numa_node() -> None:
    with pytest.raises(SpecError, match="GPUs of one PCIe switch lie on NUMA nodes"):
        box("A100-SXM4-80GB", 8, "nvswitch", gpu_numa=[0, 1, 0, 1, 0, 1, 0, 1])


def test_sharp_makes_nics_able_to_reduce() -> None:
    nics = [n.collnet for n in load_cluster("dgx-h100", **{"fabric.sharp": True}).node.nics]
    assert nics == [True] * 8
    assert not load_cluster("dgx-h100").node.nics[0].collnet


def test_loading_is_fast() -> None:
    load_cluster("dgx-h100", nodes=3)
    best = 1.0
    for nodes in range(4, 24):
        start = time.process_time()
        load_cluster("dgx-h100", **{"nodes": nodes, "node.nics.count": 8})
        best = min(best, time.process_time() - start)
    assert best < 0.015


def test_loading_needs_no_torch() -> None:
    code = (
        "import sys; from commsim.topology.load import load_cluster; load_cluster('dgx-h100');"
        " sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


TOPO = """        GPU0    GPU1    GPU2    GPU3    NIC0    CPU Affinity    NUMA Affinity
GPU0     X      NV4     NV4     NV4     PIX     0-15    0
GPU1    NV4      X      NV4     NV4     SYS     16-31   1
GPU2    NV4     NV4      X      NV4     SYS     32-47   2
GPU3    NV4     NV4     NV4      X      SYS     48-63   3
NIC0    PIX     SYS     SYS     SYS      X
"""


def test_nvidia_smi_text(tmp_path: Path) -> None:
    path = tmp_path / "topo.txt"
    path.write_text(TOPO)
    named = {"node.gpu": "A100-SXM4-80GB", "fabric.transport": "roce"}
    cluster = load_cluster(path, nodes=2, **named)
    assert cluster.gpu.name == "A100-SXM4-80GB"
    assert cluster.interconnect == "nvlink-mesh"
    assert cluster.fabric.scale_up_domain == 4
    assert cluster.node.gpus[0].capability == 80
    assert {x.bandwidth for x in cluster.node.links if x.kind == "nvlink"} == {100e9}
    # Three peers with four links each: what an A100 has 12 of and no T4 has.
    with pytest.raises(SpecError, match="row GPU0, column GPU1: found NV4, expected at most the 0"):
        load_cluster(path, **{"node.gpu": "T4"})
    assert any("node.nics.rate" in note for note in cluster.notes)
    assert cluster.node.nics[0].rate == 25e9
    keys = {"node.gpu": "A800-SXM4-80GB", "node.nics.rate": "100Gbit/s", "node.p2p": False}
    stated = load_cluster(path, **keys)
    assert stated.gpu.name == "A800-SXM4-80GB"
    assert stated.node.nics[0].rate == 12.5e9
    assert stated.node.gpu_peer_access is False
    assert stated.notes == ()
    with pytest.raises(SpecError, match=r"override node\.gpus: topo\.txt shows the GPUs"):
        load_cluster(path, **{"node.gpus": 4})
    with pytest.raises(UnknownNameError, match="did you mean 'A100-SXM4-80GB'"):
        load_cluster(path, **{"node.gpu": "A100-SXM4-80G"})
    with pytest.raises(SpecError, match=r"override node\.nics\.rate: expected a rate"):
        load_cluster(path, **{"node.nics.rate": 100})


XML = """<system version="1">
  <cpu numaid="0" affinity="ffff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
    <pci busid="0000:10:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
      <gpu dev="0" sm="90" gdr="1">
        <nvlink target="0000:11:00.0" count="18" tclass="0x030200"/>
      </gpu>
    </pci>
    <pci busid="0000:11:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
      <gpu dev="1" sm="90" gdr="1">
        <nvlink target="0000:10:00.0" count="18" tclass="0x030200"/>
      </gpu>
    </pci>
    <pci busid="0000:12:00.0" class="0x020700" link_speed="32.0 GT/s PCIe" link_width="16">
      <nic><net name="mlx5_0" dev="0" speed="400000" port="1" guid="0x1" gdr="1"/></nic>
    </pci>
  </cpu>
</system>
"""


def test_nccl_xml(tmp_path: Path) -> None:
    path = tmp_path / "two.xml"
    path.write_text(XML)
    cluster = load_cluster(path, nodes=4)
    # sm 90 is Hopper, not which: NCCL chooses by capability alone.
    assert any(
        "H100-SXM5-80GB stands in for a GPU of compute capability 9;" in note
        for note in cluster.notes
    )
    stated = load_cluster(path, nodes=4, **{"node.gpu": "H200-SXM-141GB"})
    assert not any("stands in" in note for note in stated.notes)
    assert (cluster.name, cluster.n_ranks, cluster.gpu.name) == ("two", 8, "H100-SXM5-80GB")
    assert cluster.fabric.scale_up_domain == 2
    assert cluster.node.nics[0].rate == 50e9
    assert (cluster.interconnect, cluster.nic_placement) == ("nvlink-pairs", "single")
    with pytest.raises(SpecError, match=r"override node\.interconnect: two\.xml tells the links"):
        load_cluster(path, **{"node.interconnect": "nvswitch"})


def test_a_pci_device_id_names_the_gpu(tmp_path: Path) -> None:
    path = tmp_path / "named.xml"
    path.write_text(XML.replace('class="0x030200"', 'class="0x030200" device="0x2335"'))
    cluster = load_cluster(path)
    assert cluster.gpu.name == "H200-SXM-141GB"
    assert not any("stands in" in note for note in cluster.notes)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("topo.txt", TOPO),
        ("tree.xml", XML.replace(' sm="90"', "")),
        ("future.xml", XML.replace('sm="90"', 'sm="210"')),  # of no GPU in the catalogue
    ],
)
def test_no_gpu_is_guessed(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(UnnamedGpuError) as found:
        load_cluster(path)
    (line,) = str(found.value).splitlines()
    assert line.startswith(f"{name}: node.gpu: ")
    assert "state it as --gpu" in line
    assert load_cluster(path, **{"node.gpu": "H100-SXM5-80GB"}).gpu.name == "H100-SXM5-80GB"
    assert len(unnamed_machine(path).gpus) == (4 if name == "topo.txt" else 2)


# As clouds ship them: the PCIe tree, without GPU or NVLink elements.
TREE = """<system version="1">
  <cpu numaid="0" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
    <pci busid="0001:00:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16"/>
    <pci busid="0101:00:00.0" class="0x020700" link_speed="32.0 GT/s PCIe" link_width="16"/>
    <pci busid="0002:00:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16"/>
  </cpu>
</system>
"""


def test_nccl_xml_with_the_pcie_tree_only(tmp_path: Path) -> None:
    path = tmp_path / "cloud.xml"
    path.write_text(TREE)
    cluster = load_cluster(path, nodes=2, **{"node.gpu": "H100", "node.nics.rate": "400Gbit/s"})
    assert (cluster.gpu.name, cluster.interconnect) == ("H100-SXM5-80GB", "nvswitch")
    assert cluster.fabric.scale_up_domain == 2
    assert {x.bandwidth for x in cluster.node.links if x.kind == "nvlink"} == {450e9}
    assert cluster.node.gpus[0].capability == 90
    assert any('shows none, "nvswitch" taken' in note for note in cluster.notes)
    mesh = load_cluster(path, **{"node.gpu": "H100", "node.interconnect": "nvlink-mesh"})
    assert (mesh.interconnect, mesh.node.links[0].width) == ("nvlink-pairs", 18)
    plain = load_cluster(path, **{"node.gpu": "L40S"})
    assert plain.interconnect == "pcie-host"
    with pytest.raises(SpecError, match=r'H100-PCIe-80GB has no "nvswitch"'):
        load_cluster(path, **{"node.gpu": "H100-PCIe-80GB", "node.interconnect": "nvswitch"})


def test_a_matrix_without_nvlink_says_so_and_takes_what_is_stated() -> None:
    path = Path(__file__).parents[1] / "data" / "topo" / "dgx-a100-affinity-only.txt"
    bare = load_cluster(path, **{"node.gpu": "A100-SXM4-80GB"})
    assert bare.interconnect == "pcie-host"
    assert any("shows no NVLink" in note for note in bare.notes)
    stated = load_cluster(path, **{"node.gpu": "A100-SXM4-80GB", "node.interconnect": "nvswitch"})
    assert stated.interconnect == "nvswitch"
    # 12 NVLink 3 of 25 GB/s per direction from each of 8 GPUs
    assert [x.bandwidth for x in stated.node.links if x.kind == "nvlink"] == [300e9] * 8
    assert not any("shows no NVLink" in note for note in stated.notes)
