"""How many nodes and GPUs a launch takes, of which kind: what its launcher is told, else its job,
else its environment.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import NamedTuple

from planner.intake.bash import slurm_header
from planner.intake.bash.state import place
from planner.intake.bash.traced_text import Piece, Text, computed, first_unknown, plain
from planner.intake.documents.tree import Leaf
from planner.intake.frameworks.vocabulary import Named, named
from planner.intake.reading import Unresolved
from planner.intake.scripts.argparse_like import describe_unknown, leaf, unknown_variable
from planner.intake.scripts.launchers import TrainingCommand, option

VISIBLE = (
    "CUDA_VISIBLE_DEVICES",
    "ASCEND_RT_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
)
GPU = re.compile(r"(?:nvidia[_-]?)?[a-z]{1,4}[-_]?\d{1,4}", re.IGNORECASE)
"""What a job calls a kind of GPU: a100, h100-80g, mi300x; other words (a partition, a place to fill
in) are none.
"""
ONE: Text = (Piece("1"),)
EVERY = "every GPU of the node: how many, the file does not say; --gpus N supplies it"


class Count(NamedTuple):
    """A count as written, or why it is not known."""

    text: Text | None = None
    why: str = ""
    flag: str = ""


class World(NamedTuple):
    """Counts under the Reading's names, and what is open."""

    names: list[Named]
    unresolved: list[Unresolved]
    notes: list[str]


def world(command: TrainingCommand, texts: Mapping[str, str], hostfile: Text | None) -> World:
    """Nodes, GPUs a node and GPUs of a launch. `hostfile`: the text of the one that deepspeed is
    given, where it lies beside.
    """
    options = command.options
    if "torchrun" in options:
        counts, word = _torchrun(options["torchrun"], command), command.words["torchrun"]
    elif "deepspeed" in options:
        counts, word = (
            _deepspeed(options["deepspeed"], command, hostfile),
            command.words["deepspeed"],
        )
    elif "accelerate" in options:
        counts, word = _accelerate(options["accelerate"], command), command.words["accelerate"]
    elif "mpirun" in options:
        counts, word = _mpirun(options["mpirun"]), command.words["mpirun"]
    elif "slurm" in options:
        counts, word = _slurm(options["slurm"]), command.words["slurm"]
    else:
        counts, word = _environment(command), command.command.words[0]
    out = World([], [], [])
    for name, count in counts.items():
        _add(out, name, count, word, texts)
    _product(out, word, texts)
    _hardware(out, options.get("slurm", {}), word, texts)
    return out


def _torchrun(options: dict[str, Text], command: TrainingCommand) -> dict[str, Count]:
    nodes = None if "--standalone" in options else option(options, "--nnodes")
    each = option(options, "--nproc-per-node")
    out = {
        "nodes": Count(ONE, flag="torchrun, one node unless told otherwise"),
        "gpus_per_node": Count(ONE, flag="torchrun, one process a node unless told otherwise"),
    }
    if nodes:
        out["nodes"] = Count(nodes, flag="--nnodes")
    if each is not None and plain(each) in ("gpu", "auto"):
        every = Count(None, f"--nproc-per-node {plain(each)}: {EVERY}")
        out["gpus_per_node"] = _visible(command) or every
    elif each:
        out["gpus_per_node"] = Count(each, flag="--nproc-per-node")
    return out


def _deepspeed(
    options: dict[str, Text], command: TrainingCommand, hostfile: Text | None
) -> dict[str, Count]:
    nodes, each = option(options, "--num-nodes"), option(options, "--num-gpus")
    include = option(options, "--include")
    if include:
        return _included(include, hostfile)
    gpus = _visible(command) or _slots(hostfile)
    if each:
        gpus = Count(each, flag="--num_gpus")
    return {"nodes": _deepspeed_nodes(options, nodes, hostfile), "gpus_per_node": gpus}


def _included(include: Text, hostfile: Text | None) -> dict[str, Count]:
    """`--include host1:0,1@host2:0,1`; a host without GPUs has those of the hostfile."""
    hosts = plain(include).split("@")
    gpus = {len(host.partition(":")[2].split(",")) for host in hosts}
    each = _slots(hostfile)
    if len(gpus) == 1 and all(":" in host for host in hosts):
        each = Count(computed(str(gpus.pop()), include), flag="--include")
    return {
        "nodes": Count(computed(str(len(hosts)), include), flag="--include"),
        "gpus_per_node": each,
    }


