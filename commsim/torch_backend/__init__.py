"""A backend of torch.distributed whose network is a simulated cluster.

    import commsim.torch_backend
    torch.distributed.init_process_group("commsim")

makes the backend known; `commsim run --cluster dgx-h100 --nodes 2 train.py` runs a script with it,
one thread per rank, real values moving between them, in the virtual time of the cluster.
"""

from __future__ import annotations

from commsim.torch_backend import private
from commsim.torch_backend.launch import Options, new_group, run
from commsim.torch_backend.run import Run
from commsim.torch_backend.timeline import write_timeline

private.register(new_group)

__all__ = ["Options", "Run", "run", "write_timeline"]
