"""What stands before a model's first layer and after its last: compute, and what ranks send for it.

Tensor parallelism cuts both ends by vocabulary (Shoeybi et al., arXiv:1909.08053, section 3):

    embedding   each rank looks up the tokens it has; the rows are summed: an all_reduce, or with
                sequence parallelism a reduce_scatter, and backward an all_gather
    head        a column-parallel product: backward an all_reduce, or with sequence parallelism an
                all_gather before it and, backward, what a layer's first products send

Ignored: the loss's own messages, three numbers a token. Never recomputed, never in 8 bit.
"""

from __future__ import annotations

from dataclasses import replace

from commsim.workload import operations, passes
from commsim.workload.layouts.shares import Share
from commsim.workload.model import Model
from commsim.workload.operations import Work
from commsim.workload.passes import Pass, Sent, Setting

Sents = tuple[Sent, ...]


def of_work(work: Work, s: Setting, share: Share) -> tuple[Pass, Pass]:
    """Forward and backward of work outside the layers, without messages."""
    plain = replace(s, narrow=False)
    back = operations.backward(work)
    summed = passes.summing(share.trained, s)
    weight = passes.products(tuple(p for p in back.matmuls if p.of_weight), plain)
    return (
        Pass(passes.seconds(work, plain, backward=False)),
        Pass(passes.seconds(back, plain, backward=True) + summed, weight=weight + summed.traffic),
    )


def embedding(model: Model, s: Setting, share: Share) -> tuple[Pass, Pass]:
    """Forward and backward of looking up the tokens."""
    ahead, back = of_work(operations.embedding(model, s.shape), s, share)
    if s.shape.tp == 1:
        return ahead, back
    plain = replace(s, narrow=False)
    if not s.shape.sequence_parallel:
        return replace(ahead, sent=(_shown("all_reduce", plain),)), back
    return (
        replace(ahead, sent=(_shown("reduce_scatter", plain),)),
        replace(back, sent=(_shown("all_gather", plain),)),
    )


def head(model: Model, s: Setting, share: Share) -> tuple[Pass, Pass]:
    """Forward and backward of the projection to the vocabulary and the loss."""
    work = operations.head(model, s.shape)
    ahead, back = of_work(work, s, share)
    if s.shape.tp == 1 or not work.matmuls:
        return ahead, back
    plain = replace(s, narrow=False)
    if s.shape.sequence_parallel:
        ahead = replace(ahead, sent=(_shown("all_gather", plain),))
    return ahead, replace(back, sent=_backward(passes.products(work.matmuls, plain), plain))


def _shown(operation: str, s: Setting, beside: float = 0.0) -> Sent:
    m = passes.tensor_message(operation, s)
    return Sent("tp", m, passes.beside(m.duration, beside, s) if beside else m.duration)


def _backward(product: float, s: Setting) -> Sents:
    f = s.framework
    weights = product if not (s.frozen or s.split) else 0.0
    if not s.shape.sequence_parallel:
        return (_shown("all_reduce", s, weights if f.async_dgrad else 0.0),)
    scatter = _shown("reduce_scatter", s, weights if f.regathers else 0.0)
    if f.regathers and not s.frozen:
        return _shown("all_gather", s, product), scatter
    return (scatter,)
