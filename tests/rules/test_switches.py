"""What switches need: TransformerConfig.__post_init__ of megatron-core 0.18 and 0.19 on CUDA
graphs.
"""

from __future__ import annotations

from typing import Any

import pytest

from planner.layout import RECOMPUTE_CODE, module_mask
from planner.rules.table import breaches
from planner.specs import library
from planner.specs.switches.megatron_kernels import TILE_KIB
from planner.specs.switches.table import with_switches
from tests import documents

FULL, SELECTIVE = RECOMPUTE_CODE["full"], RECOMPUTE_CODE["selective"]


@pytest.mark.parametrize(
    ("model", "graph", "knobs", "rules"),
    [
        ("mixtral-8x7b", "layers", {}, set()),
        ("mixtral-8x7b", "none", {"recompute": FULL}, set()),
        ("llama3-8b", "full_iteration", {"recompute": FULL}, set()),
        ("mixtral-8x7b", "full_iteration", {}, {"a graph of all needs fixed shapes"}),
        (
            "mixtral-8x7b",
            "layers",
            {"recompute": FULL},
            {"graphed layers are not recomputed whole"},
        ),
        (
            "llama3-8b",
            "attn",
            {"recompute": FULL},
            {"graphed layers are not recomputed whole"},
        ),
        (
            "mixtral-8x7b",
            "layers",
            {"recompute": SELECTIVE, "recompute_modules": module_mask(["moe"])},
            {"a graphed router keeps its experts"},
        ),
        (
            "mixtral-8x7b",
            "attn",
            {"recompute": SELECTIVE, "recompute_modules": module_mask(["moe"])},
            set(),
        ),
        ("llama3-8b", "layers", {}, set()),
        ("llama3-8b", "router", {}, {"a router is captured where there is one"}),
        ("mixtral-8x7b", "router", {}, set()),
    ],
)
def test_cuda_graphs(model: str, graph: str, knobs: dict[str, Any], rules: set[str]) -> None:
    stack = with_switches(library.stack("megatron"), {"cuda_graph": graph})
    recipe = documents.recipe(model, 64, stack=stack)
    layout = documents.layout(recipe, ep=8 if recipe.model.moe else 1, **knobs)
    assert {breach.rule for breach in breaches(recipe, layout)} == rules


@pytest.mark.parametrize(
    ("stack", "switch", "value", "rules"),
    [
        ("megatron", "cuda_graph", "full_iteration", {"a graph of all has no vision tower"}),
        ("megatron", "cuda_graph", "layers", set()),
        ("torch-fsdp", "cuda_graphs", True, {"graphs take no images"}),
    ],
)
def test_graphs_hold_no_images(stack: str, switch: str, value: Any, rules: set[str]) -> None:
    """Model card of Qwen3.6-35B-A3B: layers of the text are captured, the tower is not."""
    software = with_switches(library.stack(stack), {switch: value})
    version = {"megatron": "0.19", "torch": "2.13"}[software.framework]
    for images, broken in ((2, rules), (0, set()), (None, set())):
        words = {"framework_version": version, "images_per_sample": images}
        recipe = documents.recipe("qwen3-vl-8b", 64, stack=software, **words)
        zero = software.default_stage
        found = breaches(recipe, documents.layout(recipe, zero=zero))
        assert {breach.rule for breach in found} == broken


def test_layers_that_take_from_the_tower_lie_on_its_stage() -> None:
    """Megatron-Bridge's Qwen3-VL block asserts three layers on the first stage; 36 in all."""
    rule = "layers that share keys lie in one stage"
    for images, pp, v, first, holds in (
        (1, 12, 1, 0, True),
        (1, 18, 1, 0, False),
        (1, 4, 9, 0, False),
        (1, 34, 1, 3, True),
        (None, 18, 1, 0, True),
    ):
        recipe = documents.recipe("qwen3-vl-8b", 612, images_per_sample=images)
        layout = documents.layout(recipe, pp=pp, v=v, first_layers=first)
        assert (rule not in {breach.rule for breach in breaches(recipe, layout)}) == holds


