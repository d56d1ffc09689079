from __future__ import annotations

import pytest

from commsim.report.roofline import roofline
from commsim.topology.load import load_cluster
from commsim.workload.layout import Layout
from commsim.workload.load import load_model
from commsim.workload.step import predict_step


def test_products_of_a_layer_have_the_flops_and_bytes_of_their_shapes() -> None:
    """llama3-8b, 4096 tokens, no parallelism: the output projection is 4096 x 4096 x 4096 in 16
    bit: 2 m n k = 137.4 GFLOP, 3 matrices of 33.55 MB."""
    layout = Layout(dp=8, global_batch=8, seq_len=4096, zero_stage=3, framework="fsdp")
    step = predict_step(load_model("llama3-8b"), load_cluster("dgx-h100"), layout)
    found = roofline(step)
    names = {o.name: o for o in found.operators}
    product = names["product 4096 x 4096 x 4096, forward"]
    assert product.flops == 2 * 4096**3
    assert product.nbytes == 3 * 4096 * 4096 * 2
    assert product.intensity == pytest.approx(2 * 4096**3 / (6 * 4096**2))
    assert found.sheet == pytest.approx(989.4e12, rel=1e-3)  # NVIDIA's data sheet of the H100 SXM
    assert found.memory == pytest.approx(3.35e12)
    # Nothing is above its roof.
    for o in found.operators:
        assert o.rate <= found.sheet
        assert o.rate <= o.intensity * found.memory
    # Attention: queries and keys of 32 heads of 128, half of the map: 2 x (2 x 32 x 4096^2 x 128).
    attention = names["attention 4096 x 4096, forward"]
    assert attention.flops == pytest.approx(4 * 32 * 4096**2 * 128 / 2, rel=1e-3)
