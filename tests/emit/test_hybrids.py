"""Layers of several kinds as Megatron-LM's flags, read back as the network and the stages that they
came from.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.emit import megatron, table
from planner.emit.megatron_model import missing_features
from planner.errors import InputError
from planner.interpret import layout_knobs
from planner.interpret.megatron_kinds import implied
from planner.interpret.megatron_model import model as read
from planner.layout import Layout
from planner.specs import library, stage_layout
from planner.specs.model import ModelSpec
from tests import documents
from tests.intake.test_presets_read_back import each_layer

HYBRID = library.model("nemotron3-120b-a12b")
FEW = {"num_experts": 8, "experts_per_token": 2}
KINDS: dict[str, dict[str, Any]] = {
    "M": {
        "name": "mamba",
        "has_mlp": False,
        "mixer": {"kind": "mamba2", "num_heads": 16, "head_dim": 64, "num_groups": 4}
        | {"state_size": 64},
    },
    "G": {
        "name": "delta",
        "has_mlp": False,
        "mixer": {"kind": "gated_delta_net", "num_key_heads": 8, "num_value_heads": 16}
        | {"key_head_dim": 64, "value_head_dim": 96, "conv_kernel": 3},
    },
    "*": {"name": "attention", "has_mlp": False},
    "-": {"name": "mlp", "mixer": {"kind": "none"}, "moe": None},
    "E": {"name": "experts", "mixer": {"kind": "none"}},
}


def hybrid(letters: str, prediction: str = "", depths: int = 0, **changes: Any) -> ModelSpec:
    """A small network of these letters."""
    named = [KINDS[letter] for letter in letters]
    fields = HYBRID.model_dump() | {
        "num_layers": len(letters),
        "kinds": [KINDS[letter] for letter in dict.fromkeys(letters + prediction)],
        "pattern": " ".join(str(kind["name"]) for kind in named),
        "mtp_layers": depths,
        "mtp_pattern": " ".join(str(KINDS[letter]["name"]) for letter in prediction),
        "parameters": None,
        "moe": (HYBRID.moe.model_dump() if HYBRID.moe else {}) | FEW,
        **changes,
    }
    return ModelSpec(**fields)


def arguments(flags: list[tuple[str, ...]]) -> dict[str, Any]:
    """As argparse would hold them."""
    out: dict[str, Any] = {}
    for flag, *values in flags:
        value: Any = values if len(values) > 1 else values[0] if values else True
        plain = int(value) if str(value).isdigit() else value
        out[flag.removeprefix("--").replace("-", "_")] = plain
    out["add_bias_linear"] = not out.pop("disable_bias_linear", False)
    return out


@st.composite
def plans(draw: st.DrawFn) -> tuple[ModelSpec, Layout]:
    """A network and stages of any sizes, equal ones too."""
    pp, v = draw(st.sampled_from([(1, 1), (2, 1), (4, 1), (2, 2), (3, 2)]))
    equal = draw(st.booleans())
    sizes = [draw(st.integers(1, 6))] * (pp * v)
    if not equal:
        sizes = draw(st.lists(st.integers(0, 6), min_size=pp * v, max_size=pp * v))
    count = sum(sizes) or 1
    sizes[0] += int(not sum(sizes))
    letters = draw(st.text("M*-EG", min_size=count, max_size=count))
    prediction = draw(st.text("M*-EG", max_size=3))
    depths = draw(st.integers(1, 2)) if prediction else 0
    text = "" if len(set(sizes)) == 1 else stage_layout.written(sizes, depths)
    return hybrid(letters, prediction, depths), Layout(pp=pp, v=v, stage_layout=text)


@settings(deadline=None)
@given(plans())
def test_patterns_are_read_back_as_they_were_written(plan: tuple[ModelSpec, Layout]) -> None:
    network, layout = plan
    recipe = documents.recipe(network, 24)
    flags = arguments(
        [
            *megatron.model_flags(recipe, layout),
            *megatron.expert_flags(recipe, layout),
            *megatron.parallel_flags(recipe, layout),
        ]
    )
    found = read(flags, "flags")
    assert each_layer(found) == each_layer(network)
    assert (found.num_layers, found.mtp_layers) == (network.num_layers, network.mtp_layers)
    stages, _ = layout_knobs.megatron(flags | implied(flags), 24, network.num_layers)
    assert (stages.pp, stages.v, stages.stage_layout) == (
        layout.pp,
        layout.v,
        layout.stage_layout if layout.pp > 1 else "",
    )


def test_older_versions_say_it_their_own_way() -> None:
    recipe = documents.recipe("nemotron-h-8b", 16, framework_version="0.16")
    layout = documents.layout(recipe, tp=2, pp=2)
    flags = dict.fromkeys(flag[0] for flag in megatron.flags(recipe, layout))
    assert {"--num-layers", "--hybrid-override-pattern", "--is-hybrid-model"} <= flags.keys()
    assert "--hybrid-layer-pattern" not in flags
    [script] = table.files(recipe, layout, None).values()
    assert "$MEGATRON_PATH/pretrain_mamba.py" in script
    newer = documents.recipe("nemotron-h-8b", 16)
    [script] = table.files(newer, layout, None).values()
    assert "$MEGATRON_PATH/pretrain_hybrid.py" in script


@pytest.mark.parametrize(
    ("name", "version", "says"),
    [
        ("nemotron3-120b-a12b", "0.16", "prediction in a pattern; 0.17 has them all"),
        ("nemotron3.5-30b-a3b", "0.15", "the letter E of a pattern.*; 0.17 has them all"),
        ("qwen3-next-80b-a3b", "0.15", "gated delta nets, gated attention.*; 0.16 has them all"),
        ("glm5", "0.18", "prediction by delta nets or sparse attention; 0.19 has them all"),
        ("kimi-linear-48b-a3b", "0.19", "Kimi delta attention; plan it"),
        ("bamba-9b", "0.19", "neither letters of a pattern nor"),
    ],
)
def test_what_a_version_cannot_say_is_refused_by_name(name: str, version: str, says: str) -> None:
    recipe = documents.recipe(name, 8, framework_version=version)
    with pytest.raises(InputError, match=says):
        megatron.model_flags(recipe, Layout())


def test_layers_that_differ_in_what_has_one_flag_are_refused() -> None:
    wide = {**KINDS["M"], "name": "wide", "mixer": {**KINDS["M"]["mixer"], "num_heads": 32}}
    network = hybrid("M*M*", kinds=[KINDS["M"], KINDS["*"], wide], pattern="mamba attention wide*2")
    assert missing_features(network) == ["layers whose mixers differ"]
