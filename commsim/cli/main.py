"""The command `commsim`: runs the command asked for; an error is one line and exit code 2."""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

import commsim.cli
from commsim import __version__
from commsim.errors import CommsimError, UnknownNameError

# Every bad command line is a UsageError, which Typer has from Click or from a copy of its own.
USAGE_ERROR: type[Exception] = typer.BadParameter.__bases__[0]
BAD_INPUT = 2
HELP = """Predicts what GPU communication costs, on hardware you need not have.

Exit codes: 0 ok, 2 bad input (one line on stderr says what to do)."""


def command_names() -> tuple[str, ...]:
    """Every command, sorted: the modules of commsim.cli but this one and the private ones."""
    modules = (m.name for m in pkgutil.iter_modules(commsim.cli.__path__))
    return tuple(sorted(n for n in modules if n != "main" and not n.startswith("_")))


def build(names: Sequence[str]) -> typer.Typer:
    """The Typer application of these commands; only their modules are imported."""
    app = typer.Typer(
        name="commsim",
        help=HELP,
        no_args_is_help=False,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True)(_root)
    for name in names:
        module = importlib.import_module(f"commsim.cli.{name}")
        settings = getattr(module, "CONTEXT_SETTINGS", None)  # of the few that parse differently
        command = getattr(module, name)
        if isinstance(command, typer.Typer):  # one with commands of its own
            app.add_typer(command, name=name)
        else:
            app.command(name, context_settings=settings)(command)
    return app


def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        print(f"commsim {__version__}")
    elif context.invoked_subcommand is None:
        print(context.get_help())


def run(arguments: Sequence[str]) -> int:
    """The exit code of one command line: 0 ok, 2 bad input, or what the command says."""
    known = command_names()
    first = arguments[0] if arguments else ""
    try:
        if first and not first.startswith("-") and first not in known:
            raise UnknownNameError("command", first, known)
        # One command imports one module: the others would only make the shell wait.
        app = build((first,) if first in known else known)
        code = app(list(arguments), prog_name="commsim", standalone_mode=False)
    except USAGE_ERROR as error:
        return _fail(_usage_message(error))
    except CommsimError as error:
        return _fail(str(error))
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        return _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
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
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except (KeyboardInterrupt, typer.Abort):
        code = 130  # as a shell reports SIGINT
    return code
