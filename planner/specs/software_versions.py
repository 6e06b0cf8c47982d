"""SoftwareVersions: what a run is built of beside its framework, as far as it is known."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from planner.errors import InputError
from planner.specs.documents import FrozenDocument, build, read_mapping
from planner.specs.versions import OWN, PACKAGES

UNKNOWN = "unknown"
ONLY = {
    "megatron": ("megatron_core", "transformer_engine"),
    "deepspeed": ("deepspeed",),
    "torch": ("torchtitan",),
}
"""By framework the components that its runs alone have."""
TORCHTITANS = ("0.2", "0.3")
"""The torchtitans whose files are written for plans of torch; the last unless another is named."""


class SoftwareVersions(FrozenDocument):
    """Versions by component; `unknown` where nothing tells one, None: no part of the run."""

    container: str | None = None
    """The image that the run starts in, as releases name it: `nemo:26.04`."""
    megatron_core: str | None = None
    deepspeed: str | None = None
    torchtitan: str | None = None
    transformer_engine: str | None = None
    torch: str | None = None
    cuda: str | None = None
    cudnn: str | None = None
    nccl: str | None = None
    deepep: str | None = None

    def stated(self) -> dict[str, str]:
        """Every component of the run, `unknown` where nothing is known of it."""
        return {name: version for name, version in self if version is not None}

    def known(self) -> dict[str, str]:
        """Those that are known, without the image."""
        stated = self.stated()
        return {n: v for n, v in stated.items() if v != UNKNOWN and n != "container"}

    @property
    def known_container(self) -> str | None:
        return None if self.container == UNKNOWN else self.container

    @property
    def with_torchtitan(self) -> str:
        """`, torchtitan 0.3` where its files are written."""
        stated = self.torchtitan not in (None, UNKNOWN)
        return f", torchtitan {self.torchtitan}" if stated else ""

    def packages(self) -> list[tuple[str, str]]:
        """What is known, by the names of packages."""
        known = self.known()
        return [(p, known[name]) for name in PACKAGES if name in known for p in PACKAGES[name]]


def of_run(
    framework: str,
    framework_version: str,
    container: str | None = None,
    torchtitan: str | None = None,
) -> SoftwareVersions:
    """What a plan counts on: the framework's version, and what its container brings."""
    absent = [name for other, names in ONLY.items() if other != framework for name in names]
    parts = [name for name in SoftwareVersions.model_fields if name not in absent]
    inside = containers()[container].stated() if container else {}
    versions = {name: inside.get(name, UNKNOWN) for name in parts}
    if framework == "torch":
        versions["torchtitan"] = torchtitan or TORCHTITANS[-1]
    if framework_version != "main" and versions[OWN[framework]] == UNKNOWN:
        versions[OWN[framework]] = framework_version
    return SoftwareVersions(**versions)


@lru_cache(maxsize=1)
def containers() -> dict[str, SoftwareVersions]:
    """What the public notes of container releases say is inside, by image and tag."""
    path = Path(__file__).with_name("containers.yaml")
    return {
        name: build(SoftwareVersions, {"container": name} | _components(inside), f"{path}: {name}")
        for name, inside in read_mapping(path).items()
    }


def _components(inside: dict[str, str]) -> dict[str, str]:
    return {name: version for name, version in inside.items() if name != "source"}


def held_version(framework: str, container: str | None) -> str | None:
    """The framework's version in an image: major and minor; None where nothing tells it."""
    inside = containers()[container].known() if container else {}
    held = inside.get(OWN[framework])
    return ".".join(held.split(".")[:2]) if held else None


def container_named(text: str) -> str:
    """The release of an image as people write it: `nvcr.io/nvidia/nemo:26.04`,
    `nvcr.io#nvidia/pytorch:25.12-py3`. InputError for one whose content is not known.
    """
    name = text.strip().lower().rpartition("/")[2].removesuffix("-py3")
    if name not in containers():
        raise InputError(
            f"container must be one whose content is known, but got {text[:80]!r}; known:"
            f" {', '.join(containers())}. State its versions: --software NAME@VERSION"
        )
    return name
