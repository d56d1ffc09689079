"""`commsim names`: every name it prints is one that its readers take."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from commsim.cli.names import CATALOGUES
from commsim.collectives import catalogue
from commsim.topology import parts
from commsim.topology.load import load_cluster
from commsim.workload.load import load_model

from .conftest import Ran

Command = Callable[[str], Ran]
READERS: dict[str, Callable[[str], object]] = {
    "clusters": load_cluster, "models": load_model, "gpus": parts.gpu, "nics": parts.nic,
    "switches": parts.switch, "links": parts.link, "cpus": parts.cpu,
    "algorithms": catalogue.algorithm,
}  # fmt: skip


@pytest.mark.parametrize("name", READERS)
def test_every_name_is_taken(commsim: Command, name: str) -> None:
    ran = commsim(f"names {name}")
    assert (ran.code, ran.err) == (0, "")
    assert ran.lines == sorted(set(ran.lines))
    assert commsim(f"names {name} --json").json == ran.lines
    for each in ran.lines[:: max(1, len(ran.lines) // 12)]:
        READERS[name](each)


def test_the_catalogues_and_how_much_they_hold(commsim: Command) -> None:
    held = commsim("names --json").json
    assert list(held) == list(CATALOGUES)
    assert held["operations"] == 10
    assert [line.split()[0] for line in commsim("names").lines] == list(CATALOGUES)
    ran = commsim("names model")
    assert (ran.code, ran.out) == (2, "")
    assert "did you mean 'models'" in ran.err


MANY = {
    "predict dgx-h10 all_reduce -s 8": ("did you mean 'dgx-h100'", "commsim names clusters"),
    "step -m lama3 -c dgx-h100": ("did you mean 'llama3-", "commsim names models"),
    "predict dgx-h100 all_reduce -s 8 --set node.gpu=H100SXM6": ("", "commsim names gpus"),
    "predict dgx-h100 all_reduce -s 8 -d flaot32": ("'float32'", "commsim names dtypes"),
    "simulate dgx-h100 all_reduce -s 8 -a rign": ("'ring'", "commsim names algorithms"),
    "simulate dgx-h100 all_reduce -s 8 --nodes 4 --fail node1/nik3": (
        "did you mean 'node1/nic3'", "commsim topo",
    ),
}  # fmt: skip


def test_an_unknown_key_of_a_cluster_file(commsim: Command) -> None:
    ran = commsim("topo dgx-h100 --set zzz=1")
    assert (
        ran.err
        == "commsim: override zzz: unknown key ({} are known: commsim names keys)\n".format(
            len(commsim("names keys").lines)
        )
    )


@pytest.mark.parametrize("line", MANY)
def test_an_unknown_name_is_told_what_is_near_and_where_all_are(
    commsim: Command, line: str
) -> None:
    ran = commsim(line)
    assert (ran.code, ran.out) == (2, "")
    assert len(ran.err.splitlines()) == 1
    assert len(ran.err) < 300
    for part in MANY[line]:
        assert part in ran.err
