"""Configurations in the styles that people write them in: every value found, with where it stands
and where it can be replaced.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.errors import InputError
from planner.intake.frameworks import detect
from tests.intake.stated import plain, read, stated

FLAGS_YAML = """\
ENV_VARS:
  CUDA_DEVICE_MAX_CONNECTIONS: 1
  NVTE_ALLOW_NONDETERMINISTIC_ALGO: 0
MODEL_ARGS:
  --num-layers: 12
  --hidden-size: 512
  --num-attention-heads: 8
  --seq-length: 1024
  --micro-batch-size: 4
  --global-batch-size: 32
  --tensor-model-parallel-size: 2
  --pipeline-model-parallel-size: 4
  --num-layers-per-virtual-pipeline-stage: 1
  --lr: 1e-4
  --recompute-modules: [core_attn, mlp]
  --disable-bias-linear: true
  --no-gradient-accumulation-fusion: true
  --sequence-parallel: true
  --save: ${CHECKPOINTS}
  --bf16: true
TEST_TYPE: regular
"""


def test_yaml_whose_keys_are_flags(tmp_path):
    reading = read(tmp_path, "model_config.yaml", FLAGS_YAML)
    assert (reading.kind, reading.framework, reading.unknown) == ("megatron-yaml", "megatron", ())
    stated(
        reading,
        {
            "env.CUDA_DEVICE_MAX_CONNECTIONS": 1,
            "env.NVTE_ALLOW_NONDETERMINISTIC_ALGO": 0,
            "num_layers": 12,
            "hidden_size": 512,
            "num_attention_heads": 8,
            "seq_length": 1024,
            "micro_batch_size": 4,
            "global_batch_size": 32,
            "tensor_model_parallel_size": 2,
            "pipeline_model_parallel_size": 4,
            "num_layers_per_virtual_pipeline_stage": 1,
            "lr": 1e-4,
            "recompute_modules": ["core_attn", "mlp"],
            "add_bias_linear": False,
            "gradient_accumulation_fusion": False,
            "sequence_parallel": True,
            "bf16": True,
        },
    )
    assert reading.values["num_layers"].where == "model_config.yaml MODEL_ARGS.--num-layers"
    edit = reading.edits["pipeline_model_parallel_size"]
    text = Path(edit.file).read_text()
    assert (
        text[: edit.start].endswith("--pipeline-model-parallel-size: ")
        and text[edit.start : edit.end] == "4"
    )


def test_megatron_yaml_cfg(tmp_path):
    reading = read(
        tmp_path,
        "gpt_config.yaml",
        """
language_model:
  num_layers: 24
  hidden_size: 1024
  num_attention_heads: 16
  num_query_groups: null
  activation_func: swiglu
  num_moe_experts: 8
  normalization: "LayerNorm"
  recompute_granularity: null
model_parallel:
  tensor_model_parallel_size: 2
  pipeline_model_parallel_size: 1
  sequence_parallel: True
  bf16: True
  fp16: False
