"""Why a job cannot go on: who waits where for whom, and what is wrong with that.

The report is drawn from the wait-for graph of the ranks at the moment at which nobody can run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from commsim.torch_backend.hints import hints, names_of
from commsim.torch_backend.records import Operation, Post, Where
from commsim.torch_backend.situation import Raised, Situation
from commsim.units import Seconds, format_time


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where ranks stand, and why: those with the same text are one."""

    ranks: tuple[int, ...]
    state: str
    what: str
    where: Where | None = None

    def __str__(self) -> str:
        return f"{names_of(self.ranks)}: {self.what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What stopped the job. kind: error, mismatch, deadlock or unfinished.

    time: s, how far the ranks came. cycle: ranks that wait for each other in a ring.
    """

    kind: str
    title: str
    time: Seconds
    standings: tuple[Standing, ...]
    cycle: tuple[int, ...] = ()
    causes: tuple[str, ...] = ()
    traceback: str = ""

    def __str__(self) -> str:
        lines = [f"{self.title} (at {format_time(self.time)})"]
        lines += [f"  {standing}" for standing in self.standings]
        if self.cycle:
            ring = " -> ".join(map(str, (*self.cycle, self.cycle[0])))
            lines.append(f"  they wait for each other: {ring}")
        lines += [f"  {cause}" for cause in self.causes]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON-able."""
        found = asdict(self)
        found["time_s"] = found.pop("time")
        return found


def explain(situation: Situation) -> Failure | None:
    """What is wrong; None: every rank has ended and nothing is left over."""
    standings = _standings(situation)
    common: dict[str, Any] = {"time": situation.time, "standings": standings}
    if situation.raised:
        return Failure(
            kind="error", title=_raised_title(situation.raised),
            traceback=situation.raised[0].traceback, **common,
        )  # fmt: skip
    mismatched = [o for o in situation.incomplete if o.mismatched]
    mismatched += situation.mismatched_messages
    if mismatched:
        waiting = {id(blocked.post) for blocked in situation.blocked}
        causes = tuple(line for each in mismatched for line in _disagreement(each, waiting))
        return Failure(kind="mismatch", title=_mismatch_title(mismatched), causes=causes, **common)
    if situation.blocked:
        cycle = _cycle({b.rank: b.waits_for for b in situation.blocked})
        title = "deadlock: no rank can go on"
        return Failure(
            kind="deadlock", title=title, cycle=cycle, causes=hints(situation, cycle), **common
        )
    if situation.incomplete:
        return Failure(
            kind="unfinished", title="the script ended before its communication did",
            causes=tuple(_left_over(o, situation) for o in situation.incomplete), **common,
        )  # fmt: skip
    return None


def _standings(situation: Situation) -> tuple[Standing, ...]:
    """Every rank's, those in the same place together, in the order of the ranks."""
    texts: dict[tuple[str, str, Where | None], list[int]] = {}
    for raised in situation.raised:
        what = f"raised {raised.error} at {raised.where}" if raised.where else raised.error
        texts.setdefault(("raised", what, raised.where), []).append(raised.rank)
    for blocked in situation.blocked:
        what = f"in {blocked.text} at {blocked.where}"
        if blocked.waits_for:
            what += f", waiting for {names_of(blocked.waits_for)}"
        texts.setdefault(("blocked", what, blocked.where), []).append(blocked.rank)
    broken = {r.rank for r in situation.raised}
    ended = [rank for rank in situation.ended if rank not in broken]
    if ended:
        texts["ended", "has ended" if len(ended) == 1 else "have ended", None] = ended
    found = [
        Standing(ranks=tuple(ranks), state=state, what=what, where=where)
        for (state, what, where), ranks in texts.items()
    ]
    return tuple(sorted(found, key=lambda s: (s.state != "raised", s.ranks)))


def _raised_title(raised: Sequence[Raised]) -> str:
    first = raised[0]
    at = f" at {first.where}" if first.where else ""
    return f"{names_of([r.rank for r in raised])} raised {first.kind}{at}"


def _mismatch_title(mismatched: Sequence[Operation]) -> str:
    first = mismatched[0]
    if first.is_message:
        return "a send and its receive do not fit"
    return f"ranks {first.group} disagree about operation {first.sequence + 1} of their group"


FACTS = ("operation", "dtype", "size", "root", "reduction")


def _disagreement(operation: Operation, waiting: set[int]) -> list[str]:
    """Who calls what, most ranks first, and in what the calls differ."""
    by_call: dict[tuple[object, ...], list[Post]] = {}
    for post in operation.posts:
        key = (*post.call.signature, str(post.call), post.call.where)
        by_call.setdefault(key, []).append(post)
    sides = sorted(by_call.values(), key=lambda posts: (-len(posts), posts[0].call.rank))
    lines = [  # of those that do not wait in it, and so are not among the standings
        f"{names_of([p.call.rank for p in posts])}: {posts[0].call} at {posts[0].call.where}"
        for posts in sides
        if not all(id(post) in waiting for post in posts)
    ]
    signatures = [posts[0].call.signature for posts in sides]
    differ = [
        name
        for i, name in enumerate(FACTS)
        if len({signature[i] for signature in signatures}) > 1
        and not (operation.is_message and name == "operation")
    ]
    if "operation" in differ:
        differ = ["operation"]
    if differ:
        rule = "" if operation.is_message else (
            ": the ranks of a group must call the same collectives in the same order"
        )  # fmt: skip
        lines.append(f"they differ in {' and '.join(differ)}{rule}")
    else:
        lines += _split_conflicts(operation)
    return lines


def _split_conflicts(operation: Operation) -> list[str]:
    """The pairs of an all_to_all of which one sends what the other does not expect."""
    found = []
    posts = operation.in_order
    place = {post.call.rank: operation.group.ranks.index(post.call.rank) for post in posts}
    for sender in posts:
        for receiver in posts:
            a, b = sender.call, receiver.call
            if a.splits is None or b.expects is None:
                continue
            sent, awaited = a.splits[place[b.rank]], b.expects[place[a.rank]]
            if sent != awaited:
                found.append(
                    f"rank {a.rank} sends {sent} bytes to rank {b.rank}, which expects {awaited}"
                )
    return found[:8]


def _left_over(operation: Operation, situation: Situation) -> str:
    came = [post.call.rank for post in operation.posts]
    missing = [r for r in operation.group.ranks if r in situation.present and r not in came]
    call = operation.call
    return f"{call} at {call.where}: {names_of(came)} called it, {names_of(missing)} never did"


def _cycle(waits_for: Mapping[int, Iterable[int]]) -> tuple[int, ...]:
    """A shortest ring of ranks that wait for each other, beginning with its lowest; () if none."""
    best: tuple[int, ...] = ()
    for start in sorted(waits_for):
        reached: dict[int, tuple[int, ...]] = {start: (start,)}
        frontier = [start]
        while frontier and not (best and len(reached[frontier[0]]) >= len(best)):
            following = []
            for rank in frontier:
                for other in waits_for.get(rank, ()):
                    if other == start:
                        if not best or len(reached[rank]) < len(best):
                            best = reached[rank]
                    elif other not in reached and other in waits_for:
                        reached[other] = (*reached[rank], other)
                        following.append(other)
            frontier = following
        if len(best) == 2 or (len(waits_for) > 64 and best):
            break
    return best
