"""Every way of running a step gives the losses of one process: same weights, same tokens, before
and after a step of plain descent, whose size is that of the gradient."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from planner.layout import Layout
from planner.specs.layers import has_experts
from planner.tune.benchmark import network, training
from tests.tune import tiny

pytestmark = pytest.mark.process


STEPS, RATE = 2, 3.0
CLOSE = 2e-5
"""Relative; the update between the steps moves the losses by far more, as a test below shows."""
TWO = {
    "tp": {"model": "short", "tp": 2, "mbs": 4},
    "tp and sp": {"model": "short", "tp": 2, "sp": 1, "mbs": 4},
    "gpt tp": {"model": "gpt", "tp": 2, "mbs": 8},
    "gpt tp and sp": {"model": "gpt", "tp": 2, "sp": 1, "mbs": 4},
    "qwen tp and sp": {"model": "qwen", "tp": 2, "sp": 1, "mbs": 4},
    "ddp": {"dp": 2},
    "zero 1": {"dp": 2, "zero": 1},
    "zero 2": {"dp": 2, "zero": 2},
    "zero 3": {"dp": 2, "zero": 3},
    "ddp in buckets of 1 MiB": {"model": "wide", "dp": 2, "switches": {"bucket_cap_mb": 1}},
    "ddp in buckets of 5 MiB": {"model": "wide", "dp": 2, "switches": {"bucket_cap_mb": 5}},
    "reduced after the pass": {"dp": 2, "switches": {"overlap_reduce": False}},
    "zero 1 in buckets": {"dp": 2, "zero": 1, "switches": {"reduce_bucket_numel": 9000}},
    "zero 3 gathered ahead": {"dp": 2, "zero": 3, "switches": {"prefetch_layers": 2}},
    "naive": {"pp": 2, "mbs": 8, "schedule": "naive"},
    "gpipe": {"pp": 2, "schedule": "gpipe"},
    "1f1b": {"pp": 2},
    "interleaved": {"pp": 2, "v": 2, "schedule": "interleaved"},
    "interleaved-torch": {"pp": 2, "v": 2, "schedule": "interleaved-torch"},
    "interleaved-zb": {"pp": 2, "v": 2, "schedule": "interleaved-zb"},
    "zbv": {"pp": 2, "v": 2, "schedule": "zbv"},
    "zb-h1": {"pp": 2, "schedule": "zb-h1"},
    "v-half": {"pp": 2, "v": 2, "schedule": "v-half"},
    "recompute full": {"model": "short", "tp": 2, "sp": 1, "mbs": 4, "recompute": 2},
    "recompute some layers": {"pp": 2, "recompute": 2, "recompute_layers": 1},
    "recompute selective": {
        "model": "short",
        "tp": 2,
        "sp": 1,
        "mbs": 4,
        "recompute": 1,
        "recompute_modules": 0b10101,
    },
    "recompute in two passes": {"pp": 2, "v": 2, "schedule": "zbv", "recompute": 2},
    "bf16": {"model": "short", "element": "bfloat16", "tp": 2, "sp": 1, "mbs": 4},
    "bf16 zero 1": {"element": "bfloat16", "dp": 2, "zero": 1},
    "bf16 zero 3": {"element": "bfloat16", "dp": 2, "zero": 3},
    "bf16 zbv": {"element": "bfloat16", "pp": 2, "v": 2, "schedule": "zbv"},
    "experts zero 1": {"model": "mixtral", "dp": 2, "zero": 1},
    "experts zero 2": {"model": "mixtral", "dp": 2, "zero": 2},
    "experts over ranks": {"model": "mixtral", "dp": 2, "ep": 2},
    "experts tp and sp": {"model": "mixtral", "tp": 2, "sp": 1, "mbs": 4},
    "experts over tp": {"model": "mixtral", "tp": 2, "sp": 1, "mbs": 4, "ep": 2, "recompute": 2},
}
FOUR = {
    "tp and pp": {"model": "short", "tp": 2, "pp": 2, "sp": 1, "mbs": 4},
    "tp and zbv": {"tp": 2, "pp": 2, "v": 2, "mbs": 4, "schedule": "zbv"},
    "pp and ddp": {"pp": 2, "dp": 2},
    "pp and zero 1": {"pp": 2, "dp": 2, "v": 2, "schedule": "interleaved-torch", "zero": 1},
    "pp and zero 2": {"pp": 2, "dp": 2, "zero": 2},
    "pp and zero 3": {"pp": 2, "dp": 2, "v": 2, "schedule": "interleaved-torch", "zero": 3},
    "zbv and zero 2": {"pp": 2, "dp": 2, "v": 2, "schedule": "zbv", "zero": 2},
    "zbv and zero 1": {"pp": 2, "dp": 2, "v": 2, "schedule": "zbv", "zero": 1},
    "tp and zero 3": {"tp": 2, "sp": 1, "dp": 2, "zero": 3, "model": "qwen"},
    "pp of four": {"pp": 4},
    "experts in a pipeline": {"pp": 2, "dp": 2, "ep": 2, "model": "mixtral", "zero": 1},
}


def reference(model, steps=STEPS, rate=RATE):
    """Losses of one process with the benchmark's weights: its modules with experts, the formulas
    below for dense llama.
    """
    question = tiny.recipe(1, model)
    what = network.Cut(question.model, 256)
    embedding, head = network.Embedding(what), network.Head(what)
    blocks = [
        network.Block(what, has_experts(question.model, i))
        for i in range(question.model.num_layers)
    ]
    for module, name in (
        (embedding, "embedding"),
        (head, "head"),
        *((block, f"layer {i}") for i, block in enumerate(blocks)),
    ):
        network.fill(module, name, 1234)
    parameters = [one for module in (embedding, *blocks, head) for one in module.parameters()]
    descent = torch.optim.SGD(parameters, lr=rate)
    losses = []
    tokens, targets = data(question)
    for _ in range(steps):
        x = embedding(tokens)
        for block in blocks:
            x = layer(block, x) if model in ("llama", "short") else block(x)
        loss = functional.cross_entropy(head.output(head.norm(x)).flatten(0, 1), targets.flatten())
        losses.append(loss.item())
        descent.zero_grad()
        loss.backward()
        descent.step()
    return losses


def data(question):
    class Alone:
        dp_rank, device = 0, torch.device("cpu")

    return training.batch(question, Layout(mbs=tiny.GBS, m=1), Alone, 1234)


def layer(block, x):
    """A llama layer from its definition: RMS norm, rotation as complex numbers, masked softmax,
    SwiGLU.
    """
    normed = rms(x, block.attention_norm.weight)
    query, key, value = (
        functional.linear(normed, one.weight)
        for one in (block.attention.wq, block.attention.wk, block.attention.wv)
    )
    query, key, value = (
        one.view(*one.shape[:2], -1, 8).transpose(1, 2) for one in (query, key, value)
    )
    query, key = turned(query), turned(key)
    key, value = key.repeat_interleave(2, 1), value.repeat_interleave(2, 1)
    scores = query @ key.transpose(-1, -2) / 8**0.5
    scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), float("-inf"))
    mixed = (scores.softmax(-1) @ value).transpose(1, 2).flatten(2)
    x = x + functional.linear(mixed, block.attention.wo.weight)
    normed = rms(x, block.mlp_norm.weight)
    gate, up = (
        functional.linear(normed, block.mlp.gate.weight),
        functional.linear(normed, block.mlp.up.weight),
    )
    return x + functional.linear(gate * torch.sigmoid(gate) * up, block.mlp.down.weight)


def rms(x, weight):
    return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight


def turned(x):
    pairs = torch.complex(x[..., :4], x[..., 4:])
    angle = torch.outer(torch.arange(float(x.shape[2])), 10_000.0 ** (-torch.arange(4.0) / 4))
    out = pairs * torch.polar(torch.ones_like(angle), angle)
    return torch.cat((out.real, out.imag), -1)


@pytest.fixture(scope="module")
def expected():
    torch.set_num_threads(1)  # two would wait for each other by spinning where the cores are shared
    return {model: reference(model) for model in tiny.MODELS}


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """Every mode over two processes, then over four."""
    groups = [
        ([tiny.asked(**knobs) for knobs in modes.values()], ranks)
        for modes, ranks in ((TWO, 2), (FOUR, 4))
    ]
    return tiny.answers(groups, tmp_path_factory.mktemp("ran"))


@pytest.fixture(scope="module")
def two(ran):
    return dict(zip(TWO, ran[0], strict=True))


@pytest.fixture(scope="module")
def four(ran):
    return dict(zip(FOUR, ran[1], strict=True))


@pytest.mark.parametrize("mode", TWO)
def test_two_processes_learn_as_one(two, expected, mode):
    close = 1e-2 if TWO[mode].get("element") else CLOSE
    assert two[mode]["losses"] == pytest.approx(
        expected[TWO[mode].get("model", "llama")], rel=close
    )


@pytest.mark.parametrize("mode", FOUR)
def test_four_processes_learn_as_one(four, expected, mode):
    assert four[mode]["losses"] == pytest.approx(
        expected[FOUR[mode].get("model", "llama")], rel=CLOSE
    )


def test_ddp_sends_as_many_buckets_as_its_size_makes(two):
    """A layer's three MLP matrices have 1 MiB each and the rest of it some KiB: buckets close when
    they are full.
    """
    sizes = {
        name: [int(size) for size in two[name]["seen"]["ddp"][0].split(",")]
        for name in two
        if "buckets of" in name
    }
    whole = 4 * sum(parameters(tiny.WIDE))
    small, large = sizes["ddp in buckets of 1 MiB"], sizes["ddp in buckets of 5 MiB"]
    assert sum(small) == sum(large) == whole
    assert len(small) == 13 and len(large) == 3  # 12 matrices and what is left; 5 + 5 + the rest
    assert two["ddp"]["seen"]["ddp"] and not two["ddp"]["seen"]["reductions"]


def test_after_the_pass_gradients_are_reduced_in_our_own_buckets(two):
    after, cut, usual = (
        two[name]["seen"] for name in ("reduced after the pass", "zero 1 in buckets", "zero 1")
    )
    whole = sum(parameters(tiny.LLAMA))
    assert not after["ddp"] and after["reductions"] == [whole] * STEPS
    assert usual["reductions"] == [whole] * STEPS
    assert (
        sum(cut["reductions"]) == whole * STEPS
        and len(cut["reductions"]) >= 4 * STEPS
        and max(cut["reductions"]) <= 9000
    )


def test_fully_shard_gathers_so_many_layers_ahead(two):
    assert two["zero 3"]["seen"]["ahead"] == [[0, 0]] * 4
    assert two["zero 3 gathered ahead"]["seen"]["ahead"] == [[2, 0], [2, 1], [1, 2], [0, 2]]


def parameters(model):
    """Sizes of what is trained of a llama: projections, MLP and norms of each layer; embedding,
    head and the last norm.
    """
    h, f, heads, kv = (
        model["hidden_size"],
        model["ffn_size"],
        model["num_heads"] * 8,
        model["num_kv_heads"] * 8,
    )
    layer = [h * heads, h * kv, h * kv, heads * h, h * f, h * f, f * h, h, h]
    return layer * model["num_layers"] + [256 * h, 256 * h, h]


def test_losses_would_show_a_lost_update(expected):
    for model, losses in expected.items():
        assert abs(losses[1] - losses[0]) / losses[0] > 50 * CLOSE, model
