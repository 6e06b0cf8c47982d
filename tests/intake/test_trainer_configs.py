"""DeepSpeed's JSON against the real DeepSpeedConfig, and the Hugging Face arguments that fill
it.
"""

from __future__ import annotations

import ast
import json
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from planner.errors import InputError
from planner.intake.frameworks import companions, deepspeed_keys, detect
from planner.intake.frameworks.deepspeed import with_trainer
from tests.intake.stated import plain, read, stated

AUTO = {
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "fp16": {"enabled": "auto"},
    "bf16": {"enabled": "auto"},
    "zero_optimization": {
        "stage": 3,
        "reduce_bucket_size": "auto",
        "stage3_prefetch_bucket_size": "auto",
        "stage3_param_persistence_threshold": "auto",
    },
}


def test_a_deepspeed_json_alone(tmp_path):
    reading = read(
        tmp_path,
        "ds.json",
        """{
  "train_batch_size": 256, // all GPUs
  "train_micro_batch_size_per_gpu": 8,
  "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}, "stge3_typo": 1,},
  "fp16": {"enabled": true},
  "my_flag": 1
}""",
    )
    assert (reading.kind, reading.framework) == ("deepspeed", "deepspeed")
    stated(
        reading,
        {
            "deepspeed.train_batch_size": 256,
            "deepspeed.train_micro_batch_size_per_gpu": 8,
            "deepspeed.fp16.enabled": True,
            "deepspeed.zero_optimization.stage": 3,
            "deepspeed.zero_optimization.offload_optimizer.device": "cpu",
            "deepspeed.my_flag": 1,
        },
    )
    assert reading.unknown == ("zero_optimization.stge3_typo", "my_flag")
    assert any("hjson" in note for note in reading.notes)
    edit = reading.edits["deepspeed.train_batch_size"]
    assert Path(edit.file).read_text()[edit.start : edit.end] == "256"


def test_keys_are_those_of_the_real_deepspeed():
    """Fields and aliases of the installed package's own sections, read from its source without
    importing it.
    """
    runtime = Path(find_spec("deepspeed").origin).parent / "runtime"
    for section, file, model in (
        ("zero_optimization", "zero/config.py", "DeepSpeedZeroConfig"),
        (
            "zero_optimization.offload_param",
            "zero/offload_config.py",
            "DeepSpeedZeroOffloadParamConfig",
        ),
        (
            "zero_optimization.offload_optimizer",
            "zero/offload_config.py",
            "DeepSpeedZeroOffloadOptimizerConfig",
        ),
        ("fp16", "precision_config.py", "DeepSpeedFP16Config"),
        ("bf16", "precision_config.py", "DeepSpeedBF16Config"),
    ):
        tree = ast.parse((runtime / file).read_text())
        body = next(
            node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == model
        ).body
        fields = [
            node
            for node in body
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        ]
        aliases = {
            word.value.value
            for node in fields
            for word in ast.walk(node)
            if isinstance(word, ast.keyword) and word.arg == "alias"
        }
        assert len(fields) > 3
        assert {node.target.id for node in fields} | aliases <= deepspeed_keys.SECTIONS[section]
    constants = dict(
        re.findall(r'^([A-Z_]+) = "(\w+)"', (runtime / "constants.py").read_text(), re.MULTILINE)
    )
    read_by_name = re.findall(
        r"get_scalar_param\(param_dict, ([A-Z_]+)", (runtime / "config.py").read_text()
    )
    keys = {constants[name] for name in read_by_name if name in constants}
    assert len(keys) > 12 and keys <= deepspeed_keys.TOP


def test_the_real_parser_reads_the_same_json(tmp_path):
    text = (
        '{"train_batch_size": 2, // c\n "steps_per_print": 4, "zero_optimization": {"stage": 2,},'
        ' "bf16": {"enabled": true},}'
    )
    reading = read(tmp_path, "ds.json", text)
    import hjson

    real = hjson.loads((tmp_path / "ds.json").read_text())
    flat = {f"deepspeed.{key}": value for key, value in real.items() if not isinstance(value, dict)}
    flat |= {
        f"deepspeed.{key}.{name}": one
        for key, value in real.items()
        if isinstance(value, dict)
        for name, one in value.items()
    }
    assert plain(reading) == flat


