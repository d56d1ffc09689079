"""Convolutions and dense layers as matrix products, against shapes worked out by hand."""

from __future__ import annotations

import pytest

import commsim
from commsim.topology.load import load_cluster
from commsim.workload import operations
from commsim.workload.compute import Device, product_seconds
from commsim.workload.layer import Tensor
from commsim.workload.layout import Layout
from commsim.workload.listed import listed, of_part
from commsim.workload.operations import Matmul
from commsim.workload.parts import Part

# 3 x 3, from 64 to 128 channels, on 56 x 56 pixels
PIXELS = 56 * 56
CONVOLUTION = Part(
    name="conv",
    tensors=(Tensor(name="weight", shape=(128, 64, 3, 3)),),
    flops=2.0 * PIXELS * 128 * 64 * 9,
    moved=(64 + 128) * PIXELS,
)


def test_a_convolution_is_an_implicit_product() -> None:
    (product,) = of_part(CONVOLUTION, 2, 2).matmuls
    assert (product.m, product.n, product.k) == (2 * PIXELS, 128, 576)
    assert product.flops == 2 * CONVOLUTION.flops
    assert product.elements == 2 * 192 * PIXELS + 128 * 64 * 9  # the weight once a batch


def test_its_gradients_sum_over_the_other_side() -> None:
    of_input, of_weight = operations.backward(of_part(CONVOLUTION, 2, 2)).matmuls
    assert (of_input.m, of_input.n, of_input.k) == (2 * PIXELS, 64, 128 * 9)
    assert (of_weight.m, of_weight.n, of_weight.k) == (576, 128, 2 * PIXELS)
    assert of_input.flops == of_weight.flops == 2 * CONVOLUTION.flops


def test_three_channels_are_padded_to_eight_and_the_image_needs_no_gradient() -> None:
    work = listed(commsim.load_model("resnet-50"), Layout(framework="ddp", micro_batch=4))
    first = work.matmuls[0]
    assert (first.m, first.n, first.k) == (4 * 112 * 112, 64, 8 * 49)
    assert len(operations.backward(work).matmuls) == 2 * len(work.matmuls) - 1


def test_a_dense_layer_is_a_product_of_its_batch() -> None:
    dense = Part(
        name="fc",
        tensors=(Tensor(name="weight", shape=(1000, 2048)), Tensor(name="bias", shape=(1000,))),
        flops=2.0 * 2048 * 1000,
        moved=3048,
    )
    (product,) = of_part(dense, 32, 2).matmuls
    assert (product.m, product.n, product.k) == (32, 1000, 2048)


def test_what_multiplies_nothing_is_traffic() -> None:
    work = of_part(Part(name="relu", moved=100), 8, 4)
    assert (work.matmuls, work.moved) == ((), 8 * 100 * 4)


def test_a_long_inner_sum_is_cut_to_fill_the_gpu() -> None:
    # one tile on four multiprocessors: cut in four it fills them, for four times the ramp
    device = Device(
        name="small", generation="none", ceiling=1e12, ceiling8=1e12, memory=1e15, sms=4
    )
    values = {"matmul": 1.0, "matmul8": 1.0, "stream": 1.0, "wave": 1.0, "grouped": 1.0,
              "unaligned": 1.0, "ramp": 64.0}  # fmt: skip
    long = Matmul(128, 128, 4096)
    ideal = long.flops / 1e12
    assert product_seconds(long, device, values, False) == pytest.approx(
        ideal * (1 + 4 * 64 / 4096)
    )
    short = Matmul(128, 128, 32)  # uncut: 4 x (1 + 64 / 32) = 12; cut: 1 + 4 x 64 / 32 = 9
    assert product_seconds(short, device, values, False) == pytest.approx(short.flops / 1e12 * 9)


# Samples and s of a step of one GPU, PyTorch with automatic mixed precision: Lambda's table
# (github.com/lambdal/deeplearning-benchmark, 2023; validation/published/ddp_classics.csv). Nothing
# was fitted to it, and it counts data loading too.
PUBLISHED = {
    "A100-SXM4-80GB": (1280, 0.8091), "A100-PCIe-80GB": (1280, 0.83824),
    "H100-SXM5-80GB": (1280, 0.4893), "H100-PCIe-80GB": (1280, 0.68596),
}  # fmt: skip


@pytest.mark.parametrize("gpu", PUBLISHED)
def test_resnet_50_is_near_what_was_published(gpu: str) -> None:
    batch, measured = PUBLISHED[gpu]
    node = {"gpu": gpu, "gpus": 1, "interconnect": "pcie-host"}
    cluster = load_cluster({"name": "one", "nodes": 1, "node": node})
    layout = Layout(
        framework="ddp", micro_batch=batch, global_batch=batch, dtype="float16", zero_stage=0
    )
    step = commsim.predict_step(commsim.load_model("resnet-50"), cluster, layout)
    assert step.duration == pytest.approx(measured, rel=0.3)
