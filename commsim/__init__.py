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
    from commsim.calibration.calibration import calibrate
    from commsim.collectives.collective import Collective
    from commsim.collectives.program import from_function
    from commsim.collectives.verify import verify
    from commsim.cost.profile import Profile
    from commsim.diagnosis.examination import diagnose
    from commsim.diagnosis.findings import Findings, Hypothesis
    from commsim.engine.conditions import Conditions, Jitter, LinkFault, Traffic
    from commsim.engine.timeline import Timeline
    from commsim.errors import (
        CalibrationError,
        CollectiveError,
        CommsimError,
        ConditionError,
        DiagnosisError,
        LayoutError,
        LibraryError,
        ModelError,
        PlanError,
        ProfileError,
        ScheduleError,
        SpecError,
        TimeLimitError,
        UnitError,
        UnknownNameError,
        UnreachableError,
    )
    from commsim.libraries.gloo import Gloo
    from commsim.libraries.library import Candidate, Choice, Library
    from commsim.libraries.mpi import Mpi
    from commsim.libraries.nccl.nccl import Nccl
    from commsim.libraries.rccl import Rccl
    from commsim.measurements.measurement import Measurement
    from commsim.measurements.nccl_log import read_nccl_log
    from commsim.measurements.reading import read_measurements
    from commsim.planning.plans import Plans, plan
    from commsim.prediction import Alternative, Prediction, predict
    from commsim.simulation import simulate
    from commsim.topology.cluster import Cluster, Fabric
    from commsim.topology.load import load_cluster
    from commsim.workload.inference import InferencePrediction, predict_inference
    from commsim.workload.layout import Layout
    from commsim.workload.load import load_model
    from commsim.workload.model import Model
    from commsim.workload.simulated_step import StepTimeline, simulate_step
    from commsim.workload.step import StepPrediction, predict_step

__version__ = "0.1.0"

_HOMES = {
    "Alternative": "commsim.prediction",
    "CalibrationError": "commsim.errors",
    "Candidate": "commsim.libraries.library",
    "Choice": "commsim.libraries.library",
    "Cluster": "commsim.topology.cluster",
    "Collective": "commsim.collectives.collective",
    "CollectiveError": "commsim.errors",
    "CommsimError": "commsim.errors",
    "ConditionError": "commsim.errors",
    "Conditions": "commsim.engine.conditions",
    "DiagnosisError": "commsim.errors",
    "Fabric": "commsim.topology.cluster",
    "Findings": "commsim.diagnosis.findings",
    "Gloo": "commsim.libraries.gloo",
    "Hypothesis": "commsim.diagnosis.findings",
    "InferencePrediction": "commsim.workload.inference",
    "Jitter": "commsim.engine.conditions",
    "Layout": "commsim.workload.layout",
    "LayoutError": "commsim.errors",
    "Library": "commsim.libraries.library",
    "LibraryError": "commsim.errors",
    "LinkFault": "commsim.engine.conditions",
    "Measurement": "commsim.measurements.measurement",
    "Model": "commsim.workload.model",
    "ModelError": "commsim.errors",
    "Mpi": "commsim.libraries.mpi",
    "Nccl": "commsim.libraries.nccl.nccl",
    "PlanError": "commsim.errors",
    "Plans": "commsim.planning.plans",
    "Prediction": "commsim.prediction",
    "Profile": "commsim.cost.profile",
    "ProfileError": "commsim.errors",
    "Rccl": "commsim.libraries.rccl",
    "ScheduleError": "commsim.errors",
    "SpecError": "commsim.errors",
    "StepPrediction": "commsim.workload.step",
    "StepTimeline": "commsim.workload.simulated_step",
    "TimeLimitError": "commsim.errors",
    "Timeline": "commsim.engine.timeline",
    "Traffic": "commsim.engine.conditions",
    "UnitError": "commsim.errors",
    "UnknownNameError": "commsim.errors",
    "UnreachableError": "commsim.errors",
    "calibrate": "commsim.calibration.calibration",
    "diagnose": "commsim.diagnosis.examination",
    "from_function": "commsim.collectives.program",
    "load_cluster": "commsim.topology.load",
    "load_model": "commsim.workload.load",
    "plan": "commsim.planning.plans",
    "predict": "commsim.prediction",
    "predict_inference": "commsim.workload.inference",
    "predict_step": "commsim.workload.step",
    "read_measurements": "commsim.measurements.reading",
    "read_nccl_log": "commsim.measurements.nccl_log",
    "simulate": "commsim.simulation",
    "simulate_step": "commsim.workload.simulated_step",
    "verify": "commsim.collectives.verify",
}

__all__ = [
    "Alternative",
    "CalibrationError",
    "Candidate",
    "Choice",
    "Cluster",
    "Collective",
    "CollectiveError",
    "CommsimError",
    "ConditionError",
    "Conditions",
    "DiagnosisError",
    "Fabric",
    "Findings",
    "Gloo",
    "Hypothesis",
    "InferencePrediction",
    "Jitter",
    "Layout",
    "LayoutError",
    "Library",
    "LibraryError",
    "LinkFault",
    "Measurement",
    "Model",
    "ModelError",
    "Mpi",
    "Nccl",
    "PlanError",
    "Plans",
    "Prediction",
    "Profile",
    "ProfileError",
    "Rccl",
    "ScheduleError",
    "SpecError",
    "StepPrediction",
    "StepTimeline",
    "TimeLimitError",
    "Timeline",
    "Traffic",
    "UnitError",
    "UnknownNameError",
    "UnreachableError",
    "calibrate",
    "diagnose",
    "from_function",
    "load_cluster",
    "load_model",
    "plan",
    "predict",
    "predict_inference",
    "predict_step",
    "read_measurements",
    "read_nccl_log",
    "simulate",
    "simulate_step",
    "verify",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'commsim' has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
