"""What commsim predicts for what is measured, to stand beside it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from commsim.collectives.collective import Collective
from commsim.cost.profile import Profile
from commsim.errors import CommsimError
from commsim.libraries.library import Library
from commsim.libraries.lookup import library as find_library
from commsim.prediction import predict
from commsim.topology.cluster import Cluster
from commsim.topology.hosts import loopback
from commsim.topology.load import load_cluster
from commsim.units import Seconds


class Expected:
    """Predictions for one run. note: why there are none, or what they take for granted."""

    def __init__(
        self,
        header: Mapping[str, Any],
        cluster: Cluster | None = None,
        library: Library | None = None,
        profile: Profile | None = None,
    ) -> None:
        self.note = ""
        self.profile = profile
        self.cluster = cluster or self._known(header)
        self.library = library
        if self.cluster is not None and library is None:
            try:
                self.library = library_of(header)
            except CommsimError as error:
                self.note, self.cluster = f"no expected times: {error}", None

    def _known(self, header: Mapping[str, Any]) -> Cluster | None:
        name, n_ranks = str(header["library"]), int(header["n_ranks"])
        if header["nodes"] > 1:
            self.note = "no expected times: name the machines and their network with --cluster"
        elif name not in ("gloo", "mpi"):
            return self._gpus(header)
        elif n_ranks > 1:
            cores = min(about["cores"] for about in header["ranks"])
            if n_ranks > cores:
                self.note = (
                    f"expected times take a core for each rank, here {n_ranks} share {cores}"
                )
            return loopback(n_ranks, name)
        return None

    def _gpus(self, header: Mapping[str, Any]) -> Cluster | None:
        """The machine that its own `nvidia-smi topo -m` describes."""
        text = next((host["topology"] for host in header["hosts"].values() if "topology" in host),
                    None)  # fmt: skip
        if text is None:
            self.note = "no expected times: name the machine with --cluster"
            return None
        try:
            with TemporaryDirectory() as folder:
                path = Path(folder, "topo.txt")
                path.write_text(text, encoding="utf-8")
                return load_cluster(path, **{"node.gpu": header["ranks"][0]["device"]})
        except CommsimError as error:
            self.note = f"no expected times: {str(error).splitlines()[0]}; name it with --cluster"
            return None

    def duration(self, record: Mapping[str, Any]) -> Seconds | None:
        """Seconds of a record's collective; None where there is no answer."""
        if self.cluster is None or record["n_ranks"] < 2:
            return None
        everyone = record["ranks"] == list(range(self.cluster.n_ranks))
        asked = Collective(
            record["operation"], record["size_bytes"], record["dtype"], root=record["root"],
            ranks=None if everyone else tuple(record["ranks"]), reduce_op=record["reduce_op"],
        )  # fmt: skip
        try:
            return predict(asked, self.cluster, self.library, self.profile).duration
        except CommsimError as error:
            self.note = f"no expected time: {error}"
            return None


def library_of(header: Mapping[str, Any]) -> Library:
    """The library that was measured, with its environment; raises CommsimError."""
    name, version = str(header["library"]), str(header["library_version"])
    env = header.get("environment", dict(os.environ))
    return find_library(f"{name}@{version.partition('+')[0]}", env=env)
