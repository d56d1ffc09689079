"""What is emitted is read by the frameworks' own code, where it is installed.

None of them is needed for the other tests: `pip install --no-deps megatron-core torchtitan
deepspeed` and what they import (tyro, spmd_types; hjson, einops, msgpack, psutil, py-cpuinfo).
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, make_dataclass, replace
from typing import Any

import pytest

import commsim
from commsim.planning.emission import emit
from commsim.planning.space import Space, layouts
from commsim.workload.layout import Layout
from tests.planning.option_names import MEGATRON

pytestmark = pytest.mark.filterwarnings("ignore")  # theirs, not ours
WORDS = {"fp8-format": "fp8"}  # a flag that is not called as its field


def planned(
    framework: str, model: commsim.Model, cluster: commsim.Cluster
) -> Iterator[tuple[Layout, list[str]]]:
    where = replace(cluster, nodes=1)
    space = Space(model=model, cluster=where, global_batch=16, seq_len=2048, framework=framework)
    for layout in list(layouts(space))[::9]:
        text = emit(framework, layout, model, where).text
        yield layout, shlex.split(text.replace("\\\n", " "))


def test_megatron_core_has_a_field_for_each_flag() -> None:
    config = pytest.importorskip("megatron.core.transformer.transformer_config")
    ddp = pytest.importorskip("megatron.core.distributed")
    known = {f.name for f in fields(config.TransformerConfig)}
    known |= {f.name for f in fields(ddp.DistributedDataParallelConfig)}
    for flag, source in MEGATRON.items():
        if source.startswith("megatron-core") and "calculator" not in source:
            assert WORDS.get(flag, flag.replace("-", "_")) in known, flag


def test_torchtitans_parser_takes_the_flags(model: commsim.Model, cluster: commsim.Cluster) -> None:
    tyro = pytest.importorskip("tyro")
    configs = pytest.importorskip("torchtitan.config.configs")
    checkpoint = pytest.importorskip("torchtitan.distributed.activation_checkpoint")
    job = make_dataclass(
        "Job",
        [
            ("training", configs.TrainingConfig, field(default_factory=configs.TrainingConfig)),
            (
                "parallelism", configs.ParallelismConfig,
                field(default_factory=configs.ParallelismConfig),
            ),
            (
                "activation_checkpoint", checkpoint.ActivationCheckpointingConfig,
                field(default_factory=checkpoint.SelectiveAC.Config),
            ),
            ("compile", configs.CompileConfig, field(default_factory=configs.CompileConfig)),
        ],
    )  # fmt: skip
    policies = {
        "none": type(None), "full": checkpoint.FullAC.Config,
        "selective": checkpoint.SelectiveAC.Config,
    }  # fmt: skip
    for layout, words in planned("torchtitan", model, cluster):
        found = tyro.cli(job, args=words)
        assert found.parallelism.tensor_parallel_degree == layout.tp
        assert found.parallelism.pipeline_parallel_degree == layout.pp
        assert found.training.seq_len == layout.seq_len
        assert found.compile.enable_async_tensor_parallel == layout.tp_comm_overlap
        assert type(found.activation_checkpoint) is policies[layout.recompute]


@dataclass
class Replicas:
    """What DeepSpeed asks of Megatron's parallel state."""

    count: int

    def get_data_parallel_world_size(self) -> int:
        """Replicas."""
        return self.count


def test_deepspeed_reads_the_configuration(
    model: commsim.Model, cluster: commsim.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = pytest.importorskip("deepspeed.runtime.config")
    monkeypatch.setattr(runtime.dist, "get_rank", lambda: 0)
    where = replace(cluster, nodes=1)
    for layout, _ in planned("deepspeed", model, cluster):
        config: dict[str, Any] = json.loads(emit("deepspeed", layout, model, where, 2e7).text)
        found = runtime.DeepSpeedConfig(config, mpu=Replicas(layout.dp))
        assert found.zero_config.stage == layout.zero_stage
        assert found.zero_config.reduce_bucket_size == 20_000_000
        assert found.train_micro_batch_size_per_gpu == layout.micro_batch
        assert found.gradient_accumulation_steps == layout.micro_batches
