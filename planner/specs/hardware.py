"""HardwareProfile: GPU + node + fabric. Human units in the document, SI in the properties."""

from __future__ import annotations

from typing import Annotated

from pydantic import (
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from planner.specs.documents import FrozenDocument
from planner.units import GB, GIB, MICRO, TERA

Share = Annotated[float, Field(gt=0, le=2)]
"""A fraction of 1: 80 for 80% is caught. Some may pass 1 a little: a gain, an efficiency over a
cautious peak.
"""

AMPERE = 8.0
"""Compute capability from which on there are bf16, flash attention and grouped GEMMs."""


class GemmRates(FrozenDocument):
    """t = fixed + 2mnk / (peak * efficiency) * (1 + k_half/k) * (1 + m_half/m) * (1 + n_half/n)."""

    efficiency: Share
    k_half: NonNegativeFloat
    m_half: NonNegativeFloat
    n_half: NonNegativeFloat
    fixed_us: NonNegativeFloat
    median_error_share: NonNegativeFloat | None = None
    source: str


class AttentionRates(FrozenDocument):
    """Causal forward: t = fixed + 2 b a s^2 d / (peak * efficiency) * (1 + seq_half/s) * (1 +
    heads_half/(b a)).

    Backward: 2.5 times the FLOPs at backward_share of the forward's rate.
    """

    efficiency: Share
    seq_half: NonNegativeFloat
    heads_half: NonNegativeFloat
    fixed_us: NonNegativeFloat
    backward_share: Share = 0.8
    median_error_share: NonNegativeFloat | None = None
    source: str


class Gpu(FrozenDocument):
    """One accelerator. Peaks are dense; vendors like to print sparse ones."""

    name: str
    vendor: str
    architecture: str
    compute_capability: NonNegativeFloat
    memory_gib: PositiveFloat
    """What the driver reports as total."""
    usable_gib: PositiveFloat
    """What CUDA can give out: the driver's total less its reserve."""
    hbm_gbytes_per_s: PositiveFloat
    peak_tflops: dict[str, PositiveFloat]
    """Dense peak by precision: fp32, tf32, fp16, bf16, fp8, fp4."""
    tdp_w: PositiveFloat
    source: str

    @property
    def usable_bytes(self) -> float:
        return self.usable_gib * GIB

    @property
    def hbm_bytes_per_s(self) -> float:
        return self.hbm_gbytes_per_s * GB

    def peak_flops_per_s(self, precision: str) -> float:
        return self.peak_tflops[precision] * TERA


class Kernels(FrozenDocument):
    """Rates of kernels, fitted to measurements; where there are none, the nearest relative's and
    `assumed` says so.
    """

    gemm: dict[str, GemmRates]
    """By precision of the operands: bf16 (also used for fp16), fp32, fp8, fp8-block, fp4, as far as
    measured.
    """
    attention: AttentionRates
    memory_efficiency_share: Share
    """Of HBM bandwidth that a memory-bound kernel reaches."""
    sustained_share: Share
    """Speed of long training runs over short cool benchmarks: clocks under power limits, cache
    misses.
    """
    attention_sustained_share: Share | None = None
    """The same for attention, which draws less power than matrix products; as theirs when not
    given.
    """
    assumed: str = ""
    """Not empty: what was not measured on this GPU, and whose rates stand in."""
    source: str


class Link(FrozenDocument):
    """A hop class. Bandwidth is per GPU, one direction."""

    gbytes_per_s: PositiveFloat
    efficiency: Annotated[dict[PositiveInt, Share], Field(min_length=1)]
    """Bus bandwidth of a large collective over gbytes_per_s, by members of the group on this hop
    class.
    """
    base_us: NonNegativeFloat
    """Latency of any collective or message."""
    hop_us: NonNegativeFloat
    """Latency of each further step of a ring."""
    all_reduce_gain: Share = 1.0
    """In-switch reduction (NVLS): all-reduce bus bandwidth over that of all-gather."""
    send_gbytes_per_s: PositiveFloat | None = None
    """What one message between two reaches, where it is not what a collective of two does (gloo).
    """
    source: str

    @property
    def bytes_per_s(self) -> float:
        return self.gbytes_per_s * GB

    @property
    def send_bytes_per_s(self) -> float | None:
        return self.send_gbytes_per_s and self.send_gbytes_per_s * GB

    @property
    def base_s(self) -> float:
        return self.base_us * MICRO

    @property
    def hop_s(self) -> float:
        return self.hop_us * MICRO


class Node(FrozenDocument):
    """One host."""

    gpus: PositiveInt
    domain_gpus: PositiveInt
    """GPUs that reach each other over NVLink (or its like): 8 in an HGX box, 72 in an NVL72, 1
    without.
    """
    domain: Link
    """Inside the NVLink domain."""
    host: Link
    """Inside the node, between domains: PCIe."""
    host_memory_gib: PositiveFloat
    pcie_gbytes_per_s: PositiveFloat
    """GPU to host memory, one direction."""
    nvme_gbytes_per_s: NonNegativeFloat = 0.0
    """Reads of a node's own NVMe drives together; 0 = none, or not stated."""
    launch_factor: PositiveFloat = 1.0
    """CPU time to launch a kernel over that of an x86 server."""
    source: str


class Proxy(FrozenDocument):
    """A library whose CPU threads start the transfers that GPUs ask for."""

    exchange_us: NonNegativeFloat
    """One dispatch, or one combine, of a few tokens between nodes."""
    token_us: NonNegativeFloat
    """More for each token and node that it is sent to."""
    source: str


class Fabric(FrozenDocument):
    """The network between nodes."""

    nics: PositiveInt
    nic_gbytes_per_s: PositiveFloat
    """One NIC, one direction."""
    efficiency_share: Share
    """Large-message share of line rate."""
    base_us: NonNegativeFloat
    hop_us: NonNegativeFloat
    """Latency of each further node of a ring."""
    tree_us: NonNegativeFloat | None = None
    """Latency of each level of a tree of nodes, where it is not hop_us."""
    straggler_share: NonNegativeFloat = 0.0
    """Slowdown of a step per doubling of the number of nodes."""
    proxies: dict[str, Proxy] = Field(default_factory=dict)
    """Where GPUs cannot ring the NICs themselves (EFA has no IBGDA): how DeepEP's transfers fare,
    by the library that starts them (nvshmem, uccl); empty: GPUs start them.
    """
    pod_gpus: PositiveInt | None = None
    """GPUs among which the network has full bandwidth: below one set of leaf switches, or one
    aggregation pod; None: all.
    """
    oversubscription: Annotated[float, Field(ge=1)] = 1.0
    """Bandwidth of a pod's NICs over that of its uplinks: 7 for 1:7."""
    sites: PositiveInt = 1
    """Datacentres over which a run is spread evenly."""
    site_gbytes_per_s: NonNegativeFloat = 0.0
    """What one site sends to the next over the link between them, all GPUs together, one direction.
    """
    site_latency_us: NonNegativeFloat = 0.0
    """One way between sites: 5 us a kilometre of fibre, and what stands in it."""
    source: str

    @model_validator(mode="after")
    def _whole(self) -> Fabric:
        if self.oversubscription > 1 and self.pod_gpus is None:
            raise ValueError(
                "pod_gpus must be stated with an oversubscription, but got"
                f" {self.oversubscription:g} and none"
            )
        if self.sites > 1 and not self.site_gbytes_per_s:
            raise ValueError(
                f"site_gbytes_per_s must be above 0 between sites, but got {self.sites} sites and 0"
            )
        return self


class HardwareProfile(FrozenDocument):
    """A machine type: what the command line calls a cluster."""

    name: str
    aliases: tuple[str, ...] = ()
    gpu: Gpu
    kernels: Kernels
    node: Node
    fabric: Fabric
    price_usd_per_gpu_hour: NonNegativeFloat | None = None
    price_source: str = ""
    """Whose list price that is, and of which day."""
    max_gpus: PositiveInt | None = Field(default=None)
    note: str = ""

    @model_validator(mode="after")
    def _needed_rates(self) -> HardwareProfile:
        missing = [
            f"gpu.peak_tflops.{key}" for key in ("fp32", "fp16") if key not in self.gpu.peak_tflops
        ]
        missing += [] if "bf16" in self.kernels.gemm else ["kernels.gemm.bf16"]
        if missing:
            raise ValueError(f"{' and '.join(missing)} must be there, but got none")
        if self.gpu.usable_gib > self.gpu.memory_gib:
            raise ValueError(
                f"gpu.usable_gib must be at most gpu.memory_gib, but got {self.gpu.usable_gib:g} of"
                f" {self.gpu.memory_gib:g}"
            )
        return self

    @model_validator(mode="after")
    def _whole_domains(self) -> HardwareProfile:
        if self.node.gpus % self.node.domain_gpus and self.node.domain_gpus % self.node.gpus:
            got = f"{self.node.gpus} and {self.node.domain_gpus}"
            raise ValueError(
                f"node.gpus and node.domain_gpus must divide one another, but got {got}"
            )
        return self

    @property
    def nic_bytes_per_s_per_gpu(self) -> float:
        """Line rate of a GPU's share of the NICs."""
        return self.fabric.nics * self.fabric.nic_gbytes_per_s * GB / self.node.gpus
