"""A running server, on a free port of this machine."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    """`http://127.0.0.1:PORT`, where the page is served."""
    pytest.importorskip("starlette")
    uvicorn = pytest.importorskip("uvicorn")
    from commsim.explore.server import HOST, application
    from commsim.explore.worker import Worker

    worker = Worker(30.0)
    worker.ask("warm", {}, limit=120.0)
    with socket.socket() as listening:
        listening.bind((HOST, 0))
        port = listening.getsockname()[1]
        config = uvicorn.Config(
            application(worker, port, "0"), log_level="warning", lifespan="off", ws="none"
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield f"http://{HOST}:{port}"
        server.should_exit = True
        thread.join()
    worker.close()
