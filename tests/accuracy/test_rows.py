"""A row of each published source as documents; what a row leaves open; why a row is skipped."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from planner.accuracy.predict import predicted
from planner.accuracy.rows import Run, run
from planner.accuracy.skipped import Skipped
from planner.accuracy.validate import runs, select
from planner.layout import OFFLOAD_CODE, RECOMPUTE_CODE, SCHEDULE_CODE
from tests.published.runs import published, row

KNOBS = ("tp", "pp", "dp", "cp", "v", "mbs", "m", "sp", "zero")


def only(found: Run) -> dict[str, int]:
    """The one layout of a run."""
    assert len(found.layouts) == 1
    one = found.layouts[0]
    return {name: getattr(one, name) for name in KNOBS}


def why(**changes: Any) -> str:
    with pytest.raises(Skipped) as caught:
        run(row(**changes))
    return str(caught.value)


# What each published row says, read by eye in its file (line, then facts of model, machine and
# layout).
READ = [
    (
        "alephalpha_13b",
        2,
        {
            "num_layers": 40,
            "hidden_size": 5120,
            "ffn_size": 13824,
            "vocab_size": 128_000,
            "gated_mlp": True,
        },
        {"tp": 2, "pp": 2, "dp": 16, "mbs": 8, "m": 16, "sp": 0, "zero": 1},
    ),
    (
        "dlperf_v100",
        2,
        {"num_layers": 16, "hidden_size": 1536, "ffn_size": 6144},
        {"tp": 1, "pp": 1, "dp": 1, "mbs": 2, "m": 1},
    ),
    (
        "korthikanti2022",
        4,
        {"num_layers": 96, "hidden_size": 12288, "vocab_size": 51_200, "tied_embeddings": True},
        {"tp": 8, "pp": 8, "dp": 1, "v": 3, "mbs": 1, "m": 64, "sp": 1},
    ),
    (
        "llmfoundry_a100",
        2,
        {
            "num_layers": 80,
            "hidden_size": 8192,
            "ffn_size": 32768,
            "vocab_size": 50_368,
            "norm": "layernorm_nobias",
        },
        {"tp": 1, "dp": 64, "mbs": 8, "m": 4, "zero": 3},
    ),
    (
        "narayanan_sc21",
        11,
        {
            "num_layers": 128,
            "hidden_size": 25600,
            "num_heads": 160,
            "norm": "layernorm",
            "position": "learned",
        },
        {"tp": 8, "pp": 64, "dp": 6, "v": 1, "mbs": 1, "m": 512},
    ),
    (
        "simumax_b200",
        2,
        {"num_layers": 12, "hidden_size": 8192, "num_kv_heads": 8, "vocab_size": 128_256},
        {"tp": 1, "pp": 2, "dp": 4, "mbs": 1, "m": 4, "zero": 1},
    ),
    (
        "ultrascale",
        2,
        {"num_layers": 16, "hidden_size": 2048, "vocab_size": 131_072, "norm": "rmsnorm"},
        {"tp": 1, "pp": 1, "dp": 8, "mbs": 2, "m": 16},
    ),
    (
        "vtrain_multi",
        2,
        {"num_layers": 30, "hidden_size": 3072},
        {"tp": 1, "pp": 1, "dp": 64, "mbs": 8, "m": 1},
    ),
    (
        "vtrain_single",
        2,
        {"num_layers": 24, "hidden_size": 1024, "num_heads": 16, "head_dim": 64},
        {"tp": 1, "pp": 2, "dp": 1, "mbs": 8, "m": 2},
    ),
    (
        "zero_bubble",
        2,
        {"num_layers": 22, "hidden_size": 2304},
        {"tp": 1, "pp": 8, "dp": 1, "mbs": 6, "m": 24},
    ),
]


@pytest.mark.parametrize(
    ("source", "line", "model", "layout"), READ, ids=[entry[0] for entry in READ]
)
def test_a_row_of_each_source(
    source: str, line: int, model: dict[str, Any], layout: dict[str, int]
) -> None:
    cells = published(source, line)
    found = run(cells)
    assert {name: getattr(found.recipe.model, name) for name in model} == model
    one = only(found)
    assert {name: one[name] for name in layout} == layout
    assert found.recipe.gpus == cells["gpus"] == one["tp"] * one["pp"] * one["dp"] * one["cp"]
    assert (
        found.recipe.global_batch_size
        == cells["gbs_sequences"]
        == one["dp"] * one["mbs"] * one["m"]
    )
    assert found.recipe.seq_length == cells["seq"]
    assert found.recipe.attention == (cells["attention"] or found.recipe.software.attention)


def test_network_and_node_of_the_row() -> None:
    found = run(published("vtrain_multi", 2)).recipe.hardware  # "8 x 12.5 GB/s a node"
    assert found.fabric.nics * found.fabric.nic_gbytes_per_s == pytest.approx(100)
    two = run(row(gpus_per_node=2, node_net_gbytes_per_s=50)).recipe.hardware
    assert (two.node.gpus, two.node.domain_gpus) == (2, 2)
    assert two.nic_bytes_per_s_per_gpu == pytest.approx(25e9)
    rack = run(row(hardware="gb200-nvl72", precision="bf16", gpus_per_node=8)).recipe.hardware
    assert (rack.node.gpus, rack.node.domain_gpus) == (8, 72)


def test_zero_bubble_stages_are_even_with_one_layer_less_at_the_ends() -> None:
    one = run(published("zero_bubble", 2)).layouts[0]
    assert (one.account_for_embedding, one.account_for_loss) == (1, 1)
    assert one.schedule == SCHEDULE_CODE["zb-2p"]


def test_shape_of_a_preset_where_the_row_has_none() -> None:
    blank = dict.fromkeys(
        ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "tied_embed", "gated_mlp")
    )
    found = run(
        row(
            model="LLAMA3.1_405B",
            gpus=128,
            tp=8,
            pp=8,
            dp=2,
            hardware="h100-sxm",
            precision="bf16",
            stack="megatron",
            gbs_sequences=256,
            mbs=1,
            sp=1,
            vpp=None,
            schedule=None,
            recompute=None,
            zero=1,
            **blank,
        )
    )
    model = found.recipe.model
    assert (model.num_layers, model.hidden_size, model.num_kv_heads, model.vocab_size) == (
        126,
        16384,
        8,
        128_256,
    )
    assert any("those of llama3-405b" in text for text in found.assumed)
    # 126 layers over 8 ranks: even only with embedding and loss as layers, 16 a rank, so v of 1, 2,
    # 4, 8, 16.
    assert set(found.layouts.v.tolist()) == {1, 2, 4, 8, 16}
    assert (
        found.layouts.account_for_embedding.min() == 1 and found.layouts.account_for_loss.min() == 1
    )
    assert set(found.open) == {"v", "recompute"}


def test_usual_values_are_listed() -> None:
    found = run(
        row(
            model="gpt-mine",
            kv_heads=None,
            ffn=None,
            vocab=None,
            tied_embed=None,
            gated_mlp=None,
            cp=None,
        )
    )
    model = found.recipe.model
    assert (model.num_kv_heads, model.ffn_size, model.vocab_size, model.tied_embeddings) == (
        16,
        8192,
        51_200,
        True,
    )
    said = "; ".join(found.assumed)
    for words in ("kv_heads 16", "ffn 8,192", "vocab 51,200", "cp 1"):
        assert words in said
    llama = run(row(model="llama-mine", ffn=None, gated_mlp=1, kv_heads=None)).recipe.model
    assert llama.ffn_size == 5632  # 8/3 of 2,048, up to a multiple of 256
    assert (llama.norm, llama.position) == ("rmsnorm", "rope")


def test_open_knobs_are_columns_that_agree_with_the_row() -> None:
    found = run(row(mbs=None, recompute=None, vpp=None, schedule=None))
    batch = found.layouts
    assert set(batch.mbs.tolist()) == {1, 2, 4, 8, 16}  # 32 sequences over 2 replicas
    assert (batch.mbs * batch.m == 16).all()
    assert set(batch.v.tolist()) == {1, 2, 3, 4, 6, 12}  # 24 layers over 2 ranks
    assert ((batch.schedule == SCHEDULE_CODE["interleaved"]) == (batch.v > 1)).all()
    assert set(batch.recompute.tolist()) == set(RECOMPUTE_CODE.values())
    assert len(batch) == 5 * 6 * 3 and set(found.open) == {"mbs", "recompute", "v"}


def test_rows_of_one_question_share_their_recipe() -> None:
    assert run(row(tp=4, pp=1)).recipe is run(row(tp=1, pp=4)).recipe
    assert run(row(tp=4, pp=1)).recipe is not run(row(tp=4, pp=1, seq=2048)).recipe


def test_dp_that_contradicts_the_gpus() -> None:
    assert only(run(row(dp=4)))["dp"] == 2
    odd = run(
        row(gpus=128, tp=2, pp=1, cp=4, dp=4, gbs_sequences=4, mbs=1, seq=4096)
    )  # 16 replicas of 4 sequences cannot be
    assert (odd.layouts[0].dp, odd.layouts[0].cp) == (4, 16)


def test_attention_by_megatrons_kernel() -> None:
    own = run(published("korthikanti2022", 4))
    assert own.recipe.attention == "unfused"  # what that stack's unfused attention is
    other = run(
        row(
            stack="aleph-alpha-scaling",
            attention="unfused",
            notes="kernel=fused; attention: megatron-kernel",
        )
    )
    assert (
        other.recipe.software.name == "aleph-alpha-scaling-softmax"
    )  # its own fused softmax, not torch's operations


def test_a_drawn_layout_tells_the_virtual_stages() -> None:
    """Of DeepSeek-V3's recipe: 16 stages, over 4 ranks and over 8."""
    sizes = {"gpus": 1024, "dp": None, "gbs_sequences": 1024, "vpp": None, "schedule": None}
    notes = "VPP4; layout string Et*4|(tttt|)*14tmL; dispatcher flex hybridep"
    for pp, v in ((4, 4), (8, 2), (16, 1)):
        found = run(row(pp=pp, notes=notes, **sizes))
        assert set(np.atleast_1d(found.layouts.v).tolist()) == {v}
    without, faulty = (
        run(row(pp=4, notes=said, **sizes)).layouts.v
        for said in ("", "layout string Et*9999999|tL")
    )
    assert faulty.tolist() == without.tolist()


