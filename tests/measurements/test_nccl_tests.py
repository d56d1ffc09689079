"""Tables typed here in the format's style; the figures are made up."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest

import commsim
from commsim.errors import SpecError
from commsim.measurements.measurement import Measurement
from commsim.measurements.reading import read_measurements

RANKS = """\
#  Rank  0 Group  0 Pid   11 on    left device  0 [0x07] Some GPU
#  Rank  1 Group  0 Pid   12 on    left device  1 [0x0f] Some GPU
#  Rank  2 Group  0 Pid   21 on   right device  0 [0x07] Some GPU
#  Rank  3 Group  0 Pid   22 on   right device  1 [0x0f] Some GPU
"""
HEADER = """\
#                                             out-of-place                       in-place
#  size  count   type   redop    root     time   algbw   busbw #wrong    time  algbw  busbw #wrong
#   (B)  (elements)                       (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""
ROW = " 2000 500 float     sum      -1    10.00    0.20    0.30      0    20   0.10   0.15    N/A\n"
NEW = f"# Collective test starting: all_reduce_perf\n{RANKS}{HEADER}{ROW}"


def read(folder: Path, text: str, name: str = "run.log", **given: object) -> list[Measurement]:
    path = folder / name
    path.write_text(text, encoding="utf-8", newline="")
    return list(read_measurements(path, **given))  # type: ignore[arg-type]


def test_out_of_place_and_in_place(tmp_path: Path) -> None:
    out, within = read(tmp_path, NEW)
    assert (out.duration, within.duration) == pytest.approx((10e-6, 20e-6))
    assert (out.in_place, within.in_place) == (False, True)
    assert (out.wrong, within.wrong) == (0, None)
    assert (out.n_ranks, out.nodes) == (4, 2)
    assert out.collective == commsim.Collective("all_reduce", 2000)
    assert out.bus_bandwidth == pytest.approx(0.3e9)
    kept = dict(out.provenance)
    assert (kept["format"], kept["line"]) == ("nccl_tests", "9")


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "".join(f"[1,0]<stdout>:{line}\n" for line in text.splitlines()),
        lambda text: "".join(f"0: {line}\n" for line in text.splitlines()),
        lambda text: "".join(f"\x1b[32m{line}\x1b[0m\n" for line in text.splitlines()),
        lambda text: text.replace("\n", "\nleft:11:15 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1]\n"),
        lambda text: text.replace("      -1  ", "      -1left:1:2 [0] NCCL INFO comm 0x1\n  "),
        lambda text: text.rstrip("\n"),
    ],
    ids=["crlf", "mpi", "slurm", "colours", "debug", "debug within", "no last line end"],
)
def test_what_a_launcher_adds_changes_nothing(tmp_path: Path, change) -> None:  # type: ignore[no-untyped-def]
    def told(found: list[Measurement]) -> list[tuple[object, ...]]:
        return [(m.collective, m.duration, m.n_ranks, m.nodes, m.in_place, m.wrong) for m in found]

    assert told(read(tmp_path, change(NEW))) == told(read(tmp_path, NEW))


def test_version_2_0_has_no_root(tmp_path: Path) -> None:
    text = f"""\
$ ./build/reduce_scatter_perf -b 800 -e 800 -g 4
# nThread 1 nGpus 4 minBytes 800 maxBytes 800 step: 2(factor) warmup iters: 5 iters: 20
{RANKS.replace("Group  0 ", "")}#
#       size  count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)  (elements)               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
         800     50    half     max     4       0.20    0.15  1e-07     5.0     0.16    0.12  0e+00
"""
    out, within = read(tmp_path, text)
    assert out.collective == commsim.Collective("reduce_scatter", 800, "float16", reduce_op="max")
    assert (out.duration, within.duration) == pytest.approx((4e-6, 5e-6))
    assert out.wrong is None  # an error is no count


def test_version_1_is_in_milliseconds(tmp_path: Path) -> None:
    text = f"""\
{RANKS.replace("Group  0 Pid   ", "")}
#                                   out-of-place                    in-place
#      bytes         N    type  op   time  algbw  busbw    res     time  algbw  busbw    res
     10000000  2500000   float sum  1.000  10.00  15.00  2e-07    2.000   5.00   7.50  2e-07
"""
    out, within = read(tmp_path, text)  # busbw exceeds algbw: an all_reduce
    assert out.collective.operation == "all_reduce"
    assert (out.duration, within.duration) == pytest.approx((1e-3, 2e-3))


def test_a_column_that_is_not_there(tmp_path: Path) -> None:
    one = HEADER.replace("    time  algbw  busbw #wrong", "")
    one = one.replace("in-place", "")
    text = f"# 2 nodes, 4 ranks\n{one} 3000 750 float sum -1 N/A N/A 1.5 N/A\n"
    (found,) = read(tmp_path, text, "all_reduce.txt")
    # busbw 1.5 GB/s of 4 ranks is algbw 1 GB/s: 3000 B in 3 us
    assert found.duration == pytest.approx(3e-6)
    assert ("duration_from", "busbw") in found.provenance
    assert (found.n_ranks, found.nodes) == (4, 2)
    with pytest.raises(SpecError, match=r"all_reduce.txt:4: expected the number of ranks in the"):
        read(tmp_path, text.partition("\n")[2], "all_reduce.txt")


def test_several_operations(tmp_path: Path) -> None:
    gather = NEW.replace("all_reduce", "all_gather").replace(" sum ", "none ")
    few = "".join(RANKS.splitlines(keepends=True)[:2])
    second = gather.replace(RANKS, few).replace("500 ", "250 ")
    found = read(tmp_path, NEW + "# Collective test concluded: all_reduce_perf\n" + second)
    assert [m.collective.operation for m in found] == ["all_reduce"] * 2 + ["all_gather"] * 2
    assert [(m.n_ranks, m.nodes) for m in found] == [(4, 2)] * 2 + [(2, 1)] * 2


