"""Documents as people write them: read YAML and JSON, build the frozen document, say every fault in
plain words.
"""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from planner.errors import InputError, reason

MAX_BYTES = 2 * 2**20
"""Profiles, presets and config.json are a few KB; weights or a tokenizer given by mistake are not.
"""


class FrozenDocument(BaseModel):
    """A document whose fields are all known, finite and never changed."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


Document = TypeVar("Document", bound=BaseModel)
MAX_FAULTS = 6
"""Faults that one message names; the rest are counted."""
LARGEST, SMALLEST = 1e13, 1e-12
"""Of figures in a profile or a stack, other than 0: beyond them lie slips of the pen, whose
products overflow.
"""


def _fields(loader: Any, node: Any, deep: bool = False) -> dict[Any, Any]:
    """The fields of a mapping. Raises for a field stated twice, of which YAML keeps the last."""
    keys = [
        key.value
        for key, _ in node.value
        if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge"
    ]
    if len(set(keys)) < len(keys):
        twice = next(key for key, _ in node.value if keys.count(key.value) > 1)
        raise yaml.MarkedYAMLError(
            problem=f"{str(twice.value)[:60]!r} is stated twice", problem_mark=twice.start_mark
        )
    made: dict[Any, Any] = yaml.SafeLoader.construct_mapping(loader, node, deep)
    return made


_Loader: Any = type(
    "_Loader", (getattr(yaml, "CSafeLoader", yaml.SafeLoader),), {"construct_mapping": _fields}
)
# YAML 1.1 takes 1e-3 for text; people who write profiles do not.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"),
    list("-+0123456789"),
)


def parse_yaml(text: str) -> Any:
    """One YAML value; raises yaml.YAMLError, ValueError (an impossible date) or RecursionError."""
    return pickle.loads(_parsed(text))


@lru_cache(maxsize=256)
def _parsed(text: str) -> bytes:
    """Pickled: a copy for each reader, far quicker than YAML is parsed. Presets are read often."""
    return pickle.dumps(yaml.load(text, _Loader))


def read_text(path: Path) -> str:
    """The text of a small file; InputError for one that is missing, unreadable, huge or not
    text.
    """
    try:
        if not path.is_file():
            raise InputError(
                f"{path} must be a readable file, but"
                f" {'it is a directory' if path.is_dir() else 'there is none'}"
            )
        if path.stat().st_size > MAX_BYTES:
            raise InputError(
                f"{path} must be a document of at most {MAX_BYTES:,} bytes, but it has"
                f" {path.stat().st_size:,}"
            )
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        raise InputError(
            f"{path} must be UTF-8 text, but byte {fault.start} is not; is it a binary file?"
        ) from None
    except (OSError, ValueError) as fault:
        reason = fault.strerror if isinstance(fault, OSError) else str(fault)
        raise InputError(f"{path} must be a readable file, but: {reason}") from None
    if "\0" in text:
        raise InputError(f"{path} must be text, but it holds zero bytes; is it a binary file?")
    return text


def read_mapping(path: Path, kind: Literal["JSON", "YAML", ""] = "") -> dict[str, Any]:
    """Fields of a YAML or JSON document; by the file's suffix where no kind is named."""
    text = read_text(path)
    kind = kind or ("JSON" if path.suffix.lower() == ".json" else "YAML")
    try:
        data = json.loads(text, object_pairs_hook=_pairs) if kind == "JSON" else parse_yaml(text)
    except json.JSONDecodeError as fault:
        raise InputError(
            f"{path} must be valid JSON, but line {fault.lineno}: {fault.msg}"
        ) from None
    except yaml.YAMLError as fault:
        raise InputError(f"{path} must be valid YAML, but {_yaml_fault(fault)}") from None
    except RecursionError:
        raise InputError(f"{path} must be valid {kind}, but it nests too deeply") from None
    except ValueError as fault:
        raise InputError(f"{path} must be valid {kind}, but {reason(fault)}") from None
    if not isinstance(data, dict):
        raise InputError(f"{path} must hold fields (name: value), but it is {shown(data)}")
    return {str(key): value for key, value in data.items()}


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The same for JSON. Raises ValueError."""
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(
            f"{next(name for name in names if names.count(name) > 1)[:60]!r} is stated twice"
        )
    return made


def check_figures(document: BaseModel, where: str) -> None:
    """Raises InputError for an impossible figure: too large, too small, or an overlap share above
    1.
    """
    for path, value in _numbers(document.model_dump(), ""):
        most = LARGEST
        if path.endswith("overlap_share") or path.startswith("overlap."):
            most = 1.0
        elif path.endswith("_share"):
            most = 2.0
        if value > most or 0 < abs(value) < SMALLEST:
            raise InputError(
                f"{where}: {path} must be 0 or from {SMALLEST:g} to {most:g}, but got {value:g}"
            )


def _numbers(value: Any, path: str) -> Iterator[tuple[str, float]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _numbers(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield path, float(value)


def build(kind: type[Document], data: Mapping[str, Any], where: str) -> Document:
    """The document, or one InputError that names every faulty field of `where`."""
    try:
        return kind.model_validate(_tuples(dict(data), {}), strict=True)
    except ValidationError as fault:
        says = [_says(kind, error) for error in fault.errors(include_url=False)]
    except RecursionError:
        says = ["it nests too deeply"]
    faults = list(dict.fromkeys(says))
    more = [f"and {len(faults) - MAX_FAULTS} more"] * (len(faults) > MAX_FAULTS)
    raise InputError(f"{where}: " + "; ".join([*faults[:MAX_FAULTS], *more]))


def _tuples(value: Any, done: dict[int, Any], depth: int = 0) -> Any:
    """Lists as tuples: strict validation then refuses true for 1 and text for numbers, but takes a
    YAML list.

    `done` holds what was converted: YAML anchors may repeat a part a billion times without holding
    it twice.
    """
    if depth > 20:
        raise RecursionError
    if not isinstance(value, (dict, list, tuple)):
        return value
    if id(value) not in done:
        if isinstance(value, dict):
            done[id(value)] = {key: _tuples(x, done, depth + 1) for key, x in value.items()}
        else:
            done[id(value)] = tuple(_tuples(x, done, depth + 1) for x in value)
    return done[id(value)]


def _yaml_fault(fault: yaml.YAMLError) -> str:
    mark, problem = getattr(fault, "problem_mark", None), getattr(fault, "problem", None)
    return f"line {mark.line + 1}: {problem}" if mark else str(problem or fault).splitlines()[0]


def shown(value: Any) -> str:
    """A value that a message names."""
    if isinstance(value, str):
        return f"the text {value[:60]!r}"
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a group of fields"
    return "a list" if isinstance(value, (list, tuple)) else str(value)[:60]


_MUST = {
    "greater_than": "be above {gt}",
    "greater_than_equal": "be at least {ge}",
    "less_than_equal": "be at most {le}",
    "less_than": "be below {lt}",
    "finite_number": "be a finite number",
    "int_type": "be a whole number",
    "int_from_float": "be a whole number",
    "float_type": "be a number",
    "string_type": "be text",
    "bool_type": "be true or false",
    "literal_error": "be {expected}",
    "tuple_type": "be a list",
    "dict_type": "be a group of fields",
    "model_type": "be a group of fields",
    "too_short": "hold at least {min_length} entry",
}


def _says(kind: type[BaseModel], error: Any) -> str:
    """One fault as a sentence: the field, what must hold, what we got."""
    path = ".".join(str(part) for part in error["loc"] if part != "[key]")
    if error["type"] == "missing":
        return f"{path} is missing"
    if error["type"] == "extra_forbidden":
        return f"{path} is not a field{_nearest(kind, error['loc'])}"
    if error["type"] == "value_error":
        return f"{path + ': ' if path else ''}{error['ctx']['error']}"
    must = _MUST.get(error["type"])
    if must is None:
        return f"{path}: {error['msg']}"
    return f"{path} must {must.format(**error.get('ctx', {}))}, but got {shown(error['input'])}"


def _nearest(kind: type[BaseModel], loc: tuple[Any, ...]) -> str:
    names: list[str] = list(kind.model_fields)
    for part in loc[:-1]:
        field = kind.model_fields.get(str(part))
        if field is None or not (
            isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
        ):
            return ""
        kind, names = field.annotation, list(field.annotation.model_fields)
    near = get_close_matches(str(loc[-1]), names, n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else ""
