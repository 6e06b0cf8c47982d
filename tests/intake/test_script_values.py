"""Where values of a script come from, where they can be changed, and what argparse would make of a
command line.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import InputError
from planner.intake.bash.traced_text import Piece
from planner.intake.frameworks import megatron_flags
from planner.intake.read import form_of, read
from planner.intake.scripts.argparse_like import parse

BODY = """\
#!/bin/bash
#SBATCH --nodes=4
TP=4   # degree
export SEQ=${SEQ:-4096}
GBS=$((4*64))
ARGS="--num-layers 32 --tensor-model-parallel-size $TP --seq-length $SEQ \\
      --global-batch-size $GBS --bf16"
MORE=(--max-position-embeddings $SEQ "--hidden-size 4096" --lr 1e-4 --data-path ${DATA})
CUDA_DEVICE_MAX_CONNECTIONS=1 srun torchrun --nnodes $SLURM_NNODES --nproc-per-node=8 p.py $ARGS \
--micro-batch-size=2 "${MORE[@]}"
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "run.sh").write_text(BODY.replace('"${MORE[@]}"', "${MORE[@]}"))
    return tmp_path / "run.sh"


@pytest.mark.parametrize(
    ("name", "value", "origin", "where"),
    [
        ("num_layers", 32, "flag", "run.sh:6 --num-layers"),
        (
            "tensor_model_parallel_size",
            4,
            "variable",
            "run.sh:3 --tensor-model-parallel-size through TP",
        ),
        ("seq_length", 4096, "variable", "run.sh:4 --seq-length through SEQ"),
        ("global_batch_size", 256, "variable", "run.sh:7 --global-batch-size through GBS"),
        ("micro_batch_size", 2, "flag", "run.sh:9 --micro-batch-size"),
        ("hidden_size", 4096, "flag", "run.sh:8 --hidden-size"),
        ("bf16", True, "flag", "run.sh:7 --bf16"),
        ("launch.nodes", 4, "environment", "run.sh:2 --nnodes through SLURM_NNODES"),
        ("launch.gpus_per_node", 8, "flag", "run.sh:9 --nproc-per-node"),
        (
            "env.CUDA_DEVICE_MAX_CONNECTIONS",
            "1",
            "environment",
            "run.sh:9 CUDA_DEVICE_MAX_CONNECTIONS",
        ),
        ("env.SEQ", "4096", "environment", "run.sh:4 SEQ"),
    ],
)
def test_every_value_says_where_it_is_from(
    name: str, value: object, origin: str, where: str, script: Path
) -> None:
    found = read(script).values[name]
    assert (found.value, found.origin, found.where) == (value, origin, where)


def test_set_beats_what_the_script_says_and_is_named(script: Path) -> None:
    found = read(script, {"TP": "8", "SEQ": "1024"})
    assert [
        (found.values[name].value, found.values[name].origin)
        for name in ("tensor_model_parallel_size", "seq_length")
    ] == [(8, "option"), (1024, "option")]
    assert "tensor_model_parallel_size" not in found.edits


@pytest.mark.parametrize(
    ("name", "new"),
    [
        ("num_layers", "48"),
        ("tensor_model_parallel_size", "2"),
        ("seq_length", "512"),
        ("micro_batch_size", "7"),
        ("hidden_size", "128"),
        ("launch.nodes", "16"),
        ("launch.gpus_per_node", "4"),
        ("lr", "3.0"),
    ],
)
def test_an_edit_changes_just_that_value(name: str, new: str, script: Path) -> None:
    before = read(script)
    edit = before.edits[name]
    text = Path(edit.file).read_text()
    assert text[edit.start : edit.end] in (str(before.values[name].value), "1e-4")
    script.write_text(text[: edit.start] + new + text[edit.end :])
    after = read(script)
    changed = {one for one in before.values if after.values[one].value != before.values[one].value}
    gpus = {"launch.gpus"}
    shared = {
        "seq_length": {"max_position_embeddings", "env.SEQ"},
        "launch.nodes": gpus,
        "launch.gpus_per_node": gpus,
    }
    assert changed == {name} | shared.get(name, set())
    assert str(after.values[name].value) == new


def test_flags_can_be_appended_behind_the_program(script: Path) -> None:
    edit = read(script).edits["append"]
    text = script.read_text()
    script.write_text(
        f"{text[: edit.start]} --sequence-parallel --pipeline-model-parallel-size"
        f" 2{text[edit.end :]}"
    )
    after = read(script)
    assert (
        after.values["sequence_parallel"].value is True
        and after.values["pipeline_model_parallel_size"].value == 2
    )
    assert after.values["num_layers"].value == 32


