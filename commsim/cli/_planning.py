"""The options of a search for layouts, which `plan` and `compare --model` share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

RANKED = 10  # layouts
PLAYED = 20  # of the best, by the event engine, at most
TUNED = 5  # of the best, with all settings of library and buckets, at most

Objective = Annotated[str, typer.Option(help="time, cost or memory.")]
Framework = Annotated[
    list[str] | None,
    typer.Option(help="megatron (default), nemo, torchtitan, fsdp, deepspeed, ddp. Repeatable."),
]
Only = Annotated[
    list[str] | None,
    typer.Option(
        "--only",
        "--fix",
        help="Hold dimensions to values: tp=4,8 or tp=8,pp=16,recompute=full,micro_batch=1..4. "
        "Repeatable.",
    ),
]
Exclude = Annotated[
    list[str] | None,
    typer.Option(
        help="Values or words of the tables that are not to be: zero3,recompute:full,cp "
        "(above 1), tp-overlap, interleave=1. Repeatable.",
    ),
]
Simulate = Annotated[
    int | None,
    typer.Option(
        help="So many of the best played by the event engine and ranked by it. Default: those "
        f"ranked, {PLAYED} at most."
    ),
]
Tune = Annotated[
    int | None,
    typer.Option(
        help="For so many of the best NCCL's settings and the size of buckets are searched, "
        f"and they are ranked with the best of these. Default: those ranked, {TUNED} at most."
    ),
]
Where = Annotated[
    str, typer.Option(help="auto, serial, local (cores), dask://host:port, ray://host:port.")
]
Jobs = Annotated[int | None, typer.Option(help="Processes of the local engine.")]
Results = Annotated[
    Path | None, typer.Option(help="SQLite file to keep results in and to go on from.")
]
