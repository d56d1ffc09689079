"""The cluster file: each bad input gives one line: where, what was found, what to do."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commsim.errors import CommsimError, SpecError
from commsim.topology.load import load_cluster

GOOD: dict[str, Any] = {
    "name": "box",
    "nodes": 2,
    "node": {
        "gpu": "H100-SXM5-80GB",
        "gpus": 8,
        "interconnect": "nvswitch",
        "nics": {"count": 8, "rate": "400Gbit/s", "gpudirect": True, "placement": "per-gpu"},
    },
}


def changed(key: str, value: object) -> dict[str, Any]:
    tables = copy.deepcopy(GOOD)
    at = tables
    *way, last = key.split(".")
    for table in way:
        at = at.setdefault(table, {})
    at[last] = value
    return tables


def problems(source: dict[str, Any], **overrides: object) -> tuple[str, ...]:
    with pytest.raises(SpecError) as caught:
        load_cluster(source, **overrides)
    assert str(caught.value) == "\n".join(caught.value.problems)
    return caught.value.problems


BAD = [
    ("nodes", 0, "expected a whole number of machines, such as 4, got 0"),
    ("nodes", "4", 'expected a whole number of machines, such as 4, got "4"'),
    ("nodes", True, "expected a whole number of machines, such as 4, got true"),
    ("nodes", 2.0, "got 2.0"),
    ("name", "", "expected a name"),
    ("library", "nkkl@2", 'expected a library such as "nccl@2.27.3"'),
    ("price_per_gpu_hour", 2.5, 'expected a price with its currency such as "2.95 USD", got 2.5'),
    ("node.gpus", 0, "expected a whole number of GPUs, such as 8, got 0"),
    ("node.gpus", -8, "got -8"),
    ("node.gpu", "H100-SXM5-80G", "did you mean 'H100-SXM5-80GB'?"),
    ("node.gpu", "A100-PCIe-80GB", 'A100-PCIe-80GB has no "nvswitch"; expected one of'),
    ("node.gpu", "MI300X", 'MI300X has no "nvswitch"; expected one of "xgmi-mesh"'),
    ("node.gpu", "L40S", 'L40S has no "nvswitch"; expected one of "pcie-switch", "pcie-host"'),
    ("node.gpu", "TPU-v4", "describe it with [[device]] and [[link]]"),
    ("node.interconnect", "nvswich", 'got "nvswich"; did you mean "nvswitch"?'),
    ("node.interconnect", "xgmi-mesh", 'H100-SXM5-80GB has no "xgmi-mesh"'),
    ("node.interconnect", "nvlink-c2c", 'H100-SXM5-80GB has no "nvlink-c2c"'),
    ("node.cpu", "arm", 'expected one of "intel", "amd", "grace" or "other", got "arm"'),
    ("node.cpu_part", "xeon-skylak", "did you mean 'xeon-skylake'?"),
    ("node.p2p", "yes", 'expected true or false, got "yes"'),
    ("node.mig", "1g.5gb", "unknown MIG profile of H100-SXM5-80GB '1g.5gb'"),
    ("node.gpu_numa", [0, 1], "expected a NUMA node for each of 8 GPUs, got 2"),
    ("node.pcie", "16x", 'expected a PCIe link such as "gen5 x16"'),
    ("node.nics.count", 0, "expected a whole number of NICs, such as 8, got 0"),
    (
        "node.nics.rate",
        400,
        'expected a rate with its unit such as "450GB/s" or "400Gbit/s", got 400',
    ),
    ("node.nics.rate", "400", "expected a rate with its unit"),
    ("node.nics.rate", "400Gbps", 'bits or bytes? write "Gbit/s" or "GB/s"'),
    ("node.nics.rate", "0GB/s", "expected a rate above zero"),
    ("node.nics.placement", "per-gpus", 'did you mean "per-gpu"?'),
    ("node.nics.part", "ConnectX-77", "did you mean 'ConnectX-7'?"),
    ("node.nics.ports_per_card", 3, "expected a divisor of node.nics.count = 8, got 3"),
    ("node.nics.speed", "1GB/s", "unknown key (known here: attach, count,"),
    ("fabric.kind", "fat-three", 'did you mean "fat-tree"?'),
    ("fabric.transport", "ib", "expected one of"),
    ("fabric.oversubscription", 0.5, "expected a number from 1.0 up, got 0.5"),
    ("fabric.oversubscription", "2:1", 'expected a number from 1.0 up, got "2:1"'),
    ("fabric.oversubscription", float("nan"), "expected a number from 1.0 up, got nan"),
    ("fabric.sharp", 1, "expected true or false, got 1"),
    ("fabric.scale_up_domain", 12, "expected a multiple of node.gpus = 8, got 12"),
    ("interconnect", "nvswitch", "unknown key"),
]


@pytest.mark.parametrize(("key", "value", "message"), BAD, ids=[f"{b[0]}={b[1]}" for b in BAD])
def test_each_bad_value_is_one_line(key: str, value: object, message: str) -> None:
    found = problems(changed(key, value))
    mine = [line for line in found if message in line]
    assert len(mine) == 1
    assert "\n" not in mine[0]
    assert mine[0].startswith("box: " if key != "name" else ": ")


def test_every_problem_is_reported_at_once() -> None:
    tables = changed("node.gpu", "H100-SXM5-80G")
    tables["nodes"] = 0
    tables["node"]["nics"] |= {"rate": 400, "placement": "everywhere"}
    tables["node"]["interconect"] = "nvswitch"
    keys = {line.split(": ")[1] for line in problems(tables)}
    assert keys == {
        "nodes",
        "node.gpu",
        "node.nics.rate",
        "node.nics.placement",
        "node.interconect",
    }


def test_missing_keys() -> None:
    lines = problems({"name": "empty"})
    assert [line.split(": ")[1] for line in lines] == ["node.gpu", "node.gpus", "node.interconnect"]
    assert all("missing, expected" in line for line in lines)
    assert problems({"node": 3}) == ("cluster: node: expected a table: [node], got 3",)
    del (tables := copy.deepcopy(GOOD))["node"]["nics"]["count"]
    assert (
        problems(tables)[0]
        == "box: node.nics.count: missing, expected a whole number of NICs, such as 8"
    )


def test_machines_that_nothing_joins_are_refused() -> None:
    tables = changed("node.nics", None)
    (line,) = problems(tables)
    assert line.startswith("box: node.nics: missing: 2 machines are 2 NVLink domains")
    assert load_cluster(tables, nodes=1).n_ranks == 8
    # An NVL72 rack needs no NIC; a second rack does. Two PCIe machines do too.
    rack = {
        "nodes": 18,
        "node": {"gpu": "GB200-NVL72", "gpus": 4, "interconnect": "nvswitch"},
        "fabric": {"scale_up_domain": 72},
    }
    assert load_cluster(rack).n_ranks == 72
    assert "19 machines are 2 NVLink domains" in problems(rack, nodes=19)[0]
    pcie = {"nodes": 2, "node": {"gpu": "L40S", "gpus": 4, "interconnect": "pcie-host"}}
    assert "2 machines are 2 NVLink domains or PCIe machines" in problems(pcie)[0]


def test_numbers_of_gpus_that_a_wiring_cannot_have() -> None:
    def node(gpu: str, gpus: int, kind: str) -> dict[str, Any]:
        return {"node": {"gpu": gpu, "gpus": gpus, "interconnect": kind}}

    assert "even number, got 3" in problems(node("A100-PCIe-80GB", 3, "nvlink-pairs"))[0]
    assert "too few for a mesh of 16" in problems(node("A100-SXM4-80GB", 16, "nvlink-mesh"))[0]
    assert "got 12" in problems(node("MI300X", 12, "xgmi-mesh"))[0]


def test_scale_up_domain_ends_at_the_machine_without_a_switch() -> None:
    tables = changed("node.interconnect", "nvlink-mesh")
    tables["node"]["gpus"] = 4
    tables["fabric"] = {"scale_up_domain": 8}
    (line,) = problems(tables)
    assert '"nvlink-mesh" ends at the machine; expected at most 4, got 8' in line


def test_overrides_are_dotted_keys_and_are_blamed_by_name() -> None:
    cluster = load_cluster(GOOD, **{"node.nics.count": 4, "fabric.kind": "torus"}, nodes=3)
    assert (len(cluster.node.nics), cluster.fabric.kind, cluster.nodes) == (4, "torus", 3)
    assert GOOD["nodes"] == 2  # the caller's dict is left alone
    assert "fabric" not in GOOD
    assert problems(GOOD, nodes=0) == (
        "override nodes: expected a whole number of machines, such as 4, got 0",
    )
    (line,) = problems(GOOD, **{"node.nics.cnt": 4})
    assert line == 'override node.nics.cnt: unknown key; did you mean "node.nics.count"?'
    assert len(problems(GOOD, **{"node.x": 1, "zzz": 2})) == 2
    assert load_cluster(GOOD, **{"node.nics": None}, nodes=1).node.nics == ()
    assert load_cluster(GOOD, fabric={"kind": "fat-tree"}).fabric.kind == "fat-tree"


def test_defaults_are_the_documented_ones_and_listed() -> None:
    del (tables := copy.deepcopy(GOOD))["node"]["nics"]["gpudirect"]
    cluster = load_cluster(tables)
    fabric = cluster.fabric
    assert (fabric.kind, fabric.transport) == ("rail-optimized", "infiniband")
    assert (fabric.oversubscription, fabric.sharp, fabric.scale_up_domain) == (1.0, False, 8)
    assert cluster.node.cpus[0].vendor == "intel"
    assert cluster.default_library.startswith("nccl@2.")
    assert cluster.node.gpu_peer_access is None
    for key in (
        "library",
        "node.cpu",
        "node.nics.gpudirect",
        "fabric.kind",
        "fabric.transport",
        "fabric.oversubscription",
        "fabric.sharp",
    ):
        assert any(note.startswith(f"{key}: not stated") for note in cluster.notes), key

    def of(gpu: str, kind: str) -> Any:
        return load_cluster({"node": {"gpu": gpu, "gpus": 4, "interconnect": kind}})

    assert of("GH200", "nvlink-mesh").node.cpus[0].arch == "arm64"
    assert of("MI210", "xgmi-mesh").node.cpus[0].vendor == "amd"
    assert of("MI210", "xgmi-mesh").default_library.startswith("rccl@")
    assert of("RTX-4090", "pcie-host").node.gpu_peer_access is False
    assert of("L40S", "pcie-host").node.gpu_peer_access is None


def test_stated_keys_leave_no_note() -> None:
    cluster = load_cluster("dgx-h100", nodes=4, library="nccl@2.27.3")
    assert cluster.notes == ()
    assert cluster.default_library == "nccl@2.27.3"


GRAPH: dict[str, Any] = {
    "name": "hand-made",
    "node": {"gpu": "A30"},
    "device": [
        {"name": "a", "kind": "gpu"},
        {"name": "b", "kind": "gpu"},
        {"name": "host", "kind": "cpu", "part": "epyc-rome"},
        {"name": "net", "kind": "nic", "rate": "100Gbit/s"},
    ],
    "link": [
        {"source": "a", "target": "b", "kind": "nvlink", "bandwidth": "100GB/s", "width": 4},
        {"source": "a", "target": "host", "kind": "pcie", "speed": "16GT/s", "width": 16},
        {"source": "b", "target": "host", "kind": "pcie", "speed": "16GT/s", "width": 16},
        {"source": "net", "target": "host", "kind": "pcie", "speed": "8GT/s", "width": 16},
    ],
}


def test_an_explicit_graph_describes_any_machine() -> None:
    cluster = load_cluster(GRAPH, nodes=2)
    assert [g.name for g in cluster.node.gpus] == ["a", "b"]
    assert cluster.interconnect == "nvlink-pairs"
    assert cluster.fabric.scale_up_domain == 2
    assert cluster.node.links[0].bandwidth == 100e9
    assert cluster.node.links[1].bandwidth == pytest.approx(31.508e9, rel=1e-4)  # Gen4 x16
    assert cluster.node.nics[0].rate == 12.5e9
    assert cluster.node.cpus[0].vendor == "amd"


def test_an_explicit_graph_with_mistakes() -> None:
    tables = copy.deepcopy(GRAPH)
    tables["device"][1]["name"] = "a"
    tables["device"][3].pop("rate")
    tables["link"][1]["target"] = "hots"
    tables["link"][0].pop("bandwidth")
    tables["node"]["gpus"] = 2
    lines = problems(tables)
    assert [line.split(": ")[1] for line in lines] == [
        "node.gpus",
        "device",
        "device[3].rate",
        "link[0].target",
        "link[0].bandwidth",
        "link[1].target",
        "link[2].source",
    ]
    assert 'did you mean "host"?' in lines[5]
    alone = copy.deepcopy(GRAPH)
    alone["device"].pop()
    alone["link"].pop()
    assert 'no device of kind "nic"' in problems(alone, nodes=2)[0]


def test_a_table_inside_itself_is_refused() -> None:
    tables = copy.deepcopy(GOOD)
    tables["node"]["inside"] = tables
    assert problems(tables) == (
        "more than 16 tables one inside another, expected at most 2: [node.nics]",
    )


_LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 20),
    st.floats(),
    st.sampled_from(["", "x", "L40S", "nvswitch", "pcie-host", "8GB/s", "gen4 x16"]),
    st.sampled_from([[], {}, [0] * 8]),
)
_KEYS = ("nodes", "node", "node.gpus", "node.gpu", "node.nics", "node.nics.rate", "fabric",
         "fabric.kind", "fabric.scale_up_domain", "node.interconnect", "device", "link",
         "node.gpu_numa", "node.pcie_switches", "node.sockets", "node.numa")  # fmt: skip


@given(st.dictionaries(st.sampled_from(_KEYS), _LEAVES, max_size=3))
@settings(deadline=None)
def test_no_input_ends_in_anything_but_a_cluster_or_our_error(changes: dict[str, object]) -> None:
    tables = copy.deepcopy(GOOD)
    for key, value in changes.items():
        at: Any = tables
        *way, last = key.split(".")
        for table in way:
            at = at.get(table, {}) if isinstance(at, dict) else {}
        if isinstance(at, dict):
            at[last] = copy.deepcopy(value)  # the drawn value must stay as it is
    cluster = None
    with contextlib.suppress(CommsimError):
        cluster = load_cluster(tables)
    assert cluster is None or cluster.n_ranks >= 1
