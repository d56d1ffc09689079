"""What a GPU has to do for one micro-batch: matrix products, attention, memory traffic, messages.

Everything is counted for one rank under a layout, forward and backward apart, without any time in
it; `compute.py` turns it into seconds. Counts follow the frameworks' kernels: a column-parallel and
a row-parallel product around attention and feed-forward each (Shoeybi et al., arXiv:1909.08053),
sequence parallelism (Korthikanti et al., arXiv:2205.05198), grouped queries, latent attention
(DeepSeek-V2, arXiv:2405.04434), experts as grouped products with balanced routing.
Ignored: dropout masks, biases, rotary tables.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from commsim.workload.layout import Layout
from commsim.workload.model import Attention, Experts, FeedForward, Layer, Model

MERGED = 4
"""Elements moved, forward, for each result of every step of a ring of context-parallel ranks: it is
rescaled and added to a sum in 32 bit (10 bytes where fused, 18 where not), and backward gradients
of queries, keys and values are added (6 bytes each): some 20 bytes in both, of which `backward`
takes 1.6 times the forward's 8 (Transformer Engine 2.20.2, pytorch/attention/dot_product_attention/
context_parallel.py: flash_attn_fwd_incremental_out_correction, dq.add_)."""


@dataclass(frozen=True, slots=True)
class Matmul:
    """`count` products of (m x k) by (k x n).

    narrow: may run in 8 bit if the layout does. grouped: in one kernel of an expert each.
    of_weight: makes a weight's gradient, of operands that other products read before it. given: its
    input is data, whose gradient nobody wants. taps: inner sums of a convolution for each channel.
    elements: what it reads and writes (0: operands and result once). pieces: kernels that it is cut
    into, by rows, so that a message's parts run beside them; row: row-parallel, whose backward by
    the input is cut as well (its gradient is gathered).
    """

    m: float
    n: float
    k: float
    count: float = 1
    narrow: bool = True
    grouped: bool = False
    of_weight: bool = False
    given: bool = False
    taps: int = 1
    elements: float = 0.0
    pieces: int = 1
    row: bool = False

    @property
    def flops(self) -> float:
        return 2.0 * self.m * self.n * self.k * self.count


@dataclass(frozen=True, slots=True)
class Core:
    """Scores and weighted values of attention: `heads` x `batch` maps of queries x keys.

    seen: share of the map that a query may look at (0.5 causal, less with a window). width, value:
    elements of a key and of a value.
    """

    batch: float
    heads: float
    queries: float
    keys: float
    width: float
    value: float
    seen: float
    kv_heads: float = 1.0

    @property
    def map(self) -> float:
        """Elements of all maps."""
        return self.batch * self.heads * self.queries * self.keys

    @property
    def flops(self) -> float:
        """Of the whole maps, forward."""
        return 2.0 * self.map * (self.width + self.value)


@dataclass(frozen=True, slots=True)
class Work:
    """One direction's work of a layer (or of the embedding, or of the head) for one micro-batch.

    moved: bytes read and written outside matrix products. launches: kernels.
    """

    matmuls: tuple[Matmul, ...] = ()
    cores: tuple[Core, ...] = ()
    moved: float = 0.0
    launches: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What of a layout changes the work of a layer. pieces: of a product beside a message."""

    batch: int
    seq: int
    tp: int = 1
    cp: int = 1
    ep: int = 1
    etp: int = 1
    sequence_parallel: bool = False
    bytes: int = 2
    eager: bool = False
    pieces: int = 1

    @property
    def tokens(self) -> float:
        """Tokens of one micro-batch on one context-parallel rank."""
        return self.batch * self.seq / self.cp

    @property
    def rows(self) -> float:
        """Tokens whose norms and residuals one rank keeps."""
        return self.tokens / (self.tp if self.sequence_parallel else 1)


def shape_of(layout: Layout, eager: bool = False) -> Shape:
    """The part of a layout that a layer's work depends on."""
    return Shape(
        batch=layout.micro_batch, seq=layout.seq_len, tp=layout.tp, cp=layout.cp, ep=layout.ep,
        etp=layout.tp if layout.etp is None else layout.etp,
        sequence_parallel=layout.sequence_parallel and layout.tp > 1,
        bytes=4 if layout.dtype == "float32" else 2, eager=eager,
        pieces=layout.tp if layout.tp_comm_overlap and layout.sequence_parallel else 1,
    )  # fmt: skip


