"""The process that judges Accelerate's files: its own launcher up to the start of processes, then
its plugins in that environment.

Reads cases as JSON lines (files: name and text; words: what follows `accelerate launch`, with
FOLDER for where the files lie) and answers each with a JSON line.
"""

from __future__ import annotations

import importlib.metadata
import json
import logging
import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any
from unittest import mock

from stand_ins import stand_in  # beside this file: it runs as a script


def understood(case: dict[str, Any], folder: Path) -> dict[str, Any]:
    from accelerate.commands import launch
    from accelerate.parallelism_config import ParallelismConfig
    from accelerate.utils import launch as environments
    from accelerate.utils.dataclasses import DeepSpeedPlugin, FullyShardedDataParallelPlugin

    for name, text in case["files"].items():
        (folder / name).write_text(text)
    words = [word.replace("FOLDER", str(folder)) for word in case["words"]]
    args, defaults, _ = launch._validate_launch_command(
        launch.launch_command_parser().parse_args(words)
    )
    out: dict[str, Any] = {
        "deepspeed": args.use_deepspeed,
        "fsdp": args.use_fsdp,
        "script": args.training_script,
        "rank": int(args.machine_rank),
        "processes": args.num_processes,
        "mixed_precision": args.mixed_precision,
    }
    if args.use_deepspeed:
        args.deepspeed_fields_from_accelerate_config = ",".join(defaults.deepspeed_config)
        with mock.patch.object(environments, "is_port_in_use", return_value=False):
            command, env = environments.prepare_deepspeed_cmd_env(args)
        out["by_torchrun"] = command is None
    else:
        with mock.patch.object(environments, "is_port_in_use", return_value=False):
            env = environments.prepare_multi_gpu_env(args)
    with mock.patch.dict(os.environ, env):
        out["sizes"] = ParallelismConfig()._sizes if args.use_parallelism_config else {}
        if args.use_deepspeed:
            plugin = DeepSpeedPlugin()
            out |= {
                "json": plugin.deepspeed_config,
                "zero": plugin.zero_stage,
                "init": plugin.zero3_init_flag,
            }
        else:
            plugin = FullyShardedDataParallelPlugin()
            out["plugin"] = {
                name: getattr(plugin, name)
                for name in ("fsdp_version", "reshard_after_forward", "activation_checkpointing")
            }
            out["wraps"] = getattr(
                plugin.auto_wrap_policy, "__name__", str(plugin.auto_wrap_policy)
            )
    return out | {
        "torchrun": (
            [int(args.nnodes), int(args.nproc_per_node)] if getattr(args, "nnodes", None) else []
        )
    }


def _version(name: str) -> str:
    """transformers, which is asked for its age, is new."""
    return "99.0" if name == "transformers" else _INSTALLED(name)


_INSTALLED = importlib.metadata.version


def main() -> None:
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    stand_in("huggingface_hub", "safetensors")
    importlib.metadata.version = _version
    for line in sys.stdin:
        with tempfile.TemporaryDirectory() as folder:
            try:
                said: dict[str, Any] = {
                    "accepted": True,
                    "message": "",
                    **understood(json.loads(line), Path(folder)),
                }
            except (Exception, SystemExit) as fault:
                said = {"accepted": False, "message": f"{type(fault).__name__}: {fault}"[:600]}
        print(json.dumps(said, default=str), flush=True)


if __name__ == "__main__":
    main()
