"""A rank of Gloo that spoils one element of each result on rank 1, for test_run."""

from __future__ import annotations

import os
import sys
from typing import Any

import torch.distributed as dist

from commsim.cli.main import main

real = dist.all_reduce


def spoilt(tensor: Any, *arguments: Any) -> Any:
    work = real(tensor, *arguments)
    if os.environ["RANK"] == "1":
        tensor[5] += 1
    return work


dist.all_reduce = spoilt
sys.argv = ["commsim", "measure", "all_reduce", "--backend", "gloo", "-b", "4K", "-e", "4K",
            "-n", "2", "-w", "0"]  # fmt: skip
sys.exit(main())
