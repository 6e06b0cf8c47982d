"""Keys set, added and taken out: the file reads as wanted, and nothing else of its text changes."""

from __future__ import annotations

import difflib
import json

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.intake.documents.json_reader import load
from planner.intake.documents.yaml_reader import load as load_yaml
from planner.intake.frameworks import detect
from planner.intake.frameworks.edit import changed, with_key

JSON = (
    '{\n  "train_batch_size": 64,\n  "zero_optimization": {\n    "stage": 2\n  },\n  "fp16":'
    ' {"enabled": true}\n}\n'
)
NEOX = """{
  # sizes
  "pipe-parallel-size": 1,
  "model-parallel-size": 2,
  "zero_optimization": {"stage": 1, "reduce_scatter": True},
}
"""
NEMO = """trainer:
  devices: 8
model:
  num_layers: 80  # of them
  tensor_model_parallel_size: 4

  optim:
    name: fused_adam
# the end
"""
FLAGS = "MODEL_ARGS:\n  --num-layers: 12\n  --bf16: true\nTEST_TYPE: regular\n"
PRIMUS = (
    "modules:\n  pre_trainer:\n    framework: megatron\n    model: a.yaml\n    overrides:\n     "
    " micro_batch_size: 3\n"
)
TITAN = "[training]\nlocal_batch_size = 8 # each\n[parallelism]\ntensor_parallel_degree = 8\n"
TRAINER = "model_name_or_path: a/b\nper_device_train_batch_size: 2\nbf16: true\n"


def lines(before: str, after: str) -> list[str]:
    return [
        line for line in difflib.ndiff(before.splitlines(), after.splitlines()) if line[0] in "+-"
    ]


@pytest.mark.parametrize(
    ("file", "text", "kind", "name", "value", "expected"),
    [
        (
            "a.json",
            JSON,
            "deepspeed",
            "deepspeed.zero_optimization.stage",
            1,
            ['-     "stage": 2', '+     "stage": 1'],
        ),
        (
            "a.json",
            JSON,
            "deepspeed",
            "deepspeed.zero_optimization.offload_optimizer.device",
            "cpu",
            [
                '-     "stage": 2',
                '+     "stage": 2,',
                '+     "offload_optimizer": {"device": "cpu"}',
            ],
        ),
        (
            "a.json",
            JSON,
            "deepspeed",
            "deepspeed.bf16.enabled",
            True,
            [
                '-   "fp16": {"enabled": true}',
                '+   "fp16": {"enabled": true},',
                '+   "bf16": {"enabled": true}',
            ],
        ),
        (
            "a.json",
            JSON,
            "deepspeed",
            "deepspeed.train_batch_size",
            None,
            ['-   "train_batch_size": 64,'],
        ),
        (
            "a.yml",
            NEOX,
            "neox",
            "pipeline_model_parallel_size",
            2,
            ['-   "pipe-parallel-size": 1,', '+   "pipe-parallel-size": 2,'],
        ),
        (
            "a.yml",
            NEOX,
            "neox",
            "checkpoint_activations",
            True,
            ['+   "checkpoint-activations": true,'],
        ),
        (
            "a.yml",
            NEOX,
            "neox",
            "deepspeed.zero_optimization.offload_optimizer.device",
            "cpu",
            [
                '-   "zero_optimization": {"stage": 1, "reduce_scatter": True},',
                (
                    '+   "zero_optimization": {"stage": 1, "reduce_scatter": True,'
                    ' "offload_optimizer": {"device": "cpu"}},'
                ),
            ],
        ),
        (
            "a.yaml",
            NEMO,
            "nemo",
            "recompute_granularity",
            "full",
            ['+   activations_checkpoint_granularity: "full"'],
        ),
        (
            "a.yaml",
            NEMO,
            "nemo",
            "tensor_model_parallel_size",
            8,
            ["-   tensor_model_parallel_size: 4", "+   tensor_model_parallel_size: 8"],
        ),
        ("a.yaml", NEMO, "nemo", "num_layers", None, ["-   num_layers: 80  # of them"]),
        ("a.yaml", NEMO, "nemo", "launch.nodes", 4, ["+   num_nodes: 4"]),
        (
            "a.yaml",
            FLAGS,
            "megatron-yaml",
            "recompute_modules",
            ["core_attn", "mlp"],
            ['+   --recompute-modules: ["core_attn", "mlp"]'],
        ),
        (
            "a.yaml",
            PRIMUS,
            "primus",
            "tensor_model_parallel_size",
            8,
            ["+       tensor_model_parallel_size: 8"],
        ),
        (
            "a.toml",
            TITAN,
            "torchtitan",
            "recompute_granularity",
            "full",
            ["+ ", "+ [activation_checkpoint]", '+ mode = "full"'],
        ),
        (
            "a.toml",
            TITAN,
            "torchtitan",
            "pipeline_model_parallel_size",
            2,
            ["+ pipeline_parallel_degree = 2"],
        ),
        (
            "a.toml",
            TITAN,
            "torchtitan",
            "local_batch_size",
            4,
            ["- local_batch_size = 8 # each", "+ local_batch_size = 4 # each"],
        ),
        ("a.toml", TITAN, "torchtitan", "training.steps", 5, ["+ steps = 5"]),
        (
            "a.yaml",
            TRAINER,
            "huggingface",
            "hf.gradient_checkpointing",
            True,
            ["+ gradient_checkpointing: true"],
        ),
        ("a.yaml", TRAINER, "huggingface", "hf.bf16", None, ["- bf16: true"]),
        ("a.yaml", TRAINER, "huggingface", "seq_length", 5, None),
    ],
)
def test_a_key(file, text, kind, name, value, expected):
    new = changed(file, text, kind, name, value)
    if expected is None:
        assert new is None
        return
    assert [line for line in lines(text, new) if not line.startswith("?")] == expected
    if "." in name and kind == "torchtitan":
        return
    reading = detect.read_texts([(file, new)], kind=kind)
    stated = reading.values.get(name)
    assert (stated.value if stated else None) == value


