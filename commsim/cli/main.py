"""The command `commsim`: runs the command asked for; an error is one line and exit code 2.

Light to load: until `main` runs, nobody catches a Ctrl-C.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from commsim.errors import CommsimError, UnknownNameError

BAD_INPUT = 2
INTERRUPTED = 130
"""As a shell reports SIGINT."""


def run(arguments: Sequence[str]) -> int:
    """The exit code of one command line: 0 ok, 2 bad input, or what the command says."""
    import typer  # 0.1 s

    from commsim.cli._app import asked, build, command_names, listing

    # Every bad command line is a UsageError, which Typer has from Click or a copy of its own.
    usage_error: type[Exception] = typer.BadParameter.__bases__[0]
    name, known = asked(arguments), command_names()
    try:
        if name and name not in known:
            raise UnknownNameError("command", name, known, "commsim --help")
        app = build((name,)) if name else listing()
        code = app(list(arguments), prog_name="commsim", standalone_mode=False)
    except usage_error as error:
        return _fail(_usage_message(error))
    except CommsimError as error:
        return _fail(str(error))
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        return _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except typer.Abort:
        return INTERRUPTED
    return code if isinstance(code, int) else 0


def _usage_message(error: Any) -> str:
    """Click's message as one line: what is wrong, and where the help is."""
    context = error.ctx
    command = context.command_path if context is not None else "commsim"
    return f"{' '.join(error.format_message().split())} (see `{command} --help`)"


def _fail(message: str) -> int:
    for line in message.splitlines():
        print(f"commsim: {line}", file=sys.stderr)
    return BAD_INPUT


def main() -> int:
    """Runs the command line of this process; returns its exit code."""
    try:
        code = run(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:  # the reader (head, less) has left: nothing more to say
        sys.stderr.flush()
        os._exit(0)  # not through finalization, which threads of a script's ranks do not survive
    except KeyboardInterrupt:
        code = INTERRUPTED
    return code
