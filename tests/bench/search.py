"""Speeds of planning: `python -m tests.bench.search` prints them (nothing is asserted; machines
differ).

Cold: the whole command in a fresh process, its seconds of processor time and of the clock, best of
five, with the modules compiled as an installation has them. Phases: processor time of imports,
search and the rest of one recommend. Columns: layouts a second given a complete estimate, one core.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time

import numpy as np

from planner.estimate import closed_form
from planner.rules.table import mask
from planner.search import search
from planner.search.branch import CHUNK
from tests.combinations import all_combinations
from tests.documents import recipe


def _many(option: str, values: str) -> str:
    return " ".join(f"--{option} {value}" for value in values.split())


RUNS = 5
MODELS = (
    ("llama3-70b", 32, 0.8),
    ("llama3-405b", 16_384, 1.5),
    ("qwen3-235b-a22b", 256, 2.5),
    ("deepseek-v3", 1024, 2.5),
    ("nemotron-3-super", 256, 2.5),
)
CLUSTERS = "h100-sxm a100-80g-sxm gb200 h800-sxm"
OTHERS = (
    ("recommend --model llama3-70b --min-gpus --cluster h100-sxm", 3.0),
    (f"compare --model llama3-70b {_many('gpus', '32 64 128')} {_many('cluster', CLUSTERS)}", 5.0),
    (f"compare --model llama3-405b {_many('gpus', '8 16 32')} {_many('cluster', CLUSTERS)}", 5.0),
)
"""Twelve rows, and twelve of which hardly one fits."""
PHASES = """
import time
begun = time.process_time()
import numpy, pydantic
libraries = time.process_time()
from planner.cli import show
from planner import api, numerics, search, switch_gains
from planner.report.text import recommend
from planner.search import plans
imported = time.process_time()
spent = {}
def timed(module, name):
    inner = getattr(module, name)
    def outer(*words, **named):
        started = time.process_time()
        answer = inner(*words, **named)
        spent[name] = spent.get(name, 0.0) + time.process_time() - started
        return answer
    setattr(module, name, outer)
for module, name in (
    (search, "search"), (plans, "explore"), (numerics, "offers"), (switch_gains, "other_values")
):
    timed(module, name)
api.recommend(model=MODEL, gpus=GPUS, cluster="h100-sxm")
total = time.process_time()
spent = {"libraries": libraries - begun, "imports": imported - libraries, **spent, "all": total}
print(", ".join(f"{name} {seconds:.2f} s" for name, seconds in spent.items()))
"""


def cold() -> None:
    for model, gpus, bar in MODELS:
        words = f"recommend --model {model} --gpus {gpus} --cluster h100-sxm"
        print(f"{words}: {_best(words, bar)}")
        found = search(recipe(model, gpus))
        print(
            f"  {found.counts.covered:,} covered, {found.counts.computed:,} computed, proved:"
            f" {found.proved}"
        )
    for words, bar in OTHERS:
        print(f"{words}: {_best(words, bar)}")


def _best(words: str, bar: float) -> str:
    """Processor and clock seconds of a command, the least of several runs after a first one."""
    command = [sys.executable, "-m", "planner", *words.split()]
    times = []
    with tempfile.TemporaryDirectory() as compiled:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": compiled}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for _ in range(RUNS + 1):
            before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            subprocess.run(command, check=False, capture_output=True, env=environment)
            after, clock = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            times.append((processor, clock - started))
    processor, clock = (min(each) for each in zip(*times[1:], strict=True))
    return f"{processor:.2f} s of processor, {clock:.2f} s of clock (at most {bar} s)"


def phases() -> None:
    for model, gpus, _ in MODELS:
        program = PHASES.replace("MODEL", repr(model)).replace("GPUS", str(gpus))
        answer = subprocess.run(
            [sys.executable, "-c", program], check=True, capture_output=True, text=True
        )
        print(f"{model} on {gpus:,} GPUs: {answer.stdout.strip()}")


def columns() -> None:
    """Combinations of the menus, legal or not, many times over: what matters is the arithmetic."""
    asked = recipe("llama3-8b", 8, global_batch_size=16)
    every = all_combinations(asked)
    rows = np.tile(np.arange(len(every)), -(-200_000 // len(every)))[:200_000]
    batch = every[rows]
    closed_form(asked, batch[slice(0, CHUNK)])
    started = time.perf_counter()
    for at in range(0, len(rows), CHUNK):
        closed_form(asked, batch[slice(at, at + CHUNK)])
    spent = time.perf_counter() - started
    bar = "at least 200,000, aim 1,000,000"
    print(
        f"estimate in columns: {len(rows) / spent:,.0f} layouts a second ({len(rows):,} in"
        f" {spent:.2f} s; {bar})"
    )
    started = time.perf_counter()
    mask(asked, batch)
    spent = time.perf_counter() - started
    print(f"rules: {len(rows) / spent:,.0f} layouts a second")


if __name__ == "__main__":
    cold()
    phases()
    columns()
