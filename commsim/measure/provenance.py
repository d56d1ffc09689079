"""What a figure was measured on: machines, devices, versions, environment. Nothing is guessed."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from commsim import __version__
from commsim.measure.host import cores
from commsim.measure.plan import Plan
from commsim.measure.session import Session

# Variables that libraries read; nothing else of an environment is anyone's business.
PREFIXES = ("NCCL_", "RCCL_", "GLOO_", "TORCH_NCCL_", "TORCH_GLOO_", "MPIR_", "MPICH_", "OMPI_MCA_",
            "UCX_", "FI_", "PSM2_", "I_MPI_", "CUDA_", "HIP_", "ROCR_", "HSA_", "OMP_", "MKL_",
            "OPENBLAS_", "KMP_")  # fmt: skip
NAMES = ("SLURM_JOB_ID", "SLURM_JOB_PARTITION", "SLURM_JOB_NODELIST", "PYTORCH_CUDA_ALLOC_CONF")
QUERY = "name,driver_version,vbios_version,pci.bus_id,clocks.max.sm,power.limit,mig.mode.current"


def header(plan: Plan, session: Session) -> dict[str, Any]:
    """The first line of a run: every rank asks for it, rank 0 has it."""
    found = session.backend.gather(of_rank(session))
    ranks: list[dict[str, Any]] = [about for about, _ in found]
    hosts: dict[str, dict[str, Any]] = {}
    for about, host in found:
        hosts.setdefault(about["host"], host)
    versions = session.backend.versions()
    library, version = next(iter(versions.items()))
    return {
        "kind": "run",
        "run": plan.run,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": list(plan.command),
        "commsim": __version__,
        "library": library,
        "library_version": version,
        "versions": versions,
        "n_ranks": plan.n_ranks,
        "nodes": session.nodes(range(plan.n_ranks)),
        "settings": {
            "iterations": plan.settings.iterations,
            "warmup": plan.settings.warmup,
            "timing": "loop" if session.loops else "isolated",
            "rotate_bytes": session.rotate,
            "cudagraph": plan.settings.cudagraph,
            "copies": plan.settings.copies,
        },
        "ranks": ranks,
        "hosts": hosts,
        "environment": environment(os.environ),
    }


def of_rank(session: Session) -> tuple[dict[str, Any], dict[str, Any]]:
    """What one rank says of itself, and of its machine."""
    name = platform.node()
    about = {
        "rank": session.backend.rank,
        "host": name,
        "cores": cores(),
        "clock_error_s": session.clock_error,
    } | session.device.facts()
    first = session.hosts.index(session.hosts[session.backend.rank]) == session.backend.rank
    return about, machine() if first else {}


def machine() -> dict[str, Any]:
    """This machine, as far as it tells without any rights."""
    facts: dict[str, Any] = {
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "cores": os.cpu_count(),
    }
    for key, path in (
        ("tcp_congestion_control", "/proc/sys/net/ipv4/tcp_congestion_control"),
        ("cpu_governor", "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        ("infiniband", "/sys/class/infiniband"),
    ):
        found = Path(path)
        if found.is_dir():
            facts[key] = sorted(p.name for p in found.iterdir())
        elif found.exists():
            facts[key] = found.read_text(encoding="utf-8").strip()
    for key, command in (
        ("nvidia_smi", ("nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader")),
        ("topology", ("nvidia-smi", "topo", "-m")),
        ("rocm_topology", ("rocm-smi", "--showtopo")),
    ):
        if (text := said(command)) is not None:
            facts[key] = text
    return facts


def said(command: tuple[str, ...]) -> str | None:
    """What a program prints; None where it is not there or fails."""
    if shutil.which(command[0]) is None:
        return None
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return run.stdout.strip()


def environment(env: Mapping[str, str]) -> dict[str, str]:
    """The variables that the libraries read."""
    return {
        name: value for name, value in sorted(env.items())
        if name.startswith(PREFIXES) or name in NAMES
    }  # fmt: skip
