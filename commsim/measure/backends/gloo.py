"""Gloo on CPUs, through torch.distributed."""

from __future__ import annotations

from commsim.measure.backend import Backend, Offers
from commsim.measure.forms import TORCH_FORMS, TORCH_INSTALL
from commsim.measure.rendezvous import Place
from commsim.units import Seconds

OFFERS = Offers(
    forms=TORCH_FORMS,
    # what ProcessGroupGloo's GENERATE_ALL_TYPES switches over (torch 2.13)
    reduces=frozenset({"int8", "uint8", "int32", "int64", "float16", "bfloat16", "float32",
                       "float64"}),
    reduce_ops=frozenset({"sum", "prod", "min", "max"}),
    packages=("torch",),
    install=TORCH_INSTALL,
)  # fmt: skip
MOVES = OFFERS.reduces


def join(place: Place, timeout: Seconds) -> Backend:
    """This process as one of Gloo's ranks; raises ImportError without torch."""
    import torch

    from commsim.measure.devices.torch_host import TorchHost
    from commsim.measure.torch_backend import TorchBackend

    version = str(torch.__version__)
    versions = {"gloo": version, "torch": version}
    return TorchBackend("gloo", place, timeout, TorchHost(), MOVES, versions)
