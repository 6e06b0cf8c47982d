"""Changes of texts: what is stated is replaced, what is absent is added, what must go goes, and
nothing else moves.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.advice import rewrite
from planner.advice.fixes import rewritten
from planner.intake.reading import Edit, Reading, Value
from planner.interpret.interpret import understood

SCRIPT = """#!/bin/bash
# --micro-batch-size 8 was too much
MBS=2
ARGS="--num-layers 30 --hidden-size 1024 --num-attention-heads 16 --vocab-size 50304"
torchrun --nproc_per_node 4 pretrain_gpt.py $ARGS --micro-batch-size $MBS \\
    --sequence-parallel $DATA --seq-length 1024 --recompute-granularity full --recompute-method \
uniform
"""


def test_flag_is_added_behind_one_of_the_command() -> None:
    assert rewrite.appended(SCRIPT, "--bf16") == SCRIPT.replace(
        "--micro-batch-size $MBS", "--micro-batch-size $MBS --bf16"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('x.py "--micro-batch-size 1"', 'x.py "--micro-batch-size 1 --bf16"'),
        ('x.py --micro-batch-size "$A B"', 'x.py --micro-batch-size "$A B" --bf16'),
        ("A=(--micro-batch-size 1)", "A=(--micro-batch-size 1 --bf16)"),
        ("python train.py \\\n --lr 1", "python train.py --bf16 \\\n --lr 1"),
    ],
)
def test_quotes_and_arrays_stay_whole(text: str, expected: str) -> None:
    assert rewrite.appended(text, "--bf16") == expected


def test_switch_goes_without_its_neighbour() -> None:
    assert rewrite.without(SCRIPT, "sequence_parallel", True) == SCRIPT.replace(
        "    --sequence-parallel $DATA", " $DATA"
    )


@pytest.mark.parametrize(
    ("name", "value", "gone"),
    [
        ("recompute_method", "uniform", " --recompute-method uniform"),
        ("seq_length", 1024, " --seq-length 1024"),
    ],
)
def test_flag_goes_with_its_value(name: str, value: object, gone: str) -> None:
    assert rewrite.without(SCRIPT, name, value) == SCRIPT.replace(gone, "")


def test_override_goes() -> None:
    text = "train.py model.virtual_pipeline_model_parallel_size=2 model.num_layers=24"
    assert (
        rewrite.without(text, "virtual_pipeline_model_parallel_size", 2)
        == "train.py model.num_layers=24"
    )


def test_variable_of_the_environment() -> None:
    assert rewrite.environment("#!/bin/bash\nrun\n", "A", 1) == "#!/bin/bash\nexport A=1\nrun\n"
    assert rewrite.environment("export A=1\nA=2 run\n", "A", None) == "run\n"


def test_no_json_takes_no_key() -> None:
    assert rewrite.keyed("{not json", ["a"], 1) is None
    assert rewrite.keyed('{"a": 3}', ["a", "b"], 1) is None


def test_script_with_a_variable_and_a_missing_flag(tmp_path: Path) -> None:
    path = tmp_path / "launch.sh"
    path.write_text(SCRIPT)
    at = SCRIPT.index("MBS=2") + 4
    values = {
        "num_layers": 30,
        "hidden_size": 1024,
        "num_attention_heads": 16,
        "vocab_size": 50304,
        "micro_batch_size": 2,
        "seq_length": 1024,
        "launch.gpus": 4,
    }
    reading = Reading(
        str(path),
        "megatron",
        "megatron",
        None,
        {name: Value(value, "flag") for name, value in values.items()},
        edits={"micro_batch_size": Edit(str(path), at, at + 1)},
    )
    done = rewritten(understood(reading), {"micro_batch_size": 1, "bf16": True, "launch.gpus": 8})
    assert done.texts[str(path)] == SCRIPT.replace("MBS=2", "MBS=1").replace("$MBS", "$MBS --bf16")
    assert "-MBS=2" in done.diff and "+MBS=1" in done.diff
    assert done.left == ("--gpus 8",)


@pytest.mark.parametrize(
    ("name", "text", "key", "value", "expected"),
    [
        (
            "a.yml",
            '{\n  # of the run\n  "num-layers": 44,\n  "gas": 2,\n}\n',
            "deepspeed.zero_optimization.stage",
            2,
            (
                '{\n  # of the run\n  "num-layers": 44,\n  "gas": 2,\n  "zero_optimization":'
                ' {"stage": 2},\n}\n'
            ),
        ),
        (
            "a.yaml",
            "num-layers: 44 # deep\nhidden-size: 6144\n",
            "micro_batch_size",
            2,
            "num-layers: 44 # deep\nhidden-size: 6144\nmicro-batch-size: 2\n",
        ),
    ],
)
def test_absent_key_is_added(
    tmp_path: Path, name: str, text: str, key: str, value: int, expected: str
) -> None:
    path = tmp_path / name
    path.write_text(text)
    reading = Reading(str(path), "neox", "deepspeed", None, {})
    done = rewritten(understood(reading), {key: value})
    assert done.left == () and done.texts[str(path)] == expected
