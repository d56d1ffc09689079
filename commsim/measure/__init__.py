"""The harness: the same Collective for real, through torch.distributed (NCCL, Gloo) or MPI."""
