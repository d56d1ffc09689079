"""`python docs/contention.py`: the picture of simulation.md (extra `plot`).

What every rank of two DGX H100 sends on channel 0 of two collectives: one after the other, and at
once. Rows follow channel 0's ring, so that each rank sends to the row below it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import commsim
from commsim.engine.timeline import Span, Timeline

PICTURE = Path(__file__).with_suffix(".png")
OPERATIONS = ("reduce_scatter", "all_gather")
COLOURS = ("#0072b2", "#e69f00")  # Okabe and Ito's: they differ to every eye
NBYTES = 256 << 20
GPUS = 8  # of a machine


def main() -> None:
    """Plays the collectives both ways and writes the picture."""
    import matplotlib  # optional, and slow to load

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.patches import Patch

    alone = play(OPERATIONS[:1], (0.0,)).duration
    cases = {
        "One after the other": play(OPERATIONS, (0.0, alone)),
        "At once": play(OPERATIONS, (0.0, 0.0)),
    }
    figure, axes = plt.subplots(2, figsize=(10, 8.6), sharex=True)
    for place, (title, timeline) in zip(axes, cases.items(), strict=True):
        place.set_title(title, loc="left", weight="bold", pad=18)
        draw(place, timeline)
    axes[1].set_xlabel("us")
    axes[1].xaxis.set_major_formatter("{x:,.0f}")
    meaning = dict(zip(OPERATIONS, COLOURS, strict=True))
    meaning |= {"bytes leave": "0.4", "the last of them travel": "0.85"}
    bars = [Patch(color=colour, label=name) for name, colour in meaning.items()]
    bars.append(Patch(facecolor="white", edgecolor="0.6", label="waits"))
    figure.legend(handles=bars, loc="lower center", ncols=5, frameon=False)
    figure.tight_layout(rect=(0, 0.035, 1, 1), h_pad=1.5)
    figure.savefig(PICTURE, dpi=110)


def play(operations: tuple[str, ...], starts: tuple[float, ...]) -> Timeline:
    """The timeline of the operations, each from its start (s) on."""
    cluster = commsim.load_cluster("dgx-h100", nodes=2)
    asked = [
        (commsim.Collective(operation, nbytes=NBYTES), start)
        for operation, start in zip(operations, starts, strict=True)
    ]
    return commsim.simulate(asked, cluster, fold=False)


def draw(axes: Any, timeline: Timeline) -> None:
    """A row per rank, in it a lane per collective; a line where each collective ends."""
    spans = [span for span in timeline.spans if span.channel == 0]
    following = {int(span.source): int(span.destination) for span in spans}
    row = {rank: i for i, rank in enumerate(ring(following))}
    for span in spans:
        draw_span(axes, span, row[int(span.source)] + 0.44 * span.collective - 0.42)
    texts: dict[int, list[str]] = {}
    for played, colour in zip(timeline.played, COLOURS, strict=True):
        end = round(played.end * 1e6)
        axes.axvline(end, color=colour, linewidth=1, linestyle="--")
        texts.setdefault(end, []).append(played.collective.operation)
    for end, names in texts.items():
        text = f"{' and '.join(names)} done: {end:,} us"
        axes.annotate(text, (end, 1.01), xycoords=("data", "axes fraction"), ha="right")
    axes.axhline(GPUS - 0.5, color="0.7", linewidth=0.8)  # the next rows are the other machine
    axes.set_yticks(range(len(row)), [label(rank, following) for rank in row])
    axes.set_ylim(len(row) - 0.4, -0.6)
    axes.set_xlim(0, 1600)
    axes.tick_params(axis="y", length=0, labelsize=9)
    axes.spines[["top", "right", "left"]].set_visible(False)


def draw_span(axes: Any, span: Span, top: float) -> None:
    """A transfer: full while its bytes leave, pale while the last of them travel."""
    begun, sent, arrived = (1e6 * time for time in (span.begun, span.sent, span.arrived))
    style = {"facecolors": COLOURS[span.collective], "edgecolors": "white", "linewidth": 0.6}
    axes.broken_barh([(sent, arrived - sent)], (top, 0.4), alpha=0.3, **style)
    axes.broken_barh([(begun, sent - begun)], (top, 0.4), **style)


def ring(following: dict[int, int]) -> list[int]:
    """The ranks in the order in which data passes, from 0 on."""
    order = [0]
    while following[order[-1]] != 0:
        order.append(following[order[-1]])
    return order


def label(rank: int, following: dict[int, int]) -> str:
    """The rank, and whether it sends to the other machine."""
    target = following[rank]
    away = rank // GPUS != target // GPUS
    return f"rank {rank}, over the network to {target}" if away else f"rank {rank}"


if __name__ == "__main__":
    main()
