"""The process that judges flags: Megatron-LM's own code with stand-ins only for what a GPU or an
NVIDIA package would supply.

Reads cases as JSON lines (the fields of megatron_oracle.Case) and answers each with a JSON line,
from a fork of one warm process.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from megatron_build import accepts, build, process_groups  # beside this file: it runs as a script


def _stand_in_for_triton() -> None:
    """Its decorators run at import; afterwards torch must see that it is not there."""
    import importlib.util
    from unittest import mock

    if importlib.util.find_spec("triton") is None:
        sys.modules.update(
            {"triton": mock.MagicMock(__version__="3.5.0"), "triton.language": mock.MagicMock()}
        )


def _import_megatron() -> None:
    import megatron.core.distributed
    import megatron.core.models.gpt.gpt_layer_specs
    import megatron.core.optimizer
    import megatron.core.tokenizers.text  # else every case imports it
    import megatron.core.tokenizers.utils.build_tokenizer
    import megatron.training.arguments  # noqa: F401

    for name in ("triton", "triton.language"):
        if not isinstance(sys.modules.get(name), type(os)):
            sys.modules.pop(name, None)


FUSED = (
    "fused_permute",
    "fused_permute_with_probs",
    "fused_sort_chunks_by_index",
    "fused_sort_chunks_by_index_with_probs",
    "fused_unpermute",
)
"""Kernels of Transformer Engine 2.1 that --moe-permute-fusion asks for."""


def _stand_in_for_gpu(machine: Any) -> None:
    """Device properties, Transformer Engine's version and the symbols whose presence Megatron asks
    for.
    """
    import importlib.machinery
    import types
    import typing

    import torch
    import typing_extensions

    if not hasattr(typing, "override"):
        typing.override = typing_extensions.override  # type: ignore[attr-defined]
    torch.compile = lambda function=None, **_: function or (lambda inner: inner)
    torch.cuda.get_device_properties = lambda *_: machine  # type: ignore[assignment]
    torch.cuda.get_device_capability = lambda *_: (machine.major, machine.minor)

    import megatron.core.models.common.embeddings.rope_utils as rope
    import megatron.core.transformer.transformer_config as configuration
    import megatron.core.utils as core
    from packaging.version import Version

    core._te_version = Version("2.14.0")
    # packages of a machine with GPUs, not what flags mean
    configuration._validate_dsa_kernel_backend_dependencies = lambda *_: None
    for symbol in ("fused_apply_rotary_pos_emb", "fused_apply_rotary_pos_emb_thd"):
        if getattr(rope, symbol, None) is None:
            setattr(rope, symbol, lambda *_: None)
    import megatron.core.transformer.moe.moe_utils as experts

    for symbol in FUSED:
        if getattr(experts, symbol, None) is None:
            setattr(experts, symbol, lambda *_: None)
    for name in (
        "transformer_engine",
        "transformer_engine.pytorch",
        "transformer_engine.pytorch.optimizers",
    ):
        module = types.ModuleType(name)
        module.__path__ = []
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        module.__version__ = "2.14.0"  # type: ignore[attr-defined]
        module.FusedAdam = _fused_adam()  # type: ignore[attr-defined]
        sys.modules.setdefault(name, module)


def _make_parser_once() -> None:
    """The parser of every case is the same, and takes most of a case's time where each makes its
    own.
    """
    import argparse

    import megatron.training.arguments as arguments

    parser = arguments.add_megatron_arguments(argparse.ArgumentParser(allow_abbrev=False))
    arguments.add_megatron_arguments = lambda empty: parser


def _fused_adam() -> type:
    """Megatron reads the names of its parameters to know what the optimizer can do."""

    class FusedAdam:
        def __init__(
            self,
            params=None,
            master_weight_dtype=None,
            exp_avg_dtype=None,
            exp_avg_sq_dtype=None,  # type: ignore[no-untyped-def]
            use_decoupled_grad=None,
            store_param_remainders=None,
        ) -> None: ...

    return FusedAdam


SWITCHES = (
    "overlap_grad_reduce",
    "overlap_param_gather",
    "overlap_p2p_comm",
    "tp_comm_overlap",
    "ddp_bucket_size",
    "cross_entropy_loss_fusion",
    "cuda_graph_impl",
    "cuda_graph_modules",
    "moe_token_dispatcher_type",
    "moe_flex_dispatcher_backend",
    "moe_permute_fusion",
    "moe_router_fusion",
    "overlap_moe_expert_parallel_comm",
)
"""Arguments of switches, null where a version has none of the name; of modules their names."""


def _plain(value: Any) -> Any:
    """What JSON holds of an argument: names of an enumeration in place of its members."""
    if isinstance(value, (list, tuple)):
        return [_plain(member) for member in value]
    return str(getattr(value, "name", value)) if hasattr(value, "name") else value


def _parse(case: dict[str, Any]) -> Any:
    import megatron.training.arguments as arguments

    sys.argv = ["pretrain_gpt.py", *case["flags"]]
    args = arguments.parse_args()
    args.rank, args.world_size = 0, case["world_size"]
    return args


def _validate(args: Any) -> Any:
    import megatron.training.arguments as arguments

    arguments.validate_args(args, {"tokenizer_type": "GPT2BPETokenizer"})
    return arguments.core_transformer_config_from_args(args)


def _training_configs(args: Any) -> None:
    from dataclasses import fields

    from megatron.core.distributed import DistributedDataParallelConfig
    from megatron.core.optimizer import OptimizerConfig

    for kind, more in (
        (OptimizerConfig, {}),
        (
            DistributedDataParallelConfig,
            {
                "grad_reduce_in_fp32": args.accumulate_allreduce_grads_in_fp32,
                "bucket_size": args.ddp_bucket_size,
            },
        ),
    ):
        given = {f.name: getattr(args, f.name) for f in fields(kind) if hasattr(args, f.name)}
        kind(**{**given, **more})


def _micro_batches(args: Any) -> int:
    import megatron.core.num_microbatches_calculator as calculator

    start = calculator.init_num_microbatches_calculator
    start(
        **accepts(
            start,
            rank=0,
            rampup_batch_size=args.rampup_batch_size,
            global_batch_size=args.global_batch_size,
            micro_batch_size=args.micro_batch_size,
            data_parallel_size=args.data_parallel_size,
            decrease_batch_size_if_needed=args.decrease_batch_size_if_needed,
            seq_length=args.seq_length,
        )
    )
    return int(calculator.get_num_microbatches())


def _interleaving(args: Any, config: Any, m: int) -> None:
    """The two checks at the head of forward_backward_pipelining_with_interleaving, which needs a
    running pipeline to be called.
    """
    pp, group = (
        args.pipeline_model_parallel_size,
        getattr(config, "microbatch_group_size_per_vp_stage", None),
    )
    if args.virtual_pipeline_model_parallel_size is None or pp == 1 or group is None:
        return
    if not pp <= group <= m:
        raise ValueError(
            f"interleaving: the group of micro-batches must lie between pp={pp} and m={m}, but is"
            f" {group}"
        )
    if 0 < m % group < pp:
        raise RuntimeError(
            f"interleaving: m={m} leaves a rest of {m % group} in groups of {group}, less than"
            f" pp={pp}"
        )


def _fewer_replicas(args: Any, world_size: int) -> int:
    """A smaller world that divides into groups, or does not, as the whole one: Megatron makes tens
    of thousands of groups in Python.
    """
    replica = (
        args.tensor_model_parallel_size
        * args.pipeline_model_parallel_size
        * args.context_parallel_size
    )
    experts = (
        args.expert_tensor_parallel_size
        * args.expert_model_parallel_size
        * args.pipeline_model_parallel_size
    )
    ranks = args.tensor_model_parallel_size * args.pipeline_model_parallel_size
    instances = getattr(args, "num_distributed_optimizer_instances", 1)
    groups = (experts, ranks * instances, experts * instances)
    whole = [world_size % size == 0 for size in groups]
    worlds = range(2 * replica, world_size, replica)
    alike = (world for world in worlds if [world % size == 0 for size in groups] == whole)
    return next(alike, world_size)


def _padded_vocab(args: Any) -> int:
    """As the tokenizer of this version pads by itself, whatever the flags say of it."""
    import copy

    from megatron.core.tokenizers.utils.build_tokenizer import build_tokenizer

    unpadded = copy.copy(args)
    unpadded.padded_vocab_size = None
    build_tokenizer(unpadded)
    return int(unpadded.padded_vocab_size)


def _judge(case: dict[str, Any]) -> dict[str, Any]:
    """Runs the stages in order; each may refuse."""
    stage, facts = "parse_args", {}
    try:
        args = _parse(case)
        stage = "validate_args, TransformerConfig"
        config = _validate(args)
        stage = "optimizer and DDP configuration"
        _training_configs(args)
        stage = "micro-batches"
        facts["m"] = _micro_batches(args)
        _interleaving(args, config, facts["m"])
        stage = "process groups"
        process_groups(
            args,
            0,
            case["world_size"] if case["whole"] else _fewer_replicas(args, case["world_size"]),
        )
        stage = "tokenizer"
        facts["padded_vocab"] = _padded_vocab(args)
        facts["dp"], facts["v"] = (
            args.data_parallel_size,
            args.virtual_pipeline_model_parallel_size or 1,
        )
        facts["switches"] = {name: _plain(getattr(args, name, None)) for name in SWITCHES}
        if case["build"]:
            stage = "GPTModel"
            facts["stages"] = build(args, config)
    except (Exception, SystemExit) as refusal:
        return {
            "accepted": False,
            "stage": stage,
            "message": str(refusal) or type(refusal).__name__,
            **facts,
        }
    return {"accepted": True, "stage": "", "message": "", **facts}


def _arguments() -> dict[str, dict[str, list[str]]]:
    """Every argument of the parser with its flags, by its group."""
    import argparse

    import megatron.training.arguments as arguments

    parser = arguments.add_megatron_arguments(argparse.ArgumentParser(allow_abbrev=False))
    return {
        str(group.title): {action.dest: action.option_strings for action in group._group_actions}
        for group in parser._action_groups
    }


def _parses(command_lines: list[list[str]]) -> dict[str, list[bool]]:
    """Whether the parser takes each command line, before anything is validated."""
    import argparse

    import megatron.training.arguments as arguments

    parser = arguments.add_megatron_arguments(argparse.ArgumentParser(allow_abbrev=False))
    taken = []
    for words in command_lines:
        try:
            parser.parse_args(words)
        except (Exception, SystemExit):
            taken.append(False)
        else:
            taken.append(True)
    return {"taken": taken}


def _answer(answers: int, case: dict[str, Any], verdict: dict[str, Any]) -> None:
    os.write(answers, (json.dumps({"name": case["name"], **verdict}) + "\n").encode())


def _answer_in_fork(case: dict[str, Any], machine: Any, answers: int) -> None:
    machine.major = case["arch"]
    os.environ.pop("CUDA_DEVICE_MAX_CONNECTIONS", None)
    os.environ.update({name: value for name, value in case["env"].items() if value is not None})
    os.environ.update(WORLD_SIZE=str(case["world_size"]), RANK="0", MASTER_ADDR="127.0.0.1")
    _answer(answers, case, _judge(case))
    os._exit(0)


def _main() -> None:
    """One import for all cases, one fork for each: Megatron keeps its state in globals."""
    import logging
    import types
    import warnings

    answers = os.dup(1)
    os.dup2(2, 1)
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    machine = types.SimpleNamespace(
        major=9, minor=0, name="stand-in", total_memory=80 << 30, multi_processor_count=132
    )
    _stand_in_for_triton()
    _stand_in_for_gpu(machine)
    _import_megatron()
    _make_parser_once()
    for line in sys.stdin:
        case = json.loads(line)
        if case.get("arguments"):
            _answer(answers, case, _arguments())
            continue
        if case.get("parse"):
            _answer(answers, case, _parses(case["parse"]))
            continue
        child = os.fork()
        if child == 0:
            _answer_in_fork(case, machine, answers)
        _, status = os.waitpid(child, 0)
        if status:
            _answer(
                answers, case, {"accepted": False, "stage": "died", "message": f"status {status}"}
            )


if __name__ == "__main__":
    _main()
