"""Values that frameworks' own parsers refuse: the tables are what the parsers say, and a finding
stands where they refuse, nowhere else.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from planner.advice import refused_values
from planner.advice.findings import Finding
from planner.errors import InputError
from planner.intake.frameworks import accepted
from planner.intake.frameworks.megatron_flags import Flag, flags
from planner.intake.read import read
from planner.interpret.interpret import interpret
from planner.specs.switches.table import BY_FRAMEWORK
from planner.specs.versions import version_of
from tests.judges import megatron_oracle, value_tables

MODEL = (
    "--num-layers 8 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024"
    " --max-position-embeddings 1024 --micro-batch-size 1 --global-batch-size 8 --vocab-size 32000"
)
WORDS = ("bogus", "1", "0", "-3", "2.5", "1e3", "-0.1", "nan", "None", "true", "1_000", "0x10")
DRAWN = 40


def findings(path: Path, text: str, version: str | None = None) -> list[Finding]:
    path.write_text(text)
    sets = {"framework_version": version} if version else {}
    return refused_values.findings(interpret(read(path), "h100-sxm", 8, None, sets))


def is_refused(path: Path, text: str, version: str | None = None) -> bool:
    try:
        return bool(findings(path, text, version))
    except InputError:  # counts of the layout are refused before anything is judged
        return True


def script(words: list[str]) -> str:
    return f"torchrun --nproc_per_node 8 pretrain_gpt.py --bf16 {MODEL} {' '.join(words)}\n"


def drawn(chance: random.Random, version: str) -> list[list[str]]:
    """Arguments of a version, each with a value that it may have or not. Those of switches are
    left out, whose limits are beyond the parser, and those that MODEL states.
    """
    number = version_of("megatron", version)

    def takes_words(flag: Flag) -> bool:
        return flag.kind in ("int", "float") or bool(flag.choices_in(number))

    mine = {name: flag for name, flag in flags().items() if takes_words(flag)}
    known = value_tables.newest_choices() if version == "0.19" else mine
    left_out = {"rampup_batch_size"}  # of three numbers
    left_out |= {name for name, switch in BY_FRAMEWORK["megatron"].items() if not switch.values}
    names = [
        name
        for name in mine
        if name in known and mine[name].dest not in left_out and name not in MODEL.split()
    ]
    lines = []
    for name in chance.sample(names, DRAWN):
        pool = (*WORDS, *mine[name].choices_in(number))
        lines.append([name, chance.choice(pool)])
    return lines


@pytest.mark.parametrize("seed", range(2))
def test_a_finding_stands_where_megatron_s_parser_refuses(tmp_path: Path, seed: int) -> None:
    lines = drawn(random.Random(seed), "0.19")
    taken = megatron_oracle.parsed(lines)
    assert 0.2 < sum(taken) / len(taken) < 0.8
    wrong = []
    for line, passes in zip(lines, taken, strict=True):
        if is_refused(tmp_path / "train.sh", script(line)) == passes:
            wrong.append((line, passes))
    assert wrong == []


def test_choices_are_those_of_megatron_s_parser() -> None:
    number = version_of("megatron", "0.19")
    for name, words in value_tables.newest_choices().items():
        if name in flags():
            assert set(flags()[name].choices_in(number)) == set(words), name


def test_choices_of_older_versions() -> None:
    """Megatron-LM core_v0.15.3 and core_v0.17.1, training/arguments.py."""
    recipe, optimizer = flags()["--fp8-recipe"], flags()["--optimizer"]
    assert "custom" not in recipe.choices_in((0, 15)) and "custom" in recipe.choices_in((0, 16))
    assert "soap" not in optimizer.choices_in((0, 17)) and "soap" in optimizer.choices_in((0, 18))
    assert "zarr" in flags()["--ckpt-format"].choices_in((0, 14))


def test_a_value_of_another_version(tmp_path: Path) -> None:
    text = script(["--fp8-format", "hybrid", "--fp8-recipe", "custom"])
    assert not findings(tmp_path / "train.sh", text, "0.16")
    [finding] = findings(tmp_path / "train.sh", text, "0.15")
    assert "must be tensorwise, delayed, mxfp8 or blockwise, but got custom" in finding.message


@pytest.mark.parametrize(
    ("words", "nearest"),
    [
        (["--ddp-num-buckets", "0"], {"ddp_num_buckets": None}),
        (["--activation-offload-fraction", "1.5"], {"activation_offload_fraction": 1.0}),
        (["--optimizer-offload-fraction", "-1"], {"optimizer_offload_fraction": 0.0}),
        (["--moe-token-dispatcher-type", "all2all"], {"moe_token_dispatcher_type": "alltoall"}),
    ],
)
def test_the_nearest_value(tmp_path: Path, words: list[str], nearest: dict[str, Any]) -> None:
    """Limits: [megatron-core] 0.17.1 training/training.py asserts that buckets are above 0;
    TransformerConfig that fractions are from 0 to 1.
    """
    [finding] = findings(tmp_path / "train.sh", script(words))
    assert finding.severity == "error" and finding.ways[0].values == nearest


@pytest.mark.parametrize("value", ["0", "1", "0.5"])
def test_shares_that_pass(tmp_path: Path, value: str) -> None:
    assert not findings(tmp_path / "train.sh", script(["--optimizer-offload-fraction", value]))


def test_deepspeed_s_table_is_its_models() -> None:
    assert list(accepted.table(accepted.DEEPSPEED).values()) == sorted(
        value_tables.deepspeed_values()
    )


def test_torchtitan_s_table_is_its_job_config() -> None:
    assert list(accepted.table(accepted.TORCHTITAN).values()) == sorted(
        value_tables.torchtitan_values()
    )


MORE = {
    "zenflow",
    "cpu_offload",
    "stage",
    "ratio",
    "compute_grad_norm",
    "loss_scale",
    "loss_scale_window",
    "min_loss_scale",
}
"""Keys whose models ask for more than a type and its limits."""
VALUES = (True, False, "true", "maybe", 0, 1, 2, -1, 7, 0.5, 2.0, 2.5, "3", "x", "cpu", "auto")


def test_a_finding_stands_where_deepspeed_s_models_refuse(tmp_path: Path) -> None:
    chance = random.Random(3)
    keys = [key for key in accepted.table(accepted.DEEPSPEED) if not MORE & set(key.split("."))]
    wrong = []
    for _ in range(DRAWN):
        key, value = chance.choice(keys), chance.choice(VALUES)
        passes = deepspeed_takes(key, value)
        if is_refused(tmp_path / "ds.json", json.dumps(document(key, value))) == passes:
            wrong.append((key, value, passes))
    assert wrong == []


def document(key: str, value: Any) -> dict[str, Any]:
    config: dict[str, Any] = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {}}
    *sections, name = key.split(".")
    within = config
    for section in sections:
        within = within.setdefault(section, {})
    within[name] = value
    return config


def deepspeed_takes(key: str, value: Any) -> bool:
    from deepspeed.runtime.precision_config import DeepSpeedBF16Config, DeepSpeedFP16Config
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig
    from pydantic import ValidationError

    config = document(key, value)
    section = key.split(".")[0]
    models = {"fp16": DeepSpeedFP16Config, "bf16": DeepSpeedBF16Config}
    try:
        models.get(section, DeepSpeedZeroConfig)(**config[section])
    except ValidationError:
        return False
    return True


def test_a_word_that_torchtitan_does_not_have(tmp_path: Path) -> None:
    text = (
        '[model]\nname = "llama3"\nflavor = "8B"\n[training]\nlocal_batch_size = 1\n'
        'dtype = "float16"\n[parallelism]\nfsdp_reshard_after_forward = "always"\n'
    )
    [finding] = findings(tmp_path / "train.toml", text)
    assert "training.dtype must be bfloat16 or float32, but got float16" in finding.message
