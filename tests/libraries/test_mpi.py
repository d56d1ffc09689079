"""MPICH's choice: the switch points compiled into 5.0.2, and the bytes it really sent."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from commsim.collectives.collective import OPERATIONS, Collective
from commsim.cost.host_traffic import Layout, traffic
from commsim.errors import LibraryError
from commsim.libraries.host import HostFacts
from commsim.libraries.library import Choice
from commsim.libraries.mpi import Mpi, select
from commsim.topology.load import load_cluster

FLAT = {"MPIR_CVAR_NOLOCAL": "1"}


def chosen(operation: str, nbytes: int, n: int, version: str = "mpich@5.0.2") -> str:
    cluster = load_cluster("dgx-h100", nodes=4)
    collective = Collective(operation, nbytes, ranks=tuple(range(n)))
    return Mpi(version=version, env=FLAT).choose(collective, cluster).chosen.algorithm


# Last size before and first size after each switch point. Source: the JSON selection table in
# libmpi.so of MPICH 5.0.2 (avg_msg_size, total_msg_size, comm_size), and its MPIR_CVAR defaults.
@pytest.mark.parametrize(
    ("operation", "n", "before", "first", "after", "second"),
    [
        ("all_reduce", 4, 8, "recursive_doubling", 16, "rabenseifner"),
        ("all_reduce", 8, 28, "recursive_doubling", 32, "rabenseifner"),  # count < pow2: 7 of 8
        ("broadcast", 8, 12288, "binomial", 12292, "scatter_doubling"),
        ("broadcast", 8, 524288, "scatter_doubling", 524292, "scatter_ring"),
        ("broadcast", 12, 12288, "binomial", 12292, "scatter_ring"),
        ("broadcast", 7, 12288, "binomial", 1 << 26, "binomial"),
        ("reduce", 8, 2048, "binomial", 2052, "rabenseifner"),
        ("all_gather", 8, 524284, "recursive_doubling", 524288, "ring"),
        ("all_gather", 6, 81916, "bruck", 81920, "ring"),
        ("reduce_scatter", 8, 524284, "recursive_halving", 524288, "pairwise"),
        ("all_to_all", 8, 8 * 256, "bruck", 8 * 260, "scattered"),
        ("all_to_all", 4, 4 * 256, "scattered", 4 * 260, "scattered"),
        ("all_to_all", 8, 8 * 32768, "scattered", 8 * 32772, "pairwise"),
    ],
)
def test_switch_points(
    operation: str, n: int, before: int, first: str, after: int, second: str
) -> None:
    assert chosen(operation, before, n) == first
    assert chosen(operation, after, n) == second


def test_before_5_0_all_reduce_switches_at_2_kib() -> None:
    # MPIR_CVAR_ALLREDUCE_SHORT_MSG_SIZE = 2048 (README.envvar of MPICH 4.2)
    assert chosen("all_reduce", 2048, 8, "mpich@4.2") == "recursive_doubling"
    assert chosen("all_reduce", 2052, 8, "mpich@4.2") == "rabenseifner"


def counted() -> list[dict[str, str]]:
    path = Path(__file__).parents[1] / "data/mpich_5_0_2_sent.csv"
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line[0] != "#"]
    return list(csv.DictReader(lines))


@pytest.mark.parametrize("row", counted(), ids=lambda r: "-".join(list(r.values())[:3]))
def test_rank_0_sends_what_was_counted(row: dict[str, str]) -> None:
    operation, n, nbytes = row["operation"], int(row["ranks"]), int(row["bytes"])
    name, _ = select(operation, nbytes, 4, n, False, 5)
    at = Layout(n=n, hosts=n, per_host=1, near=1, crossings=1)
    moved = traffic(name, operation, nbytes, at)
    if operation == "broadcast":
        # the root only sends in the scatter (or the tree) and sends as much as it receives after
        scatter = (n - 1) / n * nbytes if name != "binomial" else moved.handled
        sent = scatter + (moved.handled - scatter) / 2
    elif operation == "reduce":
        sent = moved.handled / 3  # 3 equal parts: sent, received, gathered
    else:
        sent = moved.handled / 2
    assert sent / nbytes == pytest.approx(float(row["sent_over_size"]), rel=0.012)


def choose(operation: str, nbytes: int, nodes: int, env: dict[str, str] | None = None) -> Choice:
    cluster = load_cluster("dgx-h100", nodes=nodes)
    return Mpi(env=env or {}).choose(Collective(operation, nbytes), cluster)


def facts_of(choice: Choice) -> HostFacts:
    assert isinstance(choice.facts, HostFacts)
    return choice.facts


def test_one_machine_reduces_through_shared_memory() -> None:
    # MPIDI_Allreduce_intra_composition_gamma, allreduce_release_gather
    assert choose("all_reduce", 1 << 20, 1).chosen.algorithm == "release_gather"
    assert choose("all_reduce", 1 << 20, 1, FLAT).chosen.algorithm == "rabenseifner"


def test_several_machines_send_leaders() -> None:
    # compositions alpha and beta; a long broadcast is flat (gamma)
    assert facts_of(choose("all_reduce", 1 << 20, 4)).two_level
    assert facts_of(choose("broadcast", 12287, 4)).two_level
    assert facts_of(choose("broadcast", 524284, 4)).two_level  # 32 ranks: a power of two
    assert not facts_of(choose("broadcast", 524288, 4)).two_level
    assert not facts_of(choose("broadcast", 12288, 3)).two_level  # 24 ranks
    assert not facts_of(choose("all_gather", 1 << 20, 4)).two_level
    assert not facts_of(choose("all_reduce", 1 << 20, 4, FLAT)).two_level


def test_the_environment_forces_an_algorithm() -> None:
    env = FLAT | {"MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM": "recursive_doubling"}
    assert choose("all_reduce", 1 << 20, 4, env).chosen.algorithm == "recursive_doubling"
    env["MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM"] = "nb"
    with pytest.raises(LibraryError, match="'nb' is not modelled here; use auto or one of"):
        choose("all_reduce", 1 << 20, 4, env)


def test_every_operation_has_a_reason() -> None:
    for operation in OPERATIONS:
        for nodes in (1, 3):
            choice = choose(operation, 4096, nodes)
            assert choice.reasons[0]
            assert choice.chosen.available


@pytest.mark.parametrize("version", ["openmpi@5.0", "mpich@", "new"])
def test_other_versions_are_refused(version: str) -> None:
    with pytest.raises(LibraryError, match="expected MPICH such as"):
        Mpi(version=version)


def test_is_a_value() -> None:
    assert hash(Mpi(env={"A": "1", "B": "2"})) == hash(Mpi(env={"B": "2", "A": "1"}))
