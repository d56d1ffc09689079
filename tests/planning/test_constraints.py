"""What a user may say of the layouts that she wants, and what is left of the space then."""

from __future__ import annotations

from typing import Any

import pytest

import commsim
from commsim.errors import CommsimError, PlanError
from commsim.planning.constraints import excluded, fixed
from commsim.planning.space import PP_BEFORE_DP, Space, layouts


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["tp=4,8"], {"tp": (4, 8)}),
        (["tp=4,8,pp=16"], {"tp": (4, 8), "pp": (16,)}),
        (["tp=8", "tp=4"], {"tp": (8, 4)}),
        (["zero=1,mb=2,v=4"], {"zero_stage": (1,), "micro_batch": (2,), "interleave": (4,)}),
        (["zero3, tp=8"], {"zero_stage": (3,), "tp": (8,)}),
        (["micro_batch=1..4"], {"micro_batch": (1, 2, 3, 4)}),
        (["hsdp=none,8"], {"hsdp": (None, 8)}),
        (["recompute=none,full"], {"recompute": ("none", "full")}),
        (["sequence_parallel=false"], {"sequence_parallel": (False,)}),
        (["order=pp-before-dp"], {"order": (PP_BEFORE_DP,)}),
    ],
)
def test_what_is_fixed(texts: list[str], expected: dict[str, Any]) -> None:
    assert fixed(texts) == expected


@pytest.mark.parametrize(
    ("texts", "held", "without"),
    [
        (["zero3"], {}, {"zero_stage": (3,)}),
        (["zero2,zero3"], {}, {"zero_stage": (2, 3)}),
        (["cp,ep"], {"cp": (1,), "ep": (1,)}, {}),
        (["hsdp", "interleave"], {"hsdp": (None,), "interleave": (1,)}, {}),
        (["recompute:full,gpipe"], {}, {"recompute": ("full",), "schedule": ("gpipe",)}),
        (["tp-overlap"], {}, {"tp_comm_overlap": (True,)}),
        (["tp=1,2,pp-before-dp"], {}, {"tp": (1, 2), "order": (PP_BEFORE_DP,)}),
    ],
)
def test_what_is_excluded(texts: list[str], held: dict[str, Any], without: dict[str, Any]) -> None:
    assert excluded(texts) == (held, without)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tq=4", "unknown dimension of a layout 'tq'; did you mean 'tp'"),
        ("nothing", "unknown dimension of a layout 'nothing'"),
        ("tp=", "expected KEY=VALUE such as tp=4,8, got 'tp='"),
        ("tp=9..1", r"tp: expected a range such as 1\.\.8"),
        ("seq_len=5", "unknown dimension of a layout 'seq_len'"),
    ],
)
def test_what_cannot_be_read(text: str, message: str) -> None:
    for read in (fixed, excluded):
        with pytest.raises(CommsimError, match=message) as caught:
            read([text])
        assert len(str(caught.value).splitlines()) == 1
    with pytest.raises(PlanError, match="--fix: expected KEY=VALUE"):
        fixed(["tp"])


@pytest.mark.parametrize(
    ("only", "without"),
    [
        ({}, {"zero_stage": (1,)}),
        ({"dp": (4, 8)}, {}),
        ({}, {"dp": (16,), "recompute": ("full",)}),
        ({"tp": (1, 2, 4)}, {"tp": (2,), "micro_batch": (1,)}),
        ({}, {"overlap_grad_reduce": (False,), "tp_comm_overlap": (True,)}),
        ({}, {"order": (PP_BEFORE_DP,)}),
    ],
)
def test_the_space_is_all_of_it_less_what_is_kept_out(
    only: dict[str, Any], without: dict[str, Any], model: commsim.Model, cluster: commsim.Cluster
) -> None:
    asked = {"model": model, "cluster": cluster, "global_batch": 16, "seq_len": 1024}
    every = list(layouts(Space(**asked)))
    found = list(layouts(Space(**asked, only=only, without=without)))
    wanted = [
        one
        for one in every
        if all(getattr(one, name) in values for name, values in only.items())
        and not any(
            getattr(one, name) in values
            and not (name.startswith("overlap") and one.dp * one.cp == 1)
            for name, values in without.items()
        )
    ]
    assert found
    assert len(found) < len(every)
    assert set(found) == set(wanted)


def test_what_is_held_and_excluded_at_once_is_refused(
    model: commsim.Model, cluster: commsim.Cluster
) -> None:
    with pytest.raises(PlanError, match="tp: held to 2, 4, and all of that is excluded"):
        commsim.plan(
            model, cluster, global_batch=16, seq_len=1024, only={"tp": (2, 4)},
            without={"tp": (2, 4)},
        )  # fmt: skip
    with pytest.raises(PlanError, match="zero_stage: expected values such as 1, got 4"):
        commsim.plan(model, cluster, global_batch=16, seq_len=1024, without={"zero_stage": (4,)})
