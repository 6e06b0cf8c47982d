"""Lines as the frameworks' own code makes them: their print statements are taken from the packages'
sources and run on made-up figures.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from datetime import datetime
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from planner.intake.logs import read_log
from planner.intake.logs.lines import Memory, Step, parse
from planner.units import GIB
from tests.judges.megatron_oracle import wheel


class Anything(int):
    """A number that has every attribute and item, and can be called."""

    def __getattr__(self, name: str) -> Anything:
        return self

    def __getitem__(self, key: object) -> Anything:
        return self

    def __call__(self, *arguments: object) -> Anything:
        return self


class Names(dict[str, Any]):
    """Names of a function's body: those that nobody states are Anything."""

    def __missing__(self, name: str) -> Any:
        return __builtins__[name] if name in __builtins__ else Anything(3)


def function(path: Path, name: str) -> ast.FunctionDef:
    return next(
        node
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name == name
    )


def run(node: ast.FunctionDef, names: dict[str, Any], *arguments: Any) -> str:
    """What a function prints."""
    out = StringIO()
    exec(compile(ast.Module([node], []), node.name, "exec"), names)
    with redirect_stdout(out):
        names[node.name](*arguments)
    return out.getvalue()


def pieces(node: ast.FunctionDef) -> Iterator[ast.expr]:
    """What is put together to the line, in order; of an if all branches that format."""
    for one in ast.walk(node):
        if isinstance(one, ast.Assign | ast.AugAssign):
            targets = one.targets if isinstance(one, ast.Assign) else [one.target]
            if any(
                isinstance(target, ast.Name) and target.id == "log_string" for target in targets
            ):
                yield one.value


def training() -> Path:
    return wheel() / "megatron" / "training"


def test_megatrons_iteration_line():
    node = function(training() / "training.py", "training_log")
    stated = Names(
        iteration=7,
        elapsed_time_per_iteration=5.25,
        throughput=243.6,
        batch_size=128,
        key="lm loss",
        avg=2.5,
        datetime=datetime,
        nan_iters_key="nan",
        skipped_iters_key="skipped",
        learning_rate=1e-4,
        loss_scale=1.0,
        grad_norm=1.5,
        total_loss_dict={"nan": 2, "skipped": 1},
    )
    parts = sorted(pieces(node), key=lambda part: part.lineno)
    line = "".join(
        str(eval(compile(ast.Expression(part), "line", "eval"), stated)) for part in parts
    )
    assert "elapsed time per iteration (ms): 5250.0 |" in line
    assert parse(line) == Step(
        "megatron", 7, 5.25, 243.6, global_batch_size=128, loss=2.5, nan=2, skipped=1
    )


def test_megatrons_memory_line():
    path = next(
        path
        for path in (training() / "utils" / "common_utils.py", training() / "utils.py")
        if path.is_file()
    )
    cuda = SimpleNamespace(
        memory_allocated=lambda: 1,
        max_memory_allocated=lambda: 20 * GIB,
        memory_reserved=lambda: 2,
        max_memory_reserved=lambda: 30 * GIB,
        device_memory_used=lambda: 40 * GIB,
    )
    torch = SimpleNamespace(cuda=cuda, distributed=SimpleNamespace(get_rank=lambda: 5))
    names = {
        "torch": torch,
        "mpu": SimpleNamespace(get_data_parallel_rank=lambda: 0),
        "get_args": lambda: Anything(1),
    }
    said = run(function(path, "report_memory"), names, "(after 2 iterations)")
    assert parse(said.strip()) == Memory(5, 20 * GIB, 30 * GIB, 40 * GIB)


def test_megatrons_block_of_arguments(tmp_path, monkeypatch):
    for name in ("megatron", "megatron.training", "megatron.training.utils"):
        monkeypatch.setitem(__import__("sys").modules, name, ModuleType(name))
    __import__("sys").modules["megatron.training.utils"].is_rank0 = lambda: True
    stated = SimpleNamespace(
        num_layers=32,
        hidden_size=4096,
        bf16=True,
        recompute_granularity=None,
        tensor_model_parallel_size=2,
        lr=1e-4,
        recompute_modules=["core_attn", "mlp"],
        world_size=16,
        swiglu=False,
        pipeline_model_parallel_layout="Et|t|tL",
    )
    said = run(function(training() / "arguments.py", "_print_args"), {}, "arguments", stated)
    (tmp_path / "x.log").write_text(said)
    found = {
        name: one.value for name, one in read_log.read(tmp_path / "x.log").reading.values.items()
    }
    wanted = {name: value for name, value in vars(stated).items() if value is not None}
    assert found == {**wanted, "launch.gpus": 16}


def deepspeed(*parts: str) -> str:
    return Path(find_spec("deepspeed").origin).parent.joinpath(*parts).read_text()


def test_deepspeeds_timer():
    text = re.search(
        r'"(epoch=\{\}.*?)"\s*"(MemAllocated.*?)"', deepspeed("utils", "timer.py"), re.DOTALL
    )
    line = (text[1] + text[2]).format(0, 6, 3, 80.5, 83.25, 1.5, 9.25)
    assert parse(line) == Step("deepspeed", 3, samples_per_s=83.25, allocated_bytes=9.25 * GIB)


def test_deepspeeds_pipeline_engine():
    source = deepspeed("runtime", "pipe", "engine.py")
    texts = re.findall(r"f'((?:steps: |iter time \(s\): ).*?)'", source)
    assert len(texts) == 2
    self = SimpleNamespace(global_steps=30, agg_train_loss=1.045)
    line = "".join(
        eval(f"f{text!r}", {"self": self, "iter_time": 0.0271, "tput": 295.774}) for text in texts
    )
    assert parse(line) == Step("deepspeed", 30, 0.027, samples_per_s=295.774, loss=1.045)


def test_deepspeeds_memory_report():
    sizes = SimpleNamespace(memory_allocated=lambda: GIB, max_memory_allocated=lambda: 5 * GIB)
    tree = ast.parse(deepspeed("runtime", "utils.py"))
    node = next(
        one
        for one in ast.walk(tree)
        if isinstance(one, ast.FunctionDef) and one.name == "see_memory_usage"
    )
    line = next(
        one.args[0]
        for one in ast.walk(node)
        if isinstance(one, ast.Call)
        and "Max_MA" in ast.dump(one)
        and one.args
        and isinstance(one.args[0], ast.JoinedStr)
    )
    names = {
        "get_accelerator": lambda: sizes,
        "torch_memory_reserved": lambda: 6 * GIB,
        "torch_max_memory_reserved": lambda: 7 * GIB,
    }
    said = eval(compile(ast.Expression(line), "line", "eval"), names)
    assert parse(said) == Memory(None, pytest.approx(5 * GIB), pytest.approx(7 * GIB))
