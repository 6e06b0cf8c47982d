"""A configuration in JSON, YAML or TOML, read as the framework that its keys belong to would read
it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from planner.errors import InputError
from planner.intake.documents import json_reader, toml_reader, yaml_reader
from planner.intake.documents.scalars import plain, text_of
from planner.intake.documents.tree import Document, Leaf, leaves
from planner.intake.frameworks import (
    accelerate,
    companions,
    deepspeed,
    deepspeed_keys,
    huggingface,
    megatron_yaml,
    nemo,
    nemo_recipes,
    neox,
    neox_keys,
    not_launches,
    primus,
    swift,
    torchtitan,
)
from planner.intake.frameworks.vocabulary import merged
from planner.intake.reading import Reading, Value

KINDS: dict[str, ModuleType] = {
    "primus": primus,
    "torchtitan": torchtitan,
    "megatron-yaml": megatron_yaml,
    "neox": neox,
    "nemo": nemo,
    "accelerate": accelerate,
    "deepspeed": deepspeed,
    "huggingface": huggingface,
    "swift": swift,
}
"""What a configuration can be; `read(..., kind=...)` states it."""
ENDINGS: dict[str, Callable[[str, str], Document]] = {
    ".json": json_reader.load,
    ".jsonc": json_reader.load,
    ".hjson": json_reader.load,
    ".toml": toml_reader.load,
    ".yaml": yaml_reader.load,
    ".yml": yaml_reader.load,
}
MAX_FILES = 16


def read(
    path: str | Path, sets: Mapping[str, Any] | None = None, kind: str | None = None
) -> Reading:
    """What one file states. See read_all."""
    return read_all([path], sets, kind)


def read_all(
    paths: Sequence[str | Path], sets: Mapping[str, Any] | None = None, kind: str | None = None
) -> Reading:
    """Several files as one configuration (GPT-NeoX is started so), later ones on top.

    sets: NAME=VALUE of --set: variables (`${NAME}`), keys of the file with dots
    (`model.num_layers`), or the Reading's own names. Files that these name (a model's file, a
    DeepSpeed JSON, a config.json) are read where they lie beside the first; nothing is executed,
    nothing is written. Raises InputError: no such file, too large, malformed, or of no framework
    that is known.
    """
    if not 1 <= len(paths) <= MAX_FILES:
        raise InputError(f"a configuration must be 1 to {MAX_FILES} files, but got {len(paths)}")
    return read_texts([(str(path), text_of(path)) for path in paths], sets, kind)


def read_texts(
    texts: Sequence[tuple[str, str]], sets: Mapping[str, Any] | None = None, kind: str | None = None
) -> Reading:
    """As read_all, of (path, text): for text that stands elsewhere, such as a here-document of a
    script.
    """
    config: list[Leaf] = []
    notes: list[str] = []
    for name, text in texts:
        document = parse(text, name)
        config += leaves(document)
        notes += document.notes
        if document.duplicates:
            twice = ", ".join(document.duplicates[:6])
            notes.append(
                f"{Path(name).name} states {twice} twice: the last counts (DeepSpeed refuses such"
                " a JSON)"
            )
    return translated(config, texts[0][0], notes, sets, kind)


def translated(
    config: Sequence[Leaf],
    path: str,
    notes: Sequence[str] = (),
    sets: Mapping[str, Any] | None = None,
    kind: str | None = None,
) -> Reading:
    """Leaves of a configuration (also those of `overrides`) under the Reading's names, with what
    lies beside `path`.
    """
    chosen = kind or kind_of(config, path)
    if chosen not in KINDS:
        raise InputError(
            f"a configuration must be of a kind that is known, but got {chosen!r}; known:"
            f" {', '.join(KINDS)}"
        )
    sets = dict(sets or {})
    flat = [*config, *_keys(chosen, sets)]
    if chosen == "primus":
        model = companions.primus_model(primus.model_file(config), path)
        out = primus.reading(flat, path, notes, model=model, sets=sets)
    else:
        out = KINDS[chosen].reading(flat, path, notes)
    out = companions.joined(out, path, sets)
    return _set(out, sets, {leaf.path for leaf in flat})


def parse(text: str, path: str) -> Document:
    """The document of a text, by the ending of its name; without one that is known JSON, else
    YAML.
    """
    name = Path(path).name
    load = ENDINGS.get(Path(path).suffix.lower())
    if load is None:
        braced = text.lstrip("\ufeff \t\r\n").startswith(("{", "//"))
        load = json_reader.load if braced else yaml_reader.load
    try:
        document = load(text, path)
    except InputError:
        if load is not json_reader.load:
            raise
        try:
            document = yaml_reader.load(text, path)
        except InputError:
            return load(text, path)
    if not isinstance(document.data, dict) or not document.data:
        content = "a list or a single value" if document.data else "nothing"
        raise InputError(f"{name} must hold keys and values, but holds {content}")
    return document


def kind_of(config: Sequence[Leaf], path: str) -> str:
    """The framework whose keys these are. InputError when they are of none."""
    raw = {leaf.path[0] for leaf in config}
    tops = {key.replace("-", "_") for key in raw}
    message = not_launches.says(Path(path).name, raw)
    if message is not None:
        raise InputError(message)
    last_keys = {leaf.path[-1] for leaf in config}
    if tops & set(primus.SECTIONS) and last_keys & {"framework", "model"}:
        return "primus"
    if raw & set(megatron_yaml.SECTIONS) or any(key.startswith("--") for key in raw):
        return "megatron-yaml"
    if (
        "parallelism" in raw
        or ("activation_checkpoint" in raw and "training" in raw)
        or ("job" in raw and "training" in raw)
    ):
        return "torchtitan"
    trainer = {"per_device_train_batch_size", "model_name_or_path"}
    if tops & set(accelerate.SECTIONS) and not tops & trainer:
        return "accelerate"
    if tops & set(neox.SECTIONS):
        return "neox"
    if raw & set(huggingface.SECTIONS):
        return "huggingface"
    if tops & set(swift.SECTIONS):
        return "swift" if tops & set(swift.OWN) else "megatron-yaml"
    if raw & set(deepspeed.SECTIONS):
        return "deepspeed" if tops <= deepspeed_keys.TOP or not tops <= neox_keys.KEYS else "neox"
    sections = {leaf.path[0] for leaf in config if len(leaf.path) > 1}
    if sections & set(nemo.SECTIONS) or raw & set(nemo_recipes.KEYS):
        return "nemo"
    if "num_layers" in tops and "hidden_size" in tops:
        return "megatron-yaml"
    if tops <= neox_keys.KEYS:
        return "neox"
    raise InputError(_unknown(path, sorted(raw)))


def overrides(words: Sequence[str], file: str = "") -> list[Leaf]:
    """Hydra's and OmegaConf's `a.b=c`, `+a.b=c`, `++a.b=c` and `~a.b` on a command line, and a
    recipe's name, as leaves; other words are passed over."""
    out = []
    for at, word in enumerate(words):
        name, equals, text = word.lstrip("+").partition("=")
        where = f"{file} {word[:120]}".strip()
        if name in nemo_recipes.FLAGS and (equals or at + 1 < len(words)):
            key = "factory" if name == "--factory" else "recipe"
            recipe = text if equals else words[at + 1]
            out.append(Leaf((key,), recipe, file, where=f"{file} {name}".strip()))
        elif word.startswith("~"):
            path = _path(word[1:].partition("=")[0])
            out.append(Leaf(path, None, file, where=f"{file} {word}".strip()))
        elif (
            equals
            and name
            and not name.startswith("-")
            and name.replace(".", "").replace("_", "").replace("/", "").isalnum()
        ):
            out.append(Leaf(_path(name), _value(text), file, where=where))
    return out


