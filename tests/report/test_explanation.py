from __future__ import annotations

from commsim.report.explanation import _volumes, switch_points


def test_switch_points_are_found_to_the_byte() -> None:
    """Three thresholds, two of them between the same powers of two."""

    def choose(nbytes: int) -> tuple[str, str]:
        if nbytes < 1000:
            return "tree", "LL"
        if nbytes < 70_000:
            return "ring", "LL"
        if nbytes < 100_001:
            return "ring", "LL128"
        return "nvls", "Simple"

    found = switch_points(choose)
    assert [s.nbytes for s in found] == [1000, 70_000, 100_001]
    assert [(s.before, s.after) for s in found] == [
        (("tree", "LL"), ("ring", "LL")),
        (("ring", "LL"), ("ring", "LL128")),
        (("ring", "LL128"), ("nvls", "Simple")),
    ]


def test_no_switch_point() -> None:
    assert switch_points(lambda nbytes: ("ring", "Simple")) == ()


def test_volumes_of_two_nodes_of_four() -> None:
    """S = 800 bytes, 8 ranks on 2 machines of 4; worked out by hand from the algorithms."""

    def volumes(operation: str, algorithm: str) -> tuple[float, float]:
        return _volumes(operation, algorithm, 800.0, 8, 2, 4)

    # Ring: reduce-scatter and all-gather of 7 pieces of 100 bytes each.
    assert volumes("all_reduce", "ring") == (1400, 1400)
    assert volumes("all_gather", "ring") == (700, 700)
    assert volumes("broadcast", "ring") == (800, 800)
    # Tree: the buffer up and the result down; a node is the root of one tree and the leaf of the
    # other, and sends half of the buffer in each: down in the one, up in the other.
    assert volumes("all_reduce", "tree") == (1600, 800)
    # NVLS: the buffer to the switch, a quarter of the result back to it.
    assert volumes("all_reduce", "nvls_tree") == (1000, 800)
    # All-to-all: 100 bytes to 3 near peers; 4 ranks send 100 bytes to 4 far ones.
    assert volumes("all_to_all", "p2p") == (300, 1600)
    # Scatter: the root sends 100 bytes to 3 near and 4 far ranks.
    assert volumes("scatter", "p2p") == (300, 400)
    assert volumes("send_recv", "p2p") == (800, 800)


def test_volumes_of_trees_over_several_nodes() -> None:
    """Three nodes: two edges in one tree, one in the other, S/2 over each. Four: three and one."""
    assert _volumes("all_reduce", "tree", 800.0, 12, 3, 4)[1] == 1200
    assert _volumes("all_reduce", "tree", 800.0, 16, 4, 4)[1] == 1600
    assert _volumes("all_reduce", "nvls_tree", 800.0, 256, 32, 8) == (900, 1600)
