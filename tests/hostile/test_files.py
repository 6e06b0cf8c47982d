"""Configurations and logs that mean harm: answered in one sentence, in time, with nothing started
and nothing written.
"""

from __future__ import annotations

import json
import sys
import time
import tomllib  # noqa: F401  (loaded before the watch begins)
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import yaml  # noqa: F401
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.errors import InputError
from planner.intake.frameworks import detect
from planner.intake.logs import oom, read_log
from planner.intake.logs.lines import parse

WATCHED = (
    "subprocess.Popen",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.fork",
    "os.remove",
    "os.rename",
    "os.mkdir",
    "socket.connect",
    "exec",
    "compile",
)
SEEN: list[str] = []
WATCHING: list[bool] = []


def _hook(event: str, arguments: tuple) -> None:
    if not WATCHING:
        return
    if event in WATCHED:
        SEEN.append(event)
    if event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+"):
        SEEN.append(f"open {arguments[0]} {arguments[1]}")


sys.addaudithook(_hook)


@contextmanager
def watched() -> Iterator[None]:
    SEEN.clear()
    WATCHING.append(True)
    try:
        yield
    finally:
        WATCHING.clear()
    assert SEEN == []


def answered(name: str, text: str) -> str:
    """The reading's kind, or the one sentence of a refusal; within 5 s of processor time, under
    watch.
    """
    start = time.process_time()
    with watched():
        try:
            said = detect.read_texts([(name, text)]).kind
        except InputError as fault:
            said = str(fault)
    assert time.process_time() - start < 5
    assert "\n" not in said and len(said) < 500
    return said


def test_the_watch_sees():
    with pytest.raises(AssertionError), watched():
        compile("1", "x", "eval")


def bomb(depth: int = 24) -> str:
    names = [f"a{number}" for number in range(depth)]
    rows = [
        f"{name}: &{name} {{x: *{below}, y: *{below}}}"
        for name, below in zip(names[1:], names, strict=False)
    ]
    return "\n".join([f"{names[0]}: &{names[0]} {{x: 1, y: 2}}", *rows])


HOSTILE = {
    "bomb.yaml": bomb(),
    "list-bomb.yaml": (
        bomb()
        .replace("{x: *", "[*")
        .replace("y: *", "*")
        .replace("}", "]")
        .replace("{x: 1, y: 2]", "[1]")
    ),
    "circle.yaml": "model: &m\n  num_layers: *m",
    "tag.yaml": "model: !!python/object/apply:os.system ['touch /tmp/x']",
    "deep.yaml": "[" * 200_000,
    "deeper.yaml": "\n".join("  " * depth + "a:" for depth in range(300)),
    "deep.json": '{"a":' * 100_000,
    "deep.toml": "a = " + "[" * 100_000,
    "long.json": '{"a": "' + "x" * 900_000 + '"}',
    "many.yaml": "- 1\n" * 200_000,
    "many.json": "{" + ",".join(f'"k{number}": {number}' for number in range(90_000)) + "}",
    "keys.toml": "a.b.c = 1\n" * 50_000,
    "digits.json": '{"num_layers": ' + "9" * 100_000 + ', "hidden_size": 1}',
    "comments.json": "/* " * 300_000,
    "quotes.json": '"\\' * 400_000,
    "nan.json": '{"train_batch_size": NaN, "zero_optimization": {"stage": Infinity}}',
    "null.yaml": "\0",
    "bad.yaml": "a: b: c",
    "command.yaml": 'model:\n  num_layers: $(rm -rf /)\n  hidden_size: "`reboot`"\n',
    "merge.yaml": "a: &a {<<: *a}\n",
    "anchors.yaml": "*nobody",
    "interpolation.yaml": (
        "model:\n  num_layers: ${model.num_layers}\n  hidden_size: ${.num_layers}\n"
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile(name):
    assert answered(name, HOSTILE[name])


def test_circles_of_references_are_unresolved():
    reading = detect.read_texts([("x.yaml", HOSTILE["interpolation.yaml"])])
    assert {one.name for one in reading.unresolved} == {
        "num_layers",
        "hidden_size",
    } and reading.values == {}


def test_commands_stay_text():
    values = detect.read_texts([("x.yaml", HOSTILE["command.yaml"])]).values
    assert (values["num_layers"].value, values["hidden_size"].value) == ("$(rm -rf /)", "`reboot`")


@pytest.mark.parametrize(
    "text",
    [
        "elapsed time per iteration (ms): " * 60_000,
        "iteration 1/1 |" + " | lm loss: 1" * 100_000,
        "SamplesPerSec=" * 100_000,
        "- arguments -\n" * 50_000,
        "json = {\n" * 50_000,
        "x ................... " * 80_000,
        "Tried to allocate 1 GiB. " * 50_000,
        "[rank" + "1" * 1_000_000,
        "{'train_samples_per_second': " * 50_000,
        "step: 1 loss: 1 memory: tps: " * 50_000,
    ],
)
def test_hostile_logs(tmp_path, text):
    (tmp_path / "x.log").write_text(text)
    start = time.process_time()
    with watched():
        read_log.read(tmp_path / "x.log")
    assert time.process_time() - start < 5


KEYS = st.sampled_from(
    """
model trainer num_layers hidden_size zero_optimization stage pipe-parallel-size modules overrides \
MODEL_ARGS --num-layers parallelism
training tensor_parallel_degree train_batch_size precision fp8 activation optimizer name \
per_device_train_batch_size deepspeed fsdp
distributed_type extends intermediate_size mlp_multiple_of actor_rollout_ref actor \
ppo_mini_batch_size converters flavor
""".strip()
    .replace("\n", " ")
    .split(" ")
)
WORDS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=12),
    st.sampled_from(
        [
            "auto",
            "${x}",
            "${model.num_layers}",
            "???",
            "swiglu",
            "bf16",
            "rope",
            "FULL_SHARD",
            "1e9",
        ]
    ),
)
INNER = st.recursive(
    WORDS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=12,
)
TREES = st.dictionaries(KEYS, INNER, min_size=1, max_size=6)
QUICK = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@QUICK
@given(TREES, st.sampled_from(["x.json", "x.yaml"]))
def test_any_tree_of_known_words_is_answered(tree, name):
    answered(name, json.dumps(tree))


@QUICK
@given(TREES, st.sampled_from(list(detect.KINDS)))
def test_any_tree_as_any_kind(tree, kind):
    with watched():
        try:
            found = detect.read_texts([("x.yaml", json.dumps(tree))], {"x": "4"}, kind)
        except InputError:
            return
    assert all(name and one.where for name, one in found.values.items())


@QUICK
@given(
    st.text(alphabet="{}[]:,\"'\\&*!|>%@`#-?~\n\t ab01=.<$()", max_size=80),
    st.sampled_from(["x.json", "x.yaml", "x.toml", "x"]),
)
def test_any_text_is_answered(text, name):
    answered(name, text)


@QUICK
@given(
    st.text(max_size=60),
    st.sampled_from(
        [
            "elapsed time per iteration (ms): ",
            "memory (MB)",
            "Max_MA",
            "Step Time :",
            "iter time (s):",
            "SamplesPerSec=",
            "train_step_timing in s",
            "time_per_iteration_ms",
            "tps: ",
            "out of memory",
        ]
    ),
)
def test_any_line_is_answered(text, word):
    parse(text + word + text)
    oom.parse(text + word + text)
    parse(word + "1e999 nan -1,,,.5" + text)
