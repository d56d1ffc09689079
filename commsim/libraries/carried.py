"""What carries out a library's choice: a schedule, and which NICs its transfers take."""

from __future__ import annotations

from dataclasses import dataclass

from commsim.collectives.schedule import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """A schedule, how many of the library's channels each of its own stands for, and its NICs:
    `exits`, `entries`, `devices`, `rails` and `ports` of engine.nic_choice.ChosenNics. hosts: only
    ops that begin on so many machines are there, the others being their images
    (engine/folding.py); 0: all are.
    """

    schedule: Schedule
    multiplicity: int = 1
    exits: tuple[tuple[int, ...], ...] = ()
    entries: tuple[tuple[int, ...], ...] = ()
    devices: tuple[tuple[int, ...], ...] = ()
    rails: bool = False
    ports: int = 0
    hosts: int = 0
