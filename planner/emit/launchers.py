"""Launch files: bash that starts a Program by torchrun on each node, or as a Slurm job."""

from __future__ import annotations

from planner.emit.program import Flag, Program, quoted

_WIDTH = 118


def _head(program: Program, directives: tuple[str, ...], use: tuple[str, ...]) -> list[str]:
    said = [*program.comments, "", *use, *(f"  {name:<14} {meaning}" for name, _, meaning in program.variables)]
    return ["#!/usr/bin/env bash", *directives, *(f"# {line}".rstrip() for line in said), "set -euo pipefail"]


def _variables(program: Program, more: tuple[tuple[str, str], ...]) -> list[str]:
    plain = [(name, default) for name, default, _ in program.variables]
    return [f"{name}=${{{name}:-{default}}}" for name, default in (*more, *plain)]


def _array(name: str, flags: tuple[Flag, ...]) -> list[str]:
    """A bash array of flags, several a line: `NAME_FLAGS=(`, lines, `)`."""
    lines, line = [f"{name}_FLAGS=("], " "
    for word in map(quoted, flags):
        if len(line) + 1 + len(word) > _WIDTH and line.strip():
            lines.append(line)
            line = " "
        line += f" {word}"
    return [*lines, line, ")"]


def _flags(program: Program) -> list[str]:
    arrays = [line for name, flags in program.groups for line in _array(name, flags)]
    return [*arrays, *program.data_switch.splitlines()]


def _command(program: Program, start: list[str]) -> list[str]:
    """The call, one line a group of flags; what the user adds comes last and wins."""
    expansions = [f'"${{{name}_FLAGS[@]}}"' for name in (*(name for name, _ in program.groups), "DATA")]
    parts = [*start, f'"{program.entry}"', *expansions, '"$@"']
    return [" \\\n  ".join(parts)]


def _text(*blocks: list[str]) -> str:
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _exports(program: Program) -> list[str]:
    return [f"export {name}={value}" for name, value in program.environment]


def torchrun(program: Program) -> str:
    """Run it on every node, with NODE_RANK and MASTER_ADDR set where there are several."""
    use = ("Run this on every node; with several nodes set NODE_RANK (0, 1, ...) and MASTER_ADDR (the first node). Flags added to the",
           "call come last and win. Variables:")  # fmt: skip
    cluster = (("NNODES", str(program.nodes)), ("GPUS_PER_NODE", str(program.gpus_per_node)), ("NODE_RANK", "0"),
               ("MASTER_ADDR", "localhost"), ("MASTER_PORT", "29500"))  # fmt: skip
    start = ['torchrun --nnodes "$NNODES" --nproc-per-node "$GPUS_PER_NODE" --node-rank "$NODE_RANK"',
             '--master-addr "$MASTER_ADDR" --master-port "$MASTER_PORT"']  # fmt: skip
    return _text(_head(program, (), use), _variables(program, cluster), _exports(program), _flags(program), _command(program, start))


_FIRST_NODE = """\
if [[ -n ${SLURM_JOB_NODELIST:-} ]]; then
  MASTER_ADDR=${MASTER_ADDR:-$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)}
fi
MASTER_ADDR=${MASTER_ADDR:-localhost}"""
_EACH_NODE = """\
# One torchrun a node; the node's number is known only inside the task, so a small shell asks for it there.
# shellcheck disable=SC2016"""


def slurm(program: Program) -> str:
    """Submit it with sbatch: one task a node, which starts torchrun for the node's GPUs."""
    directives = (
        f"#SBATCH --job-name={program.name}",
        f"#SBATCH --nodes={program.nodes}",
        "#SBATCH --ntasks-per-node=1",
        f"#SBATCH --gpus-per-node={program.gpus_per_node}",
        "#SBATCH --exclusive",
        "#SBATCH --output=%x-%j.log",
    )
    use = ("Submit with sbatch; partition, account and time limit are options of the call. Flags after the file's name come last and",
           "win. Variables:")  # fmt: skip
    cluster = (("NNODES", f"${{SLURM_NNODES:-{program.nodes}}}"), ("GPUS_PER_NODE", str(program.gpus_per_node)), ("MASTER_PORT", "29500"))
    start = ["srun bash -c 'exec torchrun --node-rank \"$SLURM_NODEID\" \"$@\"' torchrun",
             '--nnodes "$NNODES" --nproc-per-node "$GPUS_PER_NODE" --master-addr "$MASTER_ADDR" --master-port "$MASTER_PORT"']  # fmt: skip
    return _text(
        _head(program, directives, use), [*_variables(program, cluster), *_FIRST_NODE.splitlines()], _exports(program), _flags(program),
        [*_EACH_NODE.splitlines(), *_command(program, start)],
    )  # fmt: skip
