"""How a model's work is spread over the ranks of a cluster."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One parallel layout, in the words of Megatron and torchtitan.

    tp, pp, dp, cp: ranks of tensor, pipeline, data and context parallelism; their product is the
    number of ranks. ep: ranks over which experts are spread, taken out of the others of a stage;
    etp: tensor parallelism inside an expert (None: as tp). micro_batch: sequences one replica works
    on at a time; global_batch: sequences of one step; seq_len: tokens of a sequence.
    schedule: of the pipeline; interleave: model chunks of each stage. zero_stage: 1 shards
    optimizer states, 2 gradients too, 3 parameters too (FSDP); hsdp: ranks of a shard group (None:
    all data-parallel). recompute: "none", "selective" (the attention core) or "full".
    sequence_parallel means nothing where tp is 1. order: dimensions of the rank numbers, the
    fastest first; placement: the rank that takes each of these places (None: as they are numbered).
    """

    tp: int = 1
    pp: int = 1
    dp: int = 1
    cp: int = 1
    ep: int = 1
    etp: int | None = None
    micro_batch: int = 1
    global_batch: int = 1
    seq_len: int = 2048
    dtype: str = "bfloat16"
    schedule: str = "1f1b"
    interleave: int = 1
    zero_stage: int = 1
    hsdp: int | None = None
    recompute: str = "none"
    sequence_parallel: bool = True
    overlap_grad_reduce: bool = True
    overlap_param_gather: bool = True
    tp_comm_overlap: bool = False
    framework: str = "megatron"
    order: str = "tp-cp-ep-dp-pp"
    placement: tuple[int, ...] | None = None

    @property
    def world(self) -> int:
        """Ranks in all."""
        return self.tp * self.cp * self.dp * self.pp

    @property
    def micro_batches(self) -> int:
        """Micro-batches of one replica in a step."""
        return self.global_batch // (self.dp * self.micro_batch)

    @property
    def expert_tp(self) -> int:
        """Ranks of tensor parallelism inside an expert."""
        return self.tp if self.etp is None else self.etp

    @property
    def model_chunks(self) -> int:
        """Parts the model is cut into: stages times chunks of each."""
        return self.pp * self.interleave