KEYS = st.sampled_from(["a", "b-c", "zero", "stage", "x_y"])
TREES = st.dictionaries(
    KEYS,
    st.recursive(
        st.one_of(st.integers(-9, 99), st.booleans(), st.sampled_from(["word", "a b"])),
        lambda inner: st.one_of(
            st.dictionaries(KEYS, inner, max_size=3), st.lists(inner, max_size=2)
        ),
        max_leaves=6,
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=150, deadline=None)
@given(
    TREES,
    st.lists(KEYS, min_size=1, max_size=3),
    st.one_of(st.none(), st.integers(), st.just("cpu")),
    st.sampled_from([None, 2]),
)
def test_json_reads_as_wanted_or_is_left_alone(tree, path, value, indent):
    text = json.dumps(tree, indent=indent)
    new = with_key(load(text, "x.json"), text, tuple(path), value)
    if new is None:
        return
    at = json.loads(new)
    for part in path[:-1]:
        at = at.get(part, {})
    assert at.get(path[-1]) == value
    if path[0] not in tree and value is not None:
        assert all(new.count(word) >= text.count(word) for word in ("word", "stage"))


@settings(max_examples=200, deadline=None)
@given(
    TREES,
    st.lists(KEYS, min_size=1, max_size=3),
    st.one_of(st.none(), st.integers(), st.just("cpu")),
    st.sampled_from([False, True, None]),
)
def test_yaml_reads_as_wanted_or_is_left_alone(tree, path, value, flow):
    text = "# first\n" + yaml.safe_dump(tree, default_flow_style=flow, sort_keys=False)
    new = with_key(load_yaml(text, "x.yaml"), text, tuple(path), value)
    if new is None:
        return
    at = yaml.safe_load(new)
    for part in path[:-1]:
        at = at.get(part, {})
    assert at.get(path[-1]) == value and new.startswith("# first\n")


def test_most_keys_can_be_added():
    tree = {"a": {"stage": 1, "x_y": [1, 2]}, "zero": {"b-c": {"stage": "word"}}}
    for flow in (False, True, None):
        text = yaml.safe_dump(tree, default_flow_style=flow, sort_keys=False)
        for path in (("new",), ("a", "new"), ("zero", "new", "deep"), ("zero", "b-c", "new")):
            assert with_key(load_yaml(text, "x.yaml"), text, path, 3) is not None
