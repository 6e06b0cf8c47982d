"""ppplan: plans and tunes the parallelism of LLM training from an analytic cost model.

>>> import ppplan
>>> answer = ppplan.recommend(model="llama3-70b", gpus=32, cluster="h100-sxm")
>>> print(answer)                 # what the command prints
>>> answer.best.layout            # the fastest layout that fits
>>> answer.to_frame()             # every legal layout that was searched

The code is in the package `planner`; this one is its public face. Nothing is imported before a verb
is named.
"""

from typing import TYPE_CHECKING

from planner import __version__

if TYPE_CHECKING:
    from planner.api import (
        InputError,
        Question,
        calibrate,
        check,
        clusters,
        compare,
        doctor,
        emit,
        explain,
        models,
        question,
        recommend,
        schedules,
        simulate,
        stacks,
        sweep,
        switches,
        tune,
        validate,
    )

__all__ = [
    "InputError",
    "Question",
    "__version__",
    "calibrate",
    "check",
    "clusters",
    "compare",
    "doctor",
    "emit",
    "explain",
    "models",
    "question",
    "recommend",
    "schedules",
    "simulate",
    "stacks",
    "sweep",
    "switches",
    "tune",
    "validate",
]

if not TYPE_CHECKING:

    def __getattr__(name):
        if name not in __all__:
            raise AttributeError(f"module 'ppplan' has no attribute {name!r}")
        from planner import api

        return getattr(api, name)

    def __dir__():
        return __all__
