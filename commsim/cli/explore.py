"""`commsim explore`: a local web page of clusters, operations and training steps."""

from __future__ import annotations

import socket
import webbrowser
from importlib.util import find_spec
from typing import Annotated

import typer

from commsim import __version__
from commsim.errors import ExploreError

LIMIT = 20.0
"""s that one answer may take."""
NEEDED = ("starlette", "uvicorn")


def explore(
    port: Annotated[
        int, typer.Option("--port", "-p", min=0, max=65535, help="0: any that is free.")
    ] = 8765,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Only print the address.")
    ] = False,
    time_limit: Annotated[
        float, typer.Option("--time-limit", min=0.1, help="Seconds that one answer may take.")
    ] = LIMIT,
) -> None:
    """A local web page: clusters side by side, curves, topology, choice and bottleneck at once.

    Served to this machine alone (127.0.0.1); it needs no network. Ctrl-C ends it.

    Example: commsim explore --port 8765

    Exit codes: 0 ok, 2 bad input (the port is taken, a package is missing).
    """
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise ExploreError(
            f"explore: {', '.join(missing)} not installed; run: pip install 'commsim[web]'"
        )
    import uvicorn

    from commsim.explore.server import HOST, application
    from commsim.explore.worker import Worker

    with _bound(HOST, port) as listening:
        number = listening.getsockname()[1]
        address = f"http://{HOST}:{number}/"
        worker = Worker(time_limit)
        try:
            worker.ask("warm", {}, limit=120.0)
            print(f"commsim explore: {address}   (Ctrl-C ends it)", flush=True)
            if not no_browser:
                webbrowser.open(address)
            config = uvicorn.Config(
                application(worker, number, __version__),
                log_level="warning",
                lifespan="off",
                ws="none",
            )  # fmt: skip
            uvicorn.Server(config).run(sockets=[listening])
        except KeyboardInterrupt:
            pass
        finally:
            worker.close()


def _bound(host: str, port: int) -> socket.socket:
    """A socket that listens on that port. Raises ExploreError where it is taken."""
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
        found.listen()  # so that a browser may knock before the server is up
    except OSError as error:
        found.close()
        raise ExploreError(
            f"--port: {port}: {error.strerror}; give another one, or 0 for any that is free"
        ) from None
    return found
