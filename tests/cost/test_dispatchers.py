"""Exchanges of experts by dispatcher, against kernels and runs that others measured."""

from __future__ import annotations

import pytest

from planner.cost.layer.expert_exchange import exchange
from planner.cost.layer.gemms import products_s
from planner.cost.layer.layer import exposed_exchanges
from planner.cost.layer.moe import experts, wait_us
from planner.layout import Layout
from planner.specs import library
from planner.specs.model import Moe
from planner.specs.recipe import Recipe

TOKENS, HIDDEN = 4096, 7168
FREE = Moe(num_experts=256, experts_per_token=8, expert_ffn_size=2048)
"""8 of 256 experts, no groups: what the libraries' tests draw."""


def asked(cluster: str, dispatcher: str, **figures: object) -> Recipe:
    software = library.stack("megatron").with_figures({"experts.dispatcher": dispatcher, **figures})
    return Recipe(
        model=library.model("deepseek-v3"),
        hardware=library.hardware(cluster),
        software=software,
        gpus=256,
        seq_length=4096,
        global_batch_size=256,
    )


def reached(places: int) -> float:
    return places * (1 - (1 - 1 / places) ** 8)


@pytest.mark.parametrize(
    ("cluster", "dispatcher", "ranks", "dispatch", "combine"),
    [
        ("b200-sxm", "hybridep", 8, 536, 531),
        ("b200-sxm", "deepep", 8, 421, 361),  # 20 SMs, between 348 and 494, 302 and 420
        ("gb200-nvl72", "hybridep", 32, 486, 423),
        ("gb200-nvl72", "deepep", 24, 450, 164),
    ],
)
def test_kernels_over_nvlink(
    cluster: str, dispatcher: str, ranks: int, dispatch: float, combine: float
) -> None:
    """HybridEP's README: bytes that a rank receives, its own among them, over the kernel's time."""
    found = exchange(asked(cluster, dispatcher), Layout(ep=ranks), FREE, TOKENS, 2.0)
    received = TOKENS * HIDDEN * 2 * reached(ranks)
    for seconds, measured in ((found.dispatch_s, dispatch), (found.combine_s, combine)):
        assert received / float(seconds) / 1e9 == pytest.approx(measured, rel=0.1)