def _deepspeed_nodes(options: dict[str, Text], nodes: Text | None, hostfile: Text | None) -> Count:
    if nodes:
        return Count(nodes, flag="--num_nodes")
    hosts = re.findall(r"^\s*[^#\s]\S*", plain(hostfile or ()), re.MULTILINE)
    if hosts:
        return Count(computed(str(len(hosts)), hostfile or ()), flag="hostfile")
    if "--hostfile" in options:
        return Count(None, "the hostfile is not beside the script; --gpus N supplies the count")
    return Count(ONE, flag="deepspeed without a hostfile, one node")


def _slots(hostfile: Text | None) -> Count:
    text = plain(hostfile or ())
    slots = re.findall(r"^\s*[^#\s]\S*[ \t]+slots\s*=\s*(\d{1,4})", text, re.MULTILINE)
    if len(set(map(int, slots))) != 1:
        return Count(None, EVERY)
    return Count(computed(str(int(slots[0]))), flag="hostfile")


def _accelerate(options: dict[str, Text], command: TrainingCommand) -> dict[str, Count]:
    processes, machines = option(options, "--num-processes"), option(options, "--num-machines")
    by_file = "--config-file" in options
    out: dict[str, Count] = {}
    if machines:
        out["nodes"] = Count(machines, flag="--num_machines")
    elif processes or not by_file:
        out["nodes"] = Count(ONE, flag="accelerate, one machine unless told otherwise")
    if processes:
        out["gpus"] = Count(processes, flag="--num_processes")
    elif not by_file:
        out["gpus_per_node"] = _visible(command) or Count(None, EVERY)
    return out


def _mpirun(options: dict[str, Text]) -> dict[str, Count]:
    total = _first(options, ("-np", "-n", "--np", "-c"))
    each = _first(options, ("-N", "--npernode", "-npernode", "-ppn", "--ntasks-per-node"))
    ppr = re.match(r"ppr:(\d+):node", plain(options.get("--map-by", ())))
    hosts = plain(options.get("-H") or options.get("--host") or options.get("-host") or ())
    slots = list(map(int, re.findall(r":(\d{1,4})(?:,|$)", hosts)))
    out: dict[str, Count] = {}
    if total:
        out["gpus"] = Count(total, flag="mpirun -np")
    elif slots:
        out["gpus"] = Count(computed(str(sum(slots))), flag="mpirun --host")
    if each:
        out["gpus_per_node"] = Count(each, flag="mpirun")
    elif ppr:
        out["gpus_per_node"] = Count(computed(ppr[1]), flag="mpirun")
    return out or {
        "gpus": Count(None, "mpirun is not told how many processes to start; --gpus N supplies it")
    }


def _first(options: dict[str, Text], names: tuple[str, ...]) -> Text | None:
    """The first of these options that is given."""
    return next((options[name] for name in names if name in options), None)


def _slurm(options: dict[str, Text]) -> dict[str, Count]:
    """One process a task: tasks are GPUs."""
    out: dict[str, Count] = {}
    nodes, each, total = (
        options.get("--nodes"),
        options.get("--ntasks-per-node"),
        options.get("--ntasks"),
    )
    gpus = slurm_header.gpus_per_node(options)
    if nodes:
        out["nodes"] = Count(nodes, flag="--nodes")
    if each and (slurm_header.count(each) or 2) > 1:
        out["gpus_per_node"] = Count(each, flag="--ntasks-per-node")
    elif gpus:
        out["gpus_per_node"] = Count(gpus[0], flag="GPUs of the job")
    elif total:
        out["gpus"] = Count(total, flag="--ntasks")
    elif options.get("--gpus"):
        out["gpus"] = Count(options["--gpus"], flag="--gpus")
    return out or {
        "gpus": Count(
            None, "the job's nodes and tasks are not in the file; --gpus N supplies the count"
        )
    }


