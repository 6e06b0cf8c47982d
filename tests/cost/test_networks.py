"""Oversubscribed networks, racks of 72 and two datacentres, by hand arithmetic and published
facts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from planner import api
from planner.cost.network import collectives, sites
from planner.cost.step import step
from planner.errors import InputError
from planner.estimate import closed_form, estimate
from planner.layout import Layout
from planner.schedules.table import order
from planner.simulator import simulate
from planner.specs import library, resolve
from planner.specs.recipe import Recipe

pytestmark = pytest.mark.slow


H100 = library.hardware("h100-sxm")
GB200 = library.hardware("gb200-nvl72")
RATE = 50e9 * 0.91
"""Bytes a second of an H100's NIC, as its profile has it."""


def changed(*figures: str, cluster: str = "h100-sxm") -> Any:
    return library.hardware(cluster, figures)


def asked(**words: Any) -> tuple[Recipe, Layout]:
    return resolve.recipe_and_layout(api.question(cluster="h100-sxm", **words))


def test_a_group_within_a_pod_does_not_feel_oversubscription() -> None:
    meta = changed("fabric.pod_gpus=3072", "fabric.oversubscription=7")
    inside = collectives.group(meta, 8, 384)
    assert collectives.bandwidth(meta, inside) == collectives.bandwidth(
        H100, collectives.group(H100, 8, 384)
    )


def test_rings_that_fill_a_pod_hide_its_oversubscription() -> None:
    """Llama 3 405B, arXiv 2407.21783 sec. 3.3.1: pods of 3,072 GPUs at full bandwidth, 1:7 between
    them.

    A dp group of tp 8 has 384 members a pod, one on each node: all 8 groups of a pod leave it with
    one flow each, 8 NICs of 3,072 / 7.
    """
    meta = changed("fabric.pod_gpus=3072", "fabric.oversubscription=7")
    assert collectives.bandwidth(meta, collectives.group(meta, 8, 2048)) == pytest.approx(RATE)


def test_groups_with_few_members_a_pod_share_its_uplinks() -> None:
    """Ranks 1,024 apart: 3 a pod of 3,072, so 1,024 groups leave each pod over 3,072 / 7 NICs: 3/7
    of a NIC each.
    """
    meta = changed("fabric.pod_gpus=3072", "fabric.oversubscription=7")
    assert collectives.bandwidth(meta, collectives.group(meta, 1024, 16)) == pytest.approx(
        RATE * 3 / 7
    )


def test_a_leaf_of_32_gpus_with_4_to_1_slows_one_rank_a_leaf_to_a_quarter() -> None:
    small = changed("fabric.pod_gpus=32", "fabric.oversubscription=4")
    assert collectives.bandwidth(small, collectives.group(small, 32, 4)) == pytest.approx(RATE / 4)
    sent = collectives.send_s(small, 32, 4, 1e9) - 20e-6
    assert sent == pytest.approx(1e9 / (RATE / 4))
    assert collectives.send_s(small, 8, 4, 1e9) == collectives.send_s(H100, 8, 4, 1e9)


def test_oversubscription_slows_tokens_on_their_way_to_experts() -> None:
    words = {
        "model": "qwen3-30b-a3b",
        "gpus": 64,
        "ep": 64,
        "global_batch_size": 64,
        "seq_length": 4096,
    }
    slow = ("fabric.pod_gpus=32", "fabric.oversubscription=8")
    plain, thin = (estimate(*asked(**words, set=figures)).time for figures in ((), slow))
    # Of 64 ranks 56 are on other nodes, 32 in the other pod, at an eighth: 32 * 8 / 56 times as
    # long on the wire.
    assert plain.ep_comm_s < thin.ep_comm_s <= plain.ep_comm_s * 32 * 8 / 56
    assert thin.ep_comm_s > plain.ep_comm_s * 2


