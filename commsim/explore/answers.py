"""Answers to the page's questions, as plain JSON: what predict, predict_step and report give.

Nothing is reckoned here that the library does not give; keys carry units, as in every to_dict.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import lru_cache
from typing import Any, Concatenate, ParamSpec

from commsim.collectives.collective import DTYPES, OPERATIONS, Collective
from commsim.errors import CommsimError, ExploreError
from commsim.explore.clusters import as_toml, cluster_of, known
from commsim.explore.questions import (
    MOST_DRAWN,
    CollectiveQuestion,
    PresetQuestion,
    Side,
    StepQuestion,
    TomlQuestion,
    TopologyQuestion,
    read,
)
from commsim.libraries.library import Library
from commsim.libraries.lookup import library as find_library
from commsim.prediction import Prediction, predict
from commsim.report.binding import binding
from commsim.report.drawing import drawing
from commsim.report.explanation import traffic, waterfall
from commsim.report.machine import machine_words
from commsim.report.regions import regions_of
from commsim.topology import parts
from commsim.topology.cluster import Cluster
from commsim.topology.load import presets
from commsim.units import Bytes, parse_size
from commsim.workload import load as models
from commsim.workload.layout import Layout
from commsim.workload.layouts.rules import WORDS
from commsim.workload.model import Model
from commsim.workload.pipeline import schedules
from commsim.workload.step import predict_step

Asked = ParamSpec("Asked")
MOST_SIZES = 64
SHOWN = (
    "size_bytes", "duration_s", "interval_s", "algorithm", "protocol", "channels",
    "algorithm_bandwidth_bytes_per_s", "bus_bandwidth_bytes_per_s",
    "bus_bandwidth_interval_bytes_per_s", "bottleneck",
)  # fmt: skip
"""Of every size of a curve; the rest comes for the size that is looked at."""


def options(_: Mapping[str, Any]) -> dict[str, Any]:
    """What can be chosen."""
    return {
        "presets": list(presets()), "gpus": [part.name for part in parts.gpus()],
        "operations": list(OPERATIONS), "dtypes": list(DTYPES),
        "models": list(models.presets()), "schedules": list(schedules()),
        **{key: list(words) for key, words in WORDS.items()},
    }  # fmt: skip


def preset(data: Mapping[str, Any]) -> dict[str, Any]:
    """The text of a preset's file."""
    name = known("cluster preset", read(PresetQuestion, data).preset, presets())
    return {"toml": (parts.topologies_folder() / f"{name}.toml").read_text("utf-8")}


def collective(data: Mapping[str, Any]) -> dict[str, Any]:
    """Curves over sizes, and one size closely, on each cluster; A's time over B's where both are.

    A cluster that cannot be asked has `error` instead.
    """
    question = read(CollectiveQuestion, data)
    sizes = _sizes(question)
    found = [_tried(_curve, side, question, sizes) for side in question.sides]
    if len(found) == 2 and all("at" in side for side in found):
        a, b = found
        pairs = zip(a["sweep"], b["sweep"], strict=True)
        return {
            "sides": found, "ratio": a["at"]["duration_s"] / b["at"]["duration_s"],
            "ratios": [x["duration_s"] / y["duration_s"] for x, y in pairs],
        }  # fmt: skip
    return {"sides": found}


def step(data: Mapping[str, Any]) -> dict[str, Any]:
    """A training step on each cluster; A's time over B's where both are."""
    question = read(StepQuestion, data)
    model = _model(question)
    found = [_tried(_step, side, model, question) for side in question.sides]
    if len(found) == 2 and all("step" in side for side in found):
        a, b = (side["step"]["duration_s"] for side in found)
        return {"sides": found, "ratio": a / b}
    return {"sides": found}


def topology(data: Mapping[str, Any]) -> dict[str, Any]:
    """Where the picture of each cluster puts devices, switches and links."""
    question = read(TopologyQuestion, data)
    return {"sides": [_tried(_drawn, side) for side in question.sides]}


def toml(data: Mapping[str, Any]) -> dict[str, Any]:
    """The cluster file of a side, with what is changed of it, and its name."""
    side = read(TomlQuestion, data).side
    return {"name": cluster_of(side).name, "toml": as_toml(side)}


def warm(_: Mapping[str, Any]) -> dict[str, Any]:
    """Nothing; loads and compiles what the first real question would wait for."""
    side = {"preset": "dgx-h100", "nodes": 4}
    for ask in (collective, step, topology):
        ask(WARM[ask.__name__] | {"sides": [side]})
    return {}


WARM: dict[str, dict[str, Any]] = {
    "collective": {"operation": "all_reduce", "size": "1MiB"},
    "step": {"model": "llama3-8b", "layout": {"tp": 4, "pp": 2}},
    "topology": {},
}

ANSWERS: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "options": options, "preset": preset, "collective": collective, "step": step,
    "topology": topology, "toml": toml, "warm": warm,
}  # fmt: skip


def one_line(error: CommsimError) -> str:
    """What went wrong, in one line."""
    return "; ".join(line.strip() for line in str(error).splitlines() if line.strip())


def _tried(
    work: Callable[Concatenate[Side, Asked], dict[str, Any]],
    side: Side,
    *asked: Asked.args,
    **named: Asked.kwargs,
) -> dict[str, Any]:
    """What `work` says of a side, or why it cannot."""
    try:
        return work(side, *asked, **named)
    except CommsimError as error:
        return {"error": one_line(error)}


def _library(side: Side, cluster: Cluster) -> Library:
    return find_library(side.library or cluster.default_library)


