"""torchtitan: what it refuses beyond the layout's rules."""

from __future__ import annotations

from pathlib import Path

from planner.advice.findings import Finding, Way
from planner.interpret.gpu_count import SHARDS, degrees_gpus
from planner.interpret.interpret import Launch

FORMATS = {"0.2": ".toml", "0.3": ".py"}
"""By version of torchtitan the configuration that it takes. Source: [torchtitan] config/manager.py
of 0.2.2 and 0.3.0.
"""


def _format(launch: Launch) -> list[Finding]:
    """A file of another version of torchtitan than the one that is named."""
    version = launch.recipe.versions.torchtitan
    ending = Path(launch.reading.file).suffix.lower()
    if launch.reading.kind != "torchtitan" or ending not in FORMATS.values():
        return []
    if version not in FORMATS or FORMATS[version] == ending:
        return []
    takes = {".toml": "a TOML file", ".py": "a configuration in Python"}
    other = next(one for one, format in FORMATS.items() if format == ending)
    name = Path(launch.reading.file).name
    text = (
        f"torchtitan {version} takes {takes[FORMATS[version]]}, but {name} is of {other}:"
        f" name torchtitan@{other}, or have the file of {version} written (recommend --out)"
    )
    return [Finding("error", "configuration of another torchtitan", text)]


def findings(launch: Launch) -> list[Finding]:
    """The degrees multiply to the GPUs: torchtitan stops otherwise. Source: [torchtitan]
    distributed/parallel_dims.py.
    """
    if launch.recipe.framework != "torch":
        return []
    of_other = _format(launch)
    product = degrees_gpus(launch.plain, launch.reading)
    if not product or product == launch.recipe.gpus:
        return of_other
    return [
        *of_other,
        Finding(
            "error",
            "degrees multiply to the GPUs",
            f"the parallel degrees must multiply to {launch.recipe.gpus} GPUs, but got {product}; a"
            " shard degree of -1 takes what is left",
            (Way({f"parallelism.{SHARDS}": -1}),),
        ),
    ]
