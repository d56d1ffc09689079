"""What the page is told: the library's own figures, and one line for what cannot be answered."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from commsim.collectives.collective import Collective
from commsim.errors import CommsimError, ExploreError
from commsim.explore import ahead, answers
from commsim.explore.questions import MOST_TEXT
from commsim.explore.toml import written
from commsim.libraries.nccl.communicator import _domain_graphs
from commsim.prediction import predict
from commsim.topology.cluster import Cluster
from commsim.topology.load import load_cluster, presets
from commsim.units import MIB
from commsim.workload.layout import Layout
from commsim.workload.load import load_model
from commsim.workload.step import predict_step

H100 = {"preset": "dgx-h100", "nodes": 2}
A100 = {"preset": "dgx-a100", "nodes": 2}


def ask(sides: list[dict[str, object]], **changes: object) -> dict[str, object]:
    return {"sides": sides, "operation": "all_reduce", "size": "64MiB"} | changes


def duration(cluster: Cluster) -> float:
    return predict(Collective("all_reduce", nbytes=64 * MIB), cluster).duration


def test_the_figures_are_those_of_predict() -> None:
    found = answers.collective(ask([H100], low="1MiB", high="4MiB"))["sides"][0]
    cluster = load_cluster("dgx-h100", nodes=2)
    assert found["at"] == predict(Collective("all_reduce", nbytes=64 * MIB), cluster).to_dict()
    for row, size in zip(found["sweep"], (MIB, 2 * MIB, 4 * MIB), strict=True):
        expected = predict(Collective("all_reduce", nbytes=size), cluster)
        assert row["size_bytes"] == size
        assert row["duration_s"] == expected.duration
        assert row["bus_bandwidth_bytes_per_s"] == expected.bus_bandwidth
        low, high = row["bus_bandwidth_interval_bytes_per_s"]
        # Bandwidth times time is the same number of bytes at both ends of the interval.
        moved = expected.bus_bandwidth * expected.duration
        assert (moved / high, moved / low) == pytest.approx(expected.interval)


def test_overrides_change_the_cluster() -> None:
    side = H100 | {"nics": 4, "nic_rate": "200Gbit/s", "library": "nccl@2.19"}
    found = answers.collective(ask([side]))["sides"][0]
    changes = {"node.nics.count": 4, "node.nics.rate": "200Gbit/s", "library": "nccl@2.19"}
    expected = predict(
        Collective("all_reduce", nbytes=64 * MIB), load_cluster("dgx-h100", nodes=2, **changes)
    )
    assert found["at"]["duration_s"] == expected.duration
    assert found["at"]["library"].startswith("nccl@2.19")


def test_two_clusters_give_their_ratio() -> None:
    found = answers.collective(ask([H100, A100]))
    a, b = (side["at"]["duration_s"] for side in found["sides"])
    assert found["ratio"] == a / b
    assert len(found["ratios"]) == len(found["sides"][0]["sweep"]) == 31  # 8 B to 8 GiB


def test_one_bad_side_leaves_the_other() -> None:
    good, bad = answers.collective(ask([H100, A100 | {"nic_rate": "400"}]))["sides"]
    assert good["at"]["duration_s"] > 0
    assert "400" in bad["error"]
    assert "\n" not in bad["error"]


def test_a_barrier_has_no_sizes() -> None:
    (found,) = answers.collective(ask([H100], operation="barrier", size=""))["sides"]
    assert [row["size_bytes"] for row in found["sweep"]] == [0]
    assert found["regions"] == []


def test_regions_cover_the_sizes() -> None:
    (found,) = answers.collective(ask([H100], low="1KiB", high="1GiB"))["sides"]
    regions = found["regions"]
    assert (regions[0]["low_bytes"], regions[-1]["high_bytes"]) == (1 << 10, 1 << 30)
    for row in found["sweep"]:
        inside = [r for r in regions if r["low_bytes"] <= row["size_bytes"] < r["high_bytes"]]
        if inside:  # the last size is the end of the last region
            assert inside[0]["choice"] == f"{row['algorithm']}/{row['protocol']}"


def test_a_step_is_predict_steps() -> None:
    question = {
        "sides": [H100], "model": "llama3-8b",
        "layout": {"tp": 4, "global_batch": 32, "seq_len": 2048},
    }  # fmt: skip
    (found,) = answers.step(question)["sides"]
    layout = Layout(tp=4, dp=4, global_batch=32, seq_len=2048)
    cluster = load_cluster("dgx-h100", nodes=2)
    assert found["step"] == predict_step(load_model("llama3-8b"), cluster, layout).to_dict()


def test_a_model_may_be_written_out() -> None:
    question = {"sides": [H100], "config": '{"extends": "llama3-8b"}', "layout": {"tp": 4}}
    preset = {"sides": [H100], "model": "llama3-8b", "layout": {"tp": 4}}
    mine, theirs = (answers.step(q)["sides"][0]["step"] for q in (question, preset))
    assert mine["duration_s"] == theirs["duration_s"]


def test_the_picture_says_how_much_it_shows() -> None:
    (found,) = answers.topology({"sides": [H100 | {"nodes": 6}]})["sides"]
    assert (found["nodes"], found["nodes_drawn"]) == (6, 4)
    gpus = [dot for dot in found["dots"] if dot["kind"] == "gpu"]
    assert len(gpus) == 4 * 8


@pytest.mark.parametrize("name", ["dgx-h100", "gb200-nvl72", "mi300x", "l40sx8"])
def test_a_clusters_text_reads_back_as_itself(name: str) -> None:
    text = answers.preset({"preset": name})["toml"]
    saved = answers.toml({"side": {"text": text, "nodes": 2}})["toml"]
    assert tomllib.loads(saved) == tomllib.loads(text) | {"nodes": 2}
    assert duration(load_cluster(tomllib.loads(saved))) == duration(load_cluster(name, nodes=2))


def test_toml_of_a_preset_extends_it() -> None:
    found = answers.toml({"side": H100 | {"nics": 4, "library": "nccl@2.19"}})
    assert found["name"] == "dgx-h100"
    changes = {"library": "nccl@2.19", "node.nics.count": 4}
    assert duration(load_cluster(tomllib.loads(found["toml"]))) == duration(
        load_cluster("dgx-h100", nodes=2, **changes)
    )


def test_toml_keeps_lists_of_tables_and_odd_texts() -> None:
    tables = {
        "name": 'a "b" \\ \n c', "on": True, "numbers": [1, 2.5], "odd key": "é",
        "node": {"gpus": 1, "nics": {"rate": "1GB/s"}}, "device": [{"name": "x"}, {"name": "y"}],
    }  # fmt: skip
    assert tomllib.loads(written(tables)) == tables


SMI = "\tGPU0\tGPU1\nGPU0\t X \tPHB\nGPU1\tPHB\t X \n"
XML = """<system version="1">
<cpu numaid="0" affinity="ffff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
<pci busid="0000:01:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
<gpu dev="0" sm="90" rank="0" gdr="1"/></pci>
<pci busid="0000:02:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
<gpu dev="1" sm="90" rank="1" gdr="1"/></pci>
</cpu></system>
"""


@pytest.mark.parametrize("text", [SMI, XML], ids=["nvidia-smi", "NCCL"])
def test_a_topology_is_a_cluster(text: str, tmp_path: Path) -> None:
    """The same as the command line's of the same file."""
    side = {"text": text, "gpu": "H100-PCIe-80GB"}
    (found,) = answers.collective(ask([side]))["sides"]
    file = tmp_path / ("uploaded.xml" if text is XML else "uploaded.txt")
    file.write_text(text)
    cluster = load_cluster(file, **{"node.gpu": "H100-PCIe-80GB"})
    assert found["cluster"]["n_ranks"] == 2
    assert found["at"]["duration_s"] == duration(cluster)
    with pytest.raises(ExploreError, match="topology file"):
        answers.toml({"side": side})