def _sizes(question: CollectiveQuestion) -> list[Bytes]:
    """Powers of two times the first size, up to the last; none of a barrier."""
    if question.operation == "barrier":
        return [0]
    low, high = parse_size(question.low), parse_size(question.high)
    if not 0 < low <= high:
        raise ExploreError(
            f"sizes: expected a range such as 8 to 8GiB, got {question.low} to {question.high}"
        )
    count = (high // low).bit_length()
    if count > MOST_SIZES:
        raise ExploreError(
            f"sizes: {count} sizes, each twice the last; expected {MOST_SIZES} at most"
        )
    return [low << k for k in range(count)]


def _curve(side: Side, question: CollectiveQuestion, sizes: list[Bytes]) -> dict[str, Any]:
    cluster = cluster_of(side)
    moving = question.operation != "barrier"
    nbytes = parse_size(question.size) if moving else 0
    asked = Collective(question.operation, nbytes=nbytes, dtype=question.dtype)
    at = predict(asked, cluster, _library(side, cluster))
    return {
        "cluster": _described(cluster),
        "at": at.to_dict(),
        "binds": binding(at),
        **_over_sizes(side, question.operation, question.dtype, tuple(sizes)),
        "stages": [
            {"name": s.name, "bandwidth_bytes_per_s": s.bandwidth, "reason": s.reason}
            for s in waterfall(at)
        ],
        "traffic": [
            {
                "link": t.link, "bytes": t.nbytes, "rate_bytes_per_s": t.rate,
                "at_full_rate_s": t.at_full_rate,
            }
            for t in traffic(at)
        ],
    }  # fmt: skip


@lru_cache(maxsize=64)
def _over_sizes(
    side: Side, operation: str, dtype: str, sizes: tuple[Bytes, ...]
) -> dict[str, Any]:  # fmt: skip
    """Every size's answer and the regions of the choice; kept, as most questions leave one side,
    or all but the size that is looked at, as it was."""
    cluster = cluster_of(side)
    library = _library(side, cluster)

    def asked(nbytes: Bytes) -> Collective:
        return Collective(operation, nbytes=nbytes, dtype=dtype)

    def choose(nbytes: Bytes) -> tuple[str, str]:
        chosen = library.choose(asked(nbytes), cluster).chosen
        return chosen.algorithm, chosen.protocol

    return {
        "sweep": [_row(predict(asked(nbytes), cluster, library)) for nbytes in sizes],
        "regions": [
            {"low_bytes": r.low, "high_bytes": r.high, "choice": r.choice}
            for r in regions_of(choose, low=sizes[0], high=max(sizes[-1], sizes[0] + 1))
        ]
        if operation != "barrier"
        else [],
    }


def _row(prediction: Prediction) -> dict[str, Any]:
    low, high = prediction.interval
    bus, duration = prediction.bus_bandwidth, prediction.duration
    values = (
        prediction.collective.nbytes, prediction.duration, [low, high], prediction.algorithm,
        prediction.protocol, prediction.channels, prediction.algorithm_bandwidth,
        bus, [bus * duration / high, bus * duration / low], prediction.bottleneck,
    )  # fmt: skip
    return dict(zip(SHOWN, values, strict=True))


def _described(cluster: Cluster) -> dict[str, Any]:
    return {
        "name": cluster.name, "nodes": cluster.nodes, "n_ranks": cluster.n_ranks,
        "gpu": cluster.gpu.name, "node": machine_words(cluster.node),
        "fabric": f"{cluster.fabric.kind}, {cluster.fabric.transport}",
        "price_per_gpu_hour_usd": cluster.price_per_gpu_hour,
    }  # fmt: skip


def _model(question: StepQuestion) -> Model:
    """The model of a preset or of the text of a config.json."""
    if not question.config:
        return models.load_model(known("model preset", question.model, models.presets()))
    try:
        config = json.loads(question.config)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ExploreError(f"model: not valid JSON: {error}") from None
    if not isinstance(config, dict):
        raise ExploreError(f"model: expected the keys of a config.json, got {config!r:.60}")
    return models.load_model(config)


def _step(side: Side, model: Model, question: StepQuestion) -> dict[str, Any]:
    cluster = cluster_of(side)
    stated = question.layout.model_dump()
    dp, batch = stated.pop("dp"), stated.pop("global_batch")
    if dp is None:
        taken = question.layout.tp * question.layout.pp * question.layout.cp
        if taken < 1 or cluster.n_ranks % taken:
            raise ExploreError(
                f"layout: tp x pp x cp = {taken} does not divide the cluster's"
                f" {cluster.n_ranks} GPUs"
            )
        dp = cluster.n_ranks // taken
    layout = Layout(dp=dp, global_batch=batch or dp * question.layout.micro_batch, **stated)
    found = predict_step(model, cluster, layout)
    return {"cluster": _described(cluster), "step": found.to_dict()}


def _drawn(side: Side) -> dict[str, Any]:
    cluster = cluster_of(side)
    drawn = drawing(replace(cluster, nodes=min(cluster.nodes, MOST_DRAWN)))
    return {
        "name": cluster.name, "nodes": cluster.nodes, "nodes_drawn": drawn.nodes,
        "nodes_built": min(cluster.nodes, MOST_DRAWN),
        "dots": [asdict(dot) for dot in drawn.dots],
        "wires": [
            {
                "name": w.name, "kind": w.kind, "part": w.part,
                "source": w.source, "target": w.target,
                "bandwidth_bytes_per_s": w.bandwidth,
            }
            for w in drawn.wires
        ],
    }  # fmt: skip
