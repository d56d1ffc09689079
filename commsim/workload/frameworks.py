"""What each training framework does in a step that a layout does not say.

Facts of the frameworks' own code and documents; the times come from elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from commsim.errors import UnknownNameError
from commsim.workload.layout import Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """stack: whose kernels it runs. grad_bytes: of one exchanged gradient element. async_dgrad: the
    tensor-parallel reduction of an input's gradient runs beside the weight's product. regathers:
    so it does with sequence parallelism, and inputs are gathered once more in backward, beside the
    product by the input; else gathered inputs are kept, and nothing runs beside compute.
    fused_attention: no map of scores is written to memory. eager: element-wise kernels are not
    fused. optimizer_bytes: read and written by one optimizer step for each parameter: gradient
    (twice, for its norm), two moments, main weight, weight. gathers: collectives for one layer of
    ZeRO-3; where there are several, they are of lists of tensors and pass at no more than one rate
    (the profile's `listed`). summing_bytes: read and written in each micro-batch for each
    parameter, to add its gradient to the sum or to copy it where it is sent from, and weights to
    where products read them. one_copy: a token goes to another machine once, however many of its
    experts are there (else once for each expert). waits: the host waits for the GPU's kernels and
    does not run ahead of it.
    """

    stack: str
    grad_bytes: int = 4
    async_dgrad: bool = True
    fused_attention: bool = True
    eager: bool = False
    optimizer_bytes: int = 34
    gathers: int = 1
    summing_bytes: int = 8
    one_copy: bool = False
    regathers: bool = True
    waits: bool = False


_FRAMEWORKS = {
    # The weight's product adds to a 32-bit sum: read and written (gradient_accumulation_fusion,
    # megatron-core 0.16.1, tensor_parallel/layers.py).
    # Tokens go to experts by its flex dispatcher, whose backend is DeepEP (transformer_config.py).
    "megatron": Framework(stack="megatron-core", one_copy=True),
    # Its recipes for speed sum and exchange in bf16 (nemo-toolkit 2.0.0,
    # collections/llm/recipes/llama3_70b.py: grad_reduce_in_fp32 = False; elsewhere it is True);
    # megatron-core of then (0.8) has no flex dispatcher.
    "nemo": Framework(stack="megatron-core", grad_bytes=2, summing_bytes=4),
    # autograd adds 16-bit gradients: two read, one written.
    "deepspeed": Framework(stack="megatron-2021", grad_bytes=2, async_dgrad=False, summing_bytes=6),
    # FSDP1 casts gradients to the type they are reduced in (torch 2.13, fsdp/_runtime_utils.py).
    # Tensor parallelism by DTensor: each redistribution is waited for, and what autograd saves is
    # the gathered input (torch 2.13, distributed/tensor/parallel/style.py).
    "fsdp": Framework(stack="fsdp", summing_bytes=6, async_dgrad=False, regathers=False),
    # FSDP2 also copies gathered weights out, forward and backward (torch 2.13,
    # fsdp/_fully_shard/_fsdp_collectives.py: split_with_sizes_copy, chunk_cat).
    "torchtitan": Framework(
        stack="torchtitan", summing_bytes=14, async_dgrad=False, regathers=False
    ),
    # autocast casts weights (6) and their gradients back (6); buckets are copied to (8).
    "ddp": Framework(stack="ddp", eager=True, summing_bytes=20),
    "other": Framework(stack="other", summing_bytes=6),
}
BF16_OPTIMIZER = 18
"""summing_bytes of DeepSpeed's BF16_Optimizer: cast to 32 bit (read 2, write 4), added (read 8,
write 4) (DeepSpeed 0.6.5, runtime/bf16_optimizer.py, update_hp_grads)."""


@lru_cache(maxsize=64)
def _framework(name: str, dtype: str, zero_stage: int, cut: bool) -> Framework:
    found = _FRAMEWORKS.get(name)
    if found is None:
        raise UnknownNameError("layout: framework", name, _FRAMEWORKS)
    if name == "deepspeed" and dtype == "bfloat16" and zero_stage == 1:
        found = replace(found, summing_bytes=BF16_OPTIMIZER)
    if name == "deepspeed" and cut:
        found = replace(found, fused_attention=False, waits=True)
    if dtype != "float16":
        return found
    found = replace(found, fused_attention=False)
    if name == "megatron":
        found = replace(
            found, stack="megatron-2021", grad_bytes=2, async_dgrad=False, summing_bytes=6,
            one_copy=False,
        )  # fmt: skip
    if zero_stage == 3 and found.stack == "megatron-2021":
        found = replace(found, gathers=4)
    return found


def framework(layout: Layout) -> Framework:
    """The framework of a layout. Raises UnknownNameError.

    float16 is taken for the code of before 2022, when bfloat16 and FlashAttention (Dao et al.,
    arXiv:2205.14135) came into use: scores go through memory; Megatron and DeepSpeed exchange
    gradients in 16 bit after the backward products; ZeRO-3 gathers one matrix after the other.
    DeepSpeed with tensor or pipeline parallelism is Megatron-DeepSpeed, of the same years, whose
    engine goes through a schedule's instructions one by one (0.6.5, runtime/pipe/engine.py).
    """
    cut = layout.tp * layout.pp > 1
    return _framework(layout.framework, layout.dtype, layout.zero_stage, cut)
