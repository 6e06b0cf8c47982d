"""Switches of torch: torchtitan 0.2 and 0.3, as their configurations spell them, Accelerate's FSDP,
and the sizes of the benchmark that tune runs.

Source of keys, defaults, needs and refusals: [torchtitan] config/job_config.py of 0.2.2,
config/configs.py, trainer.py, components/ and distributed/ of 0.3.0.
"""

from __future__ import annotations

import numpy as np

from planner.layout import Layouts, Mask
from planner.specs.recipe import Recipe
from planner.specs.switches.allocator import EXPANDABLE_SEGMENTS
from planner.specs.switches.deepspeed import LIGER
from planner.specs.switches.libraries import SEND_TOKENS
from planner.specs.switches.switch import (
    Need,
    Plain,
    Spelling,
    Switch,
    Value,
    copies,
    sees_no_images,
    setting,
)

BENCHMARK = "planner.tune.benchmark.training"
CHUNKS = 8
"""Parts of the sequence that torchtitan's chunked loss takes one after another."""
COMPONENTS = {
    frozenset(("model", "loss")): "on",
    frozenset(("model",)): "model",
    frozenset(("loss",)): "loss",
}
DISPATCHERS = {"deepep": "deepep", "hybridep": "hybridep"}
OPTIMIZERS = {"for-loop": "for_loop", "foreach": "foreach", "fused": "fused"}


def _splits_sequence(recipe: Recipe, layout: Layouts) -> Mask:
    return np.asarray(layout.sp, bool) & (np.asarray(layout.tp) > 1)


def _splits_tensors(recipe: Recipe, layout: Layouts) -> Mask:
    return np.asarray(layout.tp) > 1


def _has_experts(recipe: Recipe, layout: Layouts) -> Mask:
    return np.asarray(recipe.model.moe is not None)


def _exchanges(recipe: Recipe, layout: Layouts) -> Mask:
    return np.asarray(_has_experts(recipe, layout) & (np.asarray(layout.ep) > 1))


def _shards(recipe: Recipe, layout: Layouts) -> Mask:
    return np.asarray(layout.sharded(2) & (np.asarray(layout.replicas) > 1))


def _replicates(recipe: Recipe, layout: Layouts) -> Mask:
    return ~np.asarray(layout.sharded(2))


def _mixes(recipe: Recipe, layout: Layouts) -> Mask:
    return np.asarray(recipe.precision != "fp32")


def _compiles_layers(recipe: Recipe, layout: Layouts) -> Mask:
    return np.asarray(setting(recipe, "compile", "off") in ("on", "model"))


def _no_pipeline(recipe: Recipe, layout: Layouts) -> Mask:
    return ~layout.pipelined


def _no_exchange(recipe: Recipe, layout: Layouts) -> Mask:
    return ~np.asarray(_exchanges(recipe, layout))


def _whole_chunks(recipe: Recipe, layout: Layouts) -> Mask:
    return np.asarray(recipe.seq_length % (layout.cp * CHUNKS) == 0)


def _predicts_one_token(recipe: Recipe, layout: Layouts) -> Mask:
    return np.asarray(not recipe.model.mtp_layers)


def _has_symmetric_memory(recipe: Recipe, layout: Layouts) -> Mask:
    return np.asarray(recipe.hardware.gpu.compute_capability >= 9.0)


def _copies_divide(recipe: Recipe, layout: Layouts) -> Mask:
    copies, dp = _copies(recipe), np.asarray(layout.dp)
    own = dp // copies * layout.cp
    shared = (dp % copies == 0) & (own * layout.tp % np.asarray(layout.ep) == 0)
    return np.asarray(shared & (own > 1))


def _copies(recipe: Recipe) -> int:
    return int(setting(recipe, "data_parallel_replicate_degree", 1))


def _read_compile(plain: Plain) -> Value | None:
    """torchtitan's own key, the Trainer's argument, or Accelerate's backend of dynamo."""
    backend = str(plain.get("dynamo_config.dynamo_backend") or "no").lower()
    if plain.get("hf.torch_compile") or backend == "inductor":
        return "on"
    enabled = plain.get("compile")
    if not isinstance(enabled, bool):
        return None
    stated = plain.get("compile.components")
    parts = (
        frozenset(map(str, stated)) if isinstance(stated, list) else frozenset(("model", "loss"))
    )
    return COMPONENTS.get(parts, "off") if enabled else "off"


def _read_graphs(plain: Plain) -> Value | None:
    stated = plain.get("training.disable_cuda_graphs")
    return not stated if isinstance(stated, bool) else None


def _read_async(plain: Plain) -> Value | None:
    names = ("parallelism.enable_async_tensor_parallel", "compile.enable_async_tensor_parallel")
    return True if any(plain.get(name) for name in names) else None


