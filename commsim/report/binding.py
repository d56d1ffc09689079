"""Which links of a cluster's picture are those that a prediction's bottleneck means."""

from __future__ import annotations

import re
from collections.abc import Collection

from commsim.prediction import Prediction

NIC, FABRIC, INSIDE = "nic", "fabric", ""
# What a bottleneck says, and the part that it means; all else is no link's: launches, hops, copies.
_SAID = (
    (re.compile(r"(nvlink|xgmi|pcie)(-staged)? of one GPU"), r"\1"),
    (re.compile(r"copies between device and host memory"), "pcie"),
    (re.compile(r"\d+ NICs? of |a machine's network port"), NIC),
    (re.compile(r"the fabric"), FABRIC),
)


def binding(prediction: Prediction) -> str:
    """The part whose links bind, as `part` names it; "" where no link does."""
    for said, meant in _SAID:
        if found := said.match(prediction.bottleneck):
            return found.expand(meant)
    return INSIDE


def part(kind: str, ends: Collection[str]) -> str:
    """Of a link of this kind between vertices of these kinds: "nvlink", "xgmi" or "pcie" of a GPU,
    "nic", "fabric" (between switches), or "" (the rest of a machine)."""
    if kind == "port" or (kind == "network" and "nic" in ends):
        return NIC
    if kind == "network":
        return FABRIC
    return kind if "gpu" in ends else INSIDE
