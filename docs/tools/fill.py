"""`python -m docs.tools.fill [PAGE...]`: put what commands and code print now into the pages.

Where a page shows `...`, as many lines stay before and behind it as there were. In README.md, whose
`sh` blocks come apart from what they print, a `text` block is filled from the command whose output
is most like it.
"""

from __future__ import annotations

import difflib
import sys
import tempfile
from pathlib import Path

from docs.tools.pages import ROOT, Printed, bare, blocks, commands, pages, session


def fill(path: Path) -> int:
    """Rewrite a page; how many outputs were others."""
    text = path.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder, session(Path(folder)) as here:
        found = [each for each in here.play(text) if not each.agrees]
    for each in reversed(found):
        text = text[: each.begin] + refreshed(each) + text[each.end :]
    path.write_text(text, encoding="utf-8")
    return len(found)


def fill_readme(path: Path) -> int:
    """The same for the README."""
    text = path.read_text(encoding="utf-8")
    found = blocks(text)
    outputs = []
    with tempfile.TemporaryDirectory() as folder, session(Path(folder)) as here:
        for command in (c for b in found if b.language == "sh" for c in commands(b)):
            try:
                outputs.append(here.command(command))
            except AssertionError as error:  # it wants a file of the reader's own
                print(f"left out: {error}")
    changed = 0
    for block in reversed([b for b in found if b.language == "text"]):
        printed = max(outputs, key=lambda out: _in_common(block.body, out))
        each = Printed(
            shown=f"...\n{block.body}...\n", printed=printed, begin=block.begin, end=block.end,
            varies=False,
        )  # fmt: skip
        if not each.agrees:
            lines = refreshed(each).splitlines(keepends=True)[1:-1]
            text = text[: block.begin] + "".join(lines) + text[block.end :]
            changed += 1
    path.write_text(text, encoding="utf-8")
    return changed


def _in_common(shown: str, printed: str) -> int:
    """Lines that both have, but for their numbers."""
    return len(set(map(bare, shown.splitlines())) & set(map(bare, printed.splitlines())))


def refreshed(each: Printed) -> str:
    """What to show: the lines printed that are most like those shown."""
    printed = [line.rstrip() for line in each.printed.rstrip().splitlines()]
    shown = [line.rstrip() for line in each.shown.rstrip().splitlines()]
    if "..." not in shown:
        lines = printed
    else:
        cuts = [i for i, line in enumerate(shown) if line == "..."]
        bounds = zip([-1, *cuts], [*cuts, len(shown)], strict=True)
        lines, at = [], 0
        for index, (low, high) in enumerate(bounds):
            part = shown[low + 1 : high]
            if index == 0:
                place = 0
            elif index == len(cuts):
                place = max(at, len(printed) - len(part))
            else:
                place = _nearest(part, printed, at)
            lines += ["..."] * (index > 0) + printed[place : place + len(part)]
            at = place + len(part)
    return "".join(f"{line}\n" for line in lines)


def _nearest(part: list[str], printed: list[str], at: int) -> int:
    """Where the printed lines are most like these, line by line."""
    wanted = [bare(line) for line in part]

    def likeness(place: int) -> float:
        return sum(map(_like, wanted, map(bare, printed[place : place + len(part)])))

    return max(range(at, max(at + 1, len(printed) - len(part) + 1)), key=likeness)


def _like(wanted: str, found: str) -> float:
    """2 where the found line begins as wanted, else what they have in common, up to 1."""
    if found == wanted or (wanted and found.startswith(wanted)):
        return 2.0
    return difflib.SequenceMatcher(None, wanted, found, autojunk=False).ratio()


if __name__ == "__main__":
    for page in [Path(name).resolve() for name in sys.argv[1:]] or [ROOT / "README.md", *pages()]:
        print(page.name, (fill_readme if page.name == "README.md" else fill)(page), flush=True)
