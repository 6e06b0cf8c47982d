"""A launch file for Kubernetes: an indexed Job with one pod a node, each of which runs the torchrun
script.
"""

from __future__ import annotations

import re
from typing import Any

from planner.emit import yaml_file
from planner.emit.launchers import torchrun
from planner.emit.program import Program

IMAGE = "IMAGE"
FOLDER = "/ppplan"
_USE = """\
# kubectl apply -f this file, after setting image: torch with CUDA, and what the script of the \
ConfigMap calls. Variables of the script
# go into the container's env. The Service gives the first pod the name by which all others find it.
"""


def _name(program: Program) -> str:
    """A DNS label: lower case, letters, digits and hyphens, at most 50 of them, so that the pods'
    numbers fit.
    """
    return re.sub(r"[^a-z0-9]+", "-", program.name.lower())[:50].strip("-") or "ppplan"


def _container(program: Program, name: str) -> dict[str, Any]:
    gpus = {"nvidia.com/gpu": program.gpus_per_node}
    index = {
        "fieldRef": {
            "fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"
        }
    }
    return {
        "name": "train",
        "image": IMAGE,
        "command": ["bash", f"{FOLDER}/launch.sh"],
        "env": [
            {"name": "NODE_RANK", "valueFrom": index},
            {"name": "MASTER_ADDR", "value": f"{name}-0.{name}"},
        ],
        "resources": {"limits": gpus},
        "ports": [{"containerPort": 29500}],
        "volumeMounts": [
            {"name": "files", "mountPath": FOLDER},
            {"name": "shared-memory", "mountPath": "/dev/shm"},
        ],
    }


def _job(program: Program, name: str) -> dict[str, Any]:
    """All pods or none: they wait for each other, so none is started again by itself."""
    pod = {
        "subdomain": name,
        "restartPolicy": "Never",
        "containers": [_container(program, name)],
        "volumes": [
            {"name": "files", "configMap": {"name": name}},
            {"name": "shared-memory", "emptyDir": {"medium": "Memory"}},
        ],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "completions": program.nodes,
            "parallelism": program.nodes,
            "completionMode": "Indexed",
            "backoffLimit": 0,
            "template": {"metadata": {"labels": {"app": name}}, "spec": pod},
        },
    }


def kubernetes(program: Program) -> str:
    """ConfigMap, headless Service and Job; the ConfigMap holds the torchrun script and the files
    beside it.
    """
    name = _name(program)
    files = {"launch.sh": torchrun(program), **dict(program.files)}
    service = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {"app": name},
        "ports": [{"port": 29500}],
    }
    documents = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": files},
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": service},
        _job(program, name),
    ]
    return yaml_file.text(program, _USE, documents, starts=True)
