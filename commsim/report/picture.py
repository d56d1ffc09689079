"""A picture's file: interactive .html that needs no network, or .png and .svg without a browser."""

from __future__ import annotations

import io
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from commsim.errors import PictureError

FORMATS = (".html", ".png", ".svg")
INSTALL = "pip install 'commsim[plot]'"
MENU = {"actions": {"export": True, "source": False, "compiled": False, "editor": False}}
NEEDED = ("altair", "vl_convert")


def check_picture(path: Path, option: str = "--plot") -> None:
    """Nothing if `write_picture` can write this file; before long work, not after.

    Raises PictureError for another ending, a folder that is not there, or a missing package.
    """
    if path.suffix.lower() not in FORMATS:
        raise PictureError(
            f"{option}: {path}: expected a name ending in {', '.join(FORMATS[:-1])} or "
            f"{FORMATS[-1]}, got {path.suffix or 'no ending'}"
        )
    check_place(path, option)


def check_place(path: Path, option: str) -> None:
    """The same for a file of any ending."""
    if not path.parent.is_dir():
        raise PictureError(
            f"{option}: {path}: the folder {path.parent} does not exist; make it first"
        )
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise PictureError(
            f"{option}: pictures need {' and '.join(missing)}, which this Python does not have; "
            f"install with {INSTALL}"
        )


def write_picture(chart: Any, path: Path) -> None:
    """Writes an Altair chart in commsim's look; .html carries all that it needs inside."""
    check_picture(path)
    from commsim.report.plots.style import styled  # half a second that other commands save

    kind = path.suffix.lower().removeprefix(".")
    if kind == "html":
        styled(chart).save(str(path), format="html", inline=True, embed_options=MENU)
    elif kind == "png":
        styled(chart).save(str(path), format="png", ppi=144)
    else:
        styled(chart).save(str(path), format="svg")


def svg(chart: Any, name: str) -> str:
    """An Altair chart in commsim's look as SVG text, to stand in a page beside others.

    name: goes before every id, of which each may be in a page once only.
    """
    from commsim.report.plots.style import styled

    text = io.StringIO()
    styled(chart).save(text, format="svg")
    return re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", text.getvalue())
