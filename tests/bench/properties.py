"""Properties on many more examples than the tests draw: `python -m tests.bench.properties [times]
[seed]` prints what pytest says of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.examples import TIMES

TESTS = Path(__file__).parents[1]


def main(times: int = 20, seed: int = 1) -> int:
    files = [path for path in TESTS.rglob("test_*.py") if "@examples(" in path.read_text()]
    words = [sys.executable, "-m", "pytest", f"--hypothesis-seed={seed}", *map(str, files)]
    return subprocess.run(words, env={**os.environ, TIMES: str(times)}).returncode


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
