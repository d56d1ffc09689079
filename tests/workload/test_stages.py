"""Which layers lie on which stage; the numbers are counted by hand."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from commsim.workload.layout import Layout
from commsim.workload.layouts.stages import Chunk, stages
from commsim.workload.model import Attention, FeedForward, Layer, Model

LAYER = Layer(
    attention=Attention(heads=8, kv_heads=8, head_dim=8, value_dim=8),
    feed=FeedForward(width=256, gated=False),
)


def model(layers: int, mtp: int = 0) -> Model:
    return Model(name="m", hidden=64, vocab=512, stacks=((LAYER, layers),), mtp=mtp)


def layers(found: tuple[tuple[Chunk, ...], ...]) -> list[int]:
    return [sum(chunk.layers for chunk in chunks) for chunks in found]


def test_one_stage_holds_everything() -> None:
    assert stages(model(8), Layout()) == ((Chunk(0, 8, embedding=True, head=True),),)


def test_interleaved_chunks_go_round() -> None:
    found = stages(model(8), Layout(pp=2, interleave=2))
    assert found == (
        (Chunk(0, 2, embedding=True), Chunk(4, 6)),
        (Chunk(2, 4), Chunk(6, 8, head=True)),
    )


def test_dualpipe_holds_two_parts() -> None:
    found = stages(model(8), Layout(pp=4, schedule="dualpipe"))
    assert found[0] == (Chunk(0, 2, embedding=True), Chunk(6, 8, head=True))
    assert found[2] == (Chunk(4, 6), Chunk(2, 4))


def test_embedding_and_head_count_as_layers() -> None:
    """Llama 3.1 405B: 126 layers in 64 parts of two, but the first and the last hold one."""
    found = stages(model(126), Layout(pp=8, interleave=8))
    assert layers(found) == [15, 16, 16, 16, 16, 16, 16, 15]


def test_deepspeed_fills_the_first_stages() -> None:
    """78 layers, embedding and head: 80 parts on 12 stages are 11 x 7 + 3."""
    found = stages(model(78), Layout(pp=12, framework="deepspeed"))
    assert layers(found) == [6, *[7] * 10, 2]


def test_torchtitan_counts_the_ends_always() -> None:
    """34 parts on 4 stages: 9, 9, 8, 8."""
    assert layers(stages(model(32), Layout(pp=4, framework="torchtitan"))) == [8, 9, 8, 7]


def test_token_prediction_lies_beside_the_head() -> None:
    """61 layers, embedding, head and one prediction layer: 64 parts on 16 stages."""
    assert layers(stages(model(61, mtp=1), Layout(pp=16))) == [3, *[4] * 14, 2]


@given(
    st.integers(1, 100), st.integers(1, 16), st.integers(1, 6), st.integers(0, 2),
    st.sampled_from(["megatron", "deepspeed", "torchtitan"]),
)  # fmt: skip
def test_each_layer_lies_on_one_stage(
    count: int, pp: int, interleave: int, mtp: int, framework: str
) -> None:
    if count + 2 + mtp < pp * interleave:
        return
    layout = Layout(pp=pp, interleave=interleave, framework=framework)
    found = stages(model(count, mtp), layout)
    held = sorted(index for chunks in found for c in chunks for index in range(c.first, c.stop))
    assert held == list(range(count))
    assert found[0][0].embedding
    assert found[-1][-1].head
    assert sum(c.embedding + c.head for chunks in found for c in chunks) == 2
