"""A trial as Kubernetes objects: a plain indexed Job, a JobSet, or a PyTorchJob of Kubeflow's
training operator; one pod a node.

Fields as in batch/v1 of Kubernetes, jobset.x-k8s.io/v1alpha2 and kubeflow.org/v1.
"""

from __future__ import annotations

import json
from typing import Any

from planner.launch.outcome import Work
from planner.launch.remote_settings import RemoteSettings, nodes

FOLDER, REQUEST = "/ppplan", "request.json"
PORT = 29_500
SPARE_S = 120
"""Of a pod's life beyond the limit of its ranks: images are pulled before it counts, results
written after.
"""
LABEL = "ppplan-run"
REPLICATED = "node"


def documents(name: str, work: Work, settings: RemoteSettings) -> list[dict[str, Any]]:
    """What `kubectl apply` gets. InputError when the ranks do not fill whole nodes."""
    count, each = nodes(work.ranks, settings)
    data = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _about(name, settings),
        "data": {REQUEST: json.dumps(work.request)},
    }
    if settings.kind == "PyTorchJob":
        return [data, _pytorch_job(name, work, settings, count, each)]
    if settings.kind == "JobSet":
        return [data, _job_set(name, work, settings, count, each)]
    names = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {LABEL: name},
        "ports": [{"port": PORT}],
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _about(name, settings),
        "spec": names,
    }
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _about(name, settings),
        "spec": _job(name, work, settings, count, each, f"{name}-0.{name}", subdomain=name),
    }
    return [data, service, job]


def _about(name: str, settings: RemoteSettings) -> dict[str, Any]:
    space = {"namespace": settings.namespace} if settings.namespace else {}
    return {"name": name, **space, "labels": {LABEL: name}}


def _pod(
    name: str,
    work: Work,
    settings: RemoteSettings,
    each: int,
    container: str,
    meet: str = "",
    subdomain: str = "",
) -> dict[str, Any]:
    """Template of a pod. None is started again by itself: the others of its run would wait in
    vain.
    """
    where = {"MASTER_ADDR": meet, "MASTER_PORT": str(PORT)} if meet else {}
    variables = {
        "PPPLAN_EACH": str(each),
        "PPPLAN_WORLD": str(work.ranks),
        "PPPLAN_LIMIT_S": f"{work.limit_s:g}",
        "PPPLAN_DEVICE": work.device,
        "PPPLAN_SILENCE_S": f"{work.silence_s or 0:g}",
        "PPPLAN_ENVIRONMENT": json.dumps(work.environment),
        **where,
    }
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "containers": [
            {
                "name": container,
                "image": settings.image,
                "command": [
                    "python",
                    "-m",
                    "planner.launch.pod",
                    work.module,
                    f"{FOLDER}/{REQUEST}",
                ],
                "env": [{"name": key, "value": value} for key, value in variables.items()],
                **(
                    {"resources": {"limits": {"nvidia.com/gpu": each}}}
                    if work.device == "cuda"
                    else {}
                ),
                "volumeMounts": [
                    {"name": "request", "mountPath": FOLDER},
                    {"name": "shared-memory", "mountPath": "/dev/shm"},
                ],
            }
        ],
        "volumes": [
            {"name": "request", "configMap": {"name": name}},
            {"name": "shared-memory", "emptyDir": {"medium": "Memory"}},
        ],
    }
    about = {
        "labels": {LABEL: name},
        "annotations": {"sidecar.istio.io/inject": "false"},
    }  # a sidecar would keep the pod from ending
    return {"metadata": about, "spec": spec | ({"subdomain": subdomain} if subdomain else {})}


def _life_s(work: Work) -> int:
    return int(work.limit_s) + SPARE_S


def _job(
    name: str,
    work: Work,
    settings: RemoteSettings,
    count: int,
    each: int,
    meet: str,
    subdomain: str = "",
) -> dict[str, Any]:
    return {
        "completions": count,
        "parallelism": count,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "ttlSecondsAfterFinished": 600,
        "activeDeadlineSeconds": _life_s(work),
        "template": _pod(name, work, settings, each, "ppplan", meet, subdomain),
    }


def _job_set(
    name: str, work: Work, settings: RemoteSettings, count: int, each: int
) -> dict[str, Any]:
    """JobSet names its pods SET-REPLICATED-JOB-POD, under a service of its own name."""
    job = _job(name, work, settings, count, each, f"{name}-{REPLICATED}-0-0.{name}")
    del job["ttlSecondsAfterFinished"]  # JobSet deletes its jobs itself
    spec = {
        "network": {"enableDNSHostnames": True},
        "failurePolicy": {"maxRestarts": 0},
        "ttlSecondsAfterFinished": 600,
        "replicatedJobs": [{"name": REPLICATED, "replicas": 1, "template": {"spec": job}}],
    }
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": _about(name, settings),
        "spec": spec,
    }


def _pytorch_job(
    name: str, work: Work, settings: RemoteSettings, count: int, each: int
) -> dict[str, Any]:
    """The operator tells each pod its number (RANK) and the master's address; its container must be
    called pytorch.
    """

    def replica(replicas: int) -> dict[str, Any]:
        return {
            "replicas": replicas,
            "restartPolicy": "Never",
            "template": _pod(name, work, settings, each, "pytorch"),
        }

    kinds = {"Master": replica(1)} | ({"Worker": replica(count - 1)} if count > 1 else {})
    policy = {
        "backoffLimit": 0,
        "activeDeadlineSeconds": _life_s(work),
        "cleanPodPolicy": "None",
        "ttlSecondsAfterFinished": 600,
    }
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": _about(name, settings),
        "spec": {"runPolicy": policy, "pytorchReplicaSpecs": kinds},
    }
