"""What is emitted is made of names that the frameworks document, and says what the layout says."""

from __future__ import annotations

import ast
import inspect
import json
import re
from dataclasses import replace
from typing import Any

import pytest

import commsim
from commsim.errors import PlanError, UnknownNameError
from commsim.planning.emission import emit, emitters
from commsim.planning.emitters.torchtitan import layers_per_stage
from commsim.planning.space import Space, layouts
from commsim.workload.layout import Layout
from tests.planning.option_names import DEEPSPEED, MEGATRON, NEMO, TORCHTITAN, ZERO


def names(text: str) -> set[str]:
    """The names of flags, of key=value lines and of subcommands."""
    return set(re.findall(r"^(?:--)?([\w.-]+)", text.replace(" \\\n", "\n"), flags=re.M))


def flags(text: str) -> dict[str, str]:
    """The flags with their values; "" for those without."""
    lines = text.replace(" \\\n", "\n").splitlines()
    pairs = (line.removeprefix("--").partition(" ") for line in lines if line.startswith("--"))
    return {name: value for name, _, value in pairs}


@pytest.fixture(scope="module")
def small(cluster: commsim.Cluster) -> commsim.Cluster:
    return replace(cluster, nodes=1)


def planned(
    framework: str, model: commsim.Model, cluster: commsim.Cluster, dtype: str = "bfloat16"
) -> list[Layout]:
    space = Space(
        model=model, cluster=cluster, global_batch=16, seq_len=2048, framework=framework,
        dtype=dtype,
    )  # fmt: skip
    return list(layouts(space))[::9]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float8"])
def test_megatron_and_nemo_know_every_name(
    dtype: str, model: commsim.Model, experts: commsim.Model, small: commsim.Cluster
) -> None:
    for one in (model, experts):
        for layout in planned("megatron", one, small, dtype):
            assert names(emit("megatron", layout, one, small).text) <= MEGATRON.keys()
            assert names(emit("nemo", layout, one, small).text) <= NEMO.keys()
            assert names(emit("megatron", layout, one, small, 2e7).text) <= MEGATRON.keys()
            assert names(emit("nemo", layout, one, small, 2e7).text) <= NEMO.keys()


def test_torchtitan_knows_every_name_and_the_degrees_fill_the_gpus(
    model: commsim.Model, experts: commsim.Model, small: commsim.Cluster
) -> None:
    for one in (model, experts):
        for layout in planned("torchtitan", one, small):
            text = emit("torchtitan", layout, one, small).text
            assert names(text) <= TORCHTITAN.keys()
            found = flags(text)
            degrees = {
                name.partition(".")[2]: int(value)
                for name, value in found.items()
                if name.endswith("_degree")
            }
            world = 1
            for name in (
                "data_parallel_replicate_degree", "data_parallel_shard_degree",
                "tensor_parallel_degree", "context_parallel_degree", "pipeline_parallel_degree",
            ):  # fmt: skip
                world *= degrees[name]
            assert world == small.n_ranks
            replicas = (
                degrees["data_parallel_replicate_degree"] * degrees["data_parallel_shard_degree"]
            )
            local = int(found["training.local_batch_size"])
            assert int(found["training.global_batch_size"]) % (local * replicas) == 0
            assert text.endswith(f"activation-checkpoint:{layout.recompute}\n")


def test_torchtitan_is_told_a_number_of_layers_only_where_it_makes_the_parts() -> None:
    # It makes ceil((layers + 2) / layers of a stage) parts: 34 / 3 rounds to 12, no number to 16.
    model = commsim.load_model("llama3-8b")
    assert model.n_layers == 32
    plain = Layout(pp=4, dp=2, global_batch=64, framework="torchtitan", zero_stage=2)
    assert layers_per_stage(replace(plain, interleave=3), model) == 3
    assert layers_per_stage(replace(plain, interleave=4), model) is None
    cluster = commsim.load_cluster("dgx-h100")
    told = emit("torchtitan", replace(plain, interleave=4), model, cluster)
    assert "layers_per_stage" not in told.text
    assert any("module_fqns_per_model_part" in note for note in told.notes)


def test_deepspeed_knows_every_name_and_the_batches_multiply(
    model: commsim.Model, small: commsim.Cluster
) -> None:
    for layout in planned("deepspeed", model, small):
        found = json.loads(emit("deepspeed", layout, model, small).text)
        assert found.keys() <= DEEPSPEED.keys()
        assert found["zero_optimization"].keys() <= ZERO.keys()
        # DeepSpeed refuses a configuration where this does not hold.
        assert found["train_batch_size"] == (
            found["train_micro_batch_size_per_gpu"]
            * found["gradient_accumulation_steps"]
            * layout.dp
        )


