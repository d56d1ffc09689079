"""The two phases of serving a model: reading prompts, and writing a token of every sequence.

Prompts go through all stages in chunks: all stages one after the other, and then the slowest stage
once more for every further chunk. A token goes through all stages, the batch in as many parts as
there are stages.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from commsim.units import Seconds
from commsim.workload import chunk
from commsim.workload.communication import Messages
from commsim.workload.compute import Spent
from commsim.workload.layer import Experts, Layer
from commsim.workload.layouts.stages import Chunk, stages
from commsim.workload.passes import Sent
from commsim.workload.serving import token_work
from commsim.workload.serving.custom_all_reduce import all_reduce as reduction
from commsim.workload.serving.token_work import Serving, Tokens

PROMPT_TOKENS = 8192
"""Tokens of prompts that run through the model at a time (vLLM's max_num_batched_tokens)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Prefill or decode. duration: s until all sequences have their next token; spent, sent: the
    compute and the messages that these wait for, through all stages."""

    duration: Seconds
    spent: Spent
    sent: tuple[Sent, ...]

    @property
    def communication(self) -> dict[str, Seconds]:
        """s of messages by the dimension that they go along."""
        found: dict[str, Seconds] = {}
        for sent in self.sent:
            found[sent.kind] = found.get(sent.kind, 0.0) + sent.exposed * sent.count
        return found

    @property
    def communication_share(self) -> float:
        """Of the duration, the share that messages take."""
        return sum(self.communication.values()) / self.duration

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON-able figures, keys with a unit suffix."""
        return {
            "duration_s": self.duration,
            "breakdown_s": {
                "matmul": self.spent.products,
                "attention": self.spent.attention,
                "memory traffic": self.spent.traffic,
                "kernel launches": self.spent.kernels,
                **{f"exposed {k}": v for k, v in self.communication.items()},
            },
            "communication_share": self.communication_share,
            "messages": [
                {
                    "along": x.kind,
                    "operation": x.message.operation,
                    "size_bytes": x.message.nbytes,
                    "n_ranks": x.message.ranks,
                    "algorithm": x.message.algorithm,
                    "count": x.count,
                    "each_s": x.message.duration,
                }
                for x in self.sent
            ],
        }


@dataclass(frozen=True, slots=True)
class Engine:
    """A served model's ranks. all_reduce: which kind of it they take."""

    serving: Serving
    messages: Messages
    all_reduce: str

    def prefill(self, sequences: float, prompt: int) -> Phase:
        """All prompts, so many tokens of them at a time."""
        tokens = sequences * prompt
        chunks = math.ceil(tokens / PROMPT_TOKENS)
        each = Tokens(tokens / chunks, sequences / chunks, prompt=prompt)
        return self._phase(each, chunks)

    def decode(self, sequences: float, context: int) -> Phase:
        """The next token: batches in turns on the stages, as many as there are stages."""
        turns = min(self.serving.layout.pp, math.ceil(sequences))
        each = math.ceil(sequences / turns)
        return self._phase(Tokens(each, each, context), 1)

    def _phase(self, t: Tokens, chunks: int) -> Phase:
        """So many chunks one after the other through all stages."""
        layout = self.serving.layout
        passed: list[tuple[Seconds, Spent, list[Sent]]] = []
        for (part,) in stages(self.serving.model, layout):
            took = sum(
                (token_work.of_layer(k, self.serving, t) * n for k, n in self._layers(part)),
                token_work.of_ends(self.serving, t, part.embedding, part.head),
            )
            sent = list(self._sent(part, t))
            passed.append((took.total + sum(x.exposed * x.count for x in sent), took, sent))
        # All but the first chunk follow it as fast as the slowest stage lets them.
        passed += [max(passed, key=lambda stage: stage[0])] * (chunks - 1)
        hops = layout.pp - 1
        if hops:
            hop = self.messages.hop(t.rows * self.serving.model.hidden * 2 / layout.tp)
            passed.append((hop.duration * hops, Spent(), [Sent("pp", hop, hop.duration, hops)]))
        return Phase(
            duration=sum(took for took, _, _ in passed),
            spent=sum((spent for _, spent, _ in passed), Spent()),
            sent=_joined([x for _, _, sent in passed for x in sent]),
        )

    def _layers(self, part: Chunk) -> tuple[tuple[Layer, int], ...]:
        return chunk.kinds(self.serving.model, part.first, part.stop)

    def _sent(self, part: Chunk, t: Tokens) -> Iterator[Sent]:
        """The messages of a stage for one chunk of tokens."""
        layout, hidden = self.serving.layout, self.serving.model.hidden
        nbytes = t.rows * hidden * 2
        apart = layout.dp > 1 and layout.ep > layout.tp
        reduced = scattered = 0
        for layer, count in self._layers(part):
            experts = isinstance(layer.feed, Experts)
            halves = (layer.attention is not None) + (layer.feed is not None)
            if layer.parallel:
                halves = 1
            if experts and apart:
                halves -= 1
                visits = layer.feed.per_token  # type: ignore[union-attr]
                m = self.messages.of("all_to_all", "ep", nbytes * visits / layout.tp)
                scattered += 2 * count
                yield Sent("ep", m, m.duration, 2 * count)
            reduced += halves * count
        if layout.tp == 1:
            return
        reduced += part.embedding
        m = reduction(self.messages, nbytes, self.serving.values["gap"], self.all_reduce)
        yield Sent("tp", m, m.duration, reduced)
        if part.head:
            logits = t.sequences * self.serving.model.vocab * 2
            m = self.messages.of("all_gather", "tp", logits)
            yield Sent("tp", m, m.duration)


def _joined(sent: list[Sent]) -> tuple[Sent, ...]:
    """Equal messages once, with their counts."""
    found: dict[tuple[str, object], Sent] = {}
    for x in sent:
        key = x.kind, x.message
        before = found[key].count if key in found else 0.0
        found[key] = Sent(x.kind, x.message, x.exposed, x.count + before)
    return tuple(found.values())
