"""Software without fused kernels: what torch's own autograd keeps of such a layer, and logits that
are gathered over tp.
"""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import linear, scaled_dot_product_attention, silu

from planner.cost.layer.layer import tp_comm_times
from planner.cost.memory.activations import activations, layer_parts
from planner.cost.network.collectives import all_reduce_s, group
from planner.layout import Layout
from planner.specs import library
from planner.specs.recipe import Recipe

H, F, HEADS, T = 64, 160, 4, 32


def recipe(stack: str, attention: str = "flash", seq: int = 8192) -> Recipe:
    return Recipe(
        model=library.model("llama2-13b"),
        hardware=library.hardware("a100-80g-sxm"),
        software=library.stack(stack),
        gpus=64,
        seq_length=seq,
        global_batch_size=512,
        attention=attention,
    )


def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).type_as(x) * weight


def rotated(x: torch.Tensor, cos: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * cos


def kept_by_autograd() -> int:
    """Bytes of the distinct buffers of activations that autograd saves of a Llama layer of separate
    operations.
    """
    saved: dict[int, torch.UntypedStorage] = {}
    make = {"dtype": torch.bfloat16, "requires_grad": True}
    sizes = {
        "norm1": (H,),
        "norm2": (H,),
        "qkv": (3 * H, H),
        "out": (H, H),
        "up": (F, H),
        "gate": (F, H),
        "down": (H, F),
    }
    w = {name: torch.ones(size, **make) for name, size in sizes.items()}
    own = {tensor.untyped_storage().data_ptr() for tensor in w.values()}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        store = tensor.untyped_storage()
        if store.data_ptr() not in own and store.nbytes() >= T * H * 2:
            saved[store.data_ptr()] = store
        return tensor

    x = torch.randn(1, T, H).bfloat16().requires_grad_() * 1.0  # an output of the layer before
    cos = torch.ones(T, H // HEADS, dtype=torch.bfloat16)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        parts = (
            linear(norm(x, w["norm1"]), w["qkv"])
            .view(1, T, HEADS, 3 * H // HEADS)
            .transpose(1, 2)
            .chunk(3, dim=-1)
        )
        core = scaled_dot_product_attention(
            rotated(parts[0], cos), rotated(parts[1], cos), parts[2], is_causal=True
        )
        x = x + linear(core.transpose(1, 2).reshape(1, T, H), w["out"])
        inside = norm(x, w["norm2"])
        branch = silu(linear(inside, w["up"])) * linear(inside, w["gate"])
        x = x + linear(branch, w["down"])
    return sum(store.nbytes() for store in saved.values())


def test_kept_bytes_are_what_autograd_saves() -> None:
    """Per token: norms 16 h, query-key-value with rotated copies 10 h, attention's output 2 h, both
    branches, silu and product 8 f.
    """
    expected = T * (16 * H + 10 * H + 2 * H + 8 * F)
    assert kept_by_autograd() == pytest.approx(expected, rel=0.05)
    sizes = {
        "hidden_size": H,
        "ffn_size": F,
        "num_heads": HEADS,
        "num_kv_heads": HEADS,
        "head_dim": H // HEADS,
    }
    model = library.model("llama2-13b").model_copy(update=sizes)
    question = recipe("aleph-alpha-scaling", seq=T).model_copy(update={"model": model})
    parts = layer_parts(question, Layout())
    assert sum(parts.values()) - parts["core"] == pytest.approx(expected)


def test_gathered_logits_are_whole_on_every_rank() -> None:
    """8192 tokens x 32,000 rows x 20 bytes, whatever tp; Megatron's split vocabulary divides
    them.
    """
    heads = [activations(recipe("aleph-alpha-scaling"), Layout(tp=tp)).head_bytes for tp in (1, 8)]
    states = 8192 * 5120 * 6
    assert [x - states for x in heads] == pytest.approx([8192 * 32_000 * 20] * 2, rel=0.03)
    split = [
        activations(recipe("megatron-2022"), Layout(tp=tp)).head_bytes - states for tp in (1, 8)
    ]
    assert split[0] > 6 * split[1]


def test_every_column_parallel_product_reduces_its_own_gradient() -> None:
    """Query-key-value, up and gate: three all-reduces of T h backward, two forward; with sp two
    gathers and two scatters.
    """
    question, layout = recipe("aleph-alpha-scaling"), Layout(tp=8, sp=0)
    one = all_reduce_s(question.hardware, group(question.hardware, 1, 8), 8192 * 5120 * 2.0)
    forward, before, beside = tp_comm_times(question, layout)
    assert (forward, before, beside) == pytest.approx((2 * one, 0.0, 3 * one))
    forward, before, beside = tp_comm_times(question, Layout(tp=8, sp=1))
    assert forward == pytest.approx(before + beside)


def test_megatrons_softmax_kernel_is_not_flash() -> None:
    """It keeps the probabilities, 2 bytes a score, and the fp32 copy that this stack's softmax
    makes.
    """
    scores = 8192 * 8192 * 40
    assert layer_parts(recipe("aleph-alpha-scaling", "unfused"), Layout())["core"] == pytest.approx(
        6 * scores
    )
    assert layer_parts(recipe("megatron", "unfused"), Layout())["core"] == pytest.approx(2 * scores)
