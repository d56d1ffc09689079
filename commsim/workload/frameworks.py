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
    tensor-parallel reduction of an input's gradient runs beside the weight's product.
    fused_attention: no map of scores is written to memory. eager: element-wise kernels are not
    fused. optimizer_bytes: read and written by one optimizer step for each parameter: gradient
    (twice, for its norm), two moments, main weight, weight. gathers: collectives for one layer of
    ZeRO-3; where there are several, each is waited for.
    """

    stack: str
    grad_bytes: int = 4
    async_dgrad: bool = True
    fused_attention: bool = True
    eager: bool = False
    optimizer_bytes: int = 34
    gathers: int = 1


_FRAMEWORKS = {
    "megatron": Framework(stack="megatron-core"),
    "nemo": Framework(stack="megatron-core", grad_bytes=2),
    "deepspeed": Framework(stack="megatron-2021", grad_bytes=2, async_dgrad=False),
    "fsdp": Framework(stack="fsdp"),
    "torchtitan": Framework(stack="torchtitan"),
    "ddp": Framework(stack="ddp", eager=True),
    "other": Framework(stack="other"),
}


@lru_cache(maxsize=64)
def _framework(name: str, half: bool, sharded: bool) -> Framework:
    found = _FRAMEWORKS.get(name)
    if found is None:
        raise UnknownNameError("layout: framework", name, _FRAMEWORKS)
    if not half:
        return found
    found = replace(found, fused_attention=False)
    if name == "megatron":
        found = replace(found, stack="megatron-2021", grad_bytes=2, async_dgrad=False)
    if sharded and found.stack == "megatron-2021":
        found = replace(found, gathers=4)
    return found


def framework(layout: Layout) -> Framework:
    """The framework of a layout. Raises UnknownNameError.

    float16 is taken for the code of before 2022, when bfloat16 and FlashAttention (Dao et al.,
    arXiv:2205.14135) came into use: scores go through memory; Megatron and DeepSpeed exchange
    gradients in 16 bit after the backward products; ZeRO-3 gathers one matrix after the other.
    """
    return _framework(layout.framework, layout.dtype == "float16", layout.zero_stage == 3)