def test_rccl_and_a_root(tmp_path: Path) -> None:
    text = NEW.replace("all_reduce", "broadcast").replace("sum      -1", "none      2")
    first = read(tmp_path, "RCCL version : 2.22.3-HEAD:abc\n" + text)[0]
    assert (first.collective.operation, first.collective.root) == ("broadcast", 2)
    assert ("library", "rccl") in first.provenance
    assert ("library_version", "2.22.3-HEAD") in first.provenance


def test_the_only_number_of_ranks_that_fits(tmp_path: Path) -> None:
    bare = (
        HEADER + " 1000000000 250000000 float sum -1 10000 100.00 175.00 0 10000 100.00 175.00 0\n"
    )
    assert read(tmp_path, bare)[0].n_ranks == 8  # 2 (8 - 1) / 8 = 1.75
    counted = HEADER + " 8000 500 float none -1 10 0.80 0.60 0 10 0.80 0.60 0\n"
    assert read(tmp_path, counted, "all-gather.log")[0].n_ranks == 4  # 8000 / (500 * 4)


def test_fewer_ranks_than_the_cluster(tmp_path: Path) -> None:
    cluster = commsim.load_cluster("dgx-h100", nodes=2)
    first = read(tmp_path, NEW, cluster=cluster)[0]
    assert first.collective.ranks == (0, 1, 8, 9)
    with pytest.raises(SpecError, match=r"run.log:9: expected a cluster of 4 ranks on 2 nodes"):
        read(tmp_path, NEW, cluster=commsim.load_cluster("dgx-h100", nodes=1))


def test_the_cluster_says_what_the_file_does_not(tmp_path: Path) -> None:
    bare = HEADER + ROW
    cluster = commsim.load_cluster("dgx-h100", nodes=2)
    first = read(tmp_path, bare, "alltoall.log", cluster=cluster)[0]
    assert (first.n_ranks, first.nodes, first.collective.ranks) == (16, 2, None)
    with pytest.raises(SpecError, match=r"broadcast.log:4: expected the number of ranks"):
        read(tmp_path, bare, "broadcast.log")
    with pytest.raises(SpecError, match=r"run.log:4: expected the operation"):
        read(tmp_path, bare.replace("0.30 ", "0.20 ").replace("0.15 ", "0.10 "), cluster=cluster)


def test_a_log_that_ends_within_a_row(tmp_path: Path) -> None:
    whole = read(tmp_path, NEW + ROW)
    cut = read(tmp_path, NEW + ROW[: ROW.index("0.10")])
    assert len(cut) == len(whole) - 1  # the in-place half has no bandwidth yet


@pytest.mark.parametrize("figure", ["abc", "-5", "nan", "inf"])
def test_a_figure_that_is_none(tmp_path: Path, figure: str) -> None:
    with pytest.raises(SpecError, match=rf"run.log:9: expected a number.* got '{figure}'"):
        read(tmp_path, NEW.replace("10.00", figure))


def interleaved(form: str) -> str:
    """Two benchmarks of one Slurm job, each line by line with the other's."""
    other = NEW.replace("all_reduce", "all_gather").replace("10.00", "30.00")
    both = zip(NEW.splitlines(), other.splitlines(), strict=True)
    return "".join(f"{form.format(0)}{a}\n{form.format(1)}{b}\n" for a, b in both)


@pytest.mark.parametrize("form", ["{}: ", "[1,{}]<stdout>:", "[pod/all-{}/mpi] "])
def test_two_at_once_are_told_apart_by_their_labels(tmp_path: Path, form: str) -> None:
    found = [m for m in read(tmp_path, interleaved(form)) if not m.in_place]
    assert {(m.collective.operation, round(m.duration * 1e6)) for m in found} == {
        ("all_reduce", 10), ("all_gather", 30)
    }  # fmt: skip
    assert {(m.n_ranks, m.nodes) for m in found} == {(4, 2)}


def test_two_at_once_without_labels_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"run\.log:14: .* got all_reduce and all_gather mixed"):
        read(tmp_path, interleaved(""))
    late = f"{NEW}# Collective test starting: all_gather_perf\n{ROW}{HEADER}{ROW}{ROW}"
    with pytest.raises(SpecError, match="mixed"):
        read(tmp_path, late)
    # a benchmark that fell before its table is no such case
    fell = f"# Collective test starting: all_gather_perf\nno memory\n{NEW}"
    assert {m.collective.operation for m in read(tmp_path, fell)} == {"all_reduce"}


@pytest.mark.parametrize(
    "pack",
    [gzip.compress, bz2.compress, lzma.compress, lambda raw: raw.decode().encode("utf-16"),
     lambda raw: raw.decode().encode("utf-16-le"), lambda raw: raw.decode().encode("utf-16-be")],
)  # fmt: skip
def test_packed_and_encoded(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "all_reduce"
    path.write_bytes(pack(NEW.encode()))
    assert [m.duration for m in read_measurements(path)] == pytest.approx([10e-6, 20e-6])


def test_packed_and_cut_off(tmp_path: Path) -> None:
    for pack in (gzip.compress, bz2.compress, lzma.compress):
        path = tmp_path / "cut.gz"
        path.write_bytes(pack(NEW.encode())[:60])
        with pytest.raises(SpecError, match=r"cut\.gz: expected a file that can be read, got: "):
            read_measurements(path)
