"""Trials of Megatron-LM: its lines as recorded, and a small GPT of megatron-core's own modules and
schedules on two gloo processes.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from planner.errors import InputError
from planner.launch import local
from planner.launch.outcome import Outcome, Work
from planner.layout import Layout
from planner.specs.model import ModelSpec
from planner.specs.recipe import Recipe
from planner.tune.runners import megatron_runner as runner
from planner.tune.workers import megatron_worker as worker
from tests import documents
from tests.judges import megatron_oracle

pytestmark = pytest.mark.process


TINY = ModelSpec(
    name="tiny",
    family="gpt",
    hidden_size=64,
    ffn_size=128,
    num_layers=4,
    num_heads=4,
    num_kv_heads=4,
    head_dim=16,
    vocab_size=128,
    max_seq_length=64,
    gated_mlp=False,
    tied_embeddings=False,
    norm="layernorm",
    position="rope",
    activation="gelu",
    source="made for this test",
)


def recipe(**changes: Any) -> Recipe:
    return documents.recipe(TINY, 2, **{"seq_length": 64, "global_batch_size": 8, **changes})


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    shutil.copy(Path(__file__).with_name("megatron_tiny.py"), tmp_path / "pretrain_gpt.py")
    return tmp_path


def layout(question: Recipe, **knobs: int) -> Layout:
    return documents.layout(question, **{"pp": 2, "mbs": 2, "zero": 1, **knobs})


def trial(asked: dict[str, Any]) -> tuple[Outcome, list[dict[str, Any]]]:
    lines: list[dict[str, Any]] = []
    path = {"PYTHONPATH": str(megatron_oracle.wheel())}
    work = Work(runner.MODULE, asked, asked["ranks"], limit_s=240, environment=path)
    return local.run(work, lambda line: bool(lines.append(line))), lines


def test_megatron_cores_pipeline_is_measured(checkout: Path) -> None:
    question = recipe()
    asked = runner.request(question, layout(question), 2, 3, 1, "cpu", checkout)
    done, lines = trial(asked)
    assert done.state == "done" and done.result is not None, done
    assert [(line["phase"], line["step"]) for line in lines] == [
        ("warmup", 0),
        ("warmup", 1),
        ("step", 0),
        ("step", 1),
        ("step", 2),
    ]
    found = runner.measurement(done.result)
    assert (
        found.steps_s == tuple(line["step_s"] for line in lines[2:])
        and found.step_s == sorted(found.steps_s)[1]
    )
    # The same tokens each step: what the pipeline computes is a training step, so the loss falls.
    assert list(found.losses) == sorted(found.losses, reverse=True) and found.losses[0] < 5
    assert (
        found.memory_kind == "resident"
        and found.memory_bytes is not None
        and found.memory_bytes > 2**27
    )
    assert found.versions["megatron-core"].startswith("0.19")


def test_a_script_that_fails_says_why(checkout: Path) -> None:
    (checkout / "pretrain_gpt.py").write_text(
        "import sys\nprint('reading flags')\nsys.exit('unrecognized arguments: --no-such-flag')\n"
    )
    question = recipe()
    done, _ = trial(runner.request(question, layout(question), 2, 1, 1, "cpu", checkout))
    assert (
        done.state == "crashed"
        and "exit code 1" in done.reason
        and "unrecognized arguments: --no-such-flag" in done.reason
    )


# As Megatron-LM core 0.12, and 0.16 and later, print them (training.py: training_log; theoretical
# and actual memory).
RECORDED = """\
using world size: 8, data-parallel size: 2, context-parallel size: 1, tensor-model-parallel size: \
4, pipeline-model-parallel size: 1
 [2025-03-02 10:11:12] iteration        1/       5 | consumed samples:          128 | elapsed time \
per iteration (ms): 21345.6 | throughput per GPU (TFLOP/s/GPU): 12.3 | learning rate: 1.000000E-05 \
| global batch size:   128 | lm loss: 1.182341E+01 | loss scale: 1.0 | grad norm: 9.312 | number \
of skipped iterations:   0 | number of nan iterations:   0 |
[Rank 0] (after 1 iterations) memory (MB) | allocated: 12345.5 | max allocated: 30000.25 | \
reserved: 33000.0 | max reserved: 34000.0
 [2025-03-02 10:11:15.123456] iteration        2/       5 | consumed samples:          256 | \
