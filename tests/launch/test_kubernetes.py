"""Trials as Kubernetes objects: their fields, and runs through a kubectl whose pods are processes
of this machine.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest

from planner.errors import InputError
from planner.launch import kubernetes, kubernetes_manifest
from planner.launch.outcome import Work
from planner.launch.remote_settings import RemoteSettings

pytestmark = pytest.mark.process


ROOT = Path(__file__).parents[2]
KINDS = ("Job", "JobSet", "PyTorchJob")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the fake cluster; kubectl is first on the path."""
    folder, tools = tmp_path / "cluster", tmp_path / "bin"
    folder.mkdir()
    tools.mkdir()
    (tools / "kubectl").write_text(
        f'#!/bin/sh\nexec {sys.executable} {ROOT}/tests/launch/fake_kubectl.py "$@"\n'
    )
    (tools / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    monkeypatch.setenv("FAKE_CLUSTER", str(folder))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return folder


def work(do: str, ranks: int = 2, limit_s: float = 60, **changes: Any) -> Work:
    return Work("tests.launch.evil", {"do": do, **changes}, ranks, limit_s)


def settings(tmp_path: Path, **changes: Any) -> RemoteSettings:
    return RemoteSettings(
        tmp_path, **{"ranks_per_node": 1, "image": "torch", "poll_s": 0.2, **changes}
    )


@pytest.mark.parametrize("kind", KINDS)
def test_pods_make_one_world(kind: str, cluster: Path, tmp_path: Path) -> None:
    """The ranks of two pods find one another."""
    done = kubernetes.run(work("meets", ranks=2), settings=settings(tmp_path, kind=kind))
    assert done.state == "done" and done.result == {"told": [1], "world": 2}, done
    assert (cluster / "deleted").exists()


def test_the_rank_that_failed_is_told(cluster: Path, tmp_path: Path) -> None:
    done = kubernetes.run(
        work("fails", rank=1, code=3, says="no tokens\n"), settings=settings(tmp_path)
    )
    assert (
        done.state == "crashed"
        and done.reason == "rank 1 of 2 ended with exit code 3: no tokens"
        and (cluster / "deleted").exists()
    )


def test_progress_of_a_pod_prunes(cluster: Path, tmp_path: Path) -> None:
    done = kubernetes.run(
        work("progresses", ranks=1, steps=1000, step_s=0.02),
        lambda line: line["step"] > 2,
        settings=settings(tmp_path),
    )
    assert done.state == "pruned" and (cluster / "deleted").exists()


def test_the_pod_keeps_the_limit(cluster: Path, tmp_path: Path) -> None:
    done = kubernetes.run(work("hangs", ranks=1, limit_s=1), settings=settings(tmp_path))
    assert (
        done.state == "timeout" and "limit of 1 s" in done.reason and "in hangs" in done.stderr_tail
    )


def test_an_image_that_cannot_be_pulled(cluster: Path, tmp_path: Path) -> None:
    done = kubernetes.run(work("works"), settings=settings(tmp_path, image="no-such-image"))
    assert (
        done.state == "crashed"
        and "ImagePullBackOff" in done.reason
        and (cluster / "deleted").exists()
    )


def test_cancel(cluster: Path, tmp_path: Path) -> None:
    until = time.monotonic() + 1
    done = kubernetes.run(
        work("hangs", ranks=1), cancel=lambda: time.monotonic() > until, settings=settings(tmp_path)
    )
    assert done.state == "interrupted" and (cluster / "deleted").exists()


def test_what_the_cluster_or_the_user_lacks(
    cluster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="PPPLAN_IMAGE"):
        kubernetes.run(work("works"), settings=settings(tmp_path, image=""))
    with pytest.raises(InputError, match="kubectl said: Error from server"):
        kubernetes.run(work("works"), settings=settings(tmp_path, namespace="closed"))
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with pytest.raises(InputError, match="must find kubectl"):
        kubernetes.run(work("works"), settings=settings(tmp_path))


def test_what_a_cluster_says_of_pods() -> None:
    """Statuses as the API server gives them."""

    def pod(name: str, phase: str, **status: Any) -> dict[str, Any]:
        return {"metadata": {"name": name}, "status": {"phase": phase, **status}}

    killed = [{"state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]
    assert (
        kubernetes.judged(
            [pod("a", "Running"), pod("b", "Failed", containerStatuses=killed)], 2, 1.0
        ).state
        == "oom"
    )  # type: ignore[union-attr]
    evicted = kubernetes.judged(
        [pod("a", "Failed", reason="Evicted", message="The node was low on resource: memory.")],
        1,
        1.0,
    )
    assert evicted is not None and evicted.state == "crashed" and "Evicted" in evicted.reason
    assert kubernetes.judged([pod("a", "Pending"), pod("b", "Succeeded")], 2, 1.0) is None
    assert kubernetes.judged([], 2, 1.0) is None


@pytest.mark.parametrize("kind", KINDS)
def test_objects(kind: str, tmp_path: Path) -> None:
    """One pod a node, all its GPUs, no restarts, an end to its life, one label on all."""
    asked = Work(
        "planner.tune.workers.torch_worker",
        {"layout": {"tp": 8}},
        32,
        600,
        "cuda",
        {"NCCL_DEBUG": "WARN"},
    )
    made = kubernetes_manifest.documents(
        "ppplan-1",
        asked,
        RemoteSettings(tmp_path, 8, image="lab/torch:1", namespace="lab", kind=kind),
    )
    assert {one["metadata"]["namespace"] for one in made} == {"lab"} and made[-1]["kind"] == kind
    spec = made[-1]["spec"]
    if kind == "PyTorchJob":
        parts = spec["pytorchReplicaSpecs"]
        assert (parts["Master"]["replicas"], parts["Worker"]["replicas"]) == (1, 3)
        life, template = spec["runPolicy"]["activeDeadlineSeconds"], parts["Worker"]["template"]
    else:
        job = spec if kind == "Job" else spec["replicatedJobs"][0]["template"]["spec"]
        assert (job["completions"], job["parallelism"], job["backoffLimit"]) == (4, 4, 0)
        life, template = job["activeDeadlineSeconds"], job["template"]
    assert life > 600 and template["metadata"]["labels"] == {"ppplan-run": "ppplan-1"}
    (container,) = template["spec"]["containers"]
    assert (
        container["resources"] == {"limits": {"nvidia.com/gpu": 8}}
        and template["spec"]["restartPolicy"] == "Never"
    )
    told = {one["name"]: one["value"] for one in container["env"]}
    assert (told["PPPLAN_EACH"], told["PPPLAN_WORLD"], told["PPPLAN_DEVICE"]) == ("8", "32", "cuda")
    assert all(isinstance(value, str) for value in told.values())
    first = {
        "Job": "ppplan-1-0.ppplan-1",
        "JobSet": "ppplan-1-node-0-0.ppplan-1",
        "PyTorchJob": None,
    }[kind]
    assert told.get("MASTER_ADDR") == first
