"""Settings are worth what NCCL itself, told so by its variables, is predicted to take."""

from __future__ import annotations

import pytest

import commsim
from commsim.planning.tuning import settings
from commsim.workload.layout import Layout


def step_of(model: commsim.Model, cluster: commsim.Cluster) -> commsim.StepPrediction:
    layout = Layout(
        dp=cluster.n_ranks, global_batch=cluster.n_ranks, seq_len=256, zero_stage=0,
        overlap_grad_reduce=False,
    )  # fmt: skip
    return commsim.predict_step(model, cluster, layout)


@pytest.mark.parametrize("nodes", [1, 2, 4])
def test_a_setting_saves_what_the_variable_saves(nodes: int, model: commsim.Model) -> None:
    cluster = commsim.load_cluster("dgx-h100", nodes=nodes)
    step = step_of(model, cluster)
    (sent,) = [one for one in step.messages if one.message.operation == "all_reduce"]
    found = [one for one in settings(step, worth=-10.0) if "allreduce" in one.text]
    assert len(found) == 1
    library = commsim.Nccl(env=dict(found[0].variables))
    forced = commsim.predict(
        commsim.Collective("all_reduce", nbytes=sent.message.nbytes), cluster, library
    )
    chosen = commsim.predict(commsim.Collective("all_reduce", nbytes=sent.message.nbytes), cluster)
    gain = 1 - forced.duration / chosen.duration
    assert found[0].saved == pytest.approx(sent.exposed * sent.count * gain, abs=1e-12)
    assert found[0].saved >= 0


def test_only_what_is_worth_it_is_named(model: commsim.Model, cluster: commsim.Cluster) -> None:
    step = step_of(model, cluster)
    named = settings(step)
    assert all(one.saved >= 0.005 * step.duration for one in named)
    assert settings(step, worth=1.0) == ()


def test_other_libraries_have_no_such_settings(model: commsim.Model) -> None:
    cluster = commsim.load_cluster("mi300x", nodes=2)
    assert settings(step_of(model, cluster), worth=-10.0) == ()


def test_as_a_shell_takes_it(model: commsim.Model, cluster: commsim.Cluster) -> None:
    for one in settings(step_of(model, cluster), worth=-10.0):
        first, second = one.text.split()
        assert first.startswith("NCCL_ALGO=")
        assert second.startswith("NCCL_PROTO=")
        assert one.to_dict()["saved_s"] == one.saved
