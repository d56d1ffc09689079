from __future__ import annotations

from collections.abc import Callable

import pytest

from .conftest import Ran

Command = Callable[[str], Ran]
LINE = "infer --model llama3-8b --cluster dgx-h100"


def test_the_answer_in_lines(commsim: Command) -> None:
    ran = commsim(f"{LINE} --tp 4 --batch 8 --prompt 512 --output 64")
    assert (ran.code, ran.err) == (0, "")
    assert ran.lines[0] == (
        "llama3-8b (8.03 B, bfloat16) on dgx-h100: 4 x H100-SXM5-80GB, tp=4; 8 sequences of"
        " 512 + 64 tokens"
    )
    words = [line[2:25].strip() for line in ran.lines[1:7]]
    assert words == [
        "time to first token", "time per output token", "whole request", "decoding", "cache",
        "memory",
    ]  # fmt: skip
    for section in ("where the time goes", "messages", "notes"):
        assert section in ran.lines


def test_json_in_base_units(commsim: Command) -> None:
    found = commsim(f"{LINE} --tp 2 --batch 4 --prompt 1000 --output 100 --json").json
    assert set(found) == {
        "model", "parameters", "cluster", "gpu", "n_ranks", "layout", "dtype", "cache_dtype",
        "batch", "prompt_tokens", "output_tokens", "context_tokens", "time_to_first_token_s",
        "time_per_output_token_s", "request_s", "tokens_per_s", "output_tokens_per_s", "prefill",
        "decode", "cache_bytes", "memory", "notes",
    }  # fmt: skip
    assert found["context_tokens"] == 1050  # half of the output is behind the prompt
    # 2 x 8 heads x 128 elements x 32 layers x 2 bytes a token, over two ranks
    assert found["cache_bytes"] == 4 * 1100 * 131072 / 2
    for phase in ("prefill", "decode"):
        parts = found[phase]["breakdown_s"].values()
        assert sum(parts) == pytest.approx(found[phase]["duration_s"])
        assert 0 < found[phase]["communication_share"] < 1


def test_options_reach_the_question(commsim: Command) -> None:
    line = f"{LINE} --tp 2 --batch 8 --prompt 256 --output 32 --json"
    plain = commsim(line).json
    assert commsim(f"{line} --dtype float8").json["dtype"] == "float8"
    assert commsim(f"{line} --cache-dtype float8").json["cache_bytes"] == plain["cache_bytes"] / 2
    assert commsim(f"{line} --context 9000").json["context_tokens"] == 9000
    assert commsim(f"{line} --pp 2").json["layout"]["pp"] == 2
    nccl = commsim(f"{line} --all-reduce nccl").json
    assert nccl["time_per_output_token_s"] > plain["time_per_output_token_s"]
    more = commsim(f"{line} --nodes 2").json
    assert any("8 such engines" in note for note in more["notes"])
    experts = commsim(f"{line} --model mixtral-8x7b --tp 1 --dp 4 --ep 4").json
    assert (experts["layout"]["dp"], experts["layout"]["ep"]) == (4, 4)
    assert "exposed ep" in experts["decode"]["breakdown_s"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("--tp 3", "tp"),
        ("--tp 16", "at most the cluster's 8 GPUs"),
        ("--batch 0", "batch"),
        ("--dp 2 --batch 3", "multiple of dp=2"),
        ("--dtype int3", "int3"),
        ("--cache-dtype int3", "int3"),
        ("--all-reduce three_shot", "three_shot"),
        ("--model bert-large", "decoder"),
        ("--model /nowhere.json", "/nowhere.json"),
        ("--cluster dgx-z9", "dgx-z9"),
        ("--profile /nowhere.toml", "/nowhere.toml"),
    ],
)
def test_bad_input_is_one_message_and_exit_2(commsim: Command, options: str, told: str) -> None:
    ran = commsim(f"{LINE} {options}")
    assert (ran.code, ran.out) == (2, "")
    assert told in ran.err
