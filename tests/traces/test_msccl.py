"""MSCCL's XML: what we write reads back, files by hand, and a reader that repairs nothing."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from commsim.collectives.catalogue import algorithm, names
from commsim.collectives.collective import ROOTED, Collective
from commsim.collectives.program import Program, from_function
from commsim.collectives.schedule import Schedule
from commsim.collectives.verify import verify
from commsim.errors import CommsimError, ScheduleError, SpecError
from commsim.traces.msccl import Msccl
from commsim.traces.trace import Trace
from tests.traces.msccl_machine import Machine

FILES = Path(__file__).parents[1] / "data" / "msccl"
UNKNOWN = ("barrier", "send_recv")  # MSCCL has no such collective
SERVED = [(n, o) for n in names() for o in sorted(algorithm(n).operations)]
ON_NUMBERS = ("all_gather", "all_reduce", "all_to_all", "reduce_scatter")


def between(schedule: Schedule) -> Counter[tuple[int, int, int]]:
    """Bytes by sender, receiver and channel."""
    total: Counter[tuple[int, int, int]] = Counter()
    for op in schedule:
        if op.source != op.destination:
            total[op.source, op.destination, op.channel] += op.nbytes
    return total


def through_a_file(trace: Trace, folder: Path, in_place: bool | None = None) -> Trace:
    path = folder / "algo.xml"
    Msccl(in_place=in_place).write(trace, path)
    collective = trace.collective
    return Msccl(nbytes=collective.nbytes, dtype=collective.dtype).read(path)


@pytest.mark.parametrize("in_place", [None, False], ids=["in_place", "out_of_place"])
@pytest.mark.parametrize(("name", "operation"), SERVED)
def test_what_is_written_reads_back(
    name: str, operation: str, in_place: bool | None, tmp_path: Path
) -> None:
    for n in (2, 3, 6):
        for channels in (1, 2):
            root = n - 1 if operation in ROOTED else None
            collective = Collective(operation, 4 * 997, root=root)
            schedule = algorithm(name).schedule(collective, n, channels)
            trace = Trace(collective=collective, schedule=schedule, name=name)
            if operation in UNKNOWN or schedule.switches:
                with pytest.raises(ScheduleError, match="MSCCL"):
                    Msccl().write(trace, tmp_path / "algo.xml")
                continue
            back = through_a_file(trace, tmp_path, in_place)
            assert (back.name, back.collective) == (name, collective)
            verify(back.schedule, collective)
            assert between(back.schedule) == between(schedule)


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        ("ring", "all_reduce"),
        ("ring", "all_gather"),
        ("chain", "broadcast"),
        ("pairwise", "all_to_all"),
        ("recursive_doubling", "all_reduce"),
    ],
)
def test_a_schedule_reads_back_op_for_op(name: str, operation: str, tmp_path: Path) -> None:
    """Nobody can tell that data lay in a connection's buffer first: no op or place is added."""
    collective = Collective(operation, 4 * 997)
    schedule = algorithm(name).schedule(collective, 8, 2)
    back = through_a_file(Trace(collective=collective, schedule=schedule), tmp_path).schedule
    assert back.scratch == schedule.scratch

    def ops(schedule: Schedule) -> list[tuple[int, int, bool, int, int, str]]:
        return sorted(
            (o.source, o.destination, o.reduces, o.channel, o.nbytes, str(o.pieces))
            for o in schedule
        )

    assert ops(back) == ops(schedule)