micro_batch_size: 2
global_batch_size: 128
seq_length: 4096
use_distributed_optimizer: False
""",
    )
    stated(
        reading,
        {
            "num_layers": 24,
            "hidden_size": 1024,
            "num_attention_heads": 16,
            "swiglu": True,
            "num_experts": 8,
            "bf16": True,
            "fp16": False,
            "tensor_model_parallel_size": 2,
            "pipeline_model_parallel_size": 1,
            "sequence_parallel": True,
            "micro_batch_size": 2,
            "global_batch_size": 128,
            "seq_length": 4096,
            "use_distributed_optimizer": False,
        },
    )
    assert (
        "num_query_groups" not in reading.values and "recompute_granularity" not in reading.values
    )


def test_flags_that_nobody_knows_are_kept_and_near_misses_named(tmp_path):
    reading = read(
        tmp_path,
        "m.yaml",
        "MODEL_ARGS:\n  --num-layer: 12\n  --our-own-flag: 3\n  --no-rope-fusion: true\n"
        "  --hidden-size: 64\n",
    )
    stated(
        reading, {"num_layer": 12, "our_own_flag": 3, "apply_rope_fusion": False, "hidden_size": 64}
    )
    assert reading.unknown == ("MODEL_ARGS.--num-layer", "MODEL_ARGS.--our-own-flag")
    assert reading.notes == ("num_layer is no argument of Megatron, num_layers is one",)
    nemo = read(
        tmp_path,
        "n.yaml",
        "trainer: {devices: 8}\nmodel: {tensor_model_paralel_size: 8, megatron_amp_O2: true}\n",
    )
    assert nemo.unknown == ("model.tensor_model_paralel_size",)
    assert nemo.notes == (
        "tensor_model_paralel_size is no argument of Megatron, tensor_model_parallel_size is one",
    )


NEOX = """\
# a model
{
  # parallelism
  "pipe-parallel-size": 2,
  "model_parallel_size": 4,
  "num-layers": 32, "hidden-size": 4096, "num-attention-heads": 32, "num_kv_heads": 8,
  "intermediate_size": 32768, "mlp_multiple_of": 256, "activation": "swiglu",
  "seq-length": 2048,
  "norm": "rmsnorm", "pos-emb": "rotary", "rotary_pct": 1, "no-weight-tying": true,
  "attention-config": [[["flash"], 32]],
  "optimizer": {"type": "Adam", "params": {"lr": 0.97e-4, "betas": [0.9, 0.95],}},
  "zero_optimization": {"stage": 1, "reduce_scatter": True},
  "train_micro_batch_size_per_gpu": 4,
  "gradient_accumulation_steps": 32,
  "checkpoint-activations": true,
  "fp16": {"enabled": true, "loss_scale": 0},
  "my_own_key": 5,
}
"""


def test_neox_with_comments_dashes_and_trailing_commas(tmp_path):
    reading = read(tmp_path, "7B.yml", NEOX)
    assert (reading.kind, reading.framework, reading.unknown) == (
        "neox",
        "deepspeed",
        ("my_own_key",),
    )
    stated(
        reading,
        {
            "pipeline_model_parallel_size": 2,
            "tensor_model_parallel_size": 4,
            "num_layers": 32,
            "hidden_size": 4096,
            "num_attention_heads": 32,
            "num_query_groups": 8,
            "group_query_attention": True,
            "swiglu": True,
            "seq_length": 2048,
            "normalization": "RMSNorm",
            "position_embedding_type": "rope",
            "rotary_percent": 1,
            "untie_embeddings_and_output_weights": True,
            "use_flash_attn": True,
            "optimizer": "adam",
            "deepspeed.optimizer.params.lr": 0.97e-4,
            "deepspeed.zero_optimization.stage": 1,
            "micro_batch_size": 4,
            "deepspeed.train_micro_batch_size_per_gpu": 4,
            "deepspeed.gradient_accumulation_steps": 32,
            "recompute_granularity": "full",
            "fp16": True,
            "deepspeed.fp16.loss_scale": 0,
            "my_own_key": 5,
        },
    )
    # Llama 7B's width: 32768 * 2 / 3 over two branches, up to a multiple of 256
    assert plain(reading)["ffn_hidden_size"] == 11008
    assert reading.values["pipeline_model_parallel_size"].where == "7B.yml pipe-parallel-size"


def test_neox_files_are_merged_and_doubles_noted(tmp_path):
    (tmp_path / "a.yml").write_text(NEOX)
    (tmp_path / "local.yml").write_text('{"data-path": "data", "seq_length": 4096, "num_gpus": 8}')
    reading = detect.read_all([tmp_path / "a.yml", tmp_path / "local.yml"])
    stated(
        reading,
        {"seq_length": 4096, "data_path": "data", "launch.gpus_per_node": 8, "num_layers": 32},
    )
    assert reading.edits["seq_length"].file.endswith("local.yml")
    assert any("seq_length" in note and "refuses" in note for note in reading.notes)


def test_neox_without_a_pipeline(tmp_path):
    stated(
        read(tmp_path, "x.yml", '{"pipe-parallel-size": 0, "model-parallel-size": 1}'),
        {"pipeline_model_parallel_size": 1, "no_pipeline_parallel": True},
    )


PRIMUS = """\
work_group: ${PRIMUS_TEAM:amd}
modules:
  pre_trainer:
    framework: megatron
    config: pre_trainer.yaml
    model: tiny.yaml
    overrides:
      train_iters: ${ITERS:50}
      micro_batch_size: 3
      global_batch_size: 24
      seq_length: 8192
      lr_decay_iters: null
      tensor_model_parallel_size: ${TP:1}
      pipeline_model_parallel_size: ${PP}
      use_torch_fsdp2: true
      use_distributed_optimizer: 0
      sequence_parallel: 1
      recompute_granularity: full # full, selective
      recompute_num_layers: 80
