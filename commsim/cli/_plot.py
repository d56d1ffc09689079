"""Which pictures each command draws of what it found; where they go: `_drawn.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from commsim.cli import _arguments as a
from commsim.cli._drawn import Picture
from commsim.errors import CommsimError

if TYPE_CHECKING:
    from commsim.calibration.agreement import Agreement, Compared
    from commsim.cost.profile import Profile
    from commsim.diagnosis.findings import Findings
    from commsim.engine.timeline import Timeline
    from commsim.measurements.measurement import Measurement
    from commsim.planning.comparison import Offer
    from commsim.planning.plans import Plans
    from commsim.planning.scaling import Point
    from commsim.prediction import Prediction
    from commsim.report.comparison import Cause
    from commsim.report.explanation import Stage
    from commsim.topology.cluster import Cluster
    from commsim.traces.replay import Replay
    from commsim.workload.inference import InferencePrediction
    from commsim.workload.simulated_step import StepTimeline
    from commsim.workload.step import StepPrediction

MOST_DRAWN = 4
"""Machines in the picture of hot links."""
MOST_BUILT = 512
"""Nodes up to which a fabric is built to be drawn."""
MOST_NODES = 64
"""Nodes up to which collectives are drawn over node counts, however few the cluster has."""
CURVE = tuple(2**k for k in range(3, 34))


def swept(
    question: a.Question, predictions: Sequence[Prediction], measured: Sequence[Any] = ()
) -> Iterator[Picture]:
    """Curves by size, measured points on top, and the regions of the choice."""
    from commsim.report.plots.curves import curves

    if question.operation != "barrier":
        name = f"{question.cluster.name}, {question.n_ranks} ranks"
        yield "curves", curves({name: predictions}, measured)
        yield "regions", _regions([question])
    else:
        yield from candidates_of(predictions[0])


def predicted(question: a.Question, prediction: Prediction) -> Iterator[Picture]:
    """Curves around the question, the candidates, from link rate to bus bandwidth."""
    from commsim.report.explanation import waterfall

    if question.operation != "barrier":
        from commsim.report.plots.curves import curves

        around = [question.answer(n) for n in CURVE if n >= question.n_ranks * 8]
        yield "curves", curves({question.cluster.name: around})
    yield from candidates_of(prediction)
    yield from _waterfall(waterfall(prediction))
    yield from _bound(prediction)


def explained(
    question: a.Question, prediction: Prediction, stages: Sequence[Stage]
) -> Iterator[Picture]:
    """Candidates, from link rate to bus bandwidth, the choice by size and nodes, scaling."""
    yield from _waterfall(stages)
    yield from candidates_of(prediction)
    yield from _bound(prediction)
    others = list(_over_nodes(question))
    if question.operation != "barrier":
        yield "regions", _regions(others)
    if len(others) > 1:
        from commsim.report.plots.scaling import scaling

        nbytes = prediction.collective.nbytes
        yield "scaling", scaling([each.answer(nbytes) for each in others])


def candidates_of(prediction: Prediction) -> Iterator[Picture]:
    """The candidates of one choice; nothing where there is one only."""
    if sum(c.available for c in prediction.alternatives) < 2:
        return
    from commsim.report.plots.candidates import candidates

    chosen = prediction.algorithm, prediction.protocol
    yield "candidates", candidates(prediction.alternatives, chosen, "Candidates")


def _bound(prediction: Prediction) -> Iterator[Picture]:
    """The machines, with the links that bind; of thousands of machines nothing."""
    from commsim.report.binding import binding
    from commsim.report.plots.topology import topology

    if prediction.cluster.nodes <= MOST_BUILT:
        yield "topology", topology(
            prediction.cluster, nodes=2, binds=binding(prediction),
            remark=f"binds: {prediction.bottleneck}",
        )  # fmt: skip


def _waterfall(stages: Sequence[Stage]) -> Iterator[Picture]:
    if stages:
        from commsim.report.plots.waterfall import waterfall

        yield "waterfall", waterfall(stages, "From link rate to bus bandwidth")


def _over_nodes(question: a.Question) -> Iterator[a.Question]:
    """The question on 1, 2, 4, ... nodes and on its own; alone for a group of some ranks."""
    own = question.cluster.nodes
    if question.ranks is not None or question.cluster.hosts_per_domain > 1:
        yield question
        return
    counts = {2**k for k in range(11) if 2**k <= max(own, MOST_NODES if own > 1 else 1)} | {own}
    for nodes in sorted(counts):
        other = replace(question, cluster=replace(question.cluster, nodes=nodes))
        if other.n_ranks < 2:
            continue
        try:
            other.library.choose(other.collective(1 << 20), other.cluster)
        except CommsimError:
            continue  # a library or fabric that does not go so far
        yield other


def _regions(questions: Sequence[a.Question]) -> Any:
    from commsim.report.plots.regions import regions
    from commsim.report.regions import regions_of

    def chooser(question: a.Question) -> Callable[[int], tuple[str, str]]:
        def choose(nbytes: int) -> tuple[str, str]:
            best = question.library.choose(question.collective(nbytes), question.cluster).chosen
            return best.algorithm, best.protocol

        return choose

    rows = {
        f"{q.cluster.nodes} node{'s' * (q.cluster.nodes > 1)}": regions_of(chooser(q))
        for q in questions
    }
    one = questions[0]
    return regions(
        rows, f"{one.operation}: what {one.library.name} {one.library.version} chooses by size"
    )


def compared(
    first: a.Question, second: a.Question, causes: Sequence[Cause],
    at: tuple[Prediction, Prediction],
) -> Iterator[Picture]:  # fmt: skip
    """The curves of two clusters and what the difference is due to."""
    from commsim.report.plots.comparison import comparison

    if first.operation == "barrier":
        lines: list[list[Prediction]] = [[p] for p in at]
    else:
        least = 8 * max(first.n_ranks, second.n_ranks)
        lines = [[q.answer(n) for n in CURVE if n >= least] for q in (first, second)]
    yield "comparison", comparison(lines[0], lines[1], causes, at)


def played(found: Timeline, question: a.Question) -> Iterator[Picture]:
    """Who sends when, how full the links were, and where the hot ones are."""
    from commsim.report.plots.gantt import timeline
    from commsim.report.plots.heat import link_heat
    from commsim.report.plots.topology import topology

    yield "timeline", timeline(found)
    if found.link_utilization:
        yield "load of links", link_heat(found)
        yield "topology", _hot(found, question, topology)


def _hot(found: Timeline, question: a.Question, topology: Callable[..., Any]) -> Any:
    """The machines that carried bytes; the others of equal ones played as one would look idle."""
    load = found.link_utilization
    ends = (end for link in load for end in link.split(" -> "))
    hosts = {int(end.partition("/")[0][4:]) for end in ends if end.startswith("node")}
    folded = [note for note in found.notes if note.startswith("folded") and "machines" in note]
    return topology(
        question.cluster, load, nodes=min(MOST_DRAWN, max(hosts, default=0) + 1),
        remark="; ".join(folded),
    )  # fmt: skip


def stepped(found: StepPrediction, shown: StepTimeline | None) -> Iterator[Picture]:
    """Where a step goes, the timeline if it was played, the roofline, scaling with replicas."""
    from commsim.report.plots import roofline as roofs
    from commsim.report.plots.scaling import step_scaling
    from commsim.report.plots.step_waterfall import step_waterfall
    from commsim.report.roofline import roofline

    yield "step", step_waterfall(found)
    if shown is not None:
        from commsim.report.plots.gantt import step_timeline

        yield "timeline", step_timeline(shown)
    roof = roofline(found)
    if roof.operators:
        yield "roofline", roofs.roofline(roof)
    steps = list(_over_replicas(found))
    if len(steps) > 1:
        title = f"{found.model.name} by GPUs: batch and data parallelism grow with them"
        yield "scaling", step_scaling(steps, title)


def _over_replicas(found: StepPrediction) -> Iterator[StepPrediction]:
    """The step with half, twice, four times ... its replicas, batch and nodes."""
    from commsim.workload.step import predict_step

    cluster, layout = found.cluster, found.layout
    for factor in (0.125, 0.25, 0.5, 1, 2, 4, 8):
        sizes = [v * factor for v in (cluster.nodes, layout.dp, layout.global_batch)]
        if any(v < 1 or v != int(v) for v in sizes):
            continue
        nodes, dp, batch = map(int, sizes)
        other = replace(layout, dp=dp, global_batch=batch)
        try:
            yield predict_step(found.model, replace(cluster, nodes=nodes), other, found.profile)
        except CommsimError:
            continue  # experts or shards that so few or so many replicas cannot have


def served(found: InferencePrediction) -> Iterator[Picture]:
    """Where the time of the first token goes, and of every other."""
    from commsim.report.plots.step_waterfall import serving_waterfall

    yield "first and next token", serving_waterfall(found)


def replayed(found: Replay) -> Iterator[Picture]:
    """Who computes and who communicates when."""
    from commsim.report.plots.gantt import replay_timeline

    yield "timeline", replay_timeline(found)


def planned(found: Plans, points: Sequence[Point] = ()) -> Iterator[Picture]:
    """Time against memory of every layout, where the best's step goes; scaling if it was asked."""
    from commsim.report.plots.pareto import pareto
    from commsim.report.plots.step_waterfall import step_waterfall

    yield "layouts", pareto(found)
    yield "step of the best", step_waterfall(found.best.step)
    if steps := [p.plan.step for p in points if p.plan is not None]:
        from commsim.report.plots.scaling import step_scaling

        yield "scaling", step_scaling(steps, f"The best layouts of {found.model.name} by GPUs")