def test_no_entity_of_an_xml_reaches_a_file(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("GPU-of-the-secret")
    text = f'<!DOCTYPE a [<!ENTITY e SYSTEM "file://{secret}">]>' + XML.replace(
        'vendor="GenuineIntel"', 'vendor="x"'
    ).replace("</cpu>", "&e;</cpu>")
    (found,) = answers.topology({"sides": [{"text": text, "gpu": "H100-PCIe-80GB"}]})["sides"]
    assert "secret" not in str(found.get("dots", "")) + found.get("error", "").replace("&e;", "")


def test_what_binds_is_named_as_the_pictures_links_are() -> None:
    sides = [H100 | {"nodes": 4}, H100 | {"nodes": 1}]
    found = answers.collective(ask(sides, size="1GiB"))["sides"]
    assert [side["binds"] for side in found] == ["nic", "nvlink"]
    small = answers.collective(ask(sides, size="8"))["sides"]
    assert [side["binds"] for side in small] == ["", ""]
    (drawn,) = answers.topology({"sides": [H100]})["sides"]
    assert {"nic", "nvlink"} <= {wire["part"] for wire in drawn["wires"]}


def test_what_may_come_next_is_reckoned_ahead() -> None:
    """Every preset once; of a question its clusters with other numbers of NICs."""
    assert sum(1 for _ in ahead.every_preset()) == len(presets())
    _domain_graphs.cache_clear()
    assert len(list(ahead.around(ask([H100])))) == len(ahead.NICS)
    searched = _domain_graphs.cache_info().misses
    assert searched >= 1
    answers.collective(ask([H100 | {"nics": 2}], low="1MiB", high="2MiB"))
    assert _domain_graphs.cache_info().misses == searched  # nothing is left to be searched
    assert list(ahead.around({"sides": "nonsense"})) == []
    assert len(list(ahead.around(ask([{"preset": "no such"}])))) == len(ahead.NICS)


def test_no_file_is_read(tmp_path: Path) -> None:
    secret = tmp_path / "mine.toml"
    secret.write_text(answers.preset({"preset": "dgx-h100"})["toml"])
    for side in ({"preset": str(secret)}, {"text": f'extends = "{secret}"'}):
        (found,) = answers.topology({"sides": [side]})["sides"]
        assert found["error"].startswith("unknown cluster preset")
    with pytest.raises(CommsimError, match="unknown model preset"):
        answers.step({"sides": [H100], "model": str(secret)})
    with pytest.raises(CommsimError, match="unknown model preset"):
        answers.step({"sides": [H100], "config": f'{{"extends": "{secret}"}}'})
    with pytest.raises(CommsimError, match="unknown cluster preset"):
        answers.preset({"preset": "../pyproject"})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sides": []}, "sides: "),
        ({"sides": [H100] * 3}, "sides: "),
        ({"sides": [H100 | {"nodes": 0}]}, "sides.0.nodes: "),
        ({"sides": [H100 | {"path": "x"}]}, "sides.0.path: "),
        ({"sides": [{"text": "x" * (MOST_TEXT + 1)}]}, "sides.0.text: "),
        ({"low": "1GiB", "high": "8"}, "sizes: expected a range"),
        ({"low": "1", "high": "99000000TiB"}, "sizes: 67 sizes"),
        ({"low": "0"}, "sizes: expected a range"),
        ({"size": {}}, "size: "),
    ],
)
def test_bad_questions_are_one_line(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ExploreError, match=message) as caught:
        answers.collective(ask([H100]) | changes)
    line = answers.one_line(caught.value)
    assert "\n" not in line
    assert len(line) < 400


