"""Launch files in bash: a Program started by torchrun on each node, as a Slurm job, or by the
deepspeed launcher.
"""

from __future__ import annotations

from planner.emit import bash
from planner.emit.program import Program

BESIDE = '$(dirname "$0")'
"""Where a script that runs in place finds its files; Slurm runs a copy of it from elsewhere."""


_ACCELERATE = (
    '--num_machines "$NNODES" --num_processes "$((NNODES * GPUS_PER_NODE))"',
    '--main_process_ip "$MASTER_ADDR" --main_process_port "$MASTER_PORT"',
)
"""How Accelerate calls nodes, processes and the first node."""


def torchrun(program: Program) -> str:
    """Run it on every node, with NODE_RANK and MASTER_ADDR set where there are several."""
    use = (
        (
            "Run this on every node; with several nodes set NODE_RANK (0, 1, ...) and MASTER_ADDR"
            " (the first node). Flags added to the"
        ),
        "call come last and win. Variables:",
    )
    cluster = (
        ("NNODES", str(program.nodes)),
        ("GPUS_PER_NODE", str(program.gpus_per_node)),
        ("NODE_RANK", "0"),
        ("MASTER_ADDR", "localhost"),
        ("MASTER_PORT", "29500"),
    )
    start = [
        'torchrun --nnodes "$NNODES" --nproc-per-node "$GPUS_PER_NODE" --node-rank "$NODE_RANK"',
        '--master-addr "$MASTER_ADDR" --master-port "$MASTER_PORT"',
    ]
    if program.accelerate:
        start = [program.accelerate, '--machine_rank "$NODE_RANK"', *_ACCELERATE]
    return bash.text(
        bash.head(program, (), use),
        bash.variables(program, cluster, BESIDE),
        bash.exports(program),
        bash.versions(program),
        bash.flags(program),
        bash.command(program, start),
    )


_FIRST_NODE = """\
if [[ -n ${SLURM_JOB_NODELIST:-} ]]; then
  MASTER_ADDR=${MASTER_ADDR:-$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)}
fi
MASTER_ADDR=${MASTER_ADDR:-localhost}"""
_EACH_NODE = """\
# One torchrun a node; the node's number is known only inside the task, so a small shell asks for \
it there.
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
    use = (
        (
            "Submit with sbatch; partition, account and time limit are options of the call. Flags"
            " after the file's name come last and"
        ),
        "win. Variables:",
    )
    cluster = (
        ("NNODES", f"${{SLURM_NNODES:-{program.nodes}}}"),
        ("GPUS_PER_NODE", str(program.gpus_per_node)),
        ("MASTER_PORT", "29500"),
    )
    start = [
        'srun bash -c \'exec torchrun --node-rank "$SLURM_NODEID" "$@"\' torchrun',
        (
            '--nnodes "$NNODES" --nproc-per-node "$GPUS_PER_NODE" --master-addr "$MASTER_ADDR"'
            ' --master-port "$MASTER_PORT"'
        ),
    ]
    if program.accelerate:
        options = program.accelerate.removeprefix("accelerate launch ")
        start = [
            (
                'srun bash -c \'exec accelerate launch --machine_rank "$SLURM_NODEID" "$@"\''
                " accelerate"
            ),
            options,
            *_ACCELERATE,
        ]
    return bash.text(
        bash.head(program, directives, use),
        [*bash.variables(program, cluster, "${SLURM_SUBMIT_DIR:-.}"), *_FIRST_NODE.splitlines()],
        bash.exports(program),
        bash.versions(program),
        bash.flags(program),
        [*_EACH_NODE.splitlines(), *bash.command(program, start)],
    )


_ADDRESS = """\
if ((NNODES > 1)) && [[ ! -f $HOSTFILE ]]; then
  echo "$NNODES nodes need a hostfile with lines such as: worker-1 slots=$GPUS_PER_NODE; set \
HOSTFILE" >&2
  exit 2
fi
ADDRESS=(--master_port "$MASTER_PORT")
if [[ -n $MASTER_ADDR ]]; then
  ADDRESS+=(--master_addr "$MASTER_ADDR")
fi"""


def _everywhere(program: Program) -> list[str]:
    """The launcher takes few variables along to other nodes, and those of a file that it reads."""
    if not program.environment:
        return []
    lines = " ".join(f"'{name}={value}'" for name, value in program.environment)
    return [
        "# Variables for the processes of other nodes.",
        "DS_ENV_FILE=$(mktemp)",
        "export DS_ENV_FILE",
        f"printf '%s\\n' {lines} >\"$DS_ENV_FILE\"",
    ]


def deepspeed(program: Program) -> str:
    """Run it once, on the first node: the launcher starts the others over ssh."""
    use = (
        (
            "Run this on one node. With several, HOSTFILE names them and ssh reaches them without a"
            " password. Flags added to the call"
        ),
        "come last and win. Variables:",
    )
    cluster = (
        ("NNODES", str(program.nodes)),
        ("GPUS_PER_NODE", str(program.gpus_per_node)),
        ("HOSTFILE", "/job/hostfile"),
        ("MASTER_ADDR", ""),
        ("MASTER_PORT", "29500"),
    )
    start = [
        'deepspeed --hostfile "$HOSTFILE" --num_nodes "$NNODES" --num_gpus "$GPUS_PER_NODE"'
        ' "${ADDRESS[@]}" --no_local_rank'
    ]
    # The path is the same on every node, wherever the launcher stands when it starts there.
    folder = '$(cd "$(dirname "$0")" && pwd)'
    return bash.text(
        bash.head(program, (), use),
        [*bash.variables(program, cluster, folder), *_ADDRESS.splitlines()],
        [*bash.exports(program), *_everywhere(program)],
        bash.versions(program),
        bash.flags(program),
        bash.command(program, start),
    )
