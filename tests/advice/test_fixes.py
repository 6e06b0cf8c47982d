"""Changes of texts: what is stated is replaced, what is absent is added, what must go goes, and
nothing else moves.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from planner import api
from planner.advice import rewrite
from planner.advice.fixes import rewritten
from planner.advice.rewrite import Change
from planner.intake.frameworks.edit import changed
from planner.intake.read import read
from planner.intake.reading import Reading
from planner.interpret.interpret import interpret

MODEL = """--num-layers 32 --hidden-size 1024 --num-attention-heads 16 --vocab-size 50304 \
--seq-length 1024 --max-position-embeddings 1024 --bf16"""
SCRIPT = f"""#!/bin/bash
# --micro-batch-size 8 was too much
MBS=2
ARGS="{MODEL}"
torchrun --nproc_per_node 4 pretrain_gpt.py $ARGS --micro-batch-size $MBS \\
    --sequence-parallel $DATA --train-iters 10 --recompute-granularity full --recompute-method \
uniform
"""


def fixed(path: Path, text: str, values: dict[str, Any]) -> str:
    """The text after the changes; nothing is left to be done by hand."""
    path.write_text(text)
    done = rewritten(interpret(read(path)), values)
    assert done.left == ()
    return done.texts[str(path)]


def restated(path: Path, text: str) -> dict[str, Any]:
    """What the text states of flags."""
    path.write_text(text)
    return {name: one.value for name, one in read(path).values.items()}


def test_value_flag_and_count(tmp_path: Path) -> None:
    path = tmp_path / "launch.sh"
    path.write_text(SCRIPT)
    values = {"micro_batch_size": 1, "use_flash_attn": True, "launch.gpus": 7}
    done = rewritten(interpret(read(path)), values)
    assert done.texts[str(path)] == SCRIPT.replace("MBS=2", "MBS=1").replace(
        "$MBS", "$MBS --use-flash-attn"
    )
    assert "-MBS=2" in done.diff and "+MBS=1" in done.diff
    assert done.left == ("--gpus 7",)


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ('ARGS="--micro-batch-size 1"\nrun $ARGS', 'ARGS="--micro-batch-size 1 --fp16"\nrun $ARGS'),
        ("A=(--micro-batch-size 1)\nrun ${A[@]}", "A=(--micro-batch-size 1 --fp16)\nrun ${A[@]}"),
        ('run --micro-batch-size "1"', 'run --micro-batch-size "1" --fp16'),
        ("run \\\n --lr 1", "run --fp16 \\\n --lr 1"),
        ("B=1\nrun --micro-batch-size=${B}", "B=1\nrun --micro-batch-size=${B} --fp16"),
    ],
)
def test_added_flag_keeps_quotes_and_arrays_whole(
    stated: str, expected: str, tmp_path: Path
) -> None:
    run = "torchrun --nproc_per_node 1 pretrain_gpt.py"
    text = fixed(
        tmp_path / "a.sh", stated.replace("run", run) + " --hidden-size 64", {"fp16": True}
    )
    assert text == expected.replace("run", run) + " --hidden-size 64"


V = "num_layers_per_virtual_pipeline_stage"
FLAG = "--num-layers-per-virtual-pipeline-stage"
RUN = f"torchrun --nproc_per_node 8 pretrain_gpt.py {MODEL} --micro-batch-size 1"
CONVERTER = f"python tools/checkpoint/convert.py {FLAG} 4 --sequence-parallel --pp 4"
COMMENT = "# do not use --sequence-parallel with tp 1"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (f"{RUN} {FLAG} 4 --lr 1", f"{RUN} --lr 1"),
        (f"{RUN} {FLAG}=4 --lr 1", f"{RUN} --lr 1"),
        (f"{RUN} {FLAG} '4' --lr 1", f"{RUN} --lr 1"),
        (f'{RUN} "{FLAG}=4" --lr 1', f"{RUN} --lr 1"),
        (f"{RUN} {FLAG} 2 --lr 1 {FLAG} 4", f"{RUN} --lr 1"),
        (f"N=4\n{RUN} {FLAG} $N --lr 1", f"N=4\n{RUN} --lr 1"),
        (f'N=4\n{RUN} {FLAG} "${{N:-1}}" --lr 1', f"N=4\n{RUN} --lr 1"),
        (f"{RUN} {FLAG} $((2 * 2)) --lr 1", f"{RUN} --lr 1"),
        (f"{RUN} \\\n    {FLAG} 4 \\\n    --lr 1\n", f"{RUN} \\\n    --lr 1\n"),
        (f"{RUN} \\\n    --lr 1 \\\n    {FLAG} 4\nls\n", f"{RUN} \\\n    --lr 1\nls\n"),
        (f"{RUN} {FLAG} \\\n  4 --lr 1", f"{RUN} --lr 1"),
        (f"A=(--lr 1 {FLAG} 4)\n{RUN} ${{A[@]}}", f"A=(--lr 1)\n{RUN} ${{A[@]}}"),
        (
            f'A=(\n  --lr 1\n  {FLAG} "4"\n  --fp16\n)\n{RUN} "${{A[@]}}"',
            f'A=(\n  --lr 1\n  --fp16\n)\n{RUN} "${{A[@]}}"',
        ),
        (f"A=(--lr 1)\nA+=({FLAG} 4)\n{RUN} ${{A[@]}}", f"A=(--lr 1)\nA+=()\n{RUN} ${{A[@]}}"),
        (f'A="{FLAG} 4 --lr 1"\n{RUN} $A', f'A="--lr 1"\n{RUN} $A'),
        (f'A="--lr 1"\nA="$A {FLAG} 4"\n{RUN} $A', f'A="--lr 1"\nA="$A"\n{RUN} $A'),
        (f'A="\n  --lr 1\n  {FLAG} 4\n"\n{RUN} $A', f'A="\n  --lr 1\n"\n{RUN} $A'),
        (f"A=4\nB={FLAG}\n{RUN} $B $A --lr 1", f"A=4\nB={FLAG}\n{RUN} --lr 1"),
        (f'A="{RUN} {FLAG} 4 --lr 1"\neval $A', f'A="{RUN} --lr 1"\neval $A'),
        (f'srun bash -c "{RUN} {FLAG} 4 --lr 1"', f'srun bash -c "{RUN} --lr 1"'),
        (
            f'go() {{\n  {RUN} "$@" {FLAG} 4\n}}\ngo --lr 1\n',
            f'go() {{\n  {RUN} "$@"\n}}\ngo --lr 1\n',
        ),
        (f'go() {{ {RUN} "$@"; }}\ngo {FLAG} 4 --lr 1', f'go() {{ {RUN} "$@"; }}\ngo --lr 1'),
        (
            f"cat > job.sh <<EOF\n{RUN} {FLAG} 4 --lr 1\nEOF\nsbatch job.sh\n",
            f"cat > job.sh <<EOF\n{RUN} --lr 1\nEOF\nsbatch job.sh\n",
        ),
        (
            f"cat > convert.txt <<'EOF'\n{CONVERTER}\nEOF\n{RUN} {FLAG} 4 --lr 1\n",
            f"cat > convert.txt <<'EOF'\n{CONVERTER}\nEOF\n{RUN} --lr 1\n",
        ),
        (f"{CONVERTER}\n{COMMENT}\n{RUN} {FLAG} 4", f"{CONVERTER}\n{COMMENT}\n{RUN}"),
        (
            f"F='{FLAG}=4'\npython convert.py $F\n{RUN} $F --lr 1",
            f"F='{FLAG}=4'\npython convert.py $F\n{RUN} --lr 1",
        ),
    ],
)
def test_flag_goes_from_the_training_alone(before: str, after: str, tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    stated = restated(path, before)
    assert stated[V] == 4
    text = fixed(path, before, {V: None})
    assert text == after
    assert restated(path, text) == {name: stated[name] for name in stated if name != V}


def test_switch_goes_without_its_neighbour(tmp_path: Path) -> None:
    text = fixed(tmp_path / "a.sh", SCRIPT, {"sequence_parallel": None, "recompute_method": None})
    assert text == SCRIPT.replace("    --sequence-parallel $DATA", "    $DATA").replace(
        " --recompute-method uniform", ""
    )


def test_override_goes(tmp_path: Path) -> None:
    run = "python megatron_gpt_pretraining.py model.num_layers=24 trainer.devices=8"
    text = f"{run} model.virtual_pipeline_model_parallel_size=2 model.hidden_size=512"
    values = {"virtual_pipeline_model_parallel_size": None}
    assert fixed(tmp_path / "a.sh", text, values) == f"{run} model.hidden_size=512"


def test_what_other_commands_share_takes_no_further_flag(tmp_path: Path) -> None:
    text = f"A='--micro-batch-size 1'\npython convert.py $A\ntorchrun pretrain_gpt.py {MODEL} $A\n"
    assert fixed(tmp_path / "a.sh", text, {"sequence_parallel": True}) == text.replace(
        "--seq-length 1024", "--seq-length 1024 --sequence-parallel"
    )


def test_converter_and_comment_stay(tmp_path: Path) -> None:
    """Of layers that no virtual stages divide the training alone is mended, and the layout of the
    fixed script is the promised one.
    """
    path, new = tmp_path / "run.sh", tmp_path / "fixed.sh"
    converter = f"python tools/checkpoint/convert.py {FLAG} 4 --target-pp 4"
    run = f"{RUN} --tensor-model-parallel-size 2 --pipeline-model-parallel-size 4 {FLAG} 3"
    text = (
        f"{converter}\n{COMMENT}\nexport CUDA_DEVICE_MAX_CONNECTIONS=1\n"
        f"{run} --sequence-parallel --global-batch-size 64\n"
    )
    path.write_text(text)
    answer = api.check(path, cluster="h100-sxm", fix=new)
    assert answer.verdict == "invalid" and answer.edits == {FLAG: 2}
    assert new.read_text() == text.replace(f"{FLAG} 3", f"{FLAG} 2")
    again = api.check(new, cluster="h100-sxm")
    assert again.verdict == "fits" and again.launch.layout.v == 4


def test_variable_of_the_environment(tmp_path: Path) -> None:
    path = tmp_path / "a.sh"
    name = "env.CUDA_DEVICE_MAX_CONNECTIONS"
    export = "export CUDA_DEVICE_MAX_CONNECTIONS=1\n"
    command = "CUDA_DEVICE_MAX_CONNECTIONS=1 python convert.py"
    text = f"#!/bin/bash\n#SBATCH --nodes 2\n\n{command}\n{RUN}\n"
    new = fixed(path, text, {name: 1})
    assert new == text.replace("nodes 2\n", f"nodes 2\n{export}")
    assert fixed(path, new, {name: None}) == text
    assert fixed(path, new, {name: 8}) == new.replace("=1\n", "=8\n")
    before = f"{command}\nCUDA_DEVICE_MAX_CONNECTIONS=1 {RUN}\n"
    assert fixed(path, before, {name: None}) == f"{command}\n{RUN}\n"


def test_neighbours_go_together_and_make_room_for_what_comes() -> None:
    text = "run \\\n  --a 1 \\\n  --b\n"
    a, b = Change(8, 13), Change(18, 21)
    assert text[8:13] == "--a 1" and text[18:21] == "--b"
    assert rewrite.rewritten(text, [a, b]) == "run\n"
    assert rewrite.rewritten(text, [b, Change(21, 21, " --c")]) == text.replace("--b", "--c")


def test_json_that_is_none_takes_no_key() -> None:
    assert changed("ds.json", "{not json", "deepspeed", "deepspeed.a", 1) is None
    assert changed("ds.json", '{"a": 3}', "deepspeed", "deepspeed.a.b", 1) is None


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
    done = rewritten(interpret(reading), {key: value})
    assert done.left == () and done.texts[str(path)] == expected