def test_a_broadcast_of_two_gpus_as_text(tmp_path: Path) -> None:
    def halves(program: Program) -> None:
        program.copy(0, 0, 1, program.scratch)
        program.copy(0, 1, 1)
        program.copy(1, program.scratch, 1, 0)

    collective = Collective("broadcast", 8)
    schedule = from_function(collective, 2, halves, parts=2, scratch=1)
    Msccl().write(Trace(collective=collective, schedule=schedule), tmp_path / "two.xml")
    ends = 'srcbuf="{}" srcoff="{}" dstbuf="{}" dstoff="{}" cnt="1" depid="{}" deps="{}" hasdep='
    steps = [
        '<step s="0" type="s" ' + ends.format("i", 0, "s", 0, -1, -1) + '"0" />',
        '<step s="1" type="s" ' + ends.format("i", 1, "i", 1, -1, -1) + '"0" />',
        '<step s="0" type="r" ' + ends.format("i", 0, "s", 0, -1, -1) + '"1" />',
        '<step s="1" type="r" ' + ends.format("i", 1, "i", 1, -1, -1) + '"0" />',
        '<step s="0" type="cpy" ' + ends.format("s", 0, "i", 0, 0, 0) + '"0" />',
    ]
    expected = f"""<algo name="commsim" proto="Simple" nchannels="1" nchunksperloop="2" ngpus="2" \
coll="broadcast" inplace="1" outofplace="0" minBytes="0" maxBytes="0">
<gpu id="0" i_chunks="2" o_chunks="2" s_chunks="1">
<tb id="0" send="1" recv="-1" chan="0">
{steps[0]}
{steps[1]}
</tb>
</gpu>
<gpu id="1" i_chunks="2" o_chunks="2" s_chunks="1">
<tb id="0" send="-1" recv="0" chan="0">
{steps[2]}
{steps[3]}
</tb>
<tb id="1" send="-1" recv="-1" chan="0">
{steps[4]}
</tb>
</gpu>
</algo>"""
    text = (tmp_path / "two.xml").read_text("utf-8")
    assert [line.strip() for line in text.splitlines()] == expected.splitlines()


@pytest.mark.parametrize(
    ("file", "operation", "messages", "sent"),
    [
        ("allpairs_all_reduce_4.xml", "all_reduce", 24, 6),  # 3 chunks to each other, twice
        ("ring_all_reduce_3.xml", "all_reduce", 12, 4),  # 2 (n - 1) rounds of a chunk
        ("ring_all_gather_3.xml", "all_gather", 6, 2),  # n - 1 rounds of a chunk
    ],
)
def test_files_by_hand(file: str, operation: str, messages: int, sent: int) -> None:
    chunk, n = 400, 4 if "4" in file else 3
    trace = Msccl(nbytes=n * chunk).read(FILES / file)
    assert trace.collective == Collective(operation, n * chunk)
    verify(trace.schedule, trace.collective)
    away = trace.schedule.source != trace.schedule.destination
    assert away.sum() == messages
    assert trace.schedule.sent().tolist() == [sent * chunk] * n
    assert machine(FILES / file).computes()


def machine(path: Path, seed: int = 0) -> Machine:
    file = ElementTree.parse(path).getroot()
    return Machine(file, file.attrib["inplace"] == "1", seed)


HEAD = (
    '<algo name="hand" nchannels="2" nchunksperloop="{chunks}" proto="Simple" ngpus="2" '
    'coll="allreduce" inplace="{inside}" outofplace="{outside}">'
)


def write(
    folder: Path, *gpus: list[list[str]], chunks: int = 1, inside: int = 1, outside: int = 0
) -> Path:
    """A file of one line per step. A thread block is its attributes, then its steps: type, from,
    to, and what it waits for; every step may be waited for.
    """
    lines = [HEAD.format(chunks=chunks, inside=inside, outside=outside)]
    for i, blocks in enumerate(gpus):
        lines.append(f'<gpu id="{i}" i_chunks="{chunks}" o_chunks="{chunks}" s_chunks="1">')
        for k, (attributes, *steps) in enumerate(blocks):
            lines.append(f'<tb id="{k}" {attributes}>')
            for number, text in enumerate(steps):
                kind, source, end, *after = text.split()
                depid, deps = after or ("-1", "-1")
                lines.append(
                    f'<step s="{number}" type="{kind}" srcbuf="{source[0]}" srcoff="{source[1:]}" '
                    f'dstbuf="{end[0]}" dstoff="{end[1:]}" cnt="1" '
                    f'depid="{depid}" deps="{deps}" hasdep="1"/>'
                )
            lines.append("</tb>")
        lines.append("</gpu>")
    path = folder / "hand.xml"
    path.write_text("\n".join([*lines, "</algo>"]), "utf-8")
    return path