@pytest.mark.parametrize("graph", ["attn", "full_iteration"])
def test_dropout_is_not_repeated_in_a_graph(graph: str) -> None:
    """TransformerConfig of 0.19: no attention dropout in graphed attention recomputation, where
    attention alone is captured or all is.
    """
    stack = with_switches(library.stack("megatron"), {"cuda_graph": graph})
    dropping = stack.model_copy(update={"dropout": True})
    for software, rules in ((stack, set()), (dropping, {"graphed recomputation has no dropout"})):
        recipe = documents.recipe("llama3-8b", 64, stack=software)
        layout = documents.layout(
            recipe, recompute=SELECTIVE, recompute_modules=module_mask(["core_attn"])
        )
        assert {breach.rule for breach in breaches(recipe, layout)} == rules


def test_hidden_dropout_is_not_repeated_in_a_graph() -> None:
    """TransformerConfig of 0.19: no hidden dropout in graphed MLP or MoE recomputation."""
    repeated = {"a graphed MLP repeats no dropout"}
    for graph, rules in (("layers", repeated), ("full_iteration", repeated), ("attn", set())):
        stack = with_switches(library.stack("megatron"), {"cuda_graph": graph})
        dropping = stack.model_copy(update={"dropout": True})
        recipe = documents.recipe("llama3-8b", 64, stack=dropping)
        layout = documents.layout(
            recipe, recompute=SELECTIVE, recompute_modules=module_mask(["mlp"])
        )
        assert {breach.rule for breach in breaches(recipe, layout)} == rules


@pytest.mark.parametrize(
    ("settings", "knobs", "rules"),
    [
        ({"offload_modules": "core_attn+moe_act"}, {}, set()),
        ({"offload_modules": "attn_proj"}, {}, {"an offloaded projection goes with its attention"}),
        (
            {"offload_modules": "expert_fc1"},
            {"recompute": SELECTIVE, "recompute_modules": module_mask(["moe"])},
            {"offloaded experts are not recomputed"},
        ),
        ({"cpu_offloading_num_layers": 4}, {}, set()),
        ({"cpu_offloading_num_layers": 4}, {"pp": 2}, {"offloaded layers and no pipeline"}),
        (
            {"cpu_offloading_num_layers": 4},
            {"recompute": FULL},
            {"offloaded layers and no recomputation"},
        ),
        ({"cpu_offloading_num_layers": 32}, {}, {"a layer at least stays"}),
        (
            {"cpu_offloading_num_layers": 4, "offload_modules": "core_attn"},
            {},
            {"offloaded layers and no modules"},
        ),
        (
            {"cpu_offloading_num_layers": 4, "cuda_graph": "layers"},
            {},
            {"offloaded layers and no graph"},
        ),
    ],
)
def test_activations_in_host_memory(
    settings: dict[str, Any], knobs: dict[str, Any], rules: set[str]
) -> None:
    """TransformerConfig.__post_init__ of megatron-core 0.16 to 0.19."""
    recipe = documents.recipe(
        "mixtral-8x7b", 64, software=with_switches(library.stack("megatron"), settings)
    )
    layout = documents.layout(recipe, ep=8, **knobs)
    assert {breach.rule for breach in breaches(recipe, layout)} == rules


@pytest.mark.parametrize(
    ("version", "dispatcher", "legal"),
    [
        ("0.17", "alltoall", True),
        ("0.17", "deepep", False),
        ("0.17", "hybridep", False),
        ("0.18", "deepep", True),
        ("0.18", "hybridep", True),
    ],
)
def test_shared_experts_run_beside_the_exchange(version: str, dispatcher: str, legal: bool) -> None:
    """TransformerConfig of 0.17: the overlap "only works with alltoall"; of 0.18 with flex too."""
    settings = {"moe_shared_expert_overlap": True, "moe_dispatcher": dispatcher}
    software = with_switches(library.stack("megatron"), settings)
    recipe = documents.recipe("deepseek-v2-lite", 64, software=software, framework_version=version)
    broken = {breach.rule for breach in breaches(recipe, documents.layout(recipe, ep=8))}
    assert ("shared experts beside no library's exchange" not in broken) == legal


