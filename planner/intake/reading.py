"""Reading: what a script, config or log states, every value with the place that it came from.
Nothing that is read is ever run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

APPEND = "append"
"""Name in Reading.edits of the empty span of a command where further flags can be written."""
Origin = Literal["flag", "variable", "default", "environment", "option"]
"""Written as such; through a variable of the script; the framework's own default; an environment
variable; our command line's --set.
"""


@dataclass(frozen=True, slots=True)
class Value:
    """One value and where it comes from."""

    value: Any
    """Plain: bool, int, float, str, None, or a list or dict of these."""
    origin: Origin
    where: str = ""
    """For people: 'train.sh:12 --seq-length', 'ds.json zero_optimization.stage', 'Megatron 0.19'.
    """


@dataclass(frozen=True, slots=True)
class Unresolved:
    """A value that the file does not tell: it would need running something, or a variable that
    nobody sets.
    """

    name: str
    """Of the variable or flag that --set NAME=VALUE supplies."""
    why: str
    where: str = ""


@dataclass(frozen=True, slots=True)
class Reading:
    """A file as it states itself, in the framework's own words: defaults are not filled in yet."""

    file: str
    kind: str
    """megatron, deepspeed, megatron-deepspeed, neox, nemo, bridge, megatron-yaml, primus,
    torchtitan, swift, huggingface.
    """
    framework: Literal["megatron", "deepspeed", "torch"]
    framework_version: str | None = None
    """As far as the file tells: a version that it names, or one that its flags belong to; None
    where nothing tells.
    """
    values: dict[str, Value] = field(default_factory=dict)
    """By name. Whatever configures Megatron in any dress is translated to Megatron's argument names
    with underscores (`tensor_model_parallel_size`, `num_layers`, `bf16`); Hugging Face Trainer
    arguments keep their names (`per_device_train_batch_size`) under `hf.`; a DeepSpeed JSON is
    flattened with dots under `deepspeed.` (`deepspeed.zero_optimization.stage`); variables of the
    environment are `env.NAME`; what the launcher states is `launch.nodes`, `launch.gpus_per_node`,
    `launch.gpus`, `launch.hardware`; a model that is named (preset, Hub id or path) is `model`; a
    config.json beside the file, parsed, is `hf_config`."""
    unresolved: tuple[Unresolved, ...] = ()
    unknown: tuple[str, ...] = ()
    """Flags and keys that no table of ours knows: kept in `values` all the same."""
    notes: tuple[str, ...] = ()
    """What the reader decided, in words: which of several commands was taken, which branch of an
    if.
    """
    undecided: bool = False
    """Whether a script branches on what nobody sets and none of the branches was taken: what seems
    to be missing may be stated there.
    """
    edits: dict[str, Edit] = field(default_factory=dict)
    """Where a value can be replaced in the text of its file, by name; absent where it cannot."""
    removals: dict[str, tuple[Edit, ...]] = field(default_factory=dict)
    """Where a flag stands together with its value, each time that it is stated, by name: taking all
    of them out leaves the name unstated. Absent where a statement has no place of its own."""
    version_stated: bool = False
    """Whether the file names its version; else it follows from its flags."""


@dataclass(frozen=True, slots=True)
class Edit:
    """A span of a file's text: offsets in characters, end exclusive.

    In Reading.edits it is the value alone (for a variable: the right-hand side where it is set); in
    Reading.removals it is all words of a flag.
    """

    file: str
    start: int
    end: int