def test_an_exchange_lies_in_the_connections_buffers(tmp_path: Path) -> None:
    """Both send what they have and then add what comes: neither may add before it has sent."""
    gpus = [[[f'send="{1 - g}" recv="{1 - g}" chan="0"', "s i0 i0", "rrc i0 i0"]] for g in (0, 1)]
    trace = Msccl(nbytes=8).read(write(tmp_path, *gpus))
    verify(trace.schedule, trace.collective)
    ops = [(op.source, op.destination, op.reduces) for op in trace.schedule]
    assert sorted(ops) == [(0, 0, True), (0, 1, False), (1, 0, False), (1, 1, True)]
    assert trace.schedule.scratch == 2  # the file's own, and one slot


def test_the_same_file_in_and_out_of_place(tmp_path: Path) -> None:
    """Copies the input to the output first, which changes nothing where they are the same."""
    gpus = [
        [
            [f'send="{1 - g}" recv="-1" chan="0"', "s i0 s0"],
            [f'send="-1" recv="{1 - g}" chan="0"', "r i0 s0"],
            ['send="-1" recv="-1" chan="0"', "nop i-1 o-1 0 0", "re s0 o0 1 0"],
        ]
        for g in (0, 1)
    ]
    path = write(tmp_path, *gpus, outside=1)
    inside = Msccl(nbytes=8).read(path)
    verify(inside.schedule, inside.collective)
    assert [op.waits for op in inside.schedule if op.reduces] == [(0, 1), (0, 1)]
    outside = Msccl(nbytes=8, in_place=False).read(path)
    with pytest.raises(ScheduleError, match="adds another chunk"):  # to an output that is empty
        verify(outside.schedule, outside.collective)
    for gpu in gpus:
        gpu[2].insert(2, "cpy i0 o0")
    outside = Msccl(nbytes=8).read(write(tmp_path, *gpus, inside=0, outside=1))
    verify(outside.schedule, outside.collective)
    with pytest.raises(SpecError, match="found 0, 1, expected one that works in place"):
        Msccl(in_place=True).read(write(tmp_path, *gpus, inside=0, outside=1))
    with pytest.raises(SpecError, match="found 1, 0, expected one that works out of place"):
        Msccl(in_place=False).read(write(tmp_path, *gpus))


def test_a_missing_dependency_is_a_race(tmp_path: Path) -> None:
    """GPU 0 sums what comes in one thread block and sends the sum in another."""

    def gpus(dependency: str) -> list[list[list[str]]]:
        first = [
            ['send="-1" recv="1" chan="0"', "rrc i0 i0"],
            ['send="1" recv="-1" chan="0"', f"s i0 i0 {dependency}"],
        ]
        return [first, [['send="0" recv="0" chan="0"', "s i0 i0", "r i0 i0"]]]

    trace = Msccl(nbytes=8).read(write(tmp_path, *gpus("0 0")))
    verify(trace.schedule, trace.collective)
    trace = Msccl(nbytes=8).read(write(tmp_path, *gpus("")))
    with pytest.raises(ScheduleError, match="without waiting for it"):
        verify(trace.schedule, trace.collective)


