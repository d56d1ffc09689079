"""`python -m validation.plot`: the README's picture, predicted against measured (extra `plot`)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from commsim.prediction import predict
from validation.published import read_points

PICTURE = Path(__file__).parents[1] / "docs" / "predicted-measured.png"
COLOURS = {"one node": "#1f77b4", "multi-node": "#d95f02"}


def main() -> None:
    """Writes the picture: every published point under the shipped profile."""
    import matplotlib  # optional, and slow to load

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), width_ratios=(3, 2))
    ratios = {kind: [] for kind in COLOURS}  # type: ignore[var-annotated]
    for kind, colour in COLOURS.items():
        x, y = [], []
        for point in read_points():
            found = predict(point.collective, point.cluster, point.library)
            nodes = found.choice.facts.communicator.nodes  # type: ignore[attr-defined]
            if point.judged and ("one node" if nodes == 1 else "multi-node") == kind:
                x.append(point.measured * 1e6)
                y.append(found.duration * 1e6)
        ratios[kind] = list(np.array(y) / np.array(x) - 1)
        left.scatter(x, y, s=4, alpha=0.35, color=colour, label=f"{kind} ({len(x)})", linewidths=0)
    ends = [5, 3e6]
    left.plot(ends, ends, color="black", linewidth=0.8)
    left.set(xscale="log", yscale="log", xlabel="measured, us", ylabel="predicted, us")
    left.set(xlim=ends, ylim=ends)
    left.legend(frameon=False, markerscale=3)
    bins = np.linspace(-0.6, 0.6, 61)
    for kind, colour in COLOURS.items():
        right.hist(100 * np.array(ratios[kind]), 100 * bins, color=colour, alpha=0.6, label=kind)
    right.set(xlabel="predicted / measured - 1, %", ylabel="points")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(PICTURE, dpi=130)


if __name__ == "__main__":
    main()
