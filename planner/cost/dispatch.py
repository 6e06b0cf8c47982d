"""Tokens on their way to experts and back: what one exchange over the ranks of expert parallelism takes."""

from __future__ import annotations

import numpy as np

from planner.cost import collectives
from planner.cost.kernels import is_low
from planner.cost.products import outside
from planner.layout import Layout, Numeric
from planner.specs.model import Moe
from planner.specs.recipe import Recipe
from planner.units import MICRO


def reached_nodes(moe: Moe, domains: Numeric) -> Numeric:
    """NVLink domains that the experts of one token lie in.

    Formula: N (1 - (1 - 1/N)^k), N the domains that router groups leave: domains * groups_per_token / router_groups, at least 1
    Source:  [deepseek2024] sec. 2.1.2, node-limited routing; [deepep]
    Assumes: balanced routing, experts chosen independently.
    """
    limited = moe.groups_per_token / moe.router_groups if moe.router_groups else 1.0
    reached = np.maximum(domains * limited, 1.0)
    return reached * (1 - (1 - 1 / reached) ** moe.experts_per_token)


def exchange_s(recipe: Recipe, layout: Layout, moe: Moe, own_tokens: Numeric, element_bytes: float) -> Numeric:
    """One dispatch, or one combine, of a rank's own tokens. 0 when alone.

    Formula: latency + max over hop classes of bytes / bandwidth; copies T k h bytes, of which (domain-1)/ep stay on NVLink, the rest on
             PCIe or over the GPU's own NIC; DeepEP and HybridEP send a token once to each domain: T h bytes reached_nodes (N-1)/N
    Source:  [nccl-tuning] all-to-all by pairs: N/(N-1) of the NIC's rate; [deepep]
    Assumes: hop classes work side by side; balanced routing.
    """
    hardware, node = recipe.hardware, recipe.hardware.node
    members = collectives.group(hardware, layout.etp, layout.ep)
    copies = own_tokens * moe.experts_per_token * recipe.model.hidden_size * element_bytes
    size = members.size
    once = recipe.stack.experts.dispatcher != "alltoall"
    domains = np.ceil(size / members.domain)
    sent = own_tokens * recipe.model.hidden_size * element_bytes * reached_nodes(moe, domains) * (domains - 1) / domains
    wire_share, host_share = (size - members.node) / size, (members.node - members.domain) / size
    wire_bytes = np.where(members.nodes > 1, sent, 0.0) if once else copies * wire_share
    wire = wire_bytes / (hardware.nic_bytes_per_s_per_gpu * hardware.fabric.efficiency_share)
    near = copies * ((size - 1) / size if once else (members.domain - 1) / size)
    link = near / (node.domain.bytes_per_s * collectives.link_efficiency(node.domain, np.maximum(members.domain, 2)))
    host = copies * host_share / (node.host.bytes_per_s * collectives.link_efficiency(node.host, members.node))
    alone = np.where(members.nodes > 1, hardware.fabric.base_us * MICRO, node.domain.base_s)
    latency = alone if once else collectives.ring_latency_s(hardware, members)
    slowest = np.maximum(np.maximum(link * (members.domain > 1), host), wire)
    return np.where(np.asarray(size) > 1, latency + slowest / recipe.stack.experts.bandwidth_share, 0.0)


def exchanges_s(recipe: Recipe, layout: Layout, moe: Moe, count: Numeric) -> tuple[Numeric, Numeric]:
    """Dispatch and combine forward, and their mirror images backward, with what expert tensor parallelism gathers and scatters.

    Formula: forward dispatch (1 byte an element where it is quantized) + combine, backward two in 16 bits;
             + all-gather and reduce-scatter over etp of 2 bytes of its ranks' tokens, each way
    Source:  [megatron-core] MoEAlltoAllTokenDispatcher, _DeepepManager; [deepseek2024] sec. 3.3.3
    Assumes: balanced routing times the stack's imbalance.
    """
    software = recipe.stack.experts
    own = count / outside(layout)
    wide = exchange_s(recipe, layout, moe, own, 2.0)
    narrow = software.quantized_dispatch and is_low(recipe.precision)
    first = exchange_s(recipe, layout, moe, own, 1.0) if narrow else wide
    split = collectives.group(recipe.hardware, 1, layout.etp)
    gathered = own * moe.experts_per_token * layout.etp * recipe.model.hidden_size * 2.0
    over_etp = 2 * collectives.gather_s(recipe.hardware, split, gathered)
    return (first + wide + over_etp) * software.imbalance, (2 * wide + over_etp) * software.imbalance
