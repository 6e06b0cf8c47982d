"""Each rule with a layout that holds and one that breaks it; the mask and the sentences are one."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from planner.errors import InputError
from planner.layout import OFFLOAD_CODE, RECOMPUTE_CODE, SCHEDULE_CODE, Layout, module_mask
from planner.rules.rule import divides, near_divisors, quotient
from planner.rules.table import BY_FRAMEWORK, breaches, mask, rules_for
from planner.specs import library
from planner.specs.model import ModelSpec
from tests import documents
from tests.judges import megatron_sweep

FULL, SELECTIVE = RECOMPUTE_CODE["full"], RECOMPUTE_CODE["selective"]
INTERLEAVED = SCHEDULE_CODE["interleaved"]
QWEN2_MOE = library.model("qwen2-57b-a14b")
assert QWEN2_MOE.moe
ODD_SHARED_EXPERTS = QWEN2_MOE.model_copy(
    update={"moe": QWEN2_MOE.moe.model_copy(update={"shared_ffn_size": 20_482})}
)
"""No preset has shared experts that do not split where its attention does."""

# model, changes of the recipe, knobs that hold, knobs that break it. llama3-70b: 80 layers, 64
# heads, 8 key-value heads;
# llama3-405b: 126 layers, 128 heads; phi4-14b: 40 heads, 10 key-value heads; gpt3-175b: 2048 rows
# of learned positions.
# test_cases_judged.py has Megatron-LM's own code judge both layouts of every row, but of those in
# IN_NO_PARSER.
CASES: dict[str, tuple[str | ModelSpec, dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "gpus are tp * pp * dp * cp": ("llama3-70b", {}, {"tp": 8}, {"tp": 8, "dp": 5, "m": 100}),
    "batch is dp * mbs * m": ("llama3-70b", {}, {"tp": 8}, {"tp": 8, "m": 127}),
    # validate_args; without experts by our rule alone.
    "experts split over ep": ("mixtral-8x7b", {"gpus": 96}, {"ep": 8}, {"ep": 3}),
    # parallel_state.initialize_model_parallel alone: the parser lets tp 4, pp 4, ep 8, etp 4 on 64
    # GPUs pass.
    "gpus split over etp * ep * pp": (
        "mixtral-8x7b",
        {"gpus": 64},
        {"tp": 4, "pp": 4, "ep": 8},
        {"tp": 4, "pp": 4, "ep": 8, "etp": 4},
    ),
    "expert width splits over etp": (
        "qwen3-30b-a3b",
        {"gpus": 80, "global_batch_size": 480},
        {"etp": 4},
        {"etp": 5},
    ),
    "shared experts split over tp": (ODD_SHARED_EXPERTS, {}, {"tp": 2}, {"tp": 4}),
    # TransformerConfig: experts with biases are not split.
    "biases of experts need etp 1": ("gpt-oss-20b", {}, {"tp": 4, "etp": 1}, {"tp": 4, "etp": 2}),
    # MoELayer.forward raises ValueError; the parser only warns.
    "experts need sequence parallelism": (
        "mixtral-8x7b",
        {},
        {"tp": 4, "sp": 1},
        {"tp": 4, "sp": 0},
    ),
    # Transformer Engine, dot_product_attention/context_parallel.py: windows not with p2p, sinks
    # with a2a alone.
    "window runs under cp": ("gpt-oss-20b", {}, {"cp": 2, "cp_a2a": 2}, {"cp": 2}),
    # validate_args: the product of --hierarchical-context-parallel-sizes is cp.
    "exchanged heads are of cp ranks": (
        "llama3-70b",
        {},
        {"cp": 4, "cp_a2a": 2},
        {"cp": 4, "cp_a2a": 3},
    ),
    # In no parser: Transformer Engine's AttnFuncWithCPAndQKVOA2A asserts it in the forward pass. 8
    # key-value heads over tp 4 are 2.
    "heads of a rank split over cp_a2a": (
        "llama3-70b",
        {},
        {"tp": 4, "cp": 4, "cp_a2a": 2},
        {"tp": 4, "cp": 4, "cp_a2a": 4},
    ),
    "Megatron offloads the optimizer alone": (
        "llama3-70b",
        {},
        {"offload": OFFLOAD_CODE["optimizer-cpu"]},
        {"offload": OFFLOAD_CODE["optimizer-nvme"]},
    ),
    # OptimizerConfig: the precision-aware optimizer, which offload runs on, is a distributed one.
    "offload needs the distributed optimizer": (
        "llama3-70b",
        {},
        {"offload": OFFLOAD_CODE["optimizer-cpu"], "zero": 1},
        {"offload": OFFLOAD_CODE["optimizer-cpu"], "zero": 0},
    ),
    # validate_args of --use-torch-fsdp2.
    "FSDP2 has no pipeline": (
        "llama3-70b",
        {"stack": "megatron-fsdp2"},
        {"zero": 3},
        {"zero": 3, "pp": 2},
    ),
    "FSDP2 splits no experts": (
        "mixtral-8x7b",
        {"stack": "megatron-fsdp2"},
        {"zero": 3},
        {"zero": 3, "ep": 2},
    ),
    # validate_args: without --overlap-p2p-communication two ranks would send several messages to
    # one another in a batch.
    "virtual stages without overlap need three ranks": (
        "llama3-70b",
        {"stack": "megatron-2022", "attention": "unfused"},
        {"pp": 4, "v": 2, "zero": 0},
        {"pp": 2, "v": 2, "zero": 0},
    ),
    "heads split over tp": ("llama3-70b", {"gpus": 48}, {"tp": 16}, {"tp": 3}),
    "key-value heads split over tp": ("phi4-14b", {"gpus": 40}, {"tp": 20}, {"tp": 8}),
    "ffn splits over tp": (
        "llama2-13b",
        {"gpus": 40, "global_batch_size": 480},
        {"tp": 8},
        {"tp": 10, "sp": 0},
    ),
    "sequence splits over cp": ("llama3-70b", {"gpus": 48}, {"tp": 8, "cp": 2}, {"tp": 8, "cp": 3}),
    # Not in any parser: core/tensor_parallel/mappings.py splits the sequence at run time.
    "sequence splits over tp": (
        "llama3-70b",
        {"seq_length": 8188},
        {"tp": 8, "sp": 0},
        {"tp": 8, "sp": 1},
    ),
    "positions reach the sequence": ("llama3-70b", {}, {"tp": 8}, {}),
    "stack shards this way": (
        "llama3-70b",
        {"stack": "megatron-2022", "attention": "unfused"},
        {"zero": 0},
        {"zero": 3},
    ),
    "stack runs the schedule": (
        "llama3-70b",
        {},
        {"tp": 8},
        {"tp": 8, "schedule": SCHEDULE_CODE["zb-h1"]},
    ),
    "stack has sequence parallelism": (
        "llama3-70b",
        {"stack": "megatron-2021"},
        {"tp": 8, "sp": 0},
        {"tp": 8, "sp": 1},
    ),
    # The bound is in no parser: 99 layers of a stage of 20 pass it.
    "recompute layers fit a stage": (
        "llama3-70b",
        {},
        {"pp": 4, "recompute": FULL, "recompute_layers": 20},
        {"pp": 4, "recompute": FULL, "recompute_layers": 21},
    ),
    "recompute modules fit the model": (
        "llama3-70b",
        {},
        {"recompute": SELECTIVE, "recompute_modules": module_mask(["mlp"])},
        {"recompute": SELECTIVE, "recompute_modules": module_mask(["moe_act"])},
    ),
    # Transformer Engine, dot_product_attention/utils.py: the unfused kernel has no context
    # parallelism.
    "attention runs under cp": ("llama3-70b", {"attention": "unfused"}, {"cp": 1}, {"cp": 2}),
    "Megatron runs the schedule": (
        "llama3-70b",
        {},
        {"pp": 4, "v": 2},
        {"pp": 4, "v": 2, "schedule": SCHEDULE_CODE["1f1b"]},
    ),
    "virtual stages need a pipeline": ("llama3-70b", {}, {"pp": 2, "v": 2}, {"pp": 1, "v": 2}),
    "one way to split the layers": (
        "llama3-70b",
        {},
        {"pp": 4, "first_layers": 20, "last_layers": 20},
        {"pp": 4, "first_layers": 20, "last_layers": 20, "account_for_loss": 1},
    ),
    "layers split over stages": (
        "llama3-405b",
        {"gpus": 128},
        {"pp": 16, "account_for_embedding": 1, "account_for_loss": 1},
        {"pp": 16},
    ),
    "layers of a stage split over v": ("llama3-70b", {}, {"pp": 4, "v": 4}, {"pp": 4, "v": 3}),
    "first and last layers leave an even middle": (
        "llama3-70b",
        {},
        {"pp": 4, "first_layers": 19, "last_layers": 19},
        {"pp": 4, "first_layers": 19, "last_layers": 20},
    ),
    "first and last layers split over v": (
        "llama3-70b",
        {},
        {"pp": 4, "v": 2, "first_layers": 18, "last_layers": 18},
        {"pp": 4, "v": 2, "first_layers": 19, "last_layers": 19},
    ),
    "stage layout is whole": (
        "llama3-70b",
        {},
        {"pp": 4, "stage_layout": "Et*19|t*21|t*21|t*19L"},
        {"pp": 4, "stage_layout": "Et*19|t*21|t*21|t*20L"},
    ),
    # m 9 in groups of 5 leaves 4 = pp; m 6 in groups of 4 leaves 2. Megatron's schedules.py raises
    # at the first step.
    "micro-batches interleave": (
        "llama3-70b",
        {"global_batch_size": 72},
        {"tp": 1, "pp": 4, "v": 2, "group": 5},
        {"tp": 1, "pp": 4, "v": 2, "dp": 8, "mbs": 1, "m": 6, "group": 4},
    ),
}

IN_NO_PARSER = {
    "gpus are tp * pp * dp * cp": "dp is no flag: it follows from the world size",
    "batch is dp * mbs * m": "m is no flag: it follows from the batch",
    "experts need sequence parallelism": "MoELayer.forward raises",
    "window runs under cp": "Transformer Engine's attention raises",
    "heads of a rank split over cp_a2a": "Transformer Engine's attention raises",
    "attention runs under cp": "Transformer Engine's attention raises",
    "Megatron offloads the optimizer alone": "no flag offloads to NVMe or anything else",
    "sequence splits over tp": "tensor_parallel/mappings.py raises in the forward pass",
    "positions reach the sequence": "the row has no breaking layout: it is about the recipe",
    "recompute layers fit a stage": "Megatron recomputes what there is",
    "stack shards this way": "a stack is a document of ours",
    "stack runs the schedule": "a stack is a document of ours",
    "stack has sequence parallelism": "a stack is a document of ours",
    "Megatron runs the schedule": "no flag names a schedule",
}
"""Rules whose breaking layout Megatron's parser, configuration and model let pass, and why the rule
stands.
"""

IN_OTHER_TESTS = {
    "counts are positive",
    "libraries that send tokens have their kernels",
    "user buffers lie within an NVLink domain",
    "sites hold whole replicas or stages",
    "graphed layers are not recomputed whole",
    "a graphed router keeps its experts",
    "a router is captured where there is one",
    "graphed recomputation has no dropout",
    "a graphed MLP repeats no dropout",
    "a graph of all needs fixed shapes",
    "a graph of all has no vision tower",
    "overlapped exchange needs virtual stages",
    "overlapped exchange keeps its experts",
    "overlapped exchange predicts one token",
    "overlapped exchange runs in 16 bits",
    "HybridEP came with 0.16",
    "Megatron has the optimizer states",
    "narrow optimizer states are distributed",
    "narrow optimizer states belong to bf16",
    "FSDP2 needs untied embeddings",
    "FSDP2 has no fp16",
    "Megatron has the precision",
    "4 bits came with 0.15",
    "GPU runs the precision",
    "low precision aligns",
    "Megatron has the optimizer",
    "Muon and Lion came with 0.18",
    "Megatron's FSDP updates by Adam or SGD",
    "Muon and Lion have no fp16",
    "host memory holds Adam's states",
    "narrow optimizer states belong to Adam",
    "adapters split over tp",
    "Megatron keeps frozen weights in 16 bits",
    "packed samples come one sequence at a time",
    "packed samples need a kernel for them",
    "offloaded layers and no modules",
    "offloaded layers and no graph",
    "offloaded modules and no graph of all",
    "offloaded layers and no pipeline",
    "offloaded layers and no recomputation",
    "offloaded experts are not recomputed",
    "an offloaded projection goes with its attention",
    "a layer at least stays",
    "buckets are told in one way",
    "one overlap of the exchange",
    "overlapped exchange is no all-gather",
    "overlapped shared experts are kept",
    "shared experts beside an all-to-all",
    "shared experts beside no library's exchange",
    "a deferred head adds to the main gradient",
    "instances are not Muon's",
    "instances divide the replicas",
    "gathered keys and values have heads of one size",
    "offloaded modules of experts",
    "Mamba heads split over tp and cp",
    "Mamba groups split over tp and cp",
    "delta nets split over tp and cp",
    "delta nets run under cp since 0.18",
    "widths of mixers align",
    "sparse attention runs under cp since 0.19",
    "sparse attention gathers under cp",
    "sparse attention needs sequence parallelism",
    "cuDNN's sparse attention is of Hopper and later",
    "TileLang's sparse attention fits shared memory",
    "layers that share keys lie in one stage",
    "hybrids have even stages before 0.17",
    "hybrids predict on the last stage",
    "overlapped exchange is of plain models",
}
"""Rules that hang on the recipe more than on the layout: below, in test_megatron.py,
test_switches.py, test_training.py, test_sites.py and test_mixers.py.
"""


def test_every_rule_of_megatron_has_a_case() -> None:
    """A new rule needs a row of CASES, for test_cases_judged.py to judge."""
    known = {rule.name for rule in BY_FRAMEWORK["megatron"]}
    assert known - IN_OTHER_TESTS == CASES.keys() and known >= IN_OTHER_TESTS


def names(question: Any, one: Layout) -> set[str]:
    return {found.rule for found in breaches(question, one)}


@pytest.mark.parametrize("rule", [name for name in CASES if name != "positions reach the sequence"])
def test_rule_holds_and_breaks(rule: str) -> None:
    model, changes, holding, breaking = CASES[rule]
    question = documents.recipe(model, **changes)
    assert rule not in names(question, documents.layout(question, **holding))
    assert rule in names(question, documents.layout(question, **breaking))


@pytest.mark.parametrize("tokens, legal", [(2048, True), (4096, False)])
def test_learned_positions_end_with_their_table(tokens: int, legal: bool) -> None:
    question = documents.recipe("gpt3-175b", seq_length=tokens)
    assert (
        "positions reach the sequence" not in names(question, documents.layout(question, tp=8))
    ) == legal


@pytest.mark.parametrize(
    "cluster, precision, legal",
    [
        ("h100-sxm", "fp8-tensorwise", True),
        ("a100-80g-sxm", "fp8-tensorwise", False),
        ("h100-sxm", "mxfp8", False),
        ("b200-sxm", "mxfp8", True),
        ("b200-sxm", "nvfp4", True),
        ("v100-32g-sxm2", "bf16", False),
        ("v100-32g-sxm2", "fp16", True),
    ],
)
def test_precision_needs_its_gpu(cluster: str, precision: str, legal: bool) -> None:
    question = documents.recipe(hardware=cluster, precision=precision)
    assert (
        "GPU runs the precision" not in names(question, documents.layout(question, tp=8))
    ) == legal


def test_dense_norms_cannot_be_recomputed_apart() -> None:
    """core/models/gpt/gpt_layer_specs.py: the dense Transformer Engine layer has no norm of its
    own, so the module would do nothing.
    """
    question = documents.recipe()
    one = documents.layout(
        question,
        tp=8,
        recompute=SELECTIVE,
        recompute_modules=module_mask(["core_attn", "layernorm"]),
    )
    assert names(question, one) == {"recompute modules fit the model"}


@pytest.mark.parametrize(
    "model, precision, named, legal",
    [
        ("mixtral-8x7b", "bf16", ["moe_act", "layernorm"], True),
        ("mixtral-8x7b", "fp8-delayed", ["moe_act"], False),
        ("mixtral-8x7b", "bf16", ["mlp"], False),
        ("mixtral-8x7b", "bf16", ["shared_experts"], False),
        ("deepseek-v3", "bf16", ["mlp", "mla_up_proj", "shared_experts", "moe"], True),
        ("qwen3-30b-a3b", "bf16", ["mla_up_proj"], False),
    ],
)
def test_modules_of_experts_and_latents(
    model: str, precision: str, named: list[str], legal: bool
) -> None:
    """TransformerConfig.__post_init__; a module that no layer has does nothing."""
    question = documents.recipe(model, 64, precision=precision)
    one = documents.layout(question, recompute=SELECTIVE, recompute_modules=module_mask(named))
    assert ("recompute modules fit the model" not in names(question, one)) == legal


def test_activation_of_experts_is_recomputed_under_grouped_gemms_alone() -> None:
    """TransformerConfig refuses moe_act without moe_grouped_gemm, which Volta has not."""
    question = documents.recipe(
        "mixtral-8x7b", 64, hardware="v100-32g-sxm2", precision="fp16", attention="fused"
    )
    one = documents.layout(
        question, recompute=SELECTIVE, recompute_modules=module_mask(["moe_act"])
    )
    assert names(question, one) == {"recompute modules fit the model"}


@pytest.mark.parametrize(
    "stage_layout, says",
    [
        ("Et*30|t*31mL", ""),
        ("Et*30|t*31L", "must hold 1 m"),
        ("Et*30m|t*31L", "must come after all t"),
        ("Et*30|t*31mmL", "must hold 1 m"),
    ],
)
def test_multi_token_prediction_in_a_stage_layout(stage_layout: str, says: str) -> None:
    """pipeline_parallel_layer_layout.py: as many m as layers, after all t, in the last stage of a
    rank.
    """
    question = documents.recipe("deepseek-v3", 64)
    found = breaches(question, documents.layout(question, pp=2, ep=32, stage_layout=stage_layout))
    assert [says in one.message for one in found] == ([True] if says else [])


def test_a_dense_model_has_no_experts_to_split() -> None:
    question = documents.recipe()
    [found] = breaches(question, documents.layout(question, tp=8, ep=2))
    assert found.rule == "experts split over ep" and "dense" in found.message


def test_a_width_that_no_layer_has_is_free() -> None:
    """GPT-OSS's 2,880 is the width of its experts: over 64 ranks no dense MLP is split."""
    question = documents.recipe("gpt-oss-20b", 64)
    assert "ffn splits over tp" not in names(question, documents.layout(question, tp=64))


