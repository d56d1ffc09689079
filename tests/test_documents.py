"""What README and the pages of docs/ show is run as it stands there.

A page that shows what is no longer so: `make fill` puts in what is printed now.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import commsim
from commsim.cli.main import run
from docs.tools.fill import refreshed
from docs.tools.pages import Printed, agree, pages, session

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
SIMULATION = (ROOT / "docs" / "simulation.md").read_text(encoding="utf-8")
LINKED = sorted(ROOT.glob("*.md")) + pages()
PLAYED = [
    path for path in pages() if re.search(r"^```(python|sh|console)", path.read_text("utf-8"), re.M)
]
LANGUAGES = {"", "console", "json", "python", "sh", "text", "toml"}
NEEDS = {"torch": r"commsim (run|measure)|import torch", "altair": r"--plot|commsim report|plots"}

# Stands for the reader's own `nvidia-smi topo -m > mine.txt`.
MINE = """\
\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity
GPU0\t X \tNV18\tPIX\t0-31\t0
GPU1\tNV18\t X \tPIX\t0-31\t0
NIC0\tPIX\tPIX\t X
"""


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def command_blocks() -> list[tuple[str, ...]]:
    """The commands of each block, which follow one another in one folder."""
    found = []
    for block in blocks("sh"):
        lines = tuple(line for line in block.splitlines() if line.startswith("commsim "))
        if lines:
            found.append(lines)
    return found


def commands_with_ratios() -> list[tuple[str, str]]:
    """The commands of docs/simulation.md, each with the "x 1.24" of the comment before it."""
    lines = "\n".join(blocks("sh", SIMULATION)).splitlines()
    ratio = ["", *(m[0] if (m := re.search(r"x [0-9.]+$", line)) else "" for line in lines)]
    return [(line, ratio[i]) for i, line in enumerate(lines) if line.startswith("commsim ")]


def answer(line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    """What a command prints."""
    monkeypatch.setattr("commsim.cli._progress.is_compiled", lambda: True)  # or stderr says so
    code = run(shlex.split(line)[1:])
    captured = capsys.readouterr()
    quiet = line.split()[1] not in ("measure", "calibrate", "plan")  # these show their progress
    assert (code, captured.err if quiet else "") == (0, "")
    return captured.out


@pytest.mark.parametrize(
    "path", PLAYED, ids=lambda path: path.relative_to(ROOT / "docs").as_posix()
)
def test_a_page(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its code and commands run, in order, and print what it shows."""
    text = path.read_text(encoding="utf-8")
    for package, uses in NEEDS.items():
        if re.search(uses, text):
            pytest.importorskip(package)
    monkeypatch.setattr("commsim.cli._progress.is_compiled", lambda: True)
    with session(tmp_path) as here:
        for each in here.play(text):
            assert each.agrees, f"shown:\n{each.shown}\nprinted:\n{each.printed}"


@pytest.mark.parametrize("path", pages(), ids=lambda path: path.stem)
def test_languages(path: Path) -> None:
    """Blocks are of the few kinds of which it is said whether they run."""
    text = path.read_text(encoding="utf-8")
    opened = re.findall(r"^```([^\n`]*)$", text, re.MULTILINE)[::2]
    assert {info.split(" ")[0] for info in opened} <= LANGUAGES


def test_agreement() -> None:
    """`...` stands for any lines, and nothing else does."""
    printed = "a\nb 1\nc\nd\n"
    assert agree("a\nb 1\nc\nd\n", printed)
    assert agree("a\n...\nd\n", printed)
    assert agree("...\nb 1\n...\n", printed)
    assert not agree("a\nb 1\n", printed)
    assert not agree("b 1\n...\n", printed)
    assert not agree("...\nc\n", printed)
    assert not agree("a\n...\nc\n...\nb 1\n...\n", printed)
    assert not agree("a\nb 2\nc\nd\n", printed)
    assert agree("a\nb 2\nc\nd\n", printed, varies=True)
    assert not agree("a\ne 2\nc\nd\n", printed, varies=True)


def test_what_is_shown_is_filled_in_again() -> None:
    """As many lines before, between and behind `...` as there were, where they are most alike."""
    shown = "took 1 s\n...\nrow 2 ms\n...\nend\n"
    printed = "took 3 s\nhead\nrow 5 ms\nother 7 ms\nlast\nend\n"
    each = Printed(shown=shown, printed=printed, begin=0, end=len(shown), varies=False)
    assert not each.agrees
    assert refreshed(each) == "took 3 s\n...\nrow 5 ms\n...\nend\n"
    empty = Printed(shown="", printed=printed, begin=0, end=0, varies=False)
    assert refreshed(empty) == printed


