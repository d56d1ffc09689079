from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from commsim.report import picture

from .conftest import Ran

Command = Callable[[str], Ran]
PNG = b"\x89PNG\r\n\x1a\n"
ASKED = "dgx-h100 all_reduce"


def test_an_ending_that_nobody_can_draw_is_refused_before_any_work(commsim: Command) -> None:
    for line in (
        f"sweep {ASKED}", f"compare dgx-a100 {ASKED}", f"explain {ASKED} -s 1MiB",
        f"simulate {ASKED} -s 1MiB", "step -m llama3-8b -c dgx-h100", "topo dgx-h100",
        "plan -m llama3-8b -c dgx-h100 --global-batch 8 --seq 4096", "calibrate none.log",
        "diagnose none.log -c dgx-h100", f"predict {ASKED} -s 1MiB", "validate none.log",
        "infer -m llama3-8b -c dgx-h100",
    ):  # fmt: skip
        ran = commsim(f"{line} --plot picture.jpg")
        assert (ran.code, ran.out) == (2, "")
        expected = "expected a name ending in .html, .png or .svg, got .jpg"
        assert ran.err == f"commsim: --plot: picture.jpg: {expected}\n"


def test_without_the_extra_one_line_says_what_to_install(
    commsim: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(picture, "find_spec", lambda name: None)
    ran = commsim(f"topo dgx-h100 --plot {tmp_path / 'p.png'}")
    assert ran.code == 2
    assert len(ran.err.splitlines()) == 1
    assert ran.err.endswith("install with pip install 'commsim[plot]'\n")


def test_no_command_loads_altair_unless_it_draws() -> None:
    script = (
        "import sys; from commsim.cli.main import run;"
        "code = run(['topo', 'dgx-h100']); assert code == 0;"
        "assert not {'altair', 'vl_convert', 'jinja2'} & set(sys.modules), 'loaded'"
    )
    subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=120
    )


def test_a_png_and_an_svg_are_what_they_say(commsim: Command, tmp_path: Path) -> None:
    pytest.importorskip("altair")
    ran = commsim(f"topo dgx-h100 --plot {tmp_path / 'p.png'}")
    assert (ran.code, ran.err) == (0, "")
    assert (tmp_path / "p.png").read_bytes().startswith(PNG)
    assert commsim(f"topo dgx-h100 --plot {tmp_path / 'p.svg'}").code == 0
    text = (tmp_path / "p.svg").read_text(encoding="utf-8")
    assert text.startswith("<svg")
    assert "nvswitch" in text


def test_html_needs_no_network(commsim: Command, tmp_path: Path) -> None:
    pytest.importorskip("altair")
    assert commsim(f"sweep {ASKED} -b 1M -e 4M --plot {tmp_path / 'p.html'}").code == 0
    text = (tmp_path / "p.html").read_text(encoding="utf-8")
    for outside in ('src="http', "src='http", 'href="http', "@import", "src=//"):
        assert outside not in text
    assert "bus bandwidth (GB/s)" in text


DARK, LIGHT = "#16181D", "#FFFFFF"


def test_a_theme_is_taken_and_html_has_both(commsim: Command, tmp_path: Path) -> None:
    pytest.importorskip("altair")
    drawn = {}
    for theme in ("auto", "light", "dark"):
        for kind in ("html", "svg"):
            path = tmp_path / f"{theme}.{kind}"
            assert commsim(f"topo dgx-h100 --plot {path} --plot-theme {theme}").code == 0
            drawn[theme, kind] = path.read_text(encoding="utf-8")
    assert drawn["auto", "svg"] == drawn["light", "svg"]
    assert f'fill="{LIGHT}"' in drawn["light", "svg"]
    assert DARK not in drawn["light", "svg"]
    assert f'fill="{DARK}"' in drawn["dark", "svg"]
    assert LIGHT not in drawn["dark", "svg"]
    grounds = {key: [g for g in (LIGHT, DARK) if f'"background": "{g}"' in text]
               for key, text in drawn.items() if key[1] == "html"}  # fmt: skip
    assert grounds == {
        ("auto", "html"): [LIGHT, DARK], ("light", "html"): [LIGHT], ("dark", "html"): [DARK],
    }  # fmt: skip
    assert 'content="light dark"' in drawn["auto", "html"]
    ran = commsim(f"topo dgx-h100 --plot {tmp_path / 'p.svg'} --plot-theme drak")
    assert (ran.code, ran.out) == (2, "")
    assert "did you mean 'dark'" in ran.err