elapsed time per iteration (ms): 1300.0 | throughput per GPU (TFLOP/s/GPU): 401.2 | learning rate: \
2.000000E-05 | global batch size:   128 | lm loss: 1.150000E+01 | loss scale: 1.0 | grad norm: 8.0 \
| number of skipped iterations:   0 | number of nan iterations:   0 |
 iteration        3/       5 | consumed samples:          384 | elapsed time per iteration (ms): \
1234.5 | throughput per GPU (TFLOP/s/GPU): 412.3 | learning rate: 3.000000E-05 | global batch \
size:   128 | lm loss: 1.100000E+01 | loss scale: 1.0 | grad norm: 7.0 | number of skipped \
iterations:   0 | number of nan iterations:   0 |
 [2025-03-02 10:11:17] iteration        4/       5 | consumed samples:          512 | elapsed time \
per iteration (ms): 1240.5 | learning rate: 4.000000E-05 | global batch size:   128 | lm loss: \
1.050000E+01 | loss scale: 1.0 | grad norm: 6.0 | number of skipped iterations:   0 | number of \
nan iterations:   0 |
 [2025-03-02 10:11:18] iteration        5/       5 | consumed samples:          640 | skipped \
samples:            2 | elapsed time per iteration (ms): 1238.0 | throughput per GPU \
(TFLOP/s/GPU): 411.0 | learning rate: 5.000000E-05 | global batch size:   128 | lm loss: \
1.000000E+01 | loss scale: 1.0 | grad norm: 5.0 | number of skipped iterations:   0 | number of \
nan iterations:   0 |
"""


def test_recorded_lines(tmp_path: Path) -> None:
    steps: list[Any] = []
    peaks: list[Any] = []
    for line in RECORDED.splitlines():
        worker.collected(line, 2, steps, peaks, tmp_path / "result.json")
    assert [one.step_s for one in steps] == pytest.approx([21.3456, 1.3, 1.2345, 1.2405, 1.238])
    assert [one.allocated_bytes for one in peaks] == [30000.25 * 2**20]
    asked = {"kind": "step", "warmup": 2, "notes": []}
    worker.write(tmp_path / "result.json", asked, steps, 5.0, "resident")
    found = runner.measurement(json.loads((tmp_path / "result.json").read_text()))
    assert found.step_s == pytest.approx(1.238) and found.steps_s == pytest.approx(
        (1.2345, 1.2405, 1.238)
    )
    assert found.losses == (11.0, 10.5, 10.0) and found.memory_bytes == 5.0
    with pytest.raises(InputError, match="beyond the first 9"):
        runner.measurement({"steps": [{"number": 1}], "request": {"warmup": 9}})


def test_flags_are_those_of_the_launch_files(checkout: Path) -> None:
    question = recipe()
    asked = runner.request(question, layout(question), 2, 3, 5, "cuda", checkout)
    words = asked["flags"]
    assert words[-2:] == ["--train-iters", "8"] and "--mock-data" in words
    assert words[words.index("--pipeline-model-parallel-size") + 1] == "2"
    assert asked["environment"]["TORCH_NCCL_AVOID_RECORD_STREAMS"] == "1"
    verdict = megatron_oracle.verdicts([megatron_oracle.Case("trial", words, 2)])[0]
    assert verdict["accepted"], verdict


def test_refusals(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    question = recipe()
    monkeypatch.delenv("MEGATRON_PATH", raising=False)
    with pytest.raises(InputError, match="--megatron-path DIR"):
        runner.request(question, layout(question), 2, 1, 1)
    with pytest.raises(InputError, match=r"has no pretrain_gpt\.py"):
        runner.request(question, layout(question), 2, 1, 1, checkout=checkout / "..")
    with pytest.raises(InputError, match="needs 2 devices, but 1 are here"):
        runner.request(question, layout(question), 1, 1, 1, checkout=checkout)
    with pytest.raises(InputError, match="this one is for torch"):
        runner.request(
            recipe(framework="torch", stack="torch-fsdp"),
            layout(question),
            2,
            1,
            1,
            checkout=checkout,
        )
    monkeypatch.setenv("MEGATRON_PATH", str(checkout))
    assert runner.request(question, layout(question), 2, 1, 1)["checkout"] == str(checkout)
