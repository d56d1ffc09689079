"""Training that survives: a step that raises is retried from the last snapshot, on all ranks."""

import os
import tempfile
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record


@record
def main():
    dist.init_process_group(backend="gloo", init_method="env://", timeout=timedelta(seconds=30))
    rank = dist.get_rank()
    assert dist.is_torchelastic_launched() or "TORCHELASTIC_RUN_ID" not in os.environ
    restarts = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))
    path = [os.path.join(tempfile.mkdtemp(), "snapshot.pt") if rank == 0 else None]
    dist.broadcast_object_list(path, src=0)
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step, failed = 0, False
    while step < 4:
        try:
            if step == 2 and not failed:
                failed = True
                raise RuntimeError("data is corrupt")
            torch.manual_seed(10 * step + rank)
            loss = model(torch.randn(8, 4)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if rank == 0:
                torch.save({"model": model.state_dict(), "step": step}, path[0])
                print(f"step {step} loss {loss.item():.6f} restarts {restarts}")
            dist.barrier()
            step += 1
        except RuntimeError as error:
            if "corrupt" not in str(error):
                raise
            snapshot = torch.load(path[0], map_location="cpu", weights_only=True)
            model.load_state_dict(snapshot["model"])
            step = snapshot["step"] + 1
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
