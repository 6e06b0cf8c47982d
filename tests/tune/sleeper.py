"""A worker that sleeps: python -m tests.tune.sleeper REQUEST.json RESULT.json."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from planner.launch.process_guard import watch_parent

if __name__ == "__main__":
    watch_parent()
    request = json.loads(Path(sys.argv[1]).read_text())
    time.sleep(request["seconds"])
    if os.environ["RANK"] == "0":
        Path(sys.argv[2]).write_text("{}")
