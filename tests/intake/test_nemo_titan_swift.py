"""NeMo, Megatron-Bridge, verl, torchtitan and ms-swift: every value found."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.intake.frameworks import detect
from planner.specs import library
from tests.intake.stated import read, stated

NEMO = """\
trainer:
  num_nodes: 128
  devices: 8
  precision: bf16
model:
  micro_batch_size: 1
  global_batch_size: 2048
  tensor_model_parallel_size: 4
  pipeline_model_parallel_size: 4
  virtual_pipeline_model_parallel_size: 5
  encoder_seq_length: 4096
  max_position_embeddings: ${.encoder_seq_length}
  num_layers: 80
  hidden_size: 8192
  ffn_hidden_size: 28672
  num_attention_heads: 64
  num_query_groups: 8
  normalization: rmsnorm
  bias: false
  activation: fast-swiglu
  share_embeddings_and_output_weights: false
  activations_checkpoint_granularity: null
  activations_checkpoint_method: block
  sequence_parallel: true
  ub_tp_comm_overlap: true
  fp8: true
  fp8_hybrid: true
  fp8_e4m3: false
  optim:
    name: mcore_distributed_optim
    overlap_grad_sync: true
  data:
    seq_length: ${model.encoder_seq_length}
    data_prefix: ???
"""


def test_nemo_with_references(tmp_path):
    reading = read(tmp_path, "llama2_70b.yaml", NEMO)
    assert (reading.kind, reading.framework, reading.unresolved) == ("nemo", "megatron", ())
    stated(
        reading,
        {
            "launch.nodes": 128,
            "launch.gpus_per_node": 8,
            "bf16": True,
            "fp16": False,
            "micro_batch_size": 1,
            "global_batch_size": 2048,
            "tensor_model_parallel_size": 4,
            "pipeline_model_parallel_size": 4,
            "virtual_pipeline_model_parallel_size": 5,
            "seq_length": 4096,
            "max_position_embeddings": 4096,
            "num_layers": 80,
            "hidden_size": 8192,
            "ffn_hidden_size": 28672,
            "num_attention_heads": 64,
            "num_query_groups": 8,
            "group_query_attention": True,
            "normalization": "RMSNorm",
            "add_bias_linear": False,
            "swiglu": True,
            "untie_embeddings_and_output_weights": True,
            "recompute_method": "block",
            "sequence_parallel": True,
            "tp_comm_overlap": True,
            "fp8_format": "hybrid",
            "use_distributed_optimizer": True,
            "overlap_grad_reduce": True,
        },
    )
    assert "recompute_granularity" not in reading.values


def test_hydra_overrides_on_a_file(tmp_path):
    (tmp_path / "conf.yaml").write_text(NEMO)
    line = (
        "python x.py --config-name=conf trainer.devices=4 ++model.num_layers=40"
        " +model.new.thing=[1,2] ~model.fp8 model.bias=True"
    )
    words = line.split()
    found = [
        *detect.leaves(detect.parse(NEMO, str(tmp_path / "conf.yaml"))),
        *detect.overrides(words, "run.sh"),
    ]
    reading = detect.translated(found, str(tmp_path / "conf.yaml"))
    stated(
        reading,
        {
            "launch.gpus_per_node": 4,
            "num_layers": 40,
            "model.new.thing": [1, 2],
            "add_bias_linear": True,
            "hidden_size": 8192,
        },
    )
    assert (
        reading.values["num_layers"].where == "run.sh ++model.num_layers=40"
        and "num_layers" not in reading.edits
    )
    assert "fp8_format" not in reading.values


def test_sums_of_references(tmp_path):
    reading = read(
        tmp_path,
        "gpt.yaml",
        """
trainer: {devices: 8}
model:
  hidden_size: 768
  ffn_hidden_size: ${multiply:4, ${.hidden_size}}
  num_layers: ${divide_ceil:${.hidden_size}, 100}
  kv_channels: ${divide_floor:${model.hidden_size},${.nobody}}
""",
    )
    stated(reading, {"ffn_hidden_size": 3072, "num_layers": 8})
    assert [one.name for one in reading.unresolved] == ["kv_channels"]


def test_bridge_yaml(tmp_path):
    reading = read(
        tmp_path,
        "override.yaml",
        """
