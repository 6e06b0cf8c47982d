"""The pages of the site that nobody writes: reference pages from the code, and output of commands.

MkDocs calls the functions `on_...`. A generated page comes from the declaration that the program
itself uses, so it cannot disagree with it.
"""

from __future__ import annotations

import ast
import inspect
import pkgutil
import re
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from html import escape
from importlib import import_module
from io import StringIO
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import typer
from mkdocs.structure.files import File
from pydantic import BaseModel

import planner.cost
from planner import api
from planner.cli import COMMANDS, app, code
from planner.references import REFERENCES
from planner.report.formulas import Formula, formulas_in, keys, meanings, module_formulas
from planner.rules.rule import FIRST, NEVER, Rule
from planner.rules.table import BY_FRAMEWORK
from planner.schedules.schedule import function_of
from planner.schedules.table import SCHEDULES
from planner.specs.software import Software

ROOT = Path(__file__).parent.parent
COST_ROOMS = {
    "params": "Parameters",
    "layer": "Time of a layer",
    "memory": "Memory",
    "network": "Network",
    "step": "Time of a step",
    "": "Across rooms",
}
"""Folders of planner/cost and the title of each page; "" is the files beside them."""
FRAMEWORKS = {"megatron": "Megatron-LM", "deepspeed": "DeepSpeed", "torch": "torch"}
ANSWERS = ("planner.answers", "planner.layout", "planner.cost.terms")
"""Modules that hold the types of the answers."""
PROJECT = {
    "changelog": "CHANGELOG.md",
    "contributing": "CONTRIBUTING.md",
    "cost-model": "planner/cost/README.md",
}
"""Pages that are texts of the repository."""
COMMAND = re.compile(r"^```ppplan(?: until=(.+))?\n(.+)\n```$", re.MULTILINE)
NUMBER = re.compile(r"[\d,.]*")
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def on_config(config: Any) -> Any:
    """Makes the pages and the navigation."""
    pages = _pages()
    config.extra["generated"] = pages
    reference = {
        "Python": "reference/api.md",
        "Commands": [
            "reference/commands/index.md",
            *({name: f"reference/commands/{name}.md"} for name in COMMANDS),
        ],
        "Formulas": ["reference/formulas/index.md", *_below(pages, "reference/formulas/")],
        "Schedules": ["reference/schedules/index.md", *_below(pages, "reference/schedules/")],
        "Rules": [{FRAMEWORKS[name]: f"reference/rules/{name}.md"} for name in BY_FRAMEWORK],
        "Clusters": ["reference/clusters.md", "reference/cluster-files.md"],
        "Models": "reference/models.md",
        "Training software": "reference/stacks.md",
        "Sources": "reference/sources.md",
    }
    config.nav = [
        {"Home": "index.md"},
        {"Concepts": ["concepts.md", "glossary.md"]},
        {"Reference": [{title: page} for title, page in reference.items()]},
        {"Accuracy": "accuracy.md"},
        {"Project": _below(pages, "project/")},
    ]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Adds the generated pages to those of docs/."""
    for path, content in config.extra["generated"].items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replaces a block of language `ppplan` by the command and what it prints."""
    return COMMAND.sub(_run, markdown)


def _run(block: re.Match[str]) -> str:
    until, command = block.groups()
    lines = _output(command.split()).splitlines()
    if until is not None:
        end = next(at for at, line in enumerate(lines) if line.startswith(until))
        lines = [*lines[:end], "..."]
    return f"```bash\nppplan {command}\n```\n\n```text\n" + "\n".join(lines).rstrip() + "\n```"


def _output(arguments: list[str]) -> str:
    """What a command prints; a command that fails stops the build."""
    out, errors = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(errors):
        result = code(arguments)
    if result == 2:
        raise RuntimeError(f"ppplan {' '.join(arguments)}: {errors.getvalue()}")
    return "\n".join(line.rstrip() for line in out.getvalue().strip("\n").splitlines())


def _below(pages: dict[str, str | bytes], folder: str) -> list[str]:
    return [
        path
        for path in pages
        if path.startswith(folder) and path.endswith(".md") and not path.endswith("/index.md")
    ]


