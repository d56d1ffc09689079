"""Which rank of how many this process is, from what its launcher says in the environment.

torchrun, mpiexec (MPICH, Intel MPI, Open MPI) and srun each have variables of their own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from commsim.errors import MeasureError

PORT = 29500  # torchrun's own default
# launcher: rank, size, local rank, local size
VARIABLES = (
    ("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    ("mpiexec", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("mpiexec", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One process among those of a run. address: host and port of rank 0, as torch meets there."""

    rank: int
    n_ranks: int
    local_rank: int
    address: tuple[str, int]
    launcher: str


def place(env: Mapping[str, str]) -> Place | None:
    """This process's place; None where no launcher started it. Raises MeasureError."""
    known = next((names for names in VARIABLES if names[1] in env and names[2] in env), None)
    if known is None:
        return None
    launcher, rank, size, local_rank, local_size = known
    if launcher == "srun" and "SLURM_STEP_ID" not in env:
        return None  # a batch script, which is no task of a step
    n_ranks, number = _number(env, size), _number(env, rank)
    if not 0 <= number < n_ranks:
        raise MeasureError(f"{rank}: expected a rank below {size}={n_ranks}, got {number}")
    local = _number(env, local_rank) if local_rank in env else number
    here = re.match(r"\d+", env.get(local_size, ""))
    alone = n_ranks == 1 or (here is not None and int(here[0]) == n_ranks)
    return Place(
        rank=number, n_ranks=n_ranks, local_rank=local, launcher=launcher,
        address=(_host(env, alone), _number(env, "MASTER_PORT") if "MASTER_PORT" in env else PORT),
    )  # fmt: skip


def _number(env: Mapping[str, str], name: str) -> int:
    text = env[name].strip()
    if not text.isdecimal():
        raise MeasureError(f"{name}: expected a whole number, got {text!r}")
    return int(text)


def _host(env: Mapping[str, str], alone: bool) -> str:
    """Where rank 0 is: said, of Slurm's list the first, or here; "" where nobody says."""
    if env.get("MASTER_ADDR"):
        return env["MASTER_ADDR"]
    if env.get("SLURM_STEP_NODELIST") and not alone:
        return first_host(env["SLURM_STEP_NODELIST"])
    return "127.0.0.1" if alone else ""


def first_host(names: str) -> str:
    """The first of Slurm's list of hosts: gpu03 of "gpu[03-05,9],login1"."""
    found = re.match(r"([^,\[]+)(?:\[(\w+)[^\]]*\]([^,\[]*))?", names)
    return "".join(part for part in found.groups() if part) if found else names
