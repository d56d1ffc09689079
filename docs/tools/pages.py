"""A page of the documentation as a session: its blocks, run one after the other in one folder.

    python    runs, in one namespace a page; a `text` block right after it is what it prints
    console   `$ command` lines run, and what stands below each is what it prints
    sh        runs what begins with `commsim`; nothing is said about what it prints
    anything with title="FILE"   is written to FILE, and not run
    everything else              is shown

A line `# exit 2` before a command says with which code it ends (else 0). In what is printed, a line
`...` stands for any lines; after `<!-- varies -->` numbers may be others. A FILE that begins with
`commsim/` is found by the package as if it lay there, until the page ends.
"""

from __future__ import annotations

import contextlib
import glob
import importlib
import io
import re
import shlex
import subprocess
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from commsim.cli.main import run

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
SHELL = ("mkdir", "cat", "head")  # what a page may run beside commsim
FENCE = re.compile(
    r"(?P<varies><!-- varies -->\n+)?^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
NUMBER = re.compile(r"\d[\d,.]*( ?(ns|us|ms|s|KiB|MiB|GiB|B))?\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced block; `begin` and `end` are where its body stands in the page."""

    language: str
    title: str
    body: str
    begin: int
    end: int
    varies: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command line, the code it ends with, and what the page says it prints (None: nothing)."""

    line: str
    code: int
    shown: str | None
    begin: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """What a page shows at `begin` to `end`, and what was printed."""

    shown: str
    printed: str
    begin: int
    end: int
    varies: bool

    @property
    def agrees(self) -> bool:
        """Whether what is shown was printed."""
        return agree(self.shown, self.printed, self.varies)


@dataclass(slots=True)
class Session:
    """A page that runs in `folder`, which is the working folder meanwhile."""

    folder: Path
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "__main__"})
    paths: list[tuple[types.ModuleType, str]] = field(default_factory=list)

    def play(self, text: str) -> Iterator[Printed]:
        """Run the page; yields what it shows of an output, with the output."""
        found = blocks(text)
        for block, after in zip_longest(found, found[1:]):
            if block.title:
                self.write(block)
            elif block.language == "python":
                printed = self.python(block)
                if after is not None and _is_output(text, block, after):
                    yield Printed(
                        shown=after.body, printed=printed, begin=after.begin, end=after.end,
                        varies=after.varies,
                    )  # fmt: skip
            elif block.language in ("console", "sh"):
                for command in commands(block):
                    printed = self.command(command)
                    if command.shown is not None:
                        yield Printed(
                            shown=command.shown, printed=printed, begin=command.begin,
                            end=command.end, varies=block.varies,
                        )  # fmt: skip

    def write(self, block: Block) -> None:
        """A file that the page shows."""
        path = self.folder / block.title
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.body, encoding="utf-8")
        if block.title.startswith("commsim/"):
            package = importlib.import_module(".".join(Path(block.title).parent.parts))
            package.__path__.append(str(path.parent))
            self.paths.append((package, str(path.parent)))
            forget()

    def python(self, block: Block) -> str:
        """What the code prints."""
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(block.body, "<page>", "exec", dont_inherit=True), self.names)
        return out.getvalue()

    def command(self, command: Command) -> str:
        """What the command prints: on stdout, and on stderr if it fails."""
        words = shlex.split(command.line, comments=True)
        target = None
        if ">" in words:
            at = words.index(">")
            words, target = words[:at], words[at + 1]
        words = [each for word in words for each in _expanded(word)]
        if words[0] == "commsim":
            out, err = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = run(words[1:])
            printed = out.getvalue() + (err.getvalue() if code else "")
        else:
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            code, printed = done.returncode, done.stdout
        if code != command.code:
            raise AssertionError(f"{command.line}: expected exit {command.code}, got {code}")
        if target:
            Path(target).write_text(printed, encoding="utf-8")
            return ""
        return printed

    def close(self) -> None:
        """Take out of the package what the page put into it."""
        for package, path in self.paths:
            package.__path__.remove(path)
            for name in [n for n in sys.modules if n.startswith(package.__name__ + ".")]:
                file = getattr(sys.modules[name], "__file__", None) or ""
                if file.startswith(path):
                    del sys.modules[name]
        if self.paths:
            forget()


@contextlib.contextmanager
def session(folder: Path) -> Iterator[Session]:
    """A session in a folder that has the repository's examples in it."""
    folder.mkdir(exist_ok=True)
    (folder / "examples").symlink_to(ROOT / "examples")
    here = Session(folder)
    with contextlib.chdir(folder):
        try:
            yield here
        finally:
            here.close()


def pages() -> list[Path]:
    """Every page."""
    return sorted(DOCS.rglob("*.md"))


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a page, in order."""
    return [
        Block(
            language=match["info"].split(" ")[0],
            title=title[1] if (title := re.search(r'title="([^"]+)"', match["info"])) else "",
            body=match["body"],
            begin=match.start("body"),
            end=match.end("body"),
            varies=match["varies"] is not None,
        )
        for match in FENCE.finditer(text)
    ]


def commands(block: Block) -> Iterator[Command]:
    """The commands of a block that are run."""
    prompt = "$ " if block.language == "console" else ""
    lines = block.body.splitlines(keepends=True)
    code, at, i = 0, block.begin, 0
    while i < len(lines):
        line = lines[i]
        at, i = at + len(line), i + 1
        if (said := re.match(r"# exit (\d+)", line)) is not None:
            code = int(said[1])
            continue
        if not line.startswith(prompt):
            continue
        whole = line.removeprefix(prompt).rstrip("\n")
        while whole.endswith("\\"):
            whole = whole[:-1] + lines[i].strip()
            at, i = at + len(lines[i]), i + 1
        begin = at
        while prompt and i < len(lines) and not lines[i].startswith((prompt, "# exit ")):
            at, i = at + len(lines[i]), i + 1
        shown = block.body[begin - block.begin : at - block.begin] if prompt else None
        if whole.split(" ")[0] in ("commsim", *SHELL):
            yield Command(line=whole, code=code, shown=shown, begin=begin, end=at)
        code = 0


def agree(shown: str, printed: str, varies: bool = False) -> bool:
    """Whether the lines shown are those printed, with `...` for any lines."""
    there = _lines(printed, varies)
    parts = _parts(_lines(shown, varies))
    at = 0
    for index, part in enumerate(parts):
        last = index == len(parts) - 1
        places = range(at, len(there) - len(part) + 1)
        if index == 0:
            places = range(min(1, len(places)))
        if last:
            places = range(max(at, len(there) - len(part)), len(there) - len(part) + 1)
            if index == 0 and len(part) != len(there):
                return False
        found = next((p for p in places if there[p : p + len(part)] == part), None)
        if found is None:
            return False
        at = found + len(part)
    return True


def forget() -> None:
    """Empty every cache of commsim, so that its catalogues look again."""
    for name, module in list(sys.modules.items()):
        if name == "commsim" or name.startswith("commsim."):
            for value in list(vars(module).values()):
                clear = getattr(value, "cache_clear", None)
                if callable(clear):
                    clear()


def _is_output(text: str, code: Block, after: Block) -> bool:
    """Whether nothing but the fences stands between a block of code and a block of text."""
    between = text[code.end : after.begin].replace("<!-- varies -->", "")
    return after.language == "text" and re.fullmatch(r"```\n\n```text\n", between) is not None


def _lines(text: str, varies: bool) -> list[str]:
    lines = [line.rstrip() for line in text.rstrip().splitlines()]
    return [bare(line) for line in lines] if varies else lines


def bare(line: str) -> str:
    """The line without its numbers and its widths."""
    return re.sub(r"[\s─#~-]+", " ", NUMBER.sub("#", line)).strip()


def _parts(lines: list[str]) -> list[list[str]]:
    """The lines between the lines `...`."""
    parts: list[list[str]] = [[]]
    for line in lines:
        if line == "...":
            parts.append([])
        else:
            parts[-1].append(line)
    return parts


def _expanded(word: str) -> list[str]:
    return sorted(glob.glob(word)) or [word] if "*" in word else [word]
