"""DeepSpeed's JSON; tensor and pipeline parallelism are Megatron-DeepSpeed's flags."""

from __future__ import annotations

import json

from commsim.planning.emission import Emission
from commsim.topology.cluster import Cluster
from commsim.workload.layout import Layout
from commsim.workload.model import Model

OF = ("deepspeed",)


def emit(layout: Layout, model: Model, cluster: Cluster, bucket: float | None = None) -> Emission:
    """The configuration of deepspeed.initialize."""
    zero: dict[str, object] = {
        "stage": layout.zero_stage,
        "overlap_comm": layout.overlap_grad_reduce,
        "contiguous_gradients": True,
        "reduce_scatter": True,
    }
    if bucket is not None:
        zero |= {"reduce_bucket_size": int(bucket), "allgather_bucket_size": int(bucket)}
    config: dict[str, object] = {
        "train_batch_size": layout.global_batch,
        "train_micro_batch_size_per_gpu": layout.micro_batch,
        "gradient_accumulation_steps": layout.micro_batches,
        "bf16": {"enabled": layout.dtype in ("bfloat16", "float8")},
        "fp16": {"enabled": layout.dtype == "float16"},
        "zero_optimization": zero,
    }
    notes = []
    if layout.tp * layout.pp > 1:
        notes.append(
            "Megatron-DeepSpeed's flags: "
            f"--tensor-model-parallel-size {layout.tp} --pipeline-model-parallel-size {layout.pp}"
            + (" --sequence-parallel" if layout.tp > 1 and layout.sequence_parallel else "")
        )
    if layout.ep > 1:
        notes.append(f"deepspeed.moe.layer.MoE(..., ep_size={layout.ep})")
    if layout.recompute == "full":
        notes.append("checkpoint every layer: deepspeed.checkpointing, or the model's own switch")
    return Emission(text=json.dumps(config, indent=2) + "\n", notes=tuple(notes))
