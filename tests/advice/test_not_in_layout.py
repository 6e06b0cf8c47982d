"""Statements that a layout holds only rounded: refused as the frameworks themselves refuse them."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from planner import api
from planner.advice import not_in_layout
from planner.intake.read import read
from planner.intake.reading import Reading, Value
from planner.interpret.interpret import interpret
from tests.judges.megatron_oracle import Case, verdicts

MODEL = (
    "--hidden-size 64 --num-attention-heads 4 --vocab-size 1000 --seq-length 64 --bf16"
    " --max-position-embeddings 64 --micro-batch-size 1 --global-batch-size 32 --train-iters 1"
    " --lr 1e-4 --mock-data --tokenizer-type NullTokenizer"
)
CHUNK = "--num-layers-per-virtual-pipeline-stage"
GRID = [
    f"--num-layers {layers} --pipeline-model-parallel-size {pp} {CHUNK} {chunk}"
    for layers, pp, chunk in product((24, 32), (2, 4), (1, 3, 4, 5, 8, 12, 40))
]
OTHERS = [
    f"--num-layers 31 --pipeline-model-parallel-size 4 {CHUNK} 4"
    " --account-for-embedding-in-pipeline-split",
    f"--num-layers 31 --pipeline-model-parallel-size 4 {CHUNK} 3"
    " --account-for-embedding-in-pipeline-split",
    f"--num-layers 30 --pipeline-model-parallel-size 4 {CHUNK} 4"
    " --decoder-first-pipeline-num-layers 7 --decoder-last-pipeline-num-layers 7",
    "--num-layers 30 --pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 2"
    " --decoder-first-pipeline-num-layers 6 --decoder-last-pipeline-num-layers 8",
    "--num-layers 8 --context-parallel-size 8 --cp-comm-type a2a+p2p"
    " --hierarchical-context-parallel-sizes 2 4",
    "--num-layers 8 --context-parallel-size 8 --cp-comm-type a2a+p2p"
    " --hierarchical-context-parallel-sizes 2 2",
    "--num-layers 8 --context-parallel-size 8 --cp-comm-type a2a+p2p",
    "--num-layers 8 --recompute-granularity selective --recompute-modules mlp core_attn",
    "--num-layers 8 --recompute-granularity selective --recompute-modules mlp attention",
    "--num-layers 8 --recompute-granularity uniform",
    "--num-layers 8 --pipeline-model-parallel-size 4 --pipeline-model-parallel-layout Et*3|t*3|tL",
]


def test_megatron_refuses_the_same(tmp_path: Path) -> None:
    cases = [*GRID, *OTHERS]
    answers = verdicts(Case(words, f"{MODEL} {words}".split(), 8) for words in cases)
    path = tmp_path / "run.sh"
    wrong = []
    for words, answer in zip(cases, answers, strict=True):
        path.write_text(
            f"export CUDA_DEVICE_MAX_CONNECTIONS=1\ntorchrun --nproc_per_node 8 pretrain_gpt.py"
            f" {MODEL} '{words}'\n".replace("'", "")
            .replace("|", "\\|")
            .replace("*", "\\*")
        )
        verdict = api.check(path, cluster="h100-sxm").verdict
        if (verdict == "invalid") == answer["accepted"]:
            wrong.append((words, verdict, answer["stage"], answer["message"]))
    assert wrong == []


def launch(tmp_path: Path, words: str) -> list[str]:
    path = tmp_path / "run.sh"
    path.write_text(f"torchrun --nproc_per_node 8 pretrain_gpt.py {MODEL} {words}\n")
    return [one.message for one in not_in_layout.findings(interpret(read(path)))]


def test_sentence_says_what_must_hold_and_the_nearest_way_out(tmp_path: Path) -> None:
    stated = "--num-layers 32 --pipeline-model-parallel-size 4"
    assert launch(tmp_path, f"{stated} {CHUNK} 3") == [
        f"{CHUNK} must divide the layers of a pipeline stage, but got 3 and 8; try 2 or 4"
    ]
    assert launch(tmp_path, f"{stated} {CHUNK} 4") == []


@pytest.mark.parametrize(("pp", "v"), [(2, 2), (4, 2), (8, 4)])
def test_another_pipeline_keeps_the_promised_virtual_stages(
    pp: int, v: int, tmp_path: Path
) -> None:
    """Layers of a virtual stage are restated with the pipeline, or v would change unsaid."""
    from planner.advice.flag_names import changed

    path = tmp_path / "run.sh"
    path.write_text(
        f"torchrun --nproc_per_node 8 pretrain_gpt.py {MODEL} --num-layers 32"
        f" --pipeline-model-parallel-size {pp} {CHUNK} {32 // pp // v}\n"
    )
    stated = interpret(read(path))
    assert stated.layout.v == v
    assert changed(stated, {"pp": 1 if pp == 2 else pp // 2})[CHUNK[2:].replace("-", "_")] == (
        32 // (1 if pp == 2 else pp // 2) // v
    )


def reading(kind: str, framework: str, values: dict[str, object]) -> Reading:
    stated = {name: Value(value, "flag") for name, value in values.items()}
    return Reading("a.toml", kind, framework, None, stated)  # type: ignore[arg-type]


TITAN = {
    "num_layers": 30,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "vocab_size": 1000,
    "pipeline_model_parallel_size": 4,
    "launch.gpus": 4,
    "pipeline_parallel_schedule": "Interleaved1F1B",
    "local_batch_size": 8,
    "micro_batch_size": 1,
}


@pytest.mark.parametrize(
    ("size", "v", "says"),
    [(4, 2, ""), (2, 4, ""), (3, None, "make 11; try 4"), (8, None, "make 4; try 4")],
)
def test_stages_of_torchtitan(size: int, v: int | None, says: str) -> None:
    """30 layers, with two that stand for the embedding and the output, over 4 ranks."""
    values = {**TITAN, "num_layers_per_virtual_pipeline_stage": size}
    stated = interpret(reading("torchtitan", "torch", values))
    found = not_in_layout.findings(stated)
    assert [one.message.endswith(says) for one in found] == ([True] if says else [])
    assert v is None or stated.layout.v == v


def test_micro_batches_of_torchtitan() -> None:
    stated = interpret(reading("torchtitan", "torch", {**TITAN, "micro_batch_size": 3}))
    assert [one.rule for one in not_in_layout.findings(stated)] == [
        "micro-batches split the local batch"
    ]


@pytest.mark.parametrize(("stage", "refused"), [(3, False), (4, True)])
def test_zero_stages(stage: int, refused: bool) -> None:
    values = {"deepspeed.zero_optimization.stage": stage, "launch.gpus": 8}
    stated = interpret(reading("deepspeed", "deepspeed", values))
    assert bool(not_in_layout.findings(stated)) == refused
