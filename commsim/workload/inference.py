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

from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from commsim.cost.profile import Profile
from commsim.errors import LayoutError, UnknownNameError
from commsim.topology.cluster import Cluster
from commsim.units import Bytes, Seconds
from commsim.workload import compute
from commsim.workload.communication import Messages
from commsim.workload.layout import Layout
from commsim.workload.layouts.validity import check
from commsim.workload.memory import Memory
from commsim.workload.model import Model
from commsim.workload.serving.custom_all_reduce import KINDS
from commsim.workload.serving.memory import ELEMENT, serving_memory
from commsim.workload.serving.phases import Engine, Phase
from commsim.workload.serving.token_work import Serving
from commsim.workload.trust import settle

DTYPES = ("bfloat16", "float16", "float8")


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
    cluster, profile = settle(cluster, profile)
    gpu = compute.device(cluster.gpu)
    values = dict(profile.values((("generation", gpu.generation),))) | {"host": 0.0, "cast": 0.0}
    serving = Serving(
        model=model, layout=layout, device=compute.slowest(gpu, layout.world, values["variation"]),
        values=values, cache=ELEMENT[cache_dtype or "bfloat16"],
    )  # fmt: skip
    engine = Engine(serving, Messages(cluster, layout), all_reduce)
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
