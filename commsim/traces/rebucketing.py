"""The same gradients in other buckets: all_reduces joined or cut as a bucket size wants it.

A run is a sequence of all_reduces of one group and type of which no one waits for another: those of
one backward pass. Its bytes in their order are cut into buckets of the wanted size; as the
parameter that fills a bucket still lies in it, one ends where a recorded one does if that is no
more than a tenth further. A bucket is ready with its last byte; inside a recorded bucket bytes
become ready evenly between the moment at which the bucket before was ready and the one at which
this was. Who waited for a recorded bucket waits for all that hold its bytes. Parameters are not in
a trace, so a bucket may end inside one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from commsim.errors import ScheduleError
from commsim.traces.line import PAUSE, Part
from commsim.traces.recording import COMMUNICATION, Call
from commsim.units import Bytes

MOST = 100_000  # buckets of one run
OVER = 0.1  # of its size, by which a bucket may be fuller


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """An all_reduce; by rank the place of its part, right behind the pause that ends when its rank
    has come."""

    nbytes: Bytes
    call: Call
    places: dict[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cut:
    """A new bucket: its bytes, the recorded bucket that holds its last byte and how far into it."""

    nbytes: Bytes
    last: int
    share: float
    covers: tuple[int, ...]


Parts = tuple[Part, ...]


def rebucketed(
    parts: Mapping[int, Parts], recorded: Mapping[int, Bucket], size: Bytes
) -> tuple[dict[int, Parts], list[Bucket], dict[int, dict[int, int]]]:
    """By rank other parts, the new buckets, and by rank where each part that was kept went."""
    cuts = [cut for run in _runs(parts, recorded) for cut in _cuts(run, recorded, size)]
    places: list[dict[int, int]] = [{} for _ in cuts]
    found: dict[int, Parts] = {}
    moved: dict[int, dict[int, int]] = {}
    for rank, mine in parts.items():
        made = _Rank(mine, {n: b.places[rank] for n, b in recorded.items() if rank in b.places})
        found[rank], moved[rank], where = made.rebuilt(cuts, recorded)
        for i, place in where.items():
            places[i][rank] = place
    buckets = [
        Bucket(nbytes=cut.nbytes, call=_call(recorded[cut.last].call, cut.nbytes), places=at)
        for cut, at in zip(cuts, places, strict=True)
    ]
    return found, buckets, moved


def _call(call: Call, nbytes: Bytes) -> Call:
    return replace(call, nbytes=nbytes)


def _runs(parts: Mapping[int, Parts], recorded: Mapping[int, Bucket]) -> list[list[int]]:
    """The recorded buckets in runs."""
    lines: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for n, bucket in recorded.items():
        lines[bucket.call.group, bucket.call.dtype, bucket.call.reduce_op].append(n)
    found = []
    for line in lines.values():
        waited = dict.fromkeys(line, -1)  # the last of the line that a bucket's rank waited for
        for rank, mine in parts.items():
            place = {recorded[n].places[rank]: i for i, n in enumerate(line)
                     if rank in recorded[n].places}  # fmt: skip
            for at, last in _last_waited(mine, place).items():
                n = line[place[at]]
                waited[n] = max(waited[n], last)
        run: list[int] = []
        first = 0
        for i, n in enumerate(line):
            if waited[n] >= first and run:
                found.append(run)
                run, first = [], i
            run.append(n)
        found.append(run)
    return found


def _last_waited(parts: Parts, place: Mapping[int, int]) -> dict[int, int]:
    """Of each bucket's part: the last bucket (its number in the line) that its arrival comes after,
    other than by the order on its stream."""
    seen: list[int] = []
    last: dict[str, int] = {}
    found: dict[int, int] = {}
    for i, part in enumerate(parts):
        before = last.get(part.stream)
        after = list(part.after)
        arrives = part.kind == PAUSE and i + 1 in place
        if before is not None and not arrives:
            after.append(before)
        most = max((seen[j] for j in after), default=-1)
        if i in place:
            found[i] = seen[i - 1]
            most = place[i]
        seen.append(most)
        last[part.stream] = i
    return found


def _cuts(run: Sequence[int], recorded: Mapping[int, Bucket], size: Bytes) -> list[_Cut]:
    """A run's bytes in buckets of `size`."""
    ends = [0]
    for n in run:
        ends.append(ends[-1] + recorded[n].nbytes)
    total, found = ends[-1], []
    if total > MOST * size:
        raise ScheduleError(
            f"bucket size: {size} bytes would cut {total} bytes of gradients into more than"
            f" {MOST:,} buckets; expected a larger size"
        )
    edges = [0]
    while edges[-1] < total:
        full = edges[-1] + size
        edges.append(next((e for e in ends if full <= e <= full + size * OVER), min(full, total)))
    for begin, end in pairwise(edges):
        inside = [i for i, (a, b) in enumerate(pairwise(ends)) if a < end and b > begin]
        last = inside[-1]
        share = (end - ends[last]) / recorded[run[last]].nbytes
        covers = tuple(run[i] for i in inside)
        found.append(_Cut(nbytes=end - begin, last=run[last], share=share, covers=covers))
    return found


