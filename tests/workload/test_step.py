"""A training step in closed form: laws, and figures worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commsim.errors import CommsimError, LayoutError
from commsim.topology.cluster import Cluster
from commsim.topology.load import load_cluster
from commsim.workload import compute
from commsim.workload.layout import Layout
from commsim.workload.layouts.validity import problems
from commsim.workload.load import load_model
from commsim.workload.model import Model
from commsim.workload.passes import Sent
from commsim.workload.step import StepPrediction, predict_step

H100 = load_cluster("dgx-h100", nodes=4)
SMALL = load_model("llama3-8b")
MIXTURE = load_model("mixtral-8x7b")


def of(found: StepPrediction, kind: str, operation: str) -> list[Sent]:
    return [s for s in found.messages if s.kind == kind and s.message.operation == operation]


def total_bytes(sent: list[Sent]) -> float:
    return sum(s.message.nbytes * s.count for s in sent)


LAYOUTS = st.builds(
    Layout,
    tp=st.sampled_from([1, 2, 4, 8]), pp=st.sampled_from([1, 2, 4]), cp=st.sampled_from([1, 2]),
    dp=st.just(1), micro_batch=st.sampled_from([1, 2]), global_batch=st.just(64),
    seq_len=st.sampled_from([2048, 8192]), dtype=st.sampled_from(["bfloat16", "float8"]),
    interleave=st.sampled_from([1, 2]), zero_stage=st.sampled_from([0, 1, 3]),
    recompute=st.sampled_from(["none", "selective", "full"]),
    sequence_parallel=st.booleans(), overlap_grad_reduce=st.booleans(),
    overlap_param_gather=st.booleans(), tp_comm_overlap=st.booleans(),
    framework=st.sampled_from(["megatron", "nemo", "deepspeed", "fsdp", "torchtitan", "ddp"]),
)  # fmt: skip


def fitted(layout: Layout, ranks: int, model: Model, cluster: Cluster) -> Layout | None:
    """The layout on all of the ranks, if there is one."""
    rest = ranks // (layout.tp * layout.pp * layout.cp)
    if not rest:
        return None
    found = replace(layout, dp=rest, global_batch=64 * rest)
    return None if problems(found, model, cluster) else found


@settings(max_examples=150, deadline=None)
@given(LAYOUTS, st.sampled_from([SMALL, MIXTURE]))
def test_laws(layout: Layout, model: Model) -> None:
    whole = fitted(layout, H100.n_ranks, model, H100)
    if whole is None:
        return
    found = predict_step(model, H100, whole)
    parts = found.breakdown
    assert all(v >= -1e-12 * found.duration for v in parts.values()), parts
    assert sum(parts.values()) == pytest.approx(found.duration, rel=1e-6)
    # no faster than the ceiling of products allows
    ceiling = max(compute.device(H100.gpu).ceiling8, compute.device(H100.gpu).ceiling)
    assert found.duration > found.model_flops / whole.world / ceiling
    # exposed never exceeds what the messages take, plus what they slow
    for sent in found.messages:
        assert -1e-12 <= sent.exposed <= 1.5 * sent.message.duration + 1e-12, sent
    low, high = found.interval
    assert low < found.duration < high
    assert found.memory.peak > 0
    assert predict_step(model, H100, whole).duration == found.duration
    # twice the batch takes at least as long
    more = predict_step(model, H100, replace(whole, global_batch=2 * whole.global_batch))
    assert more.duration >= found.duration


def test_every_gradient_is_exchanged_once() -> None:
    """Plain data parallelism: as many bytes as parameters x 4 (Megatron's main gradients), or x 2
    (NeMo); with ZeRO-1 each parameter comes back once in 2 bytes."""
    plain = Layout(dp=32, global_batch=64, zero_stage=0, framework="megatron")
    found = predict_step(SMALL, H100, plain)
    assert total_bytes(of(found, "dp", "all_reduce")) == pytest.approx(
        4 * SMALL.parameters,
        rel=1e-8,  # buckets of whole bytes
    )
    found = predict_step(SMALL, H100, replace(plain, zero_stage=1, framework="nemo"))
    assert total_bytes(of(found, "dp", "reduce_scatter")) == pytest.approx(2 * SMALL.parameters)
    assert total_bytes(of(found, "dp", "all_gather")) == pytest.approx(2 * SMALL.parameters)


def test_zero_3_gathers_twice_and_reduces_once_for_each_micro_batch() -> None:
    layout = Layout(dp=32, global_batch=96, zero_stage=3, framework="fsdp")
    found = predict_step(SMALL, H100, layout)
    assert layout.micro_batches == 3
    reduced = total_bytes(of(found, "dp", "reduce_scatter")) / (4 * SMALL.parameters)
    gathered = total_bytes(of(found, "dp", "all_gather")) / (2 * SMALL.parameters)
    assert reduced == pytest.approx(3, rel=1e-9)
    assert gathered == pytest.approx(6, rel=1e-9)


def test_tensor_parallel_messages_by_hand() -> None:
    """Sequence parallelism: forward 2 all_gathers and 2 reduce_scatters a layer, backward 4 and 2
    (the inputs come again), each of tokens x hidden x 2 bytes. The embedding: a reduce_scatter and
    back an all_gather; the head: an all_gather and back what first products send. Without it: the
    embedding's rows are summed, and the head's gradient."""
    layout = Layout(tp=8, dp=4, global_batch=8, seq_len=2048)
    found = predict_step(SMALL, H100, layout)
    gathers, scatters = of(found, "tp", "all_gather"), of(found, "tp", "reduce_scatter")
    assert {s.message.nbytes for s in gathers + scatters} == {2048 * 4096 * 2}
    assert sum(s.count for s in gathers) == 2 * (32 * (2 + 4) + 3)
    assert sum(s.count for s in scatters) == 2 * (32 * (2 + 2) + 2)
    plain = predict_step(SMALL, H100, replace(layout, sequence_parallel=False))
    assert sum(s.count for s in of(plain, "tp", "all_reduce")) == 2 * (32 * (2 + 2) + 2)


def test_experts_travel_there_and_back() -> None:
    """Forward two, backward two all_to_alls a layer: tokens x 2 experts x hidden x 2 bytes."""
    layout = Layout(dp=32, ep=8, global_batch=64, seq_len=2048)
    sent = of(predict_step(MIXTURE, H100, layout), "ep", "all_to_all")
    assert sum(s.count for s in sent) == 2 * 32 * 4
    assert {s.message.nbytes for s in sent} == {2048 * 2 * 4096 * 2}


def test_a_pipeline_is_bound_by_its_slowest_stage() -> None:
    """1F1B: the slowest stage's (m - 1) micro-batches and one way through all stages; each turn
    waits for its hops. Interleaving cuts the bubble."""
    layout = Layout(pp=4, dp=8, global_batch=128, framework="nemo")
    found = predict_step(SMALL, H100, layout)
    stages = [sum(c.forward.total + c.backward.total for c in row) for row in found.grid]
    ideal = 15 * max(stages) + sum(stages)
    assert found.hop is not None
    hops = 2 * (16 + 3) * found.hop.duration
    assert ideal <= found.pipeline.duration <= ideal + hops
    twice = predict_step(SMALL, H100, replace(layout, interleave=2))
    assert twice.bubble < 0.7 * found.bubble


def test_overlap_hides_and_never_costs_more() -> None:
    shown = Layout(dp=32, global_batch=64, overlap_grad_reduce=False, overlap_param_gather=False)
    hidden = replace(shown, overlap_grad_reduce=True, overlap_param_gather=True)
    a, b = predict_step(SMALL, H100, shown), predict_step(SMALL, H100, hidden)
    assert b.exposed["dp"] < 0.5 * a.exposed["dp"]
    assert a.exposed["dp"] == pytest.approx(
        sum(s.message.duration * s.count for s in a.messages if s.kind == "dp")
    )


def test_recomputing_costs_a_forward_pass() -> None:
    layout = Layout(dp=32, global_batch=64, seq_len=4096)
    none, full = (predict_step(SMALL, H100, replace(layout, recompute=r)) for r in ("none", "full"))
    assert full.spent.products == pytest.approx(none.spent.products * 4 / 3, rel=0.03)
    assert full.mfu < none.mfu  # model FLOP do not count what is done twice


def test_a_faster_network_is_never_slower() -> None:
    layout = Layout(dp=32, global_batch=64, zero_stage=3, framework="fsdp")
    steps = [
        predict_step(SMALL, load_cluster("dgx-h100", nodes=4, **{"node.nics.rate": rate}), layout)
        for rate in ("25Gbit/s", "100Gbit/s", "400Gbit/s")
    ]
    assert steps[0].duration > steps[1].duration >= steps[2].duration


def test_lora_exchanges_its_adapters_only() -> None:
    model = load_model("llama3-8b", lora={"rank": 16, "targets": ["q_proj", "v_proj"]})
    layout = Layout(dp=32, global_batch=64)
    tuned, whole = predict_step(model, H100, layout), predict_step(SMALL, H100, layout)
    assert tuned.duration < whole.duration
    assert total_bytes(of(tuned, "dp", "reduce_scatter")) == pytest.approx(
        4 * model.trained_parameters
    )


def test_a_layout_that_cannot_be_is_refused_with_the_nearest() -> None:
    with pytest.raises(LayoutError, match=r"tp.*nearest"):
        predict_step(SMALL, H100, Layout(tp=3, dp=10, global_batch=10))


def test_lists_of_layers_are_steps_too() -> None:
    found = predict_step(
        load_model("resnet50"), load_cluster("dgx-a100"),
        Layout(dp=8, micro_batch=64, global_batch=512, seq_len=1, zero_stage=0, framework="ddp"),
    )  # fmt: skip
    assert found.tokens == 512
    assert 0 < found.mfu < 1


def test_only_commsim_errors_for_odd_layouts() -> None:
    for layout in (Layout(dp=0), Layout(dp=32, seq_len=-1), Layout(dp=32, dtype="int3")):
        with pytest.raises(CommsimError):
            predict_step(SMALL, H100, layout)


def test_a_calibration_of_the_cluster_reaches_the_step() -> None:
    """A profile of collectives whose NICs carry a tenth: what waits for the network waits longer,
    and compute does not change."""
    from commsim.cost.profile import shipped as collectives

    base = collectives("nccl")
    constants = {
        name: replace(c, value=c.value / 10, limits=(0.0, c.limits[1])) if name == "nic" else c
        for name, c in base.constants.items()
    }
    slow = replace(base, constants=constants)
    layout = Layout(dp=32, global_batch=32, overlap_grad_reduce=False, overlap_param_gather=False)
    plain = predict_step(SMALL, H100, layout)
    calibrated = predict_step(SMALL, H100, layout, slow)
    assert calibrated.exchange > 3 * plain.exchange
    assert calibrated.spent == plain.spent
