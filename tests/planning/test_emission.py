"""What is emitted is made of names that the frameworks document, and says what the layout says."""

from __future__ import annotations

import ast
import inspect
import json
import re
import tomllib
from dataclasses import replace
from typing import Any

import pytest

import commsim
from commsim.errors import PlanError, UnknownNameError
from commsim.planning.emission import emit, emitters
from commsim.planning.space import Space, layouts
from commsim.workload.layout import Layout

# Megatron-LM, megatron/training/arguments.py, and its README and docs.
MEGATRON = {
    "tensor-model-parallel-size",
    "pipeline-model-parallel-size",
    "context-parallel-size",
    "expert-model-parallel-size",
    "expert-tensor-parallel-size",
    "micro-batch-size",
    "global-batch-size",
    "seq-length",
    "bf16",
    "fp16",
    "fp8-format",
    "num-virtual-stages-per-pipeline-rank",
    "num-layers-per-virtual-pipeline-stage",
    "sequence-parallel",
    "use-distributed-optimizer",
    "overlap-grad-reduce",
    "overlap-param-gather",
    "tp-comm-overlap",
    "recompute-granularity",
    "recompute-method",
    "recompute-num-layers",
    "use-tp-pp-dp-mapping",
    "account-for-embedding-in-pipeline-split",
    "account-for-loss-in-pipeline-split",
    "pipeline-model-parallel-layout",
}
# megatron-core 0.16.1: ModelParallelConfig, TransformerConfig, DistributedDataParallelConfig.
MEGATRON_CORE = {
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "virtual_pipeline_model_parallel_size",
    "context_parallel_size",
    "expert_model_parallel_size",
    "expert_tensor_parallel_size",
    "sequence_parallel",
    "recompute_granularity",
    "recompute_method",
    "recompute_num_layers",
    "tp_comm_overlap",
    "account_for_embedding_in_pipeline_split",
    "account_for_loss_in_pipeline_split",
    "use_distributed_optimizer",
    "overlap_grad_reduce",
    "overlap_param_gather",
}
# NeMo 2: recipes' trainer, data module and precision plugin.
NEMO = {
    "trainer.num_nodes",
    "trainer.devices",
    "data.micro_batch_size",
    "data.global_batch_size",
    "data.seq_length",
    "trainer.plugins.precision",
    "trainer.strategy.use_tp_pp_dp_mapping",
}
# torchtitan 0.3.0, config/configs.py; `activation_checkpoint` and `expert_tensor...`: 0.2.
TORCHTITAN = {
    "training": {"local_batch_size", "global_batch_size", "seq_len", "mixed_precision_param"},
    "parallelism": {
        "data_parallel_replicate_degree",
        "data_parallel_shard_degree",
        "fsdp_reshard_after_forward",
        "tensor_parallel_degree",
        "context_parallel_degree",
        "pipeline_parallel_degree",
        "pipeline_parallel_schedule",
        "pipeline_parallel_microbatch_size",
        "pipeline_parallel_layers_per_stage",
        "expert_parallel_degree",
        "expert_tensor_parallel_degree",
    },
    "activation_checkpoint": {"mode"},
    "compile": {"enable", "enable_async_tensor_parallel"},
}
# DeepSpeed 0.19.8: runtime/constants.py and runtime/zero/config.py.
DEEPSPEED = {
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
    "bf16",
    "fp16",
    "zero_optimization",
}
ZERO = {"stage", "overlap_comm", "contiguous_gradients", "reduce_scatter"}


def names(text: str) -> set[str]:
    """The names of flags or of key=value lines."""
    return set(re.findall(r"^(?:--)?([\w.-]+)", text.replace(" \\\n", "\n"), flags=re.M))


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
            assert names(emit("megatron", layout, one, small).text) <= MEGATRON
            for name in names(emit("nemo", layout, one, small).text) - NEMO:
                where, _, field = name.rpartition(".")
                assert where in ("trainer.strategy", "trainer.strategy.ddp", "model.config")
                assert field in MEGATRON_CORE


def test_torchtitan_knows_every_name_and_the_degrees_fill_the_gpus(
    model: commsim.Model, experts: commsim.Model, small: commsim.Cluster
) -> None:
    for one in (model, experts):
        for layout in planned("torchtitan", one, small):
            found = tomllib.loads(emit("torchtitan", layout, one, small).text)
            assert found.keys() <= TORCHTITAN.keys()
            for table, values in found.items():
                assert values.keys() <= TORCHTITAN[table]
            degrees = found["parallelism"]
            world = 1
            for name in (
                "data_parallel_replicate_degree", "data_parallel_shard_degree",
                "tensor_parallel_degree", "context_parallel_degree", "pipeline_parallel_degree",
            ):  # fmt: skip
                world *= degrees[name]
            assert world == small.n_ranks
            training = found["training"]
            replicas = (
                degrees["data_parallel_replicate_degree"] * degrees["data_parallel_shard_degree"]
            )
            assert training["global_batch_size"] % (training["local_batch_size"] * replicas) == 0
            assert found["activation_checkpoint"]["mode"] in ("none", "selective", "full")


def test_deepspeed_knows_every_name_and_the_batches_multiply(
    model: commsim.Model, small: commsim.Cluster
) -> None:
    for layout in planned("deepspeed", model, small):
        found = json.loads(emit("deepspeed", layout, model, small).text)
        assert found.keys() <= DEEPSPEED
        assert found["zero_optimization"].keys() <= ZERO
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
        "--num-virtual-stages-per-pipeline-rank",
        "5",
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


def test_126_layers_on_16_stages_count_embedding_and_loss() -> None:
    # Llama 3 405B (arXiv:2407.21783, section 3.3.2): one layer less on the first and last stage.
    layout = Layout(tp=8, pp=16, dp=1, global_batch=16, seq_len=8192)
    text = emit(
        "megatron", layout, commsim.load_model("llama3-405b"),
        commsim.load_cluster("dgx-h100", nodes=16),
    ).text  # fmt: skip
    assert "--account-for-embedding-in-pipeline-split" in text
    assert "--account-for-loss-in-pipeline-split" in text


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
