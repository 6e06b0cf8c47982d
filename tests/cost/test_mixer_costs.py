"""FLOPs, memory and time of what mixes the sequence in place of attention, against Megatron-LM's
own count of FLOPs, tensors counted in the released kernels, and measured kernels.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from planner import api
from planner.cost.flops import model_flops
from planner.cost.layer.kernels import memory_s
from planner.cost.layer.mixers import SCAN_SHARE, scan
from planner.cost.memory.activations import layer_parts
from planner.layout import Layout
from planner.specs import library
from planner.specs.huggingface import model_from_config
from planner.specs.layers import counts, kinds
from planner.specs.mixers import GatedDeltaNet, Kda, Mamba2
from planner.specs.model import ModelSpec
from planner.specs.recipe import Recipe

DATA = Path(__file__).parents[1] / "data" / "hybrid_configs.jsonl"
CONFIGS = {case["name"]: case["config"] for case in map(json.loads, DATA.read_text().splitlines())}
MEGATRON_FLOPS = {
    "Qwen--Qwen3-Next-80B-A3B-Thinking": (22_739_681_280, 31_195_398_144),
    "allenai--Olmo-3-1025-7B": (44_543_508_480, 67_092_086_784),
    "google--gemma-3-12b-it": (75_424_923_648, 109_247_791_104),
    "ibm-ai-platform--Bamba-9B-v1": (56_459_526_144, 58_573_455_360),
    "ibm-granite--granite-4.0-h-small": (53_930_360_832, 56_748_933_120),
    "ibm-granite--granite-4.0-h-tiny": (9_212_461_056, 10_269_425_664),
    "mistralai--Mamba-Codestral-7B-v0.1": (44_291_850_240, 44_291_850_240),
    "nvidia--NVIDIA-Nemotron-3-Super-120B-A12B": (74_566_336_512, 80_203_481_088),
    "nvidia--NVIDIA-Nemotron-3.5-Lightning-30B-A3B": (21_674_115_072, 25_901_973_504),
    "nvidia--NVIDIA-Nemotron-Nano-9B-v2": (48_159_621_120, 51_682_836_480),
    "nvidia--Nemotron-H-8B-Base-8K": (46_305_116_160, 49_123_688_448),
    "rednote-hilab--dots.llm1.base": (86_408_429_568, 130_096_300_032),
    "synthetic--nemotron-latent-mtp-small": (2_028_208_128, 2_380_529_664),
    "tencent--Hunyuan-A13B-Instruct": (79_656_124_416, 102_204_702_720),
    "zai-org--GLM-4.5-Air": (90_563_936_256, 187_804_680_192),
}
"""FLOPs a token at 4,096 and at 32,768 tokens, as num_floating_point_operations of megatron-core
0.19.2 counts them, without multi-token prediction.
"""


def _recipe(model: ModelSpec, seq_length: int = 4096, cluster: str = "h100-sxm") -> Recipe:
    return Recipe(
        model=model.model_copy(update={"max_seq_length": 10**6, "mtp_layers": 0}),
        hardware=library.hardware(cluster),
        software=library.stack("megatron"),
        gpus=8,
        seq_length=seq_length,
        global_batch_size=8,
    )


def _read(name: str) -> ModelSpec:
    return model_from_config(CONFIGS[name], name, name)


def _without_windows(model: ModelSpec) -> ModelSpec:
    kinds = tuple(kind.model_copy(update={"window": None}) for kind in model.kinds)
    return model.model_copy(update={"window": None, "kinds": kinds})


def _not_counted(model: ModelSpec) -> float:
    """What Megatron-LM leaves out: routers, and what is wider than two hidden widths in Mamba; it
    counts a padded vocabulary.
    """
    left_out = 0.0
    for count, kind in zip(counts(model), kinds(model).values(), strict=True):
        h, mixer = kind.hidden_size, kind.mixer
        if kind.moe:
            left_out += 6.0 * count * h * kind.moe.num_experts
        if isinstance(mixer, Mamba2):
            left_out += count * (mixer.inner_size - 2 * h) * (18 * h + 21 * mixer.state_size)
    padded = -(-model.vocab_size // 128) * 128
    return left_out - 6.0 * (padded - model.vocab_size) * model.hidden_size


@pytest.mark.parametrize("name", MEGATRON_FLOPS)
def test_flops_are_those_that_megatron_counts(name: str) -> None:
    model = _without_windows(_read(name))
    for seq_length, expected in zip((4096, 32768), MEGATRON_FLOPS[name], strict=True):
        recipe = _recipe(model, seq_length)
        flops = model_flops(recipe, full_attention=False) / recipe.tokens
        assert flops - _not_counted(recipe.model) == pytest.approx(expected, rel=1e-6)


KEPT = {
    # kind of layer: bytes a token of its mixer, 4 h of its norm's input and output among them
    ("nvidia--NVIDIA-Nemotron-3-Super-120B-A12B", "mamba"): 102_700,
    ("nvidia--NVIDIA-Nemotron-Nano-9B-v2", "mamba"): 124_700,
    ("Qwen--Qwen3-Next-80B-A3B-Thinking", "delta"): 94_500,
}
"""Tensors that autograd keeps, counted in state-spaces/mamba's ssd_combined.py and in
Megatron-core's GatedDeltaNet with flash-linear-attention's kernels.
"""


@pytest.mark.parametrize(("name", "kind"), KEPT)
def test_what_a_scan_keeps(name: str, kind: str) -> None:
    model = _read(name)
    each = next(
        each
        for each in kinds(model).values()
        if each.mixer is not None and each.mixer.kind != "none"
    )
    recipe = _recipe(each.model_copy(update={"has_mlp": False, "moe": None}))
    layout = Layout(**{name: np.int64(1) for name in ("tp", "pp", "dp", "cp", "ep", "mbs", "m")})
    kept = sum(float(part) for part in layer_parts(recipe, layout).values()) / 4096
    assert kept == pytest.approx(KEPT[name, kind], rel=0.01)


def _delta(heads: int) -> GatedDeltaNet:
    sizes = dict.fromkeys(("key_head_dim", "value_head_dim"), 128)
    return GatedDeltaNet(num_key_heads=heads, num_value_heads=heads, **sizes)


MEASURED = [
    # tokens, mixer, cluster, milliseconds of the forward kernels
    (8192, _delta(96), "gb200-nvl72", 1.265),
    (32768, _delta(16), "gb200-nvl72", 1.029),
    (16384, _delta(64), "gb200-nvl72", 1.581),
    (32768, _delta(8), "h100-sxm", 0.997),
    (8192, Kda(num_heads=96, head_dim=128), "h20-sxm", 4.51),
    (8192, Kda(num_heads=64, head_dim=128), "h20-sxm", 2.96),
]
"""flash-linear-attention's own table of GB200, FlashInfer's comparison on H100, FlashKDA's on H20.
"""


@pytest.mark.parametrize(("tokens", "mixer", "cluster", "measured_ms"), MEASURED)
def test_scans_take_what_was_measured(tokens, mixer, cluster, measured_ms) -> None:
    scanned = tokens * scan(mixer, 2048).scanned / SCAN_SHARE
    seconds = memory_s(library.hardware(cluster), scanned)
    assert 1e3 * seconds == pytest.approx(measured_ms, rel=0.3)


def test_explain_shows_a_layer_of_each_kind() -> None:
    """Parameters of the layers, embedding, head and last norm are all that there are (transformers'
    count of Qwen3-Next); three of four layers are delta nets.
    """
    said = api.explain(
        model="qwen3-next-80b-a3b", gpus=8, cluster="h100-sxm", framework="torch", tp=1, pp=1
    )
    layers = sum(kind.layers * kind.params for kind in said.kinds)
    model = library.model("qwen3-next-80b-a3b")
    ends = 2 * model.vocab_size * model.hidden_size + model.hidden_size
    assert model.parameters == layers + ends
    assert [(kind.name, kind.layers) for kind in said.kinds] == [("delta", 36), ("attention", 12)]
    assert all(kind.forward_s > 0 and kind.kept_bytes > 0 for kind in said.kinds)
