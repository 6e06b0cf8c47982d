"""Every preset that Megatron-LM can express: its emitted flags, read back, describe the same
network.
"""

from __future__ import annotations

from typing import Any

import pytest

from planner.cost.params.layer import total_params
from planner.emit.megatron_model import expert_flags, missing_features, model_flags
from planner.interpret.megatron_model import model, vocabulary
from planner.layout import Layout
from planner.specs import library
from planner.specs.layers import kinds, layer_kinds, mtp_kinds
from planner.specs.model import ModelSpec
from tests import documents

NAMES = [
    name
    for name in library.models()
    if "megatron" in library.model(name).frameworks and not missing_features(library.model(name))
]
NOT_FLAGS = {
    "name",
    "family",
    "aliases",
    "source",
    "note",
    "vision",
    "parameters",
    "frameworks",
    "max_seq_length",
    "position_rows",
    "rope_theta",
    "vocab_size",
    "rotary_share",
    "no_rope_every",
    "ffn_size",
    "qk_norm_kind",
    "mlp_bias",
    "kinds",
    "pattern",
    "mixer",
    "has_mlp",
    "moe",
    "window",
    "mla",
    "attention_gate",
}
"""What flags do not tell, tell padded, tell of layers that the model does not have, or what is
compared layer by layer.
"""


def arguments(name: str) -> dict[str, Any]:
    """The flags as argparse would hold them."""
    recipe = documents.recipe(name, 8)
    out: dict[str, Any] = {}
    for flag, *values in (*model_flags(recipe, Layout()), *expert_flags(recipe, Layout())):
        value: Any = values[0] if values else True
        out[flag.removeprefix("--").replace("-", "_")] = (
            int(value) if str(value).isdigit() else value
        )
    out["add_bias_linear"] = not out.pop("disable_bias_linear", False)
    out["vocab_size"] = recipe.model.vocab_size
    return out


def each_layer(model: ModelSpec) -> list[dict[str, Any]]:
    """What every layer has, first to last, and then every layer of prediction."""
    parts = {name: _parts(kind) for name, kind in kinds(model).items()}
    predicted = map(_parts, mtp_kinds(model)) if model.mtp_layers else ()
    return [*(parts[name] for name in layer_kinds(model)), *predicted]


def _parts(kind: ModelSpec) -> dict[str, Any]:
    mixer = kind.mixer.model_dump(exclude={"chunk"}) if kind.mixer else None
    attention = ("mla", "window", "num_heads", "num_kv_heads", "head_dim", "attention_gate")
    moe = (
        kind.moe.model_copy(update={"first_dense_layers": 0, "moe_every": 1}) if kind.moe else None
    )
    return {
        "mixer": mixer,
        **({} if mixer else {name: getattr(kind, name) for name in attention}),
        "mlp": kind.has_mlp,
        **({"moe": moe} if kind.has_mlp else {}),
        **({"ffn_size": kind.ffn_size} if kind.has_mlp and not moe else {}),
    }


@pytest.mark.parametrize("name", NAMES)
def test_flags_describe_the_model_that_they_came_from(name: str) -> None:
    wanted = library.model(name)
    got = model(arguments(name), "flags")
    differs = {
        key
        for key, value in wanted.model_dump().items()
        if key not in NOT_FLAGS and got.model_dump()[key] != value
    }
    differs -= {"qk_norm"} if wanted.mla else set()  # the norms of latents hang on the same flag
    assert not differs
    assert each_layer(got) == each_layer(wanted)
    assert total_params(got) == total_params(wanted)


def test_there_are_many() -> None:
    assert len(NAMES) > 60


@pytest.mark.parametrize(("version", "entries"), [("0.16", 128_256), ("0.18", 128_255)])
def test_the_null_tokenizer_once_added_an_entry(version: str, entries: int) -> None:
    """[megatron-core] core/tokenizers/text/libraries/null_tokenizer.py up to 0.17: vocab_size + 1,
    its end of document.
    """
    stated = {"vocab_size": 128_255, "tokenizer_type": "NullTokenizer"}
    assert vocabulary(stated | {"framework_version": version}) == (entries, "")
