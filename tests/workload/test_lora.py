"""LoRA against what PEFT prints (print_trainable_parameters, PEFT 0.21, transformers 5.24)."""

from __future__ import annotations

from typing import Any

import pytest

import commsim
from commsim.errors import ModelError

LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
PRINTED: list[tuple[str, int, Any, int, int]] = [
    ("llama2-7b", 8, ["q_proj", "v_proj"], 4_194_304, 6_742_609_920),
    ("llama3-8b", 16, LINEAR, 41_943_040, 8_072_204_288),
    ("llama3-70b", 64, "all-linear", 828_375_040, 71_382_081_536),
    ("gpt2", 8, ["c_attn"], 294_912, 124_734_720),
    ("gpt2", 8, ["c_proj"], 516_096, 124_955_904),
    ("bloom-560m", 8, ["query_key_value"], 786_432, 560_001_024),
    ("phi-4", 16, "all-linear", 55_705_600, 14_715_212_800),
    (
        "deepseek-v2-lite", 16, ["q_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"],
        7_105_536, 15_713_589_760,
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "rank", "targets", "trained", "total"), PRINTED)
def test_counts_are_those_of_peft(
    name: str, rank: int, targets: Any, trained: int, total: int
) -> None:
    model = commsim.load_model(name, lora={"r": rank, "target_modules": targets})
    assert (model.trained_parameters, model.parameters) == (trained, total)
    assert sum(t.numel for t in model.tensors() if t.trained) == trained
    assert sum(t.numel for t in model.tensors()) == total


def test_one_adapted_layer() -> None:
    model = commsim.load_model("llama3-8b", lora={"rank": 8, "targets": ["o_proj"]})
    found = {
        t.name.removeprefix("layers.0.attention."): (t.shape, t.split, t.trained)
        for t in model.tensors()
    }
    assert found["q_proj.weight"] == ((4096, 4096), "column", False)
    assert found["o_proj.weight"] == ((4096, 4096), "row", False)
    assert found["o_proj.lora_A.weight"] == ((8, 4096), "row", True)
    assert found["o_proj.lora_B.weight"] == ((4096, 8), "", True)


def test_a_forward_pass_goes_through_the_adapters_too() -> None:
    plain = commsim.load_model("llama3-8b")
    lora = commsim.load_model("llama3-8b", lora={"rank": 8, "targets": ["q_proj"]})
    # 32 layers, A and B of 8 x 4096 each.
    assert lora.forward_flops(1, 0) - plain.forward_flops(1, 0) == 2 * 32 * 2 * 8 * 4096
    assert plain.trained_parameters == plain.parameters


def test_experts_are_adapted_one_by_one() -> None:
    model = commsim.load_model("mixtral-8x7b", lora={"rank": 4, "targets": ["w1"]})
    assert model.trained_parameters == 32 * 8 * 4 * (4096 + 14336)
    plain = commsim.load_model("mixtral-8x7b")
    met = model.active_parameters - plain.active_parameters
    assert met == model.trained_parameters // 4  # 2 of 8 experts


@pytest.mark.parametrize(
    ("lora", "message"),
    [
        ({"rank": 8, "targets": ["q_pro"]}, r"no layer is called 'q_pro' \(there are: .*q_proj"),
        ({"rank": 0}, "rank: expected a whole number >= 1, got 0"),
        ({}, "rank: expected a whole number >= 1, got None"),
        ({"rank": 8, "targets": []}, "targets: expected names"),
    ],
)
def test_a_wrong_lora_is_named(lora: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        commsim.load_model("llama3-8b", lora=lora)