def _path(name: str) -> tuple[str, ...]:
    return tuple(name.replace("/", ".").split("."))


def _value(text: str) -> Any:
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    if text.startswith(("[", "{")):
        try:
            return yaml_reader.load(text, "value").data
        except InputError:
            return text
    return plain(text)


def _keys(kind: str, sets: Mapping[str, Any]) -> list[Leaf]:
    """--set NAME=VALUE with dots as a key of the file, beyond all that the file states."""
    keys = []
    for name, value in sets.items():
        if "." not in name or name.startswith(("hf.", "deepspeed.", "launch.", "env.")):
            continue
        if kind != "primus" or name.startswith("modules."):
            keys.append(Leaf(_path(name), _plainly(value), origin="option", where=f"--set {name}"))
    return keys


def _set(out: Reading, sets: Mapping[str, Any], taken: set[tuple[str, ...]]) -> Reading:
    """--set NAME=VALUE of the Reading's own names; a name in capitals is a variable."""
    values = {}
    for name, value in sets.items():
        if (_path(name) not in taken or name in out.values) and not name.isupper():
            key = name.replace("-", "_")
            values[key] = Value(_plainly(value), "option", f"--set {name}")
    return merged(out, Reading(out.file, out.kind, out.framework, values=values)) if values else out


def _plainly(value: Any) -> Any:
    return _value(value) if isinstance(value, str) else value


def _unknown(path: str, keys: Sequence[str]) -> str:
    shown = ", ".join(key[:40] for key in keys[:6]) + (", ..." if len(keys) > 6 else "")
    return (
        f"{Path(path).name} must be a configuration of DeepSpeed, GPT-NeoX, NeMo, Megatron-Bridge,"
        " Megatron-LM, Primus, torchtitan, ms-swift, Accelerate or the Hugging Face Trainer, but"
        f" has the keys {shown}"
    )