def test_precision_words() -> None:
    modern = {"hardware": "h100-sxm", "stack": "megatron"}
    assert run(row(precision=None, **modern)).recipe.precision == "bf16"
    assert run(row(precision="amp_bf16", **modern)).recipe.precision == "bf16"
    left_open = run(row(precision="fp8", **modern))
    assert left_open.recipe.precision == "fp8-delayed" and any(
        "without its recipe" in text for text in left_open.assumed
    )
    assert run(row(hardware="v100-16g-sxm2", precision=None)).recipe.precision == "fp16"


def test_unknown_stack_takes_its_nearest_kin() -> None:
    found = run(row(stack="megatron-2020"))
    assert found.recipe.software.name == "megatron-2021" and any(
        "nearest to megatron-2020" in text for text in found.assumed
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"gpus": None}, "gpus not stated"),
        ({"tp": None}, "tp not stated"),
        ({"seq": None}, "seq not stated"),
        ({"gbs_sequences": None}, "gbs_sequences not stated"),
        ({"hardware": None}, "hardware not stated"),
        ({"hardware": "tpu-v5p"}, "unknown hardware: tpu-v5p"),
        (
            {"model": "who-knows", "hidden": None},
            "no layers and hidden size, and no preset of that name",
        ),
        (
            {"model": "who-knows", "notes": "hybrid Mamba/MoE"},
            "a hybrid of layers, and no preset of that name",
        ),
        ({"model": "T5-3B"}, "not a decoder-only language model"),
        (
            {"notes": "activation offloading, A2A overlap"},
            "which activations wait in host memory is not stated",
        ),
        ({"precision": "int3"}, "unknown precision: int3"),
        ({"precision": "mxfp8"}, "a100-80g-sxm does not compute fp8"),
        ({"attention": "psychic"}, "unknown attention: psychic"),
        ({"recompute": "some"}, "unknown recompute: some"),
        ({"schedule": "chaos"}, "unknown schedule: chaos"),
        ({"zero": 4}, "zero is none of 0, 1, 2, 3"),
        ({"tp": 3}, "gpus is no multiple of tp * pp * cp"),
        ({"gbs_sequences": 33}, "the global batch is no multiple of dp"),
        ({"mbs": 3}, "the global batch is no multiple of dp * mbs"),
        ({"layers": 0}, "layers is no whole number of at least 1"),
        ({"pp": 1.5}, "pp is no whole number of at least 1"),
        (
            {"model": "gpt-odd", "hidden": 2**30, "ffn": None},
            "no such model can be: hidden_size: Input should be less than or equal to 100000000",
        ),
        (
            {"model": "gpt-odd", "kv_heads": 3},
            (
                "no such model can be: shape: num_heads must be a multiple of num_kv_heads, but got"
                " 16 and 3"
            ),
        ),
        (
            {"model": "gpt-odd", "heads": 24, "kv_heads": 24},
            "hidden size is no multiple of the heads",
        ),
    ],
)
def test_why_a_row_is_skipped(changes: dict[str, Any], reason: str) -> None:
    assert why(**changes) == reason


