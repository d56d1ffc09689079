"""Flags of torchtitan's train script, 0.3, as its ConfigManager takes them.

Up to 0.2 the same names are also keys of a job's TOML; what is called otherwise there is noted.
"""

from __future__ import annotations

from commsim.planning.emission import Emission
from commsim.topology.cluster import Cluster
from commsim.workload.layer import Experts
from commsim.workload.layout import Layout
from commsim.workload.model import Model

OF = ("torchtitan",)
SCHEDULES = {"1f1b": "1F1B", "gpipe": "GPipe"}
ENDS = 2
"""Layers that embedding and head count as (pipeline_parallel_*_stage_less_layers, 1 each)."""


def emit(layout: Layout, model: Model, cluster: Cluster, bucket: float | None = None) -> Emission:
    """The flags, one a line, as a shell takes them."""
    notes = []
    shard = layout.dp if layout.hsdp is None else max(1, layout.hsdp // layout.cp)
    # A pipeline cuts a local batch into micro-batches; without one, batches are accumulated.
    local = layout.micro_batch * (layout.micro_batches if layout.pp > 1 else 1)
    training = {
        "local_batch_size": local,
        "global_batch_size": layout.global_batch,
        "seq_len": layout.seq_len,
        "mixed_precision_param": "float32" if layout.dtype == "float32" else "bfloat16",
    }
    parallelism: dict[str, object] = {
        "data_parallel_replicate_degree": layout.dp // shard,
        "data_parallel_shard_degree": shard,
        "fsdp_reshard_after_forward": "always" if layout.zero_stage == 3 else "never",
        "tensor_parallel_degree": layout.tp,
        "context_parallel_degree": layout.cp,
        "pipeline_parallel_degree": layout.pp,
    }
    if layout.pp > 1:
        interleaved = layout.interleave > 1
        parallelism |= {
            "pipeline_parallel_schedule": (
                "Interleaved1F1B" if interleaved else SCHEDULES[layout.schedule]
            ),
            "pipeline_parallel_microbatch_size": layout.micro_batch,
        }
        if layout.interleave > 2:  # 1 and 2 are what the schedules take by themselves
            each = layers_per_stage(layout, model)
            if each is None:
                notes.append(
                    f"no pipeline_parallel_layers_per_stage makes {layout.model_chunks} parts of "
                    f"{model.n_layers} layers: write module_fqns_per_model_part"
                )
            else:
                parallelism["pipeline_parallel_layers_per_stage"] = each
    if any(isinstance(layer.feed, Experts) for layer, _ in model.stacks):
        parallelism["expert_parallel_degree"] = layout.ep
        if layout.expert_tp > 1:
            notes.append(
                "experts cut by tensor parallelism: torchtitan before 0.3 only, "
                f"--parallelism.expert_tensor_parallel_degree {layout.expert_tp}"
            )
    flags = [
        *(f"--training.{name} {value}" for name, value in training.items()),
        *(f"--parallelism.{name} {value}" for name, value in parallelism.items()),
        "--compile.enable",
    ]
    if layout.tp_comm_overlap:
        flags.append("--compile.enable_async_tensor_parallel")
        notes.append("before 0.3: --parallelism.enable_async_tensor_parallel")
    flags.append(f"activation-checkpoint:{layout.recompute}")  # a subcommand: it comes last
    notes.append(
        f"before 0.3: --activation_checkpoint.mode {layout.recompute} for "
        f"activation-checkpoint:{layout.recompute}"
    )
    if layout.dtype == "float8":
        notes.append("float8: add the Float8LinearConverter to the model's converters")
    return Emission(text=" \\\n".join(flags) + "\n", notes=tuple(notes))


def layers_per_stage(layout: Layout, model: Model) -> int | None:
    """The number of layers from which torchtitan makes as many parts as the layout has (it rounds
    their quotient up); None where no number does."""
    total, parts = model.n_layers + ENDS, layout.model_chunks
    each = -(-total // parts)
    return each if -(-total // each) == parts else None
