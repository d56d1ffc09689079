from __future__ import annotations

import pytest

from commsim.errors import MeasureError
from commsim.measure.rendezvous import first_host, place
from commsim.measure.run import launched

TORCHRUN = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4",
            "MASTER_ADDR": "node0", "MASTER_PORT": "1234"}  # fmt: skip
OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4",
            "OMPI_COMM_WORLD_LOCAL_RANK": "3", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}  # fmt: skip
MPICH = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
SLURM = {"SLURM_PROCID": "9", "SLURM_STEP_NUM_TASKS": "16", "SLURM_LOCALID": "1",
         "SLURM_STEP_TASKS_PER_NODE": "8(x2)", "SLURM_STEP_ID": "0",
         "SLURM_STEP_NODELIST": "gpu[03-04]"}  # fmt: skip


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        (TORCHRUN, (5, 8, 1, ("node0", 1234), "torchrun")),
        (OPEN_MPI, (3, 4, 3, ("127.0.0.1", 29500), "mpiexec")),
        (MPICH, (1, 2, 1, ("127.0.0.1", 29500), "mpiexec")),
        (SLURM, (9, 16, 1, ("gpu03", 29500), "srun")),
        (SLURM | {"MASTER_ADDR": "10.0.0.1"}, (9, 16, 1, ("10.0.0.1", 29500), "srun")),
        (MPICH | {"PMI_SIZE": "4"}, (1, 4, 1, ("", 29500), "mpiexec")),  # several machines
    ],
)
def test_each_launcher_says_who_a_process_is(env: dict[str, str], expected: tuple) -> None:  # type: ignore[type-arg]
    found = place(env)
    assert found is not None
    assert (
        found.rank, found.n_ranks, found.local_rank, found.address, found.launcher
    ) == expected  # fmt: skip


def test_no_launcher() -> None:
    assert place({"RANK": "0"}) is None  # somebody's variable, but no size
    assert place({k: v for k, v in SLURM.items() if k != "SLURM_STEP_ID"}) is None  # batch script


def test_nonsense_is_refused() -> None:
    with pytest.raises(MeasureError, match="WORLD_SIZE: expected a whole number, got 'eight'"):
        place(TORCHRUN | {"WORLD_SIZE": "eight"})
    with pytest.raises(MeasureError, match="RANK: expected a rank below WORLD_SIZE=8, got 8"):
        place(TORCHRUN | {"RANK": "8"})


def test_the_first_of_slurm_s_hosts() -> None:
    assert first_host("gpu[03-05,9],login1") == "gpu03"
    assert first_host("a1,a2") == "a1"
    assert first_host("node[1,3]-ib") == "node1-ib"


def test_ranks_are_started_here_or_by_a_launcher_not_both() -> None:
    assert launched(None, {}) is None
    assert launched(4, {}) is None
    assert launched(None, TORCHRUN) == place(TORCHRUN)
    with pytest.raises(MeasureError, match="--nproc: torchrun has started 8 ranks already"):
        launched(4, TORCHRUN)
    assert launched(4, TORCHRUN | {"WORLD_SIZE": "1", "RANK": "0"}) is None  # a shell in a job
