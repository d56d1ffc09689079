"""Final rings and trees against NCCL's own, and the laws that every one of them obeys."""

from __future__ import annotations

import pytest

from commsim.libraries.nccl import rings
from commsim.libraries.nccl.communicator import communicator
from commsim.libraries.nccl.rings import TreeRank
from tests.libraries.nccl import machines
from tests.libraries.nccl.machines import COMPUTED, computed, group

V = (2, 30, 7)


@pytest.mark.parametrize("name", sorted({r["machine"] for r in computed("nccl_rings.csv")}))
def test_rings_are_nccls(name: str) -> None:
    for row in computed("nccl_rings.csv"):
        if row["machine"] == name:
            c = group(name, int(row["nodes"]))
            got = rings.rings(c, V, (int(row["channel"]),))[0]
            assert " ".join(map(str, got)) == row["order"], row


@pytest.mark.parametrize("name", sorted({r["machine"] for r in computed("nccl_trees.csv")}))
def test_trees_are_nccls(name: str) -> None:
    for row in computed("nccl_trees.csv"):
        if row["machine"] != name:
            continue
        c = group(name, int(row["nodes"]))
        assert rings.tree_depth(c) == int(row["depth"])
        found = rings.trees(c, int(row["channel"]))
        for rank, text in enumerate(row["ranks"].split()):
            up, *down = map(int, text.split(":"))
            assert found[rank] == TreeRank(up=up, down=tuple(d for d in down if d >= 0)), row


def test_nvls_trees_are_nccls() -> None:
    for row in computed("nccl_nvls.csv"):
        nodes = int(row["nodes"])
        c = group(row["machine"], nodes)
        heads = rings.nvls_heads(c)
        assert len(heads) == int(row["heads"])
        place = {rank: h for h, ranks in enumerate(heads) for rank in ranks}
        found = rings.nvls_tree(c, int(row["channel"])) if nodes > 1 else {}
        for rank, text in enumerate(row["ranks"].split()):
            head, up, *down = map(int, text.split(":"))
            assert place.get(rank, -1) == head
            expected = TreeRank(up=up, down=tuple(d for d in down if d >= 0))
            assert found.get(rank, TreeRank()) == expected


@pytest.mark.parametrize("name", sorted(COMPUTED))
@pytest.mark.parametrize("nodes", [1, 2, 3])
def test_rings_visit_every_rank_once_and_trees_hang_together(name: str, nodes: int) -> None:
    c = group(name, nodes)
    for order in rings.rings(c, V):
        assert order[0] == 0
        assert sorted(order) == list(range(c.n))
    tree = rings.trees(c, c.coll_channels - 1)
    assert sum(t.up < 0 for t in tree.values()) == 1
    for rank, place in tree.items():
        for child in place.down:
            assert tree[child].up == rank
    assert sum(len(t.down) for t in tree.values()) == c.n - 1


def test_rail_pairs_stay_on_their_rails() -> None:
    # With crossing 2 a ring leaves by the NIC beside the one it came in by; odd nodes run the twin
    # channel, so that what leaves NIC 1 of one node enters NIC 1 of the next.
    c = group("dgx_h100", 2)
    own = c.domains[0].nodes[0].ring
    assert own.nets[0] == (0, 1)
    assert own.nets[1] == (1, 0)
    assert rings.ring(c, 0, V) == (0, 7, 6, 5, 4, 3, 2, 1, 9, 10, 11, 12, 13, 14, 15, 8)


def test_nodes_of_different_size_form_one_ring() -> None:
    c = communicator(
        machines.dgx_h100(),
        domains=(((tuple(range(8)),), 2), (((0, 1, 2, 3),), 1)),
        version=(2, 27, 7),
    )
    assert (c.n, c.nodes, c.max_local_ranks, c.min_local_ranks) == (20, 3, 8, 4)
    for order in rings.rings(c, (2, 27, 7)):
        assert sorted(order) == list(range(20))
