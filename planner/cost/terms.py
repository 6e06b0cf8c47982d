"""What the cost model returns: named terms with the unit in the name; totals add them."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from planner.layout import Numeric
from planner.units import GIB


def added(terms: Any) -> Numeric:
    """The sum of a dataclass's fields."""
    return sum(getattr(terms, f.name) for f in fields(terms))


ACCEPTED_OOM_PROBABILITY = 0.1
"""A layout fits below it: memory.rank_memory.oom_probability()."""


def _term(group: str, text: str, busy: bool = False) -> dict[str, Any]:
    """Metadata of a term of the step. group: terms that are wrong together when they are wrong, for
    the tuner; text: the term in words, for sentences; busy: part of a rank's work on its
    micro-batches, as opposed to what waits or follows.
    """
    return {"group": group, "text": text, "busy": busy}


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of a step on the critical path: m micro-batches on the slowest rank, then what waits
    and what follows.
    """

    gemm_s: Numeric = field(metadata=_term("compute", "matrix products", busy=True))
    """Matrix products of the layers, a vision tower's too, forward and backward, without
    recomputation.
    """
    attention_s: Numeric = field(metadata=_term("compute", "attention", busy=True))
    """Scores, softmax and values, or the scan of what stands in their place; the projections are
    matrix products.
    """
    elementwise_s: Numeric = field(metadata=_term("compute", "memory-bound operations", busy=True))
    """Memory-bound operations: norms, residuals, activation function, rotary embedding."""
    head_s: Numeric = field(metadata=_term("compute", "embedding, head and loss", busy=True))
    """Embedding, LM head and loss, where the slowest rank has them."""
    recompute_s: Numeric = field(metadata=_term("recomputation", "recomputation", busy=True))
    """Forward work that the backward pass repeats to save memory."""
    launch_s: Numeric = field(metadata=_term("host", "kernel launches by the CPU", busy=True))
    """What the CPU needs to launch kernels beyond the GPU's own time."""
    tp_comm_s: Numeric = field(
        metadata=_term("layer communication", "tensor-parallel communication", busy=True)
    )
    """Tensor-parallel communication that is not hidden."""
    cp_comm_s: Numeric = field(
        metadata=_term("layer communication", "context-parallel communication", busy=True)
    )
    """Keys and values around the context-parallel ring, where attention does not hide them."""
    ep_comm_s: Numeric = field(
        metadata=_term("layer communication", "expert communication", busy=True)
    )
    """Tokens to their experts and back."""
    overlap_tax_s: Numeric = field(
        metadata=_term("layer communication", "compute slowed by communication beside it")
    )
    """Compute that runs slower because NCCL runs beside it."""
    pp_comm_s: Numeric = field(metadata=_term("pipeline", "transfers between stages"))
    """Transfers between stages that are not hidden."""
    bubble_s: Numeric = field(metadata=_term("pipeline", "the pipeline bubble"))
    """Idle time of the slowest rank: fill, drain, waits for other stages."""
    dp_comm_s: Numeric = field(metadata=_term("replicas", "data-parallel communication"))
    """Gradient reduction and parameter gathering that are not hidden."""
    embedding_comm_s: Numeric = field(metadata=_term("replicas", "tied embedding gradients"))
    """All-reduce of tied embedding gradients between first and last stage."""
    optimizer_s: Numeric = field(metadata=_term("update", "the optimizer step"))
    """The update of the parameters: memory traffic over the shard of the states."""
    overhead_s: Numeric = field(metadata=_term("host", "host overhead"))
    """Host time of a step: data loading, loss and norm reductions."""
    straggler_s: Numeric = field(metadata=_term("replicas", "waiting for the slowest node"))
    """Waiting for the slowest node; grows with the number of nodes."""
    offload_s: Numeric = field(metadata=_term("update", "offload to the host"), default=0.0)
    """Gradients to the host, the update there, weights back; activations to the host and back, as
    far as compute does not hide that.
    """
    adapter_s: Numeric = field(
        metadata=_term("compute", "low-rank adapters", busy=True), default=0.0
    )
    """Low-rank adapters beside frozen linears, forward and backward."""

    @property
    def step_s(self) -> Numeric:
        return added(self)

    @property
    def busy_s(self) -> Numeric:
        """What the slowest rank works for all its micro-batches: m times one of them."""
        return sum(getattr(self, f.name) for f in fields(self) if f.metadata["busy"])

    @classmethod
    def texts(cls) -> dict[str, str]:
        """Each term in words."""
        return {f.name: f.metadata["text"] for f in fields(cls)}

    @classmethod
    def groups(cls) -> dict[str, tuple[str, ...]]:
        """The terms of each group; every term is in one."""
        groups: dict[str, tuple[str, ...]] = {}
        for f in fields(cls):
            group = f.metadata["group"]
            groups[group] = (*groups.get(group, ()), f.name)
        return groups


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of device memory on the worst stage."""

    weights_bytes: Numeric
    """Parameters as the forward pass reads them."""
    gradients_bytes: Numeric
    """Main gradients, accumulated over micro-batches."""
    optimizer_bytes: Numeric
    """Master weights and moments, over the sharding group."""
    activations_bytes: Numeric
    """Kept between forward and backward, of all micro-batches in flight."""
    working_bytes: Numeric
    """The peak inside one micro-batch beyond what is kept: logits, loss, temporaries,
    recomputation's working set.
    """
    buffers_bytes: Numeric
    """Communication and gather buckets that the allocator holds."""
    fragmentation_bytes: Numeric
    """Reserved by the allocator beyond what is allocated."""
    context_bytes: Numeric
    """CUDA context and libraries."""
    nccl_bytes: Numeric
    """Buffers of the communicators."""

    @property
    def allocated_bytes(self) -> Numeric:
        return (
            self.weights_bytes
            + self.gradients_bytes
            + self.optimizer_bytes
            + self.activations_bytes
            + self.working_bytes
            + self.buffers_bytes
        )

    @property
    def reserved_bytes(self) -> Numeric:
        return self.allocated_bytes + self.fragmentation_bytes

    @property
    def device_bytes(self) -> Numeric:
        return added(self)


@dataclass(frozen=True, slots=True)
class P2P:
    """Activation tensors between pipeline stages in one step, both ways, of one pipeline rank's tp
    slice.
    """

    tensors_per_step: Numeric
    """Of one pipeline."""
    bytes_per_tensor: Numeric
    bytes_per_link_per_step: Numeric
    """Over the link between two neighbouring ranks, one direction."""
    bytes_per_step: Numeric


@dataclass(frozen=True, slots=True)
class Stage:
    """One pipeline rank of one layout (all its virtual stages together); times per micro-batch."""

    stage: int
    layers: int
    params: int
    """Parameters on one tp rank."""
    memory_bytes: float
    forward_s: float
    backward_s: float
    in_flight: float
    """Activations held at the peak, in whole stages."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What the cost model says of a layout, or of columns of them (then stages is empty)."""

    time: StepTime
    memory: Memory
    p2p: P2P
    model_flops: Numeric
    """Of a step, all GPUs: 6 per parameter and token plus causal attention, no recomputation."""
    model_flops_full_attention: Numeric
    step_s: Numeric
    step_s_low: Numeric
    step_s_high: Numeric
    tokens_per_s_per_gpu: Numeric
    model_tflops_per_gpu: Numeric
    mfu: Numeric
    mfu_full_attention: Numeric
    bubble_share: Numeric
    memory_bytes: Numeric
    memory_limit_bytes: Numeric
    oom_probability: Numeric
    host_bytes: Numeric = 0.0
    """Host memory of one node that offloaded states and activations take."""
    host_limit_bytes: Numeric = float("inf")
    used_share: float = 1.0
    """Of the tokens of a step those that are no padding."""
    stages: tuple[Stage, ...] = ()
    assumed: tuple[str, ...] = ()

    @property
    def memory_gib(self) -> Numeric:
        """As JSON names it."""
        return self.memory_bytes / GIB

    @property
    def host_memory_gib(self) -> Numeric:
        return self.host_bytes / GIB

    @property
    def fits(self) -> Numeric:
        on_device = self.oom_probability < ACCEPTED_OOM_PROBABILITY
        return on_device & (self.host_bytes <= self.host_limit_bytes)