def test_fsdp_is_python_that_torch_has(model: commsim.Model, small: commsim.Cluster) -> None:
    texts = {emit("fsdp", layout, model, small).text for layout in planned("fsdp", model, small)}
    assert len(texts) > 1
    for text in texts:
        ast.parse(text)
    torch = pytest.importorskip("torch")
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    known: dict[str, Any] = {
        "fully_shard": fully_shard,
        "MixedPrecisionPolicy": MixedPrecisionPolicy,
        "init_device_mesh": init_device_mesh,
    }
    for text in texts:
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in known:
                function = known[ast.unparse(node.func)]
                taken = inspect.signature(function).parameters
                assert {k.arg for k in node.keywords} <= taken.keys()
    assert torch.bfloat16 is not None


def test_megatron_flags_of_a_layout_written_by_hand() -> None:
    # The flags that Megatron-LM's documents give for 70B on 32 GPUs: TP 4, PP 4, interleaved.
    layout = Layout(
        tp=4, pp=4, dp=2, micro_batch=1, global_batch=32, seq_len=8192, interleave=5,
        recompute="full", order="tp-cp-ep-pp-dp",
    )  # fmt: skip
    found = emit(
        "megatron", layout, commsim.load_model("llama3-70b"), commsim.load_cluster("dgx-h100")
    )
    assert found.text.replace(" \\\n", " ").split() == [
        "--tensor-model-parallel-size",
        "4",
        "--pipeline-model-parallel-size",
        "4",
        "--context-parallel-size",
        "1",
        "--micro-batch-size",
        "1",
        "--global-batch-size",
        "32",
        "--seq-length",
        "8192",
        "--bf16",
        "--num-layers-per-virtual-pipeline-stage",
        "4",
        "--sequence-parallel",
        "--use-distributed-optimizer",
        "--overlap-grad-reduce",
        "--overlap-param-gather",
        "--recompute-granularity",
        "full",
        "--recompute-method",
        "uniform",
        "--recompute-num-layers",
        "1",
        "--use-tp-pp-dp-mapping",
    ]
    assert found.notes == ()


def test_sharding_beyond_the_optimizer_is_megatron_fsdp(
    model: commsim.Model, small: commsim.Cluster
) -> None:
    for stage, strategy in ((2, "optim_grads"), (3, "optim_grads_params")):
        layout = Layout(dp=8, global_batch=8, zero_stage=stage)
        text = emit("megatron", layout, model, small).text
        assert "--use-megatron-fsdp" in text
        assert f"--data-parallel-sharding-strategy {strategy}\n" in text.replace(" \\\n", "\n")
        assert names(text) <= MEGATRON.keys()
        assert names(emit("nemo", layout, model, small).text) <= NEMO.keys()


def test_126_layers_on_16_stages_count_embedding_and_loss() -> None:
    # Llama 3 405B (arXiv:2407.21783, section 3.3.2): one layer less on the first and last stage.
    layout = Layout(tp=8, pp=16, dp=1, global_batch=16, seq_len=8192)
    text = emit(
        "megatron", layout, commsim.load_model("llama3-405b"),
        commsim.load_cluster("dgx-h100", nodes=16),
    ).text  # fmt: skip
    assert "--account-for-embedding-in-pipeline-split" in text
    assert "--account-for-loss-in-pipeline-split" in text


def test_buckets_are_written_where_the_framework_has_them(
    model: commsim.Model, small: commsim.Cluster
) -> None:
    layout = Layout(dp=8, global_batch=8)
    assert "--ddp-bucket-size 20000000" in emit("megatron", layout, model, small, 2e7).text
    assert (
        "trainer.strategy.ddp.bucket_size=20000000" in emit("nemo", layout, model, small, 2e7).text
    )
    other = replace(layout, framework="deepspeed")
    zero = json.loads(emit("deepspeed", other, model, small, 2e7).text)["zero_optimization"]
    assert zero["reduce_bucket_size"] == zero["allgather_bucket_size"] == 20_000_000
    assert "bucket" not in emit("megatron", layout, model, small).text


def test_a_layout_of_another_framework_is_refused(
    model: commsim.Model, small: commsim.Cluster
) -> None:
    with pytest.raises(
        PlanError, match="layout is one of megatron; plan with framework torchtitan"
    ):
        emit("torchtitan", Layout(dp=8, global_batch=8), model, small)
    with pytest.raises(UnknownNameError, match="did you mean 'megatron'"):
        emit("megatorn", Layout(dp=8, global_batch=8), model, small)


def test_every_emitter_is_found() -> None:
    assert emitters() == ("deepspeed", "fsdp", "megatron", "nemo", "torchtitan")
