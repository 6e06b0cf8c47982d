"""Switches of a question: parsed, checked against version and precision, and what they make of a
stack.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import InputError
from planner.specs import library, resolve
from planner.specs import plan as plans
from planner.specs.question import from_words
from planner.specs.switches.switch import Switch, Value
from planner.specs.switches.table import (
    BY_FRAMEWORK,
    defaults,
    effects,
    parse,
    settings_of,
    shown,
    with_switches,
)

MEGATRON = BY_FRAMEWORK["megatron"]


@st.composite
def settings(draw: st.DrawFn) -> dict[str, Value]:
    names = draw(st.lists(st.sampled_from(sorted(MEGATRON)), unique=True))
    return {name: draw(value_of(MEGATRON[name])) for name in names}


def value_of(switch: Switch) -> st.SearchStrategy[Value]:
    if switch.values:
        return st.sampled_from(switch.values)
    if switch.share:
        return st.sampled_from((0.125, 0.5, 1.0))
    if switch.words:
        chosen = st.lists(st.sampled_from(switch.words), unique=True)
        return chosen.map(lambda words: "+".join(sorted(words, key=switch.words.index)) or "none")
    return st.integers(switch.lowest, 900)


@given(settings())
def test_settings_are_parsed_as_they_are_shown(chosen: dict[str, Value]) -> None:
    words = [f"{name}={shown(value)}" for name, value in chosen.items()]
    assert parse(words, "megatron") == chosen


def flat(figures: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Figures by dotted name."""
    out: dict[str, Any] = {}
    for name, value in figures.items():
        own = flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
        out |= own
    return out


@given(settings(), settings())
def test_a_stack_under_settings_does_not_remember_the_way(
    first: dict[str, Value], second: dict[str, Value]
) -> None:
    """The plain stack set to one thing, then to another, is the stack set to the other."""
    whole = defaults("megatron") | second
    stack = library.stack("megatron")
    direct = with_switches(stack, whole)
    through = with_switches(with_switches(stack, first), whole)
    assert settings_of(direct) == settings_of(through)
    others = flat(through.model_dump(exclude={"switches"}))
    for path, figure in flat(direct.model_dump(exclude={"switches"})).items():
        assert others[path] == (pytest.approx(figure) if isinstance(figure, float) else figure)


