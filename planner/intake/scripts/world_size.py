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
from planner.intake.frameworks.vocabulary import Named
from planner.intake.reading import Unresolved
from planner.intake.scripts.argparse_like import asked, leaf
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
EVERY = "every GPU of the node: how many, the file does not say; --gpus N supplies it"


class Stated(NamedTuple):
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
    told = command.told
    if "torchrun" in told:
        counts, word = _torchrun(told["torchrun"], command), command.words["torchrun"]
    elif "deepspeed" in told:
        counts, word = _deepspeed(told["deepspeed"], command, hostfile), command.words["deepspeed"]
    elif "accelerate" in told:
        counts, word = _accelerate(told["accelerate"], command), command.words["accelerate"]
    elif "mpirun" in told:
        counts, word = _mpirun(told["mpirun"]), command.words["mpirun"]
    elif "slurm" in told:
        counts, word = _slurm(told["slurm"]), command.words["slurm"]
    else:
        counts, word = _environment(command), command.command.words[0]
    out = World([], [], [])
    for name, stated in counts.items():
        _count(out, name, stated, word, texts)
    _product(out, word, texts)
    _hardware(out, told.get("slurm", {}), word, texts)
    return out


def _torchrun(told: dict[str, Text], command: TrainingCommand) -> dict[str, Stated]:
    nodes = None if "--standalone" in told else option(told, "--nnodes")
    each = option(told, "--nproc-per-node")
    visible = _visible(command)
    automatic = each is not None and plain(each) in ("gpu", "auto")
    return {
        "nodes": Stated(
            nodes or (Piece("1"),),
            flag="--nnodes" if nodes else "torchrun, one node unless told otherwise",
        ),
        "gpus_per_node": (
            (visible or Stated(None, f"--nproc-per-node {plain(each or ())}: {EVERY}"))
            if automatic
            else Stated(
                each or (Piece("1"),),
                flag=(
                    "--nproc-per-node"
                    if each
                    else "torchrun, one process a node unless told otherwise"
                ),
            )
        ),
    }


def _deepspeed(
    told: dict[str, Text], command: TrainingCommand, hostfile: Text | None
) -> dict[str, Stated]:
    nodes, each, include = (
        option(told, "--num-nodes"),
        option(told, "--num-gpus"),
        option(told, "--include"),
    )
    if include:
        hosts = [host.partition(":") for host in plain(include).split("@")]
        gpus = {len(ids.split(",")) for _, colon, ids in hosts if colon}
        counted = (
            Stated(computed(str(gpus.pop()), include), flag="--include")
            if len(gpus) == 1 and all(host[1] for host in hosts)
            else None
        )
        return {
            "nodes": Stated(computed(str(len(hosts)), include), flag="--include"),
            "gpus_per_node": counted or _slots(hostfile),
        }
    hosts_there = (
        len(re.findall(r"^\s*[^#\s]\S*", plain(hostfile), re.MULTILINE)) if hostfile else 0
    )
    stated = Stated(nodes, flag="--num_nodes") if nodes else None
    alone = "--hostfile" not in told
    by_file = (
        Stated(computed(str(hosts_there), hostfile or ()), flag="hostfile") if hosts_there else None
    )
    assumed = (
        Stated((Piece("1"),), flag="deepspeed without a hostfile, one node") if alone else None
    )
    known = (
        stated
        or by_file
        or assumed
        or Stated(None, "the hostfile is not beside the script; --gpus N supplies the count")
    )
    return {
        "nodes": known,
        "gpus_per_node": (
            Stated(each, flag="--num_gpus") if each else _visible(command) or _slots(hostfile)
        ),
    }


def _slots(hostfile: Text | None) -> Stated:
    found = (
        re.findall(r"^\s*[^#\s]\S*[ \t]+slots\s*=\s*(\d{1,4})", plain(hostfile), re.MULTILINE)
        if hostfile
        else []
    )
    slots = {int(one) for one in found}
    return (
        Stated(computed(str(slots.pop())), flag="hostfile")
        if len(slots) == 1
        else Stated(None, EVERY)
    )


