"""The keys that DeepSpeed reads. Source: [deepspeed] 0.19, runtime/config.py, runtime/constants.py
and the sections' own models.
"""

from __future__ import annotations


def words(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


TOP = words("""
activation_checkpointing aio amp autotuning bf16 bfloat16 bf16_optimizer checkpoint comet \
comms_logger communication_data_type
compile compression_training csv_monitor curriculum_learning data_efficiency data_types \
dataloader_drop_last dump_state elasticity
disable_allgather disable_python_gc eigenvalue expert_parallel flops_profiler fp16 fp32_allreduce \
gradient_accumulation_steps
gradient_allreduce_op gradient_clipping gradient_predivide_factor graph_harvesting hybrid_engine \
log_level load_universal_checkpoint
managed_gradient_accumulation memory_breakdown nebula optimizer pipeline prescale_gradients \
progressive_layer_drop quantize_training
scheduler seq_parallel_communication_data_type sequence_parallel_size sparse_attention \
sparse_gradients steps_per_print tensor_parallel
tensorboard timers torch_autocast train_batch_size train_micro_batch_size_per_gpu \
use_data_before_expert_parallelism vocabulary_size
wall_clock_breakdown wandb weight_quantization zero_allow_untested_optimizer \
zero_force_ds_cpu_optimizer zero_optimization
""")
"""An unknown one is ignored without a word."""

SECTIONS = {
    "zero_optimization": words("""
stage contiguous_gradients reduce_scatter reduce_bucket_size use_multi_rank_bucket_allreduce \
allgather_partitions allgather_bucket_size
overlap_comm compute_grad_norm load_from_fp32_weights elastic_checkpoint offload_param \
offload_optimizer zenflow sub_group_size
cpu_offload_param cpu_offload_use_pin_memory cpu_offload prefetch_bucket_size \
param_persistence_threshold model_persistence_threshold
max_live_parameters max_reuse_distance gather_16bit_weights_on_model_save \
module_granularity_threshold use_all_reduce_for_fetch_params
allgather_sequential stage3_gather_fp16_weights_on_model_save ignore_unused_parameters \
legacy_stage1 round_robin_gradients
parameter_alignment zero_hpz_partition_size zero_quantized_weights \
zero_quantized_nontrainable_weights zero_quantized_gradients
memory_efficient_linear pipeline_loading_checkpoint override_module_apply log_trace_cache_warnings \
enable_sanity_checks
save_muon_momentum_buffer_in_memory leaf_module stage3_prefetch_bucket_size \
stage3_param_persistence_threshold
stage3_model_persistence_threshold stage3_max_live_parameters stage3_max_reuse_distance \
stage3_gather_16bit_weights_on_model_save
stage3_module_granularity_threshold stage3_use_all_reduce_for_fetch_params \
stage3_allgather_sequential mics_shard_size
mics_hierarchical_params_gather
"""),
    "zero_optimization.offload_param": words(
        "device nvme_path buffer_count buffer_size max_in_cpu pin_memory"
    ),
    "zero_optimization.offload_optimizer": words("""
device nvme_path buffer_count pin_memory pipeline_read pipeline_write fast_init ratio \
super_offload cpuadam_cores_perc
"""),
    "fp16": words("""
enabled auto_cast loss_scale initial_scale_power loss_scale_window hysteresis \
consecutive_hysteresis min_loss_scale
fp16_master_weights_and_grads
"""),
    "bf16": words(
        "enabled immediate_grad_update check_grad_overflow bf16_master_weights_and_grads"
        " bf16_optimizer_states"
    ),
}
"""An unknown one in these stops the run (those of fp16 and bf16 since the sections have models;
older versions ignore it).
"""


def known(path: tuple[str, ...]) -> bool:
    """Whether DeepSpeed reads a key; what stands in a section that is not listed here is taken as
    read.
    """
    return path[0] in TOP and refused(path) is None


def refused(path: tuple[str, ...]) -> tuple[str, ...] | None:
    """The part of a key's path that its section does not take; None where no section refuses it."""
    for depth in range(1, len(path)):
        section = SECTIONS.get(".".join(path[:depth]))
        if section is not None and path[depth] not in section:
            return path[: depth + 1]
    return None
