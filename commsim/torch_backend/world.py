"""The simulated job: its ranks, what they have asked of each other, and when it takes place."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

from commsim.torch_backend.baton import Baton, Isolation
from commsim.torch_backend.clock import Clock, Mark
from commsim.torch_backend.failure import Failure, explain
from commsim.torch_backend.footprint import NOTHING, Footprint
from commsim.torch_backend.groups import Groups
from commsim.torch_backend.handles import Handles
from commsim.torch_backend.matching import Collectives, Messages
from commsim.torch_backend.pricing import Prices
from commsim.torch_backend.records import Call, Mover, Operation, Post, Where
from commsim.torch_backend.sharing import Flow, Traffic
from commsim.torch_backend.situation import Blocked, Raised, Situation
from commsim.units import Bytes, Seconds

MUCH = 256  # stretches of time after which to look which of them can be forgotten
HOST_LIBRARIES = ("gloo", "mpi")  # their wait() blocks the host, not a stream


@dataclass(slots=True, kw_only=True, eq=False)
class Rank:
    """One rank of the script. steps: s, the end of each optimizer step. posts: all it called.

    state: what the process-wide tables of torch and Python hold for it while it runs. handles: of
    what it has called, for as long as torch's C++ may use them.
    """

    number: int
    local: int
    node: int
    world: World
    clock: Clock = field(default_factory=Clock)
    steps: list[Seconds] = field(default_factory=list)
    posts: list[Post] = field(default_factory=list)
    state: dict[str, Any] = field(default_factory=dict)
    in_flight: list[tuple[int, int, bool, Post, Any]] = field(default_factory=list)
    handles: Handles = field(default_factory=Handles)
    error: BaseException | None = None
    error_at: Where | None = None
    traceback: str = ""

    @property
    def now(self) -> Seconds:
        """s, what the rank has come to."""
        return self.clock.end


@dataclass(frozen=True, slots=True)
class Key:
    """A key of the store that a rank waits for."""

    name: str
    where: Where

    def __str__(self) -> str:
        return f"store.get({self.name!r})"


@dataclass(slots=True, kw_only=True, eq=False)
class World:
    """All ranks of a job.

    present: the ranks that really run; an operation is complete when those have come, and messages
    with others cost their time and carry nothing. send_buffer: bytes up to which a send is done
    before its receive is called. keep_spans: keep kernels for a timeline.
    """

    size: int
    nproc_per_node: int
    prices: Prices
    present: tuple[int, ...]
    send_buffer: Bytes = 0
    keep_spans: bool = False
    ranks: dict[int, Rank] = field(default_factory=dict)
    operations: list[Operation] = field(default_factory=list)
    store: dict[str, bytes] = field(default_factory=dict)
    failure: Failure | None = None
    notes: dict[str, None] = field(default_factory=dict)
    groups: Groups = field(init=False)
    traffic: Traffic = field(init=False)
    collectives: Collectives = field(init=False)
    messages: Messages = field(default_factory=Messages)
    baton: Baton = field(init=False)
    _much: int = MUCH

    def __post_init__(self) -> None:
        for number in self.present:
            node, local = divmod(number, self.nproc_per_node)
            self.ranks[number] = Rank(number=number, local=local, node=node, world=self)
        self.collectives = Collectives(frozenset(self.present))
        self.groups = Groups(present=frozenset(self.present), per_machine=self.nproc_per_node)
        self.traffic = Traffic(capacity=lambda: self.prices.footprints.capacity)

    def run(self, body: Callable[[Rank], None], isolation: Isolation) -> None:
        """Run the script on every rank to its end, or until no rank can go on."""
        self.baton = Baton(tuple(self.ranks.values()), isolation, self._stuck, self._go_on)
        self.baton.run(body)
        while self._go_on():  # operations that nobody waits for
            pass

    def post_collective(self, call: Call, buffers: object, move: Mover) -> Post:
        """Register one rank's part; the last rank's carries the operation out."""
        rank = self.ranks[call.rank]
        post, complete = self.collectives.post(call, rank.clock.ready, buffers, move)
        rank.posts.append(post)
        if complete:
            self._carry_out(post.operation)
        return post

    def post_message(self, call: Call, buffers: object, move: Mover, copy: Mover) -> Post:
        """Register a send or a receive. copy: puts a send's data aside, so that it can be done."""
        rank = self.ranks[call.rank]
        if call.peer is not None and call.peer not in self.ranks:
            return self._send_away(call, rank.clock.ready, buffers, move)
        post, met = self.messages.post(call, rank.clock.ready, buffers, move)
        rank.posts.append(post)
        if met:
            self._carry_out(post.operation)
        elif call.is_send and call.nbytes <= self.send_buffer and not post.operation.mismatched:
            copy(post.operation)
            post.buffered = post.ready
        return post

    def wait(self, post: Post) -> None:
        """The rank's current stream waits for the operation; its thread until that is over."""
        self.await_end(post)
        clock = self.ranks[post.call.rank].clock
        clock.hold(clock.current, Mark(post.end, post))
        if post.call.operation == "barrier" or self.prices.library.name in HOST_LIBRARIES:
            clock.synchronize()

    def await_end(self, post: Post) -> None:
        """Hand the baton on until it is over."""
        rank = self.ranks[post.call.rank]
        if not post.done:
            self.baton.block(rank, post, lambda: post.done)
        self.settle(post)

    def settle(self, post: Post) -> None:
        """The rank knows that the operation is over: its buffers are its own again."""
        post.waited = True
        rank = self.ranks[post.call.rank]
        if rank.in_flight:
            rank.in_flight = [each for each in rank.in_flight if each[3] is not post]

    def await_key(self, rank: Rank, key: str, where: Where) -> None:
        """Hand the baton on until a key is in the store."""
        self.baton.block(rank, Key(key, where), lambda: key in self.store)

    def put(self, key: str, value: bytes) -> None:
        """Set a key of the store."""
        self.store[key] = value
        for number, waits_for in self.baton.waiting().items():
            if isinstance(waits_for, Key) and waits_for.name == key:
                self.baton.wake(number)

    def _carry_out(self, operation: Operation) -> None:
        """All have come: move its data, and let it begin."""
        operation.move(operation)
        self._begin(operation)

    def _begin(self, operation: Operation) -> None:
        """It takes place as soon as its ranks' queues and the network let it."""
        operation.matched = True
        operation.number = len(self.operations)
        self.operations.append(operation)
        before = [
            self.ranks[post.call.rank].clock.follow(_queue(post), operation)
            for post in operation.posts
        ]
        takes, several = self._price(operation)
        self.traffic.add(
            Flow(
                operation=operation, ready=max(post.ready for post in operation.posts),
                after=tuple({id(o): o for o in before if o is not None}.values()),
                left=operation.alone, takes=takes, several=several,
            )
        )  # fmt: skip
        if self.groups.single and not operation.is_message:
            self._go_on()  # nothing can be in its way

    def _price(self, operation: Operation) -> tuple[Callable[[], Footprint], bool]:
        """Sets how long it takes alone. Its footprint, and whether that is of others too."""
        call = operation.call
        if operation.is_message:
            sender, receiver = (call.rank, call.peer) if call.is_send else (call.peer, call.rank)
            if len(operation.posts) == 2:  # a receive may be from any rank
                call = operation.of("send").call
                sender, receiver = call.rank, call.peer
            assert sender is not None
            assert receiver is not None
            asked = sender, receiver, call.nbytes, call.dtype
            operation.alone = self.prices.of_message(*asked)
            return lambda: self.prices.footprint_of_message(*asked), False
        splits = None
        if call.splits is not None and len(operation.posts) == len(operation.group.ranks):
            splits = tuple(post.call.splits or () for post in operation.in_order)
        prediction = self.prices.of_collective(call, splits)
        if prediction is None:
            return lambda: NOTHING, False
        operation.alone = prediction.duration
        operation.algorithm = f"{prediction.algorithm} {prediction.protocol}".strip()
        sisters = self.groups.sisters(operation.group.ranks)
        return (
            lambda: self.prices.footprint_of_collective(call, splits, sisters),
            bool(sisters),
        )  # fmt: skip

    def _go_on(self) -> bool:
        """Virtual time passes until an operation ends; False: none is under way."""
        ended = self.traffic.advance()
        for operation in ended:
            for post in operation.posts:
                if self.baton.waits_for(post.call.rank) is post:
                    self.baton.wake(post.call.rank)
        if len(self.traffic.past) > self._much:
            behind = (rank.clock.host for rank in self.ranks.values())
            self.traffic.forget(min(behind))
            self._much = 2 * len(self.traffic.past) + MUCH
        return bool(ended)

    def _send_away(self, call: Call, ready: Seconds, buffers: object, move: Mover) -> Post:
        """A message with a rank that is not simulated: it takes its time, and carries nothing."""
        self.notes["messages with ranks that are not simulated carry no data and never wait"] = None
        operation = Operation(group=call.group, move=move)
        post = Post(call=call, ready=ready, buffers=buffers, operation=operation)
        operation.posts.append(post)
        self.ranks[call.rank].posts.append(post)
        self._begin(operation)
        return post

    def _stuck(self) -> bool:
        """Nobody can run: let a receive from any rank choose its sender, or say why not."""
        post = self.messages.settle()
        if post is not None:
            self._carry_out(post.operation)
            return True
        self.failure = explain(self._situation())
        return False

    def _situation(self) -> Situation:
        raised = [
            Raised(
                rank=rank.number, kind=type(rank.error).__name__, where=rank.error_at,
                error=f"{type(rank.error).__name__}: {rank.error}".strip().rstrip(":"),
                traceback=rank.traceback,
            )
            for rank in self.ranks.values()
            if rank.error is not None
        ]  # fmt: skip
        raised.sort(key=lambda each: (self.ranks[each.rank].now, each.rank))
        blocked = (
            self._blocked(number, what) for number, what in sorted(self.baton.waiting().items())
        )
        return Situation(
            time=max((rank.now for rank in self.ranks.values()), default=0.0),
            present=frozenset(self.ranks),
            blocked=tuple(blocked),
            raised=tuple(raised),
            ended=self.baton.done(),
            incomplete=self.collectives.incomplete(),
            mismatched_messages=tuple(self.messages.mismatched),
            unmet=tuple(self.messages.unmet()),
        )

    def _blocked(self, number: int, what: object) -> Blocked:
        if not isinstance(what, Post):
            assert isinstance(what, Key)
            others = tuple(r for r in self.ranks if r != number and r not in self.baton.done())
            return Blocked(rank=number, text=str(what), where=what.where, waits_for=others)
        call, operation = what.call, what.operation
        if operation.mismatched:
            missing: tuple[int, ...] = ()
        elif operation.is_message:
            missing = call.group.ranks if call.peer is None else (call.peer,)
        else:
            came = {post.call.rank for post in operation.posts}
            missing = tuple(r for r in call.group.ranks if r in self.ranks and r not in came)
        return Blocked(
            rank=number, text=str(call), where=call.where, post=what,
            waits_for=tuple(r for r in missing if r != number),
        )  # fmt: skip


def _queue(post: Post) -> Hashable:
    """Where it waits for its turn: a group's collectives, and a rank's messages one way, go one
    after the other."""
    call = post.call
    if post.operation.is_message:
        return "out" if call.is_send else "in"
    return call.group
