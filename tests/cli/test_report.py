"""What a reader of the page reads is what `--json` gives."""

from __future__ import annotations

import json
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from commsim.cli.report import KINDS
from commsim.report.page import value_at
from commsim.report.words import SHARES, words

from .conftest import Ran

pytest.importorskip("altair")
pytest.importorskip("vl_convert")
Command = Callable[[str], Ran]

UNITS = {
    "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "GB/s": 1e9, "us": 1e-6,
    "ms": 1e-3, "s": 1.0, "days": 86400.0,
    "%": 0.01,
}  # fmt: skip
STEP = "--model llama3-8b --cluster dgx-h100 --nodes 2 --tp 8 --global-batch 16 --seq 4096"
TRAINING = "-m llama3.2-1b --global-batch 16 --seq 2048 --only pp=1,cp=1,micro_batch=1 --tune 0"
PLAN = "-m llama3-8b -c dgx-h100 --global-batch 16 --seq 4096 --only pp=1 --only micro_batch=1"


class Page(HTMLParser):
    """Texts by path, tables' rows, and the JSON inside."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.texts: list[list[str]] = []
        self.data: Any = None
        self.outside: list[str] = []
        self.pictures = 0
        self.ids: list[str] = []
        self._inside = False
        self._script = ""
        self._in_script = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if path := found.get("data-path"):
            self.texts.append([path, ""])
        self._inside = bool(path)
        self._in_script = tag == "script" and found.get("id") == "data"
        self.pictures += tag == "figure"
        if found.get("id"):
            self.ids.append(str(found["id"]))
        for name in ("src", "href", "xlink:href"):
            if str(found.get(name, "#")).startswith(("http", "//")):
                self.outside.append(str(found[name]))

    def handle_endtag(self, tag: str) -> None:
        if tag == "script" and self._in_script:
            self.data, self._in_script = json.loads(self._script), False
        self._inside = False

    def handle_data(self, data: str) -> None:
        if self._in_script:
            self._script += data
        elif self._inside:
            self.texts[-1][1] += data


def read(text: str) -> float | None:
    """The number that a reader reads; None where it is no number with a unit known here."""
    number, _, unit = text.replace(",", "").partition(" ")
    try:
        return float(number) * (UNITS[unit] if unit else 1)
    except (KeyError, ValueError):
        return None


def check(page: Page) -> int:
    """How many numbers were read back from the page; each is the JSON's, to its four digits."""
    compared = 0
    for path, text in page.texts:
        value = value_at(page.data, path)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            found = read(text)
            assert found is not None, (path, text)
            assert found == pytest.approx(value, rel=6e-4, abs=1e-15), (path, text, value)
            compared += 1
        elif isinstance(value, str):
            assert text == value, path
    return compared


def test_numbers_are_read_as_a_reader_would() -> None:
    assert read("1.5 GiB") == 1.5 * 2**30
    assert read("12,346") == 12346
    assert read("-2 ms") == -0.002
    assert words("trillion_tokens_s", 200_000.0) == "2.315 days"
    assert words("interval_s/0", -86400.0 * 1234.5) == "-1,234 days"
    assert words("trillion_tokens_s", 100_000.0) == "1e+05 s"
    assert read("50 %") == 0.5
    assert read("ring, LL") is None
    assert "mfu" in SHARES