def test_nemotron_340b_is_no_nemotron_3() -> None:
    reason = "a hybrid of layers, and no preset of that name"
    assert why(model="Nemotron-3-Nano-Omni", notes=None) == reason
    assert run(row(model="Nemotron-340B")).recipe.model.num_layers == 24


@pytest.mark.parametrize(("pp", "first", "last"), [(1, 0, 0), (2, 21, 19), (4, 10, 8)])
def test_layers_where_embedding_norm_and_head_count_as_layers(
    pp: int, first: int, last: int
) -> None:
    """43 items dealt out evenly, the first stages one more (22, 21; 11, 11, 11, 10): one is the
    embedding, two are norm and head.
    """
    published_run = {
        **published("alephalpha_13b", 2),
        "tp": 2.0,
        "pp": float(pp),
        "dp": 32.0 / pp,
        "mbs": 1.0,
    }
    found = run(published_run).layouts[0]
    assert (found.first_layers, found.last_layers) == (first, last)


def test_kernels_of_the_notes_name_the_stack() -> None:
    own = published("alephalpha_13b", 2)
    kernels = (
        "flash_attention2 + RMS kernel",
        "flash_attention2",
        "flash_attentionv1.0.8",
        "torch",
    )
    stacks = [run({**own, "notes": f"kernel={kernel}"}).recipe.software.name for kernel in kernels]
    assert stacks == [
        "aleph-alpha-scaling-rmsnorm",
        "aleph-alpha-scaling",
        "aleph-alpha-scaling-flash1",
        "aleph-alpha-scaling",
    ]


