"""--plot, --plot-theme and --report: where pictures go. What each command draws: `_plot.py`.

Altair is loaded when a picture is asked for, not before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from commsim import __version__
from commsim.cli._output import finite
from commsim.errors import PictureError
from commsim.report.picture import THEMES, check_picture, check_place, svg, write_picture

Plot = Annotated[
    Path | None,
    typer.Option("--plot", help="Draw it: FILE.html (interactive, no network), .png or .svg."),
]
Theme = Annotated[
    str,
    typer.Option(
        "--plot-theme",
        help=f"{', '.join(THEMES)}. auto: .html as its reader's screen, .png and .svg light.",
    ),
]
Report = Annotated[
    Path | None,
    typer.Option("--report", help="Write a page for readers: FILE.html; see `commsim report`."),
]
Picture = tuple[str, Any]
"""What it shows, and the chart."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """Where pictures go: a file of their own, and a page for readers; None: nowhere."""

    plot: Path | None
    theme: str = "auto"
    report: Path | None = None

    def check(self) -> Drawn:
        """Itself, if both files can be written; PictureError otherwise, before the long work."""
        if self.plot is not None:
            check_picture(self.plot, theme=self.theme)
        if self.report is not None:
            if self.report.suffix.lower() not in (".html", ".htm"):
                raise PictureError(f"--report: expected a name ending in .html, got {self.report}")
            check_place(self.report, "--report")
        return self

    def write(
        self, pictures: Callable[[], Iterator[Picture]], kind: str = "", data: Any = None
    ) -> None:
        """Draws what was asked for; `data` is the JSON of a report of that kind."""
        if self.plot is None and self.report is None:
            return
        drawn = list(pictures())
        if self.plot is not None:
            if not drawn:
                raise PictureError(
                    f"--plot: {self.plot}: there is nothing to draw: no bytes, no choice"
                )
            from commsim.report.plots.style import together

            write_picture(together(*(chart for _, chart in drawn)), self.plot, self.theme)
        if self.report is not None:
            from commsim.report.page import page

            content, found = import_module(f"commsim.report.contents.{kind}"), finite(data)
            text = page(
                content.title(found), content.parts(found), found,
                [(name, svg(chart, f"p{i}")) for i, (name, chart) in enumerate(drawn)],
                version=__version__,
            )  # fmt: skip
            self.report.write_text(text, encoding="utf-8")
