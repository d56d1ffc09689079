"""NCCL_ALGO, NCCL_PROTO and the rest, read as each release reads them."""

from __future__ import annotations

import pytest

from commsim.errors import LibraryError
from commsim.libraries.nccl.constants import Version
from commsim.libraries.nccl.environment import (
    AUTOMATIC,
    FUNCTIONS,
    OFF,
    ON,
    Settings,
    freeze,
    read,
)

OLD: Version = (2, 23, 4)
NEW: Version = (2, 24, 3)


def enabled(settings: Settings, operation: str = "all_reduce") -> set[str]:
    names = ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
    return {a for a in names if settings.algorithm_state(operation, a) == ON}


def protocols(settings: Settings, operation: str = "all_reduce") -> tuple[int, ...]:
    return tuple(settings.protocol_state(operation, p) for p in ("LL", "LL128", "Simple"))


def env(**variables: str) -> tuple[tuple[str, str], ...]:
    return freeze({f"NCCL_{k}": v for k, v in variables.items()})


@pytest.mark.parametrize("version", [OLD, NEW])
def test_nothing_set(version: Version) -> None:
    settings = read((), version)
    assert len(enabled(settings)) == 7
    assert protocols(settings) == (ON, AUTOMATIC, ON)
    assert settings.notes == ()


@pytest.mark.parametrize("version", [OLD, NEW])
@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Ring", {"ring"}),
        ("RING,tree", {"ring", "tree"}),
        ("NVLS,NVLSTree", {"nvls", "nvls_tree"}),
        ("CollnetDirect", {"collnet_direct"}),
        ("^Tree,PAT", {"ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree"}),
    ],
)
def test_one_list(version: Version, text: str, wanted: set[str]) -> None:
    settings = read(env(ALGO=text), version)
    for operation in FUNCTIONS:
        assert enabled(settings, operation) == wanted


@pytest.mark.parametrize("version", [OLD, NEW])
@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("LL128", (OFF, ON, OFF)),  # named: no longer automatic, so no safety rule
        ("Simple", (OFF, OFF, ON)),
        ("^LL", (OFF, ON, ON)),  # an exclusion turns LL128 on as well
        ("^LL128", (ON, OFF, ON)),
        ("LL,Simple", (ON, OFF, ON)),
    ],
)
def test_protocols(version: Version, text: str, wanted: tuple[int, ...]) -> None:
    assert protocols(read(env(PROTO=text), version)) == wanted


def test_lists_per_function_from_2_24() -> None:
    settings = read(env(ALGO="ring,collnetdirect;allreduce:tree;broadcast:^tree"), NEW)
    assert enabled(settings, "all_gather") == {"ring", "collnet_direct"}
    assert enabled(settings, "all_reduce") == {"tree"}
    assert enabled(settings, "broadcast") == {
        "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat",
    }  # fmt: skip
    only = read(env(PROTO="allreduce:ll"), NEW)
    assert protocols(only) == (ON, OFF, OFF)
    assert protocols(only, "all_gather") == (ON, AUTOMATIC, ON)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Rings", "unknown word 'Rings'"),
        ("allreduce:tree;ring", "has no function"),
        ("sum:ring", "unknown function 'sum'"),
        ("ring;allreduce:treee", "unknown word 'treee'"),
    ],
)
def test_what_2_24_refuses(text: str, message: str) -> None:
    with pytest.raises(LibraryError, match=message) as caught:
        read(env(ALGO=text), NEW)
    assert "\n" not in str(caught.value)
    assert text in str(caught.value)


def test_older_releases_ignore_unknown_words() -> None:
    assert enabled(read(env(ALGO="Rings,Tree"), OLD)) == {"tree"}
    assert enabled(read(env(ALGO="Rings"), OLD)) == set()
    assert enabled(read(env(ALGO="allreduce:ring"), OLD)) == set()
    assert "pat" not in enabled(read(env(ALGO="PAT"), (2, 22, 3)))
    assert enabled(read(env(ALGO="PAT"), OLD)) == {"pat"}


def test_numbers() -> None:
    settings = read(
        env(
            NTHREADS="256", LL128_NTHREADS="0x140", NET_OVERHEAD="1500", LL128_C2C="0",
            PAT_ENABLE="1", COLLNET_ENABLE="1", NVLS_ENABLE="0", BUFFSIZE="8388608",
            THREAD_THRESHOLDS="1 2 3 4 5 6", P2P_LL_THRESHOLD="0",
        ),
        NEW,
    )  # fmt: skip
    assert (settings.threads, settings.ll128_threads) == (256, 320)
    assert settings.net_overhead_us == 1.5
    assert (settings.ll128_c2c, settings.pat, settings.collnet, settings.nvls) == (
        False,
        1,
        True,
        0,
    )
    assert settings.buffers == (None, None, 8 << 20)
    assert settings.thread_thresholds == (1, 2, 3, 4, 5, 6)
    assert settings.p2p_ll_threshold == 0


def test_what_nccl_ignores_is_noted() -> None:
    settings = read(env(NTHREADS="many", THREAD_THRESHOLDS="1 2", IB_TIMEOUT="22"), NEW)
    assert settings.threads is None
    assert settings.thread_thresholds is None
    told = "\n".join(settings.notes)
    for name in ("NCCL_NTHREADS='many'", "NCCL_THREAD_THRESHOLDS='1 2'", "NCCL_IB_TIMEOUT"):
        assert name in told


def test_freeze_sorts_and_takes_every_form() -> None:
    assert freeze({"B": "1", "A": "2"}) == (("A", "2"), ("B", "1"))
    assert freeze((("B", "1"), ("A", "2"))) == (("A", "2"), ("B", "1"))
    assert freeze(None) == ()
