"""Communicators and figures of tests/data/nccl_vectors*.csv."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

from commsim.libraries.nccl.constants import Version, parse_version
from commsim.libraries.nccl.graph import Communicator, Graph, PathType, Pattern

DATA = Path(__file__).parents[2] / "data"
PATTERNS = {
    "ring": Pattern.RING,
    "tree": Pattern.TREE,
    "balanced_tree": Pattern.BALANCED_TREE,
    "nvls": Pattern.NVLS,
}


def rows(name: str) -> list[dict[str, str]]:
    """Rows of one file, comments left out."""
    with open(DATA / f"{name}.csv") as f:
        return list(csv.DictReader(line for line in f if not line.startswith("#")))


@cache
def nominal(system: str, nodes: int, version: str) -> tuple[Communicator, Version]:
    """A machine of nccl_vectors_graphs.csv."""
    found: dict[str, Graph] = {}
    line: dict[str, str] = {}
    for row in rows("nccl_vectors_graphs"):
        if (row["system"], row["nodes"], row["version"]) == (system, str(nodes), version):
            line = row
            kind = row["graph"]
            found[kind] = Graph(
                pattern=Pattern(int(row["pattern"])) if row["pattern"] else PATTERNS[kind],
                channels=int(row["channels"]),
                bw_intra=float(row["bw_intra"]),
                bw_inter=float(row["bw_inter"]),
                type_intra=PathType[row["type_intra"]],
                type_inter=PathType[row["type_inter"]],
                same_channels=row["same_channels"] == "1",
            )
    if not line:
        raise LookupError(f"no graphs of {system}, {nodes} nodes, {version}")
    local, capability = int(line["local_ranks"]), int(line["capability"])
    channels = int(line["collective_channels"])
    parsed = parse_version(version)
    nvls_channels = 16 if capability < 100 else 24 if nodes == 1 and parsed >= (2, 27, 0) else 32
    return Communicator(
        n=local * nodes, nodes=nodes, max_local_ranks=local, min_local_ranks=local,
        min_capability=capability, max_capability=capability, cpu_arch=line["cpu_arch"],
        cpu_vendor=line["cpu_vendor"], cpu_model="", nvswitch=line["nvswitch"] == "1",
        ring=found["ring"], tree=found["tree"], nvls=found.get("nvls"),
        nvls_support="nvls" in found,
        nvls_channels=nvls_channels if "nvls" in found else 0, channels=channels,
        coll_channels=channels, mnnvl=system == "NVL72",
    ), parsed  # fmt: skip


@cache
def oracle(topo: str, nodes: str) -> Communicator:
    """A communicator of nccl_vectors_oracle_comm.csv, as NCCL 2.30.7 found it."""
    c = next(
        r for r in rows("nccl_vectors_oracle_comm") if (r["topo"], r["nodes"]) == (topo, nodes)
    )
    graphs = {
        r["graph"]: Graph(
            pattern=PATTERNS[r["pattern"]],
            channels=int(r["n_channels"]),
            bw_intra=float(r["bw_intra"]),
            bw_inter=float(r["bw_inter"]),
            type_intra=PathType[r["type_intra"]],
            type_inter=PathType[r["type_inter"]],
            same_channels=r["same_channels"] == "1",
            latency_inter=float(r["latency_inter"]),
        )
        for r in rows("nccl_vectors_oracle_graphs")
        if (r["topo"], r["nodes"]) == (topo, nodes)
    }
    n, domains = int(c["ranks"]), int(nodes)
    return Communicator(
        n=n, nodes=domains, max_local_ranks=n // domains, min_local_ranks=n // domains,
        min_capability=int(c["min_compcap"]), max_capability=int(c["max_compcap"]),
        cpu_arch=c["cpu_arch"], cpu_vendor=c["cpu_vendor"], cpu_model="",
        nvswitch=c["nvs_count"] != "0", ring=graphs["ring"], tree=graphs["tree"],
        nvls=graphs.get("nvls"), nvls_support=c["nvls_support"] == "1",
        nvls_channels=int(c["nvls_channels"]), channels=int(c["n_channels"]),
        coll_channels=int(c["n_channels"]), p2p_channels=int(c["p2p_channels"]),
        p2p_channels_per_peer=int(c["p2p_channels_per_peer"]), mnnvl=c["mnnvl"] == "1",
        min_net_bandwidth=float(c["min_net_bw"]), all_nvlink=c["all_nvlink"] == "1",
    )  # fmt: skip
