"""Memory of inference, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

import commsim
from commsim.errors import UnknownNameError
from commsim.workload.layer import Attention, FeedForward, Layer
from commsim.workload.layout import Layout
from commsim.workload.model import Model
from commsim.workload.serving.memory import serving_memory

CLUSTER = commsim.load_cluster("dgx-h100", nodes=1)


def llama(attention: Attention) -> Model:
    layer = Layer(attention=attention, feed=FeedForward(width=28672, gated=True))
    return Model(name="llama", hidden=8192, vocab=128256, stacks=((layer, 80),))


GROUPED = Attention(heads=64, kv_heads=8, head_dim=128, value_dim=128)
LATENT = replace(GROUPED, kv_heads=64, kv_rank=512, rope_dim=64)


def test_llama_3_70b() -> None:
    """2 x 8 x 128 elements a token and layer, 80 layers, 2 bytes: 320 KiB a token, over 8 ranks."""
    layout = Layout(tp=8, micro_batch=16, global_batch=16, seq_len=8192)
    worst = serving_memory(llama(GROUPED), CLUSTER, layout).worst
    assert worst.cache == 16 * 8192 * 320 * 1024 / 8
    # 70.6e9 parameters, the norms on every rank
    assert worst.parameters == pytest.approx(2 * 70.55e9 / 8, rel=1e-3)
    assert worst.gradients == worst.optimizer == 0


def test_an_eight_bit_cache_takes_half() -> None:
    layout = Layout(tp=8, micro_batch=16, seq_len=8192)
    wide, narrow = (
        serving_memory(llama(GROUPED), CLUSTER, layout, dtype).worst
        for dtype in ("bfloat16", "float8")
    )
    assert narrow.cache == wide.cache / 2
    assert narrow.parameters == wide.parameters


def test_stages_keep_their_own_layers() -> None:
    layout = Layout(tp=2, pp=4, micro_batch=4, seq_len=4096)
    found = serving_memory(llama(GROUPED), CLUSTER, layout)
    assert len(found.by_stage) == 4
    assert {s.cache for s in found.by_stage} == {4 * 4096 * 320 * 1024 / 8}


def test_few_heads_are_copied_and_compressed_ones_everywhere() -> None:
    layout = Layout(tp=8, micro_batch=1, seq_len=1000)
    two = serving_memory(llama(replace(GROUPED, kv_heads=2)), CLUSTER, layout).worst
    assert two.cache == 80 * 1000 * 2 * 2 * 256 / 2
    latent = serving_memory(llama(LATENT), CLUSTER, layout).worst
    assert latent.cache == 80 * 1000 * 2 * 576


def test_a_window_bounds_the_cache() -> None:
    layout = Layout(tp=8, micro_batch=1, seq_len=100_000)
    found = serving_memory(llama(replace(GROUPED, window=4096)), CLUSTER, layout).worst
    assert found.cache == 80 * 4096 * 2 * 8 * 256 / 8


def test_an_unknown_dtype() -> None:
    with pytest.raises(UnknownNameError, match="float8"):
        serving_memory(llama(GROUPED), CLUSTER, Layout(tp=8), "fp8")