def _pages() -> dict[str, str | bytes]:
    """Path in the site -> content, in the order of the navigation."""
    pages: dict[str, str | bytes] = {"reference/api.md": _api_page()}
    pages |= _command_pages()
    cited: dict[str, list[str]] = defaultdict(list)
    pages |= _formula_pages(cited)
    pages |= _schedule_pages(cited)
    for framework, rules in BY_FRAMEWORK.items():
        pages[f"reference/rules/{framework}.md"] = _rules_page(framework, rules)
    pages["reference/clusters.md"] = _clusters_page()
    pages["reference/cluster-files.md"] = _copied(ROOT / "hardware_profiles" / "README.md")
    pages["reference/models.md"] = _models_page()
    pages["reference/stacks.md"] = _stacks_page()
    pages["reference/sources.md"] = _sources_page(cited)
    pages["accuracy.md"] = _accuracy_page()
    for page, path in PROJECT.items():
        if (ROOT / path).exists():
            pages[f"project/{page}.md"] = _copied(ROOT / path)
    return pages


# Python and the command line


def _api_page() -> str:
    blocks = [
        "# Python\n",
        "::: planner.api\n    options: {show_root_heading: false, show_root_toc_entry: false}\n",
    ]
    blocks += [f"::: {module}\n" for module in ANSWERS]
    return "\n".join(blocks)


def _command_pages() -> dict[str, str | bytes]:
    commands = typer.main.get_command(app()).commands  # type: ignore[attr-defined]
    rows = [[f"[`{name}`]({name}.md)", _first(commands[name].help)] for name in COMMANDS]
    index = [
        "# Commands",
        "Every command takes `--help`. Exit codes: 0 yes or done, 1 no (nothing fits, it would not"
        " run), 2 the input is wrong.",
        _table(["command", "what it does"], rows),
    ]
    pages: dict[str, str | bytes] = {"reference/commands/index.md": "\n\n".join(index)}
    for name in COMMANDS:
        pages[f"reference/commands/{name}.md"] = _command_page(name, commands[name])
    return pages


def _command_page(name: str, command: Any) -> str:
    says, _, example = command.help.partition("Example:")
    parts = [f"# ppplan {name}", " ".join(says.split())]
    if example:
        parts.append(f"```bash\n{' '.join(example.split())}\n```")
    panels: dict[str, list[list[str]]] = defaultdict(list)
    for parameter in command.params:
        panel = getattr(parameter, "rich_help_panel", None) or "Options"
        if parameter.param_type_name == "argument":
            panel = "Arguments"
        panels[panel].append([_spelling(parameter), _text(parameter.help or "")])
    for panel, rows in sorted(panels.items(), key=lambda entry: entry[0] != "Arguments"):
        parts += [f"## {panel}", _table(["option", "meaning"], rows)]
    return "\n\n".join(parts)


def _spelling(parameter: Any) -> str:
    """How an option is written, with its value."""
    if parameter.param_type_name == "argument":
        name = parameter.name.upper()
        return f"`{name}`" if parameter.required else f"`[{name}]`"
    names = ", ".join(f"`{option}`" for option in [*parameter.opts, *parameter.secondary_opts])
    return f"{names} `{parameter.metavar}`" if parameter.metavar else names


# Formulas, schedules and their sources


def _formula_pages(cited: dict[str, list[str]]) -> dict[str, str | bytes]:
    modules: dict[str, list[ModuleType]] = {room: [] for room in COST_ROOMS}
    for found in pkgutil.walk_packages(planner.cost.__path__, "planner.cost."):
        if found.ispkg:
            continue
        room = found.name.split(".")[2] if found.name.count(".") == 3 else ""
        modules[room].append(import_module(found.name))
    pages: dict[str, str | bytes] = {"reference/formulas/index.md": ""}
    rows = []
    for room, title in COST_ROOMS.items():
        page = f"{room or 'across'}.md"
        sections = [
            _module_section(module, f"reference/formulas/{page}", cited)
            for module in modules[room]
            if any(module_formulas(module))
        ]
        count = sum(len(list(module_formulas(module))) for module in modules[room])
        pages[f"reference/formulas/{page}"] = "\n\n".join([f"# {title}", *sections])
        rows.append([f"[{title}]({page})", f"`planner/cost/{room}`", str(count)])
    pages["reference/formulas/index.md"] = "\n\n".join(
        [
            "# Formulas",
            "Every function of the cost model that states a formula, as its docstring has it, with"
            " its source and what it assumes. Formulas of schedules stand with"
            " [each schedule](../schedules/index.md).",
            _table(["what", "folder", "formulas"], rows),
        ]
    )
    return pages


def _module_section(module: ModuleType, page: str, cited: dict[str, list[str]]) -> str:
    """The formulas of a file, below what the file says of itself."""
    short = module.__name__.removeprefix("planner.")
    parts = [f"## {short} {{ #{short} }}", _text(_first(module.__doc__)), _path(module)]
    for formula in module_formulas(module):
        parts.append(_formula(formula, 3, page, cited))
    return "\n\n".join(parts)


