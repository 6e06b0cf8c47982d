"""What a shell completes after Tab: names out of folders and tables. No document is opened, and
nothing is imported before it is asked.
"""

from __future__ import annotations

from collections.abc import Iterable

import typer


def model(incomplete: str) -> list[str]:
    """Presets; a path is completed by the shell itself."""
    from planner.specs import library

    return _begun(library.models(), incomplete)


def cluster(incomplete: str) -> list[str]:
    """Profiles."""
    from planner.specs import library

    return _begun(library.clusters(), incomplete)


def stack(incomplete: str) -> list[str]:
    """Software and distributions, without those that are there for published runs."""
    from planner.specs import library

    return _begun(library.offered_stacks(), incomplete)


def software(incomplete: str) -> list[str]:
    """`NAME@VERSION`, and names whose figures are of one time."""
    from planner.specs.named_software import names, versions

    words = [
        word
        for name in names()
        for word in [f"{name}@{version}" for version in versions(name)] or [name]
    ]
    return _begun(words, incomplete)


def switch(incomplete: str) -> list[str]:
    """`NAME=VALUE` of the switches of every framework."""
    from planner.specs.switches.table import BY_FRAMEWORK, shown

    words = [
        f"{switch.name}={shown(value)}"
        for switches in BY_FRAMEWORK.values()
        for switch in switches.values()
        for value in switch.values or (switch.default,)
    ]
    return _begun(words, incomplete)


def container(incomplete: str) -> list[str]:
    """Images whose content is known."""
    from planner.specs.software_versions import containers

    return _begun(containers(), incomplete)


def schedule(ctx: typer.Context, incomplete: str) -> list[str]:
    """Pipeline schedules; `simulate` compares all of them too."""
    from planner.layout import SCHEDULES

    return _begun((*SCHEDULES, "all") if ctx.info_name == "simulate" else SCHEDULES, incomplete)


def framework(incomplete: str) -> list[str]:
    from planner.specs.named_software import STACKS

    return _begun(STACKS, incomplete)


def precision(incomplete: str) -> list[str]:
    from planner.specs.resolve import PRECISIONS

    return _begun(PRECISIONS, incomplete)


def launcher(incomplete: str) -> list[str]:
    """Of launch files."""
    from planner.emit.table import LAUNCHERS

    return _begun(LAUNCHERS, incomplete)


def format(incomplete: str) -> list[str]:
    """Of launch files for other software."""
    from planner.emit.table import FORMATS

    return _begun(FORMATS, incomplete)


def name(ctx: typer.Context, incomplete: str) -> list[str]:
    """The argument of `ppplan models`, `clusters`, `schedules`, `stacks` or `switches`."""
    if ctx.info_name == "schedules":
        return schedule(ctx, incomplete)
    if ctx.info_name == "switches":
        from planner.specs.switches.table import BY_FRAMEWORK

        return _begun([name for table in BY_FRAMEWORK.values() for name in table], incomplete)
    return {"models": model, "clusters": cluster, "stacks": stack}[str(ctx.info_name)](incomplete)


def _begun(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
