"""How many parameters the experts of one layer have: routed ones over ep and etp, shared ones over
tp, the router on every rank.
"""

from __future__ import annotations

from planner.layout import Numeric
from planner.specs.model import ModelSpec, Moe


def expert_params(model: ModelSpec, moe: Moe, etp: Numeric = 1) -> Numeric:
    """Parameters of one routed expert on one rank of expert tensor parallelism.

    Formula: (3 or 2) l f / etp; with biases: + (2 or 1) f / etp + l; l the latent, without one h
    Source:  [megatron-core] experts.py built on the meta device
    Assumes: gated and biased as the document says of all experts; etp divides the width.
    """
    h, f = moe.latent_size or model.hidden_size, moe.expert_ffn_size
    branches = model.mlp_branches
    return (branches + 1) * h * f // etp + (branches * f // etp + h if moe.expert_bias else 0)


def routed_params(model: ModelSpec, moe: Moe, ep: Numeric = 1, etp: Numeric = 1) -> Numeric:
    """Parameters of a layer's routed experts on one rank: what expert data parallelism replicates
    and shards.

    Formula: (E / ep) expert
    Source:  [megatron-core] MoELayer, num_local_experts
    Assumes: ep divides the experts.
    """
    return moe.num_experts // ep * expert_params(model, moe, etp)


def router_params(model: ModelSpec, moe: Moe) -> int:
    """Parameters of the router, of the shared expert's gate and of the projections to and from
    the experts' latent, on every rank.

    Formula: h E (+ E bias) (+ h gate) (+ h + E scales) (+ 2 h l (+ l norm))
    Source:  [megatron-core] TopKRouter, SharedExpertMLP, MoELayer (fc1_latent_proj is on every
             rank); [deepseek2024] sec. 2.1.2 for the correction bias; [hf-transformers] Gemma4
    Assumes: the correction bias is counted as publishers count it, although no gradient moves it.
    """
    h, experts, latent = model.hidden_size, moe.num_experts, moe.latent_size
    return (
        h * experts
        + (experts if moe.router_bias != "none" else 0)
        + (h if moe.shared_gate else 0)
        + (h + experts if moe.router_scales else 0)
        + 2 * h * latent
        + (latent if moe.latent_norm else 0)
    )


def shared_params(model: ModelSpec, moe: Moe, tp: Numeric = 1) -> Numeric:
    """Parameters of a layer's shared experts on one tensor-parallel rank.

    Formula: (3 or 2) h shared / tp
    Source:  [megatron-core] SharedExpertMLP
    Assumes: no biases.
    """
    return model.mlp_matrices * model.hidden_size * moe.shared_ffn_size // tp


def idle_params(model: ModelSpec, moe: Moe) -> Numeric:
    """Parameters of a layer's routed experts that a token does not use.

    Formula: (E - k) expert
    Source:  [deepseek2024] activated parameters
    Assumes: every token uses experts_per_token experts.
    """
    return (moe.num_experts - moe.experts_per_token) * expert_params(model, moe)
