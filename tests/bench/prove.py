"""Scripts of `emit --prove` under the frameworks' own training loops, on a CPU: `python -m
tests.bench.prove`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.judges import prove_runs


def main() -> None:
    for name, run in (
        ("Megatron-LM, bf16", lambda folder: prove_runs.megatron("bf16", folder)),
        ("Megatron-LM, fp16", lambda folder: prove_runs.megatron("fp16", folder)),
        ("torchtitan, fp32", prove_runs.torchtitan),
    ):
        with tempfile.TemporaryDirectory() as folder:
            run(Path(folder))
        print(f"{name}: the line came and was read back", flush=True)


if __name__ == "__main__":
    main()
