"""`commsim explore`: its command line; the page itself is tested in tests/explore."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from urllib.request import urlopen

import pytest

from commsim.cli import explore as module
from commsim.cli.main import run

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")


def test_a_port_that_is_taken_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert run(["explore", "--port", str(port), "--no-browser"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"commsim: --port: {port}: ")
    assert error.count("\n") == 1


def test_a_missing_package_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "NEEDED", ("no_such_package",))
    assert run(["explore", "--no-browser"]) == 2
    assert "pip install 'commsim[web]'" in capsys.readouterr().err


def test_it_serves_until_interrupted() -> None:
    command = [sys.executable, "-m", "commsim", "explore", "--port", "0", "--no-browser"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout
            address = process.stdout.readline().split()[2]
            assert address.startswith("http://127.0.0.1:")
            with urlopen(address, timeout=30) as reply:
                assert b"commsim explore" in reply.read()
            process.send_signal(signal.SIGINT)
            _, error = process.communicate(timeout=30)
        finally:
            process.kill()
    assert error == ""
    assert process.returncode in (0, 130)
