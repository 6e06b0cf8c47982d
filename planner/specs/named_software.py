"""`--software NAME@VERSION`: a software and its version in one word."""

from __future__ import annotations

from dataclasses import replace

from planner.errors import InputError, unknown
from planner.specs import library
from planner.specs.distributions import distributions
from planner.specs.recipe import Recipe
from planner.specs.software_documents import software_names
from planner.specs.software_versions import TORCHTITANS
from planner.specs.switches.table import PLAIN
from planner.specs.versions import KNOWN, version_of
from planner.specs.words import Question

TORCHTITAN = "torchtitan"
"""A name of the software torch; its version is not torch's."""


STACKS = {"megatron": "megatron", "deepspeed": "deepspeed", "torch": "torch-fsdp"}
"""By framework what runs unless a stack is named."""


def expanded(question: Question) -> Question:
    """The question with framework, stack and version in the place of its software. InputError
    where it states one of them otherwise. To name the software of a framework's own stack says no
    more than its version.
    """
    if question.software is None:
        return question
    stack, version = agreed(
        question.software, question.stack, question.framework_version, question.framework
    )
    named = library.stack(stack)
    own = STACKS.get(named.framework, "")
    if question.stack is None and own and library.stack(own).document == named.document:
        return replace(question, framework=named.framework, framework_version=version)
    return replace(question, stack=stack, framework_version=version)


def refuse_as(kind: str, text: str) -> None:
    """InputError where the name of a software, or one with a version, is stated as another kind."""
    name, at, _ = text.partition("@")
    if name in names():
        raise InputError(
            f"{kind} must be named without a version, but got {text[:60]!r}; use --software"
            f" {text[:60]}"
            if at
            else f"{kind} must be one of {', '.join(STACKS)}, but {name} is a software; use"
            f" --software {name}, or --software {name}@VERSION"
        )
    if at and name in distributions():
        raise InputError(
            f"{kind} must be named without a version, but got {text[:60]!r}; use --{kind} {name}"
            f" with --framework-version, or with --container {name}:VERSION"
        )


def agreed(
    text: str, stack: str | None, framework_version: str | None, framework: str | None
) -> tuple[str, str | None]:
    """Stack and version of the framework that a software means beside what else is stated."""
    name, version = split(text)
    document = "torch" if name == TORCHTITAN else name
    found = library.stack(stack or document)
    if found.document != document:
        raise InputError(
            f"software and stack must agree, but stack {found.name} is of {found.document}, not"
            f" {name}; leave one out"
        )
    if framework not in (None, found.framework):
        raise InputError(
            f"software and framework must agree, but {name} is of {found.framework}, not"
            f" {framework}; leave one out"
        )
    if name == TORCHTITAN or version is None:
        return stack or document, framework_version
    if framework_version and version_of(found.framework, framework_version) != version_of(
        found.framework, version
    ):
        raise InputError(
            f"software and framework_version must agree, but got {text[:60]} and"
            f" {framework_version}; leave one out"
        )
    return stack or document, version


def split(text: str) -> tuple[str, str | None]:
    """Name and version. InputError for a software that is not known, or a version that it has
    not.
    """
    name, at, version = (part.strip() for part in text.partition("@"))
    if name not in (*software_names(), TORCHTITAN):
        distribution = distributions().get(name)
        if distribution is not None:
            apart = version_apart(distribution.software, at)
            raise InputError(
                f"software must be the name of a software, but {name} is a distribution of"
                f" {distribution.software}; use --stack {name}{apart}"
            )
        raise unknown("software", name, names())
    if not at:
        return name, None
    known = versions(name)
    if not known:
        raise InputError(
            f"software {name} must be named without a version, but got {text[:60]!r}; its figures"
            " are of one time"
        )
    if name == TORCHTITAN and version not in known:
        raise InputError(
            f"torchtitan's version must be {' or '.join(known)}, but got {version[:40]!r}"
        )
    if name != TORCHTITAN:
        version_of(library.stack(name).framework, version)
    return name, version


def version_apart(software: str, at: str) -> str:
    """Where the version of a distribution goes that is stated behind its name."""
    if not at:
        return ""
    return f" and --software {software}@VERSION, or --container for what its image holds"


def torchtitan_of(question: Question) -> str | None:
    """The version of torchtitan that a question names."""
    name, version = split(question.software) if question.software else ("", None)
    return version if name == TORCHTITAN else None


def versions(name: str) -> tuple[str, ...]:
    """The versions of a software that are known; none where its document is of one time."""
    if name == TORCHTITAN:
        return TORCHTITANS
    return next((KNOWN[framework] for framework, plain in PLAIN.items() if plain == name), ())


def names() -> tuple[str, ...]:
    """Software that is offered, as it may be named."""
    offered = library.offered_stacks()
    return (*(name for name in software_names() if name in offered), TORCHTITAN)


def spelled(recipe: Recipe) -> str:
    """The software of a recipe as the question states it: `megatron-core@0.19`; without a version
    where it has none.
    """
    name = recipe.software.document or recipe.software.name
    return f"{name}@{recipe.framework_version}" if name in PLAIN.values() else name
