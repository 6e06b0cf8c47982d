"""torchtitan 0.3's configuration: a function of a Python file that builds it. The file is parsed,
never run: what its literals state is known, all else is asked for.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from planner.errors import InputError, reason
from planner.intake.documents.tree import Leaf
from planner.intake.reading import Unresolved

MAX_CALLS = 300
"""Functions of the file that are followed, one within the other or in turn."""
MAX_NUMBER = 10**15
OPERATIONS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}
SECTIONS = {"training", "parallelism", "activation_checkpoint", "compile", "optimizer"}
POLICIES = {"FullAC": "full", "SelectiveAC": "selective"}
"""Classes of activation checkpointing by the mode of 0.2. Source: [torchtitan]
distributed/activation_checkpoint.py."""
CONVERTERS = {
    "Float8LinearConverter": "quantize.linear.float8",
    "MXFP8LinearConverter": "quantize.linear.mx",
    "NVFP4LinearConverter": "quantize.linear.nvfp4",
}
"""By the name that 0.2 has, or would have. Source: [torchtitan] components/quantization."""
WEIGHTY = {
    "training": ("local_batch_size", "global_batch_size", "seq_len", "mixed_precision_param"),
    "parallelism": (
        "data_parallel_replicate_degree",
        "data_parallel_shard_degree",
        "fsdp_reshard_after_forward",
        "tensor_parallel_degree",
        "enable_sequence_parallel",
        "context_parallel_degree",
        "expert_parallel_degree",
        "pipeline_parallel_degree",
        "pipeline_parallel_schedule",
        "pipeline_parallel_layers_per_stage",
        "pipeline_parallel_microbatch_size",
    ),
    "activation_checkpoint": ("mode", "first_layers"),
    "model": ("flavor",),
}
"""What is asked for where the file leaves it open."""
ASKED = ("model_spec", "training", "parallelism", "activation_checkpoint")


@dataclass(frozen=True, slots=True)
class Stated:
    """A literal: a plain value, or a list."""

    value: Any
    line: int


@dataclass(frozen=True, slots=True)
class Open:
    """What only running the file tells."""

    text: str
    line: int


@dataclass(slots=True)
class Built:
    """A call of something that lies elsewhere: a configuration's class, or a function that makes
    one.
    """

    name: str
    line: int
    positional: list[Any] = field(default_factory=list)
    fields: dict[str, Any] = field(default_factory=dict)

    @property
    def known(self) -> bool:
        """Whether what it does not set stays at its default: nobody knows what a function sets."""
        return not self.name or self.name.endswith("Config")

    @property
    def opened(self) -> Open:
        return Open(f"{self.name}(...)", self.line)


class _Module:
    """The functions, classes, imports and constants of a file, evaluated as far as literals go."""

    def __init__(self, tree: ast.Module):
        self.functions: dict[str, ast.FunctionDef] = {}
        self.classes: dict[str, ast.ClassDef] = {}
        self.imports: dict[str, str] = {}
        self.constants: dict[str, Any] = {}
        self.calls = 0
        for statement in tree.body:
            if isinstance(statement, ast.FunctionDef):
                self.functions[statement.name] = statement
            elif isinstance(statement, ast.ClassDef):
                self.classes[statement.name] = statement
            elif isinstance(statement, ast.ImportFrom):
                for name in statement.names:
                    self.imports[name.asname or name.name] = f"{statement.module or ''}.{name.name}"
            else:
                self._statement(statement, self.constants)

    def call(
        self, name: str, given: Sequence[Any] = (), named: dict[str, Any] | None = None
    ) -> Any:
        """What a function of the file returns."""
        function = self.functions[name]
        self.calls += 1
        if self.calls > MAX_CALLS:
            return Open(f"{name}()", function.lineno)
        scope = self._defaults(function)
        parameters = [argument.arg for argument in function.args.args]
        scope |= dict(zip(parameters, given, strict=False)) | (named or {})
        for statement in function.body:
            if isinstance(statement, ast.Return):
                return self.value(statement.value, scope)
            if any(isinstance(node, ast.Return) for node in ast.walk(statement)):
                return Open(f"{name}()", statement.lineno)
            self._statement(statement, scope)
        return Stated(None, function.lineno)

    def _defaults(self, function: ast.FunctionDef) -> dict[str, Any]:
        arguments = function.args
        last = arguments.args[len(arguments.args) - len(arguments.defaults) :]
        pairs: list[tuple[ast.arg, ast.expr | None]] = [
            *zip(last, arguments.defaults, strict=True),
            *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
        ]
        return {argument.arg: self.value(value, {}) for argument, value in pairs if value}

    def _statement(self, statement: ast.stmt, scope: dict[str, Any]) -> None:
        """Assignments and calls; below a branch or a loop what is assigned is open."""
        if isinstance(statement, ast.Assign):
            value = self.value(statement.value, scope)
            for target in statement.targets:
                self._assign(target, value, scope)
        elif isinstance(statement, ast.AnnAssign) and statement.value:
            self._assign(statement.target, self.value(statement.value, scope), scope)
        elif isinstance(statement, ast.AugAssign):
            self._assign(statement.target, _open(statement), scope)
        elif isinstance(statement, ast.Expr):
            self.value(statement.value, scope)
        elif isinstance(statement, (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.Match)):
            for node in ast.walk(statement):
                if isinstance(node, ast.Assign):
                    for target in node.targets:
                        self._assign(target, _open(node), scope)
                elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
                    self._assign(node.target, _open(node), scope)

    def _assign(self, target: ast.expr, value: Any, scope: dict[str, Any]) -> None:
        if isinstance(target, ast.Name):
            scope[target.id] = value
        elif isinstance(target, ast.Attribute):
            owner = self._owner(target.value, scope)
            if owner is not None:
                owner.fields[target.attr] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            for part in target.elts:
                self._assign(part, _open(target), scope)

    def _owner(self, node: ast.expr, scope: dict[str, Any]) -> Built | None:
        """The configuration of `config.training`, made where the file has not built it itself."""
        if isinstance(node, ast.Attribute):
            above = self._owner(node.value, scope)
            if above is None:
                return None
            name = "" if above.known else f"{above.name}(...).{node.attr}"
            own = above.fields.setdefault(node.attr, Built(name, node.lineno))
            return own if isinstance(own, Built) else None
        value = self.value(node, scope)
        return value if isinstance(value, Built) else None

    def value(self, node: ast.expr | None, scope: dict[str, Any]) -> Any:
        """Stated, Built, or Open."""
        if node is None:
            return Stated(None, 0)
        if isinstance(node, ast.Constant):
            return Stated(node.value, node.lineno)
        if isinstance(node, (ast.List, ast.Tuple)):
            return Stated([self.value(item, scope) for item in node.elts], node.lineno)
        if isinstance(node, ast.Name):
            return scope.get(node.id, self.constants.get(node.id, _open(node)))
        if isinstance(node, ast.Attribute):
            owner = self.value(node.value, scope)
            known = owner.fields if isinstance(owner, Built) else {}
            return known.get(node.attr, _open(node))
        if isinstance(node, (ast.UnaryOp, ast.BinOp)):
            return self._number(node, scope)
        return self._called(node, scope) if isinstance(node, ast.Call) else _open(node)

    def _number(self, node: ast.UnaryOp | ast.BinOp, scope: dict[str, Any]) -> Any:
        """-1 and 8 * 2048, of whole numbers."""
        if isinstance(node, ast.UnaryOp):
            number = self.value(node.operand, scope)
            known = isinstance(node.op, ast.USub) and _numeric(number)
            return Stated(-number.value, node.lineno) if known else _open(node)
        left, right = self.value(node.left, scope), self.value(node.right, scope)
        operation = OPERATIONS.get(type(node.op))
        if operation is None or not (_numeric(left) and _numeric(right)):
            return _open(node)
        if right.value == 0 and operation is operator.floordiv:
            return _open(node)
        result = operation(left.value, right.value)
        return Stated(result, node.lineno) if abs(result) < MAX_NUMBER else _open(node)

    def _called(self, node: ast.Call, scope: dict[str, Any]) -> Any:
        name = _dotted(node.func)
        positional = [self.value(argument, scope) for argument in node.args]
        named = {word.arg: self.value(word.value, scope) for word in node.keywords if word.arg}
        if name in self.functions:
            return self.call(name, positional, named)
        if not name or len(named) < len(node.keywords):
            return _open(node)
        copied = positional[0] if positional else None
        if name.endswith(("replace", "deepcopy")) and isinstance(copied, Built):
            fields = copied.fields | named
            return Built(copied.name, copied.line, copied.positional, fields)
        return Built(name, node.lineno, positional, named)


def _numeric(value: Any) -> bool:
    return isinstance(value, Stated) and isinstance(value.value, (int, float))


def _open(node: ast.stmt | ast.expr) -> Open:
    return Open(" ".join(ast.unparse(node).split())[:80], node.lineno)


def _dotted(node: ast.expr) -> str:
    """`FullAC.Config`; '' for what is no name."""
    if isinstance(node, ast.Name):
        return node.id
    above = _dotted(node.value) if isinstance(node, ast.Attribute) else ""
    return f"{above}.{node.attr}" if above and isinstance(node, ast.Attribute) else ""


def configurations(text: str) -> list[str]:
    """Functions of a module that torchtitan's `--config` may name: without arguments, and said to
    return a Trainer.Config. None of what is no Python.
    """
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    names = []
    for node in body:
        if not isinstance(node, ast.FunctionDef) or node.args.args or node.returns is None:
            continue
        if _dotted(node.returns).endswith("Trainer.Config"):
            names.append(node.name)
    return names


def read(
    text: str, path: str, module: str, function: str
) -> tuple[list[Leaf], list[Unresolved]] | None:
    """The leaves of the TOML of 0.2 that a function's configuration stands for, each with its line,
    and what stays open; None where the file has no such function.

    module: of the command line; it names the models where the file itself is one of theirs. Raises
    InputError where the file is no Python.
    """
    name = Path(path).name
    try:
        parsed = _Module(ast.parse(text))
        if function not in parsed.functions:
            return None
        root = parsed.call(function)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as fault:
        raise InputError(
            f"{name} must be Python that can be parsed, but: {reason(fault)[:160]}"
        ) from None
    if not isinstance(root, Built):
        root = Built("", 0, [], dict.fromkeys(ASKED, root))
    elif not root.known:
        root.fields = dict.fromkeys(ASKED, root.opened) | root.fields
    leaves: list[Leaf] = []
    unresolved: list[Unresolved] = []
    for key, value in _keys(root, parsed, module):
        dotted = ".".join(key)
        if isinstance(value, Stated):
            where = f"{name}:{value.line} {dotted}" if value.line else name
            leaves.append(Leaf(key, value.value, path, where=where))
        elif isinstance(value, Open) and (len(key) == 1 or key[1] in WEIGHTY.get(key[0], ())):
            where = f"{name}:{value.line}" if value.line else name
            why = f"{dotted} is {value.text}, which only running {name} tells"
            for question in _questions(key):
                leaves.append(Leaf(tuple(question.split(".")), None, path, where=where))
                hint = f"{why}; --set {question}=VALUE supplies it"
                unresolved.append(Unresolved(question, hint, where))
    return leaves, unresolved


def _questions(key: tuple[str, ...]) -> list[str]:
    """Names that --set takes; of a whole section the weighty ones."""
    if len(key) > 1:
        return [".".join(key)]
    return [f"{key[0]}.{name}" for name in WEIGHTY.get(key[0], ())]


def _keys(root: Built, module: _Module, called: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Keys of the TOML with their values."""
    yield from _model(root.fields.get("model_spec"), module, called)
    policy = root.fields.get("activation_checkpoint")
    if policy is not None:
        yield from _policy(policy, module)
    optimizer = root.fields.get("optimizer")
    if isinstance(optimizer, Built) and optimizer.name.endswith("default_adamw"):
        yield ("optimizer", "name"), Stated("AdamW", optimizer.line)
    yield from _defaults(root)
    yield from _loss(root.fields.get("loss"))
    for section, value in root.fields.items():
        if section == "hf_assets_path":
            yield ("model", section), value
        elif section in SECTIONS - {"activation_checkpoint"}:
            yield from _section(section, value)


