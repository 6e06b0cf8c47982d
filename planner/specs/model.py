"""ModelSpec: the network to train."""

from __future__ import annotations

import re
from math import isqrt
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from planner.specs.documents import FrozenDocument
from planner.specs.mixers import Count, Mamba2, Mixer, NoMixer, Width

MOST_LAYERS = 10_000
_REPEATS = re.compile(r"([^\s(),*]+)\*(\d+)"), re.compile(r"\(([^()]*)\)\*(\d+)")


def expanded(pattern: str) -> tuple[str, ...]:
    """Kinds of layers, one after another, of a pattern such as `(delta*3 full)*12`; ValueError for
    one that is not of names, name*n and (names)*n, or has more than MOST_LAYERS.
    """
    text = pattern
    for repeated in _REPEATS:
        times = [int(count) for _, count in repeated.findall(text)]
        if sum(times) > MOST_LAYERS:
            raise ValueError(
                f"a pattern must have at most {MOST_LAYERS:,} layers, but got {pattern[:60]!r}"
            )
        text = repeated.sub(lambda match: f"{match[1]} " * int(match[2]), text)
    names = tuple(text.split())
    if set(text) & set("()*,") or len(names) > MOST_LAYERS:
        raise ValueError(
            f"a pattern holds at most {MOST_LAYERS:,} names, as `name*n` or `(names)*n`, but got"
            f" {pattern[:60]!r}"
        )
    return names


class Moe(FrozenDocument):
    """Mixture of experts: which layers have one, its experts, its router. Experts are gated and
    activated as the model's MLP is.

    Layer i, counted from 0, has experts when i >= first_dense_layers and (i + 1) % moe_every == 0;
    the others have the dense MLP.
    """

    num_experts: Width
    """Routed experts of a layer."""
    experts_per_token: Width
    expert_ffn_size: Width
    """Width of one routed expert, one branch."""
    shared_ffn_size: Count = 0
    """Width of all shared experts together; 0: none."""
    shared_gate: bool = False
    """A scalar gate on the shared expert (Qwen2-MoE)."""
    first_dense_layers: Count = 0
    moe_every: Width = 1
    router_bias: Literal["none", "linear", "correction"] = "none"
    """linear: a trained bias of the router (gpt-oss); correction: the balancing bias, stored, moved
    by no gradient (DeepSeek-V3).
    """
    router_score: Literal["softmax", "softmax_first", "sigmoid"] = "softmax"
    """Softmax over the chosen experts, softmax over all before the choice, or sigmoid."""
    router_groups: Count = 0
    """Groups of experts of which a token may use groups_per_token (DeepSeek); 0: no limit."""
    groups_per_token: Count = 0
    router_scale: PositiveFloat = 1.0
    """Factor on the routed experts' weights."""
    expert_bias: bool = False
    """Biases in the routed experts (gpt-oss)."""
    dense_residual: bool = False
    """The dense MLP of ffn_size runs beside the experts of every layer (Arctic, Gemma 4)."""
    latent_size: Count = 0
    """Width that routed experts read and write, behind one projection down and one up (Nemotron 3
    Super); 0: hidden_size.
    """
    latent_norm: bool = False
    """A norm on the latent before it is projected up (Kimi K3)."""
    router_scales: bool = False
    """Learned factors on the router's input, one a channel, and on experts, one each (Gemma 4)."""

    def width(self, hidden_size: int) -> int:
        """Of what routed experts read and write."""
        return self.latent_size or hidden_size

    @model_validator(mode="after")
    def _choice(self) -> Moe:
        if self.experts_per_token > self.num_experts:
            raise ValueError(
                f"experts_per_token must be at most num_experts, but got {self.experts_per_token}"
                f" and {self.num_experts}"
            )
        if self.router_groups and (
            self.num_experts % self.router_groups
            or not 1 <= self.groups_per_token <= self.router_groups
        ):
            got = (
                f"{self.router_groups} groups, {self.groups_per_token} a token, and"
                f" {self.num_experts} experts"
            )
            raise ValueError(
                f"router_groups must divide num_experts and hold groups_per_token, but got {got}"
            )
        return self