def offered(found: Sequence[Offer]) -> Iterator[Picture]:
    """What 10^12 tokens take and cost on several clusters, and where that goes."""
    from commsim.report.plots.offers import offers

    yield "clusters", offers(found)


def calibrated(measurements: Sequence[Measurement], profile: Profile) -> Iterator[Picture]:
    """Errors of held-back points, all points with the new profile, how often its interval holds."""
    from commsim.calibration.agreement import agreement, compare
    from commsim.report.plots.residuals import held_out

    assert profile.calibration
    if profile.calibration.report.held_out:
        yield "held back", held_out(profile.calibration.report.held_out)
    points = compare(measurements, profile)
    title = "Points of the fit, with the calibrated profile"
    yield from validated(points, agreement(points), title)


def validated(
    points: Sequence[Compared], rows: Sequence[Agreement], title: str
) -> Iterator[Picture]:
    """Every point, predicted against measured, and how often the interval holds."""
    from commsim.report.plots.residuals import coverage, residuals

    yield "residuals", residuals(points, title)
    yield "coverage", coverage(rows)


def diagnosed(found: Findings) -> Iterator[Picture]:
    """The causes, and what was measured beside what each of them predicts."""
    from commsim.report.plots.diagnosis import diagnosis

    yield "diagnosis", diagnosis(found)


def wired(cluster: Cluster) -> Iterator[Picture]:
    """The machines and their fabric."""
    from commsim.report.plots.topology import topology

    yield "topology", topology(cluster)