def _formula(formula: Formula, level: int, page: str, cited: dict[str, list[str]]) -> str:
    anchor = f"{formula.room}.{formula.name}"
    for key in dict.fromkeys(keys(formula.source + formula.assumes + formula.formula)):
        cited[key].append(f"{page}#{anchor}")
    up = "../" * page.count("/")
    lines = [
        f"{'#' * level} {formula.name} {{ #{anchor} }}",
        _text(formula.says),
        f'<pre class="formula">{escape(formula.formula)}</pre>',
        f"Assumes: {_text(formula.assumes)}\n{{ .assumes }}",
        f"Source: {_cite(formula.source, up)}\n{{ .source }}",
    ]
    return "\n\n".join(lines)


def _cite(text: str, up: str) -> str:
    """Links `[key ...]` to the page of sources and adds the full reference of each key."""
    linked = re.sub(
        r"\\\[([a-z0-9-]+)([^\]\\]*)\\?\]",
        lambda found: f"[\\[{found[1]}\\]]({up}reference/sources.md#{found[1]}){found[2]}",
        _text(text),
    )
    full = "<br>".join(
        f"<small>{_text(REFERENCES[key])}</small>" for key in dict.fromkeys(keys(text))
    )
    return f"{linked}<br>{full}" if full else linked


def _schedule_pages(cited: dict[str, list[str]]) -> dict[str, str | bytes]:
    pages: dict[str, str | bytes] = {"reference/schedules/index.md": ""}
    rows = []
    for document in api.schedules().documents:
        name = document["name"]
        schedule = SCHEDULES[name]
        module = import_module(schedule.module)
        picture, table = _drawn(name)
        page = f"reference/schedules/{name}.md"
        pages[f"reference/schedules/{name}.svg"] = picture
        limits = (inspect.getdoc(function_of(schedule.legal)) or "").replace(
            "Raises InputError.", ""
        )
        parts = [
            f"# {name}",
            _text(document["says"]),
            _gantt(name, f"{name}.svg"),
            "## Limits",
            _cite(" ".join(limits.split()), "../../"),
            _path(module),
            "## Runs on",
            ", ".join(f"[{stack}](../stacks.md#{stack})" for stack in document["stacks"])
            or "No training software that is known here.",
        ]
        formulas = [
            _formula(formula, 3, page, cited) for formula in formulas_in(schedule.closed_forms)
        ]
        if formulas:
            parts += ["## Closed forms", *formulas]
        parts += ["## The timeline in numbers", f"```text\n{table}\n```"]
        pages[page] = "\n\n".join(parts)
        rows.append([f"[{name}]({name}.md)", _text(document["says"])])
    compared = "simulate --schedule all --pp 4 --microbatches 8"
    pages["reference/schedules/index.md"] = "\n\n".join(
        [
            "# Schedules",
            "In which order the ranks of a pipeline run their micro-batches: *p* ranks, *m*"
            " micro-batches, *v* stages a rank.",
            _table(["schedule", "what it is"], rows),
            f"```ppplan\n{compared}\n```",
        ]
    )
    return pages


def _drawn(name: str) -> tuple[str, str]:
    """The Gantt chart of a schedule as SVG, and what the command prints of it."""
    microbatches = "1" if name == "naive" else "8"
    size = ["--pp", "4", "--microbatches", microbatches]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "chart.svg"
        table = _output(["simulate", "--schedule", name, *size, "--gantt", str(path)])
        return path.read_text(), table[: table.index("\nFiles:")].rstrip()


def _gantt(name: str, path: str) -> str:
    return f'<div class="chart" markdown>\n\n![{name} on 4 ranks]({path})\n\n</div>'


def _sources_page(cited: dict[str, list[str]]) -> str:
    parts = ["# Sources", "What formulas and constants cite, and where."]
    for key, reference in REFERENCES.items():
        parts += [f"## {key}", _linked(_text(reference))]
        links = [f"[`{link.partition('#')[2]}`](../{link})" for link in cited[key]]
        if links:
            parts.append(f"Cited by {', '.join(links)}.\n{{ .source }}")
    return "\n\n".join(parts)


def _linked(text: str) -> str:
    """Links of papers and repositories that a reference names."""
    text = re.sub(r"arXiv (\d{4}\.\d{5})", r"[arXiv \1](https://arxiv.org/abs/\1)", text)
    return re.sub(r"(github\.com/[\w.-]+/[\w.-]*\w)", r"[\1](https://\1)", text)


# Rules


