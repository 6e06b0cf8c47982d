"""torchtitan: what it refuses beyond the layout's rules."""

from __future__ import annotations

from planner.advice.findings import Finding, Way
from planner.interpret.gpu_count import SHARDS, degrees_gpus
from planner.interpret.interpret import Launch


def findings(launch: Launch) -> list[Finding]:
    """The degrees multiply to the GPUs: torchtitan stops otherwise. Source: [torchtitan]
    distributed/parallel_dims.py.
    """
    if launch.recipe.framework != "torch":
        return []
    product = degrees_gpus(launch.plain, launch.reading)
    if not product or product == launch.recipe.gpus:
        return []
    return [
        Finding(
            "error",
            "degrees multiply to the GPUs",
            f"the parallel degrees must multiply to {launch.recipe.gpus} GPUs, but got {product}; a"
            " shard degree of -1 takes what is left",
            (Way({f"parallelism.{SHARDS}": -1}),),
        )
    ]
