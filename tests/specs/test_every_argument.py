"""Every argument of Megatron-core 0.19.2's parser is a switch, a word that is read or written, or
stands in not_modelled.yaml with its reason; what moves neither time nor memory is named here.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import planner
from planner.specs.switches.table import BY_FRAMEWORK, not_modelled
from tests.judges import megatron_oracle

NO_STEP = {
    "options",
    "profiling",
    "rl",
    "RNG and initialization",
    "learning rate and weight decay",
    "checkpointing",
    "validation",
    "data and dataloader",
    "tokenizer",
    "autoresume",
    "biencoder",
    "vision",
    "logging",
    "Logits Distillation",
    "straggler",
    "workload inspector",
    "inference",
    "one logger",
    "In-process restart",
    "ft_package",
    "rerun engine",
    "msc",
    "sft",
    "fault injector",
}
"""Groups of arguments that are about something else than how a step runs."""
ARITHMETIC = """
adam_eps apply_query_key_layer_scaling apply_residual_connection_post_layernorm
apply_wd_to_qk_layernorm attention_softmax_in_fp32 disable_bf16_reduced_precision_matmul
embedding_init_method_std fp8_amax_compute_algo fp8_amax_history_len fp8_interval fp8_margin
hysteresis initial_loss_scale layernorm_epsilon layernorm_zero_centered_gamma lion_beta1 lion_beta2
loss_scale loss_scale_window min_loss_scale moe_input_jitter_eps moe_router_bias_update_rate
moe_router_quantile_balancing_ema moe_token_drop_policy moe_z_loss_coeff mscale mscale_all_dim
mtp_detach_heads mtp_loss_scaling_factor muon_coefficient_type muon_extra_scale_factor
muon_momentum muon_nesterov muon_scale_mode muon_split_qkv mup_attn_scale_power mup_base_head_dim
mup_base_hidden_size mup_embedding_mult mup_output_mult mup_width_mult no_weight_decay_cond_type
qk_clip_alpha qk_clip_threshold rope_scaling_factor rotary_interleaved
rotary_seq_len_interpolation_factor sgd_momentum use_mup use_rope_scaling
yarn_beta_fast yarn_beta_slow yarn_correction_range_round_to_int
yarn_original_max_position_embeddings
"""
"""Numbers in formulas of unchanged size and cost."""
MODELS = """
attention_output_gate bert_binary_head dsa_indexer_ dsa_kernel_backend encoder_num_layers
decoder_num_layers experimental_attention_variant heterogeneous_ hybrid_layer_pattern
is_hybrid_model linear_ mamba_ moe_latent_size moe_upcycling_granularity moe_use_upcycling
mrope_section mtp_hybrid_override_pattern openai_gelu relative_attention_ use_mamba_mem_eff_path
"""
"""Parts of models that are not modelled; a name that ends in _ stands for all that begin so."""
RUN = """
batch_size cache_mla_latents check_weight_hash_across_dp_replicas_interval config_logger_dir
cuda_graph_warmup_steps dataloader_type decrease_batch_size_if_needed
deprecated_use_mcore_models distributed_backend distributed_timeout_
dump_param_to_param_group_map enable_experimental exit_ fake_process_group flash_decode
flight_recorder_ gpu_sniff_test_interval inference_ init_model_with_meta_device
iterations_to_skip lazy_mpu_init mlp_chunks_for_prefill moe_enable_routing_replay
moe_pad_experts_for_cuda_graph_inference moe_per_layer_logging nccl_all_reduce_for_prefill
onnx_safe perform_initialization result_rejected_tracker_filename use_cpu_initialization
use_gloo_process_groups yaml_cfg
"""
"""Starting, ending, watching, inference."""


@cache
def known_words() -> set[str]:
    """Words of the code that reads and writes files, as arguments are spelled inside."""
    words: set[str] = set()
    for folder in ("interpret", "emit", "specs", "advice"):
        for file in Path(planner.__file__).with_name(folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                text = node.value if isinstance(node, ast.Constant) else None
                if isinstance(text, str) and " " not in text:
                    words.add(text.lstrip("-").replace("-", "_"))
    return words


def irrelevant(name: str) -> bool:
    listed = f"{ARITHMETIC} {MODELS} {RUN}".split()
    return any(name == word or (word.endswith("_") and name.startswith(word)) for word in listed)


def test_every_argument_is_known() -> None:
    reasons = {name for names in not_modelled()["megatron"] for name in names.split(", ")}
    known = known_words() | reasons | set(BY_FRAMEWORK["megatron"])
    missing = []
    for group, arguments in megatron_oracle.arguments().items():
        for name, flags in arguments.items():
            spelled = {name, *(flag.lstrip("-").replace("-", "_") for flag in flags)}
            if group not in NO_STEP and not irrelevant(name) and not known & spelled:
                missing.append(name)
    assert missing == []


def test_what_is_modelled_is_not_said_to_be_left_out() -> None:
    for framework, reasons in not_modelled().items():
        names = {name for listed in reasons for name in listed.split(", ")}
        assert not names & set(BY_FRAMEWORK[framework])