def _read_chunked(plain: Plain) -> Value | None:
    return True if plain.get("loss.num_chunks") else None


def _read_loss_parallel(plain: Plain) -> Value | None:
    return False if plain.get("parallelism.disable_loss_parallel") else None


def _read_dispatcher(plain: Plain) -> Value | None:
    stated = plain.get("parallelism.expert_parallel_comm_backend") or plain.get(
        "model.moe_comm_backend"
    )
    return DISPATCHERS.get(str(stated), "alltoall") if stated else None


def _read_optimizer(plain: Plain) -> Value | None:
    stated = str(plain.get("optimizer.implementation") or "")
    return stated if stated == "fused_opt_states_bf16" else OPTIMIZERS.get(stated)


def _read_dtype(plain: Plain) -> Value | None:
    return "bf16" if plain.get("training.dtype") == "bfloat16" else None


def _read_symmetric(plain: Plain) -> Value | None:
    return True if plain.get("parallelism.enable_fsdp_symm_mem") else None


def _read_liger(plain: Plain) -> Value | None:
    return True if any(plain.get(name) for name in LIGER) else None


def _read_copies(plain: Plain) -> Value | None:
    """Copies of what is sharded, over the ranks of dp and cp; where nothing is, they are plain
    replicas (DDP).
    """
    copies = plain.get("data_parallel_replicate_degree")
    if not isinstance(copies, int) or isinstance(copies, bool) or copies <= 1:
        return None
    alone = plain.get("context_parallel_size") in (None, 1)
    return None if alone and plain.get("data_parallel_shard_degree") == 1 else copies


def _compile(value: str, components: tuple[str, ...]) -> Spelling:
    keys = (("compile.enable", True), ("compile.components", components))
    return Spelling(value, titan=keys, toml=keys, accelerate=None)


_INDUCTOR = (
    ("dynamo_config.dynamo_backend", "INDUCTOR"),
    ("dynamo_config.dynamo_use_regional_compilation", True),
)
_ENABLED = (("compile.enable", True),)
_DISABLED = (("compile.enable", False),)
_COPIES = (("parallelism.data_parallel_replicate_degree", "{value}"),)


def _optimizer(value: str, word: str) -> Spelling:
    keys = (("optimizer.implementation", word),)
    return Spelling(value, titan=keys, toml=keys, accelerate=None)


def _size(name: str, help: str, default: int, says: str, lowest: int = 1) -> Switch:
    """A size of the benchmark that tune runs; no file of torchtitan's or Accelerate's holds it."""
    spelling = Spelling(default, titan=None, toml=None, accelerate=None)
    return Switch(name, help, (), default, "same", (spelling,), says, BENCHMARK, lowest=lowest)