def _accelerate(told: dict[str, Text], command: TrainingCommand) -> dict[str, Stated]:
    processes, machines = option(told, "--num-processes"), option(told, "--num-machines")
    out: dict[str, Stated] = {}
    if machines or processes or "--config-file" not in told:
        said = "--num_machines" if machines else "accelerate, one machine unless told otherwise"
        out["nodes"] = Stated(machines or (Piece("1"),), flag=said)
    if processes:
        out["gpus"] = Stated(processes, flag="--num_processes")
    elif "--config-file" not in told:
        out["gpus_per_node"] = _visible(command) or Stated(None, EVERY)
    return out


def _mpirun(told: dict[str, Text]) -> dict[str, Stated]:
    total = next((told[name] for name in ("-np", "-n", "--np", "-c") if name in told), None)
    each = next(
        (
            told[name]
            for name in ("-N", "--npernode", "-npernode", "-ppn", "--ntasks-per-node")
            if name in told
        ),
        None,
    )
    ppr = re.match(r"ppr:(\d+):node", plain(told.get("--map-by", ())))
    hosts = plain(told.get("-H") or told.get("--host") or told.get("-host") or ())
    slots = [int(one) for one in re.findall(r":(\d{1,4})(?:,|$)", hosts)]
    out: dict[str, Stated] = {}
    if total:
        out["gpus"] = Stated(total, flag="mpirun -np")
    elif slots:
        out["gpus"] = Stated(computed(str(sum(slots))), flag="mpirun --host")
    if each or ppr:
        out["gpus_per_node"] = Stated(each or computed(ppr[1] if ppr else ""), flag="mpirun")
    return out or {
        "gpus": Stated(None, "mpirun is not told how many processes to start; --gpus N supplies it")
    }


def _slurm(told: dict[str, Text]) -> dict[str, Stated]:
    """One process a task: tasks are GPUs."""
    out: dict[str, Stated] = {}
    nodes, each, total = told.get("--nodes"), told.get("--ntasks-per-node"), told.get("--ntasks")
    gpus = slurm_header.gpus_per_node(told)
    if nodes:
        out["nodes"] = Stated(nodes, flag="--nodes")
    if each and (slurm_header.count(each) or 2) > 1:
        out["gpus_per_node"] = Stated(each, flag="--ntasks-per-node")
    elif gpus:
        out["gpus_per_node"] = Stated(gpus[0], flag="GPUs of the job")
    elif total:
        out["gpus"] = Stated(total, flag="--ntasks")
    elif told.get("--gpus"):
        out["gpus"] = Stated(told["--gpus"], flag="--gpus")
    return out or {
        "gpus": Stated(
            None, "the job's nodes and tasks are not in the file; --gpus N supplies the count"
        )
    }


def _environment(command: TrainingCommand) -> dict[str, Stated]:
    env = command.environment
    nodes, each = env.get("NNODES"), env.get("NPROC_PER_NODE")
    if each or nodes:
        return {
            "nodes": Stated(
                nodes or (Piece("1"),),
                flag="NNODES" if nodes else "one node unless NNODES says otherwise",
            ),
            "gpus_per_node": (
                Stated(each, flag="NPROC_PER_NODE")
                if each
                else _visible(command) or Stated(None, EVERY)
            ),
        }
    if env.get("WORLD_SIZE"):
        return {"gpus": Stated(env["WORLD_SIZE"], flag="WORLD_SIZE")}
    visible = _visible(command)
    if visible:
        return {
            "nodes": Stated((Piece("1"),), flag="started without a launcher"),
            "gpus_per_node": visible,
        }
    return {"gpus": Stated(None, "the command says no GPU count; --gpus N supplies it")}


def _visible(command: TrainingCommand) -> Stated | None:
    """GPUs that CUDA_VISIBLE_DEVICES lists."""
    for name in VISIBLE:
        listed = command.environment.get(name)
        if listed and re.fullmatch(r"\s*\d+(\s*,\s*\d+)*\s*", plain(listed)):
            return Stated(computed(str(plain(listed).count(",") + 1), listed), flag=name)
    return None


