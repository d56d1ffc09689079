"""`commsim topo`: what was understood of a preset or file, in figures and as a picture."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from commsim.cli import _arguments as a
from commsim.cli import _plot as pictures
from commsim.cli._drawn import Drawn, Plot, Theme
from commsim.cli._output import print_facts, print_json, print_notes, print_section, print_table
from commsim.errors import PictureError, UnnamedGpuError
from commsim.report.machine import (
    distance,
    gpu_words,
    machine_words,
    nic_words,
    picture,
    scale_up_words,
)
from commsim.topology.capacity import network_bandwidth
from commsim.topology.cluster import Cluster
from commsim.topology.imported import interconnect_of, unnamed_machine
from commsim.topology.load import load_cluster, presets
from commsim.topology.node import NodeTopology
from commsim.units import BytesPerSecond, format_rate


def topo(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE|PRESET",
            help="A preset, cluster .toml, NCCL topology .xml, or nvidia-smi / rocm-smi text.",
            show_default=False,
        ),
    ] = None,
    nodes: a.Nodes = None,
    settings: a.Settings = None,
    gpu: a.GpuName = None,
    every: Annotated[bool, typer.Option("--list", help="List the presets.")] = False,
    plot: Plot = None,
    theme: Theme = "auto",
    json: a.Json = False,
) -> None:
    """What was understood: devices, links with their rates per direction, NIC distances, a picture.

    Example: nvidia-smi topo -m > mine.txt && commsim topo mine.txt --gpu H100-SXM5-80GB

    Exit codes: 0 ok, 2 bad input.
    """
    drawn = Drawn(plot, theme).check()
    if every:
        if plot is not None:
            raise PictureError("--plot: a list has no picture; name one preset or file")
        words = {name: machine_words(load_cluster(name).node) for name in presets()}
        if json:
            print_json(words)
        else:
            print_facts(words.items())
        return
    if source is None:
        raise typer.BadParameter("name a FILE or PRESET, or list the presets with --list")
    try:
        cluster = a.read_cluster(source, nodes=nodes, settings=settings, gpu=gpu)
    except UnnamedGpuError as error:
        if plot is not None:
            raise
        _show_unnamed(Path(source), str(error), json)
        return
    cuts = _cuts(cluster)
    drawn.write(lambda: pictures.wired(cluster))
    if json:
        print_json(_as_dict(cluster, cuts))
        return
    machines = "node" if cluster.nodes == 1 else "nodes"
    print(f"{cluster.name}: {cluster.n_ranks} GPUs on {cluster.nodes} {machines}")
    print_facts(_facts(cluster, cuts))
    _show_node(cluster.node)
    print_notes(cluster.notes)


def _show_unnamed(path: Path, why: str, json: bool) -> None:
    """What a file tells of a machine whose GPU it does not name."""
    node = unnamed_machine(path)
    kind = interconnect_of(node)
    if json:
        print_json({"name": path.stem, "interconnect": kind, **_node_dict(node), "notes": [why]})
        return
    print(f"{path.stem}: {len(node.gpus)} GPUs that the file does not name")
    print_facts(_node_facts(node, kind))
    _show_node(node)
    print_notes((why,))


def _show_node(node: NodeTopology) -> None:
    print_section("picture of a node (rates per direction)", picture(node))
    if node.nics:
        rows = [
            (gpu.name, *(distance(node, i, j) for j in range(len(node.nics))))
            for i, gpu in enumerate(node.gpus)
        ]
        print_table(
            "GPU to NIC distance (PIX: a switch, PXB: several, PHB: the CPU, SYS: another CPU)",
            ("", *(nic.name for nic in node.nics)),
            rows,
        )


def _cuts(cluster: Cluster) -> dict[str, BytesPerSecond]:
    """What can leave one node, and flow between the halves of the cluster, bytes/s one way."""
    size, total = cluster.gpus_per_node, cluster.n_ranks
    half = cluster.nodes // 2 * size if cluster.nodes > 1 else total // 2
    cuts = {}
    if cluster.nodes > 1:
        cuts["node"] = cluster.cut_bandwidth(tuple(range(size)), tuple(range(size, total)))
    if half:
        cuts["bisection"] = cluster.cut_bandwidth(tuple(range(half)), tuple(range(half, total)))
    return cuts


def _node_facts(node: NodeTopology, interconnect: str) -> list[tuple[str, str]]:
    facts = [("GPUs per node", gpu_words(node)), ("interconnect", interconnect)]
    if fast := Counter(words for gpu in node.gpus if (words := scale_up_words(node, gpu))):
        facts.append(("per GPU", ", ".join(f"{words} ({count})" for words, count in fast.items())))
    facts.append(("CPUs", ", ".join(f"{c.name} {c.vendor} {c.arch}" for c in node.cpus) or "none"))
    return [*facts, ("NICs per node", nic_words(node))]


def _facts(cluster: Cluster, cuts: dict[str, BytesPerSecond]) -> list[tuple[str, str]]:
    node, fabric = cluster.node, cluster.fabric
    facts = _node_facts(node, cluster.interconnect)
    if node.nics:
        every = tuple(range(len(node.gpus)))
        facts.append(("NICs together", format_rate(network_bandwidth(node, every))))
    if cluster.nodes > 1:
        facts.append(
            (
                "fabric",
                f"{fabric.kind}, {fabric.transport}, oversubscription {fabric.oversubscription:g},"
                f" SHARP {'yes' if fabric.sharp else 'no'}",
            )
        )
    if fabric.scale_up_domain > 1:
        word = "xGMI" if cluster.gpu.vendor == "amd" else "NVLink"
        facts.append((f"{word} domain", f"{fabric.scale_up_domain} GPUs"))
    names = {"node": "out of a node", "bisection": "across the middle"}
    facts += [(names[cut], format_rate(rate)) for cut, rate in cuts.items()]
    facts.append(("library", cluster.default_library))
    if cluster.price_per_gpu_hour is not None:
        facts.append(("price", f"{cluster.price_per_gpu_hour:g} USD per GPU hour"))
    return facts


def _as_dict(cluster: Cluster, cuts: dict[str, BytesPerSecond]) -> dict[str, Any]:
    fabric = cluster.fabric
    return {
        "name": cluster.name,
        "nodes": cluster.nodes,
        "ranks": cluster.n_ranks,
        "interconnect": cluster.interconnect,
        **_node_dict(cluster.node),
        "fabric": {
            "kind": fabric.kind,
            "transport": fabric.transport,
            "oversubscription": fabric.oversubscription,
            "sharp": fabric.sharp,
            "scale_up_domain": fabric.scale_up_domain,
        },
        "cut_bytes_per_s": cuts,
        "library": cluster.default_library,
        "price_per_gpu_hour_usd": cluster.price_per_gpu_hour,
        "notes": list(cluster.notes),
    }


def _node_dict(node: NodeTopology) -> dict[str, Any]:
    return {
        "gpus": [{"name": g.name, "part": g.part, "gpudirect": g.gpudirect} for g in node.gpus],
        "nics": [
            {
                "name": nic.name,
                "card": nic.card,
                "rate_bytes_per_s": nic.rate,
                "gpudirect": nic.gpudirect,
            }
            for nic in node.nics
        ],
        "cpus": [{"name": c.name, "vendor": c.vendor, "arch": c.arch} for c in node.cpus],
        "pcie_switches": [switch.name for switch in node.switches],
        "links": [
            {
                "source": link.source,
                "target": link.target,
                "kind": link.kind,
                "bandwidth_bytes_per_s": link.bandwidth,
                "latency_s": link.latency,
                "width": link.width,
            }
            for link in node.links
        ],
        "nic_distance": {
            gpu.name: {nic.name: distance(node, i, j) for j, nic in enumerate(node.nics)}
            for i, gpu in enumerate(node.gpus)
        },
    }
