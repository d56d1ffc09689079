"""Small models and clusters on which every layout can be tried."""

from __future__ import annotations

import pytest

import commsim


def small_model(layers: int = 4, hidden: int = 1024) -> commsim.Model:
    """A decoder of a few layers, eight heads."""
    return commsim.load_model(
        {
            "model_type": "llama", "hidden_size": hidden, "num_hidden_layers": layers,
            "num_attention_heads": 8, "num_key_value_heads": 8, "intermediate_size": 4 * hidden,
            "vocab_size": 32000, "max_position_embeddings": 4096, "tie_word_embeddings": False,
        }
    )  # fmt: skip


def small_experts(layers: int = 4) -> commsim.Model:
    """The same with eight experts, two for each token."""
    return commsim.load_model(
        {
            "model_type": "mixtral", "hidden_size": 1024, "num_hidden_layers": layers,
            "num_attention_heads": 8, "num_key_value_heads": 8, "intermediate_size": 2048,
            "vocab_size": 32000, "max_position_embeddings": 4096, "tie_word_embeddings": False,
            "num_local_experts": 8, "num_experts_per_tok": 2,
        }
    )  # fmt: skip


@pytest.fixture(scope="session")
def model() -> commsim.Model:
    return small_model()


@pytest.fixture(scope="session")
def experts() -> commsim.Model:
    return small_experts()


@pytest.fixture(scope="session")
def cluster() -> commsim.Cluster:
    return commsim.load_cluster("dgx-h100", nodes=2)
