"""A layout in a few words."""

from __future__ import annotations

from commsim.workload.layout import Layout


def layout_text(one: Layout) -> str:
    """`tp8 pp4 dp32 mb1 ...`: what differs from the plainest layout."""
    parts = [f"tp{one.tp}", f"pp{one.pp}", f"dp{one.dp}"]
    parts += [f"cp{one.cp}"] * (one.cp > 1) + [f"ep{one.ep}"] * (one.ep > 1)
    parts += [f"etp{one.etp}"] * (one.etp is not None) + [f"mb{one.micro_batch}"]
    parts += [f"v{one.interleave}"] * (one.interleave > 1)
    parts += [one.schedule] * (one.schedule != "1f1b")
    parts += [f"zero{one.zero_stage}"] + [f"hsdp{one.hsdp}"] * (one.hsdp is not None)
    parts += [f"recompute:{one.recompute}"] * (one.recompute != "none")
    parts += ["tp-overlap"] * one.tp_comm_overlap
    parts += ["no-grad-overlap"] * (not one.overlap_grad_reduce and one.dp > 1)
    parts += ["pp-before-dp"] * (one.order == "tp-cp-ep-pp-dp")
    return " ".join((*parts, *([one.framework] if one.framework != "megatron" else [])))
