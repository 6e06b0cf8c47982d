"""Versions of the software here, told without importing any of it: by the metadata of packages, the
variables that containers set, the headers of libraries.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from planner.specs.software_versions import UNKNOWN, SoftwareVersions
from planner.specs.versions import PACKAGES

VARIABLES = {
    "transformer_engine": "TRANSFORMER_ENGINE_VERSION",
    "cuda": "CUDA_VERSION",
    "cudnn": "CUDNN_VERSION",
    "nccl": "NCCL_VERSION",
}
"""What NVIDIA's containers set."""
IMAGE = "NVIDIA_PYTORCH_VERSION"
"""The release of NVIDIA's PyTorch container; images that are built on it keep it, so that it is
told as theirs only where nothing says otherwise."""
HEADERS = {
    "cudnn": ("cudnn_version.h", ("CUDNN_MAJOR", "CUDNN_MINOR", "CUDNN_PATCHLEVEL")),
    "nccl": ("nccl.h", ("NCCL_MAJOR", "NCCL_MINOR", "NCCL_PATCH")),
}
FOLDERS = (
    "/usr/include",
    "/usr/include/x86_64-linux-gnu",
    "/usr/include/aarch64-linux-gnu",
    "/usr/local/cuda/include",
)


def software(
    torch_build: str = "", environment: Mapping[str, str] | None = None, root: str = "/"
) -> SoftwareVersions:
    """What is here; `unknown` for what none of these tells. torch_build: `cuda 13.0`."""
    given = os.environ if environment is None else environment
    found = {component: _package(names) for component, names in PACKAGES.items()}
    found["cuda"] = torch_build.removeprefix("cuda ") if torch_build.startswith("cuda ") else ""
    for component, variable in VARIABLES.items():
        found[component] = found.get(component) or given.get(variable, "")
    for component in HEADERS:
        found[component] = found[component] or _header(component, root)
    found["cuda"] = found["cuda"] or _toolkit(root)
    image = given.get(IMAGE, "")
    found["container"] = f"pytorch:{image}" if image else ""
    return SoftwareVersions(**{name: version or UNKNOWN for name, version in found.items()})


def _package(names: tuple[str, ...]) -> str:
    for name in names:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return ""


def _header(component: str, root: str) -> str:
    """The version that a library's header defines; empty without it."""
    file, macros = HEADERS[component]
    for folder in FOLDERS:
        text = _text(Path(root, folder.lstrip("/"), file))
        numbers = [re.search(rf"^#define {macro}\s+(\d+)", text, re.MULTILINE) for macro in macros]
        if all(numbers):
            return ".".join(number[1] for number in numbers if number)
    return ""


def _toolkit(root: str) -> str:
    text = _text(Path(root, "usr/local/cuda/version.json"))
    match = re.search(r'"cuda"\s*:\s*\{[^}]*"version"\s*:\s*"([\d.]+)"', text)
    return match[1] if match else ""


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
