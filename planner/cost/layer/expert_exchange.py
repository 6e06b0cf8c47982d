"""Tokens on their way to experts and back: what one exchange over the ranks of expert parallelism
takes.
"""

from __future__ import annotations

import numpy as np

from planner.cost.layer.gemms import outside
from planner.cost.layer.kernels import is_low
from planner.cost.network import collectives
from planner.layout import Layouts, Numeric
from planner.specs.model import Moe
from planner.specs.recipe import Recipe
from planner.units import MICRO


def reached(moe: Moe, places: Numeric) -> Numeric:
    """How many of so many places, over which the experts lie evenly, hold experts of one token.

    Formula: N (1 - (1 - 1/N)^k); with G router groups of which a token uses g: up to N = G places
             N (1 - prod over i < g of (G - G/N - i) / (G - i)), beyond it the first form over N g /
             G places
    Source:  [deepseek2024] sec. 2.1.2, node-limited routing
    Assumes: balanced routing, experts chosen independently.
    """
    k, every, used = moe.experts_per_token, moe.router_groups, moe.groups_per_token
    limited = used / every if every else 1.0
    pool = np.maximum(places * limited, 1.0)
    free = pool * (1 - (1 - 1 / pool) ** k)
    if not every:
        return free
    missed: Numeric = 1.0
    for i in range(used):
        missed = missed * np.maximum(every - every / places - i, 0.0) / (every - i)
    return np.where(places <= every, places * (1 - missed), free)


def exchange_s(
    recipe: Recipe, layout: Layouts, moe: Moe, own_tokens: Numeric, element_bytes: float
) -> Numeric:
    """One dispatch, or one combine, of a rank's own tokens. 0 when alone.

    Formula: latency + max over hop classes of bytes / bandwidth; copies T k h bytes, of which
             (domain-1)/ep stay on NVLink, the rest on PCIe or over the GPU's own NIC, what leaves a
             pod over its part of the uplinks; DeepEP and HybridEP send a token once to each domain
             and each rank that it reaches: T h bytes reached (N-1)/N
    Source:  [nccl-tuning] all-to-all by pairs: N/(N-1) of the NIC's rate; [deepep]
    Assumes: hop classes work side by side; balanced routing.
    """
    hardware, node = recipe.hardware, recipe.hardware.node
    members = collectives.group(hardware, layout.etp, layout.ep)
    token_bytes, size = own_tokens * recipe.model.hidden_size * element_bytes, 1.0 * members.size
    once = recipe.software.experts.dispatcher != "alltoall"
    domains = np.ceil(size / members.domain)
    copies = token_bytes * (reached(moe, size) if once else moe.experts_per_token)
    sent = token_bytes * reached(moe, domains) * (domains - 1) / domains
    wire_share, host_share = (size - members.node) / size, (members.node - members.domain) / size
    wire_bytes = np.where(members.nodes > 1, sent, 0.0) if once else copies * wire_share
    wire = wire_bytes / (hardware.nic_bytes_per_s_per_gpu * hardware.fabric.efficiency_share)
    leaving = (size - members.pod) / np.maximum(size - members.node, 1.0)
    wire = wire * np.maximum(leaving * hardware.fabric.oversubscription, 1.0)
    near = copies * ((size - 1) / size if once else (members.domain - 1) / size)
    link = near / (
        node.domain.bytes_per_s
        * collectives.link_efficiency(node.domain, np.maximum(members.domain, 2))
    )
    host = (
        copies
        * host_share
        / (node.host.bytes_per_s * collectives.link_efficiency(node.host, members.node))
    )
    alone = np.where(members.nodes > 1, hardware.fabric.base_us * MICRO, node.domain.base_s)
    latency = alone if once else collectives.ring_latency_s(hardware, members)
    slowest = np.maximum(np.maximum(link * (members.domain > 1), host), wire)
    return np.where(
        np.asarray(size) > 1, latency + slowest / recipe.software.experts.bandwidth_share, 0.0
    )


def exchanges_s(
    recipe: Recipe, layout: Layouts, moe: Moe, count: Numeric
) -> tuple[Numeric, Numeric]:
    """Dispatch and combine forward, and their mirror images backward, with what expert tensor
    parallelism gathers and scatters.

    Formula: forward dispatch (1 byte an element where it is quantized) + combine, backward two in
             16 bits; + all-gather and reduce-scatter over etp of 2 bytes of its ranks' tokens, each
             way
    Source:  [megatron-core] MoEAlltoAllTokenDispatcher, _DeepepManager; [deepseek2024] sec. 3.3.3
    Assumes: balanced routing times the software's imbalance.
    """
    experts = recipe.software.experts
    own = count / outside(layout)
    wide = exchange_s(recipe, layout, moe, own, 2.0)
    narrow = experts.quantized_dispatch and is_low(recipe.precision)
    first = exchange_s(recipe, layout, moe, own, 1.0) if narrow else wide
    split = collectives.group(recipe.hardware, 1, layout.etp)
    gathered = own * moe.experts_per_token * layout.etp * recipe.model.hidden_size * 2.0
    over_etp = 2 * collectives.gather_s(recipe.hardware, split, gathered)
    return (first + wide + over_etp) * experts.imbalance, (2 * wide + over_etp) * experts.imbalance
