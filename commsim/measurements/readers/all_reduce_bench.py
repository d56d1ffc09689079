"""What all_reduce_bench.py of the book "Machine Learning Engineering" prints, old form and new.

    The average bandwidth of all_reduce with a 4.0GB payload (5 trials, 4 ranks):
     algbw: 245.287 GBps (1962.3 Gbps)
     busbw: 367.931 GBps (2943.4 Gbps)

    The average bandwidth of all_reduce over 8 ranks (5 warmups / 20 trials):
    | payload |    busbw   |    algbw   |
    |     1GB | 380.52GBps | 217.44GBps |

GBps is 10^9 bytes/s. The payload is in 10^9 bytes in the old form, which takes a multiple of 10^9
bytes, and in 2^30 in the new one, which takes powers of two. Elements are float32.
Source: Bekman, github.com/stas00/ml-engineering, network/benchmarks/all_reduce_bench.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from commsim.measurements import log, names
from commsim.measurements.row import Problem, Row, duration_of

_OLD = re.compile(
    r"average bandwidth of (\w{1,30}) with a ([\d.]{1,20}) ?([KMGT]?)B payload "
    r"\(\d{1,9} trials, (\d{1,7}) ranks\)"
)
_NEW = re.compile(r"average bandwidth of (\w{1,30}) over (\d{1,7}) ranks")
_BANDWIDTH = re.compile(r"\b(algbw|busbw): {0,9}([\d.]{1,20}) ?GBps")
_TITLES = re.compile(r"\| *payload *\|(.{1,200})\|")
_ROW = re.compile(r"\| *([\d.]{1,20}) ?([KMGT]?)B *\|(.{1,200})\|")
_CELL = re.compile(r" *([\d.]{1,20}) ?GBps *")
_POWER = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def recognises(text: str) -> bool:
    return _OLD.search(text) is not None or _NEW.search(text) is not None


def read(text: str, name: str) -> Iterator[Row | Problem]:
    operation, n_ranks, nbytes, columns = "", 0, 0, []
    for i, line in log.lines(text):
        try:
            if (old := _OLD.search(line)) is not None:
                operation, n_ranks = names.operation(old[1]), int(old[4])
                nbytes = round(float(old[2]) * 1000 ** _POWER[old[3]])
            elif (new := _NEW.search(line)) is not None:
                operation, n_ranks, nbytes = names.operation(new[1]), int(new[2]), 0
            elif nbytes and (found := _BANDWIDTH.search(line)) is not None:
                yield from _row(i, operation, nbytes, n_ranks, {found[1]: float(found[2])})
                nbytes = 0  # busbw follows, and says the same
            elif (titles := _TITLES.search(line)) is not None:
                columns = [title.strip() for title in titles[1].split("|")]
            elif operation and (row := _ROW.search(line)) is not None:
                cells = [_CELL.fullmatch(cell) for cell in row[3].split("|")]
                figures = zip(columns, cells, strict=False)
                rates = {column: float(cell[1]) for column, cell in figures if cell}
                size = round(float(row[1]) * 1024 ** _POWER[row[2]])
                yield from _row(i, operation, size, n_ranks, rates)
        except ValueError as error:
            yield Problem(i, f"expected {error}")


def _row(
    line: int, operation: str, nbytes: int, n_ranks: int, rates: dict[str, float]
) -> Iterator[Row]:
    algorithm, bus = (rates.get(kind, 0.0) * 1e9 for kind in ("algbw", "busbw"))
    duration, of = duration_of(algorithm, bus, operation, nbytes, n_ranks)
    if duration:
        source = (("library", "nccl"), ("duration_from", of))
        yield Row(line, duration, operation, nbytes, n_ranks, source=source)
