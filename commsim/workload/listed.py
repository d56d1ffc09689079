"""What a list of parts asks of a GPU: convolutions and dense layers as matrix products.

A part whose largest tensor is (n, channels, ...) with t taps a channel (3 x 3: 9) multiplies, as an
implicit product (Chetlur et al., "cuDNN", arXiv:1410.0759, section 3.1),

    forward            (batch x pixels) x n,          inner sum over channels x t
    input's gradient   (batch x pixels) x channels,   inner sum over n x t
    weight's gradient  (channels x t) x n,            inner sum over batch x pixels

and reads and writes image, result and weights once, not the matrix that it stands for. Channels are
padded to a multiple of 8, as cuDNN does for tensor cores (NVIDIA, "Convolutional Layers User's
Guide", tensor core usage). Ignored: Winograd and FFT, and that a stride leaves gaps in the input's
gradient. All other parts are memory traffic.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from commsim.workload.layout import Layout
from commsim.workload.model import Model
from commsim.workload.operations import Matmul, Work
from commsim.workload.parts import Part

PADDED = 8
"""Channels of 16 bit that tensor cores read at a time."""
EVERY = 2.0
"""Kernels of a part: its own, and what moves its operands."""


def of_part(part: Part, batch: int, nbytes: int) -> Work:
    """One part's forward work on `batch` samples of `nbytes` an element."""
    moved = float(batch * part.moved)
    if not part.flops:
        return Work((), (), moved * nbytes, EVERY)
    weight = max(part.tensors, key=lambda tensor: tensor.numel, default=None)
    if weight is None:  # no shape is known: as square as can be
        side = (part.flops / 2) ** (1 / 3)
        return Work((Matmul(side, side, side, batch),), (), moved * nbytes, EVERY)
    n, channels, *kernel = (*weight.shape, 1)[: max(2, len(weight.shape))]
    taps, pixels = prod(kernel), part.flops / (2.0 * weight.numel)
    inner = -(-channels // PADDED) * PADDED * taps
    product = Matmul(
        batch * pixels, n, inner, narrow=False, taps=taps, elements=moved + weight.numel
    )
    return Work((product,), (), 0.0, EVERY)


def listed(model: Model, layout: Layout) -> Work:
    """The forward work of all parts of a model on one micro-batch."""
    nbytes = 4 if layout.dtype == "float32" else 2
    works = [of_part(part, layout.micro_batch, nbytes) for part in model.parts]
    products = [product for work in works for product in work.matmuls]
    if products:
        products[0] = replace(products[0], given=True)
    return Work(
        tuple(products),
        (),
        sum(work.moved for work in works),
        sum(work.launches for work in works),
    )