class Indexer(FrozenDocument):
    """Sparse attention's indexer (DeepSeek-V3.2, GLM-5): small heads that choose which keys a query
    sees.
    """

    num_heads: Width
    head_dim: Width
    keys_per_query: Width
    shared: bool = False
    """The choice is that of an earlier layer: no indexer of its own (GLM-5.2)."""
    loss: Literal["none", "chosen", "all"] = "chosen"
    """Which keys its own loss compares with attention's scores: those that it chose, or all; none:
    it is not trained.
    """


class Mla(FrozenDocument):
    """Multi-head latent attention: keys and values, and usually queries, go through a narrow
    latent.
    """

    q_lora_rank: Width | None = None
    """Width of the queries' latent; None: queries are not compressed."""
    kv_lora_rank: Width
    qk_nope_dim: Width
    """Part of a head without positions."""
    qk_rope_dim: Width
    """Part of a head with rotary positions; the key's is shared by all heads."""
    v_head_dim: Width
    head_gates: bool = False
    """A gate for each head on its output, made from the layer's input (Bailing's hybrids)."""
    indexer: Indexer | None = None

    @model_validator(mode="after")
    def _sparse(self) -> Mla:
        if self.indexer and not self.q_lora_rank:
            raise ValueError("an indexer reads the queries' latent, but got no q_lora_rank")
        return self


class Window(FrozenDocument):
    """Layers whose attention sees a part of the sequence. Layer i, counted from 0, sees all of it
    when i < first_full_layers or (i + 1) % full_every == 0."""

    tokens: Width
    kind: Literal["sliding", "chunked", "both_ways"] = "sliding"
    """The last so many tokens, those of the token's own chunk (Llama 4), or so many before and
    after it together (vision towers).
    """
    full_every: Count = 0
    """0: no layer but the first ones sees all."""
    first_full_layers: Count = 0


class BlockSparse(FrozenDocument):
    """Sparse attention that chooses whole blocks of keys by small index heads (MiniMax-M3)."""

    num_heads: Width
    """Index heads of queries; the index key is one."""
    head_dim: Width
    block_size: Width
    blocks_per_query: Width
    local_blocks: Count = 0
    """Blocks before the query that it always sees."""


class PerLayerInputs(FrozenDocument):
    """A second embedding with a part of its own for each layer, gated into the layer's output
    (Gemma 3n and 4).
    """

    vocab_size: Width
    width: Width
    """Of one layer's part."""


