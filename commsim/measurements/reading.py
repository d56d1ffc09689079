"""From the files of benchmarks to measurements: the format is found by what is in a file.

Formats are the modules of `readers/`: a new one is one new file there, and no list to edit.
"""

from __future__ import annotations

import gc
import importlib
import os
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import commsim.measurements.readers as here
from commsim.collectives.collective import Collective
from commsim.errors import CommsimError, SpecError
from commsim.libraries.library import Library
from commsim.libraries.lookup import library as find_library
from commsim.measurements.files import text_of
from commsim.measurements.measurement import Measurement, Provenance
from commsim.measurements.row import Problem, Row
from commsim.topology.cluster import Cluster
from commsim.topology.hosts import loopback

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
_SHOWN = 20  # problems of one file that are listed


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """One format: the two functions of its module."""

    name: str
    recognises: Callable[[str], bool]
    read: Callable[[str, str], Iterator[Row | Problem]]


def read_measurements(
    paths: Paths, cluster: Cluster | None = None, library: Library | None = None
) -> tuple[Measurement, ...]:
    """Every measurement in a file, in several, or in a folder, in their order.

    A row with an out-of-place and an in-place time gives two. `cluster` is what they ran on: a file
    that tells of fewer ranks ran on the first of each of its nodes. It is needed where a file does
    not say how many ranks there were. In a folder, files of no known format are passed over.
    Raises SpecError, a line for each problem: file, line, what was expected, what was found.
    """
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    found: list[Measurement] = []
    problems: list[str] = []
    with _no_collection():
        for path in map(Path, given):
            try:
                if path.is_dir():
                    found += _folder(path, cluster, library)
                else:
                    found += _file(path, text_of(path), cluster, library)
            except SpecError as error:
                problems += error.problems
    if problems:
        raise SpecError(problems)
    return tuple(found)