def test_logits_on_every_rank_run_out_of_memory_whatever_tp() -> None:
    """Every published run of 4 x 8192 tokens a micro-batch failed, at any tp, pp and
    recomputation.
    """
    rows = predicted(select(runs(), "alephalpha_13b", "seq == 8192 and mbs == 4"))
    assert len(rows) > 60 and (rows["oom"] == 1).all()
    assert (rows["predicted_oom_probability"] > 0.5).all()


def test_lora_of_nemo_adapts_query_key_and_value_of_packed_squad() -> None:
    """NeMo's page, container 24.07: fine-tuning packs SQuAD-v1.1 to 4,096 tokens; its performance
    recipes set target_modules linear_qkv.
    """
    found = run(published("nemo_to_2025", 130)).recipe
    assert (
        found.model.name == "llama2-7b"
        and found.lora is not None
        and found.lora.targets == ("qkv",)
    )
    assert found.packing and found.mean_length == 200
    plain = run(published("nemo_to_2025", 124)).recipe
    assert plain.lora is None and plain.packing is None


def test_adapters_of_a_verification_card_are_on_all_linears() -> None:
    found = run(
        row(
            model="qwen3-8b",
            notes="item=peft; sanity run: not perf-tuned",
            layers=None,
            hidden=None,
            heads=None,
            kv_heads=None,
            ffn=None,
            vocab=None,
        )
    ).recipe
    assert found.lora is not None and found.lora.targets == ("qkv", "proj", "fc1", "fc2")


def test_an_optimizer_on_the_host_is_offloaded() -> None:
    found = run(published("mlengineering_h200_b200", 2))
    assert set(found.layouts.offload.tolist()) == {OFFLOAD_CODE["optimizer-cpu"]}
    assert found.recipe.software.name == "deepspeed-liger"
