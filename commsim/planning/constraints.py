"""What a search is held to, as a user writes it: `tp=4,8,pp=2` and `zero3,cp`.

fixed       KEY=VALUE[,VALUE...][,KEY=...]   tp=8   tp=4,8,pp=16   micro_batch=1..4   hsdp=none
excluded    KEY=VALUE[,...], or a word of the tables: zero3, recompute:full, gpipe, tp-overlap,
            no-grad-overlap, pp-before-dp; a dimension alone (cp, ep, hsdp, interleave) is
            excluded above 1
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

from commsim.errors import PlanError, UnknownNameError
from commsim.planning.space import DP_BEFORE_PP, PP_BEFORE_DP, STATED
from commsim.workload.layout import Layout
from commsim.workload.layouts.rules import WORDS
from commsim.workload.pipeline import schedules

NAMES = tuple(f.name for f in fields(Layout) if f.name not in STATED)
SHORT = {"zero": "zero_stage", "mb": "micro_batch", "v": "interleave"}
ORDERS = {"pp-before-dp": PP_BEFORE_DP, "dp-before-pp": DP_BEFORE_PP}
ALONE = {
    "tp": (1,), "pp": (1,), "cp": (1,), "ep": (1,), "dp": (1,), "interleave": (1,),
    "etp": (None, 1), "hsdp": (None,), "recompute": ("none",), "zero_stage": (0,),
    "tp_comm_overlap": (False,), "sequence_parallel": (False,), "overlap_grad_reduce": (False,),
    "overlap_param_gather": (False,),
}  # fmt: skip
"""What is left of a dimension that is excluded as a whole."""
SWITCHES = {
    "tp-overlap": ("tp_comm_overlap", True),
    "no-grad-overlap": ("overlap_grad_reduce", False),
}
MOST = 1 << 16
"""Values of one range."""

Values = dict[str, tuple[Any, ...]]


def fixed(texts: Sequence[str]) -> Values:
    """Dimensions and the values that each is held to.

    >>> fixed(["tp=4,8,pp=16", "zero=1", "hsdp=none"])
    {'tp': (4, 8), 'pp': (16,), 'zero_stage': (1,), 'hsdp': (None,)}
    """
    found: Values = {}
    for text in texts:
        for name, values in _pairs("--fix", text):
            if not values:
                raise PlanError(f"--fix: expected KEY=VALUE such as tp=4,8, got {name!r}")
            found[name] = found.get(name, ()) + values
    return found


def excluded(texts: Sequence[str]) -> tuple[Values, Values]:
    """What dimensions are held to, and the values that each may not take.

    >>> excluded(["zero3,cp", "recompute=full"])
    ({'cp': (1,)}, {'zero_stage': (3,), 'recompute': ('full',)})
    """
    held: Values = {}
    without: Values = {}
    for text in texts:
        for name, values in _pairs("--exclude", text):
            if values:
                without[name] = without.get(name, ()) + values
            else:
                held[name] = ALONE[name]
    return held, without


def _pairs(option: str, text: str) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Names with their values; none for a dimension alone."""
    name = ""
    values: list[Any] = []
    for piece in (part.strip() for part in text.split(",")):
        key, equals, value = piece.partition("=")
        if equals:
            if name:
                yield name, tuple(values)
            name = _name(key.strip())
            values = list(_values(name, value.strip()))
            if not values:
                raise PlanError(f"{option}: expected KEY=VALUE such as tp=4,8, got {piece!r}")
        elif name and not _word(piece):
            values.extend(_values(name, piece))
        elif piece:
            if name:
                yield name, tuple(values)
            name, values = "", []
            found = _word(piece)
            if found is None:
                known = (*NAMES, *SHORT, *SWITCHES, *ORDERS, "zero3", "recompute:full", "gpipe")
                raise UnknownNameError("dimension of a layout", piece, known)
            yield found
    if name:
        yield name, tuple(values)


def _name(key: str) -> str:
    key = SHORT.get(key, key)
    if key not in NAMES:
        raise UnknownNameError("dimension of a layout", key, NAMES)
    return key


def _word(piece: str) -> tuple[str, tuple[Any, ...]] | None:
    """What a word of the tables means, or a dimension alone."""
    name = SHORT.get(piece, piece).replace("-", "_")
    if name in ALONE:
        return name, ()
    if piece in SWITCHES:
        name, switched = SWITCHES[piece]
        return name, (switched,)
    if piece in ORDERS:
        return "order", (ORDERS[piece],)
    if match := re.fullmatch(r"zero(\d)", piece):
        return "zero_stage", (int(match[1]),)
    key, colon, word = piece.partition(":")
    if colon and word in WORDS.get(key, ()):
        return key, (word,)
    if piece in schedules():
        return "schedule", (piece,)
    return None


def _values(name: str, text: str) -> Iterator[Any]:
    """A dimension's value; all of a range 1..8."""
    if match := re.fullmatch(r"(\d+)\.\.(\d+)", text):
        first, last = int(match[1]), int(match[2])
        if not first <= last < first + MOST:
            raise PlanError(
                f"{name}: expected a range such as 1..8, {MOST:,} values at most, got {text}"
            )
        yield from range(first, last + 1)
    elif text.lower() == "none" and name in ("etp", "hsdp"):
        yield None
    elif text.lower() in ("true", "false"):
        yield text.lower() == "true"
    elif re.fullmatch(r"-?\d+", text):
        yield int(text)
    elif text:
        yield ORDERS.get(text, text)
