"""`python -m validation [PART ...] [--data DIR]`: rebuilds validation/REPORT.md and REPORT.html.

Each part judges one of commsim's answers against what was measured, and writes its section
(validation/sections); parts not named keep the section they have. DIR is a folder of published data
(cases.json, diagnosis.json), which some parts need. Without arguments: all that need none.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

HERE = Path(__file__).parent
SECTIONS = HERE / "sections"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A module that prints its section, as text or as Markdown, or `writes` it itself."""

    name: str
    title: str
    module: str
    arguments: tuple[str, ...] = ()
    writes: bool = False
    markdown: bool = False
    needs_data: bool = False


PARTS = (
    Part(name="collectives", title="Collectives", module="validation.fit", writes=True),
    Part(name="calibration", title="Calibration", module="validation.calibration", markdown=True),
    Part(name="diagnosis", title="Diagnosis", module="validation.diagnosis", needs_data=True),
    Part(name="synthetic", title="Synthetic faults", module="validation.synthetic", markdown=True),
    Part(name="lab", title="CPU network lab", module="validation.lab", arguments=("--quick",)),
    Part(name="training", title="Training steps", module="validation.training", writes=True),
    Part(name="memory", title="Memory of training", module="validation.training_memory",
         needs_data=True),
    Part(name="classics", title="Data parallelism's classics", module="validation.ddp_classics"),
    Part(name="planning", title="Plans", module="validation.planning", needs_data=True),
)  # fmt: skip

STYLE = """\
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem;
  color-scheme: light dark; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
td, th { padding: .15rem .6rem; border-bottom: 1px solid #8884; text-align: left; }
pre { overflow-x: auto; }
"""


def main() -> None:
    """Runs the parts and joins the sections."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[[], *(p.name for p in PARTS)], default=[])
    parser.add_argument("--data", type=Path, help="folder of published data")
    parser.add_argument("--join", action="store_true", help="only join the sections there are")
    asked = parser.parse_args()
    for part in () if asked.join else PARTS:
        if asked.parts and part.name not in asked.parts:
            continue
        if part.needs_data and asked.data is None:
            if asked.parts:
                parser.error(f"{part.name} needs --data")
            print(f"{part.name}: kept as it is (needs --data)", file=sys.stderr)
            continue
        rebuild(part, asked.data)
    join()


def rebuild(part: Part, data: Path | None) -> None:
    """Writes one section."""
    command = [sys.executable, "-m", part.module, *part.arguments]
    if part.needs_data:
        command += ["--data", str(data)]
    print(f"{part.name}: {' '.join(command[1:])}", file=sys.stderr)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    if part.writes:
        return
    said = done.stdout.rstrip()
    line = " ".join(["python", *command[1:-1], "DIR" if part.needs_data else command[-1]])
    SECTIONS.joinpath(f"{part.name}.md").write_text(
        f"# {part.title}\n\n`{line}` prints:\n\n"
        + (said if part.markdown else f"```text\n{said}\n```")
        + "\n",
        encoding="utf-8",
    )


def join() -> None:
    """REPORT.md and REPORT.html of the sections that are there."""
    texts = [
        path.read_text(encoding="utf-8").rstrip()
        for part in PARTS
        if (path := SECTIONS / f"{part.name}.md").exists()
    ]
    text = "\n\n".join(texts) + "\n"
    HERE.joinpath("REPORT.md").write_text(text, encoding="utf-8")
    body = MarkdownIt().enable("table").render(text)
    HERE.joinpath("REPORT.html").write_text(
        "<!doctype html>\n<html lang='en'><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width'>"
        f"<title>commsim: validation</title>\n<style>\n{STYLE}</style>\n{body}</html>\n",
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