def test_megatron_has_no_rowwise_fp8() -> None:
    question = documents.recipe(precision="fp8-rowwise")
    assert "Megatron has the precision" in names(question, documents.layout(question, tp=8))


@pytest.mark.parametrize(
    "precision, tokens, legal",
    [
        ("bf16", 8184, True),
        ("fp8-tensorwise", 8192, True),
        ("fp8-tensorwise", 8184, False),
    ],
)
def test_low_precision_aligns(precision: str, tokens: int, legal: bool) -> None:
    """Transformer Engine asks for dimensions that are multiples of 16: 8,184 tokens are not."""
    question = documents.recipe(precision=precision, seq_length=tokens)
    assert (
        "low precision aligns" not in names(question, documents.layout(question, tp=1))
    ) == legal


@pytest.mark.parametrize(
    "version, legal", [("0.15", False), ("0.16", True), ("0.19.2", True), ("main", True)]
)
def test_replicated_key_value_heads_came_with_0_16(version: str, legal: bool) -> None:
    question = documents.recipe(framework_version=version)
    assert (
        "key-value heads split over tp" not in names(question, documents.layout(question, tp=16))
    ) == legal


@pytest.mark.parametrize("version", ["0.13", "1.0", "newest", ""])
def test_unknown_version_is_refused(version: str) -> None:
    with pytest.raises(InputError, match="framework version"):
        rules_for(documents.recipe(framework_version=version))