def _attention(a: Attention, hidden: int, s: Shape) -> tuple[list[Matmul], Core, float]:
    """Products, core and elements moved, forward."""
    t = s.tokens
    heads = a.heads / s.tp
    kv_heads = max(1.0, a.kv_heads / s.tp)
    q, k, v = heads * a.head_dim, kv_heads * a.head_dim, kv_heads * a.value_dim
    products = []
    if a.kv_rank is None:
        products.append(Matmul(t, q + k + v, hidden, pieces=s.pieces))
    else:
        if a.q_rank is None:
            products.append(Matmul(t, q, hidden))
        else:
            products += [Matmul(t, a.q_rank, hidden), Matmul(t, q, a.q_rank)]
        up = heads * (a.head_dim - a.rope_dim + a.value_dim)
        products += [Matmul(t, a.kv_rank + a.rope_dim, hidden), Matmul(t, up, a.kv_rank)]
        k, v = q, heads * a.value_dim
    products.append(Matmul(t, hidden, heads * a.value_dim, pieces=s.pieces, row=True))
    seen = a.keys_seen(s.seq, causal_half=True) / s.seq
    core = Core(s.batch, heads, s.seq / s.cp, s.seq, a.head_dim, a.value_dim, seen, kv_heads)
    copies = 2 * t * (q + k + 2 * v) if s.eager else 0.0
    if s.cp > 1:
        copies += MERGED * s.cp * t * heads * a.value_dim
    return products, core, 2 * t * (q + k) + copies


def _feed(f: FeedForward | Experts, hidden: int, s: Shape) -> tuple[list[Matmul], float, float]:
    """Products, elements moved forward, kernels beyond the products."""
    t = s.tokens
    wide = 2 if f.gated else 1
    if isinstance(f, FeedForward):
        width = f.width / s.tp
        return (
            [
                Matmul(t, wide * width, hidden, pieces=s.pieces),
                Matmul(t, hidden, width, pieces=s.pieces, row=True),
            ],
            t * (wide + 1) * width,
            1,
        )
    local = max(1.0, f.count / s.ep)
    width = f.width / s.etp
    rows = t * f.per_token * s.etp / s.tp  # what this rank's experts get when routing is even
    each = rows / local
    products = [
        Matmul(t / s.tp, f.count, hidden, narrow=False),
        Matmul(each, wide * width, hidden, local, grouped=True),
        Matmul(each, hidden, width, local, grouped=True),
    ]
    moved = rows * (wide + 1) * width + 6 * rows * hidden  # sorted out, back, and summed
    if f.shared_width:
        shared = f.shared_width / s.tp
        products += [Matmul(t, wide * shared, hidden), Matmul(t, hidden, shared)]
        moved += t * (wide + 1) * shared
    return products, moved, 12


@lru_cache(maxsize=65536)
def forward(layer: Layer, hidden: int, s: Shape) -> Work:
    """The forward work of one layer.

    Elements moved: two norms (read, write), two residuals with dropout and bias (read twice,
    write), rotary embedding of q and k, activation (gated: read 2, write 1 of the width). Eager:
    dropout and residual each pass over memory, and heads are copied into place.
    """
    products: list[Matmul] = []
    cores: tuple[Core, ...] = ()
    moved = launches = 0.0
    half = (7.5 if s.eager else 5) * s.rows * hidden
    if layer.attention is not None:
        found, core, elements = _attention(layer.attention, hidden, s)
        products += found
        cores = (core,)
        moved += elements + half
        launches += 10 if s.eager else 6
    if layer.feed is not None:
        found, elements, kernels = _feed(layer.feed, hidden, s)
        products += found
        moved += elements + half
        launches += 3 + kernels + 2 * s.eager
    launches += sum(p.count if p.count < 2 else 1 for p in products)
    return Work(tuple(products), cores, moved * s.bytes, launches)


def backward(work: Work, frozen: bool = False) -> Work:
    """What the backward pass of `work` takes: two products for each (by input and, unless the
    weight is frozen, by weight), attention's five for two, and 1.6 times its traffic (an activation
    reads input and gradient and writes one: 5 for 3)."""
    products = []
    for p in work.matmuls:
        if not p.given:
            pieces = p.pieces if p.row else 1
            products.append(replace(p, n=p.k / p.taps, k=p.n * p.taps, pieces=pieces))
        if not frozen:
            products.append(replace(p, m=p.k, k=p.m, of_weight=True, pieces=1))
    return Work(tuple(products), work.cores, 1.6 * work.moved, 1.8 * work.launches)


@lru_cache(maxsize=65536)
def head(model: Model, s: Shape) -> Work:
    """Final norm, projection to the vocabulary, and loss (softmax in 32 bit), forward."""
    logits = s.tokens * model.vocab / s.tp
    product = Matmul(s.tokens, model.vocab / s.tp, model.hidden, narrow=False)
    if not model.head:
        return Work((), (), 2 * s.rows * model.hidden * s.bytes, 2)
    return Work(
        (product,), (), (2 * s.bytes + 10) * logits + 2 * s.rows * model.hidden * s.bytes, 8
    )


@lru_cache(maxsize=65536)
def embedding(model: Model, s: Shape) -> Work:
    """Looking up the tokens (and positions), forward."""
    tables = 1 + (model.positions > 0) + (model.token_types > 0)
    return Work((), (), (tables + 1) * s.rows * model.hidden * s.bytes * 1.5, 2 + tables)
