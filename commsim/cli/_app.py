"""The Typer application: commands found by name, what all of them take, completion for shells."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import os
import pkgutil
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

import commsim.cli
from commsim import __version__
from commsim.cli._output import hush

HELP = """Predicts what GPU communication costs, on hardware you need not have.

Example: commsim compare dgx-a100 dgx-h100 all_reduce --size 1GiB --nodes 4

Exit codes: 0 ok, 2 bad input (one line on stderr says what to do)."""
COMPLETING = "_COMMSIM_COMPLETE"
"""The variable that Typer's completion scripts set; the line is in one of TYPED."""
TYPED = ("COMP_WORDS", "_TYPER_COMPLETE_ARGS")

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Leave out notes and progress.")]


def command_names() -> tuple[str, ...]:
    """Every command, sorted: the modules of commsim.cli but `main` and the private ones."""
    modules = (m.name for m in pkgutil.iter_modules(commsim.cli.__path__))
    return tuple(sorted(n for n in modules if n != "main" and not n.startswith("_")))


def asked(arguments: Sequence[str]) -> str:
    """The first word that is no option. While a line is typed, the command in it ("": none yet)."""
    typing = bool(os.environ.get(COMPLETING))
    if typing:
        arguments = next(filter(None, map(os.environ.get, TYPED)), "").split()[1:]
    found = next((word for word in arguments if not word.startswith("-")), "")
    return "" if typing and found not in command_names() else found


def build(names: Sequence[str]) -> typer.Typer:
    """The Typer application of these commands; only their modules are imported."""
    app = _empty()
    for name in names:
        module = importlib.import_module(f"commsim.cli.{name}")
        settings = getattr(module, "CONTEXT_SETTINGS", None)  # of the few that parse differently
        command = getattr(module, name)
        if isinstance(command, typer.Typer):  # one with commands of its own
            app.add_typer(command, name=name)
        else:
            app.command(name, context_settings=settings)(quietly(command))
    return app


def listing() -> typer.Typer:
    """The application with every command's name and what it is for; none is imported."""
    app = _empty()
    for name in command_names():
        app.command(name, help=_summary(name))(lambda: None)
    return app


def quietly(command: Callable[..., Any]) -> Callable[..., Any]:
    """The same command, which takes --quiet too."""

    @functools.wraps(command)
    def called(*, quiet: bool, **given: Any) -> Any:
        with hush(quiet):
            return command(**given)

    signature = inspect.signature(command, eval_str=True)
    if os.environ.get(COMPLETING):
        from commsim.cli._complete import completing  # of the catalogues: not without need

        signature = completing(signature)
    option = inspect.Parameter(
        "quiet", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Quiet
    )
    parameters = [*signature.parameters.values(), option]
    called.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {**command.__annotations__, "quiet": Quiet}
    return called


def _empty() -> typer.Typer:
    app = typer.Typer(
        name="commsim",
        help=HELP,
        no_args_is_help=False,
        add_completion=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True)(_root)
    return app


def _summary(name: str) -> str:
    """What a command is for: its module's first line after the colon, which is not executed."""
    spec = importlib.util.find_spec(f"commsim.cli.{name}")
    assert spec
    assert spec.origin
    with open(spec.origin, encoding="utf-8") as file:
        text = ast.get_docstring(ast.parse(file.read())) or ""
    first = text.splitlines()[0].partition(": ")[2]
    return first[:1].upper() + first[1:]


def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    quiet: Quiet = False,
) -> None:
    if version:
        print(f"commsim {__version__}")
    elif context.invoked_subcommand is None:
        print(context.get_help())
    else:
        context.with_resource(hush(quiet))
