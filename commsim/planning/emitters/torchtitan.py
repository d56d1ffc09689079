"""A torchtitan job's TOML; the same names are flags (--parallelism.tensor_parallel_degree 8)."""

from __future__ import annotations

from collections.abc import Mapping

from commsim.planning.emission import Emission
from commsim.topology.cluster import Cluster
from commsim.workload.layer import Experts
from commsim.workload.layout import Layout
from commsim.workload.model import Model

OF = ("torchtitan",)
SCHEDULES = {"1f1b": "1F1B", "gpipe": "GPipe"}


def emit(layout: Layout, model: Model, cluster: Cluster) -> Emission:
    """Tables of the job's file that the layout decides."""
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
            "pipeline_parallel_layers_per_stage": -(-(model.n_layers + 2) // layout.model_chunks),
        }
    if any(isinstance(layer.feed, Experts) for layer, _ in model.stacks):
        parallelism["expert_parallel_degree"] = layout.ep
        if layout.expert_tp > 1:
            parallelism["expert_tensor_parallel_degree"] = layout.expert_tp
            notes.append("expert_tensor_parallel_degree: torchtitan before 0.3 only")
    compile_: dict[str, object] = {"enable": True}
    tables: dict[str, Mapping[str, object]] = {
        "training": training,
        "parallelism": parallelism,
        "activation_checkpoint": {"mode": layout.recompute},
        "compile": compile_,
    }
    if layout.tp_comm_overlap:
        compile_["enable_async_tensor_parallel"] = True
        notes.append("enable_async_tensor_parallel: before torchtitan 0.3 under [parallelism]")
    if layout.recompute != "none":
        notes.append(
            "activation_checkpoint: torchtitan 0.3 sets it in Python, FullAC.Config() or "
            "SelectiveAC.Config()"
        )
    if layout.dtype == "float8":
        notes.append("float8: add the Float8Linear converter to the model")
    text = "\n".join(
        f"[{name}]\n" + "".join(f"{key} = {_toml(value)}\n" for key, value in table.items())
        for name, table in tables.items()
    )
    return Emission(text=text, notes=tuple(notes))


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)