def _count(out: World, name: str, stated: Stated, word: Text, texts: Mapping[str, str]) -> None:
    """A count known, or asked for."""
    full = f"launch.{name}"
    if stated.text is None:
        out.unresolved.append(
            Unresolved("gpus" if name != "nodes" else full, stated.why, place(word, texts))
        )
        return
    first = first_unknown(stated.text)
    if first:
        variable = first.unknown if re.fullmatch(r"\w+", first.unknown) else full
        why = f"{stated.flag} takes {asked(first)}; --set {variable}=N or --gpus N supplies it"
        out.unresolved.append(Unresolved(variable, why, place(word, texts)))
        return
    count = slurm_header.count(stated.text) or _elastic(plain(stated.text))
    if not count:
        variable = full if name == "nodes" else "gpus"
        why = (
            f"{stated.flag} must be a count, but says {plain(stated.text)[:40]!r}; --gpus N"
            " supplies it"
        )
        out.unresolved.append(Unresolved(variable, why, place(word, texts)))
        return
    if ":" in plain(stated.text):
        out.notes.append(
            f"{stated.flag} {plain(stated.text)[:20]} may change while it runs: {count} is taken"
        )
    out.names.append(_named(full, leaf((full,), count, word, [stated.text], texts, stated.flag)))


def _elastic(text: str) -> int | None:
    match = re.fullmatch(r"\d{1,6}:(\d{1,6})", text.strip())
    return int(match[1]) if match else None


def _named(name: str, found: Leaf) -> Named:
    return Named(name, found, found.value)


def _product(out: World, word: Text, texts: Mapping[str, str]) -> None:
    known = {name.name: name.value for name in out.names}
    nodes, each = known.get("launch.nodes"), known.get("launch.gpus_per_node")
    if nodes and each and "launch.gpus" not in known:
        stated = Leaf(
            ("launch.gpus",),
            nodes * each,
            origin="variable",
            where=f"{place(word, texts)} {nodes} nodes of {each}".strip(),
        )
        out.names.append(_named("launch.gpus", stated))
    elif nodes and known.get("launch.gpus") and not each and known["launch.gpus"] % nodes == 0:
        per = known["launch.gpus"] // nodes
        out.names.append(
            _named(
                "launch.gpus_per_node",
                Leaf(("launch.gpus_per_node",), per, origin="variable", where=place(word, texts)),
            )
        )


def _hardware(out: World, told: dict[str, Text], word: Text, texts: Mapping[str, str]) -> None:
    """The GPU that a job asks for by name, or that its partition is called after."""
    gpus = slurm_header.gpus_per_node(told)
    named = gpus[2] if gpus else ""
    constraint = told.get("--constraint")
    text = named or (re.split(r"[&|,\[\]*() ]", plain(constraint))[0] if constraint else "")
    place_of, flag = (
        constraint if not named and constraint else gpus[0] if gpus else (),
        ("--gres" if named else "--constraint"),
    )
    if not text and (partition := told.get("--partition")):
        text = next((part for part in re.split(r"[-_.,]", plain(partition)) if GPU.match(part)), "")
        place_of, flag = partition, "--partition"
    if text and GPU.match(text):
        said = leaf(("launch.hardware",), text, word, [place_of or ()], texts, flag)
        out.names.append(_named("launch.hardware", said))


def runtime_variables(command: TrainingCommand) -> dict[str, Text]:
    """Variables of ray's --runtime-env-json."""
    stated = command.told.get("ray", {}).get("--runtime-env-json")
    try:
        listed = json.loads(plain(stated)).get("env_vars", {}) if stated else {}
    except (ValueError, AttributeError, RecursionError):
        return {}
    return (
        {
            str(name): (Piece(str(value), via="--runtime-env-json"),)
            for name, value in listed.items()
        }
        if isinstance(listed, dict)
        else {}
    )
