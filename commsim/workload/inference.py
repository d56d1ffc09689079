"""One step of serving a model: reading prompts, and writing the next token of every sequence.

    time to first token    chunks of prompts through all stages: (chunks - 1) x the slowest stage
                           + all stages, each its layers' compute and messages
    time per output token  all stages, each for batch / stages sequences, and the hops between them

    messages of a layer    two all_reduces under tensor parallelism (kernels of the engine's own for
                           small ones, custom_all_reduce.py); with attention on several replicas
                           experts get their tokens by all_to_all, there and back

Nothing is hidden: engines wait for every message (what two micro-batches in turns or kernels that
add and send at once hide is left out). All prompts of a batch come together. Ignored: the time of
schedulers, tokenizers and samplers on the host; prompts that share a beginning; speculation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from commsim.cost.profile import Profile
from commsim.errors import LayoutError, UnknownNameError
from commsim.topology.cluster import Cluster
from commsim.units import Bytes, Seconds
from commsim.workload import chunk, compute, token_work
from commsim.workload.communication import Messages
from commsim.workload.compute import Spent
from commsim.workload.custom_all_reduce import KINDS
from commsim.workload.custom_all_reduce import all_reduce as reduction
from commsim.workload.layer import Experts, Layer
from commsim.workload.layout import Layout
from commsim.workload.memory import Memory
from commsim.workload.model import Model
from commsim.workload.passes import Sent
from commsim.workload.serving import ELEMENT, serving_memory
from commsim.workload.stages import Chunk, stages
from commsim.workload.step import shipped
from commsim.workload.token_work import Serving, Tokens
from commsim.workload.validity import check

DTYPES = ("bfloat16", "float16", "float8")
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


@dataclass(frozen=True, kw_only=True, eq=False)
class InferencePrediction:
    """A served model: its prompts' phase and a token's. Times in s.

    batch: sequences in flight, all replicas together; context: tokens of a sequence when the
    decoded token is written (half of the output behind it).
    """

    model: Model
    cluster: Cluster
    layout: Layout
    batch: int
    prompt: int
    output: int
    context: int
    cache_dtype: str
    prefill: Phase
    decode: Phase

    @property
    def time_to_first_token(self) -> Seconds:
        """s from the prompts' arrival, all at once, to the first token of all."""
        return self.prefill.duration

    @property
    def time_per_output_token(self) -> Seconds:
        """s from one token of a sequence to the next."""
        return self.decode.duration

    @property
    def request(self) -> Seconds:
        """s from the prompts' arrival to the last token of all."""
        return self.time_to_first_token + (self.output - 1) * self.time_per_output_token

    @property
    def tokens_per_second(self) -> float:
        """Tokens written a second while all decode, by all GPUs together."""
        return self.batch / self.time_per_output_token

    @property
    def output_tokens_per_second(self) -> float:
        """Tokens written a second over the whole of a batch, prompts read included."""
        return self.batch * self.output / self.request

    @cached_property
    def memory(self) -> Memory:
        """Bytes of each stage's ranks when all sequences are complete; .peak, .fits."""
        return serving_memory(self.model, self.cluster, self.layout, self.cache_dtype)

    @property
    def cache(self) -> Bytes:
        """Bytes of keys and values on a rank of the fullest stage, all sequences complete."""
        return int(max(stage.cache for stage in self.memory.by_stage))

    @property
    def notes(self) -> tuple[str, ...]:
        """What was assumed, one sentence each."""
        x = self.layout
        spare = self.cluster.n_ranks // x.world
        more = [f"{spare} such engines fit on the cluster; this is one"] if spare > 1 else []
        if self.decode.spent.products and x.pp > 1 and self.batch < x.pp:
            more.append(f"{self.batch} sequences do not fill {x.pp} stages")
        return (*self.cluster.notes, *self.model.notes, *more, *self.memory.notes)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON-able figures, keys with a unit suffix."""
        x = self.layout
        return {
            "model": self.model.name,
            "parameters": self.model.parameters,
            "cluster": self.cluster.name,
            "gpu": self.cluster.gpu.name,
            "n_ranks": x.world,
            "layout": {k: v for k, v in asdict(x).items() if k in ("tp", "pp", "dp", "ep", "etp")},
            "dtype": x.dtype,
            "cache_dtype": self.cache_dtype,
            "batch": self.batch,
            "prompt_tokens": self.prompt,
            "output_tokens": self.output,
            "context_tokens": self.context,
            "time_to_first_token_s": self.time_to_first_token,
            "time_per_output_token_s": self.time_per_output_token,
            "request_s": self.request,
            "tokens_per_s": self.tokens_per_second,
            "output_tokens_per_s": self.output_tokens_per_second,
            "prefill": self.prefill.to_dict(),
            "decode": self.decode.to_dict(),
            "cache_bytes": self.cache,
            "memory": self.memory.to_dict(),
            "notes": list(self.notes),
        }


def predict_inference(
    model: Model,
    cluster: Cluster,
    *,
    tp: int = 1,
    pp: int = 1,
    ep: int = 1,
    dp: int = 1,
    batch: int = 1,
    prompt: int = 1024,
    output: int = 128,
    context: int | None = None,
    dtype: str = "bfloat16",
    cache_dtype: str | None = None,
    all_reduce: str = "auto",
    profile: Profile | str | Path | None = None,
) -> InferencePrediction:
    """Time to first token and time per output token of a served model, in s.

    tp, pp: tensor-parallel ranks, pipeline stages; dp: replicas of attention that share experts;
    ep: ranks that experts are spread over. batch: sequences in flight; prompt, output: tokens of
    each; context: of a sequence when the decoded token is written (None: the mean, prompt + output
    / 2). dtype: of weights and products; cache_dtype: of keys and values (None: bfloat16).
    all_reduce: "auto", "nccl", "one_shot" or "two_shot". profile: constants of compute. Raises
    LayoutError where the engine would not start, UnknownNameError for a word.

    >>> from commsim.topology.load import load_cluster
    >>> from commsim.workload.load import load_model
    >>> model, cluster = load_model("llama3-70b"), load_cluster("dgx-h100")
    >>> found = predict_inference(model, cluster, tp=8, batch=32, prompt=2048, output=256)
    >>> 0.005 < found.time_per_output_token < 0.03, found.memory.fits
    (True, True)
    """
    if dtype not in DTYPES:
        raise UnknownNameError("dtype", dtype, DTYPES)
    if cache_dtype is not None and cache_dtype not in ELEMENT:
        raise UnknownNameError("cache_dtype", cache_dtype, ELEMENT)
    if all_reduce not in KINDS:
        raise UnknownNameError("all_reduce", all_reduce, KINDS)
    seen = prompt + output // 2 if context is None else context
    layout = _layout(model, cluster, tp, pp, ep, dp, batch, prompt, output, seen, dtype)
    if profile is None:
        profile = shipped()
    elif not isinstance(profile, Profile):
        profile = Profile.load(profile)
    gpu = compute.device(cluster.gpu)
    values = dict(profile.values((("generation", gpu.generation),))) | {"host": 0.0, "cast": 0.0}
    serving = Serving(
        model=model, layout=layout, device=compute.slowest(gpu, layout.world, values["variation"]),
        values=values, cache=ELEMENT[cache_dtype or "bfloat16"],
    )  # fmt: skip
    engine = _Engine(serving, Messages(cluster, layout), all_reduce)
    return InferencePrediction(
        model=model, cluster=cluster, layout=layout, batch=batch, prompt=prompt, output=output,
        context=seen, cache_dtype=cache_dtype or "bfloat16",
        prefill=engine.prefill(batch / dp, prompt), decode=engine.decode(batch / dp, seen),
    )  # fmt: skip


def _layout(
    model: Model, cluster: Cluster, tp: int, pp: int, ep: int, dp: int, batch: int, prompt: int,
    output: int, context: int, dtype: str,
) -> Layout:  # fmt: skip
    problems = [
        f"inference: {name}: expected a whole number of 1 or more, got {value!r}"
        for name, value in (
            ("tp", tp), ("pp", pp), ("ep", ep), ("dp", dp), ("batch", batch), ("prompt", prompt),
            ("output", output), ("context", context),
        )
        if not isinstance(value, int) or isinstance(value, bool) or value < 1
    ]  # fmt: skip
    if model.kind != "decoder":
        problems.append(f"inference: model: expected a decoder, got {model.name} ({model.kind})")
    if not problems and tp * pp * dp > cluster.n_ranks:
        problems.append(
            f"inference: tp x pp x dp = {tp * pp * dp}, expected at most the cluster's "
            f"{cluster.n_ranks} GPUs"
        )
    if not problems and batch % dp:
        problems.append(f"inference: batch: expected a multiple of dp={dp}, got {batch}")
    if problems:
        raise LayoutError(tuple(problems), "")
    layout = Layout(
        tp=tp, pp=pp, dp=dp, ep=ep, etp=max(1, tp // ep), micro_batch=batch // dp,
        global_batch=batch, seq_len=prompt + output, dtype=dtype, zero_stage=0,
        sequence_parallel=False, framework="other",
    )  # fmt: skip
    check(layout, model)
    return layout


@dataclass(frozen=True, slots=True)
class _Engine:
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
