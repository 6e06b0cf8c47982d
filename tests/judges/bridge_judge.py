"""The process that judges Megatron-Bridge's files: its own recipes, overrides and validation, on a
CPU.

Stand-ins serve for GPU packages that it imports, and for the sizes that a recipe would fetch from
the Hub: the case brings them. Reads cases as JSON lines (files, words: what the script is called
with, sizes, gpus) and answers each with a JSON line.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import sys
import tempfile
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch.utils.flop_counter  # asks for a true triton at import
import yaml
from stand_ins import stand_in  # beside this file: it runs as a script

ABSENT = (
    "six",
    "triton",
    "transformer_engine",
    "nvidia_resiliency_ext",
    "modelopt",
    "transformers",
    "datasets",
    "accelerate",
    "flash_attn",
    "mamba_ssm",
    "causal_conv1d",
    "wandb",
    "PIL",
    "torchvision",
    "huggingface_hub",
    "nemo_run",
    "peft",
    "timm",
    "fla",
    "qwen_vl_utils",
    "multistorageclient",
    "tensorboard",
    "torch.utils.tensorboard",
    "onnx",
    "tiktoken",
    "sentencepiece",
    "flashinfer",
    "nltk",
    "regex",
    "ftfy",
    "megatron.energon",
    "webdataset",
    "av",
    "decord",
    "soundfile",
    "safetensors",
)
MODEL = (
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "virtual_pipeline_model_parallel_size",
    "context_parallel_size",
    "sequence_parallel",
    "expert_model_parallel_size",
    "expert_tensor_parallel_size",
    "recompute_granularity",
    "recompute_method",
    "recompute_num_layers",
    "recompute_modules",
    "seq_length",
    "bf16",
    "fp16",
    "fp8",
    "fp8_recipe",
    "fp4",
    "overlap_p2p_comm",
    "batch_p2p_comm",
    "moe_token_dispatcher_type",
    "tp_comm_overlap",
    "cp_comm_type",
    "account_for_embedding_in_pipeline_split",
)


def module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location("train_bridge", path)
    assert spec and spec.loader
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def understood(case: dict[str, Any], folder: Path) -> dict[str, Any]:
    from megatron.bridge import AutoBridge
    from megatron.bridge.models.gpt_provider import GPTModelProvider
    from megatron.bridge.models.mla_provider import MLAModelProvider
    from megatron.bridge.training.config import runtime_config_update

    torch.cuda.get_device_properties = lambda device=None: SimpleNamespace(
        major=case["arch"], minor=0, name=case["gpu"]
    )
    sizes = dict(case["sizes"])
    kind = MLAModelProvider if sizes.pop("mla") else GPTModelProvider
    AutoBridge.from_hf_pretrained = staticmethod(
        lambda *words, **named: SimpleNamespace(to_megatron_provider=lambda **more: kind(**sizes))
    )
    for name, text in case["files"].items():
        (folder / name).write_text(text)
    words = dict(zip(case["words"][:6:2], case["words"][1:6:2], strict=True))
    script = module(folder / "train_bridge.py")
    config = script.config(
        words["--recipe"],
        words["--precision"],
        str(folder / words["--overrides"]),
        case["words"][6:],
    )
    given = yaml.safe_load((folder / "bridge_overrides.yaml").read_text())
    unknown = [
        f"{part}.{name}"
        for part, named in given.items()
        for name in named
        if not hasattr(getattr(config, part), name)
    ]
    os.environ["WORLD_SIZE"] = str(case["gpus"])
    runtime_config_update(config)
    return {
        "unknown": unknown,
        "dp": config.data_parallel_size,
        "m": config.train.global_batch_size // config.data_parallel_size,
        "mbs": config.train.micro_batch_size,
        "gbs": config.train.global_batch_size,
        "train_iters": config.train.train_iters,
        "fsdp": config.ddp.use_megatron_fsdp,
        "strategy": config.ddp.data_parallel_sharding_strategy,
        "distributed": [
            config.ddp.use_distributed_optimizer,
            config.optimizer.use_distributed_optimizer,
        ],
        "reduce": config.ddp.grad_reduce_in_fp32,
        "overlap": [config.ddp.overlap_grad_reduce, config.ddp.overlap_param_gather],
        "states": str(config.optimizer.exp_avg_dtype),
        "model": {name: getattr(config.model, name, "absent") for name in MODEL},
    }


def main() -> None:
    logging.disable(logging.ERROR)
    warnings.simplefilter("ignore")
    assert torch.utils.flop_counter
    stand_in(*ABSENT)
    for line in sys.stdin:
        with tempfile.TemporaryDirectory() as folder:
            try:
                said: dict[str, Any] = {
                    "accepted": True,
                    "message": "",
                    **understood(json.loads(line), Path(folder)),
                }
            except (Exception, SystemExit) as fault:
                said = {"accepted": False, "message": f"{type(fault).__name__}: {fault}"[:800]}
        print("\nverdict " + json.dumps(said, default=str), flush=True)


if __name__ == "__main__":
    main()
