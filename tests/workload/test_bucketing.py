"""How many buckets gradients fill, by hand and beside the buckets themselves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from commsim.workload.bucketing import bucket_size, buckets_of, trained
from commsim.workload.buckets import torch_buckets
from commsim.workload.layout import Layout
from commsim.workload.layouts import shares
from commsim.workload.load import load_model
from commsim.workload.overlap import Parameter

LLAMA = load_model("llama3-8b")
DDP = Layout(dp=8, zero_stage=0, framework="ddp")


def sizes(name: str, layout: Layout, expert: bool = False) -> tuple[float, ...]:
    model = load_model(name)
    layer = model.stacks[0][0]
    return trained(model, layer, shares.of_layer(model, layer, layout), layout.ep, expert)


def test_a_layer_of_llama_fills_six_buckets_of_25_mib() -> None:
    """From the end: both norms with down_proj, up, gate, o, v with k (2 x 4.2 M elements of 6.6 M
    that fit), q."""
    found = sizes("llama3-8b", DDP)
    assert found == (4096**2, 4096 * 1024, 4096 * 1024, 4096**2, *(3 * [4096 * 14336]), 4096, 4096)
    assert buckets_of(found, bucket_size(DDP, first=True)) == pytest.approx(6, abs=0.2)


def test_as_many_as_torch_makes() -> None:
    layer = sizes("llama3-8b", DDP)
    parameters = [
        Parameter(name=f"{i}.{j}", shape=(round(size),))
        for i in range(32) for j, size in enumerate(layer)
    ]  # fmt: skip
    made = len(torch_buckets(parameters))
    assert 32 * buckets_of(layer, bucket_size(DDP, first=True)) == pytest.approx(made, rel=0.05)


def test_every_expert_has_tensors_of_its_own() -> None:
    """Mixtral: 8 experts of 3 matrices of 4096 x 14336; half of them on each of two ranks."""
    found = sizes("mixtral-8x7b", replace(DDP, ep=2, etp=1), expert=True)
    assert found == (4096 * 14336,) * 12
    assert buckets_of(found, bucket_size(DDP, first=True)) == pytest.approx(12)


def test_megatron_s_buckets() -> None:
    """40 M elements, or 1 M a rank; one bucket for all but the first chunk of the first stage."""
    layout = Layout(dp=8)
    assert bucket_size(layout, first=True) == 40e6
    assert bucket_size(replace(layout, dp=64, cp=2), first=True) == 128e6
    assert bucket_size(layout, first=False) == float("inf")
    assert bucket_size(replace(layout, overlap_grad_reduce=False), first=True) == float("inf")
    # 218 M elements: down and up are one each, gate too, o with v, k and q are 42 M
    assert buckets_of(sizes("llama3-8b", layout), 40e6) == pytest.approx(4, abs=0.2)


def test_frozen_parameters_are_not_exchanged() -> None:
    layer = LLAMA.stacks[0][0]
    held = shares.of_layer(LLAMA, layer, DDP)
    frozen = replace(held, trained_dense=0.0)
    assert trained(LLAMA, layer, frozen, 1, expert=False) == ()
    assert buckets_of((), 1e6) == 0
