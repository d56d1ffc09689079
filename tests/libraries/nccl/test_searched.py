"""The searches that come with the package against fresh ones, and the pruned search against a full
one.
"""

from __future__ import annotations

import json

import pytest

from commsim.libraries.nccl import searched, settings
from commsim.libraries.nccl.ceiling import Ceiling
from commsim.libraries.nccl.communicator import fresh_graphs
from commsim.topology.load import load_cluster
from tests.libraries.nccl import machines


@pytest.mark.parametrize(
    ("preset", "version", "alone"),
    [("hgx-h800", (2, 27), False), ("mi300x", (2, 27), True), ("frontier", (2, 28), True)],
)
def test_stored_graphs_are_what_a_search_finds(
    preset: str, version: tuple[int, int], alone: bool
) -> None:
    node = load_cluster(preset).node
    hosts = (tuple(range(len(node.gpus))),)
    defaults = settings.read((), version, collnet=False)
    question = (node, hosts, version, defaults, alone)
    stored = searched.recall(searched.key(*question, False))
    assert stored is not None, "run python -m validation.search_presets"
    assert stored == fresh_graphs(*question, False)


def test_graphs_survive_the_file() -> None:
    for node in (machines.dgx_a100(), machines.hgx_b200()):
        hosts = (tuple(range(8)),)
        defaults = settings.read((), (2, 30), collnet=False)
        found = fresh_graphs(node, hosts, (2, 30), defaults, False, False)
        again = json.loads(json.dumps(searched.pack(found)))
        assert searched.unpack(again) == found


def test_another_question_has_another_key() -> None:
    node = machines.dgx_a100()
    keys = {searched.key(node, hosts, v) for hosts in (1, 2) for v in ((2, 27), (2, 28))}
    assert len(keys) == 4
    assert searched.key(node, 1, (2, 27)) == searched.key(machines.dgx_a100(), 1, (2, 27))
    assert searched.recall("nothing") is None


@pytest.mark.parametrize("version", [(2, 18), (2, 21), (2, 27), (2, 30)])
@pytest.mark.parametrize("alone", [True, False])
def test_leaving_out_hopeless_walks_changes_nothing(
    version: tuple[int, int], alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    defaults = settings.read((), version, collnet=False)
    boxes = [
        machines.a100_bridges(machines.INTEL_ICELAKE, 2),
        machines.rtx4090s(),
        machines.workstation(),
        machines.h100_sxm(2),
    ]
    asked = [(n, (tuple(range(len(n.gpus))),), version, defaults, alone, False) for n in boxes]
    quick = [fresh_graphs(*question) for question in asked]
    monkeypatch.setattr(Ceiling, "hopeless", lambda *_: False)
    assert [fresh_graphs(*question) for question in asked] == quick
