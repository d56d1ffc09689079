"""The text of what disturbs a simulation, turned into its conditions."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Sequence
from typing import Annotated, TypeVar

import typer

from commsim.cli._arguments import read_operation, read_pairs
from commsim.engine.conditions import Conditions, Jitter, LinkFault, Traffic
from commsim.errors import SpecError, UnitError
from commsim.topology.cluster import Cluster
from commsim.units import Bytes, Seconds, parse_rate, parse_size, parse_time

Late = Annotated[
    list[str] | None, typer.Option("--late", help="A rank that comes late: 3=2ms. Repeatable.")
]
Slow = Annotated[
    list[str] | None,
    typer.Option("--slow", help="A rank that takes longer by a factor: 3=1.5. Repeatable."),
]
Death = Annotated[
    list[str] | None,
    typer.Option("--die", help="A rank that dies, and when: 3=100us. Repeatable."),
]
JitterText = Annotated[
    str | None,
    typer.Option(
        "--jitter",
        help="Random software time per transfer, its mean: exponential=2us; or lognormal, normal,"
        " uniform.",
    ),
]
Degrade = Annotated[
    list[str] | None,
    typer.Option(
        "--degrade",
        help="A link or device at a share of its bandwidth, from the beginning or @TIME:"
        " node0/nic3=0.5, leaf2=0.25@1ms; * and ? match. Repeatable.",
    ),
]
Fail = Annotated[
    list[str] | None,
    typer.Option(
        "--fail",
        help="A link or device that fails: node0/nic3@1ms; without a time the library has known it"
        " from the beginning and does without the NIC. Repeatable.",
    ),
]
TrafficText = Annotated[
    list[str] | None,
    typer.Option(
        "--traffic",
        help="Other traffic, rank to rank: 0-8:1GiB, 0-8:1GiB@1ms, 0-8:1GiB@1ms/10GB/s."
        " Repeatable.",
    ),
]
Also = Annotated[
    list[str] | None,
    typer.Option(
        "--also",
        help="A second collective on the same ranks: all_gather:64MiB, all_gather:64MiB@1ms."
        " Repeatable.",
    ),
]

V = TypeVar("V")


def read_conditions(
    *,
    late: Sequence[str] | None = None,
    slow: Sequence[str] | None = None,
    die: Sequence[str] | None = None,
    jitter: str | None = None,
    degrade: Sequence[str] | None = None,
    fail: Sequence[str] | None = None,
    traffic: Sequence[str] | None = None,
    watchdog: str = "600s",
    seed: int = 0,
) -> Conditions:
    """The conditions that a command line asks for; a CommsimError on what it cannot read."""
    faults = [_degraded(text) for text in degrade or ()]
    for text in fail or ():
        link, _, time = text.partition("@")
        if not link or text.endswith("@"):
            raise SpecError([f"--fail: expected LINK[@TIME] such as node0/nic3@1ms, got {text!r}"])
        faults.append(LinkFault(link=link, time=_time("--fail", text, time)))
    return Conditions(
        late=_by_rank("--late", "3=2ms", late, parse_time),
        slow=_by_rank("--slow", "3=1.5", slow, float),
        deaths=_by_rank("--die", "3=100us", die, parse_time),
        jitter=_jitter(jitter, seed),
        faults=tuple(faults),
        traffic=tuple(_traffic(text) for text in traffic or ()),
        watchdog=read_time("--watchdog", watchdog),
    )


def read_also(texts: Sequence[str] | None) -> list[tuple[str, Bytes, Seconds]]:
    """Operation, bytes and start in s of each --also."""
    found = []
    for text in texts or ():
        what, _, time = text.partition("@")
        operation, _, size = what.partition(":")
        name = read_operation(operation)
        if not size and name != "barrier":
            raise SpecError(
                [f"--also: expected OP:SIZE[@TIME] such as all_gather:64MiB@1ms, got {text!r}"]
            )
        nbytes = _read(f"--also {text}", parse_size, size) if size else 0
        found.append((name, nbytes, _time("--also", text, time)))
    return found


def read_time(option: str, text: str) -> Seconds:
    """The time that an option gives."""
    return _read(f"{option} {text}", parse_time, text)


def _by_rank(
    option: str, example: str, texts: Sequence[str] | None, read: Callable[[str], V]
) -> dict[int, V]:
    found: dict[int, V] = {}
    for rank, value in read_pairs(option, example, texts).items():
        try:
            found[int(rank)] = read(value)
        except UnitError as error:
            raise SpecError([f"{option} {rank}={value}: {error}"]) from None
        except ValueError:
            raise SpecError(
                [f"{option}: expected RANK=VALUE such as {example}, got '{rank}={value}'"]
            ) from None
    return found


def _degraded(text: str) -> LinkFault:
    link, _, rest = text.rpartition("=")
    share, _, time = rest.partition("@")
    try:
        value = float(share)
    except ValueError:
        value = -1.0
    if not link or value < 0 or rest.endswith("@"):
        raise SpecError(
            [f"--degrade: expected LINK=SHARE[@TIME] such as node0/nic3=0.5, got {text!r}"]
        )
    return LinkFault(link=link, share=value, time=_time("--degrade", text, time))


def _time(option: str, text: str, time: str) -> Seconds:
    return _read(f"{option} {text}", parse_time, time) if time else 0.0


def _read(where: str, read: Callable[[str], V], text: str) -> V:
    """The text read; an error says where it stands."""
    try:
        return read(text)
    except UnitError as error:
        raise SpecError([f"{where}: {error}"]) from None


def _jitter(text: str | None, seed: int) -> Jitter | None:
    if text is None:
        return None
    distribution, _, mean = text.partition("=")
    if not mean:
        raise SpecError(
            [f"--jitter: expected DISTRIBUTION=MEAN such as exponential=2us, got {text!r}"]
        )
    return Jitter(distribution=distribution, mean=_time("--jitter", text, mean), seed=seed)


def _traffic(text: str) -> Traffic:
    match = re.fullmatch(r"(\d+)-(\d+):([^@/]+)(?:@([^/]+))?(?:/(.+))?", text)
    if match is None:
        raise SpecError(
            [f"--traffic: expected FROM-TO:SIZE[@TIME][/RATE] such as 0-8:1GiB@1ms, got {text!r}"]
        )
    source, destination, size, time, rate = match.groups()
    where = f"--traffic {text}"
    return Traffic(
        source=int(source),
        destination=int(destination),
        nbytes=_read(where, parse_size, size),
        start=_time("--traffic", text, time or ""),
        rate=_read(where, parse_rate, rate) if rate else math.inf,
    )


def read_placement(text: str, cluster: Cluster, ranks: str | None) -> tuple[int, ...]:
    """The ranks of `packed=16` or `spread=16`."""
    way, _, number = text.partition("=")
    count = int(number) if number.isdigit() else 0
    if ranks is not None or way not in ("packed", "spread") or not 2 <= count <= cluster.n_ranks:
        raise SpecError(
            [
                f"--placement: expected packed=N or spread=N with N from 2 to {cluster.n_ranks}, "
                f"and no --ranks, got {text!r}" + (f" and --ranks {ranks}" if ranks else "")
            ]
        )
    if way == "packed":
        return tuple(range(count))
    per_host = cluster.gpus_per_node
    turns = (host * per_host + local for local in range(per_host) for host in range(cluster.nodes))
    return tuple(sorted(itertools.islice(turns, count)))