def test_a_later_message_does_not_vouch_for_an_earlier_one(tmp_path: Path) -> None:
    """GPU 1 learns on channel 1 that its data were sent on channel 0, not that they are there."""

    def gpus(dependency: str) -> list[list[list[str]]]:
        first = [
            ['send="1" recv="1" chan="0"', "s i0 s0", "r s0 i0"],
            ['send="1" recv="-1" chan="1"', "s i1 i1 0 0"],
            ['send="-1" recv="1" chan="1"', "rrc i1 i1 1 0"],
        ]
        second = [
            ['send="-1" recv="0" chan="0"', "r i0 s0"],
            ['send="0" recv="0" chan="1"', "s i1 i1", f"rrc i1 i1 {dependency}"],
            ['send="0" recv="-1" chan="0"', "re s0 i0 1 1", "s i0 i0"],
        ]
        return [first, second]

    trace = Msccl(nbytes=8).read(write(tmp_path, *gpus("0 0"), chunks=2))
    verify(trace.schedule, trace.collective)
    trace = Msccl(nbytes=8).read(write(tmp_path, *gpus(""), chunks=2))
    with pytest.raises(ScheduleError, match=r"place 2 of rank 1, which op .*without waiting"):
        verify(trace.schedule, trace.collective)


def test_steps_that_wait_in_a_circle(tmp_path: Path) -> None:
    gpus = [[[f'send="{1 - g}" recv="{1 - g}" chan="0"', "r i0 i0", "s i0 i0"]] for g in (0, 1)]
    with pytest.raises(SpecError, match="lines 4, 5, 10, 11: found steps that wait for each other"):
        Msccl().read(write(tmp_path, *gpus))


GOOD = [
    [
        ['send="1" recv="1" chan="0"', "s i0 s0", "r i0 s0"],
        ['send="-1" recv="-1" chan="1"', "re s0 i0 0 1"],
    ],
    [
        ['send="0" recv="0" chan="0"', "s i0 s0", "r i0 s0"],
        ['send="-1" recv="-1" chan="1"', "re s0 i0 0 1"],
    ],
]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('ngpus="2"', 'ngpus="3"', "line 1: <algo> ngpus: found '3', expected 2, as many as"),
        ('coll="allreduce"', 'coll="sum"', "line 1: <algo> coll: found 'sum', expected one of all"),
        ('nchunksperloop="1"', "", "line 1: <algo> nchunksperloop: found None, expected 1 to"),
        ('nchunksperloop="1"', 'nchunksperloop="9999999"', "found '9999999', expected 1 to 1048"),
        ('inplace="1"', 'inplace="yes"', "<algo> inplace: found 'yes', expected 0 to 1"),
        ('coll="allreduce"', 'coll="allgather"', "found 1, expected a multiple of 2, the number"),
        ('<gpu id="1"', '<gpu id="2"', "line 11: <gpu> id: found 2, expected 1; number them"),
        ('<tb id="1" send="-1"', '<rb id="1" send="-1"', "not XML"),
        ('recv="1" chan="0"', 'recv="2" chan="0"', "line 3: <tb> recv: found '2', expected -1 to"),
        ('recv="1" chan="0"', 'recv="0" chan="0"', "line 3: <tb>: GPU 0 is its own peer"),
        ('recv="1" chan="0"', 'recv="1" chan="2"', "<tb> chan: found '2', expected 0 to 1"),
        ('recv="1" chan="0"', 'recv="-1" chan="0"', "line 5: <step> type 'r' in a <tb> with recv="),
        ('type="re"', 'type="red"', "line 8: <step> type: found 'red', expected one of cpy, nop,"),
        ('srcbuf="s"', 'srcbuf="t"', r"line 8: <step> srcbuf: found 't', expected i \(input\), o"),
        ('srcbuf="s" srcoff="0"', 'srcbuf="s" srcoff="1"', "srcoff: found '1', expected 0 to 0"),
        ('cnt="1"', 'cnt="2"', "line 4: <step> cnt: found 2, expected at most the 1 chunks of i"),
        ('cnt="1"', 'cnt=""', "line 4: <step> cnt: found '', expected 1 or more"),
        ('srcbuf="s"', 'srcbuf="i"', "line 8: <step> type 're': source and destination overlap"),
        ('depid="0"', 'depid="2"', "line 8: <step> depid: found 2, expected one of the 2 thread"),
        ('deps="1"', 'deps="2"', "line 8: <step> deps: found 2, expected one of the 2 steps of"),
        ('type="r"', 'type="nop"', "line 13: 1 sends from GPU 1 .* but 0 receives, expected"),
    ],
)
def test_every_mistake_is_named(old: str, new: str, problem: str, tmp_path: Path) -> None:
    path = write(tmp_path, *GOOD)
    trace = Msccl(nbytes=8).read(path)
    verify(trace.schedule, trace.collective)
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), "utf-8")
    with pytest.raises(SpecError, match=problem):
        Msccl().read(path)