def test_sentence_has_values_and_the_way_out() -> None:
    question = documents.recipe(gpus=24)
    [found] = [
        b
        for b in breaches(question, documents.layout(question, tp=3))
        if b.rule == "heads split over tp"
    ]
    assert (
        found.message
        == "tp must divide the attention heads, but got tp=3 and 64 heads; try tp 2 or 4"
    )


def test_zero_degree_is_its_own_breach() -> None:
    question = documents.recipe()
    assert names(question, Layout(tp=0, pp=0, v=0, mbs=0)) == {"counts are positive"}


@pytest.mark.filterwarnings("error")
def test_zero_degrees_in_columns_divide_nothing() -> None:
    question = documents.recipe()
    zeros = np.array([0, 8])
    ok, removed = mask(
        question,
        replace(documents.layout(question, tp=8), tp=zeros, pp=zeros, v=zeros, cp=zeros, mbs=zeros),
    )
    assert not ok.any()
    assert removed["counts are positive"] == 1


def test_counts_add_up_to_what_is_gone() -> None:
    question = documents.recipe(gpus=64)
    batch = megatron_sweep.draw(np.random.default_rng(3), question, 20_000)
    ok, removed = mask(question, batch)
    assert 0 < ok.sum() == 20_000 - sum(removed.values())