def _environment(command: TrainingCommand) -> dict[str, Count]:
    env = command.environment
    nodes, each = env.get("NNODES"), env.get("NPROC_PER_NODE")
    if each:
        alone = Count(ONE, flag="one node unless NNODES says otherwise")
        return {
            "nodes": Count(nodes, flag="NNODES") if nodes else alone,
            "gpus_per_node": Count(each, flag="NPROC_PER_NODE"),
        }
    if nodes:
        gpus = _visible(command) or Count(None, EVERY)
        return {"nodes": Count(nodes, flag="NNODES"), "gpus_per_node": gpus}
    if env.get("WORLD_SIZE"):
        return {"gpus": Count(env["WORLD_SIZE"], flag="WORLD_SIZE")}
    visible = _visible(command)
    if visible:
        return {
            "nodes": Count(ONE, flag="started without a launcher"),
            "gpus_per_node": visible,
        }
    return {"gpus": Count(None, "the command says no GPU count; --gpus N supplies it")}


def _visible(command: TrainingCommand) -> Count | None:
    """GPUs that CUDA_VISIBLE_DEVICES lists."""
    for name in VISIBLE:
        listed = command.environment.get(name)
        if listed and re.fullmatch(r"\s*\d+(\s*,\s*\d+)*\s*", plain(listed)):
            return Count(computed(str(plain(listed).count(",") + 1), listed), flag=name)
    return None


def _add(out: World, name: str, count: Count, word: Text, texts: Mapping[str, str]) -> None:
    """A count as known, or as a question."""
    full = f"launch.{name}"
    question = full if name == "nodes" else "gpus"
    if count.text is None:
        out.unresolved.append(Unresolved(question, count.why, place(word, texts)))
        return
    first = first_unknown(count.text)
    if first:
        variable = unknown_variable(first, full)
        unknown = describe_unknown(first)
        why = f"{count.flag} takes {unknown}; --set {variable}=N or --gpus N supplies it"
        out.unresolved.append(Unresolved(variable, why, place(word, texts)))
        return
    text = plain(count.text)
    elastic = re.fullmatch(r"\d{1,6}:(\d{1,6})", text.strip())
    number = slurm_header.count(count.text)
    if elastic:
        number = int(elastic[1])
    if not number:
        why = f"{count.flag} must be a count, but says {text[:40]!r}; --gpus N supplies it"
        out.unresolved.append(Unresolved(question, why, place(word, texts)))
        return
    if ":" in text:
        out.notes.append(f"{count.flag} {text[:20]} may change while it runs: {number} is taken")
    out.names.append(named(full, leaf((full,), number, word, [count.text], texts, count.flag)))


def _product(out: World, word: Text, texts: Mapping[str, str]) -> None:
    """GPUs from nodes and GPUs a node, or GPUs a node from the other two."""
    known = {name.name: name.value for name in out.names}
    nodes, each = known.get("launch.nodes"), known.get("launch.gpus_per_node")
    gpus = known.get("launch.gpus")
    where = place(word, texts)
    if nodes and each and "launch.gpus" not in known:
        where = f"{where} {nodes} nodes of {each}".strip()
        product = Leaf(("launch.gpus",), nodes * each, origin="variable", where=where)
        out.names.append(named("launch.gpus", product))
    elif nodes and gpus and not each and gpus % nodes == 0:
        name = "launch.gpus_per_node"
        out.names.append(named(name, Leaf((name,), gpus // nodes, origin="variable", where=where)))


def _hardware(out: World, options: dict[str, Text], word: Text, texts: Mapping[str, str]) -> None:
    """The GPU that a job asks for by name, or that its partition is called after."""
    gpus = slurm_header.gpus_per_node(options)
    constraint, partition = options.get("--constraint", ()), options.get("--partition", ())
    flag, value, kind = "--constraint", constraint, ""
    if gpus and gpus[2]:
        flag, value, kind = "--gres", gpus[0], gpus[2]
    elif constraint:
        kind = re.split(r"[&|,\[\]*() ]", plain(constraint))[0]
    if not kind:
        flag, value = "--partition", partition
        parts = re.split(r"[-_.,]", plain(partition))
        kind = next((part for part in parts if GPU.match(part)), "")
    if GPU.match(kind):
        hardware = leaf(("launch.hardware",), kind, word, [value], texts, flag)
        out.names.append(named("launch.hardware", hardware))


def runtime_variables(command: TrainingCommand) -> dict[str, Text]:
    """Variables of ray's --runtime-env-json."""
    document = command.options.get("ray", {}).get("--runtime-env-json", ())
    try:
        variables = json.loads(plain(document))["env_vars"].items()
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return {}
    via = "--runtime-env-json"
    return {str(name): (Piece(str(value), via=via),) for name, value in variables}
