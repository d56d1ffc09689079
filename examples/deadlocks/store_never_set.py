"""Rank 0 waits for a key of the store that nobody sets."""

import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 0:
    store = dist.distributed_c10d._get_default_store()
    store.wait(["ready"])
dist.barrier()
