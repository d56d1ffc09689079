"""Low-rank adapters: small trained matrices beside frozen ones."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Lora:
    """LoRA (Hu et al. 2021, arXiv:2106.09685): W x + B A x with A of rank x in, B of out x rank.

    targets: names of the linear layers it adapts, as PEFT's target_modules ("q_proj", "v_proj"), or
    "all-linear".
    """

    rank: int
    targets: tuple[str, ...] = ("q_proj", "v_proj")
