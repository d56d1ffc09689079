"""A profile of a host-based library on other cores than those it was fitted on.

    launch, hop, message        x messages
    byte, reduce_byte           x nbytes
    copy_byte                   x copies

What a core does for a message, for a byte through its TCP stack and for a byte in its memory
changes from one machine to the next, and with it every constant of the kind; what the network does
(efficiency, acknowledgements, queue) and how the two overlap does not. Ignored: that the two sides
of a message may run on unlike machines.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from commsim.cost.profile import Profile

KINDS = {
    "launch": "messages", "hop": "messages", "message": "messages",
    "local_hop": "messages", "local_message": "messages",
    "byte": "nbytes", "local_byte": "nbytes", "reduce_byte": "nbytes", "copy_byte": "copies",
}  # fmt: skip
"""Which factor belongs to a constant, by its name up to the first dot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """How many times longer than the profile's machine these cores take: to start an operation and
    for a message, for a byte sent, received or added up, for a byte copied in memory."""

    messages: float = 1.0
    nbytes: float = 1.0
    copies: float = 1.0

    def of(self, constant: str) -> float:
        """The factor of a constant of this name; 1 for what is not the cores' doing.

        >>> Speed(copies=2.0).of("copy_byte.ring.all_gather")
        2.0
        """
        kind = KINDS.get(constant.partition(".")[0])
        return getattr(self, kind) if kind else 1.0


def slowed(profile: Profile, speed: Speed) -> Profile:
    """The profile on cores of this speed; what it says of its constants' birth names the factor.

    >>> from commsim.cost.profile import shipped
    >>> gloo = shipped("gloo")
    >>> slow = slowed(gloo, Speed(messages=3.0))
    >>> round(slow.constants["launch"].value / gloo.constants["launch"].value, 9)
    3.0
    """
    constants = {
        name: replace(
            constant,
            value=constant.value * by,
            birthplace=f"{constant.birthplace}; times {by:.3g} for the cores at hand",
        )
        if (by := speed.of(name)) != 1.0
        else constant
        for name, constant in profile.constants.items()
    }
    return Profile(
        name=profile.name, source=profile.source, constants=constants,
        spreads=profile.spreads, fitted=profile.fitted, calibration=profile.calibration,
    )  # fmt: skip
