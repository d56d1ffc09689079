"""PyTorch code for FSDP2: the mesh, `fully_shard` for every layer and the model, its policy."""

from __future__ import annotations

from commsim.planning.emission import Emission
from commsim.topology.cluster import Cluster
from commsim.workload.layout import Layout
from commsim.workload.model import Model

OF = ("fsdp",)
HEAD = """import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
"""
BODY = """

mesh = init_device_mesh("cuda", {shape}, mesh_dim_names={names})
policy = MixedPrecisionPolicy(param_dtype={dtype}, reduce_dtype=torch.float32)
accumulation_steps = {steps}  # {micro} sequences of {seq_len} tokens each


def shard(model: torch.nn.Module, layers: list[torch.nn.Module]) -> None:
    for layer in layers:
{checkpoint}        fully_shard(layer, mesh=mesh, reshard_after_forward={reshard}, mp_policy=policy)
    fully_shard(model, mesh=mesh, reshard_after_forward={reshard}, mp_policy=policy)
"""


def emit(layout: Layout, model: Model, cluster: Cluster, bucket: float | None = None) -> Emission:
    """A module that shards a model as the layout says."""
    full = layout.recompute != "none"
    shard = layout.hsdp or layout.dp
    whole = shard == layout.dp
    extra = "from torch.distributed._composable import checkpoint\n" if full else ""
    names = '("shard",)' if whole else '("replicate", "shard")'
    text = HEAD + extra + BODY.format(
        shape=f"({shard},)" if whole else f"({layout.dp // shard}, {shard})", names=names,
        dtype="torch.float32" if layout.dtype == "float32" else "torch.bfloat16",
        steps=layout.micro_batches, micro=layout.micro_batch, seq_len=layout.seq_len,
        checkpoint="        checkpoint(layer)\n" if full else "",
        reshard=layout.zero_stage == 3,
    )  # fmt: skip
    notes = []
    if layout.recompute == "selective":
        notes.append("selective: give `checkpoint` a context_fn with a policy of saved operations")
    return Emission(text=text, notes=tuple(notes))
