"""What a script does that the simulator refuses, or knows to be wrong."""

from __future__ import annotations

from commsim.errors import CommsimError


class UnsupportedCallError(CommsimError, NotImplementedError):
    """A function of torch.distributed that is not simulated."""


class NoSimulationError(CommsimError, RuntimeError):
    """The backend asked for where no simulation runs."""


class MissingWaitError(CommsimError, RuntimeError):
    """A tensor used while an operation that was never waited for may still read or write it."""