@pytest.mark.parametrize("module", ["moe_act", "expert_fc1"])
def test_a_dense_model_offloads_no_experts(module: str) -> None:
    """core/transformer/moe/experts.py alone offloads them."""
    software = with_switches(library.stack("megatron"), {"offload_modules": module})
    recipe = documents.recipe("llama3-8b", 64, software=software)
    broken = {breach.rule for breach in breaches(recipe, documents.layout(recipe))}
    assert broken == {"offloaded modules of experts"}


def test_latent_attention_gathers_no_keys() -> None:
    """Transformer Engine: unequal heads of keys and values need p2p or a2a+p2p."""
    software = with_switches(library.stack("megatron"), {"cp_comm_type": "all_gather"})
    for model, rules in (
        ("llama3-8b", set()),
        ("deepseek-v2-lite", {"gathered keys and values have heads of one size"}),
    ):
        recipe = documents.recipe(model, 64, software=software)
        layout = documents.layout(recipe, cp=2)
        assert {breach.rule for breach in breaches(recipe, layout)} == rules


@pytest.mark.parametrize(
    ("settings", "knobs", "rule"),
    [
        (
            {"defer_embedding_wgrad_compute": True},
            {"pp": 2, "zero": 2},
            "a deferred head adds to the main gradient",
        ),
        (
            {"defer_embedding_wgrad_compute": True, "gradient_accumulation_fusion": False},
            {"pp": 2},
            "a deferred head adds to the main gradient",
        ),
        ({"defer_embedding_wgrad_compute": True}, {"pp": 2}, None),
        (
            {"offload_modules": "core_attn", "cuda_graph": "full_iteration"},
            {},
            "offloaded modules and no graph of all",
        ),
        ({"num_distributed_optimizer_instances": 4}, {}, None),
        ({"num_distributed_optimizer_instances": 3}, {}, "instances divide the replicas"),
        (
            {"ddp_num_buckets": 4, "ddp_bucket_size": 1000, "overlap_grad_reduce": True},
            {},
            "buckets are told in one way",
        ),
    ],
)
def test_pipeline_and_replicas(
    settings: dict[str, Any], knobs: dict[str, Any], rule: str | None
) -> None:
    """ModelParallelConfig.__post_init__, core/parallel_state.py, TransformerConfig of 0.19."""
    software = with_switches(library.stack("megatron"), settings)
    recipe = documents.recipe("llama3-8b", 64, software=software)
    broken = {breach.rule for breach in breaches(recipe, documents.layout(recipe, **knobs))}
    assert broken == ({rule} if rule else set())


def test_muon_has_one_instance_of_the_optimizer() -> None:
    """core/optimizer/__init__.py: emerging optimizers assert num_distributed_optimizer_instances
    == 1.
    """
    software = with_switches(library.stack("megatron"), {"num_distributed_optimizer_instances": 4})
    recipe = documents.recipe("llama3-8b", 64, software=software, optimizer="muon")
    broken = {breach.rule for breach in breaches(recipe, documents.layout(recipe))}
    assert "instances are not Muon's" in broken