def test_a_rack_of_72_is_one_domain() -> None:
    """64 GPUs reach each other over NVLink in a GB200 NVL72, over NICs in boxes of 8; 144 GPUs span
    two racks.
    """
    one, two = collectives.group(GB200, 1, 64), collectives.group(GB200, 1, 144)
    assert (one.domain, one.nodes) == (64, 1)
    assert (two.domain, two.nodes) == (72, 2)
    nvlink = collectives.bandwidth(GB200, one)
    # 835-847 GB/s of all-reduce for 8 to 72 GPUs with in-switch gain, 900 at most (OCI, CoreWeave)
    assert nvlink > 600e9
    # All 72 NICs of a rack carry a ring: 72 x 50 GB/s is more than NVLink gives, so NVLink stays
    # the slowest hop.
    assert collectives.bandwidth(GB200, two) == pytest.approx(nvlink)


def test_two_sites_exchange_gradients_once() -> None:
    """All-reduce of B bytes over two sites: each sends half, twice, over its share of the link; all
    shards together B over the link.

    1,024 GPUs, tp 8, dp 128: 8 groups; a link of 100 GB/s gives each 12.5 GB/s; 1 GB a group takes
    80 ms and two latencies of 5 ms.
    """
    far = changed("fabric.sites=2", "fabric.site_gbytes_per_s=100", "fabric.site_latency_us=5000")
    whole = collectives.group(far, 8, 128, 2, 1024)
    assert (whole.size, whole.link_bytes_per_s) == (64, pytest.approx(12.5e9))
    inside = collectives.all_reduce_s(H100, collectives.group(H100, 8, 64), 1e9)
    assert collectives.all_reduce_s(far, whole, 1e9) - inside == pytest.approx(0.080 + 0.010)
    scattered = collectives.gather_s(far, whole, 1e9) - collectives.gather_s(
        H100, collectives.group(H100, 8, 64), 1e9
    )
    assert scattered == pytest.approx(0.040 + 0.005)


def test_one_site_changes_nothing() -> None:
    recipe, layout = asked(model="llama3-70b", gpus=64, tp=8, pp=4)
    same = recipe.model_copy(
        update={"hardware": changed("fabric.sites=1", "fabric.site_latency_us=5000")}
    )
    assert estimate(recipe, layout, exact=True).time == estimate(same, layout, exact=True).time


def far_recipe(
    latency_us: float = 1000.0, gbytes: float = 50.0, **words: Any
) -> tuple[Recipe, Layout]:
    figures = (
        "fabric.sites=2",
        f"fabric.site_gbytes_per_s={gbytes}",
        f"fabric.site_latency_us={latency_us}",
    )
    return asked(set=figures, **words)


def test_the_group_that_moves_less_crosses() -> None:
    """Llama 3 70B: 70.55 G parameters, 4-byte gradients and 2-byte weights of which half crosses:
    212 GB a step over dp; hidden states of 8,192 x 2 bytes a token over pp: 16.4 GB for a million
    tokens, 268 GB for 16 million.
    """
    words: dict[str, Any] = {
        "model": "llama3-70b",
        "gpus": 512,
        "tp": 8,
        "pp": 4,
        "seq_length": 8192,
    }
    assert not sites.replicas_cross(*far_recipe(global_batch_size=128, **words))
    assert sites.replicas_cross(*far_recipe(global_batch_size=2048, **words))


def test_adapters_cross_where_all_weights_would_not() -> None:
    words: dict[str, Any] = {
        "model": "llama3-70b",
        "gpus": 512,
        "tp": 8,
        "pp": 4,
        "seq_length": 8192,
        "global_batch_size": 128,
    }
    assert sites.replicas_cross(*far_recipe(lora_rank=16, **words))


def test_what_cannot_be_halved_does_not_cross() -> None:
    assert sites.replicas_cross(*far_recipe(model="llama3-8b", gpus=16, tp=8, global_batch_size=16))
    assert not sites.replicas_cross(
        *far_recipe(model="llama3-8b", gpus=16, tp=8, pp=2, global_batch_size=16)
    )


@pytest.mark.parametrize("pp, m", [(2, 16), (2, 64), (4, 16), (4, 64), (8, 64), (16, 128)])
def test_transfers_in_closed_form_are_those_of_the_simulated_boundary(pp: int, m: int) -> None:
    """Blocking 1F1B of equal stages, one boundary of four at 10 ms among hops of a fifth of one."""
    recipe, layout = far_recipe(
        10_000.0, 1e9, model="gpt3-175b", gpus=pp, pp=pp, global_batch_size=m
    )
    near = 0.2e-3
    between = sites.between_ranks(recipe, layout, near, 0.0)
    sequence = order("1f1b", pp, m, 1)
    spent = np.tile([0.5, 1.0, 0.5, 0.5], (pp, 1))
    more = (
        simulate(sequence, spent, transfer=between, blocking=True).makespan
        - simulate(sequence, spent).makespan
    )
    assert 2 * sites.hop_s(recipe, layout, near, 0.0) * (m + pp - 2) == pytest.approx(
        more, rel=0.07
    )