def test_auto_alone_is_asked_for(tmp_path):
    reading = read(tmp_path, "ds.json", json.dumps(AUTO))
    assert {one.name for one in reading.unresolved} == {
        "deepspeed.train_micro_batch_size_per_gpu",
        "deepspeed.gradient_accumulation_steps",
        "deepspeed.fp16.enabled",
        "deepspeed.bf16.enabled",
    }
    assert not reading.notes


FACTORY = """\
### model
model_name_or_path: Qwen/Qwen1.5-72B
stage: sft
finetuning_type: lora
lora_rank: 8
lora_target: all
deepspeed: examples/deepspeed/ds.json  # choices
cutoff_len: 1024
per_device_train_batch_size: 2
gradient_accumulation_steps: 4
learning_rate: 1.0e-5
bf16: true
flash_attn: fa2
"""


def test_llama_factory_fills_auto_from_the_json_beside_it(tmp_path):
    (tmp_path / "ds.json").write_text(json.dumps(AUTO))
    (tmp_path / "config.json").write_text('{"model_type": "qwen2", "hidden_size": 8192}')
    reading = read(tmp_path, "sft.yaml", FACTORY, sets={"gpus": "16"})
    assert (reading.kind, reading.framework, reading.unresolved) == ("huggingface", "deepspeed", ())
    stated(
        reading,
        {
            "model": "Qwen/Qwen1.5-72B",
            "hf.finetuning_type": "lora",
            "hf.lora_rank": 8,
            "hf.per_device_train_batch_size": 2,
            "seq_length": 1024,
            "deepspeed.train_micro_batch_size_per_gpu": 2,
            "deepspeed.gradient_accumulation_steps": 4,
            "deepspeed.train_batch_size": 16 * 2 * 4,
            "deepspeed.bf16.enabled": True,
            "deepspeed.fp16.enabled": False,
            "deepspeed.zero_optimization.stage": 3,
            "deepspeed.gradient_clipping": 1.0,
            "deepspeed.zero_optimization.reduce_bucket_size": 8192 * 8192,
            "deepspeed.zero_optimization.stage3_prefetch_bucket_size": int(0.9 * 8192 * 8192),
            "deepspeed.zero_optimization.stage3_param_persistence_threshold": 81920,
            "hf.flash_attn": "fa2",
        },
    )
    assert plain(reading)["hf_config"]["hidden_size"] == 8192
    assert (
        reading.values["deepspeed.bf16.enabled"].where == "ds.json bf16.enabled auto, sft.yaml bf16"
    )


def test_what_contradicts_the_arguments_is_said(tmp_path):
    (tmp_path / "ds.json").write_text(
        '{"train_batch_size": 256, "train_micro_batch_size_per_gpu": 8,'
        ' "gradient_accumulation_steps": 1}'
    )
    reading = read(
        tmp_path,
        "args.yaml",
        "deepspeed: ds.json\nper_device_train_batch_size: 8\ngradient_accumulation_steps: 4\n",
        sets={"gpus": 8},
    )
    assert [note for note in reading.notes if "the Trainer stops" in note] == [
        "gradient_accumulation_steps 1 in the DeepSpeed configuration, but"
        " gradient_accumulation_steps is 4: the Trainer stops there"
    ]
    eight = with_trainer(reading, 4)
    assert any("4 x 8 x 4 = 128" in note for note in eight.notes)


def test_a_json_that_is_not_there_is_said(tmp_path):
    reading = read(tmp_path, "sft.yaml", FACTORY)
    assert any("examples/deepspeed/ds.json is not beside" in note for note in reading.notes)
    (tmp_path.parent / "outside.json").write_text("{}")
    assert companions.file_beside("../outside.json", str(tmp_path / "sft.yaml")) is None


def test_a_link_out_of_the_folder_is_not_followed(tmp_path):
    (tmp_path / "secret.json").write_text('{"train_batch_size": 1}')
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "ds.json").symlink_to(tmp_path / "secret.json")
    assert companions.file_beside("ds.json", str(folder / "sft.yaml")) is None


