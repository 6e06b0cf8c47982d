"""Sparse attention: FLOPs against Megatron-Bridge's function and torch's counter, bytes by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from planner.cost.flops import active_matmul_params, attention_matmul_params, model_flops
from planner.cost.flops import attention_flops_per_token as core_flops
from planner.cost.flops import index_flops_per_token as index_flops
from planner.cost.layer.sparse import chosen_keys, sparse_times
from planner.cost.memory.activations import layer_parts
from planner.layout import Layout
from planner.specs import library
from planner.specs.layers import kinds
from planner.specs.model import ModelSpec
from planner.specs.recipe import Recipe
from planner.specs.switches.table import with_switches

DATA = Path(__file__).parents[1] / "data" / "layer_flops.jsonl"
COUNTED = [json.loads(line) for line in DATA.read_text().splitlines()]
KERNELS = with_switches(library.stack("megatron"), {"dsa_kernel_backend": "cudnn"})


def asked(model: ModelSpec, s: int, software: Any = KERNELS, **words: Any) -> Recipe:
    fields = {"gpus": 64, "global_batch_size": 64} | words
    hardware = library.hardware("h100-sxm")
    return Recipe(model=model, hardware=hardware, software=software, seq_length=s, **fields)


def with_loss(model: ModelSpec, loss: str) -> ModelSpec:
    def told(mla: Any) -> Any:
        indexer = mla.indexer.model_copy(update={"loss": loss})
        return mla.model_copy(update={"indexer": indexer})

    own = tuple(kind.model_copy(update={"mla": told(kind.mla)}) for kind in model.kinds)
    return model.model_copy(update={"mla": told(model.mla), "kinds": own})


@pytest.mark.parametrize(
    ("name", "s", "loss", "flops"),
    [
        ("deepseek-v3.2", 4096, "chosen", 331123898112),
        ("deepseek-v3.2", 4096, "all", 336855852672),
        ("deepseek-v3.2", 32768, "chosen", 374008705392),
        ("deepseek-v3.2", 32768, "none", 350076935040),
        ("glm5", 4096, "chosen", 315044480960),
        ("glm5.2", 2048, "chosen", 285949201472),
        ("glm5.2", 32768, "chosen", 322313881112),
        ("glm5.2", 32768, "all", 350902843712),
    ],
)
def test_flops_are_those_of_megatron_bridge(name: str, s: int, loss: str, flops: int) -> None:
    """num_floating_point_operations of Megatron-Bridge at 067f987d, of one sequence over its
    tokens, one depth of prediction: absorbed latents; it leaves out the router and the product
    that joins a depth's inputs, 0.1 to 0.3%.
    """
    recipe = asked(with_loss(library.model(name), loss), s)
    ours = model_flops(recipe, full_attention=False) / recipe.tokens
    assert 1.001 < ours / flops < 1.003


@pytest.mark.parametrize("line", [x for x in COUNTED if x["model"] != "gemma3n-e4b"])
def test_flops_of_attention_are_those_of_torchs_counter(line: dict[str, Any]) -> None:
    """tests/bench/oracle_flops.py: Transformers 5.24 scores all keys and masks, forward."""
    model = library.model(line["model"])
    alone = kinds(model)[line["kind"]] if line["kind"] else next(iter(kinds(model).values()))
    recipe = asked(alone, line["s"], library.stack("torch"))
    products = 2 * attention_matmul_params(alone) * alone.num_layers
    core = core_flops(recipe) / 3 + index_flops(recipe)
    ours = line["s"] * (products + core) / alone.num_layers
    assert ours == pytest.approx(line["flops"], rel=1e-6)


@pytest.mark.parametrize("line", [x for x in COUNTED if x["model"] == "gemma3n-e4b"])
def test_flops_of_gemma_3n_are_those_of_torchs_counter(line: dict[str, Any]) -> None:
    """tests/bench/oracle_flops.py: ten layers of the text model without its head, forward, windows
    masked. The routers of streams and the table's inputs are in both.
    """
    last = {0: "(attention-sliding*4 attention)*2", 4: "attention-sliding*4 attention"}
    shared = " attention-sliding shared-kv-sliding*3 shared-kv" * (line["shared"] > 0)
    pattern = last[line["shared"]] + shared
    model = library.model("gemma3n-e4b").model_copy(
        update={"num_layers": line["layers"], "pattern": pattern}
    )
    recipe = asked(model, line["s"], library.stack("torch"))
    head = model.vocab_size * model.hidden_size
    ours = line["s"] * (2 * (active_matmul_params(model) - head) + core_flops(recipe) / 3)
    assert ours == pytest.approx(line["flops"], rel=1e-3)


def test_keys_that_are_chosen() -> None:
    """Counted one by one: query i sees min(i + 1, 2048); of 16 blocks of 128 its own as far as
    it.
    """
    s = 8192
    model = library.model("deepseek-v3.2")
    mean = sum(min(i + 1, 2048) for i in range(s)) / s
    assert chosen_keys(model, s) == pytest.approx(mean, rel=1e-3)
    blocks = kinds(library.model("minimax-m3"))["sparse-experts"]
    mean = sum(min(i // 128, 15) * 128 + i % 128 + 1 for i in range(s)) / s
    assert chosen_keys(blocks, s) == pytest.approx(mean, rel=1e-3)


def test_absorbed_latents_are_kept() -> None:
    """128 heads of 512 + 64 and of 512, in 16 bits; 128 more of a head's own queries, and one key;
    2,048 choices of 4 bytes, and what the loss needs.
    """
    recipe, layout = asked(library.model("deepseek-v3.2"), 4096).kinds[0], Layout(dp=64)
    parts = {name: size / 4096 for name, size in layer_parts(recipe, layout).items()}
    assert parts["qkv"] == 147_456 + 2 * 128 * 128 + 2 * 576
    assert parts["latent_output"] == 131_072
    assert parts["index"] == 4 * 2048 + 2 * 64 * 128 + 2 * 128 + 4 * 64


def test_without_kernels_scores_are_in_memory() -> None:
    """128 heads' scores of every key in 32 bits and their softmax in 16: over 2 MB a token."""
    plain = with_switches(KERNELS, {"dsa_kernel_backend": "none"})
    recipe = asked(library.model("deepseek-v3.2"), 4096, plain).kinds[0]
    parts = layer_parts(recipe, Layout(dp=64))
    assert parts["core"] / 4096 >= 2 * 128 * 4096 and parts["latent_output"] == 4096 * 131_072
    before = layer_parts(recipe.model_copy(update={"framework_version": "0.18"}), Layout(dp=64))
    assert before["core"] == parts["core"] and before["latent_output"] == 0  # not absorbed yet
    with_kernels = sparse_times(asked(library.model("deepseek-v3.2"), 4096), Layout(dp=64))
    assert sum(sparse_times(recipe, Layout(dp=64))) > 4 * sum(with_kernels)


def test_kernels_run_no_faster_than_measured() -> None:
    """FlashMLA's sparse prefill reaches 640 TFLOP/s on H800, 1,450 on B200: FLOPs of the chosen
    keys over the forward time of the core.
    """
    for cluster, most in (("h800-sxm", 640), ("b200-sxm", 1450)):
        model = with_loss(library.model("deepseek-v3.2"), "none")
        shared = model.mla.indexer.model_copy(update={"shared": True})  # type: ignore[union-attr]
        core = model.mla.model_copy(update={"indexer": shared})  # type: ignore[union-attr]
        recipe = asked(model.model_copy(update={"mla": core}), 32768).model_copy(
            update={"hardware": library.hardware(cluster)}
        )
        flops = 32768 * 2 * chosen_keys(recipe.model, 32768) * 128 * (576 + 512)
        rate = flops / float(sparse_times(recipe, Layout(dp=64))[0]) / 1e12
        assert 0.6 * most < rate < 1.1 * most
