"""Documents by name: presets in a folder, found however freely they are spelled; or the path of
one's own.
"""

from __future__ import annotations

import os
import pickle
import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from planner.errors import InputError, unknown
from planner.specs.documents import Document, build, check_figures

SUFFIXES = (".yaml", ".yml", ".json")
ODD = re.compile(r"[^\w.+-]+")
"""What the name of a document may not hold."""
_ADDED = re.compile(
    r"(-(fp8|bf16|fp16|nvfp4|mxfp4|fp4|int8|int4|awq|gptq|gguf|i?q\d(-k|-\d)?(-[sml])?|mlx|bnb"
    r"|w[48]a(4|8|16)|quantized|unsloth|dynamic|mcore|torch|think|thinking|reasoning|preview|v0-1"
    r"|sft|dpo|grpo|rl|lora|qlora|(instruct|thinking|chat|base|it|reasoning)-?\d{4})|-?[2-8]bit)$"
)
"""At the end of a folded name; four digits are the date of a release. What other versions change
(Mistral-7B-v0.3 has another vocabulary) stays.
"""
_SAME_SHAPE = re.compile(r"-(hf|base|instruct|chat|it)$")
_CACHED = re.compile(r"models--[^/]+--([^/]+)")
"""A folder of the Hub's cache, on whichever machine: `models--Qwen--Qwen3-8B/snapshots/...`."""
_PROVIDER = re.compile(r"Model|Provider")
"""In the name of a class of Megatron-Bridge: `Qwen25ModelProvider1P5B`."""
_MILLIONS = re.compile(r"(\d)00m$")


def document_path(name: str, folder: Path, known: Callable[[], list[str]], kind: str) -> Path:
    """A path when it looks like one, else a name, else a path again."""
    if not str(name).strip():
        raise InputError(
            f"{kind} must be a name or a path, but got nothing; known: {', '.join(known())}"
        )
    path = _path(name)
    looks = path.suffix.lower() in SUFFIXES or name.startswith((".", "/", "~"))
    there = _exists(path)
    if there and (looks or len(path.parts) > 1):
        return path
    # a model's folder on another machine, by its last part
    elsewhere = kind == "model" and path.suffix.lower() not in SUFFIXES and not there
    preset = find_preset(name, folder) if elsewhere or not looks else None
    if preset is not None or there:
        return preset or path
    if looks:
        raise InputError(
            f"{kind} must be a known name or an existing path, but there is no {name[:200]}"
        )
    like = _PROVIDER.sub("", name) if "Provider" in name else name
    raise unknown(kind, name, known(), like=shape_of(like))


def _path(name: str) -> Path:
    try:
        return Path(name).expanduser()
    except RuntimeError:  # no such user
        return Path(name)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def find_preset(name: str, folder: Path) -> Path | None:
    """By file name; else by folded file name; else by the aliases in the documents; else, of a
    provider class, by letters and digits alone.
    """
    if re.fullmatch(r"[\w.-]{1,100}", name) and (folder / f"{name}.yaml").is_file():
        return folder / f"{name}.yaml"
    names = preset_names(folder)
    for wanted in dict.fromkeys((fold(name), shape_of(name))):
        matches = [x for x in names if fold(x) == wanted] or [
            x for x in names if wanted in map(fold, _aliases(folder / f"{x}.yaml"))
        ]
        if matches:
            return folder / f"{matches[0]}.yaml"
    if " " in name.strip():  # torchtitan's model and flavor, where the flavor names all
        return find_preset(name.split()[-1], folder)
    return _of_provider(name, folder) if "Provider" in name else None


def _of_provider(name: str, folder: Path) -> Path | None:
    """`Qwen3MoEModelProvider30B_A3B` gives qwen3-30b-a3b: class names have no room for dots and
    hyphens (25 is 2.5, 1P5B 1.5B, 500M 0.5B).
    """
    bare = _PROVIDER.sub("", name.rsplit(".", 1)[-1]).lower()
    wanted = _letters(_MILLIONS.sub(r"0\1b", re.sub(r"(\d)p(?=\d)", r"\1", bare)))
    answers = {
        x: {_letters(y) for y in (x, *_aliases(folder / f"{x}.yaml"))} for x in preset_names(folder)
    }
    for form in (wanted, wanted.replace("moe", "")):
        found = [x for x, known in answers.items() if form in known]
        if len(found) == 1:
            return folder / f"{found[0]}.yaml"
    return None


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def shape_of(name: str) -> str:
    """fold() without what converters, quantizers and dated releases add to the name of a network:
    `unsloth/Qwen3-30B-A3B-Instruct-2507-bnb-4bit` gives `qwen3-30b-a3b`.
    """
    text, before = fold(name), ""
    while text != before:
        before, text = text, _SAME_SHAPE.sub("", _ADDED.sub("", text))
    return text


def _aliases(path: Path) -> list[str]:
    """The one line `aliases: [...]`, read without the rest of the document: a scan of all presets
    takes milliseconds.
    """
    match = re.search(r"^aliases: *\[(.*)\]", path.read_text(encoding="utf-8"), re.MULTILINE)
    return [alias.strip() for alias in match.group(1).split(",")] if match else []


def checked(kind: type[Document], data: dict[str, Any], where: str) -> Document:
    """The document of these fields. Raises InputError for a fault in any of them."""
    document: Document = _checked(kind, pickle.dumps(data), where)
    return document


@lru_cache(maxsize=256)
def _checked(kind: type[Any], pickled: bytes, where: str) -> Any:
    """By its fields: a profile is asked for again and again, and never changes once it is built."""
    document = build(kind, pickle.loads(pickled), where)
    check_figures(document, where)
    return with_safe_name(document, where)


def with_safe_name(document: Document, where: str) -> Document:
    """The document, if its name is safe. Names are written into launch scripts and file names,
    where a quote or a line break would change the command. Raises InputError.
    """
    name = str(getattr(document, "name", ""))
    if not name or len(name) > 100 or ODD.search(name):
        raise InputError(
            f"{where}: name must be of letters, digits and . _ + - alone, at most 100, but got"
            f" {name[:60]!r}"
        )
    return document


def preset_names(folder: Path) -> list[str]:
    return sorted(
        name.removesuffix(".yaml") for name in os.listdir(folder) if name.endswith(".yaml")
    )


def place(path: Path, folder: Path) -> str:
    """How messages call a document: a preset by its file, one's own by its path."""
    return path.name if path.parent == folder else str(path)


def own_name(name: str) -> str:
    """Without the Hub's owner and the folders before it."""
    cached = _CACHED.search(name)
    return cached[1] if cached else name.rstrip("/").rsplit("/", 1)[-1]


def fold(name: str) -> str:
    """What names have in common: case, dots, underscores and the Hub's owner do not count, nor do
    -hf, -base, -instruct, -chat, -it.

    `meta-llama/Llama-3.1-70B-Instruct` and `llama3.1-70b` both give `llama3-1-70b`. Dots become
    hyphens rather than vanish: gpt-1.8b is not gpt-18b.
    """
    text = re.sub(r"[\s._-]+", "-", own_name(name).lower()).strip("-")
    text = re.sub(r"(?<=[a-z])-(?=\d)", "", text).removeprefix("meta-").removeprefix("nvidia-")
    return _SAME_SHAPE.sub("", text)
