"""`commsim explain`: every candidate, the winner and why, and where the bandwidth goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from commsim.cli import _arguments as a
from commsim.cli import _plot as pictures
from commsim.cli._drawn import Drawn, Plot, Theme
from commsim.cli._output import (
    print_facts,
    print_json,
    print_notes,
    print_section,
    print_table,
    print_wrapped,
)
from commsim.cli.predict import choice_text, summary, title
from commsim.libraries.nccl.graph import Communicator
from commsim.prediction import Alternative, Prediction
from commsim.report.explanation import (
    NOTHING_FOUND,
    Stage,
    Switch,
    Traffic,
    communicator,
    graphs,
    switch_points,
    traffic,
    waterfall,
)
from commsim.units import Bytes, format_rate, format_size, format_time

GB = 1e9  # bytes: NCCL's graphs count GB/s


def explain(
    cluster: a.ClusterText,
    op: a.OperationText,
    size: a.SizeText = None,
    nodes: a.Nodes = None,
    ranks: a.RanksText = None,
    root: a.Root = None,
    dtype: a.DtypeText = "float32",
    redop: a.RedopText = "sum",
    settings: a.Settings = None,
    library: a.LibraryText = None,
    env: a.Environment = None,
    launch: a.Launch = "processes",
    profile: a.ProfilePath = None,
    gpu: a.GpuName = None,
    plot: Plot = None,
    theme: Theme = "auto",
    json: a.Json = False,
) -> None:
    """Every candidate and why one wins, channels, switch points, bytes per link, lost bandwidth.

    Example: commsim explain dgx-h100 all_reduce --size 2MiB --nodes 2

    Exit codes: 0 ok, 2 bad input.
    """
    drawn = Drawn(plot, theme).check()
    question = a.question(
        cluster, op, nodes=nodes, settings=settings, gpu=gpu, library=library, env=env,
        launch=launch, ranks=ranks, root=root, dtype=dtype, redop=redop, profile=profile,
    )  # fmt: skip
    prediction = question.answer(a.read_size(question.operation, size))

    def chosen(nbytes: Bytes) -> tuple[str, str]:
        best = question.library.choose(question.collective(nbytes), question.cluster).chosen
        return best.algorithm, best.protocol

    switches = () if question.operation == "barrier" else switch_points(chosen)
    loads, stages = traffic(prediction), waterfall(prediction)
    drawn.write(lambda: pictures.explained(question, prediction, stages))
    if json:
        print_json(_as_dict(prediction, switches, loads, stages))
        return
    print(title(prediction))
    print_facts(summary(prediction))
    print_section("why", prediction.reasons)
    _print_candidates(prediction)
    print_section(
        "switch points between 8 B and 8 GiB",
        [
            f"from {format_size(s.nbytes)} ({s.nbytes} B): {_pair(*s.before)} -> {_pair(*s.after)}"
            for s in switches
        ],
    )
    if not switches:
        print("\nno switch point between 8 B and 8 GiB")
    if (found := communicator(prediction.choice)) is not None:
        _print_graphs(found)
    if loads:
        _print_traffic(loads)
    if stages:
        _print_waterfall(stages)
    print_notes(prediction.notes)


def _pair(algorithm: str, protocol: str) -> str:
    return "/".join(filter(None, (algorithm, protocol)))


def ordered(prediction: Prediction) -> list[Alternative]:
    """The chosen candidate, then the available ones by time, then those ruled out."""
    return sorted(
        prediction.alternatives,
        key=lambda c: (not _is_chosen(c, prediction), not c.available, c.duration),
    )


def _is_chosen(candidate: Alternative, prediction: Prediction) -> bool:
    return candidate.available and (candidate.algorithm, candidate.protocol) == (
        prediction.algorithm,
        prediction.protocol,
    )


def _print_candidates(prediction: Prediction) -> None:
    rows = []
    for candidate in ordered(prediction):
        out = not candidate.available
        word = "chosen" if _is_chosen(candidate, prediction) else candidate.reason
        rows.append(
            (
                candidate.algorithm,
                candidate.protocol or "-",
                "-" if out else str(candidate.channels),
                "-" if out else _time(candidate.duration),
                "-" if out else _time(candidate.estimate),
                word,
            )
        )
    columns = ("algorithm", "protocol", ">channels", ">predicted", ">library's estimate", "")
    print_table("candidates", columns, rows)


def _time(duration: float) -> str:
    return format_time(duration) if 0 <= duration < float("inf") else "-"


def _print_graphs(found: Communicator) -> None:
    rows = [
        (
            name,
            graph.pattern.name.lower(),
            str(graph.channels),
            f"{graph.bw_intra:g}",
            f"{graph.bw_inter:g}" if found.nodes > 1 else "-",
            graph.type_intra.name,
            graph.type_inter.name if found.nodes > 1 else "-",
            "yes" if graph.same_channels else "no",
            str(graph.cross_nic),
        )
        for name, graph in graphs(found).items()
    ]
    columns = (
        "graph", "pattern", ">channels", ">GB/s inside", ">GB/s to NIC", "path inside",
        "path to NIC", "one order", ">cross-NIC",
    )  # fmt: skip
    print_table("channels as the library lays them out, rates of one", columns, rows)
    counts = [
        f"nodes as NCCL counts them: {found.nodes}",
        f"collectives {found.coll_channels}",
        f"NVLS {found.nvls_channels}",
        f"send and receive {found.p2p_channels} ({found.p2p_channels_per_peer} a peer)",
    ]
    print_wrapped(f"  {counts[0]}; channels of the communicator: {', '.join(counts[1:])}", 4)
    if found.ring.bw_intra <= NOTHING_FOUND:
        print(
            "  no channel fits NCCL's speeds: it takes the GPUs in order and writes 0.1 GB/s down"
        )


def _print_traffic(loads: Sequence[Traffic]) -> None:
    rows = [
        (
            load.link,
            format_size(round(load.nbytes)),
            format_rate(load.rate) if load.rate else "?",
            format_time(load.at_full_rate) if load.rate else "?",
        )
        for load in loads
    ]
    columns = ("bytes sent by", ">data", ">link rate", ">at full rate")
    print_table("bytes per link", columns, rows)


def _print_waterfall(stages: Sequence[Stage]) -> None:
    rows = []
    before = None
    for stage in stages:
        factor = "" if before is None else f"x {stage.bandwidth / before:.3f}"
        rows.append((stage.name, format_rate(stage.bandwidth), factor, stage.reason))
        before = stage.bandwidth
    columns = ("stage", ">bandwidth", ">", "what it stands for")
    print_table("from link rate to bus bandwidth", columns, rows)


def _as_dict(
    prediction: Prediction,
    switches: Sequence[Switch],
    loads: Sequence[Traffic],
    stages: Sequence[Stage],
) -> dict[str, Any]:
    found = communicator(prediction.choice)
    return prediction.to_dict() | {
        "communicator": None if found is None else _communicator_dict(found),
        "chosen": choice_text(prediction.algorithm, prediction.protocol, prediction.channels),
        "switch_points": [
            {
                "from_bytes": s.nbytes,
                "before": {"algorithm": s.before[0], "protocol": s.before[1]},
                "after": {"algorithm": s.after[0], "protocol": s.after[1]},
            }
            for s in switches
        ],
        "traffic": [
            {
                "link": load.link,
                "sent_bytes": load.nbytes,
                "rate_bytes_per_s": load.rate or None,
                "at_full_rate_s": load.at_full_rate or None,
            }
            for load in loads
        ],
        "waterfall": [
            {"stage": s.name, "bandwidth_bytes_per_s": s.bandwidth, "reason": s.reason}
            for s in stages
        ],
    }


def _communicator_dict(found: Communicator) -> dict[str, Any]:
    """NCCL's view of the group: the words of its own log, rates in bytes/s."""
    return {
        "n_ranks": found.n,
        "nodes": found.nodes,
        "channels": found.channels,
        "collective_channels": found.coll_channels,
        "nvls_channels": found.nvls_channels,
        "p2p_channels": found.p2p_channels,
        "p2p_channels_per_peer": found.p2p_channels_per_peer,
        "graphs": {
            name: {
                "pattern": graph.pattern.name.lower(),
                "channels": graph.channels,
                "intra_bandwidth_bytes_per_s": graph.bw_intra * GB,
                "inter_bandwidth_bytes_per_s": graph.bw_inter * GB,
                "intra_path": graph.type_intra.name,
                "inter_path": graph.type_inter.name,
                "same_channels": graph.same_channels,
                "cross_nic": graph.cross_nic,
                "orders": [list(order) for order in graph.orders],
                "nics": [list(pair) for pair in graph.nets],
            }
            for name, graph in graphs(found).items()
        },
    }