def _rules_page(framework: str, rules: tuple[Rule, ...]) -> str:
    parts = [
        f"# Rules of {FRAMEWORKS[framework]}",
        "What a layout must obey. The search drops a layout that breaks one; `explain` and"
        " `check` print the sentence with the values of the layout.",
    ]
    by_file: dict[str, list[Rule]] = defaultdict(list)
    for rule in rules:
        by_file[_rule_file(rule)].append(rule)
    for path, listed in by_file.items():
        sources = _rule_sources(ROOT / path)
        says = ast.get_docstring(ast.parse((ROOT / path).read_text())) or ""
        parts += [f"## {Path(path).stem}", _text(_first(says)), f"`{path}`\n{{ .path }}"]
        rows = [
            [_text(rule.name), _sentence(rule.says), _versions(rule), _text(sources[rule.name])]
            for rule in listed
        ]
        head = ["rule", "what must hold", "versions", "source"]
        if not any(row[3] for row in rows):
            head, rows = head[:3], [row[:3] for row in rows]
        parts.append(_table(head, rows))
    return "\n\n".join(parts)


def _rule_file(rule: Rule) -> str:
    return str(Path(inspect.getfile(rule.holds)).relative_to(ROOT))


def _rule_sources(path: Path) -> dict[str, str]:
    """Name of a rule -> the source that stands below the tuple of rules in which it is."""
    out: dict[str, str] = defaultdict(str)
    body = ast.parse(path.read_text()).body
    for node, after in pairwise(body):
        if not (isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)):
            continue
        source = " ".join(str(after.value.value).split())
        if not source.startswith("Source"):
            continue
        for call in ast.walk(node):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "Rule":
                name = call.args[0]
                assert isinstance(name, ast.Constant)
                out[str(name.value)] = re.sub(r"^Source(?: of all)?:\s*", "", source)
    return out


def _sentence(says: str) -> str:
    """The sentence of a rule; in italics the names of values that are filled in."""
    must = re.split(r"\{([^}]+)\}", says.partition(", but got")[0])
    for at in range(1, len(must), 2):
        path = re.split(r"[.\[\]!:]+", must[at].removesuffix("!r").rstrip("]"))
        must[at] = f"*{path[-2] if path[-1] == 'name' else path[-1]}*"
    return "".join(part if at % 2 else _text(part) for at, part in enumerate(must))


def _versions(rule: Rule) -> str:
    since, before = (".".join(map(str, version)) for version in (rule.since, rule.before))
    if rule.since == FIRST:
        return "all" if rule.before == NEVER else f"before {before}"
    return f"from {since}" if rule.before == NEVER else f"{since} up to {before}"


# What is known by name


def _clusters_page() -> str:
    documents = api.clusters().documents
    rows, details = [], []
    for each in documents:
        gpu, node, fabric = each["gpu"], each["node"], each["fabric"]
        rows.append(
            [
                f"[{each['name']}](#{each['name']})",
                f"{node['gpus']} x {gpu['name']}",
                f"{gpu['memory_gib']:.0f}",
                f"{gpu['peak_tflops']['bf16']:,.0f}" if "bf16" in gpu["peak_tflops"] else "",
                f"{gpu['hbm_gbytes_per_s']:,.0f}",
                f"{node['domain']['gbytes_per_s']:g}",
                f"{fabric['nics']} x {fabric['nic_gbytes_per_s']:g}",
                "assumed" if each["kernels"]["assumed"] else "measured",
            ]
        )
        details.append(_details(each["name"], _source_lines(each)))
    head = ["cluster", "GPUs a node", "GiB", "bf16 TFLOP/s", "HBM GB/s", "in node GB/s"]
    intro = (
        "Machines that `--cluster` knows by name. Peaks are dense; bandwidths are one direction,"
        " in node per GPU, NICs per node. Rates: whether kernel rates were measured on this GPU or"
        " are assumed from a relative's. Fields are explained in"
        " [Hardware profiles](cluster-files.md)."
    )
    table = _table([*head, "NICs GB/s", "rates"], rows)
    return "\n\n".join(["# Clusters", intro, table, "## Where the figures are from", *details])


