"""What mixes the sequence of a layer on one rank: attention, or what stands in its place (state
spaces, delta rules, linear attention, short convolutions).

What lies between the products of such a mixer, its scan, takes time linear in the sequence: a short
convolution, gates and norms that stream through memory, and a recurrence that is computed in chunks
by kernels of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from planner.cost.layer.attention import attention_times, cp_comm_times
from planner.cost.layer.gemms import Product, attention_products, outside
from planner.cost.layer.kernels import memory_s
from planner.cost.layer.sparse import sparse_times
from planner.cost.network import collectives
from planner.cost.params.mixers import linears
from planner.cost.params.trained import trains
from planner.layout import Layouts, Numeric
from planner.specs.mixers import (
    GatedDeltaNet,
    Kda,
    LightningAttention,
    Mamba1,
    Mamba2,
    Mixer,
    ShortConvolution,
)
from planner.specs.recipe import Recipe

SCAN_SHARE = 0.47
"""Of the streaming bandwidth that chunked kernels reach by the bytes that they must move. The gated
delta rule moves 12.8 kB a token and head of width 128 on GB200 (8 TB/s) and 12.7 on H100, where
about 20 vectors of 256 bytes are needed [flash-linear-attention]; SSD's chunk scan 0.55 on H800
[tilelang].
"""


class Scan(NamedTuple):
    """What one token costs between the products of a mixer, over all heads, of 2-byte elements."""

    streamed: float = 0.0
    """Bytes that convolution, gates and norms move forward; twice as many backward."""
    scanned: float = 0.0
    """Bytes that the kernels of the recurrence move forward."""
    backward: float = 2.5
    """Their backward pass over the forward."""
    kept: float = 0.0
    """Bytes that autograd keeps, without the input of the last product."""
    state: float = 0.0
    """Bytes of the chunks' states while the layer runs backward."""
    exchanged: float = 0.0
    """Elements that context parallelism sends to split heads in place of tokens, both ways."""
    launch_us: tuple[float, float] = (0.0, 0.0)
    """CPU time of its launches beyond attention's, forward and backward."""


def mamba2_scan(mixer: Mamba2) -> Scan:
    """Mamba-2's.

    Formula: d = H P inner width, B and C 2 G N, c tokens a chunk: convolution 4 (d + 2 G N) and
             gated norm 6 d streamed; scan reads x twice and z, B, C, steps, writes d, states 16 N d
             / c; kept 2 (2 d + 2 G N + H) of the first product, 2 d of the scan, 2 d normed;
             backward two sets of states, 8 N d / c
    Source:  [dao2024]; [mamba-ssm] ops/triton/ssd_combined.py: five kernels, of which the backward
             pass repeats those of the states
    Assumes: the fused path, which keeps its input and output alone; states in fp32; launches by
             their number, at what the delta rule's take: a guess.
    """
    d, shared = mixer.inner_size, 2 * mixer.num_groups * mixer.state_size
    states = mixer.state_size * d / mixer.chunk
    return Scan(
        streamed=4.0 * (d + shared) + 6 * d * mixer.gated_norm,
        scanned=2 * (4 * d + 2 * shared + mixer.num_heads) + 16 * states,
        kept=2.0 * (2 * d + shared + mixer.num_heads) + 2 * d + 2 * d * mixer.gated_norm,
        state=8 * states,
        exchanged=3.0 * d + shared + mixer.num_heads,
        launch_us=(200.0, 350.0),
    )


def mamba1_scan(mixer: Mamba1) -> Scan:
    """Mamba-1's.

    Formula: convolution 4 d and gate 6 d streamed; scan reads x, steps, B, C and writes d, and its
             arithmetic counts as 2 N d bytes more; kept 4 d of the
             first product, 2 d each of the convolution, the steps and the output, B, C
    Source:  [gu2023] sec. 3.3: the state stays in fast memory
    Assumes: what the arithmetic and the launches take is a guess.
    """
    d, states = mixer.inner_size, mixer.state_size
    return Scan(
        streamed=10.0 * d,
        scanned=6.0 * d + 4 * states + 2.0 * d * states,
        kept=10.0 * d + 4 * states,
        exchanged=3.0 * d,
        launch_us=(50.0, 100.0),
    )


