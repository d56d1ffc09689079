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

    @property
    def text(self) -> str:
        """The price with its source and date."""
        dated = f", {self.date}" if self.date else ""
        return f"{self.usd_per_gpu_hour:g} USD per GPU-hour: {self.source}{dated}"

    def to_dict(self) -> dict[str, object]:
        """Plain figures for JSON, keys with their unit."""
        return {
            "usd_per_gpu_hour": self.usd_per_gpu_hour, "date": self.date, "source": self.source,
        }  # fmt: skip


def price_of(cluster: Cluster) -> Price | None:
    """The price of a cluster's GPUs; None where nobody says one."""
    known = _table().get(cluster.gpu.name, ())
    stated = cluster.price_per_gpu_hour
    if stated is None:
        return known[0] if known else None
    for price in known:
        if price.usd_per_gpu_hour == stated:
            return price
    return Price(usd_per_gpu_hour=stated, date="", source=f"cluster {cluster.name}")


def cost(price: Price, gpus: int, duration: Seconds) -> float:
    """USD of so many GPUs for so long."""
    return price.usd_per_gpu_hour * gpus * duration / HOUR


@lru_cache(maxsize=1)
def _table() -> dict[str, tuple[Price, ...]]:
    found: dict[str, tuple[Price, ...]] = {}
    for row in tomllib.loads(TABLE.read_text("utf-8"))["price"]:
        price = Price(
            usd_per_gpu_hour=row["usd_per_gpu_hour"], date=row["date"], source=row["source"]
        )
        for gpu in row["gpus"]:
            found[gpu] = (*found.get(gpu, ()), price)
    return found