@pytest.mark.parametrize(
    ("side", "message"),
    [
        ({"text": "nodes = "}, "not valid TOML"),
        ({"text": "<system"}, "uploaded.xml"),
        ({"text": "<a>" * 9000}, "uploaded.xml"),
        ({"text": "GPU0 GPU1\n nonsense"}, "uploaded.txt"),
        ({"text": 'extends = "dgx-h100"\n[fabric]\nkind = "cabled"\ncabling = "x"'}, "cabling"),
        (H100 | {"gpu": "H100SXM6"}, "did you mean"),
        ({"text": "a=" + "[" * 5000}, "not valid TOML"),
        ({"text": "extends = 3"}, "extends"),
        ({"text": "[node]\ngpus = 400"}, "gpus"),
        ({"preset": "dgx-h10"}, "did you mean 'dgx-h100'"),
        (H100 | {"nodes": 100_000}, "up to 131,072"),
        (H100 | {"library": "nickel"}, "nickel"),
    ],
)
def test_bad_clusters_are_one_line(side: dict[str, object], message: str) -> None:
    (found,) = answers.collective(ask([side]))["sides"]
    assert message in found["error"]
    assert "\n" not in found["error"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"config": "{"}, "model: not valid JSON"),
        ({"config": "[1]"}, "model: expected the keys"),
        ({"config": "[" * 60000}, "model: not valid JSON"),
        ({"layout": {"tp": "x"}}, "layout.tp"),
    ],
)
def test_bad_models_are_one_line(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ExploreError, match=message):
        answers.step({"sides": [H100], "model": "llama3-8b"} | changes)


@pytest.mark.parametrize("layout", [{"tp": 3}, {"tp": 0}, {"pp": 5, "dp": 1}, {"seq_len": 0}])
def test_layouts_that_cannot_be_are_said(layout: dict[str, int]) -> None:
    (found,) = answers.step({"sides": [H100], "model": "llama3-8b", "layout": layout})["sides"]
    assert "layout" in found["error"]


def test_options_name_what_can_be_chosen() -> None:
    found = answers.options({})
    assert found["presets"] == list(presets())
    assert {"1f1b", "gpipe"} <= set(found["schedules"])
