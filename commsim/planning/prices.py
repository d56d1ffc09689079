"""What a GPU-hour costs: the cluster file's price, or a dated one of the table beside this file."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from commsim.topology.cluster import Cluster
from commsim.units import Seconds

TABLE = Path(__file__).with_name("prices.toml")
HOUR: Seconds = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """USD for one GPU for one hour, since when, and who says so."""

    usd_per_gpu_hour: float
    date: str
    source: str


def price_of(cluster: Cluster) -> Price | None:
    """The price of a cluster's GPUs; None where nobody says one."""
    if cluster.price_per_gpu_hour is not None:
        return Price(
            usd_per_gpu_hour=cluster.price_per_gpu_hour, date="", source=f"cluster {cluster.name}"
        )
    return _table().get(cluster.gpu.name)


def cost(price: Price, gpus: int, duration: Seconds) -> float:
    """USD of so many GPUs for so long."""
    return price.usd_per_gpu_hour * gpus * duration / HOUR


@lru_cache(maxsize=1)
def _table() -> dict[str, Price]:
    rows = tomllib.loads(TABLE.read_text("utf-8"))["price"]
    return {
        gpu: Price(usd_per_gpu_hour=row["usd_per_gpu_hour"], date=row["date"], source=row["source"])
        for row in rows
        for gpu in row["gpus"]
    }