class Vision(FrozenDocument):
    """The vision tower in front of a text model and what projects its output (of `vision` in
    ModelSpec).
    """

    num_layers: Width
    hidden_size: Width
    ffn_size: Width
    num_heads: Width
    patch_size: Width
    """Pixels of a patch's edge."""
    patch_values: Width
    """Numbers that a patch is made of: its pixels, times channels, times frames."""
    patches_per_image: Count = 0
    """Of every image, or tile of one, where the tower takes one size; 0: it takes any."""
    gated_mlp: bool = False
    norm: Literal["rmsnorm", "layernorm"] = "layernorm"
    norms_per_layer: Annotated[int, Field(ge=1, le=7)] = 2
    bias: Literal["none", "qkvo"] = "qkvo"
    """Of attention's projections."""
    mlp_bias: bool = True
    qk_norm: bool = False
    patches_per_token: Width = 1
    """Patches that the projector joins into one token of the text model."""
    window_pixels: Count = 0
    """Edge of the squares within which layers attend, but for full_layers; 0: all see all."""
    full_layers: tuple[Count, ...] = ()
    deepstack: Count = 0
    """First layers of the text model that take what earlier layers of the tower make (Qwen3-VL)."""
    outside_parameters: Annotated[int, Field(ge=0, le=10**12)]
    """Of what stands in no layer: patches, positions, last norm."""
    projector_parameters: Annotated[int, Field(ge=0, le=10**12)]

    def patches(self, image_size: int) -> int:
        """Of an image whose edge has so many pixels: whole tokens of it, one at least."""
        if self.patches_per_image:
            return self.patches_per_image
        merge = isqrt(self.patches_per_token)
        edge = max(image_size // (self.patch_size * merge), 1) * merge
        return edge * edge

    def tokens(self, image_size: int) -> int:
        """Of the text model that such an image takes."""
        return self.patches(image_size) // self.patches_per_token


class Kind(FrozenDocument):
    """A kind of layer: the fields of ModelSpec in which its layers differ from what the model says
    of all; what is not stated is the model's.
    """

    name: str
    mixer: Mixer | None = None
    has_mlp: bool = True
    ffn_size: Width | None = None
    moe: Moe | None = None
    num_heads: Width | None = None
    num_kv_heads: Width | None = None
    head_dim: Width | None = None
    value_head_dim: Width | None = None
    window: Window | None = None
    mla: Mla | None = None
    block_sparse: BlockSparse | None = None
    attention_gate: bool = False
    attention_sinks: bool = False
    qk_norm: bool = False
    keys_are_values: bool = False
    shared_kv: bool = False
    norms_per_layer: Annotated[int, Field(ge=1, le=7)] = 2
    norm_place: Literal["before", "after", "both"] = "before"
    position: Literal["learned", "rope", "alibi", "none"] = "rope"
    rope_theta: PositiveFloat = 10_000.0
    rotary_share: Annotated[float, Field(gt=0, le=1)] = 1.0

    def of(self, model: ModelSpec) -> ModelSpec:
        """The model with all its layers of this kind, without multi-token prediction."""
        stated = {name: getattr(self, name) for name in self.model_fields_set - {"name"}}
        alone: dict[str, Any] = {
            "kinds": (),
            "pattern": "",
            "mtp_layers": 0,
            "mtp_pattern": "",
            "parameters": None,
        }
        if not stated.get("has_mlp", model.has_mlp):
            alone["moe"] = None
        plain: dict[str, Any] = {name: getattr(model, name) for name in ModelSpec.model_fields}
        return ModelSpec(**plain | stated | alone)


class ModelSpec(FrozenDocument):
    """A decoder-only network, dense, with experts or hybrid. Widths are of the whole model, before
    any split.

    Layers are alike but for what moe and window say of them; or each is of one of several kinds,
    which a pattern lists.
    """

    name: str
    family: str
    aliases: tuple[str, ...] = ()
    hidden_size: Width
    ffn_size: Width
    """Width of the dense MLP, one branch. A model all of whose layers have experts does not use it.
    """
    num_layers: Width
    num_heads: Width
    num_kv_heads: Width
    """With MLA as many as num_heads."""
    head_dim: Width
    """Of queries and keys; with MLA qk_nope_dim + qk_rope_dim."""
    vocab_size: Width
    """Rows of the embedding table as released; the framework pads it further."""
    max_seq_length: Width
    gated_mlp: bool
    """Three MLP matrices (SwiGLU; GeGLU with gelu) instead of two."""
    activation: Literal["gelu", "silu", "squared_relu", "relu", "quick_gelu"] = "silu"
    """quick_gelu: x sigmoid(1.702 x), clamped, as in gpt-oss."""
    tied_embeddings: bool
    norm: Literal["rmsnorm", "layernorm", "layernorm_nobias"]
    norms_per_layer: Annotated[int, Field(ge=1, le=7)] = 2
    """Norms over the hidden width."""
    norm_place: Literal["before", "after", "both"] = "before"
    """Of attention and MLP: at their input, at their output, or both (Gemma 2 and 3)."""
    embedding_norm: bool = False
    """A norm on the embedding (BLOOM)."""
    parallel_block: bool = False
    """Attention and MLP read the same input and are added (GPT-NeoX, Falcon, Command R)."""
    position: Literal["learned", "rope", "alibi", "none"]
    position_rows: Count = 0
    """Rows of the learned position table."""
    rope_theta: PositiveFloat = 10_000.0
    rotary_share: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Part of each head that is rotated."""
    no_rope_every: Count = 0
    """Every so many layers one has no rotary positions (Llama 4); 0: all have."""
    attention_bias: Literal["none", "qkv", "qkvo"] = "none"
    attention_sinks: bool = False
    """One learned number a head in the softmax's denominator (gpt-oss)."""
    mlp_bias: bool = False
    """Of dense MLPs."""
    qk_norm: bool = False
    """A norm on queries and on keys; which one: qk_norm_kind."""
    qk_norm_kind: Literal["per_head", "full_width", "per_head_own_weight", "l2"] = "per_head"
    """One weight of width head_dim (Qwen3); over all heads at once (OLMo 2); a weight for each head
    (Command R+); none (Llama 4).
    """
    window: Window | None = None
    mla: Mla | None = None
    block_sparse: BlockSparse | None = None
    moe: Moe | None = None
    mixer: Mixer | None = None
    """What mixes the sequence; None: attention, as the other fields say."""
    has_mlp: bool = True
    """Whether a layer has an MLP or experts (a mixer alone is a layer in Nemotron-H)."""
    value_head_dim: Width | None = None
    """Of values, where it is not head_dim (MiMo)."""
    keys_are_values: bool = False
    """No projection of values: they are the keys (full layers of Gemma 4)."""
    shared_kv: bool = False
    """Keys and values are those of an earlier layer (last layers of Gemma 3n)."""
    attention_gate: bool = False
    """A gate on attention's output, as wide as the queries and made with them (Qwen3-Next)."""
    altup_streams: Count = 0
    """Copies of the hidden state of which each layer updates one (AltUp of Gemma 3n); 0: one
    hidden state.
    """
    laurel_rank: Count = 0
    """Width of a product of two matrices beside attention (Laurel of Gemma 3n); 0: none."""
    per_layer_inputs: PerLayerInputs | None = None
    vision: Vision | None = None
    """What stands in front; no count of the model's own parameters has it in, and estimates where
    the question states its images.
    """
    kinds: tuple[Kind, ...] = ()
    """Kinds of layers where they are not alike; moe and window then say nothing of which layers."""
    pattern: str = ""
    """The layers by kind, first to last: `(delta*3 full)*12`."""
    mtp_layers: Annotated[int, Field(ge=0, le=100)] = 0
    """Multi-token-prediction layers that are trained with the model; total_params leaves them out,
    as publishers do.
    """
    mtp_pattern: str = ""
    """The layers of each of them, by kind (`attention experts` of Nemotron 3); where it is empty,
    one of the kind of the model's last layer.
    """
    mtp_repeated: bool = False
    """One set of weights serves all of them (--mtp-use-repeated-layer of Nemotron 3)."""
    parameters: PositiveInt | None = None
    """Published exact count, where there is one: a test compares."""
    frameworks: tuple[str, ...] = ("megatron", "deepspeed", "torch")
    """Which frameworks can express it."""
    note: str = ""
    """What of the released model this document leaves out, to be said with every answer."""
    source: str

    @model_validator(mode="after")
    def _heads(self) -> ModelSpec:
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"num_heads must be a multiple of num_kv_heads, but got {self.num_heads} and"
                f" {self.num_kv_heads}"
            )
        if self.position == "learned" and not self.position_rows:
            raise ValueError(
                "a learned position table needs position_rows, but got none; usually max_seq_length"
            )
        return self

    @model_validator(mode="after")
    def _kinds(self) -> ModelSpec:
        if bool(self.kinds) != bool(self.pattern):
            raise ValueError("kinds of layers and their pattern must go together")
        if not self.pattern:
            if self.mtp_pattern:
                raise ValueError("mtp_pattern names kinds of layers, but the model has none")
            return self
        named, known = expanded(self.pattern), [kind.name for kind in self.kinds]
        strange = [name for name in named if name not in known]
        if strange:
            raise ValueError(
                f"the pattern must name kinds ({', '.join(known)}), but got {strange[0][:40]!r}"
            )
        if len(named) != self.num_layers:
            raise ValueError(
                f"the pattern must have num_layers layers, but got {len(named)} and"
                f" {self.num_layers}"
            )
        strange = [name for name in expanded(self.mtp_pattern) if name not in known]
        if strange:
            raise ValueError(
                f"mtp_pattern must name kinds ({', '.join(known)}), but got {strange[0][:40]!r}"
            )
        for kind in self.kinds:
            kind.of(self)
        return self

    @model_validator(mode="after")
    def _latent(self) -> ModelSpec:
        if self.mla and self.block_sparse:
            raise ValueError("sparse attention must be by mla's indexer or by blocks, but got both")
        if self.mla and self.head_dim != self.mla.qk_nope_dim + self.mla.qk_rope_dim:
            got = f"{self.head_dim} and {self.mla.qk_nope_dim} + {self.mla.qk_rope_dim}"
            raise ValueError(f"with mla, head_dim must be qk_nope_dim + qk_rope_dim, but got {got}")
        if self.mla and self.num_kv_heads != self.num_heads:
            raise ValueError(
                f"with mla, num_kv_heads must be num_heads, but got {self.num_kv_heads} and"
                f" {self.num_heads}"
            )
        return self

    @property
    def mtp_sets(self) -> int:
        """Sets of weights of multi-token prediction."""
        return min(self.mtp_layers, 1) if self.mtp_repeated else self.mtp_layers

    @property
    def mlp_branches(self) -> int:
        """Matrices of an MLP that widen: gate and up, or up alone."""
        return 2 if self.gated_mlp else 1

    @property
    def mlp_matrices(self) -> int:
        """All matrices of an MLP: three when gated, else two."""
        return self.mlp_branches + 1

    @property
    def query_size(self) -> int:
        return self.num_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        return self.num_kv_heads * self.head_dim

    @property
    def has_attention(self) -> bool:
        """Whether a layer, of a model whose layers are alike, has attention: in place of another
        mixer or beside it.
        """
        if self.mixer is None:
            return True
        return isinstance(self.mixer, Mamba2) and self.mixer.beside_attention

    @property
    def index(self) -> Indexer | BlockSparse | None:
        """What chooses the keys that a layer's attention sees; None where it sees all."""
        if not self.has_attention:
            return None
        return self.mla.indexer if self.mla else self.block_sparse

    @property
    def chooses_keys(self) -> bool:
        """Whether a layer has an index of its own: not an earlier layer's."""
        index = self.index
        return index is not None and not (isinstance(index, Indexer) and index.shared)

    @property
    def streams(self) -> int:
        """Copies of the hidden state between layers."""
        return max(self.altup_streams, 1)

    @property
    def gates_attention(self) -> bool:
        """Whether attention's output is multiplied by a gate."""
        return self.attention_gate and self.has_attention

    @property
    def residual_blocks(self) -> int:
        """Parts of a layer that read the hidden state and add to it: what mixes the sequence, and
        MLP or experts.
        """
        return (not isinstance(self.mixer, NoMixer)) + self.has_mlp

    @property
    def value_size(self) -> int:
        """Of all value heads together, one a key head."""
        return self.num_kv_heads * (self.value_head_dim or self.head_dim)

    @property
    def attention_inputs(self) -> tuple[int, ...]:
        """Widths that attention projects from the hidden state: queries, with their gate where
        there is one, keys and values, as far as they are projected. None of it latent.
        """
        queries = self.query_size * (1 + self.attention_gate)
        if self.shared_kv:
            return (queries,)
        return (
            (queries, self.kv_size)
            if self.keys_are_values
            else (queries, self.kv_size, self.value_size)
        )

    @property
    def output_size(self) -> int:
        """What attention's last product reads: a value for each query head."""
        if self.mla:
            return self.num_heads * self.mla.v_head_dim
        return self.num_heads * (self.value_head_dim or self.head_dim)

    @property
    def has_dense_mlp(self) -> bool:
        """Whether any layer uses ffn_size."""
        if self.kinds:
            return any(kind.has_mlp and self._dense_of(kind) for kind in self.kinds)
        return self.has_mlp and (
            self.moe is None
            or self.moe.first_dense_layers > 0
            or self.moe.moe_every > 1
            or self.moe.dense_residual
        )

    def _dense_of(self, kind: Kind) -> bool:
        moe = kind.moe if "moe" in kind.model_fields_set else self.moe
        return moe is None or moe.dense_residual