@contextmanager
def _no_collection() -> Iterator[None]:
    """No search for garbage in circles meanwhile: none arises, yet it takes 40 % of the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@lru_cache
def readers() -> tuple[Reader, ...]:
    """Every format, by the name of its module."""
    found = []
    for name in sorted(module.name for module in pkgutil.iter_modules(here.__path__)):
        module = importlib.import_module(f"{here.__name__}.{name}")
        found.append(Reader(name=name, recognises=module.recognises, read=module.read))
    return tuple(found)


def _folder(path: Path, cluster: Cluster | None, library: Library | None) -> list[Measurement]:
    files = sorted(p for p in path.rglob("*") if p.is_file() and not p.name.startswith("."))
    texts = ((p, text_of(p)) for p in files)
    found: list[Measurement] = []
    problems: list[str] = []
    for file, text in texts:
        if any(reader.recognises(text) for reader in readers()):
            try:
                found += _file(file, text, cluster, library)
            except SpecError as error:
                problems += error.problems
    if problems:
        raise SpecError(problems)
    if not found:
        raise SpecError([f"{path}: expected files with measurements, got {len(files)} without"])
    return found


def _file(
    path: Path, text: str, cluster: Cluster | None, library: Library | None
) -> list[Measurement]:
    reader = next((reader for reader in readers() if reader.recognises(text)), None)
    if reader is None:
        known = ", ".join(reader.name for reader in readers())
        start = text.lstrip().partition("\n")[0][:40]
        raise SpecError([f"{path}:1: expected measurements ({known}), got {start!r}"])
    maker = _Maker(path, reader.name, cluster, library)
    found: list[Measurement] = []
    problems: list[str] = []
    for row in reader.read(text, path.name):
        try:
            if isinstance(row, Problem):
                problems.append(f"{path}:{row.line}: {row.message}")
            else:
                found.append(maker.measurement(row))
        except CommsimError as error:
            problems.append(f"{path}:{row.line}: {error}")
    if len(problems) > _SHOWN:
        problems[_SHOWN:] = [f"{path}: and {len(problems) - _SHOWN} more"]
    if not problems and not found:
        problems = [f"{path}:1: expected rows with a time or a bandwidth ({reader.name}), got none"]
    if problems:
        raise SpecError(problems)
    return found


class _Maker:
    """Measurements from the rows of one file; what is equal in many rows is made once."""

    def __init__(
        self, path: Path, form: str, cluster: Cluster | None, library: Library | None
    ) -> None:
        self.head = (("file", str(path)), ("format", form))
        self.place: tuple[int, Provenance] = (0, ())  # the last row's, often the next one's too
        self.provenance: Provenance = ()
        self.cluster = cluster
        self.library = library
        self.known: dict[tuple[object, ...], tuple[Collective, int, int | None]] = {}
        self.groups: dict[tuple[int, int | None], tuple[int, ...] | None] = {}

    def measurement(self, row: Row) -> Measurement:
        known = self.known.get(asked := row.asked)
        if known is None:
            known = self.known[asked] = self.collective(row)
        collective, n_ranks, nodes = known
        place = row.line, row.source
        if place != self.place:
            self.place = place
            self.provenance = (*self.head, ("line", str(row.line)), *row.source)
        cluster, library = self.home(row)
        return Measurement(
            collective,
            duration=row.duration,
            cluster=cluster,
            library=library,
            n_ranks=n_ranks,
            nodes=nodes,
            in_place=row.in_place,
            wrong=row.wrong,
            provenance=self.provenance,
            samples=row.samples,
        )

    def home(self, row: Row) -> tuple[Cluster | None, Library | None]:
        """What it ran on: as the caller says, else as the file does."""
        cluster, library = self.cluster, self.library
        if library is None and row.library:
            library = _library(row.library)
        if cluster is None and row.local:
            cluster = loopback(row.local, row.library.partition("@")[0])
        return cluster, library

    def collective(self, row: Row) -> tuple[Collective, int, int | None]:
        """What was asked, of how many ranks, on how many nodes."""
        n_ranks = row.n_ranks or (0 if self.cluster is None else self.cluster.n_ranks)
        if n_ranks < 2:
            raise SpecError([_few(n_ranks)])
        collective = Collective(
            row.operation,
            row.nbytes * n_ranks if row.per_rank else row.nbytes,
            row.dtype,
            ranks=row.ranks or self.group(n_ranks, row.nodes),
            root=row.root,
            reduce_op=row.reduce_op,
        )
        if row.nodes is None and self.cluster is not None and collective.ranks is None:
            return collective, n_ranks, self.cluster.nodes
        return collective, n_ranks, row.nodes

    def group(self, n_ranks: int, nodes: int | None) -> tuple[int, ...] | None:
        """The ranks of the cluster that took part; None for all of them."""
        key = n_ranks, nodes
        if key not in self.groups:
            self.groups[key] = _group(n_ranks, nodes, self.cluster)
        return self.groups[key]


@lru_cache(maxsize=64)
def _library(text: str) -> Library | None:
    """The library of that name; None if there is no model of that version."""
    try:
        return find_library(text)
    except CommsimError:
        return None


def _few(n_ranks: int) -> str:
    if n_ranks == 1:
        return "expected 2 ranks or more, got 1 (was the benchmark built without MPI?)"
    return "expected the number of ranks, which the file does not say; pass cluster="


def _group(n_ranks: int, nodes: int | None, cluster: Cluster | None) -> tuple[int, ...] | None:
    if cluster is None or (n_ranks == cluster.n_ranks and nodes in (None, cluster.nodes)):
        return None
    if n_ranks > cluster.n_ranks or (nodes or 1) > cluster.nodes:
        on = "" if nodes is None else f" on {nodes} nodes"
        raise SpecError(
            [
                f"expected a cluster of {n_ranks} ranks{on} or more, got {cluster.name} with "
                f"{cluster.n_ranks} on {cluster.nodes}"
            ]
        )
    each, left = divmod(n_ranks, nodes or 1)
    if nodes is None or left or each > cluster.gpus_per_node:
        return tuple(range(n_ranks))
    return tuple(node * cluster.gpus_per_node + k for node in range(nodes) for k in range(each))