@pytest.mark.parametrize(
    ("line", "least", "pictures"),
    [
        ("predict dgx-h100 all_reduce --size 64MiB --nodes 2", 30, 3),
        ("predict dgx-h100 barrier", 3, 0),
        ("compare dgx-a100 dgx-h100 all_reduce -s 1MiB -s 1GiB --nodes 2", 10, 1),
        (f"compare dgx-a100 dgx-h100 hgx-b200 {TRAINING}", 60, 1),
        (f"plan -c dgx-a100 -c dgx-h100 {TRAINING}", 50, 1),
        (f"step {STEP}", 30, 3),
        (f"step {STEP} --pp 2 --simulate", 40, 4),
        (f"plan {PLAN} --explain", 60, 2),
        ("infer -m llama3-8b -c dgx-h100 --tp 8 --batch 4", 50, 1),
        ("simulate dgx-h100 all_reduce -s 1MiB -a ring --nodes 2 --late 3=50us --advise", 200, 3),
        ("simulate dgx-h100 all_reduce -s 1MiB -a ring --die 3=1us --watchdog 1ms", 5, 3),
    ],
)
def test_what_the_page_says_is_what_json_gives(
    commsim: Command, tmp_path: Path, line: str, least: int, pictures: int
) -> None:
    output = tmp_path / "report.html"
    ran = commsim(f"report {line} -o {output}")
    assert (ran.code, ran.err) == (3 if "--die" in line else 0, "")  # what never ends
    assert ran.out == f"report written to {output}\n"
    page = Page(output.read_text(encoding="utf-8"))
    assert page.data == commsim(f"{line} --json").json
    assert check(page) >= least
    assert page.pictures >= pictures
    assert page.outside == []
    assert len(page.ids) == len(set(page.ids))


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A machine of 8 GPUs whose large messages take four times as long as they should."""
    path = tmp_path_factory.mktemp("logs") / "slow.jsonl"
    lines = []
    for power in range(12, 31, 3):
        seconds = 30e-6 + 4 * 2**power / 250e9
        lines.append(
            {"operation": "all_reduce", "size": 2**power, "n_ranks": 8, "duration_s": seconds}
        )
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return path


def test_reports_of_measurements(commsim: Command, tmp_path: Path, log: Path) -> None:
    for command, code, least in (("calibrate", 0, 20), ("diagnose", 1, 30), ("validate", 0, 40)):
        output = tmp_path / f"{command}.html"
        line = f"{command} {log} --cluster dgx-h100"
        ran = commsim(f"report {line} -o {output}")
        assert (ran.code, ran.err) == (code, "")
        page = Page(output.read_text(encoding="utf-8"))
        assert page.data == commsim(f"{line} --json").json
        assert check(page) >= least
        assert page.pictures >= 1


def test_a_wrong_name_or_place_is_one_line(commsim: Command, tmp_path: Path) -> None:
    ran = commsim(f"report predicted dgx-h100 all_reduce -o {tmp_path / 'r.html'}")
    assert ran.code == 2
    assert "predict" in ran.err
    ran = commsim(f"report predict dgx-h100 all_reduce -s 1MiB -o {tmp_path / 'r.pdf'}")
    assert ran.code == 2
    assert "expected a name ending in .html" in ran.err
    ran = commsim(f"report predict dgx-h100 all_reduce -o {tmp_path / 'r.html'}")
    assert ran.code == 2
    assert "--size is missing" in ran.err
    ran = commsim("report predict dgx-h100 all_reduce -s 1MiB")
    assert ran.code == 2
    assert "-o" in ran.err
    assert not list(tmp_path.iterdir())


def test_json_is_printed_too_where_it_is_asked_for(commsim: Command, tmp_path: Path) -> None:
    ran = commsim(f"report predict dgx-h100 all_reduce -s 1MiB -o {tmp_path / 'r.html'} --json")
    assert ran.json == Page((tmp_path / "r.html").read_text(encoding="utf-8")).data


def test_a_page_follows_light_and_dark(commsim: Command, tmp_path: Path) -> None:
    """Pictures take their ground and ink from the page, which has both for screens."""
    output = tmp_path / "r.html"
    assert commsim(f"report predict dgx-h100 all_reduce -s 1MiB -o {output}").code == 0
    text = output.read_text(encoding="utf-8")
    dark = text.partition("@media screen and (prefers-color-scheme: dark)")[2].partition("}")[0]
    pictures = text.partition("<figure")[2]
    for name in ("ground", "ink", "text", "grid"):
        assert f"var(--plot-{name})" in pictures
        assert f"--plot-{name}: #" in dark
        assert f"--plot-{name}: #" in text.partition("@media")[0]
    assert "#FFFFFF" not in pictures.upper()
    assert "#222222" not in pictures


def test_every_kind_has_its_contents() -> None:
    from importlib import import_module

    for kind in KINDS:
        content = import_module(f"commsim.report.contents.{kind}")
        assert callable(content.title)
        assert callable(content.parts)
