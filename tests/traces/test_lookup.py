from __future__ import annotations

import pytest

from commsim.errors import UnknownNameError
from commsim.traces.goal import Goal
from commsim.traces.lookup import reader, readers, writer, writers
from commsim.traces.msccl import Msccl


def test_formats_by_name() -> None:
    assert "msccl" in readers()
    assert {"chakra", "goal", "msccl"} <= set(writers())
    assert "goal" not in readers()
    assert reader("msccl") == Msccl()
    assert writer("msccl") == Msccl()
    assert writer("goal") == Goal()


def test_an_unknown_name_lists_the_known_and_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'msccl'"):
        reader("mscl")
    with pytest.raises(UnknownNameError, match="trace format to read 'goal'"):
        reader("goal")  # can only be written
    with pytest.raises(UnknownNameError, match=r"trace format to write 'events'.*chakra, goal"):
        writer("events")  # a module, but no format
