"""The documentation site: what it is built from is whole, and asks nothing of a network."""

from __future__ import annotations

import pkgutil
import re
from pathlib import Path
from typing import Any

import pytest

import commsim
import commsim.cli
from docs.tools.pages import pages

yaml = pytest.importorskip("yaml")
pytest.importorskip("mkdocs")
hooks = pytest.importorskip("docs.tools.hooks")

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
CONFIG: dict[str, Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
COMMANDS = sorted(
    m.name
    for m in pkgutil.iter_modules(commsim.cli.__path__)
    if m.name != "main" and not m.name.startswith("_")
)


def in_nav(entries: list[Any]) -> list[str]:
    """The files of the navigation, in order."""
    found = []
    for entry in entries:
        for value in entry.values() if isinstance(entry, dict) else [entry]:
            found += in_nav(value) if isinstance(value, list) else [value]
    return found


def test_every_page_is_in_the_navigation_once() -> None:
    assert sorted(in_nav(CONFIG["nav"])) == sorted(p.relative_to(DOCS).as_posix() for p in pages())


def test_nothing_comes_from_a_network() -> None:
    """No font, script or style from elsewhere; no diagram that would load its drawing code."""
    assert CONFIG["strict"] is True
    assert CONFIG["theme"]["font"] is False
    assert "http" not in str(CONFIG.get("extra_css")) + str(CONFIG.get("extra_javascript"))
    for path in pages():
        text = re.sub("`[^`]+`", "", path.read_text(encoding="utf-8").replace("```", ""))
        assert "mermaid" not in text
        assert not re.search(r"!\[[^\]]*\]\(http|<(script|link|img|iframe)\b", text)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_its_page(name: str) -> None:
    """An example that is run, the options read from the command, and an entry in the overview."""
    text = (DOCS / "commands" / f"{name}.md").read_text(encoding="utf-8")
    assert f"commsim {name}" in text
    assert f"<!-- options: {name} -->" in text
    assert name == "explore" or re.search(rf"^\$ commsim {name}\b", text, re.MULTILINE)
    assert f"[`{name}`]({name}.md)" in (DOCS / "commands" / "index.md").read_text(encoding="utf-8")


def test_every_public_name_is_documented() -> None:
    text = "".join(p.read_text(encoding="utf-8") for p in (DOCS / "reference").glob("*.md"))
    shown = set(re.findall(r"^::: commsim\.[\w.]+\.(\w+)$", text, re.MULTILINE))
    errors = {name for name in commsim.__all__ if name.endswith("Error")}
    assert "::: commsim.errors" in text
    assert set(commsim.__all__) - errors <= shown


def test_options_of_a_command() -> None:
    table = hooks.options("predict").splitlines()
    assert "| `--nodes`, `-N` | Number of machines. |" in table
    assert any(line.startswith("| `CLUSTER` | A preset") for line in table)
    assert "`commsim trace replay`" in hooks.options("trace")


def test_links_are_those_of_the_page() -> None:
    """From where a text stands to where it is shown; what no page shows is a name only."""

    def at(text: str, folder: Path = DOCS, page: str = "x.md") -> str:
        return str(hooks.relinked(text, folder, Path(page)))

    assert at("[a](models.md#ring)") == "[a](models.md#ring)"
    assert at("[a](docs/models.md)", ROOT, "architecture.md") == "[a](models.md)"
    assert at("[a](../validation/REPORT.md)") == "[a](accuracy.md)"
    assert at("[a](../../notebooks/x.ipynb)", DOCS / "extend", "extend/a.md") == (
        "[a](../notebooks/x.md)"
    )
    assert at("[parts](../topologies/parts)") == "parts (`topologies/parts`)"
    assert at("[a](https://x.org)") == "[a](https://x.org)"
    assert at("`[a](../topologies)`\n```\n[a](../topologies)\n```\n") == (
        "`[a](../topologies)`\n```\n[a](../topologies)\n```\n"
    )


def test_an_included_file_keeps_its_code() -> None:
    path = ROOT / "docs" / "included-for-a-test.txt"
    path.write_text("# A\n\n```sh\n# not a heading\n```\n\n## B\n", encoding="utf-8")
    try:
        assert hooks.included(path, Path("x.md"), lower=True) == (
            "## A\n\n```sh\n# not a heading\n```\n\n### B\n"
        )
    finally:
        path.unlink()


def test_tests_that_pages_name_exist() -> None:
    """A page that says which test pins a number names one that is there."""
    found = 0
    for path in pages():
        text = " ".join(path.read_text(encoding="utf-8").split())
        for file, name in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text):
            assert (ROOT / file).exists(), (path.name, file)
            if name:
                code = (ROOT / file).read_text(encoding="utf-8")
                assert f"def {name}(" in code, (path.name, file, name)
            found += bool(name)
    assert found >= 40