@pytest.mark.parametrize(
    "model, gpus", [("llama3-70b", 64), ("qwen3-0.6b", 48), ("gpt-1.7b", 24), ("llama3-405b", 512)]
)
def test_mask_is_no_breach(model: str, gpus: int) -> None:
    question = documents.recipe(model, gpus, seq_length=2048)
    batch = megatron_sweep.draw(np.random.default_rng(7), question, 400)
    ok, _ = mask(question, batch)
    assert [not breaches(question, batch[row]) for row in range(400)] == ok.tolist()


@settings(deadline=None, max_examples=50)
@given(some.lists(some.integers(-3, 70_000), min_size=19, max_size=19))
def test_any_numbers_get_an_answer(numbers: list[int]) -> None:
    question = documents.recipe()
    knobs = dict(
        zip(
            (
                "tp",
                "pp",
                "dp",
                "cp",
                "ep",
                "etp",
                "v",
                "mbs",
                "m",
                "sp",
                "group",
                "recompute_layers",
                "first_layers",
                "last_layers",
                "zero",
            ),
            numbers,
            strict=False,
        )
    )
    one = Layout(**knobs)
    column = replace(one, tp=np.array([one.tp, one.tp]))
    found = breaches(question, one)
    assert all(b.message and "{" not in b.message for b in found)
    assert mask(question, column)[0].tolist() == [not found] * 2


