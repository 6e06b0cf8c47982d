"""Collectives against the laws that any ring obeys and measured anchors."""

from __future__ import annotations

import numpy as np
import pytest

from planner.cost.network import collectives
from planner.specs import library

H100 = library.hardware("h100-sxm")


def test_alone_costs_nothing() -> None:
    one = collectives.group(H100, 1, 1)
    assert collectives.gather_s(H100, one, 1e9) == 0
    assert collectives.all_reduce_s(H100, one, 1e9) == 0


@pytest.mark.parametrize(
    ("stride", "size", "domain", "nodes"),
    [(1, 8, 8, 1), (8, 16, 1, 16), (1, 16, 8, 2), (2, 16, 4, 4), (4, 4, 2, 2)],
)
def test_group_lies_over_domains_and_nodes(stride: int, size: int, domain: int, nodes: int) -> None:
    found = collectives.group(H100, stride, size)
    assert (found.domain, found.nodes) == (domain, nodes)


def test_one_gpu_a_node_has_one_nic() -> None:
    """tp 8 inside the node: a data-parallel group runs at one 400 Gb/s NIC, 46-48 GB/s of bus
    bandwidth (nccl-tests#119, #290).
    """
    seconds = collectives.all_reduce_s(H100, collectives.group(H100, 8, 16), 4e9)
    assert 40e9 < 2 * 15 / 16 * 4e9 / seconds < 50e9


def test_whole_nodes_share_all_nics() -> None:
    """8 x 400G, 4 nodes and more: 320-386 GB/s of bus bandwidth measured (nccl#1221, CoreWeave,
    nccl-tests#283).
    """
    seconds = collectives.all_reduce_s(H100, collectives.group(H100, 1, 64), 16e9)
    assert 300e9 < 2 * 63 / 64 * 16e9 / seconds < 400e9


def test_nvlink_all_reduce_of_a_gigabyte() -> None:
    """H100 NVSwitch, 8 GPUs, 1 GB: 255 GB/s of buffer measured with NVLS (aiconfigurator-core
    0.12.0).
    """
    seconds = collectives.all_reduce_s(H100, collectives.group(H100, 1, 8), 1e9)
    assert 1e9 / seconds == pytest.approx(255e9, rel=0.1)


def test_more_bytes_and_more_nodes_never_cost_less() -> None:
    sizes = np.geomspace(1e3, 1e10, 30)
    for ranks in (2, 8, 64, 1024):
        times = collectives.gather_s(H100, collectives.group(H100, 1, ranks), sizes)
        assert (np.diff(times) > 0).all()
    across = [
        float(collectives.gather_s(H100, collectives.group(H100, 8, n), 1e8))
        for n in (2, 4, 64, 512)
    ]
    assert across == sorted(across)
