"""commsim predicts what GPU communication costs.

    import commsim

    cluster = commsim.load_cluster("dgx-h100", nodes=4)
    collective = commsim.Collective("all_reduce", nbytes=1 << 30)
    print(commsim.predict(collective, cluster).duration)  # seconds

The names load when they are first used, so that `import commsim` itself costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from commsim.collectives.collective import Collective
    from commsim.collectives.verify import verify
    from commsim.errors import (
        CollectiveError,
        CommsimError,
        LibraryError,
        ProfileError,
        ScheduleError,
        SpecError,
        UnitError,
        UnknownNameError,
        UnreachableError,
    )
    from commsim.libraries.gloo import Gloo
    from commsim.libraries.library import Candidate, Choice, Library
    from commsim.libraries.mpi import Mpi
    from commsim.libraries.nccl.nccl import Nccl
    from commsim.libraries.rccl import Rccl
    from commsim.prediction import Alternative, Prediction, predict
    from commsim.topology.cluster import Cluster, Fabric
    from commsim.topology.load import load_cluster

__version__ = "0.1.0"

_HOMES = {
    "Alternative": "commsim.prediction",
    "Candidate": "commsim.libraries.library",
    "Choice": "commsim.libraries.library",
    "Cluster": "commsim.topology.cluster",
    "Collective": "commsim.collectives.collective",
    "CollectiveError": "commsim.errors",
    "CommsimError": "commsim.errors",
    "Fabric": "commsim.topology.cluster",
    "Gloo": "commsim.libraries.gloo",
    "Library": "commsim.libraries.library",
    "LibraryError": "commsim.errors",
    "Mpi": "commsim.libraries.mpi",
    "Nccl": "commsim.libraries.nccl.nccl",
    "Prediction": "commsim.prediction",
    "ProfileError": "commsim.errors",
    "ScheduleError": "commsim.errors",
    "Rccl": "commsim.libraries.rccl",
    "SpecError": "commsim.errors",
    "UnitError": "commsim.errors",
    "UnknownNameError": "commsim.errors",
    "UnreachableError": "commsim.errors",
    "load_cluster": "commsim.topology.load",
    "predict": "commsim.prediction",
    "verify": "commsim.collectives.verify",
}

__all__ = [
    "Alternative",
    "Candidate",
    "Choice",
    "Cluster",
    "Collective",
    "CollectiveError",
    "CommsimError",
    "Fabric",
    "Gloo",
    "Library",
    "LibraryError",
    "Mpi",
    "Nccl",
    "Prediction",
    "ProfileError",
    "Rccl",
    "ScheduleError",
    "SpecError",
    "UnitError",
    "UnknownNameError",
    "UnreachableError",
    "load_cluster",
    "predict",
    "verify",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'commsim' has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
