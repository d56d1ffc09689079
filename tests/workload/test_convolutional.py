"""ResNet and VGG against torchvision, and parts of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import commsim
from commsim.errors import ModelError

# torchvision's documentation of its weights: num_params, and GFLOPS counting a multiply-add once.
TORCHVISION = {
    "resnet-18": (11_689_512, 1.81),
    "resnet-34": (21_797_672, 3.66),
    "resnet-50": (25_557_032, 4.09),
    "resnet-101": (44_549_160, 7.80),
    "resnet-152": (60_192_808, 11.51),
    "vgg-16": (138_357_544, 15.47),
    "vgg-19": (143_667_240, 19.63),
}


@pytest.mark.parametrize("name", TORCHVISION)
def test_counts_are_those_of_torchvision(name: str) -> None:
    parameters, gmacs = TORCHVISION[name]
    model = commsim.load_model(name)
    assert model.kind == "list"
    assert model.parameters == sum(t.numel for t in model.tensors()) == parameters
    assert model.forward_flops(1) / 2e9 == pytest.approx(gmacs, abs=0.006)
    assert model.forward_flops(32) == 32 * model.forward_flops(1)


def test_order_and_shapes_of_resnet_50() -> None:
    found = [(t.name, t.shape) for t in commsim.load_model("resnet-50").tensors()]
    assert len(found) == 161
    assert found[:3] == [
        ("conv1.weight", (64, 3, 7, 7)), ("bn1.weight", (64,)), ("bn1.bias", (64,)),
    ]  # fmt: skip
    block = [(name, shape) for name, shape in found if name.startswith("layer2.0.")]
    assert [(n.removeprefix("layer2.0."), s) for n, s in block if len(s) == 4] == [
        ("conv1.weight", (128, 256, 1, 1)),
        ("conv2.weight", (128, 128, 3, 3)),
        ("conv3.weight", (512, 128, 1, 1)),
        ("downsample.0.weight", (512, 256, 1, 1)),
    ]
    assert found[-2:] == [("fc.weight", (1000, 2048)), ("fc.bias", (1000,))]


def test_what_resnet_50_keeps_for_backward() -> None:
    # 21.33 million elements a sample in what PyTorch 2.14 saves (saved_tensors_hooks, each storage
    # once, parameters left out).
    kept = sum(part.activations for part in commsim.load_model("resnet-50").parts)
    assert kept == pytest.approx(21.33e6, rel=0.01)


def test_a_larger_image() -> None:
    small, large = (commsim.load_model("resnet-50", image_size=side) for side in (224, 448))
    assert small.parameters == large.parameters
    assert large.forward_flops(1) == pytest.approx(4 * small.forward_flops(1), rel=0.01)


def test_parts_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        """
        model_type = "list"
        name = "mine"
        [[parts]]
        name = "first"
        shapes = [[10, 20], [10]]
        flops = 400
        activations = 20
        [[parts]]
        shapes = [[5, 10]]
        flops = 100
        moved = 65
        """
    )
    model = commsim.load_model(path)
    assert [(t.name, t.shape) for t in model.tensors()] == [
        ("first.0", (10, 20)), ("first.1", (10,)), ("1.0", (5, 10)),
    ]  # fmt: skip
    assert model.parameters == 260
    assert model.forward_flops(3) == 1500
    assert (model.name, model.n_layers, model.kv_bytes()) == ("mine", 0, 0)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"model_type": "list"}, "parts: expected a list of tables, got None"),
        ({"model_type": "list", "parts": [3]}, r"parts\[0\]: expected a table, got 3"),
        (
            {"model_type": "list", "parts": [{"shapes": [["a"]]}]},
            r"parts\[0\]: shapes: expected lists of whole numbers",
        ),
        (
            {"model_type": "list", "parts": [{"flops": -1}]},
            r"parts\[0\]: flops: expected a whole number >= 0",
        ),
        ({"model_type": "vgg"}, "channels: expected lists"),
        ({"model_type": "resnet", "depths": [2]}, "depths: expected as many as hidden_sizes"),
    ],
)
def test_wrong_parts_are_named(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        commsim.load_model(keys)
