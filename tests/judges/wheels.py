"""Wheels of other projects, unpacked beside this one on first use: tests ask their own parsers
about the files that are written.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
WITH = {
    "torchtitan": (
        "tyro==1.0.17",
        "docstring_parser==0.18.0",
        "typeguard==4.6.1",
        "spmd_types==0.2.3",
        "torch_checkpointing==0.1.1",
        "torchdata==0.11.0",
        "einops==0.8.2",
        "safetensors==0.8.0",
        "tokenizers==0.23.3",
    ),
    "megatron-bridge": ("omegaconf==2.3.0", "hydra-core==1.3.2", "antlr4-python3-runtime==4.9.3"),
    "skypilot": (
        "jsonschema==4.26.0",
        "jsonschema-specifications==2025.9.1",
        "referencing==0.37.0",
        "rpds-py==2026.9.1",
        "attrs==26.1.0",
    ),
}
"""What a project's parser imports; nothing else of its dependencies."""


def wheel(name: str, version: str) -> Path:
    """The folder of `name` at `version`, installed without its dependencies."""
    folder = ROOT / ".mcore" / f"{name}-{version}"
    if not folder.is_dir():
        folder.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as unpacked:
            target = Path(unpacked) / "wheel"
            command = [
                sys.executable,
                "-m",
                "pip",
                "install",
                "-q",
                "--target",
                str(target),
                "--no-deps",
                "--ignore-requires-python",
                f"{name}=={version}",
                *WITH.get(name, ()),
            ]
            subprocess.run(command, check=True, capture_output=True, text=True)
            if not folder.is_dir():
                target.rename(folder)
    return folder


def environment(name: str, version: str) -> dict[str, str]:
    """That of a process that imports it and sees no GPU."""
    return {
        **os.environ,
        "PYTHONPATH": str(wheel(name, version)),
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
    }
