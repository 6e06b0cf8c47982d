"""Megatron-LM's own: heads exchanged among ranks of context parallelism, the optimizer in host
memory, in a whole estimate.
"""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from planner.cost.params.layer import total_params
from planner.estimate import estimate
from planner.layout import OFFLOAD_CODE
from planner.rules.table import mask
from tests import documents
from tests.judges import megatron_sweep

CPU = OFFLOAD_CODE["optimizer-cpu"]


def test_exchanged_heads_move_four_tensors_a_layer() -> None:
    """Queries and outputs of 4,096, keys and values of 8 * 128 for a rank's tokens, 7/8 of them to
    others; 32 layers, two ways.
    """
    recipe = documents.recipe("llama3-8b", 8, seq_length=65536, global_batch_size=8)
    said = estimate(recipe, documents.layout(recipe, cp=8, cp_a2a=8))
    sent = 2 * (65536 / 8) * (2 * 4096 + 2 * 8 * 128) * 7 / 8
    link = recipe.hardware.node.domain
    least = (
        32
        * recipe.global_batch_size
        * 2
        * sent
        / (link.bytes_per_s * max(link.efficiency.values()))
    )
    assert least < said.time.cp_comm_s < 1.5 * least


def test_an_exchange_inside_a_node_shortens_the_ring_between_nodes() -> None:
    """A ring of 16 over two nodes has 15 hops, of 2 groups of 8 one; short shares of a sequence
    hide few of them.
    """
    recipe = documents.recipe("llama3-8b", 16, seq_length=32768, global_batch_size=16)
    ring, both = (
        estimate(recipe, documents.layout(recipe, cp=16, cp_a2a=heads)) for heads in (1, 8)
    )
    assert both.time.cp_comm_s < 0.5 * ring.time.cp_comm_s


def test_optimizer_in_host_memory() -> None:
    """12 bytes a parameter leave the device, 16 go to the host with half as much again in buffers;
    4 + 2 bytes cross PCIe once a step.
    """
    recipe = documents.recipe("llama3-8b", 8, seq_length=8192, global_batch_size=64)
    held, away = (
        estimate(recipe, documents.layout(recipe, tp=2, offload=place)) for place in (0, CPU)
    )
    params = total_params(recipe.model)
    assert held.memory.optimizer_bytes - away.memory.optimizer_bytes == pytest.approx(
        12 * params / 8, rel=0.02
    )
    assert away.host_bytes == pytest.approx(1.5 * 16 * params)
    node = recipe.hardware.node
    least = (
        6 * params / 8 / (node.pcie_gbytes_per_s * 1e9)
        + params / recipe.software.sharding.host_update_params_per_s
    )
    assert away.time.offload_s == pytest.approx(least, rel=0.02)


@pytest.mark.filterwarnings("error")
def test_a_batch_is_its_rows() -> None:
    recipe = documents.recipe("qwen3-30b-a3b", 64, global_batch_size=256)
    drawn = replace(megatron_sweep.draw(np.random.default_rng(5), recipe, 40_000), ep=8)
    batch = drawn[np.flatnonzero(mask(recipe, drawn)[0])[:40]]
    assert batch.cp_a2a.max() > 1 and batch.offload.max() > 0
    many = estimate(recipe, batch)
    for row in range(len(batch)):
        one = estimate(recipe, batch[row])
        for term in fields(one.time):
            assert np.broadcast_to(getattr(many.time, term.name), 40)[row] == pytest.approx(
                getattr(one.time, term.name), rel=1e-12
            )
