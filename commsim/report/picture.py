"""A picture's file: interactive .html that needs no network, or .png and .svg without a browser.

Theme "auto": an .html follows its reader's light or dark, .png and .svg are light.
"""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from commsim.errors import PictureError, UnknownNameError

FORMATS = (".html", ".png", ".svg")
THEMES = ("auto", "light", "dark")
INSTALL = "pip install 'commsim[plot]'"
MENU = {"actions": {"export": True, "source": False, "compiled": False, "editor": False}}
NEEDED = ("altair", "vl_convert")
PIXELS = 144
"""Of a .png to the inch."""
TEMPLATE = Path(__file__).with_name("plot.html")


def check_picture(path: Path, option: str = "--plot", theme: str = "auto") -> None:
    """Nothing if `write_picture` can write this file; before long work, not after.

    Raises PictureError for another ending, a folder that is not there, or a missing package;
    UnknownNameError for another theme.
    """
    if path.suffix.lower() not in FORMATS:
        raise PictureError(
            f"{option}: {path}: expected a name ending in {', '.join(FORMATS[:-1])} or "
            f"{FORMATS[-1]}, got {path.suffix or 'no ending'}"
        )
    if theme not in THEMES:
        raise UnknownNameError(f"{option}-theme", theme, THEMES)
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


def write_picture(chart: Any, path: Path, theme: str = "auto") -> None:
    """Writes an Altair chart in commsim's look; .html carries all that it needs inside."""
    check_picture(path, theme=theme)
    import vl_convert  # half a second, with Altair, that other commands save

    from commsim.report.plots.style import spec

    kind = path.suffix.lower().removeprefix(".")
    if kind == "html":
        path.write_text(_html(chart, path.stem, theme), encoding="utf-8")
    elif kind == "png":
        drawn = spec(chart, dark=theme == "dark")
        path.write_bytes(
            vl_convert.vegalite_to_png(drawn, ppi=PIXELS, scale=1, vl_version=_version(drawn))
        )
    else:
        drawn = spec(chart, dark=theme == "dark")
        path.write_text(
            vl_convert.vegalite_to_svg(drawn, vl_version=_version(drawn)), encoding="utf-8"
        )


def svg(chart: Any, name: str) -> str:
    """An Altair chart in commsim's look as SVG text, to stand in a page beside others. Its colours
    for text, lines and ground are variables of the page: `var(--plot-text)`, see `style.PAGE`.

    name: goes before every id, of which each may be in a page once only.
    """
    import vl_convert

    from commsim.report.plots.style import PAGE, spec

    drawn = spec(chart)
    text = vl_convert.vegalite_to_svg(drawn, vl_version=_version(drawn))
    for colour, variable in PAGE.items():
        red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
        either = rf'"({colour}|rgb\({red}, {green}, {blue}\))"'
        text = re.sub(either, f'"var(--plot-{variable})"', text, flags=re.IGNORECASE)
    return re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", text)


def _script(value: Any) -> str:
    """The value as it may stand in a page's script, which ends at "</" wherever that is."""
    return json.dumps(value, allow_nan=False).replace("</", "<\\/")


def _version(drawn: dict[str, Any]) -> str | None:
    """Vega-Lite's, of which a picture is: `6.1`; None: whatever is newest."""
    found = re.search(r"/v(\d+\.\d+)", drawn.get("$schema", ""))
    return found[1] if found else None


def _html(chart: Any, title: str, theme: str) -> str:
    import vl_convert
    from jinja2 import Environment

    from commsim.report.plots.style import GROUND, spec

    themes = {"auto": (False, True), "light": (False,), "dark": (True,)}[theme]
    drawn = [spec(chart, dark=dark) for dark in themes]
    bundle = vl_convert.javascript_bundle(
        "window.vegaEmbed = vegaEmbed;", vl_version=_version(drawn[0])
    )
    datasets = drawn[0]["datasets"]  # the same in all
    drawn = [{k: v for k, v in each.items() if k != "datasets"} for each in drawn]
    return Environment().from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        title=re.sub(r"[<>&\"]", "", title),
        bundle=bundle,
        schemes=" ".join("dark" if dark else "light" for dark in themes),
        pictures=_script(drawn), datasets=_script(datasets), options=_script(MENU),
        grounds=[each["config"]["background"] or GROUND for each in drawn],
    )  # fmt: skip
