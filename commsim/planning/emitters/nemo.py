"""Overrides of a NeMo 2 recipe, as `nemo llm pretrain --factory RECIPE` takes them (nemo_toolkit
2.x; from 3.0 on it trains speech alone, and Megatron-Bridge has the rest).

The names under trainer.strategy and model.config are the fields of Megatron-core's
ModelParallelConfig and TransformerConfig; those under trainer.strategy.ddp of its
DistributedDataParallelConfig.
"""

from __future__ import annotations

from commsim.planning.emission import Emission
from commsim.planning.emitters.megatron import SHARDED, split_of
from commsim.topology.cluster import Cluster
from commsim.workload.layer import Experts
from commsim.workload.layout import Layout
from commsim.workload.model import Model

OF = ("nemo", "megatron")
PRECISION = {
    "bfloat16": "bf16-mixed",
    "float16": "16-mixed",
    "float32": "32",
    "float8": "bf16-mixed",
}


def emit(layout: Layout, model: Model, cluster: Cluster, bucket: float | None = None) -> Emission:
    """The overrides, one a line."""
    strategy: dict[str, object] = {
        "tensor_model_parallel_size": layout.tp,
        "pipeline_model_parallel_size": layout.pp,
        "context_parallel_size": layout.cp,
        "sequence_parallel": layout.tp > 1 and layout.sequence_parallel,
    }
    if layout.interleave > 1:
        strategy["virtual_pipeline_model_parallel_size"] = layout.interleave
    if any(isinstance(layer.feed, Experts) for layer, _ in model.stacks):
        strategy["expert_model_parallel_size"] = layout.ep
        strategy["expert_tensor_parallel_size"] = layout.expert_tp
    exchanged = layout.dp * layout.cp > 1
    ddp: dict[str, object] = {
        "use_distributed_optimizer": layout.zero_stage > 0,
        "overlap_grad_reduce": layout.overlap_grad_reduce and exchanged,
        "overlap_param_gather": layout.overlap_param_gather and exchanged and layout.zero_stage > 0,
    }
    if layout.zero_stage > 1:
        strategy["fsdp"] = "megatron"
        ddp["data_parallel_sharding_strategy"] = SHARDED[layout.zero_stage]
    if bucket is not None:
        ddp["bucket_size"] = int(bucket)
    config: dict[str, object] = {}
    extra, notes = split_of(layout, model)
    config |= dict.fromkeys(extra, True)
    if layout.recompute == "full":
        config |= {
            "recompute_granularity": "full",
            "recompute_method": "uniform",
            "recompute_num_layers": 1,
        }
    elif layout.recompute == "selective":
        config["recompute_granularity"] = "selective"
    if layout.tp_comm_overlap:
        config["tp_comm_overlap"] = True
        notes += (
            "tp_comm_overlap: the recipe's trainer wants the callback "
            "MegatronCommOverlapCallback(tp_comm_overlap=True) too",
        )
    said = [
        f"trainer.num_nodes={cluster.nodes}",
        f"trainer.devices={cluster.gpus_per_node}",
        *(f"trainer.strategy.{key}={value}" for key, value in strategy.items()),
        *(f"trainer.strategy.ddp.{key}={value}" for key, value in ddp.items()),
        *(f"model.config.{key}={value}" for key, value in config.items()),
        f"data.micro_batch_size={layout.micro_batch}",
        f"data.global_batch_size={layout.global_batch}",
        f"data.seq_length={layout.seq_len}",
        f"trainer.plugins.precision={PRECISION[layout.dtype]}",
    ]
    if layout.order == "tp-cp-ep-pp-dp":
        said.append("trainer.strategy.use_tp_pp_dp_mapping=True")
    if layout.dtype == "float8":
        notes += ("8-bit recipes are set in the recipe's precision plugin: fp8='hybrid'",)
    return Emission(text=" \\\n".join(said) + "\n", notes=notes)
