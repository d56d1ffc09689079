"""In which forms a library offers an operation: True is in place, False out of place."""

from __future__ import annotations

OUT, IN, BOTH = (False,), (True,), (False, True)

# torch.distributed's all_reduce, broadcast and reduce have one tensor, so they are in place only.
TORCH_FORMS = {
    "all_reduce": IN, "broadcast": IN, "reduce": IN, "all_gather": BOTH, "reduce_scatter": BOTH,
    "gather": BOTH, "scatter": BOTH, "all_to_all": OUT, "send_recv": OUT, "barrier": OUT,
}  # fmt: skip
# MPI_IN_PLACE. An in-place reduce_scatter of MPI leaves its result at the front of the buffer, not
# where it belongs as NCCL's does, so it is left out.
MPI_FORMS = {
    "all_reduce": BOTH, "broadcast": IN, "reduce": BOTH, "all_gather": BOTH,
    "reduce_scatter": OUT, "gather": BOTH, "scatter": BOTH, "all_to_all": OUT, "send_recv": OUT,
    "barrier": OUT,
}  # fmt: skip
TORCH_INSTALL = "install it with: pip install torch"
