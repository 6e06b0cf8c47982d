"""A layer with experts: router, dispatch, grouped products, combine, shared experts; as
layer.Kind.
"""

from __future__ import annotations

import numpy as np

from planner.cost.layer.chosen_operations import repeated_products
from planner.cost.layer.expert_exchange import exchanges_s
from planner.cost.layer.gemms import Product, mlp_products, outside, weights
from planner.cost.layer.layer import Kind, sequence_launch_us
from planner.cost.layer.lora import adapters_time
from planner.cost.layer.mixers import sequence_products
from planner.cost.layer.streams import stream_products
from planner.cost.params.lora import layer_adapters
from planner.cost.params.trained import trains
from planner.layout import Layouts, Numeric
from planner.specs.dispatcher import dispatchers
from planner.specs.model import Moe
from planner.specs.recipe import Recipe


def expert_rows(recipe: Recipe, layout: Layouts, moe: Moe) -> Numeric:
    """Tokens that one routed expert of a rank computes, on the busiest rank.

    Formula: T / tp ep etp k / E load, T / tp with sequence parallelism
    Source:  [megatron-core] MoELayer: tokens are gathered over etp after the exchange
    Assumes: a rank's experts share its tokens evenly.
    """
    own = recipe.tokens_per_rank(layout) / outside(layout)
    return (
        own
        * layout.ep
        * layout.etp
        * moe.experts_per_token
        / moe.num_experts
        * recipe.software.experts.load
    )


def routed_products(recipe: Recipe, layout: Layouts, moe: Moe) -> tuple[Product, ...]:
    """The grouped products of a rank's routed experts.

    Formula: E / ep groups of expert_rows tokens; (2 or 1) f / etp from h, h from f / etp; behind a
             latent its width in place of h
    Source:  [megatron-core] TEGroupedMLP
    Assumes: ep divides the experts, etp their width.
    """
    h, ffn = moe.width(recipe.model.hidden_size), moe.expert_ffn_size / layout.etp
    rows, local = (
        expert_rows(recipe, layout, moe),
        moe.num_experts / layout.ep / recipe.software.experts.grouped_share,
    )
    branches = recipe.model.mlp_branches
    trained = trains(recipe, "mlp")
    return Product(rows, branches * ffn, h, groups=local, trained=trained), Product(
        rows, h, ffn, groups=local, trained=trained
    )


def latent_products(recipe: Recipe, own: Numeric, moe: Moe) -> tuple[Product, ...]:
    """The products into the experts' latent and out of it, of a rank's own tokens.

    Formula: l from h, h from l
    Source:  [megatron-core] moe_layer.py fc1_latent_proj, fc2_latent_proj: on every rank of tp
    Assumes: nothing beside them.
    """
    h, width = recipe.model.hidden_size, moe.latent_size
    if not width:
        return ()
    trained = trains(recipe, "mlp")
    return Product(own, width, h, trained=trained), Product(own, h, width, trained=trained)


def experts(recipe: Recipe, layout: Layouts, moe: Moe) -> Kind:
    """A layer whose MLP are experts.

    Formula: attention + router T/tp x E x h in 16 bits + routed + shared over tp (+ dense MLP
             beside them); permute_bytes a routed copy and hidden unit and router_bytes a token and
             expert over HBM, each way
    Source:  [megatron-core] MoELayer, SharedExpertMLP; [deepseek2024] sec. 2.1.2
    Assumes: the routed experts' input is not gathered over tp: with sp each rank routes its own
             tokens.
    """
    model, experts, count = recipe.model, recipe.software.experts, recipe.tokens_per_rank(layout)
    own = count / outside(layout)
    routed = routed_products(recipe, layout, moe)
    router = Product(
        own, moe.num_experts, model.hidden_size, low=False, trained=trains(recipe, "mlp")
    )
    latent = latent_products(recipe, own, moe)
    shared = mlp_products(recipe, layout, count, moe.shared_ffn_size) if moe.shared_ffn_size else ()
    residual = mlp_products(recipe, layout, count, model.ffn_size) if moe.dense_residual else ()
    copies = routed[0].rows * moe.num_experts / layout.ep
    width = moe.shared_ffn_size + model.ffn_size * moe.dense_residual
    forward, backward = exchanges_s(recipe, layout, moe, count)
    launched = sequence_launch_us(recipe)
    products = (
        *sequence_products(recipe, layout, count),
        *stream_products(recipe, layout, count),
        router,
        *latent,
        *shared,
        *residual,
        *routed,
    )
    return Kind(
        products=products,
        activated=copies * moe.expert_ffn_size / layout.etp + count * width / layout.tp,
        blocks=model.residual_blocks - 1.0 + bool(shared) + bool(residual),
        mlp=residual,
        moe=(router, *latent, *routed),
        shared=shared,
        repeated=repeated_products(recipe, layout, moe.shared_ffn_size),
        moved_bytes=experts.permute_bytes * copies * moe.width(model.hidden_size)
        + experts.router_bytes * own * moe.num_experts,
        ep_forward_s=forward,
        ep_backward_s=backward,
        adapters=adapters_time(recipe, layout, layer_adapters(recipe), weights(products), copies),
        launch_us=(
            experts.launch_us_forward + launched[0],
            experts.launch_us_backward + launched[1],
        ),
        wait_us=wait_us(recipe, layout),
    )


def wait_us(recipe: Recipe, layout: Layouts) -> Numeric:
    """What the host waits for counts of tokens, each way.

    Formula: the dispatcher's; in place of a library's an all-to-all's where tokens stay on their
             rank, and at least that where CPU threads carry the counts between nodes;
             padded_wait_us where experts are padded
    Source:  [megatron-core] flex dispatchers need TP * EP > 1; that proxies take the advantage is a
             guess: over EFA runs of one sequence a micro-batch are host-bound under either
    Assumes: the same wait each way.
    """
    experts, fabric = recipe.software.experts, recipe.hardware.fabric
    if experts.padded:
        return experts.padded_wait_us
    ranks = np.asarray(layout.ep) * layout.etp
    node = max(recipe.hardware.node.gpus, recipe.hardware.node.domain_gpus)
    proxied = (ranks > node) & (experts.proxy in fabric.proxies)
    library = experts.dispatcher in dispatchers()
    alone = experts.alltoall_wait_us if library else experts.wait_us
    slowest = max(experts.wait_us, experts.alltoall_wait_us)
    return np.where(ranks == 1, alone, np.where(proxied, slowest, experts.wait_us))
