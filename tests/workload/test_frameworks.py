"""What frameworks do that a layout does not say: by hand, and against what was published."""

from __future__ import annotations

from dataclasses import replace

import pytest

from commsim.topology.load import load_cluster
from commsim.workload.compute import device, slowest
from commsim.workload.layout import Layout
from commsim.workload.load import load_model
from commsim.workload.step import predict_step, step_with
from commsim.workload.trust import shipped, tags_of


def test_deepseek_v3_takes_about_what_its_report_says() -> None:
    """2.664 million H800 hours for 14.8 trillion tokens on 2,048 GPUs (DeepSeek-AI,
    arXiv:2412.19437, table 1), 1,543 tokens/s a GPU, pauses included. Nothing was fitted to it."""
    layout = Layout(
        pp=16, dp=128, ep=64, etp=1, global_batch=15360, seq_len=4096, dtype="float8",
        schedule="dualpipe",
    )  # fmt: skip
    step = predict_step(load_model("deepseek-v3"), load_cluster("hgx-h800", nodes=256), layout)
    assert step.tokens_per_second_per_gpu == pytest.approx(14.8e12 / 2.664e6 / 3600, rel=0.2)


def test_a_token_crosses_to_a_machine_once() -> None:
    """8 experts over 2 machines: 2 (1 - 1/2^8) = 1.992 machines met; NeMo's all_to_all sends 8."""
    model = load_model("qwen3-30b-a3b")
    cluster = load_cluster("dgx-h100", nodes=2)
    layout = Layout(dp=16, ep=16, etp=1, global_batch=16, seq_len=4096)
    sizes = {}
    for framework in ("megatron", "nemo"):
        step = predict_step(model, cluster, replace(layout, framework=framework))
        (sizes[framework],) = {m.message.nbytes for m in step.messages if m.kind == "ep"}
    assert sizes["nemo"] == 4096 * 8 * 2048 * 2
    assert sizes["megatron"] == pytest.approx(4096 * 1.9921875 * 2048 * 2, rel=1e-6)


def test_gradients_are_summed_in_every_micro_batch() -> None:
    """Megatron reads and writes 32-bit sums, 8 bytes a parameter; NeMo's recipes 4."""
    model, cluster = load_model("llama3-8b"), load_cluster("dgx-h100")
    layout = Layout(dp=8, global_batch=32, seq_len=4096)
    megatron, nemo = (
        predict_step(model, cluster, replace(layout, framework=name))
        for name in ("megatron", "nemo")
    )
    values = megatron.profile.values(tags_of(cluster, replace(layout, framework="nemo")))
    gpu = slowest(device(cluster.gpu), 8, values["variation"])
    more = megatron.spent.traffic - nemo.spent.traffic  # the same kernels, stack "megatron-core"
    assert more == pytest.approx(4 * 4 * 8.03e9 / (gpu.memory * values["stream"]), rel=0.01)


def test_eight_bits_are_gathered_in_eight() -> None:
    model, cluster = load_model("llama3-8b"), load_cluster("dgx-h100")
    layout = Layout(tp=8, global_batch=1, seq_len=4096, dtype="float8")
    sizes = {
        (m.message.operation, m.message.nbytes)
        for m in predict_step(model, cluster, layout).messages
        if m.kind == "tp"
    }
    assert sizes == {
        ("all_gather", 4096 * 4096), ("reduce_scatter", 2 * 4096 * 4096),
        ("all_gather", 2 * 4096 * 4096),  # of the head, which is never in 8 bit, and the embedding
    }  # fmt: skip


def test_dtensor_hides_nothing_and_gathers_once_less() -> None:
    model, cluster = load_model("llama3-8b"), load_cluster("dgx-h100")
    layout = Layout(tp=8, global_batch=1, seq_len=4096)
    counts = {}
    for framework in ("megatron", "torchtitan"):
        sent = predict_step(model, cluster, replace(layout, framework=framework)).messages
        counts[framework] = sum(
            m.count for m in sent if m.kind == "tp" and m.message.operation == "all_gather"
        )
        if framework == "torchtitan":
            assert all(m.exposed == pytest.approx(m.message.duration) for m in sent)
    # and at the ends: the head's input, in Megatron twice, and the embedding's gradient
    assert counts == {"megatron": 32 * 2 * 3 + 3, "torchtitan": 32 * 2 * 2 + 2}


def test_megatron_deepspeed_waits_for_its_kernels() -> None:
    """A pipeline's host does not run ahead: every kernel costs its wait, whatever its size."""
    model, cluster = load_model("llama3-8b"), load_cluster("dgx-a100")
    layout = Layout(
        tp=8, global_batch=4, micro_batch=4, dtype="float16", framework="deepspeed",
        sequence_parallel=False,
    )  # fmt: skip
    values = shipped().values(tags_of(cluster, layout))
    once = step_with(model, cluster, layout, values)
    doubled = step_with(model, cluster, layout, values | {"waited": 2 * values["waited"]})
    each = doubled.duration - once.duration
    assert each > 32 * 2 * 20 * values["waited"]  # of 32 layers, 20 kernels and more each way
    small = replace(layout, micro_batch=1)
    four = step_with(model, cluster, small, values | {"waited": 2 * values["waited"]})
    more = four.duration - step_with(model, cluster, small, values).duration
    assert more == pytest.approx(4 * each)
    other = replace(layout, framework="megatron")
    same = step_with(model, cluster, other, values | {"waited": 1.0})
    assert same.duration == step_with(model, cluster, other, values).duration


def test_zero_3_of_2021_does_not_gain_from_nics() -> None:
    """GPT-3 on 768 and on 1,536 A100 took one and the same time a step, 66.7 s, with half the work
    for each (Narayanan et al., SC'21, table 2): messages bind, and at a rate of their own."""
    model = load_model({"model_type": "gpt2", "n_embd": 12288, "n_layer": 96, "n_head": 96,
                        "vocab_size": 51200, "n_positions": 2048})  # fmt: skip
    steps = [
        predict_step(
            model, load_cluster("dgx-a100-80", nodes=nodes),
            Layout(
                dp=8 * nodes, micro_batch=batch, global_batch=1536, dtype="float16", zero_stage=3,
                recompute="full", framework="deepspeed",
            ),
        ).duration
        for nodes, batch in ((96, 2), (192, 1))
    ]  # fmt: skip
    assert steps[0] == pytest.approx(steps[1], rel=0.1)
    assert steps[1] == pytest.approx(66.7, rel=0.2)