def test_mistakes_between_steps_are_named(tmp_path: Path) -> None:
    path = write(tmp_path, *GOOD)
    text = path.read_text("utf-8")
    path.write_text(text.replace('hasdep="1"', 'hasdep="0"'), "utf-8")
    with pytest.raises(SpecError) as caught:
        Msccl().read(path)
    assert list(caught.value.problems) == [
        "hand.xml: line 5: <step> hasdep: found 0, expected 1, as line 8 waits for it; correct it",
        "hand.xml: line 14: <step> hasdep: found 0, expected 1, as line 17 waits for it; "
        "correct it",
    ]
    two = [
        [['send="1" recv="-1" chan="0"', "s i0 i0"], ['send="1" recv="-1" chan="0"', "s i0 i0"]],
        [['send="-1" recv="0" chan="0"', "r i0 i0", "r i0 i0"]],
    ]
    with pytest.raises(SpecError, match="line 4: several <tb> send from GPU 0 to GPU 1 on channel"):
        Msccl().read(write(tmp_path, *two))
    path = write(tmp_path, *GOOD, chunks=2)
    text = path.read_text("utf-8").replace('s_chunks="1"', 's_chunks="2"')
    path.write_text(text.replace('cnt="1"', 'cnt="2"', 1), "utf-8")
    with pytest.raises(SpecError, match="line 4: <step> cnt: found 2, but line 14 receives 1"):
        Msccl().read(path)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("<system/>", "line 1: found <system>, expected <algo>"),
        ("", "line 1: not XML"),
        ('<algo ngpus="2"/>', "found 0 <gpu>, expected at least 2"),
        ("<algo><gpu id='0'/><gpu id='1'/><gpu2/></algo>", "found <gpu2>, expected <gpu>"),
        ('<!DOCTYPE algo [<!ENTITY a "b">]>\n<algo>&a;</algo>', "line 1: found a document type"),
    ],
)
def test_what_is_no_such_file(text: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.xml"
    path.write_text(text, "utf-8")
    with pytest.raises(SpecError, match=problem):
        Msccl().read(path)
    with pytest.raises(SpecError, match=r"none.xml: cannot be read .*; name an existing file"):
        Msccl().read(tmp_path / "none.xml")


def test_what_msccl_cannot_express(tmp_path: Path) -> None:
    def on_its_own_side(program: Program) -> None:
        program.copy(0, 0, 1)
        program.copy(2, 0, 0, program.scratch, after=[0])  # shares rank 0 with it
        program.copy(2, 0, 2, program.scratch, after=[0])  # shares nothing with it

    collective = Collective("all_reduce", 8)
    schedule = from_function(collective, 3, on_its_own_side, scratch=1)
    with pytest.raises(ScheduleError, match=r"op 2 .* waits for op 0 .* neither of its ends knows"):
        Msccl().write(Trace(collective=collective, schedule=schedule), tmp_path / "a.xml")
    collective = Collective("all_to_all", 8)
    schedule = algorithm("pairwise").schedule(collective, 2)
    with pytest.raises(ScheduleError, match="in place"):
        Msccl(in_place=True).write(
            Trace(collective=collective, schedule=schedule), tmp_path / "a.xml"
        )


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_any_program_reads_back(data: st.DataObject, tmp_path: Path) -> None:
    """Sums up a random tree and back, on two channels, some hops by way of scratch."""
    n = data.draw(st.integers(2, 6), "ranks")
    order = data.draw(st.permutations(range(n)), "order")
    parents = [order[data.draw(st.integers(0, k), "parent")] for k in range(n - 1)]
    detours = data.draw(st.sets(st.integers(0, n - 1)), "by way of scratch")

    def tree(program: Program) -> None:
        for part in range(2):
            for child, parent in reversed(list(zip(order[1:], parents, strict=True))):
                if parent in detours:
                    program.copy(child, part, parent, program.scratch, channel=part)
                    program.reduce(parent, program.scratch, parent, part, channel=part)
                else:
                    program.reduce(child, part, parent, channel=part)
        for child, parent in zip(order[1:], parents, strict=True):
            program.copy(parent, 0, child, length=2)

    collective = Collective("all_reduce", 16)
    schedule = from_function(collective, n, tree, channels=2, parts=2, scratch=1)
    verify(schedule, collective)
    in_place = data.draw(st.booleans(), "in place")
    trace = Trace(collective=collective, schedule=schedule)
    back = through_a_file(trace, tmp_path, in_place)
    verify(back.schedule, collective)
    assert between(back.schedule) == between(schedule)
    assert machine(tmp_path / "algo.xml", data.draw(st.integers(0, 99), "seed")).computes()


def change(file: ElementTree.Element, rng: random.Random) -> None:
    """One mistake."""
    block = rng.choice([tb for tb in file.iter("tb") if len(tb)])
    step = rng.choice(list(block))
    match rng.randrange(5):
        case 0:
            step.set("depid", "-1")
        case 1:
            end = rng.choice(["srcoff", "dstoff"])
            step.set(end, str(int(step.attrib[end]) + rng.choice([-1, 1])))
        case 2:
            step.set("type", rng.choice(["s", "r", "rrc", "cpy", "re", "nop"]))
        case 3:
            end = rng.choice(["srcbuf", "dstbuf"])
            step.set(end, rng.choice("ios"))
        case _:
            other = rng.choice(list(block))
            step.attrib["s"], other.attrib["s"] = other.attrib["s"], step.attrib["s"]
            block[:] = sorted(block, key=lambda s: int(s.attrib["s"]))


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_what_is_accepted_computes_in_every_order(data: st.DataObject, tmp_path: Path) -> None:
    """A file with a mistake either does no harm, or is refused by the reader or by `verify`."""
    served = [(n, o) for n, o in SERVED if o in ON_NUMBERS]
    path = tmp_path / "algo.xml"
    if data.draw(st.booleans(), "by hand"):
        path.write_bytes(data.draw(st.sampled_from(sorted(FILES.iterdir())), "file").read_bytes())
    else:
        name, operation = data.draw(st.sampled_from(served), "algorithm")
        collective = Collective(operation, 240)
        schedule = algorithm(name).schedule(collective, data.draw(st.integers(2, 4), "ranks"))
        assume(not schedule.switches)
        in_place = False if data.draw(st.booleans(), "out of place") else None
        trace = Trace(collective=collective, schedule=schedule)
        Msccl(in_place=in_place).write(trace, path)
    rng = random.Random(data.draw(st.integers(0, 1 << 30), "mistake"))
    file = ElementTree.parse(path)
    for _ in range(rng.randrange(3)):
        change(file.getroot(), rng)
    file.write(path)
    try:
        back = Msccl(nbytes=240).read(path)
        verify(back.schedule, back.collective)
    except CommsimError:
        return
    assert all(machine(path, seed).computes() for seed in range(20))
