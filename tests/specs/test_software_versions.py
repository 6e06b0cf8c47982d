"""What a run is built of: containers as their public notes have them, what a machine tells of
itself, and the warning of a launch script.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from planner import api
from planner.errors import InputError
from planner.launch import installed
from planner.specs import plan as plans
from planner.specs.software_versions import containers, of_run

NOTES = """
nemo:25.09 2.8.0a0 0.14.0 2.7.0 12.9.1 9.11.0.98
nemo:25.11 2.9.0a0 0.15.0 2.9 13.0.1 9.13.1.26
nemo:26.02 2.10.0a0 0.16.0 2.12 13.0.2 9.18.0.50
nemo:26.04 2.11.0a0 0.17.0 2.14 13.1.1 9.20.0.48
"""
"""torch, Megatron Core, Transformer Engine, CUDA, cuDNN.
Source: NVIDIA-NeMo/Megatron-Bridge docs/releases/software-versions.md."""


def test_containers_are_their_notes() -> None:
    for line in NOTES.split("\n")[1:-1]:
        name, torch, core, engine, cuda, cudnn = line.split()
        held = containers()[name]
        assert (held.torch, held.megatron_core) == (torch, core)
        assert (held.transformer_engine, held.cuda, held.cudnn) == (engine, cuda, cudnn)
        assert held.nccl is None


def test_a_container_decides_the_version(tmp_path: Path) -> None:
    words = {"model": "llama3-8b", "gpus": 8, "cluster": "h100-sxm"}
    image = "nvcr.io/nvidia/nemo:26.02"
    api.recommend(**words, container=image, top=1, out=tmp_path)
    saved = plans.read(tmp_path / "plan.yaml")
    assert saved.question["framework_version"] == "0.16"
    assert saved.software.transformer_engine == "2.12" and saved.software.deepspeed is None
    again = api.explain(tmp_path / "plan.yaml")
    assert again.recipe.versions == saved.software
    newer = api.recommend(tmp_path / "plan.yaml", container="nemo:26.04", top=1)
    assert newer.recipe.framework_version == "0.17"
    with pytest.raises(InputError, match=r"must agree, but got 0\.19 and nemo:26\.02, which has 0"):
        api.recommend(**words, container=image, framework_version="0.19")
    with pytest.raises(InputError, match=r"content is known, but got 'nemo:99.01'"):
        api.recommend(**words, container="nemo:99.01")


def test_what_is_no_part_of_a_run_is_left_out() -> None:
    assert of_run("deepspeed", "0.19").stated().keys().isdisjoint({"megatron_core", "torchtitan"})
    assert of_run("torch", "2.13").known() == {"torchtitan": "0.3", "torch": "2.13"}
    assert of_run("megatron", "main").known() == {}


def test_a_machine_tells_its_versions(tmp_path: Path) -> None:
    """Headers as cuDNN 9.20 and NCCL 2.27 write them; variables as NVIDIA's images set them."""
    include = tmp_path / "usr/include"
    include.mkdir(parents=True)
    (include / "cudnn_version.h").write_text(
        "#define CUDNN_MAJOR 9\n#define CUDNN_MINOR 20\n#define CUDNN_PATCHLEVEL 0\n"
    )
    (include / "nccl.h").write_text(
        "#define NCCL_MAJOR 2\n#define NCCL_MINOR 27\n#define NCCL_PATCH 7\n"
    )
    toolkit = tmp_path / "usr/local/cuda"
    toolkit.mkdir(parents=True)
    (toolkit / "version.json").write_text(
        '{"cuda" : {"name" : "CUDA SDK", "version" : "13.0.20250826"}}'
    )
    told = installed.software("", {}, str(tmp_path))
    assert (told.cudnn, told.nccl, told.cuda) == ("9.20.0", "2.27.7", "13.0.20250826")
    variables = {
        "NVIDIA_PYTORCH_VERSION": "25.12",
        "TRANSFORMER_ENGINE_VERSION": "2.9",
        "CUDA_VERSION": "13.1.0.006",
    }
    told = installed.software("", variables, str(tmp_path / "empty"))
    assert (told.container, told.transformer_engine) == ("pytorch:25.12", "2.9")
    assert (told.cuda, told.nccl, told.deepep) == ("13.1.0.006", "unknown", "unknown")


def _stubs(folder: Path) -> dict[str, str]:
    """An environment with a torchrun that does nothing."""
    (folder / "bin").mkdir()
    (folder / "bin/torchrun").write_text("#!/bin/sh\nexit 0\n")
    (folder / "bin/torchrun").chmod(0o755)
    return {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(folder / "site")}


def _package(folder: Path, name: str, version: str) -> None:
    about = folder / "site" / f"{name}-{version}.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def test_a_script_warns_of_other_versions(tmp_path: Path) -> None:
    """As packages have them, or a checkout; patches of the same version are the same."""
    api.recommend(
        model="llama3-8b", gpus=8, cluster="h100-sxm", container="nemo:26.04", top=1, out=tmp_path
    )
    environment = _stubs(tmp_path)
    _package(tmp_path, "megatron_core", "0.17.0+abc")
    _package(tmp_path, "transformer_engine", "2.14.1")
    _package(tmp_path, "torch", "2.10.0a0+b4e4ee81d3")

    def warned(**more: str) -> list[str]:
        done = subprocess.run(
            ["bash", str(tmp_path / "launch.sh")],
            env=environment | more,
            capture_output=True,
            text=True,
            check=True,
        )
        lines = done.stderr.splitlines()
        return [line.removeprefix("warning: the plan is for ") for line in lines if "plan" in line]

    assert warned() == ["torch 2.11.0a0, but 2.10.0a0+b4e4ee81d3 is installed"]
    core = tmp_path / "clone/megatron/core"
    core.mkdir(parents=True)
    (core / "package_info.py").write_text("MAJOR = 0\nMINOR = 19\nPATCH = 2\nPRE_RELEASE = ''\n")
    first, _ = warned(MEGATRON_PATH=str(tmp_path / "clone"))
    assert first == "megatron-core 0.17.0, but 0.19.2 is installed"
    (tmp_path / "bin/python3").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "bin/python3").chmod(0o755)
    assert warned() == []


def test_check_reads_the_version_back(tmp_path: Path) -> None:
    for framework, version in (("megatron", "0.16"), ("deepspeed", "0.17"), ("torch", "2.9")):
        out = tmp_path / framework
        words = {"model": "llama3-8b", "gpus": 8, "framework": framework}
        api.recommend(
            **words, cluster="h100-sxm", framework_version=version, launcher="slurm", out=out
        )
        launch = api.check(out / "launch.sbatch", cluster="h100-sxm").launch
        assert launch.recipe.framework_version == version
