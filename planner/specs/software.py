"""What a training software does with the hardware, in groups of figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self, TypeVar

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from planner.specs.documents import FrozenDocument
from planner.specs.routing import kept_share

Document = TypeVar("Document", bound=FrozenDocument)


class AttentionShares(FrozenDocument):
    """Speed of a stack's attention kernel over the profile's, by GPU architecture: FlashAttention-2
    does not use what Hopper brought.
    """

    ampere: PositiveFloat = 1.0
    hopper: PositiveFloat = 1.0
    blackwell: PositiveFloat = 1.0


class CastBytes(FrozenDocument):
    """Bytes moved per element that is quantized, by recipe of precision."""

    fp8_delayed: NonNegativeFloat = 0.0
    fp8_tensorwise: NonNegativeFloat = 0.0
    fp8_rowwise: NonNegativeFloat = 0.0
    fp8_blockwise: NonNegativeFloat = 0.0
    mxfp8: NonNegativeFloat = 0.0
    nvfp4: NonNegativeFloat = 0.0


class KeptBytes(FrozenDocument):
    """What autograd keeps of operations that are not fused, beyond what their fused kernels keep:
    bytes per token and unit of one layer.
    """

    norms: NonNegativeFloat = 0.0
    """Both norms, per hidden unit: normalized inputs before the weight, copies in fp32."""
    rotary: NonNegativeFloat = 0.0
    """Per query or key unit: rotated copies beside the product that they came from."""
    activation: NonNegativeFloat = 0.0
    """Per ffn unit: the activated branch beside both branches and their product."""
    scores: NonNegativeFloat = 0.0
    """Without flash attention, per element of the s x s scores: the softmax in fp32 beside its
    16-bit copy.
    """
    logits: NonNegativeFloat = 0.0
    """On the last stage, per vocabulary row: outputs that lie in the pipeline's buffers while the
    layers go backward.
    """


class Experts(FrozenDocument):
    """How a stack runs layers with experts."""

    dispatcher: Literal["allgather", "alltoall", "deepep", "hybridep"] = "alltoall"
    """How tokens reach their experts: NCCL's all-gather of all tokens, or its all-to-all of every
    copy; DeepEP and HybridEP send a token once to each NVLink domain.
    """
    proxy: Literal["nvshmem", "uccl"] = "nvshmem"
    """The library whose CPU threads start the transfers of DeepEP and HybridEP where GPUs cannot
    (Fabric.proxies).
    """
    quantized_dispatch: bool = False
    """With 8-bit products tokens travel to the experts in 8 bits; they return in 16."""
    overlap_share: NonNegativeFloat = 0.0
    """Share of dispatch and combine that may hide behind another micro-batch's compute (Megatron's
    --overlap-moe-expert-parallel-comm).
    """
    shared_overlap_share: NonNegativeFloat = 0.0
    """Share of dispatch and combine that may hide behind the shared experts of the same layer."""
    imbalance: PositiveFloat = 1.0
    """Tokens of the busiest rank over the mean; benchmarks force 1."""
    capacity_factor: NonNegativeFloat = 0.0
    """Tokens that an expert takes at most, over the mean: what is beyond is dropped; 0: none is."""
    padded: bool = False
    """Experts compute as many rows as they may take, whatever they get: shapes stay."""
    permute_bytes: NonNegativeFloat = 16.0
    """Memory traffic of sorting tokens by expert and back: bytes per routed copy and hidden unit,
    each way.
    """
    router_bytes: NonNegativeFloat = 24.0
    """Memory traffic of scores, choice and auxiliary loss: bytes per token and expert, each way."""
    grouped_share: PositiveFloat = 1.0
    """Speed of grouped products over single ones of the same size."""
    launch_us_forward: NonNegativeFloat = 400.0
    """CPU time to launch router, dispatch, experts and combine, beyond that of a dense layer."""
    launch_us_backward: NonNegativeFloat = 400.0
    latent_launch_us: NonNegativeFloat = 100.0
    """The same of latent attention, each way."""
    wait_us: NonNegativeFloat = 0.0
    """Each way, what nothing hides: the host waits for the counts of tokens per expert before it
    can launch the products on them.
    """
    alltoall_wait_us: NonNegativeFloat = 0.0
    """The same of an all-to-all: it stands in for a library where tokens stay on their rank, and
    through proxies a library waits as long.
    """
    padded_wait_us: NonNegativeFloat = 0.0
    """The same where experts are padded, so that no counts are awaited."""

    @property
    def load(self) -> float:
        """Tokens of the busiest rank over the mean, or rows where they are padded."""
        if not self.capacity_factor:
            return self.imbalance
        return self.capacity_factor if self.padded else kept_share(self.capacity_factor)


class Launch(FrozenDocument):
    """CPU time of launching work on the device."""

    us_forward: NonNegativeFloat
    """CPU time to launch the forward of one layer (tp = 1)."""
    us_backward: NonNegativeFloat
    us_tp: NonNegativeFloat
    """More, when the layer is split over tp: one collective call after another."""
    scan_share: NonNegativeFloat = 1.0
    """Of the launches of state spaces, delta rules and their like beyond attention's; 0 where CUDA
    graphs hold them.
    """
    ahead: bool = True
    """Whether launches hide behind the device's work; not where the processor that launches
    computes too.
    """
    step_overhead_us: NonNegativeFloat
    """Host time a step: data loader, loss and norm reductions, logging."""
    collective_us_crossing: NonNegativeFloat = 0.0
    """Where the pipeline's stages lie on several nodes: CPU time of one tp collective, per rank of
    its group (found in nanotron's runs).
    """
    gather_us: NonNegativeFloat = 0.0
    """CPU time of gathering updated parameters, per tensor and rank of the group: slices joined one
    by one.
    """


class Traffic(FrozenDocument):
    """Memory traffic of what is not a matrix product."""

    elementwise_bytes_forward: NonNegativeFloat
    """Memory traffic of norms, residuals, dropout: bytes per token and hidden unit, forward,
    without the MLP's activation.
    """
    elementwise_bytes_backward: NonNegativeFloat
    activation_bytes_forward: NonNegativeFloat
    """Memory traffic of the MLP's activation function: bytes per token and ffn unit."""
    activation_bytes_backward: NonNegativeFloat
    rope_bytes: NonNegativeFloat
    """Memory traffic of rotary embedding: bytes per token and query or key unit, each way."""
    accumulate_bytes: NonNegativeFloat
    """Memory traffic of adding a weight gradient to the main gradient, bytes a weight beyond the
    product's own output.
    """
    accumulation_fused: bool = True
    """Whether the product adds it itself, or accumulate_bytes count all; where not, a 16-bit
    gradient is written and read again besides.
    """
    loss_bytes: NonNegativeFloat
    """Memory traffic of the loss, forward and backward, bytes per token and vocabulary row."""
    scores_bytes_forward: NonNegativeFloat
    """Unfused attention: traffic per element of the s x s scores."""
    scores_bytes_backward: NonNegativeFloat
    optimizer_bytes: PositiveFloat
    """Memory traffic of the optimizer step, bytes a parameter of the shard."""
    gradient_step_bytes: NonNegativeFloat = 0.0
    """Memory traffic of gradients before the optimizer, bytes a parameter of the rank: flattening,
    conversion, norm.
    """
    cast_bytes: CastBytes = CastBytes()
    """Memory traffic of quantizing an operand, bytes an element, by precision: inputs once forward,
    output gradients once backward.
    """
    ring_bytes: NonNegativeFloat = 0.0
    """Memory traffic of joining partial results in a context-parallel ring: bytes per token, query
    unit and hop, each way.
    """


class Kept(FrozenDocument):
    """What autograd and the loss hold in memory."""

    logits_bytes: NonNegativeFloat
    """Memory of logits, loss and their gradient at the peak, bytes per token and vocabulary row."""
    scores_temporary_bytes: NonNegativeFloat = 4.0
    """Without flash attention: gradients of the scores at the peak of a layer's backward pass,
    bytes an element.
    """
    unfused: KeptBytes = KeptBytes()
    gathered_inputs: bool = False
    """With sp linears keep their gathered inputs instead of gathering them again."""
    quantized_inputs: bool = False
    """With 8-bit products the inputs of linears are kept in 8 bits (Transformer Engine)."""
    inputs_over_tp: bool = False
    """Inputs of recomputed layers are split over tp, and gathered in the backward pass
    (DeepSpeed's partition_activations).
    """
    gathered_share: NonNegativeFloat = 0.0
    """Share of sp's gathered inputs that stays allocated until the backward pass where no pipeline
    holds up the CPU.
    """
    pipeline_buffers: bool = False
    """In a pipeline every micro-batch has a buffer of its own for what a stage receives, forward
    and backward, and what a stage sent stays until its backward pass.
    """


class Overlap(FrozenDocument):
    """What runs beside compute, as its switches have it."""

    p2p: bool
    """Interleaved p2p runs beside compute."""
    grad_share: NonNegativeFloat
    """Share of the gradient reduce-scatter that may hide behind the last micro-batch's backward."""
    param_share: NonNegativeFloat
    """Share of the parameter all-gather that may hide behind the next forward."""
    tp_share: NonNegativeFloat
    """Share of tp communication hidden behind GEMMs besides the weight-gradient overlap."""
    tp_grad_share: NonNegativeFloat
    """Share of the input gradient's reduction that may hide behind the weight-gradient product (0
    before 2022).
    """
    tp_split_share: NonNegativeFloat = 0.0
    """tp_share at least, where sequence parallelism splits what travels (userbuffers)."""
    tp_split_grad_share: NonNegativeFloat = 0.0
    """tp_grad_share at least, likewise."""
    tax_share: NonNegativeFloat
    """Slowdown of compute while NCCL runs beside it."""
    cp_gathered: bool = False
    """Ranks of a context-parallel ring gather keys and values before attention; nothing hides it.
    """
    head_deferred: bool = False
    """In a pipeline the head's weight gradients wait for the drain, with what they read."""
    head_deferred_limit: NonNegativeInt = 0
    """Micro-batches of which they wait at most; 0: all."""


class States(FrozenDocument):
    """Bytes a parameter of weights, gradients and optimizer."""

    grad_reduce_bytes: PositiveFloat
    """Bytes an element of the gradient reduction."""
    sequence_reduce_bytes: NonNegativeFloat = 0.0
    """The same where ranks share a sequence; 0: no other (DeepSpeed's Ulysses reduces in fp32)."""
    accumulated_bytes: NonNegativeFloat = 0.0
    """Bytes of a gradient in which micro-batches are added, where they are not added in the
    gradients themselves (DeepSpeed's grad_accum_dtype).
    """
    frozen_bytes: PositiveFloat = 2.0
    """Bytes of a frozen weight under adapters."""
    weight_bytes: PositiveFloat
    gradient_bytes: PositiveFloat
    optimizer_state_bytes: PositiveFloat
    """Under bf16; see remainder_bytes."""
    remainder_bytes: NonNegativeFloat = 0.0
    """Of the former, bytes a parameter that are left out because bf16 weights have them; kept under
    recipes of 8 bits whose main weights are whole.
    """
    quantized_copies: bool = False
    """Products in 8 and 4 bits read copies of the layers' weights that stay in memory (Transformer
    Engine).
    """
    fp8_alone: bool = False
    """Under recipes of 8 bits the layers' weights are kept in those copies alone, and gathered so.
    """
    fp4_alone: bool = False
    dummy_gradient_bytes: NonNegativeFloat = 0.0
    """Bytes a weight of one layer, and of the head: what autograd gets where products add to the
    main gradient (Transformer Engine).
    """
    unit_gradient_bytes: NonNegativeFloat = 0.0
    """Bytes a parameter once a backward pass is over: 16-bit gradients not yet added to the main
    ones, flat copies to send.
    """
    update_bytes: NonNegativeFloat = 0.0
    """Bytes a parameter of a rank's share while it is updated: joined gradients and their copy in
    32 bits.
    """


class Sharding(FrozenDocument):
    """How sharded weights and gradients travel."""

    gradients_all_reduced: bool = False
    """Sharded optimizers get their gradients by an all-reduce too."""
    gathered_bytes: NonNegativeFloat = 0.0
    """Bytes a parameter of the copy that is gathered where weights are a sharded master (FSDP); 0
    where weights are gathered.
    """
    shard_copies: PositiveFloat = 1.0
    """Copies of what FSDP shards (HSDP): shards lie within dp cp / copies ranks."""
    gathered_layers: NonNegativeFloat = 0.0
    """Whole layers that are held at a time when weights are sharded: the one in use, those fetched
    ahead, one of gradients (FSDP).
    """
    gathered_params: NonNegativeFloat = 0.0
    """Whole parameters that are held at a time when weights are sharded one by one (DeepSpeed's
    stage3_max_live_parameters).
    """
    calls: PositiveFloat = 1.0
    """Collectives that gather one layer of sharded weights."""
    overlap_share: NonNegativeFloat = 1.0
    """Share of the gathers of sharded weights that may hide behind compute: they are fetched ahead.
    """
    bandwidth_share: PositiveFloat = 1.0
    """Bandwidth that collectives of sharded weights reach between nodes, over that of large
    messages.
    """
    host_update_params_per_s: PositiveFloat = 4.0e9
    """Parameters that Adam on the processors of one node updates a second (DeepSpeedCPUAdam), with
    fp32 states in host memory.
    """
    reduced_at_end: bool = False
    """With the optimizer sharded, gradients are reduced at once after the last backward pass, not
    beside it.
    """
    instances: PositiveInt = 1
    """Copies of the distributed optimizer's states: each is sharded over its part of the replicas,
    among which gradients are then reduced.
    """
    bucket_params: NonNegativeInt = 0
    """Parameters of a bucket of gradients; 0: large enough that latency does not count, and small
    enough that only the first layer's gradients come late.
    """
    buckets: NonNegativeInt = 0
    """How many there are; 0: as bucket_params says."""
    reduce_mib: NonNegativeFloat = 0.0
    """Size of one message of a reduction beside the backward pass; 0: large enough that latency
    does not count.
    """
    reduce_elements: NonNegativeFloat = 0.0
    """Elements of one message of a reduction, for which a buffer is held (DeepSpeed's
    reduce_bucket_size); 0: reduce_mib and allocator.bucket_mib say.
    """
    reduce_buffers: NonNegativeFloat = 1.0
    """Such buffers: two where one fills while the other is sent."""
    gather_elements: NonNegativeFloat = 0.0
    """Elements of one message of the gather of updated weights; 0: all at once."""
    update_elements: NonNegativeFloat = 1.0e9
    """Elements of sharded weights that are updated at once (DeepSpeed's sub_group_size)."""
    whole_below: NonNegativeFloat = 0.0
    """Weights of fewer elements are not sharded."""
    gather_share: PositiveFloat = 1.0
    """Bytes that a gather of sharded weights moves over those of an all-gather in 16 bits."""
    gather_convert_bytes: NonNegativeFloat = 0.0
    """Memory traffic of quantizing what is gathered, bytes a weight."""
    reduce_share: PositiveFloat = 1.0
    """Bytes that a reduction of sharded gradients moves over those of a reduce-scatter in
    states.grad_reduce_bytes.
    """
    reduce_convert_bytes: NonNegativeFloat = 0.0
    """Memory traffic of quantizing what is reduced, bytes a weight."""
    reuse_elements: NonNegativeFloat = 0.0
    """Elements within which a weight that is used again stays whole; 0: gathered_params alone
    bounds them.
    """
    prefetch_elements: NonNegativeFloat = 1.0
    """Elements of weights that are gathered ahead; 0: no gather hides behind compute."""
    gradients_deferred: bool = False
    """Sharded gradients are held whole and reduced once a step, with the last micro-batch (FSDP's
    no_sync).
    """
    gradients_deferred_in_pipeline: bool = False
    """The same in a pipeline alone, after the last micro-batch (torch.distributed.pipelining)."""


class Offload(FrozenDocument):
    """What waits in host memory, as its switches have it."""

    modules: tuple[str, ...] = ()
    """Modules whose saved tensors go to the host (Megatron-core's fine-grained offload)."""
    modules_share: NonNegativeFloat = 1.0
    """Share of those groups of tensors that go."""
    layers: NonNegativeInt = 0
    """Layers whose saved tensors go, all of them."""
    optimizer_share: NonNegativeFloat = 1.0
    """Share of the states that go where the layout offloads the optimizer."""
    optimizer_beside: bool = False
    """Gradients and weights of some parameters travel while others are updated."""
    link_share: PositiveFloat = 1.0
    """Bandwidth of copies to and from host memory over PCIe's."""


class Allocator(FrozenDocument):
    """Device memory beside tensors."""

    bucket_mib: NonNegativeFloat
    """Communication buckets of the data-parallel collectives that the allocator holds."""
    communicator_mib: NonNegativeFloat
    """Device memory of one communicator's buffers."""
    context_gib: PositiveFloat
    """CUDA context and libraries."""
    reserved_share: PositiveFloat
    """Median of reserved over allocated memory."""
    reserved_spread_share: PositiveFloat
    """Standard deviation of that ratio together with the model's own error."""
    workspace_mib: NonNegativeFloat = 0.0
    """What libraries take from the allocator for the whole run."""
    graph_tensors: NonNegativeFloat = 0.0
    """Static inputs and outputs of CUDA graphs, for each layer and micro-batch in flight, as many
    times its hidden states.
    """
    graph_pool_share: NonNegativeFloat = 0.0
    """Memory that the pool of a graph of all holds, over activations and working set."""


class Quirks(FrozenDocument):
    """What one software does otherwise than the rest."""

    p2p_scatter_over_tp: bool = False
    """Activations between stages are split over tp even without sp (Megatron of 2021)."""
    post_validation: bool = False
    """Split-backward schedules end a step rank by rank: the optimizer is checked afterwards, so a
    step lasts the span, not the makespan.
    """
    tp_reduces_backward: PositiveFloat = 2.0
    """All-reduces of input gradients in a layer's backward pass without sp; one a column-parallel
    product where each reduces its own.
    """
    gathered_logits: bool = False
    """Logits are gathered over tp: loss and its memory are of the whole vocabulary on every rank.
    """
    shards_overlap_alone: bool = False
    """Gradients that are not sharded, or of a pipeline, are reduced after the backward pass, beside
    nothing.
    """
    head_recomputed: bool = False
    """Full recomputation repeats the head too."""
    split_items: tuple[int, int] = (0, 0)
    """What an even split of the pipeline counts as layers before and after them: embedding; final
    norm and head.
    """
    recompute_early_stop: bool = False
    """Full recomputation of a layer ends with the last tensor that its backward pass needs: the
    MLP's last product is not repeated.
    """
    quantized_gathers: bool = False
    """With 8-bit products sequence parallelism gathers 8-bit tensors (Transformer Engine)."""
    sparse_kernels: bool = False
    """Sparse attention reads the keys that it chose alone, by kernels over absorbed latents; else
    it computes all scores and masks them.
    """
    stage_head_share: NonNegativeFloat = 0.0
    """Not 0: layers are dealt to pipeline stages by size, the head weighing this share of its
    products over a layer's (nanotron).
    """


class Software(FrozenDocument):
    """What it overlaps, fuses and keeps, and how long its CPU takes to launch a layer."""

    name: str
    document: str = ""
    """Whose figures these are, where the name is that of a distribution of it."""
    reproduces: str = ""
    """Of software that is there for published runs alone, and not offered: which runs."""
    stands_in_for: str = ""
    """The software of a run whose figures are not known, where these stand in: a range is wider."""
    framework: Literal["megatron", "deepspeed", "torch"]
    attention: Literal["flash", "fused", "unfused"]
    """Default kernel: flash; cuDNN's fused attention; or unfused, the scores in memory (whose
    softmax: see scores_bytes_forward).
    """
    sequence_parallel: bool
    """Whether sp is available (and then on when tp > 1)."""
    zero: int
    """Default sharding stage."""
    zero_stages: tuple[int, ...]
    schedules: tuple[str, ...]
    """Schedules that it can run."""
    dropout: bool
    """Whether dropout masks are kept (GPT of 2020-2022: yes)."""
    attention_shares: AttentionShares = AttentionShares()
    experts: Experts = Experts()
    fsdp: Literal["megatron", "torch"] = "megatron"
    """Under Megatron-LM zero 2 and 3 are its own FSDP, or torch's FSDP2."""
    launch: Launch
    traffic: Traffic
    kept: Kept
    overlap: Overlap
    states: States
    sharding: Sharding = Sharding()
    offload: Offload = Offload()
    allocator: Allocator
    quirks: Quirks = Quirks()
    switches: dict[str, bool | int | float | str] = Field(default_factory=dict)
    """The settings of its switches (specs/switches) that its figures hold for; of the others the
    framework's defaults.
    """
    source: str

    @property
    def sharding_stages(self) -> tuple[int, ...]:
        """ZeRO stages that it runs: torch's FSDP2 under Megatron-LM shards gradients at least."""
        least = 2 if self.fsdp == "torch" else 0
        return tuple(stage for stage in self.zero_stages if stage >= least)

    @property
    def default_stage(self) -> int:
        """The stage where none is stated."""
        return self.zero if self.zero in self.sharding_stages else max(self.sharding_stages)

    def figure(self, path: str) -> Any:
        """A figure by its dotted name: `launch.us_forward`."""
        value: Any = self
        for name in path.split("."):
            value = getattr(value, name)
        return value

    def with_figures(self, figures: Mapping[str, Any]) -> Self:
        """The same software with figures replaced, by their dotted names."""
        return _replaced(self, figures)


def _replaced(document: Document, figures: Mapping[str, Any]) -> Document:
    """A document with figures of its own and of its groups replaced."""
    own: dict[str, Any] = {}
    of_group: dict[str, dict[str, Any]] = {}
    for path, value in figures.items():
        group, _, rest = path.partition(".")
        if rest:
            of_group.setdefault(group, {})[rest] = value
        else:
            own[group] = value
    for group, changes in of_group.items():
        own[group] = _replaced(getattr(document, group), changes)
    return document.model_copy(update=own)