def test_axolotl(tmp_path):
    reading = read(
        tmp_path,
        "lora.yml",
        """
base_model: NousResearch/Llama-3.2-1B
sequence_len: 4096
adapter: lora
lora_r: 16
micro_batch_size: 2
gradient_accumulation_steps: 4
bf16: auto
gradient_checkpointing: true
fsdp:
  - full_shard
  - auto_wrap
""",
    )
    assert (reading.kind, reading.framework) == ("huggingface", "torch")
    stated(
        reading,
        {
            "model": "NousResearch/Llama-3.2-1B",
            "seq_length": 4096,
            "hf.adapter": "lora",
            "hf.lora_rank": 16,
            "hf.per_device_train_batch_size": 2,
            "hf.gradient_accumulation_steps": 4,
            "hf.gradient_checkpointing": True,
            "use_torch_fsdp2": True,
        },
    )


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("FULL_SHARD", {"use_torch_fsdp2": True}),
        ("SHARD_GRAD_OP", {"use_torch_fsdp2": True, "torch_fsdp2_no_reshard_after_forward": True}),
        ("NO_SHARD", {"use_torch_fsdp2": False, "data_parallel_shard_degree": 1}),
        ("HYBRID_SHARD", {"use_torch_fsdp2": True, "fsdp_hybrid": True}),
    ],
)
def test_accelerate_fsdp(tmp_path, strategy, expected):
    reading = read(
        tmp_path,
        "fsdp.yaml",
        f"""
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
mixed_precision: 'bf16'
num_machines: 2
num_processes: 16
fsdp_config:
  fsdp_sharding_strategy: {strategy}
  fsdp_activation_checkpointing: true
""",
    )
    assert (reading.kind, reading.framework) == ("huggingface", "torch")
    stated(
        reading,
        {"launch.nodes": 2, "launch.gpus": 16, "hf.bf16": True, "hf.fp16": False, **expected},
    )
    assert plain(reading)["hf.gradient_checkpointing"] is True
    assert [one.name for one in reading.unresolved] == ["hf.per_device_train_batch_size"]


def test_accelerate_deepspeed(tmp_path):
    (tmp_path / "zero1.json").write_text(
        '{"zero_optimization": {"stage": 1}, "steps_per_print": 5, "bf16": {"enabled": "auto"}}'
    )
    reading = read(
        tmp_path,
        "ds.yaml",
        """
distributed_type: DEEPSPEED
mixed_precision: bf16
num_processes: 2
deepspeed_config:
  deepspeed_config_file: ../templates/zero1.json
  zero3_init_flag: false
""",
    )
    assert reading.framework == "deepspeed"
    stated(
        reading,
        {"deepspeed.zero_optimization.stage": 1, "deepspeed.bf16.enabled": True, "launch.gpus": 2},
    )
    bare = read(
        tmp_path,
        "ds2.yaml",
        """
distributed_type: DEEPSPEED
num_processes: 8
mixed_precision: fp16
deepspeed_config: {zero_stage: 3, offload_optimizer_device: cpu, gradient_accumulation_steps: 4}
""",
    )
    stated(
        bare,
        {
            "deepspeed.zero_optimization.stage": 3,
            "deepspeed.zero_optimization.offload_optimizer.device": "cpu",
            "deepspeed.gradient_accumulation_steps": 4,
            "hf.fp16": True,
        },
    )


def test_a_default_contradicts_only_where_the_trainer_is_in_the_file(tmp_path):
    (tmp_path / "ds.json").write_text(
        '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}'
    )
    alone = read(
        tmp_path,
        "a.yaml",
        "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config: {deepspeed_config_file:"
        " ds.json}\n",
    )
    assert not any("Trainer stops" in note for note in alone.notes)
    trainer = read(
        tmp_path, "b.yaml", "deepspeed: ds.json\noutput_dir: out\nmodel_name_or_path: x/y\n"
    )
    assert any(
        "per_device_train_batch_size is 8: the Trainer stops" in note for note in trainer.notes
    )


def test_duplicates_are_named(tmp_path):
    reading = read(
        tmp_path,
        "ds.json",
        '{"train_batch_size": 8, "train_batch_size": 16, "fp16": {"enabled": true}}',
    )
    assert plain(reading)["deepspeed.train_batch_size"] == 16
    assert any("train_batch_size twice" in note for note in reading.notes)


def test_a_kind_that_nobody_knows():
    with pytest.raises(InputError, match="kind that is known"):
        detect.read_texts([("a.json", '{"a": 1}')], kind="word")
