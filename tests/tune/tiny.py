"""Small questions for the torch benchmark, and a launch of its ranks."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from planner.layout import SCHEDULE_CODE, Layout
from planner.specs import library
from planner.specs.model import ModelSpec, Moe
from planner.specs.recipe import Recipe
from planner.tune.runners.torch_runner import request

RANKS = Path(__file__).with_name("ranks.py")
GBS, SEQ = 8, 16
LLAMA = {
    "name": "tiny",
    "family": "llama",
    "hidden_size": 32,
    "ffn_size": 64,
    "num_layers": 4,
    "num_heads": 4,
    "num_kv_heads": 2,
    "head_dim": 8,
    "vocab_size": 256,
    "max_seq_length": 64,
    "gated_mlp": True,
    "tied_embeddings": False,
    "norm": "rmsnorm",
    "position": "rope",
    "source": "made up",
}
SHORT = LLAMA | {"num_layers": 2}
"""For tensor parallelism, whose tensors cost far more time than their products."""
GPT = SHORT | {
    "num_kv_heads": 4,
    "gated_mlp": False,
    "activation": "gelu",
    "norm": "layernorm",
    "position": "learned",
    "position_rows": 64,
    "attention_bias": "qkvo",
    "mlp_bias": True,
}
QWEN = SHORT | {"qk_norm": True, "norm_place": "both", "norms_per_layer": 4}
MIXTRAL = LLAMA | {
    "moe": Moe(
        num_experts=4,
        experts_per_token=2,
        expert_ffn_size=48,
        shared_ffn_size=16,
        first_dense_layers=1,
    )
}
WIDE = LLAMA | {"ffn_size": 8192}
MODELS = {
    "llama": LLAMA,
    "short": SHORT,
    "gpt": GPT,
    "qwen": QWEN,
    "mixtral": MIXTRAL,
    "wide": WIDE,
}


def recipe(gpus, model="llama", gbs=GBS, seq=SEQ, **more):
    return Recipe(
        model=ModelSpec(**(MODELS[model] | more)),
        hardware=library.hardware("h100-sxm"),
        software=library.stack("megatron"),
        gpus=gpus,
        seq_length=seq,
        global_batch_size=gbs,
        precision="fp32",
    )


def layout(schedule="1f1b", **knobs):
    """The layout of a global batch of GBS sequences; m follows."""
    rest = GBS // (knobs.get("dp", 1) * knobs.setdefault("mbs", 2))
    return Layout(schedule=SCHEDULE_CODE[schedule], m=rest, **({"zero": 0} | knobs))


def asked(model="llama", steps=1, warmup=1, element="float32", switches=None, **knobs):
    one = layout(**knobs)
    made = request(
        recipe(one.gpus, model).model_copy(update={"switches": switches or {}}),
        one,
        one.gpus,
        steps,
        warmup,
    )
    return made | {"optimizer": "descent", "rate": 3.0, "profile": False, "element": element}


def answers(groups, folder, sleep=(), limit_s=400):
    """The worker's answers to (requests, ranks), a process group each, one after another of one
    start of torch. sleep: seconds of each layer's passes beside their work.
    """
    with contextlib.ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in groups]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        ports = [probe.getsockname()[1] for probe in probes]
    asked = [
        {"requests": requests, "ranks": ranks, "port": port}
        for (requests, ranks), port in zip(groups, ports, strict=True)
    ]
    (folder / "groups.json").write_text(json.dumps(asked))
    words = [sys.executable, str(RANKS), str(folder / "groups.json"), *map(str, sleep)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    child = subprocess.Popen(
        words,
        env=environment,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        said, error = child.communicate(timeout=limit_s)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    assert not child.returncode and said, error[:4000]
    return [json.loads(line) for line in said.splitlines()[-len(groups) :]]
