"""Long sweeps of other software's files through its own parsers: `python -m tests.bench.formats
[layouts] [seed]` prints how many hold.
"""

from __future__ import annotations

import sys
import time

from tests.emit import test_accelerate, test_bridge, test_torchtitan


def main(layouts: int = 100, seed: int = 17) -> None:
    for name, check in (
        ("torchtitan 0.3.0, 0.2.2", test_torchtitan.check),
        ("Accelerate 1.15.0", test_accelerate.check),
        ("Megatron-Bridge 0.3.1", test_bridge.check),
    ):
        started = time.perf_counter()
        try:
            read = check(seed, layouts)
            print(
                f"{name}: {read} accepted and understood as meant"
                f" ({time.perf_counter() - started:.0f} s)",
                flush=True,
            )
        except AssertionError as fault:
            print(f"{name}: {fault}", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