def delta_rule_scan(
    key_heads: int, value_heads: int, key_dim: int, value_dim: int, chunk: int
) -> Scan:
    """The gated delta rule's.

    Formula: k, v widths of all key and value heads, K of keys repeated to value heads, H value
             heads; streamed: convolution 4 (2 k + v), norms of queries and keys 8 k, repetition 8 K
             where heads differ, gated norm 6 v; scan: 10 K + 8 v, inverses 10 c H, states 4 e d H a
             chunk twice; kept: first product, q and k normed and repeated, v, decays 6 H, inverses
             2 c H, output and gate 2 v each
    Source:  [flash-linear-attention] ops/gated_delta_rule/chunk.py and [megatron-core]
             core/ssm/gated_delta_net: tensors counted; backward and launches measured by the former
    Assumes: states are computed anew in the backward pass.
    """
    k, v, repeated = key_heads * key_dim, value_heads * value_dim, value_heads * key_dim
    states = value_heads * key_dim * value_dim / chunk
    differ = key_heads != value_heads
    return Scan(
        streamed=4.0 * (2 * k + v) + 8 * k + 8 * repeated * differ + 6 * v,
        scanned=10.0 * repeated + 8 * v + 10 * chunk * value_heads + 8 * states,
        backward=2.7,
        kept=2.0 * (2 * k + 2 * v + 2 * value_heads)
        + 4 * k
        + 4 * repeated * differ
        + 2 * v
        + 6 * value_heads
        + 2 * chunk * value_heads
        + 4 * v,
        state=2 * states,
        exchanged=2.0 * k + 3 * v + 2 * value_heads,
        launch_us=(300.0, 530.0),
    )


def gated_delta_net_scan(mixer: GatedDeltaNet) -> Scan:
    """The gated delta net's.

    Formula: delta_rule_scan() of its heads
    Source:  [megatron-core] core/ssm/gated_delta_net
    Assumes: as delta_rule_scan().
    """
    return delta_rule_scan(
        mixer.num_key_heads,
        mixer.num_value_heads,
        mixer.key_head_dim,
        mixer.value_head_dim,
        mixer.chunk,
    )


def kda_scan(mixer: Kda) -> Scan:
    """Kimi delta attention's.

    Formula: the gated delta rule's kernels 1.85 times as long; q = H d: kept 12 q of convolutions
             and what they give, 2 q decay, 4 H, two matrices of a chunk 4 c H, output and gate 4 q
    Source:  [flash-linear-attention] ops/kda/chunk.py; 3.50 against 1.89 ms [flaggems]
    Assumes: decays of each channel cost no launches more.
    """
    heads, width = mixer.num_heads, mixer.num_heads * mixer.head_dim
    rule = delta_rule_scan(heads, heads, mixer.head_dim, mixer.head_dim, mixer.chunk)
    kept = 12.0 * width + 2 * width + 4 * heads + 4 * mixer.chunk * heads + 4 * width
    return rule._replace(scanned=1.85 * rule.scanned, kept=kept)


def lightning_scan(mixer: LightningAttention) -> Scan:
    """Lightning attention's.

    Formula: w width of all heads: gated norm 6 w streamed; scan reads k, v and q, k, v again,
             writes w, states 4 w d a chunk of 64; kept q, k, v 6 w, gate, output, normed 6 w
    Source:  [flash-linear-attention] ops/simple_gla/chunk.py: tensors counted; 0.8 of SCAN_SHARE
             and backward 2.3 forwards measured (retention)
    Assumes: chunks of 64, as that kernel has them; half of the delta rule's launches.
    """
    width, d = mixer.num_heads * mixer.head_dim, mixer.head_dim
    return Scan(
        streamed=6.0 * width,
        scanned=(12.0 * width + 4 * width * d / 64) / 0.8,
        backward=2.3,
        kept=12.0 * width,
        state=2 * width * d / 64,
        exchanged=4.0 * width,
        launch_us=(200.0, 200.0),
    )


