"""Which operation each communication kernel carries out.

A kernel says it itself, or the op that launched it does (by External id). A kernel of batched
messages (batch_isend_irecv) carries all sends and receives that its thread had asked for before the
launch and that no other kernel carried: it becomes one event for each. Else only its name is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from commsim.traces import call_names as names
from commsim.traces import metadata
from commsim.traces.assembly import Work
from commsim.traces.recording import Call, Group
from commsim.units import Seconds

Arguments = dict[str, Any]
IDENTITY = "External id"


@dataclass(slots=True, kw_only=True)
class KernelCalls:
    """What was asked for and what ran, to be put together once all is read. groups: those met."""

    groups: dict[str, Group] = field(default_factory=dict)
    kernels: list[tuple[Work, Arguments]] = field(default_factory=list)
    asked: dict[str, Arguments] = field(default_factory=dict)
    messages: list[tuple[str, Seconds, Arguments]] = field(default_factory=list)

    def ran(self, work: Work, arguments: Arguments) -> None:
        """A communication kernel."""
        self.kernels.append((work, arguments))

    def ask(self, thread: str, time: Seconds, arguments: Arguments) -> None:
        """An op that asks for communication (record_param_comms)."""
        self.asked[str(arguments.get(IDENTITY))] = arguments
        self._group(arguments)
        call = metadata.call_of(arguments)
        if call is not None and call.is_message:
            self.messages.append((thread, time, arguments))

    def put_together(self, launches: Mapping[int, tuple[str, Seconds]]) -> list[tuple[Work, Work]]:
        """Gives every kernel its call; what batched kernels carry beyond their first message, each
        behind the kernel that it is of."""
        batched = []
        for work, arguments in self.kernels:
            if metadata.NAME not in arguments:
                arguments = {**self.asked.get(str(arguments.get(IDENTITY)), {}), **arguments}
            self._group(arguments)
            work.call = metadata.call_of(arguments, work.name)
            if work.call is None:
                operation, dtype, reduce_op = names.of_kernel(work.name)
                if operation is not None:
                    work.call = Call(
                        operation=operation, nbytes=None, dtype=dtype or "uint8",
                        reduce_op=reduce_op,
                    )  # fmt: skip
                if operation in (None, "send_recv") and work.correlation in launches:
                    batched.append(work)
        return self._batches(batched, launches)

    def _batches(
        self, batched: list[Work], launches: Mapping[int, tuple[str, Seconds]]
    ) -> list[tuple[Work, Work]]:
        carried = {str(arguments.get(IDENTITY)) for _, arguments in self.kernels}
        free = sorted(
            (m for m in self.messages if str(m[2].get(IDENTITY)) not in carried),
            key=lambda m: m[1],
        )
        more = []
        for work in sorted(batched, key=lambda w: launches[w.correlation or 0][1]):
            thread, launched = launches[work.correlation or 0]
            mine = [m for m in free if m[0] == thread and m[1] <= launched]
            calls = [call for m in mine if (call := metadata.call_of(m[2])) is not None]
            if calls:
                work.call, *others = calls
                more += [(work, replace(work, call=call)) for call in others]
                taken = set(map(id, mine))
                free = [m for m in free if id(m) not in taken]
        return more

    def _group(self, arguments: Arguments) -> None:
        group = metadata.group_of(arguments)
        if group is not None and not (group.name in self.groups and not group.ranks):
            self.groups[group.name] = group
