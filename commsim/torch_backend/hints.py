"""What a stuck job's ranks did wrong, in the cases that are common, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from commsim.torch_backend.records import Call, Post
from commsim.torch_backend.situation import Blocked, Situation
from commsim.units import format_size


def names_of(ranks: Sequence[int]) -> str:
    """`rank 3`, `ranks 0-2, 7`."""
    runs: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    parts = [f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    return f"rank{'s' if len(set(ranks)) > 1 else ''} {', '.join(parts)}"


def hints(situation: Situation, cycle: Sequence[int]) -> tuple[str, ...]:
    """What is known about the cause, one line each."""
    found: dict[str, None] = {}
    ring = [b for b in situation.blocked if b.rank in cycle]
    for line in (*_ring(ring), *_missing(situation), *_unmet(situation)):
        found[line] = None
    return tuple(found)[:8]


def _ring(ring: Sequence[Blocked]) -> Iterator[str]:
    """What the ranks of a cycle have in common."""
    calls = [b.call for b in ring if b.call is not None]
    kinds = {call.operation for call in calls}
    if not calls:
        return
    if kinds == {"send"}:
        most = max(call.nbytes for call in calls)
        yield (
            "each of them sends before it receives: let one of a pair receive first, or use "
            "isend/irecv or batch_isend_irecv"
        )
        yield (
            f"where a send of {format_size(most)} is buffered it would go through by luck "
            f"(--send-buffer {most})"
        )
    elif kinds == {"recv"}:
        yield "each of them receives before it sends: nobody sends first"
    elif kinds & {"send", "recv"} and kinds - {"send", "recv"}:
        yield "some wait in a collective for ranks that wait for a message from them"
    elif not kinds & {"send", "recv"} and len({call.group for call in calls}) > 1:
        yield (
            "they call the collectives of two groups in different orders: every rank must call "
            "them in the same order"
        )


def _missing(situation: Situation) -> Iterator[str]:
    """Ranks that will never come to a collective."""
    ended = set(situation.ended)
    for operation in situation.incomplete:
        came = {post.call.rank for post in operation.posts}
        gone = [r for r in operation.group.ranks if r in ended and r not in came]
        if gone:
            call = operation.call
            yield (
                f"{names_of(gone)} ended without calling {call.function} number "
                f"{operation.sequence + 1} of ranks {operation.group}, at {call.where}"
            )


def _unmet(situation: Situation) -> Iterator[str]:
    """Sends and receives that nearly fit."""
    waiting = {id(b.post) for b in situation.blocked if b.post is not None}
    for post in situation.unmet:
        if id(post) in waiting:
            yield from _near(post, situation)


def _near(post: Post, situation: Situation) -> Iterator[str]:
    call = post.call
    for other in (p.call for p in situation.unmet if p is not post):
        if other.operation == call.operation or other.peer is None or call.peer is None:
            continue
        send, recv = (call, other) if call.is_send else (other, call)
        if other.rank == call.peer and other.peer == call.rank:
            if send.tag != recv.tag:
                yield _pair(send, recv, f"their tags differ, {send.tag} and {recv.tag}")
            elif send.group != recv.group:
                yield _pair(send, recv, f"in two groups, {send.group} and {recv.group}")
        elif send.peer == recv.rank and recv.peer != send.rank:
            yield _pair(send, recv, f"the receiver expects it from rank {recv.peer}")
        elif recv.peer == send.rank and send.peer != recv.rank:
            yield _pair(send, recv, f"it goes to rank {send.peer}")
    ended = set(situation.ended)
    if call.peer is not None and call.peer in ended:
        wanted = "receiving" if call.is_send else "sending"
        yield f"rank {call.peer} ended without {wanted} what rank {call.rank} waits for"


def _pair(send: Call, recv: Call, why: str) -> str:
    return (
        f"rank {send.rank}'s send at {send.where} and rank {recv.rank}'s receive at {recv.where} "
        f"do not meet: {why}"
    )