def test_a_million_layouts_in_a_second() -> None:
    question = documents.recipe(gpus=512)
    batch = megatron_sweep.draw(np.random.default_rng(1), question, 1_000_000)
    seconds = []
    for _ in range(5):
        started = time.process_time()
        mask(question, batch)
        seconds.append(time.process_time() - started)
    assert min(seconds) < 1.0


def test_small_parts() -> None:
    assert near_divisors(80, 3) == [2, 4]
    assert near_divisors(7, 7) == [7]
    assert divides(np.array([0, 3, 4]), 8).tolist() == [True, False, True]
    assert quotient(7, np.array([0, 2])).tolist() == [7, 3]


@pytest.mark.parametrize("framework", ["deepspeed", "torch"])
def test_other_frameworks_have_the_common_rules(framework: str) -> None:
    stack = library.stack("megatron").model_copy(update={"framework": framework})
    version = {"deepspeed": "0.19", "torch": "2.13"}[framework]
    question = documents.recipe(
        gpus=48, framework=framework, framework_version=version, stack=stack
    )
    assert "heads split over tp" in names(question, documents.layout(question, tp=3))
    assert "layers split over stages" not in {rule.name for rule in rules_for(question)}


@pytest.mark.parametrize(
    ("pp", "says"),
    [(4, "leave the account-for switches out, or try pp 2 or 41"), (3, "try pp 2 or 41")],
)
def test_accounting_that_hinders_is_named(pp: int, says: str) -> None:
    """80 layers and two more are 82 = 2 x 41."""
    recipe = documents.recipe("llama3-70b", gpus=8 * pp)
    layout = Layout(
        tp=8, pp=pp, m=recipe.global_batch_size, sp=1, account_for_embedding=1, account_for_loss=1
    )
    assert [
        one.message.rpartition("; ")[2]
        for one in breaches(recipe, layout)
        if one.rule == "layers split over stages"
    ] == [says]
