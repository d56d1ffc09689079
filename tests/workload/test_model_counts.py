"""Parameter counts against those that publishers print."""

from __future__ import annotations

import pytest

import commsim
from commsim.workload.load import presets

# To the last parameter: the "model size" of the safetensors files on Hugging Face, equal to
# num_parameters() of the classes of transformers 5.24 built from the same config.json.
EXACT = {
    "llama2-7b": 6_738_415_616,
    "llama2-13b": 13_015_864_320,
    "llama2-70b": 68_976_648_192,
    "llama3-8b": 8_030_261_248,
    "llama3-70b": 70_553_706_496,
    "llama3-405b": 405_853_388_800,
    "llama3.2-1b": 1_235_814_400,
    "mistral-7b": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704,
    "mixtral-8x22b": 140_630_071_296,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-8b": 8_190_735_360,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "qwen1.5-moe-a2.7b": 14_315_784_192,
    "deepseek-v2": 235_741_434_880,
    "deepseek-v2-lite": 15_706_484_224,
    "gpt2": 124_439_808,
    "gpt2-xl": 1_557_611_200,
    "gpt-j-6b": 6_050_882_784,
    "gpt-neox-20b": 20_554_567_680,
    "pythia-12b": 11_846_072_320,
    "opt-125m": 125_239_296,
    "opt-6.7b": 6_658_473_984,
    "bloom-560m": 559_214_592,
    "bloom-176b": 176_247_271_424,
    "falcon-7b": 6_921_720_704,
    "mpt-7b": 6_649_286_656,
    "mpt-30b": 29_957_200_896,
    "gemma-2b": 2_506_172_416,
    "gemma-7b": 8_537_680_896,
    "gemma2-9b": 9_241_705_984,
    "gemma3-1b": 999_885_952,
    "phi-2": 2_779_683_840,
    "phi-3-mini": 3_821_079_552,
    "phi-4": 14_659_507_200,
    "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-120b": 116_829_156_672,
    "llama4-scout": 107_769_861_120,
    "bert-base": 109_482_240,
    "bert-large": 335_141_888,
    "roberta-large": 355_412_057,
}

# What papers print of all parameters, in 10^9.
PRINTED = {
    "gpt3-175b": 174.6,  # arXiv:2005.14165, table D.1: 174,600 million
    "gpt3-13b": 12.85,  # the same: 12,850 million
    "megatron-gpt-145b": 145.6,  # arXiv:2104.04473, table 1
    "megatron-gpt-530b": 529.6,
    "megatron-gpt-1t": 1008.0,
    "deepseek-v3": 671,  # arXiv:2412.19437
    "kimi-k2": 1040,  # arXiv:2507.20534
    "glm-4.5-air": 106,  # arXiv:2508.06471
    "llama4-maverick": 400,  # ai.meta.com, 2025-04-05
    "grok-1": 314,  # github.com/xai-org/grok-1
    "nemotron-4-15b": 15.6,  # arXiv:2402.16819: 3.1 of embeddings, 12.5 of layers
    "nemotron-4-340b": 341,  # arXiv:2406.11704: 9.4 of embeddings, 331.6 of layers
    "llama2-34b": 33.7,  # the card of CodeLlama-34b
    "falcon-180b": 179,  # arXiv:2311.16867
    "falcon-40b": 41.3,
    "gemma2-27b": 27.2,  # arXiv:2408.00118, table 2: 1.18 + 26.05
    "gemma3-27b": 27.0,  # arXiv:2503.19786, table 1: 1.416 + 25.6
    "mpt-70b": 64.86,  # the throughput tables of mosaicml/llm-foundry
    "bert-large": 0.340,  # arXiv:1810.04805, with the heads of pre-training
}

# What papers print of the parameters that one token meets, in 10^9, and how many of the two
# tables of vocabulary x hidden (embedding, head) they leave out.
MET = {
    "mixtral-8x7b": (12.9, 0),  # mistral.ai, 2023-12-11
    "mixtral-8x22b": (39, 0),  # mistral.ai, 2024-04-17
    "deepseek-v2": (21, 0),  # arXiv:2405.04434
    "deepseek-v2-lite": (2.4, 1),  # the same, appendix B
    "deepseek-v3": (37, 1),  # arXiv:2412.19437
    "kimi-k2": (32.6, 0),  # arXiv:2507.20534, table 2
    "qwen3-30b-a3b": (3.3, 0),  # the model card
    "qwen3-235b-a22b": (22, 0),
    "gpt-oss-120b": (5.13, 1),  # arXiv:2508.10925, table 1
    "gpt-oss-20b": (3.61, 1),
    "glm-4.5-air": (12, 2),  # arXiv:2508.06471
    "llama4-maverick": (17, 0),  # ai.meta.com, 2025-04-05
}


@pytest.mark.parametrize("name", EXACT)
def test_counts_are_exact(name: str) -> None:
    assert commsim.load_model(name).parameters == EXACT[name]


@pytest.mark.parametrize("name", PRINTED)
def test_counts_round_to_what_papers_print(name: str) -> None:
    parameters = commsim.load_model(name).parameters
    assert parameters / 1e9 == pytest.approx(PRINTED[name], rel=0.015)


@pytest.mark.parametrize("name", MET)
def test_parameters_that_one_token_meets(name: str) -> None:
    printed, left_out = MET[name]
    model = commsim.load_model(name)
    met = model.active_parameters - left_out * model.vocab * model.hidden
    assert met / 1e9 == pytest.approx(printed, rel=0.025)


@pytest.mark.parametrize("name", ["llama3-8b", "gpt2", "bert-large", "resnet-50"])
def test_one_token_meets_all_of_a_dense_model(name: str) -> None:
    model = commsim.load_model(name)
    assert model.active_parameters == model.parameters


@pytest.mark.parametrize("name", presets())
def test_totals_are_those_of_the_tensors(name: str) -> None:
    model = commsim.load_model(name)
    tensors = model.tensors()
    assert sum(t.numel for t in tensors) == model.parameters + model.mtp_parameters
    assert model.trained_parameters == model.parameters + model.mtp_parameters
    assert len({t.name for t in tensors}) == len(tensors)
    assert not model.notes


def test_multi_token_prediction_of_deepseek_v3() -> None:
    # The card: 671B, and 14B of the prediction module, which there holds a copy of the embedding
    # and of the head (2 x 129280 x 7168 = 1.85B): 11.6B of its own.
    model = commsim.load_model("deepseek-v3")
    assert (model.mtp, model.n_layers) == (1, 61)
    copies = 2 * model.vocab * model.hidden
    assert (model.mtp_parameters + copies) / 1e9 == pytest.approx(14, abs=0.6)
    without = commsim.load_model("deepseek-v3", num_nextn_predict_layers=0)
    assert without.parameters == model.parameters
    assert len(without.tensors()) < len(model.tensors())
    # Its layer has all experts: projection 2 h x h and four norms more than the last layer.
    last = model.stacks[-1][0].parameters(model.hidden, model.norm)
    assert model.mtp_parameters == last + 2 * 7168 * 7168 + 3 * 7168
