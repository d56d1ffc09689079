"""From a library's choice to the schedule that carries it out."""

from __future__ import annotations

from dataclasses import replace

from commsim.collectives.collective import Collective
from commsim.collectives.schedule import WHOLE, Window
from commsim.libraries import host_schedules as host
from commsim.libraries.carried import Carried
from commsim.libraries.host import HostFacts
from commsim.libraries.library import Choice
from commsim.libraries.nccl import schedules as nccl
from commsim.libraries.nccl.facts import NcclFacts
from commsim.libraries.nccl.plugin import devices
from commsim.topology.cluster import Cluster


def carry_out(
    collective: Collective,
    choice: Choice,
    cluster: Cluster,
    *,
    fold: bool,
    alike: bool = False,
    window: Window = WHOLE,
) -> Carried:
    """The schedule on the positions of the group.

    fold: equal channels as one. alike: equal machines as one, where the schedule allows. window:
    how many rounds are built where many are alike.
    """
    facts = choice.facts
    if isinstance(facts, HostFacts):
        schedule = host.carry_out(collective, choice.chosen, facts, cluster, window)
        return Carried(schedule=schedule, ports=facts.interfaces)
    assert isinstance(facts, NcclFacts)
    carried = nccl.carry_out(
        collective, choice.chosen, facts, fold=fold, alike=alike, window=window
    )
    return replace(carried, devices=devices(cluster.node, cluster.fabric.transport))
