"""Reading nvidia-smi topo: what the published tables say, tables of our own, and broken ones."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commsim.errors import SpecError
from commsim.topology import capacity
from commsim.topology.importers import nvidia_smi
from commsim.topology.node import NodeTopology

DATA = Path(__file__).parents[1] / "data" / "topo"
FAR = {1: "PIX", 2: "PXB", 3: "PHB", 4: "SYS"}


def table(rows: list[str], header: str = "") -> str:
    """Rows of cells under the devices' names, as the tool prints them."""
    labels = [row.split()[0] for row in rows]
    return "\n".join([header or "\t" + "\t".join(labels) + "\tCPU Affinity\tNUMA Affinity", *rows])


def two_sockets(nics: int) -> str:
    """4 GPUs and any number of NICs, half of each on either socket; NIC k is PIX to GPU k mod 4."""
    labels = [f"GPU{i}" for i in range(4)] + [f"NIC{i}" for i in range(nics)]
    socket = {f"GPU{i}": i // 2 for i in range(4)} | {f"NIC{i}": i % 4 // 2 for i in range(nics)}
    switch = {f"GPU{i}": i for i in range(4)} | {f"NIC{i}": i % 4 for i in range(nics)}

    def cell(a: str, b: str) -> str:
        if a == b:
            return "X"
        if switch[a] == switch[b]:
            return "PIX"
        return "NODE" if socket[a] == socket[b] else "SYS"

    return table([f"{a}\t" + "\t".join(cell(a, b) for b in labels) for a in labels])


def distances(node: NodeTopology, gpu: int) -> list[str]:
    return [FAR[capacity.nic_distance(node, gpu, n)[1]] for n in range(len(node.nics))]


def widths(node: NodeTopology) -> dict[tuple[str, str], int]:
    return {(k.source, k.target): k.width for k in node.links if k.kind == "nvlink"}


def test_h100_with_escape_codes_and_a_legend() -> None:
    node = nvidia_smi.read(DATA / "h100-12-nics-ansi.txt", gpu="H100-SXM5-80GB")
    assert [g.name for g in node.gpus] == [f"gpu{i}" for i in range(8)]
    assert [*[n.name for n in node.nics][:2], node.nics[11].name] == [
        "ibp33s0",
        "ibp36s0",
        "rocep185s0f1",
    ]
    assert node.nvswitch is not None
    assert capacity.scale_up_bandwidth(node, tuple(range(8))) == 18 * 25e9
    assert [c.numa for c in node.cpus] == [0, 1]
    # The rows of GPU0 and GPU4, NODE being PHB for us.
    assert distances(node, 0) == ["PXB"] * 2 + ["PHB"] * 2 + ["SYS"] * 4 + ["PHB"] * 2 + ["SYS"] * 2
    assert distances(node, 4) == ["SYS"] * 4 + ["PXB"] * 2 + ["PHB"] * 2 + ["SYS"] * 2 + ["PHB"] * 2
    assert all(g.part == "H100-SXM5-80GB" and g.capability == 90 for g in node.gpus)
    pcie = [k for k in node.links if k.kind == "pcie"]
    assert {(k.speed, k.width) for k in pcie} == {(32.0, 16)}


def test_h20_with_glued_header_and_nics_in_reverse() -> None:
    node = nvidia_smi.read(DATA / "h20-vm-glued-header.txt")
    assert [capacity.nic_distance(node, g, 7 - g)[1] for g in range(8)] == [1] * 8
    assert sum(far == "PIX" for g in range(8) for far in distances(node, g)) == 8
    assert {g.part for g in node.gpus} == {""}
    assert {k.speed for k in node.links} == {0.0}
    assert {k.bandwidth for k in node.links} == {0.0}


def test_four_a100_with_four_links_each_are_a_mesh() -> None:
    node = nvidia_smi.read(DATA / "a100-mesh-named-nics.txt", gpu="A100-SXM4-80GB")
    assert node.nvswitch is None
    assert len(widths(node)) == 6
    assert set(widths(node).values()) == {4}
    assert capacity.scale_up_bandwidth(node, (0, 1, 2, 3)) == 300e9
    assert [n.name for n in node.nics] == ["mlx5_0", "mlx5_1"]
    assert [distances(node, g) for g in range(4)] == [
        ["SYS", "SYS"],
        ["PIX", "SYS"],
        ["SYS", "PIX"],
        ["SYS", "SYS"],
    ]
    assert [c.numa for c in node.cpus] == [1, 0, 3, 2]


def test_affinities_alone() -> None:
    node = nvidia_smi.read(DATA / "dgx-a100-affinity-only.txt")
    assert len(node.gpus) == 8
    homes = {k.source: k.target for k in node.links if k.kind == "pcie"}
    assert [homes[f"gpu{i}"] for i in range(8)] == [
        "cpu3", "cpu3", "cpu1", "cpu1", "cpu7", "cpu7", "cpu5", "cpu5",
    ]  # fmt: skip


def test_refused_peer_access() -> None:
    assert nvidia_smi.read(DATA / "rtx5090-p2p.txt").gpu_peer_access is False
    allowed = nvidia_smi.parse(" \tGPU0\tGPU1\n GPU0\tX\tOK\n GPU1\tOK\tX\n")
    assert allowed.gpu_peer_access is None
    # No NVLink between two GPUs says nothing of PCIe.
    text = "$ nvidia-smi topo -p2p n\n GPU0 GPU1\n GPU0 X NS\n GPU1 NS X\n"
    assert nvidia_smi.parse(text).gpu_peer_access is None


def test_a_topology_and_a_peer_table_in_one_file() -> None:
    text = table(["GPU0 X PIX", "GPU1 PIX X"]) + "\n\n GPU0 GPU1\n GPU0 X CNS\n GPU1 CNS X\n"
    node = nvidia_smi.parse(text)
    assert node.gpu_peer_access is False
    assert [s.name for s in node.switches] == ["pcie0"]


def test_thirty_six_nics() -> None:
    node = nvidia_smi.parse(two_sockets(36), gpu="H100-SXM5-80GB", nic_rate=25e9)
    assert len(node.nics) == 36
    assert len(node.cpus) == 2
    for gpu in range(4):
        expected = ["PIX" if n % 4 == gpu else "PHB" if n % 4 // 2 == gpu // 2 else "SYS"
                    for n in range(36)]  # fmt: skip
        assert distances(node, gpu) == expected
    assert capacity.nearest_nics(node, 1) == tuple(range(1, 36, 4))


def test_levels_of_switches() -> None:
    # GPU0 and NIC0 on one switch, GPU1 on another below the same root, GPU2 elsewhere on the CPU.
    node = nvidia_smi.parse(
        table(
            [
                "GPU0 X PXB PHB PIX 0-7 0",
                "GPU1 PXB X PHB PXB 0-7 0",
                "GPU2 PHB PHB X PHB 0-7 0",
                "NIC0 PIX PXB PHB X",
            ]
        )
    )
    above = {k.source: k.target for k in node.links if k.kind == "pcie"}
    assert above["gpu0"] == above["nic0"] != above["gpu1"]
    assert above[above["gpu0"]] == above[above["gpu1"]]
    assert above[above[above["gpu0"]]] == above["gpu2"] == "cpu0"
    assert [distances(node, g) for g in range(3)] == [["PIX"], ["PXB"], ["PHB"]]


@pytest.mark.parametrize(
    ("n", "count", "gpu", "switch"),
    [
        (8, 12, None, True),  # 7 x 12 = 84 links
        (4, 4, None, False),  # 12 links: A100 board of four
        (4, 6, "H100-SXM5-80GB", False),  # 18 links: H100 board of four
        (4, 12, "A100-SXM4-80GB", True),  # 36 links, an A100 has 12
        (4, 6, "A100-SXM4-80GB", True),  # 18 links, an A100 has 12
        (2, 12, None, False),  # a bridge
        (2, 18, "H100-SXM5-80GB", True),  # two GPUs of a board with switches
        (2, 4, "A100-SXM4-80GB", False),
        (3, 1, None, False),
    ],
)
def test_switch_or_mesh(n: int, count: int, gpu: str | None, switch: bool) -> None:
    rows = [
        f"GPU{a} " + " ".join("X" if a == b else f"NV{count}" for b in range(n)) for a in range(n)
    ]
    node = nvidia_smi.parse(table(rows), gpu=gpu)
    assert (node.nvswitch is not None) is switch
    assert len(widths(node)) == (n if switch else n * (n - 1) // 2)


def test_unequal_counts_are_cables() -> None:
    # As in a DGX-1V's cube mesh: two links to one neighbour, one to another.
    node = nvidia_smi.parse(
        table(["GPU0 X NV1 NV2", "GPU1 NV1 X SYS", "GPU2 NV2 SYS X"]), gpu="V100-SXM2-32GB"
    )
    assert widths(node) == {("gpu0", "gpu1"): 1, ("gpu0", "gpu2"): 2}
    # GPU0 may be on either socket, GPU1 and GPU2 are on different ones.
    assert len(node.cpus) == 2


def test_rows_in_any_order() -> None:
    rows = ["GPU0 X NV4 PIX", "GPU1 NV4 X SYS", "NIC0 PIX SYS X"]
    header = "\tGPU0\tGPU1\tNIC0\tCPU Affinity"
    straight = nvidia_smi.parse(table(rows, header))
    assert nvidia_smi.parse(table(rows[::-1], header)) == straight


def test_escape_codes_that_lost_their_escape() -> None:
    text = "\t[4mGPU0\tGPU1\tCPU Affinity[0m\nGPU0\t X \tPHB\t0-7\nGPU1\tPHB\t X \t0-7\n"
    assert len(nvidia_smi.parse(text).gpus) == 2


def test_glued_cells_and_columns() -> None:
    text = "GPU0GPU1NIC0CPU Affinity\nGPU0 XNV12PIX 0-7\nGPU1 NV12XSYS\nNIC0 PIXSYSX\n"
    node = nvidia_smi.parse(text)
    assert widths(node) == {("gpu0", "gpu1"): 12}
    assert [distances(node, g) for g in (0, 1)] == [["PIX"], ["SYS"]]


BROKEN = [
    (["GPU0 X PIX", "GPU1 PIX"], r"line 3: row GPU1, column GPU1: found 'the end of the line'"),
    (["GPU0 X PIX", "GPU1 PIK X"], r"line 3: row GPU1, column GPU0: found 'PIK', expected X, NV1"),
    (["GPU0 X NV4", "GPU1 NV2 X"], r"line 2: row GPU0, column GPU1: found 'NV4'.*says 'NV2'"),
    (["GPU0 PIX X", "GPU1 X PIX"], r"line 2: row GPU0, column GPU0: found 'PIX', expected X on"),
    (["GPU0 X NV0", "GPU1 NV0 X"], r"row GPU0, column GPU1: found 'NV0', expected at least one"),
    (["GPU0 X NV40", "GPU1 NV40 X"], r"found NV40, expected at most the 18 NVLinks of any GPU"),
    (["GPU0 X NV2", "NIC0 NV2 X"], r"column NIC0: found 'NV2', expected NVLink between GPUs only"),
    (
        ["GPU0 X OK", "GPU1 PIX X"],
        r"line 3: row GPU1, column GPU0: found 'PIX', expected one of OK",
    ),
    (
        ["GPU0 X PIX SYS", "GPU1 PIX X PIX", "NIC0 SYS PIX X"],
        r"line 2: row GPU0, column NIC0: found SYS, but other cells put both at most PXB apart",
    ),
]


@pytest.mark.parametrize(("rows", "message"), BROKEN)
def test_errors_name_line_and_cell(rows: list[str], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        nvidia_smi.parse(table(rows))


def test_every_problem_is_reported() -> None:
    with pytest.raises(SpecError) as caught:
        nvidia_smi.parse(table(["GPU0 X QQ PIX", "GPU1 PIX Y PIX", "NIC0 PIX PIX X"]))
    assert any("column GPU1: found 'QQ'" in p for p in caught.value.problems)
    assert any("column GPU1: found 'Y'" in p for p in caught.value.problems)


def test_a_row_that_is_missing() -> None:
    with pytest.raises(SpecError, match="without a row for GPU1; was the text cut off"):
        nvidia_smi.parse("\tGPU0\tGPU1\nGPU0\tX\tPIX\n")
    with pytest.raises(SpecError, match="row GPU7: not among the columns GPU0, GPU1"):
        nvidia_smi.parse(table(["GPU0 X PIX", "GPU1 PIX X"]) + "\nGPU7 PIX PIX\n")


@pytest.mark.parametrize("text", ["", "\n\n", "No devices were found\n", "GPU0 is a GPU\n", "\x00"])
def test_no_matrix(text: str) -> None:
    with pytest.raises(SpecError, match="no matrix found"):
        nvidia_smi.parse(text)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="cannot be read"):
        nvidia_smi.read(tmp_path / "none.txt")


def test_names_of_nics_stay_apart() -> None:
    text = table(["GPU0 X PIX PIX", "NIC0 PIX X PIX", "NIC1 PIX PIX X"])
    good = nvidia_smi.parse(text + "\n\nNIC Legend:\n  NIC0: mlx5_0\n  NIC1: mlx5_1\n")
    assert [n.name for n in good.nics] == ["mlx5_0", "mlx5_1"]
    for name in ("mlx5_0", "cpu0", "gpu0"):
        with pytest.raises(SpecError, match=f"NIC1 is called '{name}'"):
            nvidia_smi.parse(text + f"\n\n  NIC0: mlx5_0\n  NIC1: {name}\n")


def test_the_wrong_gpu() -> None:
    with pytest.raises(SpecError, match="found NV12, expected at most the 6 NVLinks of V100"):
        nvidia_smi.parse(table(["GPU0 X NV12", "GPU1 NV12 X"]), gpu="V100-SXM2-32GB")


CAPTURES = sorted(p.read_text() for p in DATA.glob("*.txt") if "rocm" not in p.name)


@given(st.sampled_from(CAPTURES), st.integers(0, 4000), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_cut_or_shuffled_text_gives_a_machine_or_a_spec_error(
    text: str, length: int, rng: random.Random
) -> None:
    words = text[:length].split(" ")
    rng.shuffle(words)
    lines = text.splitlines()
    rng.shuffle(lines)
    for broken in (text[:length], " ".join(words), "\n".join(lines), text.replace("X", "", 1)):
        machine_or_spec_error(broken)


@given(st.binary(max_size=300), st.sampled_from(CAPTURES), st.integers(0, 3000))
@settings(max_examples=60, deadline=None)
def test_random_bytes_give_a_spec_error_or_a_machine(junk: bytes, text: str, at: int) -> None:
    machine_or_spec_error(junk.decode("utf-8", errors="replace"))
    raw = text.encode()
    machine_or_spec_error((raw[:at] + junk + raw[at:]).decode("utf-8", errors="replace"))


WORDS = st.sampled_from(
    ["GPU0", "GPU1", "NIC0", "mlx5_0", "X", "NV4", "NV", "PIX", "SYS", "OK", "NS", "CPU Affinity",
     "NUMA Affinity", "0-3", "0", "N/A", "\n", "\t", "Legend:", "-p2p r", "nvidia-smi"]
)  # fmt: skip


@given(st.lists(WORDS, max_size=40))
@settings(max_examples=150, deadline=None)
def test_words_of_the_format_in_any_order(words: list[str]) -> None:
    machine_or_spec_error(" ".join(words))


def machine_or_spec_error(text: str) -> None:
    node: NodeTopology | None = None
    problems: tuple[str, ...] = ()
    try:
        node = nvidia_smi.parse(text)
    except SpecError as error:
        problems = error.problems
    if node is None:
        assert problems
        assert all("nvidia-smi topo" in problem for problem in problems)
        return
    names = [g.name for g in node.gpus] + [c.name for c in node.cpus] + [n.name for n in node.nics]
    assert len(set(names)) == len(names)
    capacity.scale_up_islands(node, tuple(range(len(node.gpus))))


def test_text_of_a_windows_shell(tmp_path: Path) -> None:
    text = table(["GPU0 X PHB", "GPU1 PHB X"]).replace("\n", "\r\n")
    for encoding in ("utf-16", "utf-8-sig"):
        path = tmp_path / "topo.txt"
        path.write_bytes(text.encode(encoding))
        assert len(nvidia_smi.read(path).gpus) == 2


def test_one_gpu() -> None:
    node = nvidia_smi.parse("\tGPU0\tNIC0\tCPU Affinity\nGPU0\t X \tPHB\t0-7\nNIC0\tPHB\t X \n")
    assert len(node.gpus) == len(node.nics) == 1
    assert len(nvidia_smi.parse("\tGPU0\tCPU Affinity\nGPU0\t X \t0-7\n").gpus) == 1