def short_convolution_scan(mixer: ShortConvolution, hidden_size: int) -> Scan:
    """A gated short convolution's.

    Formula: gates and convolution read 3 h and write h, twice over; kept 6 h of the first product,
             4 h between gate and convolution
    Source:  [hf-transformers] Lfm2: tensors counted
    Assumes: causal_conv1d keeps its input alone.
    """
    return Scan(streamed=16.0 * hidden_size, kept=10.0 * hidden_size, exchanged=4.0 * hidden_size)


_SCANS: dict[type, Callable[..., Scan]] = {
    Mamba2: mamba2_scan,
    Mamba1: mamba1_scan,
    GatedDeltaNet: gated_delta_net_scan,
    Kda: kda_scan,
    LightningAttention: lightning_scan,
}


def scan(mixer: Mixer | None, hidden_size: int) -> Scan:
    """That of a mixer; nothing of attention and of layers without one."""
    if isinstance(mixer, ShortConvolution):
        return short_convolution_scan(mixer, hidden_size)
    known: Any = _SCANS.get(type(mixer))
    return known(mixer) if known else Scan()


def sequence_products(recipe: Recipe, layout: Layouts, count: Numeric) -> tuple[Product, ...]:
    """Matrix products of what mixes the sequence, for `count` tokens: attention's, linears() of a
    mixer, or both where they stand side by side.
    """
    model = recipe.model
    products = attention_products(recipe, layout, count) if model.has_attention else ()
    trained, tp = trains(recipe, "attention"), layout.tp
    for outputs, inputs, side in linears(model):
        rows = count / outside(layout) if side == "own" else count
        n, k = outputs / (tp if side == "column" else 1), inputs / (tp if side == "row" else 1)
        products = (*products, Product(rows, n, k, side, trained=trained))
    return products


def sequence_times(recipe: Recipe, layout: Layouts) -> tuple[Numeric, Numeric]:
    """Forward and backward time of the core of attention and of the scan.

    Formula: attention_times() or sparse_times() + T / tp (streamed + scanned / SCAN_SHARE) / HBM;
             backward T / tp (2 streamed + backward scanned / SCAN_SHARE) / HBM
    Source:  planner.cost.layer.mixers: that of each scan
    Assumes: kernels of a scan are bound by memory: GB200 runs the delta rule 2.4 times as fast as
             H100, as its memory does, and H20 at the rate of its own.
    """
    model, one = recipe.model, scan(recipe.model.mixer, recipe.model.hidden_size)
    each = recipe.tokens_per_rank(layout) / layout.tp * recipe.element_bytes / 2
    scanned = memory_s(recipe.hardware, each * one.scanned / SCAN_SHARE)
    streamed = memory_s(recipe.hardware, each * one.streamed)
    forward, backward = streamed + scanned, 2 * streamed + one.backward * scanned
    if not model.has_attention:
        return forward, backward
    core = (sparse_times if model.index else attention_times)(recipe, layout)
    return core[0] + forward, core[1] + backward


def context_times(
    recipe: Recipe, layout: Layouts, sequence_s: tuple[Numeric, Numeric]
) -> tuple[Numeric, Numeric]:
    """What context parallelism exchanges and does not hide, each way: attention's; an exchange of
    heads for tokens around a scan, none of it hidden.

    Formula: cp_comm_times() + two all-to-alls that move T / tp exchanged elements, at the bus
             bandwidth of a gather
    Source:  [megatron-core] core/ssm/mamba_context_parallel.py, core/ssm/gated_delta_net
    Assumes: one exchange for all that the scan reads.
    """
    model = recipe.model
    times: tuple[Numeric, Numeric] = 0.0 * sequence_s[0], 0.0 * sequence_s[1]
    if model.has_attention:
        times = cp_comm_times(recipe, layout, sequence_s)
    sent = scan(model.mixer, model.hidden_size).exchanged
    if not sent:
        return times
    size = recipe.tokens_per_rank(layout) / layout.tp * sent * recipe.element_bytes
    members = collectives.group(recipe.hardware, layout.tp, layout.cp)
    exchange = collectives.gather_s(recipe.hardware, members, size)
    return times[0] + exchange, times[1] + exchange
