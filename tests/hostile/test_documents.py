"""A document that is wrong gives one message, with the file, every faulty field and what must hold;
never another exception.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import InputError
from planner.specs import library

PRESET = Path(library.__file__).parent / "models" / "llama3-8b.yaml"
GOOD: dict[str, Any] = yaml.safe_load(PRESET.read_text())
VERBS: list[Callable[[str], Any]] = [library.model, library.hardware, library.stack]


def _says(verb: Callable[[str], Any], path: Path) -> str:
    with pytest.raises(InputError) as fault:
        verb(str(path))
    message = str(fault.value)
    assert "\n" not in message and "pydantic" not in message and "Error" not in message
    return message


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"hidden_size": -4}, "hidden_size must be above 0, but got -4"),
        ({"hidden_size": 0}, "hidden_size must be above 0, but got 0"),
        ({"hidden_size": 4096.5}, "hidden_size must be a whole number, but got 4096.5"),
        ({"hidden_size": "4096"}, "hidden_size must be a whole number"),
        ({"hidden_size": True}, "hidden_size must be a whole number, but got True"),
        ({"hidden_size": None}, "hidden_size must be a whole number, but got nothing"),
        ({"hidden_size": [1]}, "hidden_size must be a whole number, but got a list"),
        ({"num_layers": 10**30}, "num_layers must be at most"),
        ({"rope_theta": float("nan")}, "rope_theta must be a finite number, but got nan"),
        ({"rope_theta": float("inf")}, "rope_theta must be a finite number"),
        ({"norm": "batchnorm"}, "norm must be 'rmsnorm', 'layernorm' or 'layernorm_nobias'"),
        ({"gated_mlp": "yes please"}, "gated_mlp must be true or false"),
        ({"num_kv_heads": 5}, "num_heads must be a multiple of num_kv_heads, but got 32 and 5"),
        ({"hiden_size": 1}, "hiden_size is not a field; did you mean hidden_size?"),
        ({"position": "learned"}, "position_rows"),
        ({"name": 7}, "name must be text, but got 7"),
        ({"aliases": "x"}, "aliases must be a list"),
    ],
)
def test_wrong_fields_are_named(changes: dict[str, Any], says: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(GOOD | changes))
    message = _says(library.model, path)
    assert says in message and str(path) in message


def test_all_faults_at_once(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    wrong = GOOD | {"hidden_size": 0, "norm": "x", "extra": 1}
    del wrong["vocab_size"]
    path.write_text(yaml.safe_dump(wrong))
    message = _says(library.model, path)
    assert all(
        part in message
        for part in (
            "hidden_size must",
            "norm must",
            "extra is not a field",
            "vocab_size is missing",
        )
    )


def test_faults_deep_in_a_profile_carry_their_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    data = yaml.safe_load((library.profiles_folder() / "h100-sxm.yaml").read_text())
    data["kernels"]["gemm"]["bf16"]["efficiency"] = 0
    data["node"]["domain"]["efficency"] = {8: 0.5}
    data["node"]["host"]["efficiency"] = {}
    del data["fabric"]["nics"]
    path.write_text(yaml.safe_dump(data))
    message = _says(library.hardware, path)
    for part in (
        "kernels.gemm.bf16.efficiency must be above 0",
        "did you mean efficiency?",
        "node.host.efficiency must hold at least 1",
        "fabric.nics is missing",
    ):
        assert part in message


def test_of_many_faults_the_first_are_named(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("name: mine\n")
    message = _says(library.stack, tmp_path / "mine.yaml")
    assert message.count("is missing") == 6 and message.endswith("more") and len(message) < 500


@pytest.mark.parametrize(
    ("verb", "shipped", "field", "value", "says"),
    [
        (
            library.hardware,
            library.profiles_folder() / "h100-sxm.yaml",
            "gpu.hbm_gbytes_per_s",
            1e-300,
            "gpu.hbm_gbytes_per_s must be",
        ),
        (
            library.hardware,
            library.profiles_folder() / "h100-sxm.yaml",
            "node.gpus",
            10**30,
            "node.gpus must be",
        ),
        (
            library.stack,
            Path(library.__file__).parent / "software" / "megatron-core.yaml",
            "overlap.grad_share",
            1.5,
            "to 1, but got 1.5",
        ),
        (
            library.stack,
            Path(library.__file__).parent / "software" / "megatron-core.yaml",
            "traffic.loss_bytes",
            1e300,
            "loss_bytes must be",
        ),
    ],
)
def test_figures_that_nothing_has(
    verb: Callable[[str], Any], shipped: Path, field: str, value: float, says: str, tmp_path: Path
) -> None:
    """Their products overflow, and a search over NaN finds nothing."""
    data = yaml.safe_load(shipped.read_text())
    group, _, name = field.rpartition(".")
    (data[group] if group else data)[name] = value
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(data))
    assert says in _says(verb, tmp_path / "mine.yaml")


@pytest.mark.parametrize(
    "name", ["a\ntouch b", "$(id)", "a b", "a'b", "\x1b[31m", "", "x" * 101, "a/b"]
)
@pytest.mark.parametrize(
    ("verb", "shipped"),
    [
        (library.model, Path(library.__file__).parent / "models" / "llama3-8b.yaml"),
        (library.hardware, library.profiles_folder() / "h100-sxm.yaml"),
        (library.stack, Path(library.__file__).parent / "software" / "megatron-core.yaml"),
    ],
)
def test_names_that_a_shell_would_obey(
    verb: Callable[[str], Any], shipped: Path, name: str, tmp_path: Path
) -> None:
    """They stand in comments and job names of launch scripts."""
    (tmp_path / "mine.yaml").write_text(
        yaml.safe_dump(yaml.safe_load(shipped.read_text()) | {"name": name})
    )
    assert "name must be of letters" in _says(verb, tmp_path / "mine.yaml")


def test_the_folder_of_a_config_may_have_any_name(tmp_path: Path) -> None:
    shipped = Path(__file__).parent.parent / "data" / "configs" / "Qwen--Qwen3-0.6B.json"
    (tmp_path / "my model\n$(id)").mkdir()
    (tmp_path / "my model\n$(id)" / "config.json").write_bytes(shipped.read_bytes())
    assert library.model(str(tmp_path / "my model\n$(id)")).name == "my-model-id"


def test_a_profile_needs_the_rates_that_every_formula_reads(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    data = yaml.safe_load((library.profiles_folder() / "h100-sxm.yaml").read_text())
    del data["kernels"]["gemm"]["bf16"], data["gpu"]["peak_tflops"]["fp16"]
    path.write_text(yaml.safe_dump(data))
    assert "gpu.peak_tflops.fp16 and kernels.gemm.bf16 must be there" in _says(
        library.hardware, path
    )


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"a: [1, 2", "valid YAML, but line"),
        (b"a: b: c", "valid YAML, but line 1"),
        (b"", "must hold fields"),
        (b"- 1\n- 2\n", "must hold fields (name: value), but it is a list"),
        (b"just words", "must hold fields"),
        (b"\xff\xfe\x00\x01", "UTF-8"),
        (b"\x00" * 100, "binary"),
        (b"[" * 100_000, "valid YAML"),
        (b"x" * (3 * 2**20), "at most"),
        (b"a: &a [*a]", "nests too deeply"),
        (b"a: !!python/object/apply:os.getcwd []", "valid YAML"),
        (b"d: 2024-13-45", "valid YAML"),
        (b"? [1]\n: 2\n", "YAML"),
    ],
)
def test_what_is_no_document(
    verb: Callable[[str], Any], content: bytes, says: str, tmp_path: Path
) -> None:
    path = tmp_path / "mine.yaml"
    path.write_bytes(content)
    assert says in _says(verb, path)


def test_anchors_that_repeat_each_other_a_billion_times(tmp_path: Path) -> None:
    rows = ["a0: &a0 [x, x]"] + [
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)
    ]
    path = tmp_path / "mine.yaml"
    path.write_text("\n".join([*rows, "hidden_size: *a11"]))
    assert "hidden_size must be a whole number, but got a list" in _says(library.model, path)


@pytest.mark.parametrize(
    "content",
    [b"{", b"[1]", b"{} x", b"nan", b'"a"', b"[" * 100_000, b"\xff", b'{"architectures": '],
)
def test_what_is_no_config_json(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    assert str(path) in _says(library.model, path)


@pytest.mark.parametrize("verb", VERBS)
def test_paths_that_cannot_be_read(verb: Callable[[str], Any], tmp_path: Path) -> None:
    assert "there is no" in _says(verb, tmp_path / "none.yaml")
    (tmp_path / "folder").mkdir()
    assert "folder" in _says(verb, tmp_path / "folder")
    pipe = tmp_path / "pipe.yaml"
    os.mkfifo(pipe)
    assert "readable file" in _says(verb, pipe)
    for name in (
        "",
        " ",
        "x" * 5000,
        "x" * 5000 + ".yaml",
        "nul\0byte",
        "~nobody-of-that-name/x.yaml",
        "a/b/c",
        "../..",
    ):
        with pytest.raises(InputError):
            verb(name)


def test_a_file_without_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    path = tmp_path / "mine.yaml"
    path.write_text("name: x")
    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert "Permission denied" in _says(library.model, path)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=8) | st.integers(), inner, max_size=3)
    ),
    max_leaves=5,
)


@settings(max_examples=150, deadline=None)
@given(field=st.sampled_from(sorted(GOOD)), value=_VALUES)
def test_any_value_in_any_field_is_taken_or_refused_in_words(
    field: str, value: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("any") / "mine.yaml"
    path.write_text(yaml.safe_dump(GOOD | {field: value}))
    try:
        assert library.model(str(path)).hidden_size > 0
    except InputError as fault:
        assert str(path) in str(fault)
