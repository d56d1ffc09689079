"""Reading rocm-smi --showtopo: a published table, tables of our own, and broken ones."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commsim.errors import SpecError
from commsim.topology import capacity
from commsim.topology.importers import rocm_smi
from commsim.topology.node import NodeTopology

DATA = Path(__file__).parents[1] / "data" / "topo" / "mi210-rocm.txt"


def capture(n: int, *, kind: str = "XGMI", far: frozenset[tuple[int, int]] = frozenset()) -> str:
    """n GPUs joined by `kind`; pairs in `far` are two hops apart. Two NUMA nodes."""

    def square(title: str, cell: dict[bool, str]) -> list[str]:
        rows = [f"===== {title} =====", "    " + "  ".join(f"GPU{i}" for i in range(n))]
        for a in range(n):
            values = ["0" if a == b else cell[(min(a, b), max(a, b)) in far] for b in range(n)]
            rows.append(f"GPU{a}  " + "  ".join(values))
        return [*rows, ""]

    lines = ["WARNING: device(s) in a low-power state", ""]
    lines += square("Weight between two GPUs", {False: "15", True: "30"})
    lines += square("Hops between two GPUs", {False: "1", True: "2"})
    lines += square("Link Type between two GPUs", {False: kind, True: kind})
    lines += ["===== Numa Nodes ====="]
    for g in range(n):
        lines.append(f"GPU[{g}]\t\t: (Topology) Numa Node: {2 * g // n}")
        lines.append(f"GPU[{g}]\t\t: (Topology) Numa Affinity: {2 * g // n}")
    return "\n".join([*lines, "===== End of ROCm SMI Log =====", ""])


def joined(node: NodeTopology) -> set[tuple[str, str]]:
    return {(k.source, k.target) for k in node.links if k.kind == "xgmi"}


def test_mi210_with_the_old_numa_lines() -> None:
    node = rocm_smi.read(DATA, gpu="MI210")
    assert len(node.gpus) == 4
    assert [c.numa for c in node.cpus] == [0, 1, 2, 3]
    # Three links of 50 GB/s each way, one to each of the others.
    assert capacity.scale_up_bandwidth(node, (0, 1, 2, 3)) == 150e9
    assert {k.speed for k in node.links if k.kind == "pcie"} == {16.0}


def test_eight_gpus_all_joined() -> None:
    node = rocm_smi.parse(capture(8), gpu="MI300X")
    assert len(joined(node)) == 28
    assert {k.width for k in node.links if k.kind == "xgmi"} == {1}
    homes = {k.source: k.target for k in node.links if k.kind == "pcie"}
    assert [homes[f"gpu{i}"] for i in range(8)] == ["cpu0"] * 4 + ["cpu1"] * 4
    assert {c.vendor for c in node.cpus} == {"amd"}


def test_two_hops_are_no_cable() -> None:
    node = rocm_smi.parse(capture(4, far=frozenset({(0, 3), (1, 2)})))
    assert joined(node) == {("gpu0", "gpu1"), ("gpu0", "gpu2"), ("gpu1", "gpu3"), ("gpu2", "gpu3")}


def test_pcie_only() -> None:
    node = rocm_smi.parse(capture(2, kind="PCIE"))
    assert joined(node) == set()
    assert capacity.scale_up_islands(node, (0, 1)) == ((0,), (1,))


def test_nothing_is_guessed_without_the_gpu() -> None:
    node = rocm_smi.parse(capture(4))
    assert {g.part for g in node.gpus} == {""}
    assert {(k.bandwidth, k.speed) for k in node.links} == {(0.0, 0.0)}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("GPU1  XGMI", "GPU1  XGMX", r"line 20: row GPU1, column GPU0: found .XGMX., expected"),
        ("GPU1  15", "GPU1  heavy", r"line 6: row GPU1, column GPU0: found .heavy., expected a"),
        ("GPU2  1  1  0  1", "GPU2  1  1  0", r"line 14: row GPU2: found 3 cells, expected 4"),
        ("GPU1  XGMI  0", "GPU1  PCIE  0", r"row GPU0, column GPU1: found 'XGMI', but row GPU1"),
        ("GPU3  XGMI  XGMI  XGMI  0\n", "", r"the type table has no row for GPU3"),
        ("Link Type between", "Links among", r'no table "Link Type between two GPUs" found'),
        ("GPU[2]", "GPU[7]", r"GPU7 has a NUMA node but stands in no table"),
        ("Numa Node: 1", "Numa Node: one", r"GPU2: found NUMA node 'one', expected a number"),
        ("GPU[3]\t\t: (Topology) Numa Node: 1\n", "", r"no NUMA node for GPU3"),
    ],
)  # fmt: skip
def test_errors_name_line_and_cell(old: str, new: str, message: str) -> None:
    text = capture(4)
    assert old in text
    with pytest.raises(SpecError, match=message):
        rocm_smi.parse(text.replace(old, new))


def test_a_gpu_that_has_no_such_links() -> None:
    with pytest.raises(SpecError, match="found XGMI, but RTX-4090 has no such links"):
        rocm_smi.parse(capture(2), gpu="RTX-4090")


def test_no_text(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no table"):
        rocm_smi.parse("")
    with pytest.raises(SpecError, match="cannot be read"):
        rocm_smi.read(tmp_path)


@given(st.integers(0, 2000), st.randoms(use_true_random=False), st.binary(max_size=60))
@settings(max_examples=80, deadline=None)
def test_broken_text_gives_a_machine_or_a_spec_error(
    at: int, rng: random.Random, junk: bytes
) -> None:
    text = capture(4)
    lines, words = text.splitlines(), text.split(" ")
    rng.shuffle(lines)
    rng.shuffle(words)
    noise = junk.decode("utf-8", errors="replace")
    for broken in (
        text[:at],
        text[at:],
        "\n".join(lines),
        " ".join(words),
        text[:at] + noise + text[at:],
        noise,
    ):
        problems: tuple[str, ...] = ("-",)
        try:
            rocm_smi.parse(broken)
        except SpecError as error:
            problems = error.problems
        assert problems
