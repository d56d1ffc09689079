"""A library's text: its name, its version, and variables as a shell takes them."""

from __future__ import annotations

import pytest

from commsim.errors import UnknownNameError
from commsim.libraries.lookup import library
from commsim.libraries.nccl.nccl import Nccl


def test_variables_follow_the_name() -> None:
    found = library("nccl@2.27.3 NCCL_ALGO=allreduce:Ring NCCL_PROTO=LL")
    assert found == Nccl(version="2.27.3", env={"NCCL_ALGO": "allreduce:Ring", "NCCL_PROTO": "LL"})


def test_what_is_given_beside_goes_before_the_text() -> None:
    found = library("nccl NCCL_ALGO=Ring", env={"NCCL_ALGO": "Tree", "NCCL_PROTO": "LL"})
    assert found == Nccl(env={"NCCL_ALGO": "Tree", "NCCL_PROTO": "LL"})


@pytest.mark.parametrize("text", ["", "nccl ring", "nccl A=b ring", "nickel A=b"])
def test_what_is_no_library_is_refused(text: str) -> None:
    with pytest.raises(UnknownNameError, match="unknown library"):
        library(text)