def test_every_command_with_a_picture_draws_it(commsim: Command, tmp_path: Path) -> None:
    pytest.importorskip("altair")
    for line, shown in (
        (f"predict {ASKED} -s 1MiB", ("bus bandwidth (GB/s)", "Candidates", "link rate")),
        ("infer -m llama3-8b -c dgx-h100 --tp 8", ("First token of", "Every other token")),
    ):
        assert commsim(f"{line} --plot {tmp_path / 'p.svg'}").code == 0
        text = (tmp_path / "p.svg").read_text(encoding="utf-8")
        assert [s for s in shown if s not in text] == []


def test_output_is_the_same_with_a_picture(commsim: Command, tmp_path: Path) -> None:
    pytest.importorskip("altair")
    line = f"explain {ASKED} -s 1MiB --json"
    drawn = commsim(f"{line} --plot {tmp_path / 'p.svg'}")
    assert drawn.json == commsim(line).json
    text = (tmp_path / "p.svg").read_text(encoding="utf-8")
    assert "From link rate to bus bandwidth" in text


def test_measured_points_are_those_of_the_operation_and_the_ranks(
    commsim: Command, tmp_path: Path
) -> None:
    pytest.importorskip("altair")
    log = tmp_path / "log.jsonl"
    lines = [
        {"operation": "all_reduce", "size": 1 << 20, "n_ranks": 8, "duration_s": 1e-4},
        {"operation": "all_gather", "size": 1 << 20, "n_ranks": 8, "duration_s": 1e-4},
    ]
    log.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    ran = commsim(f"sweep {ASKED} -b 1M -e 4M --measured {log} --plot {tmp_path / 'p.html'} --json")
    assert ran.code == 0, ran.err
    text = (tmp_path / "p.html").read_text(encoding="utf-8")
    assert text.count('"time_text": "100 us"') == 1


def test_pictures_of_a_simulation_and_a_comparison(commsim: Command, tmp_path: Path) -> None:
    pytest.importorskip("altair")
    sim, cmp = tmp_path / "s.svg", tmp_path / "c.svg"
    assert commsim(f"simulate {ASKED} -s 1MiB --algorithm ring --plot {sim}").code == 0
    assert "Load of links" in sim.read_text(encoding="utf-8")
    assert commsim(f"compare dgx-a100 {ASKED} -s 1MiB --plot {cmp}").code == 0
    assert "What the difference is due to, at 1 MiB" in cmp.read_text(encoding="utf-8")


def test_what_has_no_picture_is_told(commsim: Command, tmp_path: Path) -> None:
    pytest.importorskip("altair")
    mine = tmp_path / "mine.txt"
    mine.write_text("\tGPU0\tGPU1\nGPU0\t X \tNV18\nGPU1\tNV18\t X \n", encoding="utf-8")
    for line, expected in (
        ("topo --list", "a list has no picture"),
        (f"topo {mine}", "--gpu"),
        ("sweep dgx-h100 barrier --library gloo", "nothing to draw"),
    ):
        ran = commsim(f"{line} --plot {tmp_path / 'p.svg'}")
        assert ran.code == 2, line
        assert expected in ran.err, line
        assert not (tmp_path / "p.svg").exists()


DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "pictures.md").read_text(encoding="utf-8")
SHOWN = [
    line
    for block in re.findall(r"^```sh\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    for line in block.splitlines()
]


@pytest.mark.slow
@pytest.mark.parametrize("line", SHOWN, ids=lambda line: line.split()[1])
def test_what_the_documentation_shows_runs(
    commsim: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    pytest.importorskip("altair")
    monkeypatch.chdir(tmp_path)
    ran = commsim(line.removeprefix("commsim "))
    assert ran.code == 0, ran.err
    found = re.search(r"(?:--plot|-o) (\S+)", line)
    assert found
    assert (tmp_path / found[1]).stat().st_size > 10_000
    if "--plot" in line:
        assert f"](pictures/{found[1]})" in PAGE
        assert (DOCS / "pictures" / found[1]).is_file()


def test_the_documentation_shows_a_picture_of_every_command_that_draws() -> None:
    shown = set(re.findall(r"^commsim (\w+) .*--plot ", PAGE, re.MULTILINE))
    drawing = {
        path.stem for path in (DOCS.parent / "commsim" / "cli").glob("[a-z]*.py")
        if "plot: Plot" in path.read_text(encoding="utf-8")
    }  # fmt: skip
    assert shown == drawing
    for name in drawing:
        assert f"| `{name}" in PAGE
    for name in re.findall(r"\]\(pictures/([\w.-]+)\)", PAGE):
        assert (DOCS / "pictures" / name).is_file()
