"""A launch file in YAML: comments, then documents whose scripts stay readable."""

from __future__ import annotations

from typing import Any

import yaml

from planner.emit.program import Program


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks, line by line."""


def _block(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _block)


def text(program: Program, use: str, documents: list[dict[str, Any]], *, starts: bool) -> str:
    """The program's comments, how to use the file, and the documents; starts: each begins with
    `---`.
    """
    comments = "".join(f"# {line}\n" for line in program.comments)
    body = yaml.dump_all(
        documents, Dumper=_Dumper, sort_keys=False, width=160, explicit_start=starts
    )
    return comments + use + body
