"""`commsim predict`: how long one operation takes, how sure that is, and what binds."""

from __future__ import annotations

from commsim.cli import _arguments as a
from commsim.cli import _plot as pictures
from commsim.cli._drawn import Drawn, Plot, Report, Theme
from commsim.cli._output import print_facts, print_json, print_notes
from commsim.prediction import Prediction
from commsim.units import format_rate, format_size, format_time


def predict(
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
    report: Report = None,
    json: a.Json = False,
) -> None:
    """How long one operation takes, with the 80 % interval, the choice and the bottleneck.

    Example: commsim predict dgx-h100 all_reduce --size 1GiB --nodes 4

    Exit codes: 0 ok, 2 bad input.
    """
    drawn = Drawn(plot, theme, report).check()
    question = a.question(
        cluster, op, nodes=nodes, settings=settings, gpu=gpu, library=library, env=env,
        launch=launch, ranks=ranks, root=root, dtype=dtype, redop=redop, profile=profile,
    )  # fmt: skip
    prediction = question.answer(a.read_size(question.operation, size))
    found = prediction.to_dict()
    drawn.write(lambda: pictures.predicted(question, prediction), "predict", found)
    if json:
        print_json(found)
        return
    print(title(prediction))
    print_facts(summary(prediction))
    print_notes(prediction.notes)


def title(prediction: Prediction) -> str:
    """One line: what was asked, of whom, on what."""
    asked, cluster, library = prediction.collective, prediction.cluster, prediction.library
    what = asked.operation
    if asked.operation != "barrier":
        what += f" of {format_size(asked.nbytes)} ({asked.dtype})"
    machines = "node" if cluster.nodes == 1 else "nodes"
    return (
        f"{what} on {cluster.name}, {cluster.nodes} {machines}: {prediction.n_ranks} ranks,"
        f" {library.name} {library.version}"
    )


def summary(prediction: Prediction) -> list[tuple[str, str]]:
    """The answer, a line a fact."""
    low, high = prediction.interval
    facts = [
        (
            "duration",
            f"{format_time(prediction.duration)}   80 %: {format_time(low)} to {format_time(high)}",
        )
    ]
    if prediction.collective.operation != "barrier":
        facts += [
            ("algorithm bandwidth", format_rate(prediction.algorithm_bandwidth)),
            ("bus bandwidth", format_rate(prediction.bus_bandwidth)),
        ]
    facts += [
        ("choice", choice_text(prediction.algorithm, prediction.protocol, prediction.channels)),
        ("bottleneck", prediction.bottleneck),
        ("breakdown", breakdown_text(prediction)),
    ]
    return facts


def choice_text(algorithm: str, protocol: str, channels: int) -> str:
    """`ring, LL128, 16 channels`."""
    plural = "channel" if channels == 1 else "channels"
    return ", ".join(filter(None, (algorithm, protocol, f"{channels} {plural}")))


def breakdown_text(prediction: Prediction) -> str:
    """`launch 5 us (10 %), transfer 45 us (90 %)`."""
    return ", ".join(
        f"{name} {'-' if part < 0 else ''}{format_time(abs(part))}"
        f" ({100 * part / prediction.duration:.0f} %)"
        for name, part in prediction.breakdown.items()
        if part
    )
