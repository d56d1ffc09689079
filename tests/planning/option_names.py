"""What the frameworks call their options, each read in a package of theirs: where, which version.

Megatron-LM's own argument parser is in no package of PyPI. Where a flag is a field of a
configuration of megatron-core (its parser makes flags of these) or is read from Megatron-LM's
arguments by another package, that stands here; `MEMORY` marks what no package shows.
"""

from __future__ import annotations

MEMORY = "Megatron-LM, megatron/training/arguments.py: in no package, not read"
_PARALLEL = "megatron-core 0.16.1, model_parallel_config.py, ModelParallelConfig"
_TRANSFORMER = "megatron-core 0.16.1, transformer/transformer_config.py, TransformerConfig"
_DDP = (
    "megatron-core 0.16.1, distributed/distributed_data_parallel_config.py, "
    "DistributedDataParallelConfig"
)
_NEMO = "nemo_toolkit 2.7.3, lightning/pytorch/strategies/megatron_strategy.py, MegatronStrategy"
_RECIPES = "nemo_toolkit 2.7.3, collections/llm/recipes"
_TITAN = "torchtitan 0.3.0, config/configs.py"
_DEEPSPEED = "deepspeed 0.19.8, runtime/config.py and constants.py"
_ZERO = "deepspeed 0.19.8, runtime/zero/config.py, DeepSpeedZeroConfig"

MEGATRON = {
    "tensor-model-parallel-size": _PARALLEL,
    "pipeline-model-parallel-size": _PARALLEL,
    "context-parallel-size": _PARALLEL,
    "expert-model-parallel-size": _PARALLEL,
    "expert-tensor-parallel-size": _PARALLEL,
    "sequence-parallel": _PARALLEL,
    "bf16": _PARALLEL,
    "fp16": _PARALLEL,
    "tp-comm-overlap": _PARALLEL,
    "recompute-granularity": _TRANSFORMER,
    "recompute-method": _TRANSFORMER,
    "recompute-num-layers": _TRANSFORMER,
    "account-for-embedding-in-pipeline-split": _TRANSFORMER,
    "account-for-loss-in-pipeline-split": _TRANSFORMER,
    "fp8-format": f"{_TRANSFORMER}.fp8, metadata arg_names",
    "use-distributed-optimizer": _DDP,
    "overlap-grad-reduce": _DDP,
    "overlap-param-gather": _DDP,
    "use-megatron-fsdp": _DDP,
    "data-parallel-sharding-strategy": _DDP,
    "micro-batch-size": "accelerate 1.15.0, utils/megatron_lm.py, args.micro_batch_size",
    "seq-length": "accelerate 1.15.0, utils/megatron_lm.py, args.seq_length",
    "num-layers-per-virtual-pipeline-stage": (
        "accelerate 1.15.0, utils/dataclasses.py, MegatronLMPlugin"
    ),
    "global-batch-size": (
        "megatron-core 0.16.1, num_microbatches_calculator.py: global_batch_size"
    ),
    "use-tp-pp-dp-mapping": (
        "megatron-bridge 0.3.1, training/config.py, DistributedInitConfig.use_tp_pp_dp_mapping"
    ),
    "num-virtual-stages-per-pipeline-rank": MEMORY,
    "ddp-bucket-size": MEMORY,
}
NEMO = {
    **{
        f"trainer.strategy.{name}": _NEMO
        for name in (
            "tensor_model_parallel_size", "pipeline_model_parallel_size",
            "virtual_pipeline_model_parallel_size", "context_parallel_size",
            "expert_model_parallel_size", "expert_tensor_parallel_size", "sequence_parallel",
            "use_tp_pp_dp_mapping", "fsdp",
        )
    },
    **{
        f"trainer.strategy.ddp.{name}": _DDP
        for name in (
            "use_distributed_optimizer", "overlap_grad_reduce", "overlap_param_gather",
            "bucket_size", "data_parallel_sharding_strategy",
        )
    },
    **{
        f"model.config.{name}": _TRANSFORMER
        for name in (
            "recompute_granularity", "recompute_method", "recompute_num_layers", "tp_comm_overlap",
            "account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split",
        )
    },
    "trainer.num_nodes": f"{_RECIPES}/llama3_8b.py, trainer()",
    "trainer.devices": f"{_RECIPES}/llama3_8b.py, trainer()",
    "trainer.plugins.precision": (
        "nemo_toolkit 2.7.3, lightning/pytorch/plugins/mixed_precision.py, MegatronMixedPrecision"
    ),
    "data.micro_batch_size": "nemo_toolkit 2.7.3, collections/llm/gpt/data/mock.py",
    "data.global_batch_size": "nemo_toolkit 2.7.3, collections/llm/gpt/data/mock.py",
    "data.seq_length": "nemo_toolkit 2.7.3, collections/llm/gpt/data/mock.py",
}  # fmt: skip
TORCHTITAN = {
    **{
        f"training.{name}": f"{_TITAN}, TrainingConfig"
        for name in ("local_batch_size", "global_batch_size", "seq_len", "mixed_precision_param")
    },
    **{
        f"parallelism.{name}": f"{_TITAN}, ParallelismConfig"
        for name in (
            "data_parallel_replicate_degree", "data_parallel_shard_degree",
            "fsdp_reshard_after_forward", "tensor_parallel_degree", "context_parallel_degree",
            "pipeline_parallel_degree", "pipeline_parallel_schedule",
            "pipeline_parallel_microbatch_size", "pipeline_parallel_layers_per_stage",
            "expert_parallel_degree",
        )
    },
    "compile.enable": f"{_TITAN}, CompileConfig",
    "compile.enable_async_tensor_parallel": f"{_TITAN}, CompileConfig",
    "activation-checkpoint": "torchtitan 0.3.0, distributed/activation_checkpoint.py (subcommand)",
}  # fmt: skip
DEEPSPEED = dict.fromkeys(
    (
        "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps",
        "bf16", "fp16", "zero_optimization",
    ),
    _DEEPSPEED,
)  # fmt: skip
ZERO = dict.fromkeys(
    (
        "stage", "overlap_comm", "contiguous_gradients", "reduce_scatter", "reduce_bucket_size",
        "allgather_bucket_size",
    ),
    _ZERO,
)  # fmt: skip