def test_every_effect_is_of_a_value_and_has_a_source() -> None:
    for framework, switches in BY_FRAMEWORK.items():
        for name, effect in effects(framework).items():
            assert set(effect) - {"source", "figure"} == set(switches[name].values)
            assert ("figure" in effect) != bool(switches[name].values)
            assert effect["source"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"switch": ("cuda_grph=attn",)}, "did you mean cuda_graph"),
        ({"switch": ("cuda_graph=all",)}, "none, attn, router, layers or full_iteration"),
        ({"switch": ("cuda_graph",)}, "NAME=VALUE"),
        ({"switch": ("cuda_graph=attn", "cuda_graph=none")}, "stated once"),
        ({"switch": ("offload_modules=core_attn+mlp",)}, "attn_norm, qkv_linear, core_attn"),
        ({"switch": ("optimizer_offload_fraction=1.5",)}, "above 0, up to 1"),
        ({"switch": ("optimizer_offload_fraction=nan",)}, "above 0, up to 1"),
        ({"switch": ("cpu_offloading_num_layers=4.5",)}, "a whole number"),
        ({"switch": ("offload_modules=moe_act",), "framework_version": "0.15"}, "megatron 0.15"),
        (
            {"switch": ("moe_dispatcher=hybridep",), "framework_version": "0.15"},
            r"megatron 0\.15 has, but got hybridep, which is there since 0\.16;",
        ),
        (
            {"switch": ("cross_entropy_fusion=te",)},
            r"megatron 0\.19 has, but got te, which is there before 0\.19;",
        ),
        ({"switch": ("use_sharp=on",)}, r"use_sharp of megatron is not \(in-network reduction"),
        ({"switch": ("zero_quantized_weights=on",)}, "is one of deepspeed"),
        ({"switch": ("moe_dispatcher=deepep", "hybridep")}, "ppplan compare --switch NAME=A,B"),
        ({"switch": ("ddp_bucket_size=-5",)}, "^switch ddp_bucket_size must be a whole number"),
        ({"switch": ("grad_reduce_dtype=bf16",), "precision": "fp16"}, "bf16 training"),
    ],
)
def test_a_faulty_switch_is_one_message(words: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        resolve.recipe(
            from_words({"model": "llama3-8b", "gpus": 8, "cluster": "h100-sxm", **words})
        )


def test_a_stack_falls_back_to_what_the_version_has() -> None:
    """Megatron-LM refuses Transformer Engine's loss since 0.18 (validate_args)."""
    question = {"model": "llama3-8b", "gpus": 8, "cluster": "h100-sxm", "stack": "nemo"}
    late = resolve.recipe(from_words(question))
    early = resolve.recipe(from_words({**question, "framework_version": "0.17"}))
    assert settings_of(late.software)["cross_entropy_fusion"] == "native"
    assert any("cross_entropy_fusion" in note for note in late.assumed)
    assert settings_of(early.software)["cross_entropy_fusion"] == "te"
    assert early.software.traffic.loss_bytes == 12.0 and late.software.traffic.loss_bytes == 36.0


@pytest.mark.parametrize(
    ("words", "kernels"),
    [
        ({"cluster": "h100-sxm"}, "cudnn"),
        ({"cluster": "a100-80g-sxm"}, "none"),
        ({"cluster": "h100-sxm", "framework_version": "0.18"}, "none"),
        ({"cluster": "h100-sxm", "switch": ("dsa_kernel_backend=none",)}, "none"),
    ],
)
def test_sparse_attention_runs_its_kernels(words: dict[str, Any], kernels: str) -> None:
    """What launch files say: [megatron-core] dsa_cudnn_kernels.py is for SM90 and later, there is
    no backend before 0.19, and TransformerConfig takes no fused rotation beside an indexer.
    """
    recipe = resolve.recipe(from_words({"model": "glm5", "gpus": 64, **words}))
    settings = settings_of(recipe.software)
    assert (settings["dsa_kernel_backend"], settings["rope_fusion"]) == (kernels, False)
    assert recipe.software.quirks.sparse_kernels == (kernels != "none")
    plain = resolve.recipe(from_words({"model": "deepseek-v3", "gpus": 64, "cluster": "h100-sxm"}))
    assert settings_of(plain.software)["dsa_kernel_backend"] == "none"
    assert settings_of(plain.software)["rope_fusion"] is True


def test_attention_of_fp32_keeps_its_scores() -> None:
    """FlashAttention takes fp16 and bf16 alone (its README); torch's own kernels take fp32 too."""
    question = {"model": "llama3-8b", "gpus": 8, "cluster": "h100-sxm", "precision": "fp32"}
    for framework, attention in (
        ("megatron", "unfused"),
        ("deepspeed", "unfused"),
        ("torch", "flash"),
    ):
        recipe = resolve.recipe(from_words(question | {"framework": framework}))
        assert recipe.attention == attention
    with pytest.raises(InputError, match="needs numbers of 16 bits"):
        resolve.recipe(from_words(question | {"attention": "flash"}))


def test_whole_numbers_are_read_as_they_are_printed() -> None:
    assert parse(["ddp_bucket_size=50,000,000"], "megatron") == {"ddp_bucket_size": 50_000_000}
    for text in ("50,00", "\N{ARABIC-INDIC DIGIT FIVE}", "5_0", "+5"):
        with pytest.raises(InputError, match="must be a whole number"):
            parse([f"ddp_bucket_size={text}"], "megatron")


@pytest.mark.parametrize(
    ("words", "switches", "says"),
    [
        ({"framework": "x"}, {}, "framework must be a known name, but got 'x'"),
        ({}, {"a": 1}, "switch must be a known name, but got 'a'"),
        ({}, {"overlap_grad_reduce": "maybe"}, "must be true or false, but got maybe"),
        ({}, {"moe_dispatcher": ["a"]}, "moe_dispatcher must be alltoall, .* but got"),
    ],
)
def test_a_saved_plan_states_known_switches(
    words: dict[str, Any], switches: dict[str, Any], says: str, tmp_path: Path
) -> None:
    question = {"model": "llama3-8b", "gpus": 8, "framework": "megatron"} | words
    layout = resolve.recipe_and_layout(from_words({"model": "llama3-8b", "gpus": 8}))[1].named()
    content = {
        "question": question | {"framework_version": "0.19"},
        "layout": layout,
        "estimate": {},
        "versions": {},
        "profile": {},
        "switches": switches,
    }
    (tmp_path / "plan.yaml").write_text(json.dumps(content))
    with pytest.raises(InputError, match=says):
        plans.read_layout(tmp_path / "plan.yaml")
