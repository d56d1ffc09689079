"""Flags of Megatron-LM's pretrain scripts (megatron/training/arguments.py)."""

from __future__ import annotations

from commsim.planning.emission import Emission
from commsim.topology.cluster import Cluster
from commsim.workload.layer import Experts
from commsim.workload.layout import Layout
from commsim.workload.model import Model

OF = ("megatron", "nemo")
SHARDED = {2: "optim_grads", 3: "optim_grads_params"}
"""What Megatron-FSDP calls the stages of ZeRO above the distributed optimizer."""
DTYPES = {
    "bfloat16": ("--bf16",), "float16": ("--fp16",), "float32": (),
    "float8": ("--bf16", "--fp8-format hybrid"),
}  # fmt: skip


def emit(layout: Layout, model: Model, cluster: Cluster, bucket: float | None = None) -> Emission:
    """The flags, one a line, as a shell takes them."""
    flags = [
        f"--tensor-model-parallel-size {layout.tp}",
        f"--pipeline-model-parallel-size {layout.pp}",
        f"--context-parallel-size {layout.cp}",
        f"--micro-batch-size {layout.micro_batch}",
        f"--global-batch-size {layout.global_batch}",
        f"--seq-length {layout.seq_len}",
        *DTYPES[layout.dtype],
    ]
    if layout.interleave > 1:
        each, rest = divmod(model.n_layers, layout.model_chunks)
        flags.append(
            f"--num-virtual-stages-per-pipeline-rank {layout.interleave}"  # from core 0.12 on
            if rest
            else f"--num-layers-per-virtual-pipeline-stage {each}"
        )
    extra, notes = split_of(layout, model)
    flags += [f"--{name.replace('_', '-')}" for name in extra]
    if any(isinstance(layer.feed, Experts) for layer, _ in model.stacks):
        flags.append(f"--expert-model-parallel-size {layout.ep}")
        flags.append(f"--expert-tensor-parallel-size {layout.expert_tp}")
    if layout.tp > 1 and layout.sequence_parallel:
        flags.append("--sequence-parallel")
    if layout.zero_stage:
        flags.append("--use-distributed-optimizer")
    if layout.zero_stage > 1:
        flags += [
            "--use-megatron-fsdp", f"--data-parallel-sharding-strategy {SHARDED[layout.zero_stage]}"
        ]  # fmt: skip
    if layout.overlap_grad_reduce and layout.dp * layout.cp > 1:
        flags.append("--overlap-grad-reduce")
        if layout.overlap_param_gather and layout.zero_stage:
            flags.append("--overlap-param-gather")
    if bucket is not None:
        flags.append(f"--ddp-bucket-size {bucket:.0f}")
    if layout.tp_comm_overlap:
        flags.append("--tp-comm-overlap")
    if layout.recompute == "full":
        flags += [
            "--recompute-granularity full", "--recompute-method uniform", "--recompute-num-layers 1"
        ]  # fmt: skip
    elif layout.recompute == "selective":
        flags.append("--recompute-granularity selective")
    if layout.order == "tp-cp-ep-pp-dp":
        flags.append("--use-tp-pp-dp-mapping")
    return Emission(text=" \\\n".join(flags) + "\n", notes=notes)


def split_of(layout: Layout, model: Model) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """How layers that do not go evenly into the parts are made to: the ends that count as a layer
    (field names of Megatron's TransformerConfig), and what remains to be said."""
    parts = layout.model_chunks
    if parts == 1 or model.n_layers % parts == 0:
        return (), ()
    embedding = "account_for_embedding_in_pipeline_split"
    loss = "account_for_loss_in_pipeline_split"
    if (model.n_layers + 1) % parts == 0:
        return (loss,), ()
    if (model.n_layers + 2) % parts == 0:
        return (embedding, loss), ()
    return (), (
        f"{model.n_layers} layers on {parts} parts are uneven: "
        "write --pipeline-model-parallel-layout",
    )