@pytest.mark.parametrize(("hardware", "legal"), [("h100-sxm", True), ("a100-80g-sxm", False)])
@pytest.mark.parametrize(
    ("kernels", "rule"),
    [
        ("cudnn", "cuDNN's sparse attention is of Hopper and later"),
        ("tilelang", "TileLang's sparse attention fits shared memory"),
    ],
)
def test_kernels_of_sparse_attention(kernels: str, rule: str, hardware: str, legal: bool) -> None:
    """core/transformer/experimental_attention_variant: dsa_cudnn_kernels.py is for SM90 and later;
    ops/tilelang_sparse_mla_fwd.py takes more shared memory than the 163 KiB of A100.
    """
    software = with_switches(library.stack("megatron"), {"dsa_kernel_backend": kernels})
    recipe = documents.recipe("glm5", 64, software=software, hardware=hardware)
    broken = {breach.rule for breach in breaches(recipe, documents.layout(recipe))}
    assert (rule not in broken) == legal


def test_tilelangs_kernels_take_more_than_ampere_has() -> None:
    """By hand: (16 x 576 + 2 x 64 x 576 + 16 x 64) x 2 bytes are 164 KiB."""
    assert (16 * 576 + 2 * 64 * 576 + 16 * 64) * 2 == TILE_KIB * 1024 > 163 * 1024


@pytest.mark.parametrize(
    ("copies", "knobs", "legal"),
    [
        (8, {}, True),
        (8, {"zero": 2}, True),
        (3, {}, False),
        # a copy of one rank shards nothing, unless over cp: 8 = 4 * 2
        (64, {}, False),
        (8, {"cp": 8}, True),
        (16, {"cp": 8}, False),
        # nothing is sharded
        (64, {"zero": 0}, True),
        (64, {"tp": 8, "pp": 8}, True),
    ],
)
def test_copies_of_shards(copies: int, knobs: dict[str, Any], legal: bool) -> None:
    """distributed/parallel_dims.py: the degrees multiply to the GPUs; fsdp is dp_shard * cp."""
    software = with_switches(library.stack("torch"), {"data_parallel_replicate_degree": copies})
    words = {"framework": "torch", "framework_version": "2.13", "software": software}
    recipe = documents.recipe("llama3-8b", 64, **words)
    layout = documents.layout(recipe, **{"zero": 3, **knobs})
    rules = {breach.rule for breach in breaches(recipe, layout)}
    assert ("copies divide the data parallelism" not in rules) == legal


@pytest.mark.parametrize("kernelsof_tokens", ["deepep", "hybridep"])
@pytest.mark.parametrize(
    ("hardware", "legal"),
    [
        ("a100-80g-sxm", True),
        ("h100-sxm", True),
        ("b200-sxm", True),
        ("gb200-nvl72", True),
        ("l40s-pcie", False),
        ("mi300x-oam", False),
        ("v100-32g-sxm2", False),
    ],
)
def test_libraries_that_send_tokens(kernelsof_tokens: str, hardware: str, legal: bool) -> None:
    """validate_flex_dispatcher_backend of Megatron-Bridge 0.3.1: compute capability 8 to 10."""
    stack = with_switches(library.stack("megatron"), {"moe_dispatcher": kernelsof_tokens})
    recipe = documents.recipe("mixtral-8x7b", 64, stack=stack, hardware=hardware, precision="fp16")
    broken = {breach.rule for breach in breaches(recipe, documents.layout(recipe, ep=8))}
    assert ("libraries that send tokens have their kernels" not in broken) == legal


@pytest.mark.parametrize(
    ("hardware", "tp", "legal"),
    [
        ("h100-sxm", 8, True),
        ("h100-sxm", 16, False),
        ("gb200-nvl72", 16, True),
        ("l40s-pcie", 2, False),
        ("l40s-pcie", 1, True),
    ],
)
def test_user_buffers(hardware: str, tp: int, legal: bool) -> None:
    """Ranks write to each other's memory over NVLink: 8 GPUs of an HGX box, 72 of an NVL72."""
    stack = with_switches(library.stack("megatron"), {"tp_comm_overlap": True})
    recipe = documents.recipe("llama3-70b", 64, stack=stack, hardware=hardware)
    broken = {breach.rule for breach in breaches(recipe, documents.layout(recipe, tp=tp))}
    assert ("user buffers lie within an NVLink domain" not in broken) == legal