dataset: {seq_length: 4096}
train: {train_iters: 100, global_batch_size: 8, micro_batch_size: 1}
model: {tensor_model_parallel_size: 2, recompute_granularity: selective, recompute_modules: \
[core_attn], num_moe_experts: 64}
mixed_precision: bf16_with_fp8_current_scaling_mixed
ddp: {overlap_grad_reduce: true, use_distributed_optimizer: true}
comm_overlap: {tp_comm_overlap: true}
""",
    )
    assert reading.kind == "bridge"
    stated(
        reading,
        {
            "seq_length": 4096,
            "global_batch_size": 8,
            "micro_batch_size": 1,
            "tensor_model_parallel_size": 2,
            "num_experts": 64,
            "recompute_granularity": "selective",
            "recompute_modules": ["core_attn"],
            "bf16": True,
            "fp8_format": "hybrid",
            "fp8_recipe": "tensorwise",
            "overlap_grad_reduce": True,
            "use_distributed_optimizer": True,
            "tp_comm_overlap": True,
        },
    )


def test_verl_overrides():
    line = """data.max_prompt_length=1024 data.max_response_length=2048 \
actor_rollout_ref.model.path=Qwen/Qwen3-30B-A3B
        actor_rollout_ref.model.lora.rank=16 actor_rollout_ref.actor.ppo_mini_batch_size=16 \
actor_rollout_ref.rollout.n=4
        actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2 \
actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2
        actor_rollout_ref.actor.megatron.expert_model_parallel_size=4 \
actor_rollout_ref.rollout.tensor_model_parallel_size=8
        +actor_rollout_ref.actor.megatron.override_transformer_config.recompute_granularity=full
        actor_rollout_ref.ref.megatron.tensor_model_parallel_size=16 trainer.n_gpus_per_node=8 \
trainer.nnodes=1"""
    reading = detect.translated(detect.overrides(line.split(), "run.sh"), "run.sh")
    assert (reading.kind, reading.framework) == ("verl", "megatron")
    stated(
        reading,
        {
            "seq_length": 3072,
            "model": "Qwen/Qwen3-30B-A3B",
            "hf.lora_rank": 16,
            "global_batch_size": 64,
            "micro_batch_size": 2,
            "tensor_model_parallel_size": 2,
            "expert_model_parallel_size": 4,
            "recompute_granularity": "full",
            "launch.gpus_per_node": 8,
            "launch.nodes": 1,
        },
    )


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            (
                "nemo llm pretrain --factory llama3_70b_16k(num_nodes=4)"
                " trainer.strategy.tensor_model_parallel_size=8 data.global_batch_size=512"
            ),
            {
                "model": "llama3_70b",
                "seq_length": 16384,
                "launch.nodes": 4,
                "tensor_model_parallel_size": 8,
                "global_batch_size": 512,
            },
        ),
        (
            (
                "run.py --recipe llama31_405b_pretrain_1024gpu_gb200_fp8mx_large_scale_config"
                " model.pipeline_model_parallel_size=8 train.micro_batch_size=1"
            ),
            {
                "model": "llama3.1_405b",
                "launch.gpus": 1024,
                "launch.hardware": "gb200",
                "bf16": True,
                "fp8_format": "hybrid",
                "fp8_recipe": "mxfp8",
                "pipeline_model_parallel_size": 8,
                "micro_batch_size": 1,
            },
        ),
        ("run.py --recipe=qwen3_30b_a3b_peft_config", {"model": "qwen3_30b_a3b", "peft": "lora"}),
    ],
)
def test_names_of_recipes(words, expected):
    reading = detect.translated(detect.overrides(words.split(), "run.sh"), "run.sh")
    stated(reading, expected)
    assert library.model(reading.values["model"].value).num_layers > 0
    assert any("own code" in note for note in reading.notes)


def test_nemo_tokenizer_and_neox_biases(tmp_path):
    stated(
        read(
            tmp_path,
            "a.yaml",
            "model: {tokenizer: {type: GPT2BPETokenizer, model: null}}\ntrainer: {devices: 8}\n",
        ),
        {"tokenizer_type": "GPT2BPETokenizer", "launch.gpus_per_node": 8},
    )
    stated(
        read(
            tmp_path,
            "b.yml",
            '{"pos-emb": "rotary", "use_bias_in_mlp": False, "vocab-file": "x/20B_tokenizer.json"}',
        ),
        {"add_bias_linear": False, "add_qkv_bias": True, "vocab_size": 50277},
    )
    stated(
        read(
            tmp_path,
            "c.yml",
            '{"pos-emb": "rotary", "use_bias_in_mlp": False, "use_bias_in_attn_linear": False}',
        ),
        {"add_bias_linear": False, "add_qkv_bias": None},
    )


def test_torchtitan_toml(tmp_path):
    reading = read(
        tmp_path,
        "llama3_70b.toml",
        """