"""


def test_primus_alone(tmp_path):
    reading = read(tmp_path, "exp.yaml", PRIMUS)
    assert (reading.kind, reading.framework) == ("primus", "megatron")
    stated(
        reading,
        {
            "model": "tiny",
            "train_iters": 50,
            "micro_batch_size": 3,
            "global_batch_size": 24,
            "seq_length": 8192,
            "bf16": True,
            "tensor_model_parallel_size": 1,
            "use_torch_fsdp2": True,
            "use_distributed_optimizer": False,
            "sequence_parallel": True,
            "recompute_granularity": "full",
            "recompute_num_layers": 80,
        },
    )
    assert reading.values["tensor_model_parallel_size"].origin == "environment"
    assert [one.name for one in reading.unresolved] == ["pipeline_model_parallel_size"]
    assert reading.values["bf16"].origin == "default" and "lr_decay_iters" not in reading.values


def test_primus_with_its_model_files_and_a_variable(tmp_path):
    (tmp_path / "tiny.yaml").write_text(
        "extends:\n  - base.yaml\nnum_layers: 80\nhidden_size: 8192\nnum_query_groups: 8\n"
    )
    (tmp_path / "base.yaml").write_text(
        "num_layers: 24\nswiglu: true\ngroup_query_attention: true\nnum_attention_heads: 64\n"
    )
    reading = read(tmp_path, "exp.yaml", PRIMUS, sets={"PP": "4"})
    stated(
        reading,
        {
            "num_layers": 80,
            "hidden_size": 8192,
            "num_query_groups": 8,
            "num_attention_heads": 64,
            "swiglu": True,
            "pipeline_model_parallel_size": 4,
            "untie_embeddings_and_output_weights": True,
        },
    )
    assert (
        reading.unresolved == ()
        and reading.values["pipeline_model_parallel_size"].origin == "option"
    )
    assert reading.edits["num_layers"].file.endswith("tiny.yaml")


def test_primus_files_in_a_circle(tmp_path):
    (tmp_path / "tiny.yaml").write_text("extends: [tiny.yaml]\n")
    with pytest.raises(InputError, match="circle"):
        read(tmp_path, "exp.yaml", PRIMUS)


def test_primus_trains_with_others_too(tmp_path):
    with pytest.raises(InputError, match=r"but exp\.yaml does with maxtext"):
        read(tmp_path, "exp.yaml", PRIMUS.replace("framework: megatron", "framework: maxtext"))
    bridge = read(
        tmp_path, "b.yaml", PRIMUS.replace("framework: megatron", "framework: megatron_bridge")
    )
    assert "bf16" not in bridge.values and plain(bridge)["micro_batch_size"] == 3
    titan = read(
        tmp_path,
        "t.yaml",
        """
modules:
  pre_trainer:
    framework: torchtitan
    model: llama3.1_8B.yaml
    overrides:
      training: {local_batch_size: 4, seq_len: 8192}
      parallelism: {tensor_parallel_degree: 2}
""",
    )
    assert (titan.kind, titan.framework) == ("primus", "torch")
    stated(
        titan,
        {
            "micro_batch_size": 4,
            "seq_length": 8192,
            "tensor_model_parallel_size": 2,
            "use_torch_fsdp2": True,
            "model": "llama3.1_8B",
        },
    )


def test_words_of_other_files_are_refused_in_one_sentence(tmp_path):
    for name, text in (
        ("a.json", '{"colour": "red"}'),
        ("b.yaml", "- 1\n- 2\n"),
        ("c.yaml", ""),
        ("d.toml", "x = "),
        ("g.toml", "[training]\nsteps = " + "9" * 5000),
        ("e.json", '{"a": '),
        ("config.json", '{"model_type": "qwen2", "hidden_size": 8}'),
        ("f.yaml", "a: [b"),
    ):
        with pytest.raises(InputError) as fault:
            read(tmp_path, name, text)
        assert name in str(fault.value) and "\n" not in str(fault.value)
        assert "set_int_max" not in str(fault.value)
    with pytest.raises(InputError, match="can be read"):
        detect.read(tmp_path / "missing.yaml")
