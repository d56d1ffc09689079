"""Small timelines, made by hand or by chance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from commsim.collectives.builder import Builder
from commsim.collectives.chunks import cut
from commsim.collectives.collective import Collective
from commsim.collectives.program import Program, from_function
from commsim.collectives.schedule import Schedule
from commsim.engine import compiled
from commsim.engine.conditions import Conditions
from commsim.engine.ideal import Pairs, Ports
from commsim.engine.network import Floats, Network, lay
from commsim.engine.plan import Change, Part, make_plan
from commsim.engine.played import Played
from commsim.engine.timeline import Timeline

MB = 10**6  # takes 1 ms at 1 GB/s
MS, US = 1e-3, 1e-6


def chain(nbytes: int = MB, n: int = 3) -> Schedule:
    """Rank 0 sends to 1, 1 to 2, ..."""

    def hops(program: Program) -> None:
        for rank in range(n - 1):
            program.copy(rank, 0, rank + 1)

    return from_function(Collective("broadcast", nbytes, dtype="uint8"), n, hops)


def ports(n: int) -> Ports:
    """1 GB/s in and out, 3 us."""
    return Ports(n=n, bandwidth=1e9, latency=3 * US)


def played(
    *schedules: Schedule,
    network: Network,
    late: Mapping[int, float] | None = None,
    deaths: Mapping[int, float] | None = None,
    changes: tuple[Change, ...] = (),
    asked: float = 0.0,
    launch: float = 0.0,
    extra: Floats | None = None,
    watchdog: float = 600.0,
) -> Timeline:
    """All schedules at once; `late` may be inf: never."""
    parts = []
    for schedule in schedules:
        start = np.full(schedule.vertices, asked)
        start[: schedule.chunks.n] += launch
        death = np.full(schedule.vertices, np.inf)
        for rank, by in (late or {}).items():
            start[rank] += by
        for rank, time in (deaths or {}).items():
            death[rank] = time
        parts.append(Part(laid=lay(schedule, network), start=start, death=death, extra=extra))
    plan = make_plan(parts, network.capacity, changes)
    times = compiled.play(plan)
    ends = np.cumsum([0, *map(len, schedules)]).tolist()
    return Timeline(
        played=tuple(
            Played(
                collective=Collective(
                    s.chunks.operation, int(s.chunks.nbytes.sum()), dtype="uint8"
                ),
                ranks=tuple(range(s.chunks.n)),
                laid=part.laid,
                times=times.of(slice(first, last)),
                asked=asked,
                joined=part.start,
                launch=launch,
                algorithm="ring",
                protocol="Simple",
            )
            for s, part, first, last in zip(schedules, parts, ends, ends[1:], strict=False)
        ),
        network=network,
        changes=plan.changes,
        conditions=Conditions(deaths=deaths or {}, watchdog=watchdog),
        notes=("made up",),
    )


@st.composite
def timelines(draw: st.DrawFn, *, whole: bool = True) -> Timeline:
    """Random ops between up to 4 ranks and a switch, with late ranks, jitter and contention; unless
    `whole`, with deaths and failed links too.
    """
    n, count = draw(st.integers(2, 4)), draw(st.integers(0, 14))
    builder = Builder(cut(Collective("all_reduce", 64), n), scratch=1, switches=1)
    for op in range(count):
        source, destination = (draw(st.integers(0, n)) for _ in range(2))
        waits = draw(st.sets(st.integers(0, op - 1), max_size=3)) if op else set()
        builder.append(
            source,
            destination,
            0,
            1,
            after=sorted(waits),
            nbytes=draw(st.sampled_from([0, 1, 1000, MB])),
            streams=draw(st.booleans()),
            channel=draw(st.integers(0, 1)),
            round=op // 3,
        )
    schedule = builder.build()
    delays = st.sampled_from([0.0, 0.0, 2 * US, 1 * MS, 3.3])
    network: Network = draw(
        st.sampled_from([ports(n), Pairs(vertices=n + 1, bandwidth=1e9, latency=0.0)])
    )
    links = st.integers(0, len(network.links) - 1)
    timeline = played(
        schedule,
        network=network,
        late={r: draw(delays) for r in range(n)},
        deaths={} if whole else draw(st.dictionaries(st.integers(0, n - 1), delays, max_size=1)),
        changes=tuple(
            Change(time=draw(delays), link=link, capacity=0.0)
            for link in ([] if whole else draw(st.lists(links, max_size=2)))
        ),
        asked=draw(delays),
        launch=draw(delays),
        extra=np.array([draw(delays) for _ in range(count)]),
        watchdog=draw(st.sampled_from([1.5 * MS, 600.0])),
    )
    return replace(timeline, notes=())
