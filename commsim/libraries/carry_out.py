"""From a library's choice to the algorithm, channels and orders that carry it out."""

from __future__ import annotations

from commsim.collectives.collective import Collective
from commsim.libraries.library import Choice
from commsim.libraries.nccl.facts import NcclFacts
from commsim.libraries.nccl import schedules as nccl
from commsim.libraries.nccl.schedules import Carried


def carry_out(collective: Collective, choice: Choice, *, fold: bool) -> Carried:
    """The algorithm of the library's choice, on the positions of the group.

    fold: equal channels as one.
    """
    assert isinstance(choice.facts, NcclFacts)
    return nccl.carry_out(collective, choice.chosen, choice.facts, fold=fold)