[model]
name = "llama3"
flavor = "70B"
converters = ["float8"]
[training]
local_batch_size = 16
global_batch_size = -1
seq_len = 8192
[parallelism]
data_parallel_replicate_degree = 1
data_parallel_shard_degree = -1
tensor_parallel_degree = 8  # 8-way
pipeline_parallel_degree = 2
pipeline_parallel_microbatch_size = 2
pipeline_parallel_schedule = "Interleaved1F1B"
[activation_checkpoint]
mode = "full"
[made_up]
key = 1
""",
    )
    assert (reading.kind, reading.framework, reading.unknown) == (
        "torchtitan",
        "torch",
        ("made_up.key",),
    )
    stated(
        reading,
        {
            "model": "llama3-70b",
            "fp8_format": "e4m3",
            "fp8_recipe": "tensorwise",
            "local_batch_size": 16,
            "micro_batch_size": 2,
            "seq_length": 8192,
            "data_parallel_shard_degree": -1,
            "data_parallel_replicate_degree": 1,
            "use_torch_fsdp2": True,
            "tensor_model_parallel_size": 8,
            "pipeline_model_parallel_size": 2,
            "pipeline_parallel_schedule": "Interleaved1F1B",
            "recompute_granularity": "full",
            "bf16": True,
        },
    )
    assert "global_batch_size" not in reading.values
    edit = reading.edits["tensor_model_parallel_size"]
    assert Path(edit.file).read_text()[edit.start : edit.end] == "8"


def test_torchtitan_before_2025(tmp_path):
    reading = read(
        tmp_path,
        "old.toml",
        '[job]\ndump_folder="x"\n[training]\nbatch_size = 2\ntensor_parallel_degree = 4\n'
        "[experimental]\npipeline_parallel_degree = 2\n",
    )
    stated(
        reading,
        {
            "local_batch_size": 2,
            "micro_batch_size": 1,
            "tensor_model_parallel_size": 4,
            "pipeline_model_parallel_size": 2,
        },
    )


def test_swift_yaml(tmp_path):
    reading = read(
        tmp_path,
        "sft.yaml",
        """
model: Qwen/Qwen3-30B-A3B
tuner_type: lora
lora_rank: 8
tensor_model_parallel_size: 2
expert_model_parallel_size: 8
micro_batch_size: 1
global_batch_size: 16
max_length: 8192
torch_dtype: bfloat16
""",
    )
    assert (reading.kind, reading.framework) == ("swift", "megatron")
    stated(
        reading,
        {
            "model": "Qwen/Qwen3-30B-A3B",
            "hf.train_type": "lora",
            "hf.lora_rank": 8,
            "tensor_model_parallel_size": 2,
            "expert_model_parallel_size": 8,
            "micro_batch_size": 1,
            "global_batch_size": 16,
            "seq_length": 8192,
            "bf16": True,
        },
    )


def test_set_restates_a_key_of_the_file_and_a_name_of_ours(tmp_path):
    reading = read(
        tmp_path,
        "conf.yaml",
        NEMO,
        sets={"model.num_layers": "40", "tensor-model-parallel-size": "2"},
    )
    stated(reading, {"num_layers": 40, "tensor_model_parallel_size": 2})
    assert (
        reading.values["num_layers"].origin
        == reading.values["tensor_model_parallel_size"].origin
        == "option"
    )


@pytest.mark.parametrize(
    ("command", "kind", "expected"),
    [
        (
            (
                "torchrun --nproc_per_node=8 --nnodes=8 run_recipe.py --recipe"
                " llama3_70b_pretrain_config model.tensor_model_parallel_size=4"
            ),
            "bridge",
            {"model": "llama3_70b", "launch.gpus": 64, "tensor_model_parallel_size": 4},
        ),
        (
            "nemo llm pretrain --factory llama3_8b trainer.devices=8 trainer.num_nodes=2",
            "nemo",
            {"model": "llama3_8b", "launch.nodes": 2},
        ),
        (
            "python run.py --recipe=deepseek_v3_pretrain_256gpu_gb200_fp8mx_config",
            None,
            {"model": "deepseek_v3", "launch.gpus": 256},
        ),
    ],
)
def test_a_recipe_named_in_a_script(tmp_path, command, kind, expected):
    """Megatron-Bridge's run_recipe.py and NeMo 2's command line name their recipe by a flag."""
    from planner.intake.read import read

    path = tmp_path / "run.sh"
    path.write_text(f"#!/bin/bash\n{command}\n")
    got = read(path)
    assert kind in (None, got.kind)
    assert {name: got.values[name].value for name in expected} == expected


@pytest.mark.parametrize(
    "mixed, says",
    [("{}", {}), ("bf17", {}), ("bf16_mixed", {"bf16": True, "fp16": False})],
)
def test_a_mixed_precision_that_says_no_numbers_leaves_the_recipe_s(
    tmp_path: Path, mixed: str, says: dict[str, bool]
) -> None:
    """[megatron-bridge] training/mixed_precision.py: every registered name has bf16 or fp16."""
    file = tmp_path / "overrides.yaml"
    file.write_text(f"train:\n  micro_batch_size: 1\nmixed_precision: {mixed}\n")
    values = detect.read(file).values
    assert {name: values[name].value for name in ("bf16", "fp16") if name in values} == says