def _models_page() -> str:
    rows, details = [], []
    for each in api.models().documents:
        heads = f"{each['num_heads']} / {each['num_kv_heads']}"
        rows.append(
            [
                f"[{each['name']}](#{each['name']})",
                f"{each['parameters'] / 1e9:,.2f}",
                f"{each['active_parameters'] / 1e9:,.2f}",
                str(each["num_layers"]),
                f"{each['hidden_size']:,}",
                heads,
                f"{each['vocab_size']:,}",
                f"{each['max_seq_length']:,}",
            ]
        )
        details.append(_details(each["name"], _source_lines(each)))
    head = ["model", "B parameters", "B active", "layers", "hidden", "heads / kv", "vocabulary"]
    intro = (
        "Models that `--model` knows by name. It takes a Hugging Face `config.json` or a YAML too."
    )
    return "\n\n".join(
        [
            "# Models",
            intro,
            _table([*head, "context"], rows),
            "## Where the shapes are from",
            *details,
        ]
    )


def _stacks_page() -> str:
    rows, details = [], []
    for each in api.stacks(every=True).documents:
        rows.append(
            [
                f"[{each['name']}](#{each['name']})",
                FRAMEWORKS[each["framework"]],
                each["stands_for"] or (each["reproduces"] and f"reproduces {each['reproduces']}"),
                each["attention"],
                ", ".join(f"[{name}](schedules/{name}.md)" for name in each["schedules"]),
            ]
        )
        details.append(_details(each["name"], _source_lines(each)))
    figures = meanings(Software)
    for group, field in Software.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            figures |= {
                f"{group}.{name}": says for name, says in meanings(field.annotation).items()
            }
    fields = [[f"`{name}`", _text(" ".join(says.split()))] for name, says in figures.items()]
    intro = (
        "What the cost model knows of a training software: what it overlaps, fuses and keeps."
        " `--stack` names one, or a distribution: a software under the switches of somebody's"
        " recipes; the framework has a default. Some are there for published runs alone."
    )
    return "\n\n".join(
        [
            "# Training software",
            intro,
            _table(["stack", "framework", "what it is", "attention", "schedules"], rows),
            "## Where the figures are from",
            *details,
            "## Fields",
            _table(["field", "meaning"], [row for row in fields if row[1]]),
        ]
    )


def _source_lines(document: dict[str, Any]) -> list[str]:
    """Every `source`, `assumed` and `note` of a document, with the group of figures it is of."""
    return [f"**{label}**: {_text(text)}" for label, text in _sources(document, "")]


def _sources(group: dict[str, Any], path: str) -> Iterator[tuple[str, str]]:
    for name, value in group.items():
        where = f"{path}.{name}" if path else name
        if isinstance(value, dict):
            yield from _sources(value, where)
        elif name in ("source", "assumed", "note", "price_source") and value:
            yield (path if name == "source" and path else where), str(value)


def _details(name: str, lines: list[str]) -> str:
    body = "\n".join(f"- {line}" for line in lines)
    return f"**{name}**\n{{ #{name} }}\n\n{body}"


# Texts of the repository


def _accuracy_page() -> str:
    """The README's section on measured runs, whose table a test keeps equal to the predictions."""
    readme = (ROOT / "README.md").read_text()
    section = readme.partition("\n## How far it is from measured runs\n")[2].partition("\n## ")[0]
    return "# How far it is from measured runs\n" + _localised(section, ROOT)


def _copied(path: Path) -> str:
    return _localised(path.read_text(), path.parent)


def _localised(text: str, folder: Path) -> str:
    """Links to files of the repository, which are not on the site, as names of files."""

    def replaced(link: re.Match[str]) -> str:
        image, label, target = link.groups()
        if "://" in target or target.startswith("#"):
            return link[0]
        path = (folder / target.partition("#")[0]).resolve()
        assert path.exists(), f"{link[0]}: no such file"
        return "" if image else f"{label} (`{path.relative_to(ROOT)}`)"

    return LINK.sub(replaced, re.sub(r"<!--.*?-->\n?", "", text, flags=re.DOTALL))


# Markdown


def _table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table; columns of numbers stand at the right."""
    rule = []
    for column in range(len(head)):
        cells = [row[column] for row in rows]
        rule.append("--:" if all(NUMBER.fullmatch(cell) for cell in cells) else "---")
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, rule, *rows])


def _path(module: Any) -> str:
    path = Path(inspect.getfile(module)).relative_to(ROOT)
    return f"`{path}`\n{{ .path }}"


def _first(text: str | None) -> str:
    """The first paragraph of a docstring in one line."""
    return " ".join(inspect.cleandoc(text or "").split("\n\n")[0].split())


def _text(text: str) -> str:
    """Plain words as Markdown: what stands in backquotes stays code, the rest is literal."""
    parts = text.split("`")
    for at in range(0, len(parts), 2):
        parts[at] = re.sub(r"([*_\[\]<>{}|])", r"\\\1", parts[at]).replace("\\<", "&lt;")
    return "`".join(parts)
