"""How long a message or a collective takes, by the hop classes that its group spans."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.layout import Numeric
from planner.specs.hardware import HardwareProfile, Link
from planner.units import GB, MICRO


@dataclass(frozen=True, slots=True)
class Group:
    """Ranks that talk: how many, how many of them share an NVLink domain, how many share a node (or rack)."""

    size: Numeric
    domain: Numeric
    node: Numeric

    @property
    def nodes(self) -> Numeric:
        return np.ceil(self.size / self.node)


def group(hardware: HardwareProfile, stride: Numeric, size: Numeric) -> Group:
    """The group of `size` ranks that lie `stride` apart, from a domain's first rank on.

    Formula: members of a domain = clip(domain / stride, 1, size); likewise for a node
    Source:  [megatron-core] parallel_state: tp innermost, then cp, dp, pp
    Assumes: ranks fill domains and nodes in order.
    """
    node = hardware.node
    in_domain = np.clip(node.domain_gpus // np.maximum(stride, 1), 1, size)
    in_node = np.clip(max(node.gpus, node.domain_gpus) // np.maximum(stride, 1), 1, size)
    return Group(size=size, domain=in_domain, node=in_node)


def link_efficiency(link: Link, members: Numeric) -> Numeric:
    """Share of the link's bandwidth that a collective of so many members reaches, between measured sizes by their logarithm."""
    sizes = sorted(link.efficiency)
    return np.interp(np.log2(np.maximum(members, 1)), np.log2(sizes), [link.efficiency[n] for n in sizes])


def bandwidth(hardware: HardwareProfile, members: Group) -> Numeric:
    """Bus bandwidth of a ring over the group, bytes a second.

    Formula: the slowest hop: NVLink inside a domain, PCIe inside a node, the members' NICs together across nodes
    Source:  [nccl-tuning]; NIC rule of nccl-tests
    Assumes: large messages; each GPU drives its share of the NICs.
    """
    node, fabric = hardware.node, hardware.fabric
    inside = node.domain.bytes_per_s * link_efficiency(node.domain, members.domain)
    across = node.host.bytes_per_s * link_efficiency(node.host, members.node)
    wire = members.node * hardware.nic_bytes_per_s_per_gpu * fabric.efficiency_share
    local = np.where(members.node > members.domain, across, np.where(members.domain > 1, inside, np.inf))
    return np.where(members.nodes > 1, np.minimum(local, wire), np.where(np.isinf(local), inside, local))


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
    base = np.where(nodes > 1, fabric.base_us * MICRO, np.where(domains > nodes, node.host.base_s, node.domain.base_s))
    hops = local * node.domain.hop_s + between * node.host.hop_s + (nodes - 1) * fabric.hop_us * MICRO
    return np.where(np.asarray(members.size) > 1, base + hops, 0.0)


def tree_latency_s(hardware: HardwareProfile, members: Group) -> Numeric:
    """Latency of a tree all-reduce: up and down the nodes by their logarithm, along the chain inside one.

    Formula: base + 2 ((members of a node - 1) hop + log2(nodes) level); a level takes a hop unless the fabric says otherwise
    Source:  [nccl-tuning]
    Assumes: a chain inside a node.
    """
    node, fabric = hardware.node, hardware.fabric
    inside = np.where(members.node > members.domain, node.host.hop_s, node.domain.hop_s)
    base = np.where(members.nodes > 1, fabric.base_us * MICRO, node.domain.base_s)
    level = fabric.hop_us if fabric.tree_us is None else fabric.tree_us
    return base + 2 * ((members.node - 1) * inside + np.log2(members.nodes) * level * MICRO)


def gather_s(hardware: HardwareProfile, members: Group, size_bytes: Numeric) -> Numeric:
    """All-gather to, or reduce-scatter of, a buffer of `size_bytes` (the full one). 0 when alone.

    Formula: latency + bytes (n-1)/n / bandwidth
    Source:  [patarasuk2009]
    Assumes: a ring.
    """
    n = members.size
    return ring_latency_s(hardware, members) + size_bytes * (n - 1) / n / bandwidth(hardware, members)


def all_reduce_s(hardware: HardwareProfile, members: Group, size_bytes: Numeric) -> Numeric:
    """All-reduce of a buffer of `size_bytes`. 0 when alone.

    Formula: min(two ring turns, tree) latency + 2 bytes (n-1)/n / (bandwidth * in-switch gain)
    Source:  [patarasuk2009], [nccl-tuning]
    Assumes: in-switch reduction only inside one domain.
    """
    n = members.size
    gain = np.where(members.domain == n, hardware.node.domain.all_reduce_gain, 1.0)
    latency = np.minimum(2 * ring_latency_s(hardware, members), tree_latency_s(hardware, members))
    moved = 2 * size_bytes * (n - 1) / n / (bandwidth(hardware, members) * gain)
    return np.where(np.asarray(n) > 1, latency + moved, 0.0)


def send_s(hardware: HardwareProfile, stride: Numeric, ranks: Numeric, size_bytes: Numeric) -> Numeric:
    """One message between ranks `stride` apart, of a chain of `ranks`: over the slowest hop that the chain has.

    Formula: base + bytes / bandwidth of one GPU on that hop
    Source:  [nccl-tuning]
    Assumes: a GPU's own share of the NICs across nodes.
    """
    node, fabric = hardware.node, hardware.fabric
    reach = stride * ranks
    wire = fabric.base_us * MICRO + size_bytes / (hardware.nic_bytes_per_s_per_gpu * fabric.efficiency_share)
    pcie = node.host.base_s + size_bytes / (node.host.bytes_per_s * link_efficiency(node.host, 2))
    nvlink = node.domain.base_s + size_bytes / (node.domain.gbytes_per_s * GB * link_efficiency(node.domain, 2))
    inside = np.where(reach > node.domain_gpus, pcie, nvlink)
    return np.where(reach > max(node.gpus, node.domain_gpus), wire, inside)
