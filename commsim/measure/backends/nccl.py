"""NCCL on GPUs, through torch.distributed; RCCL where torch is built for ROCm."""

from __future__ import annotations

from commsim.errors import MeasureError
from commsim.measure.backend import Backend, Offers
from commsim.measure.forms import TORCH_FORMS, TORCH_INSTALL
from commsim.measure.rendezvous import Place
from commsim.units import Seconds

# What torch's ncclDataType map holds (torch 2.13); NCCL reduces fp8 from 2.24 on.
OFFERS = Offers(
    forms=TORCH_FORMS,
    reduces=frozenset({"int8", "uint8", "int32", "int64", "float16", "bfloat16", "float32",
                       "float64", "float8_e4m3fn", "float8_e5m2"}),
    reduce_ops=frozenset({"sum", "prod", "min", "max", "avg"}),
    packages=("torch",),
    install=TORCH_INSTALL + " for CUDA",
)  # fmt: skip
MOVES = OFFERS.reduces


def join(place: Place, timeout: Seconds) -> Backend:
    """This process as one of NCCL's ranks; raises ImportError without torch, MeasureError without
    a GPU for it."""
    import torch
    import torch.cuda.nccl

    if not torch.cuda.is_available() or not torch.distributed.is_nccl_available():
        raise MeasureError(
            "--backend nccl: expected an NVIDIA or AMD GPU and a torch built for it, got torch "
            f"{torch.__version__} with {torch.cuda.device_count()} GPUs; use --backend gloo here"
        )
    gpu = index(place, torch.cuda.device_count())

    from commsim.measure.devices.cuda import Cuda
    from commsim.measure.torch_backend import TorchBackend

    number: tuple[int | str, ...] = torch.cuda.nccl.version()  # type: ignore[no-untyped-call]
    version = ".".join(map(str, number[:3]))  # some builds have a suffix as the fourth
    of = {"rccl": version, "rocm": str(torch.version.hip)} if torch.version.hip else {
        "nccl": version, "cuda": str(torch.version.cuda)}  # fmt: skip
    versions = of | {"torch": str(torch.__version__)}
    return TorchBackend("nccl", place, timeout, Cuda(gpu), MOVES, versions, gpu)


def index(place: Place, here: int) -> int:
    """This rank's GPU of the `here` that its process sees: as many as ranks, or the one that srun
    or mpiexec bound it to. Raises MeasureError."""
    if here == 1 and place.launcher in ("srun", "mpiexec"):
        return 0
    if place.local_rank >= here:
        raise MeasureError(
            f"--backend nccl: expected a GPU for each rank of a machine, got {here} GPUs and local "
            f"rank {place.local_rank}; start fewer ranks"
        )
    return place.local_rank
