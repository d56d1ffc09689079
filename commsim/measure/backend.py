"""The contract of a backend: how one rank's process reaches the others, and calls the operations.

One file each in `backends/`: a function `join(place, timeout)` that returns its Backend.
"""

from __future__ import annotations

import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import commsim.measure.backends as here
from commsim.errors import MeasureError
from commsim.measure.device import Device
from commsim.measure.rendezvous import Place
from commsim.units import Seconds

# Starts an operation: awaited, it is done (or in the stream) on return, and gives None; else it
# gives what waits for it.
Issue = Callable[[bool], Callable[[], None] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One operation as one rank calls it: buffers of its device (None: it has none), `position`
    and `root` in the group, `ranks` of all."""

    operation: str
    reduce_op: str
    dtype: str
    ranks: tuple[int, ...]
    position: int
    root: int | None
    send: Any
    receive: Any
    in_place: bool


class Backend(ABC):
    """A library that is connected to the other ranks. What all ranks call, they call together."""

    name: str
    rank: int
    n_ranks: int
    device: Device

    @abstractmethod
    def group(self, ranks: tuple[int, ...]) -> Any:
        """A new communicator of these ranks (None on the others); all ranks call it."""

    @abstractmethod
    def bind(self, asked: Asked, group: Any) -> Issue:
        """The operation made ready, so that a call does nothing but start it.

        group: that of `asked.ranks`, of a send_recv that of all ranks.
        """

    @abstractmethod
    def gather(self, value: object) -> list[Any]:
        """Every rank's value on rank 0, in order; [] on the others."""

    @abstractmethod
    def everyone(self, value: object) -> list[Any]:
        """Every rank's value on every rank, in order."""

    @abstractmethod
    def share(self, value: Seconds) -> Seconds:
        """Rank 0's value on every rank; as fast as it can be."""

    @abstractmethod
    def tell(self, value: Seconds, rank: int) -> None:
        """Sends one number to `rank`, which hears it."""

    @abstractmethod
    def hear(self, rank: int) -> Seconds:
        """The number that `rank` tells."""

    @abstractmethod
    def versions(self) -> dict[str, str]:
        """The library and what it is built on; the first is the library itself."""

    @abstractmethod
    def close(self) -> None:
        """Takes leave of the other ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offers:
    """What a backend can do: known before it runs.

    forms: for each operation whether in place, out of place (True: in place). reduces: dtypes it
    adds up. reduce_ops: how. moves: dtypes it moves; others travel as bytes.
    """

    forms: dict[str, tuple[bool, ...]]
    reduces: frozenset[str]
    reduce_ops: frozenset[str]
    packages: tuple[str, ...]
    install: str


BACKENDS = tuple(sorted(m.name for m in pkgutil.iter_modules(here.__path__)))


def offers(name: str) -> Offers:
    """What the backend of that name can do; loads neither torch nor mpi4py."""
    found: Offers = importlib.import_module(f"{here.__name__}.{name}").OFFERS
    return found


def join(name: str, place: Place, timeout: Seconds) -> Backend:
    """This process as a rank of that backend; raises MeasureError."""
    try:
        module = importlib.import_module(f"{here.__name__}.{name}")
        backend: Backend = module.join(place, timeout)
    except ImportError as error:
        raise MeasureError(missing(name, str(error))) from None
    return backend


def missing(name: str, why: str) -> str:
    """What to do about a package that is not there."""
    return f"--backend {name}: {why}; {offers(name).install}"
