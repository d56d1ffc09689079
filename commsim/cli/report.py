"""`commsim report`: what another command finds, as one HTML page for readers."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Annotated

import typer

from commsim.cli import _arguments as a
from commsim.cli._app import build
from commsim.errors import UnknownNameError

KINDS = (
    "predict", "compare", "simulate", "calibrate", "validate", "diagnose", "step", "plan", "infer",
)  # fmt: skip
CONTEXT_SETTINGS = {"allow_extra_args": True, "ignore_unknown_options": True}


def report(
    context: typer.Context,
    command: Annotated[
        str,
        typer.Argument(metavar="COMMAND", help=f"{', '.join(KINDS)}; then all that it takes."),
    ],
    output: Annotated[
        Path, typer.Option("-o", help="The page: FILE.html. (The command's own -o is --redop.)")
    ],
    json: a.Json = False,
) -> int:
    """One HTML file with figures, tables, pictures and the JSON inside: no network, printable.

    Light or dark as its reader's screen is, and light on paper.

    Example: commsim report predict dgx-h100 all_reduce --size 1GiB --nodes 4 -o report.html

    Exit codes: 0 ok, 2 bad input, 1 where `diagnose` or `validate` exits so.
    """
    if command not in KINDS:
        raise UnknownNameError("command to report", command, KINDS)
    app = build((command,))
    line = [command, *context.args, "--report", str(output), *(["--json"] if json else [])]
    with contextlib.redirect_stdout(io.StringIO()) as said:
        code = app(line, prog_name="commsim", standalone_mode=False)
    print(said.getvalue() if json else f"report written to {output}", end="" if json else "\n")
    return code if isinstance(code, int) else 0