def test_a_page_is_a_session(tmp_path: Path) -> None:
    """Files are written, python keeps its names, commands say how they end, and print there."""
    page = (
        '```toml title="a.toml"\nname = "a"\nextends = "dgx-h100"\n```\n\n'
        "```python\nx = 1\n```\n\n```python\nprint(x + 1)\n```\n\n```text\n2\n```\n\n"
        "```console\n# exit 2\n$ commsim topo \\\n  b.toml\nwrong\n$ cat a.toml\n"
        'name = "a"\nextends = "dgx-h100"\n```\n\n```text\nnot run\n```\n'
    )
    with session(tmp_path) as here:
        found = list(here.play(page))
    assert [each.agrees for each in found] == [True, False, True]
    assert found[1].shown == "wrong\n"
    assert found[1].printed.startswith("commsim: b.toml: no such file")
    assert page[found[1].begin : found[1].end] == "wrong\n"
    with (
        session(tmp_path / "again") as here,
        pytest.raises(AssertionError, match="expected exit 0"),
    ):
        list(here.play("```sh\ncommsim topo b.toml\n```\n"))


def test_the_first_commands_are_make_demo_and_make_test() -> None:
    first, second = blocks("sh")[0].splitlines()[:2]
    assert first.split()[:2] == ["make", "demo"]
    assert second.split()[:2] == ["make", "test"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(r"^demo:", makefile, re.MULTILINE)
    assert re.search(r"^test:", makefile, re.MULTILINE)


@pytest.mark.parametrize("lines", command_blocks(), ids=lambda lines: lines[0].split()[1])
def test_command_lines(
    lines: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Every command works as it stands, and prints what the README says of it."""
    monkeypatch.chdir(tmp_path)
    Path("mine.txt").write_text(MINE, encoding="utf-8")
    printed = []
    for line in lines:
        if line.startswith("commsim measure"):
            pytest.importorskip("torch")
        printed.append(answer(line, capsys, monkeypatch))
        assert printed[-1]
    for block in blocks("text"):
        first, *rest = (text for text in block.splitlines() if text != "...")
        answers = [said for said in printed if said.splitlines()[0] == first]
        assert not answers or any(all(text in said for text in rest) for said in answers), first


@pytest.mark.parametrize(("line", "ratio"), commands_with_ratios())
def test_simulations(
    line: str,
    ratio: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert f"simulated {ratio}" in answer(line, capsys, monkeypatch)


def test_what_a_simulation_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """README's shortened answer is the first command's that has --also, line by line in order."""
    line = next(c for b in blocks("sh") for c in b.splitlines() if "--also" in c)
    printed = iter(answer(line, capsys, monkeypatch).splitlines())
    (shown,) = (block for block in blocks("text") if "critical path" in block)
    for each in shown.splitlines():
        assert each in ("", "...") or each in printed, each


def test_python(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = blocks("python")
    exec(compile(code, "README.md", "exec"), {})
    duration, choice, bandwidth, slower = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"\d+ us, between \d+ and \d+", duration)
    assert len(choice.split()) == 3
    assert bandwidth.endswith("binds")
    assert float(slower) > 1  # half the network


def worked() -> dict[str, float]:
    """The numbers of the page's calculation by hand, us, and MiB of a NIC."""
    by_hand = SIMULATION.split("By hand: ")[1].split("\n\n")[0].replace(",", "")
    found = re.search(
        r"\(x ([\d.]+)\) that is ([\d.]+) MiB a NIC at 50 GB/s ([\d.]+) us. With the launch "
        r"\(([\d.]+) us\) and the last hop\s\(([\d.]+) us\): ([\d.]+) us alone. Two of them:\s"
        r"[\d.]+ \+ 2 x [\d.]+ \+ [\d.]+ = ([\d.]+) us",
        by_hand,
    )
    assert found is not None, by_hand
    names = ("protocol", "mib", "bytes", "launch", "hop", "alone", "together")
    return dict(zip(names, map(float, found.groups()), strict=True))


def test_python_simulation(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = blocks("python", SIMULATION)
    exec(compile(code, "simulation.md", "exec"), {})
    first, second, path, span = capsys.readouterr().out.splitlines()
    # Each has the NICs to itself for 200 us, and needs the rest of them while it has half.
    w = worked()
    expected = w["launch"] + 200 + 2 * (w["bytes"] - 200) + w["hop"]
    for line, name in ((first, "reduce_scatter"), (second, "all_gather")):
        assert line.split()[0] == name
        assert float(line.split()[1]) * 1e6 == pytest.approx(expected, abs=0.2)
    assert path.startswith("{'launch'")
    assert span.startswith("Span(")


def test_the_worked_contention() -> None:
    """docs/simulation.md: the bytes of a NIC, and with them the time alone and at once."""
    w = worked()
    mib = 2 * 16 * 15 / 16 * w["protocol"]  # two of 16 channels, 15/16 of 16 MiB each
    assert mib == pytest.approx(w["mib"], abs=0.05)
    assert mib * 2**20 / 50e3 == pytest.approx(w["bytes"], abs=0.1)
    assert w["launch"] + w["bytes"] + w["hop"] == pytest.approx(w["alone"], abs=0.1)
    assert w["launch"] + 2 * w["bytes"] + w["hop"] == pytest.approx(w["together"], abs=1)
    cluster = commsim.load_cluster("dgx-h100", nodes=2)
    both = [(commsim.Collective(o, 256 << 20), 0.0) for o in ("reduce_scatter", "all_gather")]
    alone, together = commsim.simulate(both[:1], cluster), commsim.simulate(both, cluster)
    assert alone.duration * 1e6 == pytest.approx(w["alone"], abs=0.1)
    assert together.duration * 1e6 == pytest.approx(w["together"], abs=1)


def test_the_cluster_file(tmp_path: Path) -> None:
    (text,) = blocks("toml")
    path = tmp_path / "my-cluster.toml"
    path.write_text(text, encoding="utf-8")
    cluster = commsim.load_cluster(path)
    assert (cluster.name, cluster.n_ranks, len(cluster.node.nics)) == ("my-cluster", 128, 8)


@pytest.mark.parametrize("path", LINKED, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            assert (path.parent / target).exists(), target


def test_sections_that_the_code_refers_to_exist() -> None:
    text = (ROOT / "docs" / "nccl.md").read_text(encoding="utf-8")
    headings = set(re.findall(r"^#+ ([0-9.]+)", text, re.MULTILINE))
    found = 0
    for path in (ROOT / "commsim").rglob("*.py"):
        code = " ".join(path.read_text(encoding="utf-8").split())
        for numbers in re.findall(r"[Ss]ections? ([0-9., andto]+) of docs/nccl\.md", code):
            for number in re.findall(r"[0-9]+\.[0-9]+", numbers):
                assert number in headings, (path.name, number)
                found += 1
    assert found > 5


def test_the_estimates_worked_by_hand() -> None:
    """docs/nccl.md, section 3: what NCCL expects of 2 MiB on two DGX H100."""
    text = (ROOT / "docs" / "nccl.md").read_text(encoding="utf-8")
    worked = re.findall(r"= \*\*([0-9.]+) us\*\*", text)
    assert worked == ["75.3", "76.5"]
    cluster = commsim.load_cluster("dgx-h100", nodes=2)
    collective = commsim.Collective("all_reduce", nbytes=2 << 20)
    choice = commsim.Nccl(version="2.30.7").choose(collective, cluster)
    found = {(c.algorithm, c.protocol): c.estimate * 1e6 for c in choice.candidates}
    assert found["nvls_tree", "Simple"] == pytest.approx(75.3, abs=0.05)
    assert found["tree", "LL128"] == pytest.approx(76.5, abs=0.05)


def test_architecture_names_what_is_there() -> None:
    """Every folder and module right under commsim/ has its line in ARCHITECTURE.md."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    for path in (ROOT / "commsim").iterdir():
        if path.name.startswith("_") or path.suffix not in ("", ".py"):
            continue
        name = path.name if path.is_file() else f"{path.name}/"
        assert name in text, name


def test_figures_in_the_text_are_those_of_the_report() -> None:
    """What pages say in passing about accuracy stands in the sections of validation/REPORT.md."""
    docs, sections = ROOT / "docs", ROOT / "validation" / "sections"
    collectives, steps, diagnosis = (
        (sections / f"{name}.md").read_text(encoding="utf-8")
        for name in ("collectives", "training", "diagnosis")
    )
    comparison = (docs / "comparison.md").read_text(encoding="utf-8")
    headline = re.search(r"Headline: fitted [\d.]+ %, left out ([\d.]+) %", collectives)
    assert headline is not None
    assert f"has not seen is {headline[1]} %" in comparison
    for word in ("fitted", "left out"):
        error = re.search(rf"^\| {word} \| ([\d.]+) % \|", steps, re.MULTILINE)
        assert error is not None
        assert re.search(rf"commsim, .*{word} \| {error[1]} %", comparison), word
    first = re.search(r"among the first 3: (\d+) of (\d+)", diagnosis)
    sick = re.search(r"healthy logs called sick: (\d+) of (\d+)", diagnosis)
    assert first is not None
    assert sick is not None
    said = (docs / "tutorials" / "calibrating.md").read_text(encoding="utf-8")
    assert f"Of {first[2]} published degraded logs {first[1]} have" in said
    assert f"{sick[1]} of {sick[2]} healthy ones" in said