@pytest.mark.parametrize(
    ("ranks", "dispatch", "combine"), [(16, 58, 57), (32, 47, 51), (64, 41, 48)]
)
def test_hybridep_over_infiniband(ranks: int, dispatch: float, combine: float) -> None:
    """HybridEP's README, H100: bytes to all nodes reached, the own among them."""
    found = exchange(asked("h100-sxm", "hybridep"), Layout(ep=ranks), FREE, TOKENS, 2.0)
    sent = TOKENS * HIDDEN * 2 * reached(ranks // 8)
    for seconds, measured in ((found.dispatch_s, dispatch), (found.combine_s, combine)):
        assert sent / float(seconds) / 1e9 == pytest.approx(measured, rel=0.25)


@pytest.mark.parametrize(
    ("cluster", "proxy", "ranks", "dispatch", "combine"),
    [
        ("aws-p5", "nvshmem", 32, 43.7, 46.1),
        ("aws-p5", "uccl", 32, 38.2, 30.2),
        ("aws-p6-b300", "nvshmem", 16, 126.6, 106.4),
        ("aws-p6-b300", "nvshmem", 32, 97.1, 95.4),
        ("aws-p6-b300", "uccl", 16, 91.9, 59.6),
        ("aws-p6-b300", "uccl", 32, 102.1, 95.3),
    ],
)
def test_deepep_through_proxies(
    cluster: str, proxy: str, ranks: int, dispatch: float, combine: float
) -> None:
    """AWS's tests over EFA, both ways together: bytes to all nodes reached over the time."""
    question = asked(cluster, "deepep", **{"experts.proxy": proxy})
    found = exchange(question, Layout(ep=ranks), FREE, TOKENS, 2.0)
    sent = TOKENS * HIDDEN * 2 * reached(ranks // 8) / 1e9
    measured = sent / dispatch + sent / combine
    assert float(found.dispatch_s + found.combine_s) == pytest.approx(measured, rel=0.35)


def test_few_tokens_through_proxies() -> None:
    """UCCL's README, p6-b200, 32 ranks: dispatch and combine of 128 tokens take 1.02 ms."""
    question = asked("aws-p6-b200", "deepep", **{"experts.proxy": "uccl"})
    found = exchange(question, Layout(ep=32), FREE, 128, 2.0)
    assert float(found.dispatch_s + found.combine_s) == pytest.approx(1.02e-3, rel=0.2)


def test_allgather_moves_every_token_to_every_rank() -> None:
    """Eight ranks of a node: 7 of 8 shares of all tokens, where an all-to-all moves 8 copies."""
    layout = Layout(ep=8)
    everything, copies = (
        float(exchange(asked("h100-sxm", name), layout, FREE, TOKENS, 2.0).dispatch_s)
        for name in ("allgather", "alltoall")
    )
    assert everything == pytest.approx(copies, rel=0.1)  # top 8 of 8 ranks: the same bytes
    wide = Layout(ep=64)
    everything, copies = (
        float(exchange(asked("h100-sxm", name), wide, FREE, TOKENS, 2.0).dispatch_s)
        for name in ("allgather", "alltoall")
    )
    assert everything == pytest.approx(copies * 63 / 56, rel=0.25)  # a ring crosses with 8 NICs


def test_a_library_waits_as_an_all_to_all_where_it_is_none() -> None:
    """Alone Megatron runs its all-to-all; over EFA the counts go through the CPU."""
    plain, efa = (
        asked("h100-sxm", "deepep", **{"experts.wait_us": 200.0}),
        asked("aws-p5", "deepep", **{"experts.wait_us": 200.0}),
    )
    alltoall = plain.software.experts.alltoall_wait_us
    assert [float(wait_us(plain, Layout(ep=ep))) for ep in (1, 8, 16)] == [alltoall, 200.0, 200.0]
    assert [float(wait_us(efa, Layout(ep=ep))) for ep in (1, 8, 16)] == [alltoall, 200.0, alltoall]
    padded = asked("h100-sxm", "alltoall", **{"experts.padded": True})
    assert float(wait_us(padded, Layout(ep=8))) == padded.software.experts.padded_wait_us


def test_what_hides_behind_another_micro_batch_is_bounded_by_it() -> None:
    """A slow exchange is longer than the layer's compute: the rest shows, whatever the share."""
    slow = asked("aws-p5", "deepep", **{"experts.proxy": "uccl"})
    moe = slow.model.moe
    assert moe is not None
    layout = Layout(tp=8, ep=32, sp=1)
    kind = experts(slow, layout, moe)
    hiding = slow.model_copy(
        update={"software": slow.software.with_figures({"experts.overlap_share": 1.0})}
    )
    together = float(kind.ep_forward_s + kind.ep_backward_s)
    (forward, backward), beside = exposed_exchanges(hiding, layout, kind, together / 4)
    assert float(beside) == pytest.approx(together / 4)
    assert float(forward + backward) == pytest.approx(together * 3 / 4)
    (forward, backward), beside = exposed_exchanges(hiding, layout, kind, 2 * together)
    assert (float(forward + backward), float(beside)) == pytest.approx((0.0, together))


def test_shared_experts_hide_no_more_than_they_take() -> None:
    question = asked("h100-sxm", "alltoall", **{"experts.shared_overlap_share": 1.0})
    moe = question.model.moe
    assert moe is not None
    layout = Layout(ep=8)
    kind = experts(question, layout, moe)
    forward, by_input, by_weight, _ = products_s(question, layout, kind.shared)
    (left_forward, left_backward), _ = exposed_exchanges(question, layout, kind, 1.0)
    assert float(kind.ep_forward_s - left_forward) == pytest.approx(float(forward))
    assert float(kind.ep_backward_s - left_backward) == pytest.approx(float(by_input + by_weight))