def test_flags_can_be_appended_inside_a_string_that_is_evaluated(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(
        'O="--num-layers 4"\nCMD="torchrun --nproc_per_node 8 pretrain_gpt.py $O --hidden-size'
        ' 8"\neval $CMD\n'
    )
    edit = read(path).edits["append"]
    text = path.read_text()
    path.write_text(text[: edit.start] + " --swiglu" + text[edit.end :])
    assert {
        name: read(path).values[name].value for name in ("swiglu", "num_layers", "hidden_size")
    } == {"swiglu": True, "num_layers": 4, "hidden_size": 8}


def test_what_is_stated_twice_or_cannot_be_a_number_is_noted(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(
        "torchrun p.py --num-layers 4 --num-layers 8 --hidden-size big --micro-batch-size"
        " --seq-length 1 --frobnicate 2 3\n"
    )
    found = read(path)
    assert found.values["num_layers"].value == 8 and found.values["frobnicate"].value == [2, 3]
    assert found.unknown == ("--frobnicate",)
    assert found.notes == (
        "--num-layers stands twice, with 4 and 8: the last counts",
        "--hidden-size takes a whole number, but got 'big'",
        "--micro-batch-size needs a value, but none follows",
    )


@pytest.mark.parametrize(
    ("flags", "version"),
    [
        ("--num-layers 8 --hidden-size 8", None),
        ("--num-layers 8 --use-legacy-models", "0.17"),
        ("--num-layers 8 --activations-checkpoint-method uniform", "0.9"),
        ("--num-layers 8 --use-custom-fsdp --hidden-size 4", "0.13"),
    ],
)
def test_flags_that_are_gone_tell_the_version(
    flags: str, version: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "run.sh"
    path.write_text(f"torchrun p.py {flags}\n")
    assert read(path).framework_version == version


def test_the_table_has_every_flag_of_the_releases() -> None:
    listed = list(
        csv.DictReader(
            (Path(__file__).parents[1] / "data" / "megatron_flags.csv").read_text().splitlines()
        )
    )
    table = megatron_flags.flags()
    assert {row["flag"]: (row["first"], row["last"]) for row in listed} == {
        row["flag"]: (table[row["flag"]].first, table[row["flag"]].last) for row in listed
    }


FLAGS = {
    "--num-layers": "int",
    "--lr": "float",
    "--bf16": "true",
    "--recompute-modules": "list",
    "--disable-bias-linear": "false",
}
WORD = st.sampled_from(
    [
        "1",
        "-2",
        "3.5",
        "mlp",
        "1e-4",
        "--bf16",
        "--num-layers",
        "--recompute-modules",
        "--disable-bias-linear",
        "--lr",
        "--num-layers=7",
        "--lr=2e-5",
    ]
)


@settings(max_examples=150, deadline=None)
@given(st.lists(WORD, max_size=8))
def test_values_are_those_of_argparse(words: list[str]) -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--num-layers", type=int)
    parser.add_argument("--lr", type=float)
    parser.add_argument("--bf16", action="store_true", default=None)
    parser.add_argument(
        "--disable-bias-linear", action="store_false", dest="add_bias_linear", default=None
    )
    parser.add_argument("--recompute-modules", nargs="+")
    try:
        said, _ = parser.parse_known_args(words)
    except argparse.ArgumentError:
        return
    found = parse([(Piece(word),) for word in words], megatron_flags.flags(), {})
    assert {one.path[0]: one.value for one in found.leaves} == {
        name: value for name, value in vars(said).items() if value is not None
    }


@pytest.mark.parametrize(
    ("name", "text", "form"),
    [
        ("a.sh", "x", "script"),
        ("a", "#!/bin/bash\n", "script"),
        ("a.slurm", "", "script"),
        ("a.json", "{", "config"),
        ("a.yaml", "a: 1", "config"),
        ("a.log", "", "log"),
        ("a.txt", "export A=1\ntorchrun x.py", "script"),
        ("a.txt", "x\n iteration        5/      20 | consumed samples", "log"),
        ("a.txt", "model:\n  x: 1\n", "config"),
        ("a", '{"a": 1}', "config"),
    ],
)
def test_files_are_form_of(name: str, text: str, form: str) -> None:
    assert form_of(Path(name), text) == form


def test_a_plain_script_is_read_with_little(script: Path) -> None:
    """No YAML, no numbers, no documents: a check of a plain script is to take under a second as a
    whole.
    """
    program = (
        "import sys, time; start = time.process_time(); from planner.intake.read import read;"
        f" values = read({str(script)!r}).values; print(len(values), time.process_time() - start,"
        " *sys.modules)"
    )
    count, seconds, *loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()
    assert int(count) > 12 and not set(loaded) & {
        "yaml",
        "numpy",
        "pydantic",
        "pandas",
        "planner.intake.frameworks.detect",
    }
    assert float(seconds) < 0.6  # 0.1 on an idle machine


def test_a_file_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must be a file that can be read, but got: No such file"):
        read(tmp_path / "none.sh")
