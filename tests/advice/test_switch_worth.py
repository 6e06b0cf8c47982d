"""Switches in answers: seconds of the step that is stated, nothing in silence."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from planner import api
from planner.report.text import explain, recommend
from planner.units import GIB
from tests.conftest import Ran

SWITCHES = ("moe_dispatcher=deepep", "cuda_graph=attn", "overlap_moe_expert_parallel_comm=on")
QUESTION = {
    "model": "qwen3-235b-a22b",
    "gpus": 256,
    "cluster": "h100-sxm",
    "seq_length": 4096,
    "global_batch_size": 2048,
    "tp": 2,
    "pp": 8,
    "ep": 16,
    "v": 4,
    "mbs": 1,
}


def test_gains_are_of_the_step_that_is_stated() -> None:
    """The step is simulated, gains are by closed form: what another value gives is the stated step
    less what it saves.
    """
    answer = api.recommend(api.question(**QUESTION, switch=SWITCHES), top=1)
    assert answer.best is not None
    stated = float(answer.best.estimate.step_s)
    assert answer.switches
    for gain in answer.switches:
        assert gain.step_s + gain.saved_s == pytest.approx(stated)


def test_memory_is_told_beside_seconds() -> None:
    """80 layers of 855.6 M parameters over tp 8 and pp 4 in 8 bits: without their gathers 16 bits
    lie beside two 8-bit copies, 2 bytes a parameter more, and 5% of it reserved in vain; 16-bit
    gradients are 2 bytes of the embedding's 1.05 G less too. Buffers move by a few percent.
    """
    question = {"model": "llama3-70b", "cluster": "h100-sxm", "gpus": 64, "tp": 8, "pp": 4}
    answer = api.explain(
        **question, precision="fp8-tensorwise", seq_length=8192, global_batch_size=128
    )
    saved = {(gain.name, gain.value): gain.saved_gib for gain in answer.switches}
    layers, table = 80 * 855.6e6 / 32, 1.05e9 / 8
    assert saved["fp8_param_gather", False] == pytest.approx(-1.05 * 2 * layers / GIB, rel=0.05)
    narrower = 1.05 * 2 * (layers + table) / GIB
    assert saved["grad_reduce_dtype", "bf16"] == pytest.approx(narrower, rel=0.05)
    text = str(explain.switch_rows(answer))
    assert f"s, {-saved['fp8_param_gather', False]:.1f} GiB" in text


def test_what_a_question_sets_is_listed_or_said_to_change_nothing() -> None:
    answer = api.recommend(
        api.question(**QUESTION, switch=(*SWITCHES, "optimizer_offload_fraction=0.5")), top=1
    )
    (paragraph, *_) = recommend.switches(answer)
    text = " ".join(str(paragraph).split())
    for name in ("moe_dispatcher", "cuda_graph", "overlap_moe_expert_parallel_comm"):
        assert name in text.partition("Left off")[0]
    assert "Without effect in plan 1: optimizer_offload_fraction" in text


LAUNCH = """torchrun --nproc_per_node 8 --nnodes 8 --master_addr a --node_rank 0 pretrain_gpt.py \\
--tensor-model-parallel-size 4 --pipeline-model-parallel-size 4 --sequence-parallel \\
--num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672 --num-attention-heads 64 \\
--group-query-attention --num-query-groups 8 --seq-length 6144 --max-position-embeddings 6144 \\
--micro-batch-size 1 --global-batch-size 256 --swiglu --disable-bias-linear \\
--untie-embeddings-and-output-weights --normalization RMSNorm --vocab-size 128256 --bf16 \\
--hidden-dropout 0 --attention-dropout 0 --fp8-format hybrid --fp8-recipe tensorwise \\
--use-distributed-optimizer
"""


def test_switches_that_let_a_launch_fit(tmp_path: Path) -> None:
    """8-bit gathers, under the tensorwise recipe one flag, free 2 bytes of each of 4.28 G weights
    of a rank's layers.
    """
    script = tmp_path / "launch.sh"
    script.write_text(LAUNCH)
    (memory,) = [
        finding
        for finding in api.check(script, cluster="h100-sxm").findings
        if finding.rule == "memory fits the GPU"
    ]
    (way,) = [way for way in memory.ways if "fp8_param_gather" in way.values]
    assert way.values == {"fp8_param_gather": True}
    assert re.search(r"8\.[1-4] GiB less", way.says)
    assert "--fp8-param-gather (a step of" in memory.message


SCRIPT = (
    "torchrun --nproc_per_node 8 pretrain_gpt.py --bf16 --num-layers 8 --hidden-size 1024"
    " --num-attention-heads 16 --seq-length 1024 --max-position-embeddings 1024"
    " --micro-batch-size 1 --global-batch-size 8 --vocab-size 32000 --use-distributed-optimizer"
)


def test_check_says_which_switches_it_read(tmp_path: Path, ppplan: Callable[..., Ran]) -> None:
    script = tmp_path / "launch.sh"
    for flags, listed, silent in (
        ("", "", "Switches:"),
        ("--overlap-grad-reduce", "overlap_grad_reduce on", "a guess"),
        ("--cross-entropy-loss-fusion", "cross_entropy_fusion native", "overlap_grad_reduce"),
        ("--cuda-graph-impl transformer_engine", "cuda_graph layers", "overlap_grad_reduce"),
    ):
        script.write_text(f"{SCRIPT} {flags}\n")
        out = " ".join(ppplan("check", script, "--cluster", "h100-sxm").out.split())
        assert listed in out
        line = out.partition("Switches: on: ")[2].partition(". ")[0]
        assert listed in line and silent not in line
    assert "a guess" in line  # no run with and without layers' graphs is published


def test_compare_says_what_it_guesses(ppplan: Callable[..., Ran]) -> None:
    """nemo's published runs had userbuffers, megatron-bridge has none of its own."""
    words = ("--model", "llama3-70b", "--gpus", "64", "--cluster", "h100-sxm")
    ran = ppplan("compare", *words, "--stack", "nemo,megatron-bridge,megatron", "--own-switches")
    out = " ".join(ran.out.split())
    assert "counts on a guess: tp_comm_overlap on (its published runs had it)" in out
    assert "tp_comm_overlap on (widens the range), cuda_graph layers (widens the range)" in out
    assert out.count("counts on a guess") == 2


