"""Three real steps of two gloo processes from the files that are written, and what DeepSpeed itself
refuses.
"""

from __future__ import annotations

import math
import socket
from pathlib import Path
from typing import Any

import pytest

from planner.cost.params.layer import embedding_params, head_params, layer_params, total_params
from planner.emit import table
from planner.layout import Layout
from planner.rules.table import breaches
from planner.specs.model import ModelSpec
from planner.specs.recipe import Recipe
from tests import documents
from tests.judges import deepspeed_oracle

pytestmark = pytest.mark.process


TINY = ModelSpec(
    name="tiny",
    family="llama",
    hidden_size=64,
    ffn_size=128,
    num_layers=4,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    vocab_size=256,
    max_seq_length=64,
    gated_mlp=True,
    tied_embeddings=False,
    norm="rmsnorm",
    position="rope",
    source="made for this test",
)
FULL = 2
ABORTED_AT_EXIT = "terminate called without an active exception"
"""torch's own threads, joined by nobody when a process ends on a busy machine: all steps are done
then, but torchrun says that the rank failed.
"""


def question(**changes: Any) -> Recipe:
    known = {
        "stack": "deepspeed",
        "framework": "deepspeed",
        "seq_length": 64,
        "global_batch_size": 8,
        **changes,
    }
    return documents.recipe(known.pop("model", TINY), 2, **known)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("", 0))
        return int(one.getsockname()[1])


def start(
    folder: Path, recipe: Recipe, layout: Layout, by_torchrun: bool = False
) -> deepspeed_oracle.Run:
    """By torchrun itself, else by forks of a warm process: imports are most of so small a run."""
    runs = deepspeed_oracle.run if by_torchrun else deepspeed_oracle.forked
    return runs(folder, table.files(recipe, layout, None), free_port())


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_zero(zero: int, tmp_path: Path) -> None:
    recipe = question()
    layout = documents.layout(recipe, zero=zero, mbs=2, sp=0, recompute=FULL * (zero == 3))
    assert not breaches(recipe, layout)
    done = start(tmp_path, recipe, layout, by_torchrun=zero == 3)
    if ABORTED_AT_EXIT in done.text:
        done = start(tmp_path, recipe, layout, by_torchrun=zero == 3)
    assert done.code == 0 and len(done.losses) == 3, done.text[-3000:]
    assert (done.zero, done.micro_batches) == ({zero}, {(2, 2)})
    assert done.parameters == [total_params(TINY)] * 2
    assert all(
        loss == pytest.approx(math.log(256), rel=0.06) for loss in done.losses
    )  # random labels: the entropy of the vocabulary


def test_pipeline(tmp_path: Path) -> None:
    recipe = question()
    layout = documents.layout(recipe, zero=1, pp=2, mbs=2, sp=0, recompute=FULL, recompute_layers=1)
    assert not breaches(recipe, layout)
    done = start(tmp_path, recipe, layout)
    assert done.code == 0 and len(done.losses) == 3, done.text[-3000:]
    assert (done.zero, done.micro_batches) == ({1}, {(4, 2)})
    stage = int(2 * layer_params(TINY))
    assert done.parameters == [
        stage + int(embedding_params(TINY)),
        stage + int(head_params(TINY, layout)),
    ]


def test_tied_ends_of_a_pipeline_of_another_family(tmp_path: Path) -> None:
    """Everything that the Llama family has not: LayerNorm, learned positions, biases, an ungated
    MLP, a shared table.
    """
    changes = {
        "norm": "layernorm",
        "position": "learned",
        "position_rows": 64,
        "attention_bias": "qkvo",
        "mlp_bias": True,
        "gated_mlp": False,
        "activation": "gelu",
        "tied_embeddings": True,
        "qk_norm": True,
        "num_kv_heads": 4,
    }
    model = TINY.model_copy(update=changes)
    recipe = question(model=model, attention="unfused", precision="fp32")
    layout = documents.layout(recipe, zero=0, pp=2, mbs=2, sp=0)
    done = start(tmp_path, recipe, layout)
    assert done.code == 0 and len(done.losses) == 3, done.text[-3000:]
    both = int(embedding_params(model)) + int(2 * layer_params(model))
    assert done.parameters[0] == both
    assert sum(done.parameters) == total_params(model) + int(embedding_params(model))


@pytest.mark.parametrize(
    "knobs", [{"cp": 2, "zero": 3}, {"tp": 2, "zero": 2}], ids=["ulysses", "autotp"]
)
def test_sequence_and_tensor_parallelism(knobs: dict[str, int], tmp_path: Path) -> None:
    recipe = question(global_batch_size=4)
    layout = documents.layout(recipe, mbs=2, sp=0, **knobs)
    assert not breaches(recipe, layout)
    done = start(tmp_path, recipe, layout)
    assert done.code == 0 and len(done.losses) == 3, done.text[-3000:]
    assert (done.zero, done.micro_batches) == ({knobs["zero"]}, {(2, 2)})
    whole = int(4 * layer_params(TINY, 1))
    split = int(4 * layer_params(TINY, layout.tp))
    assert done.parameters == [total_params(TINY) - whole + split] * 2


def test_tensor_parallelism_computes_what_one_rank_does(tmp_path: Path) -> None:
    """Same weights, same tokens: AutoTP's split by our rules, with heads that differ (ALiBi's
    slopes), gives the losses of one process.
    """
    alibi = TINY.model_copy(update={"position": "alibi"})
    losses = []
    for ranks in (1, 2):
        recipe = question(model=alibi, global_batch_size=4).model_copy(update={"gpus": ranks})
        folder = tmp_path / str(ranks)
        folder.mkdir()
        done = start(folder, recipe, documents.layout(recipe, tp=ranks, zero=1, mbs=2, sp=0))
        assert done.code == 0, done.text[-3000:]
        losses.append(done.losses)
    assert losses[1] == pytest.approx(losses[0], rel=1e-3) and len(losses[0]) == 3


def test_pipeline_refuses_sharded_gradients(tmp_path: Path) -> None:
    """The rule is DeepSpeed's own: runtime/pipe/engine.py asserts."""
    recipe = question()
    layout = documents.layout(recipe, zero=2, pp=2, mbs=2, sp=0)
    assert {found.rule for found in breaches(recipe, layout)} == {"pipeline shards no gradients"}
    done = start(tmp_path, recipe, layout)
    assert done.code != 0 and "incompatible with pipeline parallelism" in done.text
