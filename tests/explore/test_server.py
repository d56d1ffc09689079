"""The server: its pages, its limits, and one line of JSON for whatever it refuses."""

from __future__ import annotations

import json
import re
import time
from importlib.resources import files
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from commsim.errors import ExploreError, TimeLimitError
from commsim.explore.answers import ANSWERS
from commsim.explore.worker import Worker

pytest.importorskip("starlette")
from commsim.explore.server import HEADERS, MOST_BODY

QUESTION = {"sides": [{"preset": "dgx-h100"}], "operation": "all_reduce", "size": "1MiB"}


def get(address: str, path: str = "/", **headers: str) -> tuple[int, str, dict[str, str]]:
    return reply(Request(address + path, headers=headers))


def post(
    address: str, kind: str, body: bytes, content: str = "application/json", **headers: str
) -> tuple[int, dict[str, object]]:
    request = Request(f"{address}/api/{kind}", body, {"Content-Type": content} | headers)
    status, text, _ = reply(request)
    return status, json.loads(text)


def reply(request: Request) -> tuple[int, str, dict[str, str]]:
    try:
        with urlopen(request, timeout=60) as found:
            return found.status, found.read().decode(), dict(found.headers)
    except HTTPError as error:
        with error:
            return error.code, error.read().decode(), dict(error.headers)


def test_the_page_and_its_files_are_served(address: str) -> None:
    status, html, headers = get(address)
    assert status == 200
    assert "default-src 'none'" in headers["content-security-policy"]
    named = re.findall(r'(?:src|href)="([\w.]+\.(?:js|css))"', html)
    assert {"app.js", "style.css"} <= set(named)
    for name in named:
        assert get(address, f"/{name}")[0] == 200


def test_every_module_that_is_imported_is_there(address: str) -> None:
    for file in files("commsim.explore").joinpath("static").iterdir():
        if file.name.endswith(".js"):
            for name in re.findall(r'from "\./([\w.]+)"', file.read_text("utf-8")):
                assert get(address, f"/{name}")[0] == 200


def test_nothing_is_fetched_from_elsewhere() -> None:
    for file in files("commsim.explore").joinpath("static").iterdir():
        found = re.findall(r"https?://[^\"'` )]+", file.read_text("utf-8"))
        assert set(found) <= {"http://www.w3.org/2000/svg"}  # a name, not an address


def test_an_answer(address: str) -> None:
    status, found = post(address, "collective", json.dumps(QUESTION).encode())
    assert status == 200
    assert found["sides"] == json.loads(json.dumps(ANSWERS["collective"](QUESTION)["sides"]))


@pytest.mark.parametrize(
    ("kind", "body", "status", "words"),
    [
        ("collective", b"{", 400, "not valid JSON"),
        ("collective", b"[]", 400, "expected a JSON object"),
        ("collective", b"{}", 200, "sides: "),
        ("collective", b"[" * 100_000, 400, "not valid JSON"),
        ("collective", b" " * (MOST_BODY + 1), 400, f"more than {MOST_BODY} bytes"),
        ("nothing", b"{}", 404, "unknown question"),
        ("step", b'{"sides": [{"preset": "dgx-h100"}]}', 200, "unknown model preset"),
    ],
)
def test_bad_questions(address: str, kind: str, body: bytes, status: int, words: str) -> None:
    code, found = post(address, kind, body)
    assert code == status
    assert words in str(found["error"])
    assert "\n" not in str(found["error"])


def test_other_sites_cannot_ask(address: str) -> None:
    body = json.dumps(QUESTION).encode()
    for host in ("evil.example", "127.0.0.1", "localhost:1"):
        assert get(address, Host=host)[0] == 403
        assert post(address, "collective", body, Host=host)[0] == 403
    # Forms of other sites can send these, but not JSON.
    for content in ("text/plain", "application/x-www-form-urlencoded"):
        code, found = post(address, "collective", body, content)
        assert code == 400
        assert "expected application/json" in str(found["error"])
    assert "access-control-allow-origin" not in {h.lower() for h in HEADERS}


@pytest.mark.parametrize("path", ["/..%2fserver.py", "/../server.py", "/etc/passwd", "/server.py"])
def test_no_other_file_is_served(address: str, path: str) -> None:
    status, text, _ = get(address, path)
    assert status == 404
    assert "import" not in text


def test_what_takes_too_long_is_stopped_and_the_next_is_answered() -> None:
    worker = Worker(60.0)
    try:
        worker.ask("options", {})
        begun = time.monotonic()
        with pytest.raises(TimeLimitError, match=r"no answer in 0.001 s"):
            worker.ask("step", {"sides": [{"preset": "dgx-h100"}], "model": "gpt2"}, limit=0.001)
        assert time.monotonic() - begun < 30
        assert worker.ask("options", {})["presets"]
    finally:
        worker.close()


def test_a_worker_that_dies_is_replaced() -> None:
    worker = Worker(60.0)
    try:
        worker.ask("options", {})
        worker._process.kill()
        worker._process.join()
        with pytest.raises(ExploreError, match="has died"):
            worker.ask("options", {})
        assert worker.ask("options", {})["presets"]
    finally:
        worker.close()
