from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Ran

Command = Callable[[str], Ran]

# What `nvidia-smi topo -m` prints, shortened to two GPUs with a NIC each.
MATRIX = """\
\tGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity
GPU0\t X \tNV4\tPIX\tSYS\t0-31\t0
GPU1\tNV4\t X \tSYS\tPIX\t32-63\t1
NIC0\tPIX\tSYS\t X \tSYS
NIC1\tSYS\tPIX\tSYS\t X

NIC Legend:

  NIC0: mlx5_0
  NIC1: mlx5_1
"""


def test_a_preset(commsim: Command) -> None:
    ran = commsim("topo dgx-h100 --nodes 4")
    assert (ran.code, ran.err) == (0, "")
    assert ran.lines[0] == "dgx-h100: 32 GPUs on 4 nodes"
    facts = {line[2:19].strip(): line[19:].strip() for line in ran.lines[1:13]}
    assert facts["GPUs per node"] == "8 x H100-SXM5-80GB"
    # 18 NVLinks of 25 GB/s; 8 NICs of 400 Gbit/s; half of four nodes sends 2 x 400 GB/s
    assert facts["per GPU"].startswith("450 GB/s NVLink")
    assert facts["out of a node"] == "400 GB/s"
    assert facts["across the middle"] == "800 GB/s"


def test_json_of_a_preset(commsim: Command) -> None:
    found = commsim("topo dgx-h100 --nodes 2 --json").json
    assert len(found["gpus"]) == len(found["nics"]) == 8
    assert found["cut_bytes_per_s"] == {"node": 400e9, "bisection": 400e9}
    assert found["nic_distance"]["gpu0"]["nic0"] == "PIX"
    assert found["nic_distance"]["gpu0"]["nic7"] == "SYS"
    nvlink = [link for link in found["links"] if link["kind"] == "nvlink"]
    assert sum(link["bandwidth_bytes_per_s"] for link in nvlink) == 8 * 450e9


def test_the_picture_holds_every_device(commsim: Command) -> None:
    found = commsim("topo dgx-h100 --json").json
    text = commsim("topo dgx-h100").out
    picture = text[text.index("picture") : text.index("distance")]
    for device in (*found["gpus"], *found["nics"], *found["cpus"]):
        assert f"{device['name']} " in picture


def test_presets_are_listed(commsim: Command) -> None:
    lines = commsim("topo --list").lines
    names = [line.split()[0] for line in lines]
    assert names == sorted(names)
    line = next(line for line in lines if line.split()[0] == "dgx-h100")
    assert "8 x H100-SXM5-80GB; 450 GB/s NVLink to the NVSwitch; NICs 8 x 50 GB/s" in line
    assert list(commsim("topo --list --json").json) == names


def test_nvidia_smi_text_with_the_gpu_named(commsim: Command, tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text(MATRIX, encoding="utf-8")
    found = commsim(f"topo {path} --gpu A100-SXM4-80GB --json").json
    assert [gpu["part"] for gpu in found["gpus"]] == ["A100-SXM4-80GB"] * 2
    nvlink = sum(k["bandwidth_bytes_per_s"] for k in found["links"] if k["kind"] == "nvlink")
    assert nvlink == 4 * 25e9  # NV4: four NVLinks of the third generation, 25 GB/s each
    distances = found["nic_distance"].values()
    assert [list(row.values()) for row in distances] == [["PIX", "SYS"], ["SYS", "PIX"]]
    assert commsim(f"topo {path} --gpu A100-SXM4-80GB").code == 0


def test_a_file_without_a_gpu_name_shows_what_it_tells(commsim: Command, tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text(MATRIX, encoding="utf-8")
    ran = commsim(f"topo {path}")
    assert ran.code == 0
    assert ran.lines[0] == "mine: 2 GPUs that the file does not name"
    assert "4 NVLinks, rate unknown (2)" in ran.out
    assert "state it as --gpu" in ran.out
    found = commsim(f"topo {path} --json").json
    assert [gpu["part"] for gpu in found["gpus"]] == ["", ""]
    distances = [list(row.values()) for row in found["nic_distance"].values()]
    assert distances == [["PIX", "SYS"], ["SYS", "PIX"]]
    assert len(found["notes"]) == 1


def test_a_prediction_needs_the_gpu_name(commsim: Command, tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text(MATRIX, encoding="utf-8")
    ran = commsim(f"predict {path} all_reduce -s 1M")
    assert (ran.code, ran.out) == (2, "")
    assert "state it as --gpu" in ran.err
    assert len(ran.err.splitlines()) == 1
    assert commsim(f"predict {path} all_reduce -s 1M --gpu A100-SXM4-80GB").code == 0


def test_a_cluster_file(commsim: Command, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'name = "mine"\nnodes = 2\n[node]\ngpu = "A100-PCIe-80GB"\ngpus = 4\n'
        'interconnect = "pcie-host"\n[node.nics]\ncount = 1\nrate = "100Gbit/s"\n',
        encoding="utf-8",
    )
    ran = commsim(f"topo {path}")
    assert ran.lines[0] == "mine: 8 GPUs on 2 nodes"
    assert "out of a node      12.5 GB/s" in ran.out
    assert any("fabric.kind: not stated" in line for line in ran.lines)  # the defaults used


def test_json_is_what_json_loads_reads(commsim: Command) -> None:
    assert json.loads(commsim("topo dgx-h100 --json").out)["name"] == "dgx-h100"


@pytest.mark.parametrize("line", ["topo", "topo nowhere.toml", "topo --list --nodes x"])
def test_bad_input(commsim: Command, line: str) -> None:
    ran = commsim(line)
    assert (ran.code, ran.out) == (2, "")
    assert len(ran.err.splitlines()) == 1
