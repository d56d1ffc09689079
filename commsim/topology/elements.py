"""XML elements with the lines they stand on."""

from __future__ import annotations

import os
import xml.parsers.expat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from commsim.errors import SpecError


@dataclass(slots=True)
class Element:
    """One element of an XML file."""

    tag: str
    attributes: dict[str, str]
    line: int
    children: list[Element] = field(default_factory=list)

    def all(self, tag: str) -> list[Element]:
        """The children with that tag."""
        return [child for child in self.children if child.tag == tag]


class _DoctypeError(Exception):
    pass


def parse(
    path: str | os.PathLike[str],
    root: str,
    advice: str = "",
    others: Mapping[str, str] | None = None,
) -> Element:
    """The root of an XML file, which must be <root>; SpecError says what was found instead.

    advice: which file to give. others: what a file with another root is, by its tag.

    A document type is refused, and with it every entity, which could blow a small file up.
    """
    file = Path(path)
    parser = xml.parsers.expat.ParserCreate()
    top = Element("", {}, 0)
    stack = [top]

    def start(tag: str, attributes: dict[str, str]) -> None:
        element = Element(tag, attributes, parser.CurrentLineNumber)
        stack[-1].children.append(element)
        stack.append(element)

    def end(_: str) -> None:
        stack.pop()

    def doctype(*_: object) -> None:
        raise _DoctypeError

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.StartDoctypeDeclHandler = doctype
    where, expected = file.name, f"expected <{root}>" + (f"; {advice}" if advice else "")
    try:
        parser.Parse(file.read_bytes(), True)
    except OSError as error:
        raise SpecError([f"{where}: cannot be read ({error}); name an existing file"]) from None
    except xml.parsers.expat.ExpatError as error:
        raise SpecError([f"{where}: line {error.lineno}: not XML ({error}); {expected}"]) from None
    except _DoctypeError:
        line = parser.CurrentLineNumber
        raise SpecError(
            [f"{where}: line {line}: found a document type; remove <!DOCTYPE>; {expected}"]
        ) from None
    found = top.children[0]
    if found.tag != root:
        known = (others or {}).get(found.tag)
        what = f"<{found.tag}>" + (f" ({known})" if known else "")
        raise SpecError([f"{where}: line {found.line}: found {what}, {expected}"])
    return found
