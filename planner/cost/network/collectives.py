"""How long a message or a collective takes, by the hop classes that its group spans."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from planner.layout import Numeric
from planner.specs.hardware import HardwareProfile, Link
from planner.units import GB, MICRO


@dataclass(frozen=True, slots=True)
class Group:
    """Ranks that talk: how many at one site, how many of them share an NVLink domain, a node (or
    rack), a pod of the network.
    """

    size: Numeric
    domain: Numeric
    node: Numeric
    pod: Numeric
    sites: Numeric = 1
    """Over which the group is spread evenly."""
    link_bytes_per_s: Numeric = np.inf
    """Its share of the link between sites, one direction."""

    @property
    def nodes(self) -> Numeric:
        return np.ceil(self.size / self.node)


def group(
    hardware: HardwareProfile, stride: Numeric, size: Numeric, sites: Numeric = 1, gpus: Numeric = 1
) -> Group:
    """The group of `size` ranks that lie `stride` apart, from a domain's first rank on; spread over
    sites, of `gpus` that share their link.

    Formula: members of a domain = clip(domain / stride, 1, size / sites); likewise for a node and a
             pod; of the link size / gpus
    Source:  [megatron-core] parallel_state: tp innermost, then cp, dp, pp
    Assumes: ranks fill domains, nodes and pods in order; every GPU is in one group that crosses,
             and all cross at once.
    """
    node, fabric = hardware.node, hardware.fabric
    link = fabric.site_gbytes_per_s * GB * size / gpus if fabric.sites > 1 else np.inf
    size = size / sites if fabric.sites > 1 else size
    in_domain = np.clip(node.domain_gpus // np.maximum(stride, 1), 1, size)
    in_node = np.clip(max(node.gpus, node.domain_gpus) // np.maximum(stride, 1), 1, size)
    in_pod = (
        np.clip(pod_gpus(hardware) // np.maximum(stride, 1), 1, size)
        if fabric.oversubscription > 1
        else size
    )
    return Group(
        size=size, domain=in_domain, node=in_node, pod=in_pod, sites=sites, link_bytes_per_s=link
    )


def pod_gpus(hardware: HardwareProfile) -> int:
    """GPUs that the network joins at full bandwidth: at least a node (or rack)."""
    node = hardware.node
    return max(hardware.fabric.pod_gpus or 0, node.gpus, node.domain_gpus)


def link_efficiency(link: Link, members: Numeric) -> Numeric:
    """Share of the link's bandwidth that a collective of so many members reaches, between measured
    sizes by their logarithm.
    """
    sizes, shares = _measured(tuple(sorted(link.efficiency.items())))
    return np.interp(np.log2(np.maximum(members, 1)), sizes, shares)


@cache
def _measured(efficiency: tuple[tuple[int, float], ...]) -> tuple[Numeric, Numeric]:
    """Logarithms of the measured sizes, and the shares reached."""
    sizes, shares = zip(*efficiency, strict=True)
    return np.log2(sizes), np.array(shares)


def bandwidth(hardware: HardwareProfile, members: Group) -> Numeric:
    """Bus bandwidth of a ring over the group, bytes a second.

    Formula: the slowest hop: NVLink inside a domain, PCIe inside a node, the members' NICs together
             across nodes, and across pods their share of a pod's uplinks, that of its NICs /
             oversubscription
    Source:  [nccl-tuning]; NIC rule of nccl-tests
    Assumes: large messages; each GPU drives its share of the NICs; all groups of a pod cross at
             once.
    """
    node, fabric = hardware.node, hardware.fabric
    inside = node.domain.bytes_per_s * link_efficiency(node.domain, members.domain)
    across = node.host.bytes_per_s * link_efficiency(node.host, members.node)
    wire = members.node * hardware.nic_bytes_per_s_per_gpu * fabric.efficiency_share
    if fabric.oversubscription > 1:
        share = members.pod / members.node / fabric.oversubscription
        wire = wire * np.where(members.size > members.pod, np.minimum(share, 1.0), 1.0)
    local = np.where(
        members.node > members.domain, across, np.where(members.domain > 1, inside, np.inf)
    )
    return np.where(
        members.nodes > 1, np.minimum(local, wire), np.where(np.isinf(local), inside, local)
    )


def ring_latency_s(hardware: HardwareProfile, members: Group) -> Numeric:
    """Latency of one turn of a ring.

    Formula: base + steps inside the domain * hop + between domains * hop + between nodes * hop
    Source:  [nccl-tuning]
    Assumes: one ring; base of the slowest class in use.
    """
    node, fabric = hardware.node, hardware.fabric
    nodes = members.nodes
    domains = np.ceil(members.size / members.domain)
    local = members.size - domains
    between = np.maximum(domains - nodes, 0)
    base = np.where(
        nodes > 1,
        fabric.base_us * MICRO,
        np.where(domains > nodes, node.host.base_s, node.domain.base_s),
    )
    hops = (
        local * node.domain.hop_s + between * node.host.hop_s + (nodes - 1) * fabric.hop_us * MICRO
    )
    return np.where(np.asarray(members.size) > 1, base + hops, 0.0)


def tree_latency_s(hardware: HardwareProfile, members: Group) -> Numeric:
    """Latency of a tree all-reduce: up and down the nodes by their logarithm, along the chain
    inside one.

    Formula: base + 2 ((members of a node - 1) hop + log2(nodes) level); a level takes a hop unless
             the fabric says otherwise
    Source:  [nccl-tuning]
    Assumes: a chain inside a node.
    """
    node, fabric = hardware.node, hardware.fabric
    inside = np.where(members.node > members.domain, node.host.hop_s, node.domain.hop_s)
    base = np.where(members.nodes > 1, fabric.base_us * MICRO, node.domain.base_s)
    level = fabric.hop_us if fabric.tree_us is None else fabric.tree_us
    return base + 2 * ((members.node - 1) * inside + np.log2(members.nodes) * level * MICRO)


def crossing_s(hardware: HardwareProfile, members: Group, size_bytes: Numeric) -> Numeric:
    """What a gather or a reduce-scatter of `size_bytes` adds between sites. 0 at one site.

    Formula: (S-1) latency + bytes (S-1)/S / the group's share of the link
    Source:  [patarasuk2009], a ring of sites of which each member carries its own shard
    Assumes: hierarchical: inside each site apart, and what a site lacks crosses once.
    """
    sites = members.sites
    if hardware.fabric.sites == 1:
        return 0.0
    return (sites - 1) * (
        hardware.fabric.site_latency_us * MICRO + size_bytes / sites / members.link_bytes_per_s
    )


def gather_s(hardware: HardwareProfile, members: Group, size_bytes: Numeric) -> Numeric:
    """All-gather to, or reduce-scatter of, a buffer of `size_bytes` (the full one). 0 when alone.

    Formula: latency + bytes (n-1)/n / bandwidth + crossing_s()
    Source:  [patarasuk2009]
    Assumes: a ring.
    """
    n = members.size
    inside = ring_latency_s(hardware, members) + size_bytes * (n - 1) / n / bandwidth(
        hardware, members
    )
    return inside + crossing_s(hardware, members, size_bytes)


def all_reduce_s(hardware: HardwareProfile, members: Group, size_bytes: Numeric) -> Numeric:
    """All-reduce of a buffer of `size_bytes`. 0 when alone.

    Formula: min(two ring turns, tree) latency + 2 bytes (n-1)/n / (bandwidth * in-switch gain) + 2
             crossing_s()
    Source:  [patarasuk2009], [nccl-tuning]
    Assumes: in-switch reduction only inside one domain.
    """
    n = members.size
    gain = np.where(members.domain == n, hardware.node.domain.all_reduce_gain, 1.0)
    latency = np.minimum(2 * ring_latency_s(hardware, members), tree_latency_s(hardware, members))
    moved = 2 * size_bytes * (n - 1) / n / (bandwidth(hardware, members) * gain)
    return np.where(np.asarray(n) > 1, latency + moved, 0.0) + 2 * crossing_s(
        hardware, members, size_bytes
    )


def send_s(
    hardware: HardwareProfile, stride: Numeric, ranks: Numeric, size_bytes: Numeric
) -> Numeric:
    """One message between ranks `stride` apart, of a chain of `ranks`: over the slowest hop that
    the chain has.

    Formula: base + bytes / bandwidth of one GPU on that hop, inside a node that of messages where
             it is known; between pods the ranks of a pod share its uplinks
    Source:  [nccl-tuning]
    Assumes: a GPU's own share of the NICs across nodes.
    """
    node, fabric = hardware.node, hardware.fabric
    reach = stride * ranks
    rate: Numeric = hardware.nic_bytes_per_s_per_gpu * fabric.efficiency_share
    if fabric.oversubscription > 1:
        pod = pod_gpus(hardware)
        share = np.clip(pod // np.maximum(stride, 1), 1, ranks) / fabric.oversubscription
        rate = rate * np.where(reach > pod, np.minimum(share, 1.0), 1.0)
    wire = fabric.base_us * MICRO + size_bytes / rate
    rates = (
        link.send_bytes_per_s or link.bytes_per_s * link_efficiency(link, 2)
        for link in (node.host, node.domain)
    )
    pcie, nvlink = (
        link.base_s + size_bytes / each
        for link, each in zip((node.host, node.domain), rates, strict=True)
    )
    inside = np.where(reach > node.domain_gpus, pcie, nvlink)
    return np.where(reach > max(node.gpus, node.domain_gpus), wire, inside)
