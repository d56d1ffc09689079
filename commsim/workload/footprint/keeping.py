"""What each framework keeps in memory: of a parameter, of the logits, and besides."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf

from commsim.workload.layout import Layout

MARGIN = 0.05  # of what is allocated: torch's caching allocator, measured on torchtitan and BLOOM


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """Bytes of a parameter before sharding, and what else a framework keeps.

    weight: that products read, or that they are cast from. optimizer: main weight and Adam's two
    moments. gradient: from its backward to the step; `resident`: in a buffer that is never freed.
    accumulated: of the whole gradients, where micro-batches are summed before they are reduced (0:
    each is reduced). step: only while the optimizer steps; flat: of them, in buffers too large for
    the memory that activations left, which the allocator then holds as well. cast: of the largest
    tensor, in another type for a moment. gathered: of a weight collected from its shards, `live` of
    them at most; reduced: of a gradient on its way to its shards. logits: of an element;
    vocab_parallel: does tensor parallelism cut them. gathers_inputs: are the inputs of column-cut
    products kept whole under sequence parallelism. outputs: is a pipeline stage's output kept too;
    buffered: micro-batches for each stage of the pipeline that wait besides those of the schedule.
    besides: buffers of a fixed size, bytes. groups: communicators for each kind of group.
    shows: the figure that the framework's users see: "allocated", "reserved", or "device".
    """

    weight: float = 2
    optimizer: float = 12
    gradient: float = 4
    resident: bool = True
    accumulated: float = 0
    step: float = 0
    flat: float = 0
    cast: float = 0
    gathered: float = 0
    live: float = inf
    reduced: float = 0
    logits: float = 10
    vocab_parallel: bool = True
    gathers_inputs: bool = False
    outputs: bool = False
    buffered: int = 0
    besides: float = 0
    groups: int = 1
    margin: float = MARGIN
    shows: str = "allocated"


# bf16 weights, fp32 gradients in one buffer, fp32 main weights and moments, which the distributed
# optimizer spreads: 6 + 12 / d bytes (Megatron-LM, docs: distributed optimizer). Logits in 16 bit,
# their exponentials in fp32, which become the gradient, and that in 16 bit (megatron-core 0.16.1,
# tensor_parallel/cross_entropy.py).
_MEGATRON = Keeping(logits=8)
_KEEPING = {
    "megatron": _MEGATRON,
    # Its recipes for speed sum gradients in a buffer of bf16 (nemo-toolkit 2.0.0,
    # collections/llm/recipes/llama3_70b.py: grad_reduce_in_fp32=False).
    "nemo": replace(_MEGATRON, gradient=2),
    # 2 + 2 + 12 bytes (Rajbhandari et al., SC'20, arXiv:1910.02054, section 3.1). The step casts
    # the owned gradients to fp32 in one flat tensor, from one in fp16; two buckets of 5e8 elements
    # (reduce, all-gather); at most 1e9 parameters live in stage 3 (0.19.8, runtime/zero/config.py).
    "deepspeed": Keeping(
        gradient=2, step=6, flat=6, gathered=2, live=1e9, logits=14, besides=2 * 5e8 * 2,
    ),
    # The model in 16 bit: weights, moments, and foreach's temporaries in the step; several
    # micro-batches are summed in fp32 (reduce_dtype), unsharded as in no_sync. Logits: 16-bit, and
    # their log-softmax in fp32, measured on KempnerForge's runs.
    "fsdp": Keeping(
        optimizer=4, gradient=2, resident=False, accumulated=4, step=2, gathered=2, reduced=4,
        logits=6, vocab_parallel=False, gathers_inputs=True,
    ),
    # fp32 shards, gathered in bf16. Logits and their gradient in bf16; log-softmax, its gradient
    # and the logits' gradient in fp32: an eager cross-entropy, as before it was compiled in 2025.
    "torchtitan": Keeping(
        weight=4, optimizer=8, resident=False, gathered=2, reduced=4, logits=14,
        gathers_inputs=True, shows="reserved",
    ),
    # torch.amp: all in fp32.
    "ddp": Keeping(weight=4, optimizer=8, shows="reserved"),
    # The ZeRO paper's 2 + 2 + 12; a pipeline that buffers two micro-batches for each of its stages,
    # as OneFlow's (measured on its runs: the only pipelines of another framework).
    "other": Keeping(gradient=2, gathered=2, logits=6, buffered=2, shows="device"),
}  # fmt: skip


def keeping(layout: Layout) -> Keeping:
    """What the layout's framework keeps under that layout."""
    return _keeping(
        layout.framework, layout.dtype, layout.zero_stage,
        layout.tp, layout.pp, layout.dp > 1, layout.world == 1,
    )  # fmt: skip


@lru_cache(maxsize=4096)
def _keeping(
    framework: str, dtype: str, zero_stage: int, tp: int, pp: int, replicated: bool, alone: bool
) -> Keeping:
    found = _KEEPING[framework]
    if framework == "deepspeed" and tp * pp > 1:
        # Megatron-DeepSpeed: Megatron's loss; the pipeline holds outputs as well; its groups stand
        # beside Megatron's; its users watched nvidia-smi.
        found = replace(found, logits=10, outputs=True, groups=2, shows="device")
    if framework == "deepspeed" and dtype == "bfloat16" and zero_stage == 1:
        # BF16_Optimizer: gradients summed in whole fp32 buffers, each tensor cast on its way there,
        # those in 16 bit not given back (DeepSpeed 0.6.5, runtime/bf16_optimizer.py).
        found = replace(found, gradient=6, step=0, flat=0, cast=4)
    elif framework == "megatron" and dtype == "float16":  # of 2021: exponentials beside the logits
        found = replace(found, logits=10)
    elif framework == "fsdp" and alone:
        found = replace(found, accumulated=0)
    elif framework == "fsdp" and tp > 1:  # the whole logits and their gradient beside a rank's own
        found = replace(found, logits=found.logits + 2 + 2 / tp)
    elif framework == "torchtitan" and tp > 1:  # loss_parallel: exponentials in fp32
        found = replace(found, logits=found.logits + 4)
    elif framework == "ddp" and replicated:  # buckets beside the gradients
        found = replace(found, gradient=found.gradient + 4)
    elif framework == "other" and replicated:  # gradients fused in 16 bit, before they are reduced
        found = replace(found, gradient=found.gradient + 2)
    return _wide(found) if dtype == "float32" else found


def _wide(found: Keeping) -> Keeping:
    """The same in float32: weights are their own main copy, logits need no cast."""
    return replace(
        found, weight=4, optimizer=8, gradient=max(4.0, found.gradient), step=min(4.0, found.step),
        flat=0, cast=0, gathered=min(4.0, 2 * found.gathered), logits=max(12.0, found.logits),
    )  # fmt: skip
