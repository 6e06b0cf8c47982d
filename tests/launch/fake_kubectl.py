"""A kubectl whose cluster is a folder (FAKE_CLUSTER): its pods are processes of this machine, their
logs files.

Takes the calls that a launcher makes: apply, get pods, logs, delete. What a controller adds to a
pod (its number, the address of the first) is added here.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

CLUSTER = Path(os.environ["FAKE_CLUSTER"])
REAPER = """import subprocess, sys
done = subprocess.run(sys.argv[3:], stdout=open(sys.argv[2], "wb"))
open(sys.argv[1], "w").write(str(done.returncode))"""


def templates(document: dict[str, Any]) -> list[tuple[str, dict[str, Any], dict[str, str]]]:
    """(pod's name, template, variables of its controller) of each pod that the document makes."""
    name, spec, kind = document["metadata"]["name"], document.get("spec", {}), document["kind"]
    if kind == "Job":
        assert document["apiVersion"] == "batch/v1" and spec["completionMode"] == "Indexed"
        return [
            (f"{name}-{i}", spec["template"], {"JOB_COMPLETION_INDEX": str(i)})
            for i in range(spec["completions"])
        ]
    if kind == "JobSet":
        assert document["apiVersion"] == "jobset.x-k8s.io/v1alpha2"
        (one,) = spec["replicatedJobs"]
        job = one["template"]["spec"]
        return [
            (f"{name}-{one['name']}-0-{i}", job["template"], {"JOB_COMPLETION_INDEX": str(i)})
            for i in range(job["completions"])
        ]
    if kind == "PyTorchJob":
        assert document["apiVersion"] == "kubeflow.org/v1"
        kinds = [
            (role.lower(), i, one)
            for role, one in spec["pytorchReplicaSpecs"].items()
            for i in range(one["replicas"])
        ]
        assert all(
            one["template"]["spec"]["containers"][0]["name"] == "pytorch" for _, _, one in kinds
        )
        world = {"MASTER_PORT": "0", "MASTER_ADDR": "", "WORLD_SIZE": str(len(kinds))}
        return [
            (f"{name}-{role}-{i}", one["template"], {**world, "RANK": str(rank)})
            for rank, (role, i, one) in enumerate(kinds)
        ]
    return []


def apply(path: str) -> None:
    documents = list(yaml.safe_load_all(Path(path).read_text()))
    if any(one["metadata"].get("namespace") == "closed" for one in documents):
        sys.exit(
            'Error from server (Forbidden): User "ann" cannot create resource "jobs" in API group'
            ' "batch" in the namespace "closed"'
        )
    data = next(one for one in documents if one["kind"] == "ConfigMap")
    mounted = CLUSTER / data["metadata"]["name"]
    mounted.mkdir()
    for name, text in data["data"].items():
        (mounted / name).write_text(text)
    for document in documents:
        for name, template, variables in templates(document):
            start(name, template, variables, mounted, port=str(20_000 + os.getpid() % 20_000))


def start(
    name: str, template: dict[str, Any], variables: dict[str, str], mounted: Path, port: str
) -> None:
    (container,) = template["spec"]["containers"]
    (volume,) = [one for one in template["spec"]["volumes"] if "configMap" in one]
    (mount,) = [
        one["mountPath"] for one in container["volumeMounts"] if one["name"] == volume["name"]
    ]
    pod = CLUSTER / "pods" / name
    pod.mkdir(parents=True)
    (pod / "labels").write_text(json.dumps(template["metadata"]["labels"]))
    if container["image"] == "no-such-image":
        (pod / "waiting").write_text("ImagePullBackOff")
        return
    words = [
        sys.executable if word == "python" else word.replace(mount, str(mounted))
        for word in container["command"]
    ]
    env = {**os.environ, **variables, **{one["name"]: one["value"] for one in container["env"]}}
    env |= (
        {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        if env["MASTER_ADDR"] or "RANK" in variables
        else {}
    )
    env.pop("PPPLAN_RUN", None)
    quiet = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.DEVNULL,
    }
    reaper = [sys.executable, "-S", "-c", REAPER, str(pod / "code"), str(pod / "log")]
    process = subprocess.Popen([*reaper, *words], env=env, start_new_session=True, **quiet)
    (pod / "pid").write_text(str(process.pid))


def status(pod: Path) -> dict[str, Any]:
    if (pod / "waiting").exists():
        waiting = {"reason": (pod / "waiting").read_text(), "message": "Back-off pulling image"}
        return {"phase": "Pending", "containerStatuses": [{"state": {"waiting": waiting}}]}
    if (pod / "code").exists() and (pod / "code").read_text():
        code = int((pod / "code").read_text())
        ended = {
            "exitCode": code,
            "reason": "OOMKilled" if code == -signal.SIGKILL else "Error" if code else "Completed",
        }
        return {
            "phase": "Failed" if code else "Succeeded",
            "containerStatuses": [{"state": {"terminated": ended}}],
        }
    return {"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]}


def get(selector: str) -> None:
    key, _, value = selector.partition("=")
    pods = [
        one
        for one in CLUSTER.glob("pods/*")
        if json.loads((one / "labels").read_text()).get(key) == value
    ]
    print(
        json.dumps(
            {"items": [{"metadata": {"name": one.name}, "status": status(one)} for one in pods]}
        )
    )


def delete() -> None:
    for pod in CLUSTER.glob("pods/*"):
        if (pod / "pid").exists():
            try:
                os.killpg(int((pod / "pid").read_text()), signal.SIGKILL)
            except ProcessLookupError:
                continue
    (CLUSTER / "deleted").touch()


if __name__ == "__main__":
    verb, rest = sys.argv[1], sys.argv[2:]
    if verb == "apply":
        apply(rest[rest.index("-f") + 1])
    elif verb == "get":
        get(rest[rest.index("-l") + 1])
    elif verb == "logs":
        log = CLUSTER / "pods" / rest[-1] / "log"
        print(log.read_text() if log.exists() else "", end="")
    elif verb == "delete":
        delete()
