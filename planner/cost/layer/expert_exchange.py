"""Tokens on their way to experts and back: what one exchange over the ranks of expert parallelism
takes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.cost.layer.gemms import outside
from planner.cost.layer.kernels import is_low
from planner.cost.network import collectives
from planner.layout import Layouts, Numeric
from planner.specs.dispatcher import dispatchers
from planner.specs.hardware import HardwareProfile
from planner.specs.model import Moe
from planner.specs.recipe import Recipe
from planner.units import GB, MICRO


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


@dataclass(frozen=True, slots=True)
class Exchange:
    """Seconds of one dispatch and of one combine."""

    dispatch_s: Numeric
    combine_s: Numeric


def exchange(
    recipe: Recipe, layout: Layouts, moe: Moe, own_tokens: Numeric, element_bytes: float
) -> Exchange:
    """Dispatch and combine of a rank's own tokens, by the software's dispatcher. 0 when alone.

    Formula: allgather_s(), alltoall_s(), or once_s() at the library's rates
    Source:  planner.specs.dispatcher
    Assumes: balanced routing.
    """
    name, hardware = recipe.software.experts.dispatcher, recipe.hardware
    token_bytes = own_tokens * moe.width(recipe.model.hidden_size) * element_bytes
    if name == "allgather":
        both = allgather_s(hardware, layout, token_bytes)
        return Exchange(both, both)
    members = collectives.group(hardware, layout.etp, layout.ep)
    if name == "alltoall":
        both = alltoall_s(hardware, members, token_bytes * moe.experts_per_token)
        return Exchange(both, both)
    library = dispatchers()[name]
    rack = members.domain > hardware.node.gpus
    dispatch, combine = (
        np.where(rack & (of_rack > 0), of_rack, of_node)
        for of_rack, of_node in (
            (library.rack_dispatch_gbytes_per_s, library.dispatch_gbytes_per_s),
            (library.rack_combine_gbytes_per_s, library.combine_gbytes_per_s),
        )
    )
    return Exchange(
        once_s(recipe, members, moe, own_tokens, token_bytes, dispatch, library.wire_share),
        once_s(recipe, members, moe, own_tokens, token_bytes, combine, library.wire_share),
    )


def allgather_s(hardware: HardwareProfile, layout: Layouts, token_bytes: Numeric) -> Numeric:
    """Every token to every rank of ep x etp; combine scatters the sums back.

    Formula: gather_s() of all ranks' tokens
    Source:  [megatron-core] MoEAllGatherTokenDispatcher
    Assumes: the ranks of ep x etp lie side by side.
    """
    ranks = layout.ep * layout.etp
    members = collectives.group(hardware, 1, ranks)
    return collectives.gather_s(hardware, members, token_bytes * ranks)


def alltoall_s(
    hardware: HardwareProfile, members: collectives.Group, copies_bytes: Numeric
) -> Numeric:
    """Every copy of a token to the rank of its expert, over NCCL.

    Formula: latency of one message + max over hop classes of bytes / bandwidth; of the copies
             (domain - 1) / ep stay on NVLink, the rest on PCIe or over the GPU's own NIC, what
             leaves a pod over its part of the uplinks
    Source:  [nccl-tuning] all-to-all by pairs: N/(N-1) of the NIC's rate
    Assumes: hop classes work side by side; messages to all peers are on their way at once.
    """
    node, size = hardware.node, 1.0 * members.size
    link = copies_bytes * (members.domain - 1) / size / link_rate(hardware, members)
    host = copies_bytes * (members.node - members.domain) / size
    host = host / (node.host.bytes_per_s * collectives.link_efficiency(node.host, members.node))
    wire = wire_s(hardware, members, copies_bytes * (size - members.node) / size)
    slowest = np.maximum(np.maximum(link, host), wire)
    return np.where(size > 1, first_latency_s(hardware, members) + slowest, 0.0)


def once_s(
    recipe: Recipe,
    members: collectives.Group,
    moe: Moe,
    own_tokens: Numeric,
    token_bytes: Numeric,
    kernel_gbytes_per_s: Numeric,
    wire_share: float,
) -> Numeric:
    """A token once to each NVLink domain and, inside it, once to each rank that it reaches: DeepEP
    and HybridEP.

    Formula: latency + max(T h bytes reached ranks / min(link, kernels' rate), T h bytes reached
             domains (N-1)/N / (NIC wire_share)); through proxies at least exchange_us + tokens
             times other nodes reached token_us
    Source:  [deepep]; rates as the libraries' own tests count them: received bytes, a rank's own
             among them
    Assumes: hop classes work side by side; through proxies a message a token, as in the
             low-latency kernels.
    """
    hardware, size = recipe.hardware, 1.0 * members.size
    domains = np.ceil(size / members.domain)
    received = token_bytes * reached(moe, size)
    kernels = np.where(kernel_gbytes_per_s > 0, kernel_gbytes_per_s * GB, np.inf)
    near = np.maximum(
        received * (size - 1) / size / link_rate(hardware, members), received / kernels
    )
    others = reached(moe, domains) * (domains - 1) / domains
    far = wire_s(hardware, members, token_bytes * others) / wire_share
    across = members.nodes > 1
    latency = first_latency_s(hardware, members)
    slowest = np.maximum(near * (members.domain > 1), np.where(across, far, 0.0))
    seconds = latency + slowest
    proxy = hardware.fabric.proxies.get(recipe.software.experts.proxy)
    if proxy is not None:
        posted = (proxy.exchange_us + own_tokens * others * proxy.token_us) * MICRO
        seconds = np.where(across, np.maximum(seconds, posted), seconds)
    return np.where(size > 1, seconds, 0.0)


def link_rate(hardware: HardwareProfile, members: collectives.Group) -> Numeric:
    """Bytes a second over NVLink that collectives of the members of one domain reach."""
    domain = hardware.node.domain
    return domain.bytes_per_s * collectives.link_efficiency(domain, np.maximum(members.domain, 2))


def wire_s(hardware: HardwareProfile, members: collectives.Group, size_bytes: Numeric) -> Numeric:
    """Bytes between nodes over a GPU's own share of the NICs; what leaves a pod over its part of
    the uplinks.
    """
    size, fabric = 1.0 * members.size, hardware.fabric
    seconds = size_bytes / (hardware.nic_bytes_per_s_per_gpu * fabric.efficiency_share)
    leaving = (size - members.pod) / np.maximum(size - members.node, 1.0)
    return seconds * np.maximum(leaving * fabric.oversubscription, 1.0)


def first_latency_s(hardware: HardwareProfile, members: collectives.Group) -> Numeric:
    """Latency of one message over the slowest hop class of the group."""
    return np.where(members.nodes > 1, hardware.fabric.base_us * MICRO, hardware.node.domain.base_s)


def exchanges_s(
    recipe: Recipe, layout: Layouts, moe: Moe, count: Numeric
) -> tuple[Numeric, Numeric]:
    """Dispatch and combine forward, and their mirror images backward, with what expert tensor
    parallelism gathers and scatters.

    Formula: forward dispatch (1 byte an element where it is quantized) + combine; backward, in 16
             bits, a combine's gradient is dispatched and a dispatch's combined; + all-gather and
             reduce-scatter over etp of 2 bytes of its ranks' tokens, each way
    Source:  [megatron-core] MoEAlltoAllTokenDispatcher, _DeepepManager; [deepseek2024] sec. 3.3.3
    Assumes: balanced routing times the software's load.
    """
    experts = recipe.software.experts
    own = count / outside(layout)
    wide = exchange(recipe, layout, moe, own, 2.0)
    narrow = experts.quantized_dispatch and is_low(recipe.precision)
    first = exchange(recipe, layout, moe, own, 1.0).dispatch_s if narrow else wide.dispatch_s
    over_etp: Numeric = 0.0
    if experts.dispatcher != "allgather":
        split = collectives.group(recipe.hardware, 1, layout.etp)
        gathered = (
            own * moe.experts_per_token * layout.etp * moe.width(recipe.model.hidden_size) * 2.0
        )
        over_etp = 2 * collectives.gather_s(recipe.hardware, split, gathered)
    forward = first + wide.combine_s + over_etp
    backward = wide.dispatch_s + wide.combine_s + over_etp
    return forward * experts.load, backward * experts.load
