"""What becomes of results: the table on stdout, the file, progress on stderr."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from commsim.cost.profile import Profile
from commsim.libraries.library import Library
from commsim.measure import screen
from commsim.measure.expected import Expected
from commsim.measure.journal import Journal
from commsim.measure.plan import Plan, Step
from commsim.topology.cluster import Cluster
from commsim.units import Seconds, format_size

if TYPE_CHECKING:
    from rich.progress import Progress

Record = dict[str, Any]


class Reporter:
    """Takes a run's header and records as they come.

    cluster, library, profile: what the expected times are of; None: as the run itself says.
    quiet: no table (someone prints JSON at the end). bare: neither notes nor progress.
    """

    def __init__(
        self,
        plan: Plan,
        journal: Journal | None,
        *,
        cluster: Cluster | None = None,
        library: Library | None = None,
        profile: Profile | None = None,
        quiet: bool = False,
        bare: bool = False,
    ) -> None:
        self.plan = plan
        self.journal = journal
        self.quiet = quiet
        self.bare = bare
        self.header: Record = {}
        self.records: list[Record] = []
        self._given = (cluster, library, profile)
        self._expected: Expected | None = None
        self._kind = ""
        self._said = ""
        self._bar: Progress | None = None
        self._task: Any = None

    def begin(self, header: Record) -> None:
        """The run has begun on every rank."""
        self.header = header
        self._expected = Expected(header, *self._given)
        self._write(header)
        self._print(screen.about(header, self.plan))
        self._note()
        self._show(0)

    def done(self, index: int, records: list[Record]) -> None:
        """Step `index` of the plan has been measured."""
        step = self.plan.steps[index]
        expected = self._expect(step, records)
        for record in records:
            if expected is not None and record["kind"] == "collective":
                record["expected_s"] = expected
            record["run"] = self.plan.run
            self._write(record)
        self.records += records
        if step.kind != self._kind:
            self._kind = step.kind
            self._print(screen.head(step))
        self._print(screen.rows(step, records, expected))
        self._note()
        self._show(index + 1)

    def end(self) -> None:
        """No more comes, whatever the reason."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        if self.records:
            self._print(screen.footer(self.plan, self.records))

    def _expect(self, step: Step, records: Sequence[Record]) -> Seconds | None:
        if step.kind != "collective" or self._expected is None:
            return None
        return self._expected.duration(records[0])

    def _note(self) -> None:
        """What the expected times take for granted, or why there are none: said once."""
        note = self._expected.note if self._expected is not None else ""
        if note and note != self._said and not self.bare:
            self._print([f"# note: {note}"])
            self._said = note

    def _write(self, record: Record) -> None:
        if self.journal is not None:
            self.journal.write(record)

    def _print(self, lines: Sequence[str]) -> None:
        if not self.quiet:
            for line in lines:
                print(line.rstrip(), flush=True)

    def _show(self, done: int) -> None:
        """How far it is, on a terminal."""
        if self.bare or not sys.stderr.isatty():
            return
        if self._bar is None:
            from rich.console import Console  # 60 ms that a pipe does not need
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            self._bar = Progress(
                TextColumn("measuring {task.fields[what]}"), BarColumn(),
                TextColumn("{task.completed}/{task.total}"), TimeRemainingColumn(),
                console=Console(stderr=True), transient=True,
                redirect_stdout=sys.stdout.isatty(), auto_refresh=False,
            )  # fmt: skip
            self._task = self._bar.add_task("", total=len(self.plan.steps), what="")
            self._bar.start()
        self._bar.update(self._task, completed=done, what=self._next(done))
        self._bar.refresh()  # no thread does, which would take time from the ranks

    def _next(self, index: int) -> str:
        if index >= len(self.plan.steps):
            return ""
        asked = self.plan.steps[index].collective
        if asked is None:
            return "matrix products"
        return f"{asked.operation} of {format_size(asked.nbytes)}"