def test_every_hint_of_a_gain_names_what_to_do(tmp_path: Path) -> None:
    """torchtitan's virtual stages have no word here that changes them alone."""
    folder = tmp_path / "plan"
    api.recommend(
        model="llama3-70b",
        gpus=256,
        cluster="h100-sxm",
        software="torchtitan@0.3",
        pp=4,
        out=str(folder),
    )
    for finding in api.check(folder / "launch.sh", cluster="h100-sxm").findings:
        if finding.rule == "faster":
            assert finding.ways[0].values and not finding.message.startswith(" ")


IDLE = {
    "--offload-modules core_attn": "--offload-modules without --fine-grained-activation-offloading",
    "--fp8-recipe mxfp8": "--fp8-recipe without --fp8-format",
    "--cross-entropy-fusion-impl te": "without --cross-entropy-loss-fusion",
    "--moe-router-fusion": "--moe-router-fusion change nothing",
}
"""TransformerConfig looks at each beside the other alone (core/transformer/transformer_config.py),
and a router is one of experts.
"""


@pytest.mark.parametrize("flags", IDLE)
def test_what_is_stated_and_does_not_act_is_said(tmp_path: Path, flags: str) -> None:
    script = tmp_path / "launch.sh"
    script.write_text(f"{SCRIPT} {flags}\n")
    answer = api.check(script, cluster="h100-sxm")
    said = [each.message for each in answer.findings if each.rule.endswith("without effect")]
    assert len(said) == 1 and IDLE[flags] in said[0]


def test_a_set_of_words_is_completed(tmp_path: Path) -> None:
    """TransformerConfig refuses attn_proj without core_attn: the way out is to name both."""
    script = tmp_path / "launch.sh"
    flags = "--fine-grained-activation-offloading --offload-modules attn_proj"
    script.write_text(f"{SCRIPT} {flags}\n")
    answer = api.check(script, cluster="h100-sxm", fix=tmp_path / "fixed.sh")
    assert "--offload-modules core_attn attn_proj" in (tmp_path / "fixed.sh").read_text()
    assert answer.verdict == "invalid"
    assert api.check(tmp_path / "fixed.sh", cluster="h100-sxm").verdict == "fits"


def test_where_nothing_fits_the_stated_switch_goes_first() -> None:
    """Megatron-LM offloads layers without a pipeline and recomputation alone
    (core/transformer/transformer_config.py), and 70 B parameters do not fit on 32 GPUs so.
    """
    question = {"model": "llama3-70b", "gpus": 32, "cluster": "h100-sxm"}
    question |= {"zero": 1, "offload": "none", "tp": 8}
    answer = api.recommend(**question, switch=("cpu_offloading_num_layers=4",))
    assert answer.search is not None and answer.search.nearest
    nearest = answer.search.nearest
    assert nearest[0].change == "leave out switch cpu_offloading_num_layers=4"
    plain = api.recommend(**question).best
    assert plain is not None
    assert (nearest[0].layout.tp, nearest[0].layout.pp) == (plain.layout.tp, plain.layout.pp)
