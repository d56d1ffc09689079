"""Messages of an NCCL_DEBUG=INFO log to facts: the first reader that fits takes a message.

The forms are those that NCCL 2.8 to 2.30 print.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from commsim.measurements import nccl_facts as facts
from commsim.measurements import nccl_group_lines as group
from commsim.measurements import nccl_machine_lines as machine
from commsim.measurements import nccl_tuning_lines as tuning
from commsim.measurements.nccl_facts import Fact
from commsim.measurements.nccl_messages import Message
from commsim.measurements.nccl_reader import State, at

# The first that fits reads the message.
_READERS = (
    machine.version,
    machine.driver,
    group.joined,
    group.laid,
    machine.used,
    machine.plugin,
    machine.plugin_part,
    machine.plugin_version,
    machine.affinity,
    machine.nics,
    machine.nic_speed,
    machine.nic_joined,
    machine.gpudirect,
    group.connection,
    group.collnet,
    group.ring,
    group.ring_place,
    group.trees,
    group.tree_place,
    group.counts,
    group.graph,
    group.graph_path,
    group.paths,
    tuning.table_head,
    tuning.table_row,
    tuning.thresholds,
    machine.setting,
    tuning.chosen,
    machine.multicast,
    machine.remark,
)


def read(messages: Iterable[Message]) -> Iterator[Fact]:
    """Every fact, in the order of the messages; a graph comes once its last path is read."""
    state = State()
    for line in messages:
        process = (line.where.host, line.thread[1], line.where.device)
        known = state.communicators.get(process, "")
        line = replace(line, where=replace(line.where, communicator=known))
        if line.level in ("WARN", "ERROR", "ABORT"):
            yield at(line, facts.Warned, place=line.place, text=line.text.strip())
        for reader in _READERS:
            if match := reader.pattern.match(line.text):
                yield from reader.facts(state, line, match)
                break
    yield from state.graphs.values()
