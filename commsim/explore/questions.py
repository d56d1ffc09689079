"""What the page may ask, and how much of it: every question is checked here before any work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from commsim.errors import ExploreError

MOST_TEXT = 1 << 17
"""Characters of a cluster or model that is written in the page or uploaded."""
MOST_RANKS = 1 << 17
MOST_DRAWN = 512
"""Nodes up to which the fabric is built for its picture."""

Asked = TypeVar("Asked", bound=BaseModel)
Word = Annotated[str, Field(max_length=40)]


class _Asked(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Side(_Asked):
    """One cluster: a preset, or the text of a file that describes it, and what is changed of it."""

    preset: str = Field("", max_length=100)
    text: str = Field("", max_length=MOST_TEXT)
    gpu: str | None = Field(None, max_length=100)
    nodes: int | None = Field(None, ge=1, le=MOST_RANKS)
    nics: int | None = Field(None, ge=1, le=256)
    nic_rate: str | None = Field(None, max_length=40)
    library: str | None = Field(None, max_length=40)

    def overrides(self) -> dict[str, Any]:
        """Keys of the cluster file that the fields beside it change."""
        stated = {
            "node.gpu": self.gpu,
            "nodes": self.nodes,
            "node.nics.count": self.nics,
            "node.nics.rate": self.nic_rate,
        }
        return {key: value for key, value in stated.items() if value is not None}


class CollectiveQuestion(_Asked):
    """An operation over a range of sizes, and one size that is looked at closely."""

    sides: tuple[Side, ...] = Field(min_length=1, max_length=2)
    operation: str = Field(max_length=40)
    size: str = Field(max_length=40)
    low: str = Field("8", max_length=40)
    high: str = Field("8GiB", max_length=40)
    dtype: Word = "float32"


class LayoutFields(_Asked):
    """The fields of a Layout that the page offers; dp None: all ranks that are left."""

    tp: int = 1
    pp: int = 1
    dp: int | None = None
    cp: int = 1
    ep: int = 1
    micro_batch: int = 1
    global_batch: int | None = None
    seq_len: int = 4096
    dtype: Word = "bfloat16"
    schedule: Word = "1f1b"
    interleave: int = 1
    zero_stage: int = 1
    recompute: Word = "none"
    framework: Word = "megatron"
    sequence_parallel: bool = True
    overlap_grad_reduce: bool = True
    overlap_param_gather: bool = True
    tp_comm_overlap: bool = False


class StepQuestion(_Asked):
    """A model, as a preset or the text of a config.json, and its layout on each cluster."""

    sides: tuple[Side, ...] = Field(min_length=1, max_length=2)
    model: str = Field("", max_length=100)
    config: str = Field("", max_length=MOST_TEXT)
    layout: LayoutFields = LayoutFields()


class TopologyQuestion(_Asked):
    """The clusters to draw."""

    sides: tuple[Side, ...] = Field(min_length=1, max_length=2)


class TomlQuestion(_Asked):
    """The cluster to write as a file."""

    side: Side


class PresetQuestion(_Asked):
    """The preset whose file is shown."""

    preset: str = Field(max_length=100)


def read(kind: type[Asked], data: Mapping[str, Any]) -> Asked:
    """The question in what came as JSON. Raises ExploreError: every problem, in one line."""
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        problems = (
            f"{'.'.join(map(str, p['loc'])) or 'question'}: {p['msg'][0].lower()}{p['msg'][1:]}"
            f", got {_short(p['input'])}"
            for p in error.errors()
        )
        raise ExploreError("; ".join(problems)) from None


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