def test_a_pipeline_over_two_sites_waits_where_its_ranks_have_no_slack() -> None:
    """The middle ranks wait 10 ms for every micro-batch; the head's rank, the slowest, hides as
    much of that as it is slower.
    """
    words = {
        "model": "llama3-8b",
        "gpus": 16,
        "tp": 4,
        "pp": 4,
        "dp": 1,
        "global_batch_size": 64,
        "seq_length": 4096,
    }
    far = far_recipe(10_000.0, 1e4, **words)
    one, two = (estimate(*both, exact=True) for both in (asked(**words), far))
    hop = float(step.transfer_s(*asked(**words)))
    middle, last = (one.stages[at].forward_s + one.stages[at].backward_s for at in (1, 3))
    assert two.time.pp_comm_s - one.time.pp_comm_s == pytest.approx(
        64 * (middle + hop + 10e-3 - last), rel=0.03
    )
    assert any("pipelines (pp) cross" in text for text in two.assumed)


@pytest.mark.parametrize(
    "model, stack",
    [("mixtral-8x7b", "megatron"), ("llama3-8b", "megatron"), ("qwen3-0.6b", "deepspeed")],
)
@pytest.mark.parametrize(
    "figures",
    [
        ("fabric.sites=2", "fabric.site_gbytes_per_s=50", "fabric.site_latency_us=1000"),
        ("fabric.pod_gpus=16", "fabric.oversubscription=4"),
        (
            "fabric.sites=4",
            "fabric.site_gbytes_per_s=5",
            "fabric.pod_gpus=32",
            "fabric.oversubscription=1.5",
        ),
    ],
)
def test_columns_are_rows_over_networks(model: str, stack: str, figures: tuple[str, ...]) -> None:
    recipe, _ = asked(model=model, stack=stack, gpus=64, global_batch_size=64, set=figures)
    rng, count = np.random.default_rng(5), 60
    choices = {
        "tp": (1, 2, 4, 8),
        "pp": (1, 2, 4, 8),
        "dp": (1, 2, 4, 16),
        "m": (1, 2, 16, 64),
        "v": (1, 1, 2),
        "zero": (0, 1, 3),
        "hpz": (1, 1, 8),
        "ep": (1, 2, 4) if recipe.model.moe else (1,),
        "cp": (1, 1, 2),
    }
    columns: dict[str, Any] = {name: rng.choice(values, count) for name, values in choices.items()}
    batch = Layout(**columns)
    many = closed_form(recipe, batch)
    for at in range(count):
        assert many.step_s[at] == pytest.approx(
            float(closed_form(recipe, batch[at]).step_s), rel=1e-12
        )


def test_a_slower_link_never_helps_and_recommend_plans_around_it() -> None:
    question = {"model": "llama3-70b", "gpus": 256, "cluster": "h100-sxm", "global_batch_size": 512}
    speeds = []
    for gbytes in (400, 50, 5):
        figures = (
            "fabric.sites=2",
            f"fabric.site_gbytes_per_s={gbytes}",
            "fabric.site_latency_us=2000",
        )
        found = api.recommend(api.question(**question, set=figures), top=1).search
        assert found is not None and found.plans
        speeds.append(found.plans[0].estimate.step_s)
    assert speeds == sorted(speeds)


@pytest.mark.parametrize(
    "figures, word",
    [
        (("fabric.sites=2",), "site_gbytes_per_s"),
        (("fabric.oversubscription=7",), "pod_gpus"),
        (("fabric.oversubscription=0.5",), "oversubscription"),
    ],
)
def test_half_a_network_is_refused(figures: tuple[str, ...], word: str) -> None:
    with pytest.raises(InputError, match=word):
        changed(*figures)
