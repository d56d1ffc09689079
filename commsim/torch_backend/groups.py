"""The process groups of a job, those too whose ranks are not simulated.

A rank that stands for others calls for them as well: while its group carries out an operation, so
do the groups that lie as it does, moved by a constant (the other data-parallel groups of the same
machines, say), and they may share its links.
"""

from __future__ import annotations

from dataclasses import dataclass, field

Ranks = tuple[int, ...]


@dataclass(slots=True, kw_only=True, eq=False)
class Groups:
    """Every group of two or more ranks that was made. present: the ranks that really run."""

    present: frozenset[int]
    per_machine: int
    known: dict[Ranks, None] = field(default_factory=dict)
    _sisters: dict[tuple[Ranks, int], tuple[Ranks, ...]] = field(default_factory=dict)

    def add(self, ranks: Ranks) -> None:
        """A group that a rank has made, as a member or not."""
        if len(ranks) > 1:
            self.known[ranks] = None

    @property
    def single(self) -> bool:
        """Is there one group only?"""
        return len(self.known) < 2

    def sisters(self, ranks: Ranks) -> tuple[Ranks, ...]:
        """Groups like it on its machines, none of whose ranks really runs."""
        key = ranks, len(self.known)
        if key not in self._sisters:
            self._sisters[key] = self._find(ranks)
        return self._sisters[key]

    def _find(self, ranks: Ranks) -> tuple[Ranks, ...]:
        taken, found = set(ranks) | self.present, []
        machines = {rank // self.per_machine for rank in ranks}
        for other in self.known:
            if len(other) != len(ranks) or not taken.isdisjoint(other):
                continue
            shift = other[0] - ranks[0]
            alike = all(b - a == shift for a, b in zip(ranks, other, strict=True))
            if alike and not machines.isdisjoint(rank // self.per_machine for rank in other):
                found.append(other)
                taken.update(other)
        return tuple(found)
