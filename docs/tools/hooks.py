"""What MkDocs does with the pages beside rendering them.

    <!-- include: ../FILE.md -->   becomes that file, below the page's own title if it has one
    <!-- options: NAME -->         becomes the options of `commsim NAME`, read from the command

Notebooks become pages. A link to a file that no page shows becomes the file's name.
"""

from __future__ import annotations

import importlib
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from typer import Typer
from typer.main import get_command

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
HOMES = {  # files outside docs/, and the page that shows each
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "validation/REPORT.md": "accuracy.md",
}
INCLUDE = re.compile(r"^<!-- include: (\S+) -->$", re.MULTILINE)
OPTIONS = re.compile(r"^<!-- options: (\S+) -->$", re.MULTILINE)
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s#]+)(#[^)\s]*)?\)")
CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.DOTALL | re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The notebooks, as pages."""
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        uri = f"notebooks/{path.stem}.md"
        files.append(File.generated(config, uri, content=notebook(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Includes, options and links."""
    at = Path(page.file.src_uri)
    markdown = relinked(markdown, DOCS / at.parent, at)
    titled = markdown.startswith("# ")
    markdown = INCLUDE.sub(
        lambda m: included((DOCS / at.parent / m[1]).resolve(), at, lower=titled), markdown
    )
    return OPTIONS.sub(lambda m: options(m[1]), markdown)


def included(path: Path, page: Path, lower: bool) -> str:
    """A file's text for a page, links from where the page is; `lower`: headings one level lower."""
    text = path.read_text(encoding="utf-8")
    if lower:
        text = outside_code(
            text, lambda plain: re.sub(r"^(#+ )", r"#\1", plain, flags=re.MULTILINE)
        )
    return relinked(text, path.parent, page)


def relinked(text: str, folder: Path, page: Path) -> str:
    """Links as they are from the page; one that leads out of the pages becomes a name."""

    def one(match: re.Match[str]) -> str:
        words, target, anchor = match[1], match[2], match[3] or ""
        if re.match(r"[a-z]+:", target):
            return match[0]
        path = Path(os.path.normpath(folder / target))
        name = path.relative_to(ROOT).as_posix()
        if name in HOMES:
            path = DOCS / HOMES[name]
        elif path.suffix == ".ipynb":
            path = DOCS / name.replace(".ipynb", ".md")
        elif not path.is_relative_to(DOCS):
            return words if name in words else f"{words} (`{name}`)"
        return f"[{words}]({os.path.relpath(path, DOCS / page.parent)}{anchor})"

    return outside_code(text, lambda plain: LINK.sub(one, plain))


def outside_code(text: str, change: Callable[[str], str]) -> str:
    """The text, changed wherever it is no code."""
    parts, last = [], 0
    for code in CODE.finditer(text):
        parts += [change(text[last : code.start()]), code[0]]
        last = code.end()
    return "".join([*parts, change(text[last:])])


def options(name: str) -> str:
    """The arguments and options of a command, a table each."""
    found = getattr(importlib.import_module(f"commsim.cli.{name}"), name)
    if not isinstance(found, Typer):
        app = Typer(add_completion=False)
        app.command(name)(found)
        return table(get_command(app))
    inner: Any = get_command(found)
    return "\n\n".join(
        f"`commsim {name} {word}`\n\n{table(c)}" for word, c in inner.commands.items()
    )


def table(command: Any) -> str:
    """One command's parameters, a row each."""
    rows = []
    for one in command.params:
        if one.name == "help" or getattr(one, "hidden", False):
            continue
        named = one.opts[0].startswith("-")
        words = [*one.opts, *one.secondary_opts] if named else [one.metavar or one.name.upper()]
        shown = ", ".join(f"`{word}`" for word in words)
        default = one.default if not callable(one.default) else None
        plain = isinstance(default, (str, int, float)) and not isinstance(default, bool)
        end = f" Default: `{default}`." if plain and default != "" else ""
        text = " ".join((one.help or "").split()).replace("|", "\\|").replace("<", "&lt;")
        rows.append(f"| {shown} | {text}{end} |")
    return "\n".join(["| option | |", "| --- | --- |", *rows])


def notebook(path: Path) -> str:
    """A notebook as a page: text, and code that nobody ran."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
    hint = (
        f"*This is `notebooks/{path.name}` without its outputs; open it in Jupyter to see them. "
        "The tests run it from top to bottom.*"
    )
    return "\n\n".join([parts[0], hint, *parts[1:]]) + "\n"
