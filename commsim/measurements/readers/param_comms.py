"""The tables of PARAM's comms benchmark; the median (p50) is the duration.

    COMMS-RES-all_reduce-float32   size (B)   nElementsPerRank   Latency(us):p50   p75   p95 ...
    COMMS-RES-all_reduce-float32   1048576              262144             41.2   42.0  43.1 ...

Older versions have no operation in the tag: it is then the one of "--collective" in the log. The
ranks are the world size that the log names. Source: github.com/facebookresearch/param, comms.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from commsim.measurements import log, names
from commsim.measurements.row import Problem, Row, number

_LINE = re.compile(r"\bCOMMS-RES(?:-([a-z_]{1,40})-(\w{1,20}))?\S{0,80}\s+(\S.*)")
_TITLE = re.compile(r"(?:total-)?size ?\(B\)|Latency ?\(us\): ?p50|[^\s|]+")
_COLLECTIVE = re.compile(r"collective['\"]?[ =:]{1,3}['\"]?([a-z_]{3,40})")


def recognises(text: str) -> bool:
    return _LINE.search(text) is not None


def read(text: str, name: str) -> Iterator[Row | Problem]:
    n_ranks = log.processes(text)
    named = _COLLECTIVE.search(text)
    size, median = None, None
    for i, line in log.lines(text):
        found = _LINE.search(line)
        if found is None:
            continue
        titles = _TITLE.findall(found[3])
        if any("p50" in title for title in titles):
            size = next((k for k, title in enumerate(titles) if "size" in title), None)
            median = next(k for k, title in enumerate(titles) if "p50" in title)
            continue
        cells = found[3].replace("|", " ").split()
        if size is None or median is None or len(cells) <= max(size, median):
            continue
        try:
            word = found[1] or (named and named[1]) or names.operation_in(name) or ""
            operation, time = names.operation(word), number(cells[median])
            if not cells[size].isdecimal() or len(cells[size]) > 19:
                raise ValueError(f"a size in bytes, got {cells[size][:40]!r}")
            dtype = names.dtype(found[2]) if found[2] else "float32"
            if time:
                yield Row(
                    i, time * 1e-6, operation, int(cells[size]), n_ranks, dtype=dtype,
                    source=(("statistic", "p50"),),
                )  # fmt: skip
        except ValueError as error:
            yield Problem(i, f"expected {error}")
