"""One thread at a time, the one furthest behind; nobody left to run is noticed."""

from __future__ import annotations

from dataclasses import dataclass, field

from commsim.torch_backend.baton import Baton


@dataclass
class Runner:
    number: int
    now: float = 0.0


@dataclass
class Log:
    """Isolation that writes down who enters and leaves."""

    events: list[str] = field(default_factory=list)

    def enter(self, rank: Runner) -> None:
        self.events.append(f"+{rank.number}")

    def leave(self, rank: Runner) -> None:
        self.events.append(f"-{rank.number}")


def test_the_rank_furthest_behind_runs_next() -> None:
    order: list[tuple[int, float]] = []
    runners = [Runner(0), Runner(1), Runner(2)]
    open_gate: set[int] = set()
    baton = Baton(runners, Log(), lambda: False)

    def body(me: Runner) -> None:
        for step in (3.0, 1.0, 2.0):
            order.append((me.number, me.now))
            me.now += step + me.number
            open_gate.discard(me.number)
            for other in runners:  # whoever waits may go on
                if other is not me:
                    open_gate.add(other.number)
                    baton.wake(other.number)
            if me.number != 2 or step != 2.0:
                baton.block(me, "turn", lambda: me.number in open_gate)

    baton.run(body)
    times = [now for _, now in order]
    assert len(order) >= 7
    assert times[:3] == [0.0, 0.0, 0.0]
    # rank 0 waits at 3, 1 at 4, 2 at 5
    assert order[3] == (0, 3.0)


def test_exactly_one_runs_at_a_time() -> None:
    log = Log()
    runners = [Runner(i) for i in range(4)]
    come: list[int] = []
    baton = Baton(runners, log, lambda: False)

    def body(me: Runner) -> None:
        come.append(me.number)
        for other in come[:-1]:
            baton.wake(other)
        baton.block(me, "others", lambda: len(come) == 4)

    baton.run(body)
    inside = 0
    for event in log.events:
        inside += 1 if event[0] == "+" else -1
        assert inside in (0, 1)
    assert baton.done() == (0, 1, 2, 3)


def test_nobody_left_to_run_is_noticed_and_everyone_unwinds() -> None:
    stuck: list[dict[int, object]] = []
    left: list[int] = []
    runners = [Runner(0), Runner(1)]

    def when_stuck() -> bool:
        stuck.append(baton.waiting())
        return False

    baton = Baton(runners, Log(), when_stuck)

    def body(me: Runner) -> None:
        try:
            baton.block(me, f"gate {me.number}", lambda: False)
        finally:
            left.append(me.number)

    baton.run(body)
    assert stuck == [{0: "gate 0", 1: "gate 1"}]
    assert left == [0, 1]


def test_who_asks_again_and_again_lets_the_others_go_first() -> None:
    done: list[int] = []
    runners = [Runner(0), Runner(1, now=5.0)]
    baton = Baton(runners, Log(), lambda: False)

    def body(me: Runner) -> None:
        if me.number == 0:
            while not done:
                baton.poll(me, "rank 1")
        done.append(me.number)

    baton.run(body)
    assert done == [1, 0]