class _Rank:
    """A rank's parts, rebuilt with other buckets."""

    def __init__(self, parts: Parts, place: Mapping[int, int]) -> None:
        self.parts, self.place = parts, dict(place)

    def rebuilt(
        self, cuts: Sequence[_Cut], recorded: Mapping[int, Bucket]
    ) -> tuple[Parts, dict[int, int], dict[int, int]]:
        """Parts, where each kept part went, and the place of each cut that this rank takes part
        in."""
        of_part = {at: n for n, at in self.place.items()}
        by_last: dict[int, list[int]] = defaultdict(list)
        covering: dict[int, list[int]] = defaultdict(list)
        for i, cut in enumerate(cuts):
            by_last[cut.last].append(i)
            for n in cut.covers:
                covering[n].append(i)
        new: list[tuple[Part, tuple[tuple[str, int], ...]]] = []
        moved: dict[int, int] = {}
        where: dict[int, int] = {}
        for i, part in enumerate(self.parts):
            if i + 1 in of_part and part.kind == PAUSE:
                continue  # the arrival of a bucket: made anew below
            held = of_part.get(i)
            if held is None:
                moved[i] = len(new)
                new.append((part, tuple(("old", j) for j in part.after)))
                continue
            for c in by_last[held]:
                pause, waits = self._arrival(i, cuts[c].share)
                new.append((pause, waits))
                where[c] = len(new)
                call = _call(recorded[held].call, cuts[c].nbytes)
                bucket = replace(part, call=call, event=-1, after=(), kind=COMMUNICATION)
                new.append((bucket, ()))
        made = []
        for part, waits in new:
            after: list[int] = []
            for kind, j in waits:
                bucket_of = of_part.get(j)
                if kind == "old" and bucket_of is not None:
                    after += [where[c] for c in covering[bucket_of] if c in where]
                elif j in moved:
                    after.append(moved[j])
            made.append(replace(part, after=tuple(dict.fromkeys(after))))
        return tuple(made), moved, where

    def _arrival(self, at: int, share: float) -> tuple[Part, tuple[tuple[str, int], ...]]:
        """The pause before a bucket that ends a share into the recorded one at that place."""
        pause = self.parts[at - 1]
        waits = tuple(("old", j) for j in pause.after)
        if share >= 1:
            return pause, waits
        ready = max(pause.after, default=-1)
        earlier = [p - 1 for p in self.place.values() if p < at]
        before = max((max(self.parts[p].after, default=-1) for p in earlier), default=-1)
        between = [
            j for j in range(max(before, 0), ready + 1)
            if self.parts[j].stream == self.parts[ready].stream
        ] if ready >= 0 else []  # fmt: skip
        total = sum(self.parts[j].duration for j in between)
        passed, chosen = 0.0, ready
        for j in between:
            passed += self.parts[j].duration
            if passed >= share * total:
                chosen = j
                break
        return replace(pause, duration=0.0), (("old", chosen),) if chosen >= 0 else ()
