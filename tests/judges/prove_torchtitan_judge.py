"""Runs a `prove.py` of torchtitan on a CPU: `python prove_torchtitan_judge.py PROVE.py`, with
torchtitan's wheel on the path. What it asks of torch.cuda is answered without a GPU, its tensors
lie in the memory of the CPU; all else is torchtitan's own code.
"""

from __future__ import annotations

import runpy
import sys

import torch
import torch._utils
import torch.nn.attention.flex_attention as flex_attention
import torch.utils.flop_counter  # asks for a true triton at import
from prove_judge import without_gpu
from stand_ins import stand_in  # beside this file: it runs as a script


def place_on_cpu() -> None:
    """The device that torchtitan finds is the CPU, with torch.cuda's answers about memory."""
    torch.distributed.set_timeout = lambda *_: None  # torch has it after 2.13
    torch.cuda.current_device = lambda: 0
    torch._utils._get_available_device_type = lambda: "cpu"
    find = torch._utils._get_device_module
    torch._utils._get_device_module = lambda kind: torch.cuda if kind == "cpu" else find(kind)
    flex_attention._validate_device = lambda *_: None  # its plain form has a backward pass here too


if __name__ == "__main__":
    without_gpu()
    place_on_cpu()
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
    runpy.run_path(sys.argv[1], run_name="__main__")
