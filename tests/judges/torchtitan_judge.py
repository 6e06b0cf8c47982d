"""The process that judges torchtitan's files: its own code, with stand-ins for packages that it
imports and the parsers do not use.

Reads cases as JSON lines (the fields of torchtitan_oracle.Case) and answers each with a JSON line.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.utils.flop_counter  # asks for a true triton at import
from stand_ins import stand_in  # beside this file: it runs as a script
from torch.distributed.pipelining._schedule_visualizer import get_schedule_ops
from torch.testing._internal.distributed.fake_pg import FakeStore

CONVERTERS = ("Float8LinearConverter", "MXFP8LinearConverter", "NVFP4LinearConverter")


def facts(parallelism: Any, training: Any) -> dict[str, Any]:
    return {
        **dataclasses.asdict(parallelism),
        **{k: v for k, v in dataclasses.asdict(training).items() if k != "dataloader"},
    }


def mesh(parallelism: Any, gpus: int) -> None:
    """The process groups' meshes on as many ranks, without any communication; of another split of
    experts 0.2 raises.
    """
    from torchtitan.distributed import ParallelDims

    names = {f.name for f in dataclasses.fields(ParallelDims)}
    words = {
        "dp_replicate": parallelism.data_parallel_replicate_degree,
        "dp_shard": parallelism.data_parallel_shard_degree,
        "cp": parallelism.context_parallel_degree,
        "tp": parallelism.tensor_parallel_degree,
        "pp": parallelism.pipeline_parallel_degree,
        "ep": parallelism.expert_parallel_degree,
        "etp": 1,
        "world_size": gpus,
    }
    dims = ParallelDims(**{name: value for name, value in words.items() if name in names})
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=gpus)
    try:
        dims.build_mesh()
    finally:
        dist.destroy_process_group()


def schedule(parallelism: Any, training: Any, stages: int) -> list[int]:
    """torch's own order of the schedule; micro-batches of a step."""
    pp = parallelism.pipeline_parallel_degree
    m = training.local_batch_size // parallelism.pipeline_parallel_microbatch_size
    get_schedule_ops(parallelism.pipeline_parallel_schedule, pp, m, stages // pp)
    return [m]


def newest(case: dict[str, Any], folder: Path, name: str) -> dict[str, Any]:
    """Of 0.3: the Python file and its flags."""
    from torchtitan.config import ConfigManager
    from torchtitan.distributed import ParallelDims
    from torchtitan.distributed import pipeline_parallel as pipelines
    from torchtitan.models.common.token_dispatcher import LocalTokenDispatcher

    (folder / f"{name}.py").write_text(case["text"])
    flags = [name if word == "torchtitan_plan" else word for word in case["flags"]]
    config = ConfigManager().parse_args(flags)
    out = facts(config.parallelism, config.training)
    policy = config.activation_checkpoint
    out |= {
        "policy": type(policy).__qualname__ if policy else "none",
        "layers": getattr(policy, "layers", 0),
        "compile": config.compile.enable,
        "components": config.compile.components,
        "async": config.compile.enable_async_tensor_parallel,
        "implementation": config.optimizer.implementation,
        "chunks": getattr(config.loss, "num_chunks", 0),
        "dispatchers": sorted(
            {
                type(dispatcher).__qualname__.removesuffix(".Config")
                for _, dispatcher, _, _ in config.model_spec.model.traverse(
                    LocalTokenDispatcher.Config
                )
            }
        ),
        "flavor": [config.model_spec.name, config.model_spec.flavor],
    }
    mesh(config.parallelism, case["gpus"])
    config.model_spec.model.update_from_config(config=config)
    if config.parallelism.pipeline_parallel_degree > 1:
        dims = ParallelDims.from_config(config.parallelism, case["gpus"])
        stages, layers, first, last = pipelines._get_pipeline_metadata(
            dims, config.parallelism, config.model_spec.model
        )
        parts = pipelines._generate_llm_fqn_per_model_part(stages, layers, first, last)
        out["stages"] = [sum(word.startswith("layers.") for word in part) for part in parts]
        out["m"] = schedule(config.parallelism, config.training, stages)
    if case["build"]:
        with torch.device("meta"):
            out["parameters"] = sum(
                weight.numel() for weight in config.model_spec.model.build().parameters()
            )
        if policy:
            with torch.device("meta"):
                model = config.model_spec.model.build()
            policy.build(dump_folder="").apply(model)
            out["wrapped"] = sum(
                "Checkpoint" in type(block).__name__ for block in model.layers.children()
            )
    return out


def older(case: dict[str, Any], folder: Path, name: str) -> dict[str, Any]:
    """Of 0.2: the TOML."""
    import torchtitan.protocols.train_spec as train_spec
    from torchtitan.config import ConfigManager

    path = folder / f"{name}.toml"
    path.write_text(case["text"])
    config = ConfigManager().parse_args(["--job.config_file", str(path), *case["flags"]])
    mesh(config.parallelism, case["gpus"])
    spec = train_spec.get_train_spec(config.model.name)
    args = spec.model_args[config.model.flavor]
    out = facts(config.parallelism, config.training)
    out |= {
        "mode": config.activation_checkpoint.mode,
        "option": config.activation_checkpoint.selective_ac_option,
        "compile": config.compile.enable,
        "components": config.compile.components,
        "async": config.parallelism.enable_async_tensor_parallel,
        "implementation": config.optimizer.implementation,
        "flavor": [config.model.name, config.model.flavor],
        "layers": args.n_layers,
        "converters": config.model.converters,
    }
    if config.parallelism.pipeline_parallel_degree > 1:
        counted = args.n_layers + config.parallelism.pipeline_parallel_first_stage_less_layers
        counted += config.parallelism.pipeline_parallel_last_stage_less_layers
        out["m"] = schedule(
            config.parallelism,
            config.training,
            -(-counted // config.parallelism.pipeline_parallel_layers_per_stage),
        )
    return out


def judged(case: dict[str, Any], read: Any, folder: Path, name: str) -> dict[str, Any]:
    try:
        return {"accepted": True, "message": "", **read(case, folder, name)}
    except (Exception, SystemExit) as fault:
        return {"accepted": False, "message": f"{type(fault).__name__}: {fault}"[:600]}


def capable() -> None:
    """A machine with 8-bit products and symmetric memory; what the converters would make of the
    model is torchao's matter, its attention that of flash-attn's kernels.
    """
    torch.cuda.is_available = lambda: True
    torch.cuda.get_device_capability = lambda device=None: (9, 0)
    from torchtitan.components import quantization
    from torchtitan.tools import utils

    utils.get_cuda_flash_attention_impl = lambda: None
    for name in CONVERTERS:
        converter = getattr(quantization, name)
        converter.__init__ = lambda self, config: None
        converter.convert = lambda self, config: config


def main(version: str) -> None:
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    stand_in(
        "triton",
        "datasets",
        "wandb",
        "PIL",
        "tensorboard",
        "torchvision",
        "torch.utils.tensorboard",
        "google.protobuf",
    )
    read = newest if version.startswith("0.3") else older
    with tempfile.TemporaryDirectory() as folder:
        sys.path.insert(0, folder)
        for at, line in enumerate(sys.stdin):
            case = json.loads(line)
            if case["capable"]:
                capable()
            print(
                json.dumps(
                    judged(case, read, Path(folder), f"plan_{os.getpid()}_{at}"), default=str
                ),
                flush=True,
            )


if __name__ == "__main__":
    main(sys.argv[1])