def _defaults(root: Built) -> Iterator[tuple[tuple[str, ...], Any]]:
    """What 0.3 does where a configuration that is known does not say otherwise, and 0.2 did not:
    graphs are captured, operations are chosen to recompute.
    """
    training = root.fields.get("training", Built("", root.line))
    if root.known and isinstance(training, Built) and training.known:
        yield ("training", "disable_cuda_graphs"), Stated(False, 0)
    if root.known:
        yield ("activation_checkpoint", "selective_ac_option"), Stated("op", 0)


def _loss(value: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Parts of the chunked loss."""
    if isinstance(value, Built) and value.name == "ChunkedLossWrapper.Config":
        yield ("loss", "num_chunks"), value.fields.get("num_chunks", Stated(8, value.line))


def _section(section: str, value: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, Built):
        keys = dict(value.fields)
        if not value.known:
            keys = dict.fromkeys(WEIGHTY.get(section, ()), value.opened) | keys
        for key, field_value in keys.items():
            if isinstance(field_value, Built):
                field_value = field_value.opened
            if _nested(field_value):
                field_value = _plain_list(field_value)
            yield (section, key), field_value
    elif isinstance(value, Open):
        yield (section,), value


def _nested(value: Stated | Open) -> bool:
    return isinstance(value, Stated) and isinstance(value.value, list)


def _plain_list(value: Stated) -> Stated | Open:
    """A list of literals; what holds anything else is open."""
    if all(isinstance(item, Stated) and not _nested(item) for item in value.value):
        return Stated([item.value for item in value.value], value.line)
    return Open("[...]", value.line)


def _policy(value: Any, module: _Module) -> Iterator[tuple[tuple[str, ...], Any]]:
    """None, FullAC, SelectiveAC, or the class of a written plan that recomputes the first layers of
    every stage.
    """
    mode: Any = Open(getattr(value, "name", "") or getattr(value, "text", ""), value.line)
    if isinstance(value, Built):
        policy = value.name.split(".")[0]
        bases = (
            [_dotted(base) for base in module.classes[policy].bases]
            if policy in module.classes
            else []
        )
        if policy in POLICIES:
            mode = Stated(POLICIES[policy], value.line)
        elif policy == "FirstLayers" and bases == ["FullAC"] and "layers" in value.fields:
            mode = Stated("full", value.line)
            yield ("activation_checkpoint", "first_layers"), value.fields["layers"]
    elif isinstance(value, Stated) and value.value is None:
        mode = Stated("none", value.line)
    yield ("activation_checkpoint", "mode"), mode


def _model(value: Any, module: _Module, called: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Family and flavor of `model_registry(...)`, its converters, and the depth of prediction."""
    if not isinstance(value, Built) or "model_registry" not in value.name:
        if value is not None:
            text = value.text if isinstance(value, Open) else getattr(value, "name", "")
            yield ("model", "flavor"), Open(text, value.line)
        return
    origin = module.imports.get(value.name, "").rpartition(".")[0].split(".")
    family = origin[2] if origin[:2] == ["torchtitan", "models"] and len(origin) > 2 else ""
    yield ("model", "name"), Stated(family or _family(called), value.line)
    yield ("model", "flavor"), (*value.positional, value.fields.get("flavor"))[0]
    if "moe_comm_backend" in value.fields:
        yield ("model", "moe_comm_backend"), value.fields["moe_comm_backend"]
    depth = value.fields.get("num_mtp_layers", Stated(0, value.line))
    yield ("model", "num_mtp_layers"), depth
    converters = value.fields.get("converters")
    if isinstance(converters, Stated) and isinstance(converters.value, list):
        names = []
        for converter in converters.value:
            name = CONVERTERS.get(getattr(converter, "name", "").removesuffix(".Config"))
            if name:
                names.append(name)
                recipe = converter.fields.get("recipe_name")
                if recipe is not None:
                    yield (*name.split("."), "recipe_name"), recipe
        yield ("model", "converters"), Stated(names, converters.line)


def _family(module: str) -> str:
    parts = [part for part in module.split(".") if part != "config_registry"]
    return parts[-1] if parts else ""