SWITCHES = (
    Switch(
        "compile",
        "Layers and loss are compiled by torch.compile: off, loss, model (the layers) or on"
        " (both).",
        ("off", "loss", "model", "on"),
        "off",
        "reassociated",
        (
            Spelling("off", titan=_DISABLED, toml=_DISABLED),
            _compile("loss", ("loss",)),
            _compile("model", ("model",)),
            Spelling("on", titan=_ENABLED, toml=_ENABLED, accelerate=_INDUCTOR),
        ),
        "fuses what is no product: less memory traffic, and fewer tensors that are kept",
        "torchtitan's tables: Llama 3 8B on 8 H100 5,762 to 6,667 tokens/s, 82.4 to 77.0 GiB (2024,"
        " norms not fused yet); on 4 GB200 +6.9% (2026, pull request 3105)",
        read=_read_compile,
    ),
    Switch(
        "cuda_graphs",
        "Forward and backward pass are captured once and replayed (torchtitan 0.3).",
        (False, True),
        False,
        "same",
        (
            Spelling(False, titan=(("training.disable_cuda_graphs", True),)),
            Spelling(
                True,
                titan=(("training.disable_cuda_graphs", False),),
                toml=None,
                accelerate=None,
            ),
        ),
        "takes launches off the CPU, and holds memory of its own",
        "[torchtitan] trainer.py _validate_cuda_graphs; on by default in 0.3",
        needs=(
            Need(
                "graphs take no pipeline",
                _no_pipeline,
                "torchtitan captures no pipeline, but got cuda_graphs on with pp={layout.pp}",
                "turn cuda_graphs off (--training.disable_cuda_graphs)",
            ),
            Need(
                "graphs take no exchange of tokens",
                _no_exchange,
                "torchtitan captures experts of one rank alone (others wait for the host), but got"
                " cuda_graphs on with ep={layout.ep}",
                "turn cuda_graphs off (--training.disable_cuda_graphs)",
            ),
            Need(
                "graphs take no images",
                sees_no_images,
                "a graph of the whole pass needs shapes that do not change, but images differ in"
                " size and number",
                "turn cuda_graphs off (--training.disable_cuda_graphs)",
            ),
        ),
        read=_read_graphs,
    ),
    Switch(
        "async_tensor_parallel",
        "Gathers and scatters of tensor parallelism run beside parts of the products.",
        (False, True),
        False,
        "reassociated",
        (
            Spelling(False),
            Spelling(
                True,
                titan=(("compile.enable_async_tensor_parallel", True),),
                toml=(("parallelism.enable_async_tensor_parallel", True),),
                accelerate=None,
            ),
        ),
        "hides tensor-parallel communication",
        "torchtitan's tables, tp 8 on H100: 8B 4,378 to 4,809 tokens/s, 70B 597 to 652, in 8 bits"
        " 810 to 942 and 600 to 625",
        acts=_splits_sequence,
        needs=(
            Need(
                "asynchronous tp is compiled",
                _compiles_layers,
                "asynchronous tensor parallelism is made by the compiler, but the layers are not"
                " compiled",
                "set compile on, or leave async_tensor_parallel off",
            ),
        ),
        read=_read_async,
    ),
    Switch(
        "loss_parallel",
        "The loss is computed on each rank's part of the vocabulary; 0.3 always does.",
        (False, True),
        True,
        "reassociated",
        (
            Spelling(False, titan=None, toml=(("parallelism.disable_loss_parallel", True),)),
            Spelling(True),
        ),
        "logits are not gathered over tp",
        "[torchtitan] 0.2.2 config/job_config.py disable_loss_parallel",
        exists=_splits_tensors,
        read=_read_loss_parallel,
    ),
    Switch(
        "chunked_loss",
        "Head and loss take an eighth of the sequence at a time (torchtitan 0.3).",
        (False, True),
        False,
        "reassociated",
        (
            Spelling(False),
            Spelling(True, titan=(("loss.num_chunks", CHUNKS),), toml=None, accelerate=None),
        ),
        "logits of an eighth of the tokens",
        "[torchtitan] components/loss.py ChunkedLossWrapper; bytes counted; time alike in pull"
        " request 996",
        needs=(
            Need(
                "chunks of the loss are even",
                _whole_chunks,
                "the chunked loss cuts the tokens of a rank into 8 equal parts, but got"
                " seq_length={recipe.seq_length} and cp={layout.cp}",
                "leave chunked_loss off",
            ),
            Need(
                "the chunked loss predicts one token",
                _predicts_one_token,
                "torchtitan's chunked loss takes no multi-token prediction, but"
                " {recipe.model.name} has it",
                "leave chunked_loss off",
            ),
        ),
        read=_read_chunked,
    ),
    Switch(
        "moe_dispatcher",
        "How tokens reach their experts: alltoall, deepep or hybridep.",
        ("alltoall", "deepep", "hybridep"),
        "alltoall",
        "reassociated",
        (
            Spelling("alltoall"),
            Spelling(
                "deepep",
                titan=(("registry.moe_comm_backend", "deepep"),),
                toml=(("parallelism.expert_parallel_comm_backend", "deepep"),),
                accelerate=None,
            ),
            Spelling(
                "hybridep",
                titan=(("registry.moe_comm_backend", "hybridep"),),
                toml=None,
                accelerate=None,
            ),
        ),
        "the libraries send a token once to each NVLink domain",
        "[torchtitan] models/common/token_dispatcher.py; 0.2.2 expert_parallel_comm_backend",
        exists=_has_experts,
        acts=_exchanges,
        needs=(
            SEND_TOKENS,
            Need(
                "the dispatcher's tokens split evenly",
                lambda recipe, layout: np.asarray(recipe.seq_length % (layout.cp * layout.tp) == 0),
                "the dispatcher gives cp and tp equal parts of a sequence, but got"
                " seq_length={recipe.seq_length}, cp={layout.cp} and tp={layout.tp}",
                "set moe_dispatcher alltoall",
            ),
        ),
        read=_read_dispatcher,
    ),
    Switch(
        "optimizer_implementation",
        "How AdamW runs: for_loop (tensor by tensor), foreach, fused, or fused_opt_states_bf16"
        " (moments in 16 bits; torchtitan 0.3).",
        ("for_loop", "foreach", "fused", "fused_opt_states_bf16"),
        "fused",
        "reassociated",
        (
            _optimizer("for_loop", "for-loop"),
            _optimizer("foreach", "foreach"),
            Spelling("fused"),
            Spelling(
                "fused_opt_states_bf16",
                titan=(("optimizer.implementation", "fused_opt_states_bf16"),),
                toml=None,
                accelerate=None,
            ),
        ),
        "memory traffic of the update, and bytes of its moments",
        "[torchtitan] components/optimizer/optimizer.py; fused over foreach: +1.5 to 2% of a step"
        " of 8B on 8 A100 (pull request 355)",
        lossy=("fused_opt_states_bf16",),
        read=_read_optimizer,
    ),
    Switch(
        "training_dtype",
        "What parameters, gradients and moments are kept in: fp32 or bf16.",
        ("fp32", "bf16"),
        "fp32",
        "same",
        (
            Spelling("fp32"),
            Spelling(
                "bf16",
                titan=(("training.dtype", "bfloat16"),),
                toml=(("training.dtype", "bfloat16"),),
                accelerate=None,
            ),
        ),
        "half the states; training loses accuracy",
        "[torchtitan] config/configs.py TrainingConfig.dtype; loss 8 in place of 7 after 100 steps"
        " of 8B (issue 1646)",
        lossy=("bf16",),
        needs=(
            Need(
                "states of bf16 are not of fp32 runs",
                _mixes,
                "training_dtype bf16 computes in bf16 too, but got precision {recipe.precision}",
                "try precision bf16, or training_dtype fp32",
            ),
        ),
        read=_read_dtype,
    ),
    Switch(
        "fsdp_symm_mem",
        "FSDP's collectives run on symmetric memory (torchtitan 0.3).",
        (False, True),
        False,
        "same",
        (
            Spelling(False),
            Spelling(
                True,
                titan=(("parallelism.enable_fsdp_symm_mem", True),),
                toml=None,
                accelerate=None,
            ),
        ),
        "leaves multiprocessors to the products; 1 to 6% were measured, nothing is counted yet",
        "[torchtitan] pull request 3105: 4 GB200, 8B +2.3%, Qwen3-32B +2.4%, GPT-OSS-20B +6.3%",
        acts=_shards,
        needs=(
            Need(
                "symmetric memory needs Hopper",
                _has_symmetric_memory,
                "FSDP on symmetric memory needs compute capability 9.0 or more, but"
                " {recipe.hardware.name} has {recipe.hardware.gpu.compute_capability}",
                "leave fsdp_symm_mem off",
            ),
        ),
        read=_read_symmetric,
    ),
    Switch(
        "data_parallel_replicate_degree",
        "Copies of what is sharded: shards lie within dp / copies ranks (HSDP).",
        (),
        1,
        "reassociated",
        (
            Spelling(
                1,
                titan=_COPIES,
                toml=_COPIES,
                accelerate=(
                    ("parallelism_config.parallelism_config_dp_replicate_size", "{value}"),
                ),
            ),
        ),
        "gathers among fewer ranks, more states on each, gradients summed over the copies besides",
        "[torchtitan] distributed/parallel_dims.py; [torch-fsdp] foreach_reduce: after each"
        " reduce-scatter an all-reduce in its precision, every micro-batch",
        acts=_shards,
        searched=copies,
        needs=(
            Need(
                "copies divide the data parallelism",
                _copies_divide,
                "data_parallel_replicate_degree must divide dp and leave a copy several ranks, ep"
                " must divide those, but got dp={layout.dp}, cp={layout.cp} and ep={layout.ep}",
                "set it to a smaller divisor of dp, or 1; zero 0 replicates all",
            ),
        ),
        read=_read_copies,
    ),
    Switch(
        "liger_kernel",
        "Liger's kernels: the head is fused with the loss, logits are never whole (scripts of"
        " transformers).",
        (False, True),
        False,
        "reassociated",
        (
            Spelling(False),
            Spelling(True, (("--liger-loss",),), titan=None, toml=None),
        ),
        "memory of the logits",
        "Liger-Kernel README: Llama 3 8B, 8 A100, +20% tokens/s, -60% memory; mostly the logits",
        read=_read_liger,
    ),
    Switch(
        "overlap_reduce",
        "Gradients are reduced by DDP beside the backward pass, or after it (tune's benchmark).",
        (False, True),
        True,
        "same",
        (Spelling(False, titan=None, toml=None, accelerate=None), Spelling(True)),
        "hides the reduction",
        BENCHMARK,
        exists=_replicates,
    ),
    _size("bucket_cap_mb", "MiB of a bucket of DDP.", 25, "size of messages"),
    _size(
        "reduce_bucket_numel",
        "Elements of a bucket where gradients are reduced after the backward pass.",
        64 * 2**20,
        "size of messages",
    ),
    _size(
        "prefetch_layers",
        "Layers that fully_shard gathers ahead.",
        0,
        "hides gathers, and holds what is fetched",
        lowest=0,
    ),
    EXPANDABLE_SEGMENTS,
)
