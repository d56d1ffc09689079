"""Equal machines played as one: what one of them does stands for all.

A ring over machines that are all alike is carried onto itself by a step of one machine (of `hosts`
machines, where they alternate). So ops that the step carries into each other begin and end at the
same times, and links that it carries into each other carry the same. It is enough to play the ops
of one step, each link of another machine taken for that of the first it is the image of. This is
exact where the fabric lacks nothing, so that its inner links never bind; these are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from commsim.collectives.chunks import Ints
from commsim.collectives.schedule import Schedule
from commsim.engine.cluster_network import ClusterNetwork
from commsim.engine.network import Network, SameLinks, Ways, only

GONE = -1


@dataclass(frozen=True, kw_only=True, eq=False)
class Folded(SameLinks):
    """`base`, whose links are those of `whole`, with all machines taken for the first `hosts`."""

    base: Network
    whole: ClusterNetwork
    hosts: int

    @cached_property
    def _image(self) -> Ints:
        """Per link the one of the first machines for which it is taken; -1: inside the fabric."""
        image = np.full(len(self.capacity), GONE)
        for numbers in self.whole.by_machine:
            first = numbers[np.arange(len(numbers)) % self.hosts]
            known = numbers >= 0
            image[numbers[known]] = first[known]
        return image

    def ways(
        self, schedule: Schedule, source: Ints, destination: Ints, channel: Ints, reduces: Ints
    ) -> Ways:
        """The ways of the base over the images of their links."""
        found = self.base.ways(schedule, source, destination, channel, reduces)
        return only(found, self._image[found.crossing])
