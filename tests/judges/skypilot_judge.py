"""The process that judges a SkyPilot task: SkyPilot's own JSON schemas, which `sky launch`
validates a file against.

Reads a YAML from the standard input and prints JSON: message of the first fault, or ''. Importing
all of SkyPilot would load its server, clouds and catalogs, and ask the network for prices: the
schemas' module alone is taken.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import types
from pathlib import Path
from typing import Any

import jsonschema
import yaml
from stand_ins import stand_in  # beside this file: it runs as a script


def main() -> None:
    package: Any = types.ModuleType("sky")
    package.__version__, package.__commit__ = "0.14.1", ""
    package.__path__ = [
        str(Path(place) / "sky")
        for place in sys.path
        if (Path(place) / "sky" / "utils" / "schemas.py").is_file()
    ]
    sys.modules["sky"] = package
    stand_in(
        "sky.skylet.autostop_lib",
        "sky.server",
        "sky.utils.kubernetes_enums",
        "sky.utils.common_utils",
        "sky.sky_logging",
    )
    from sky.utils import schemas

    names = importlib.util.spec_from_file_location(
        "gpu_names", Path(package.__path__[0]) / "utils" / "gpu_names.py"
    )
    assert names and names.loader
    known = importlib.util.module_from_spec(names)
    names.loader.exec_module(known)
    task, message = yaml.safe_load(sys.stdin), ""
    try:
        jsonschema.validate(task, schemas.get_task_schema())
        jsonschema.validate(task["resources"], schemas.get_resources_schema())
    except jsonschema.ValidationError as fault:
        message = fault.message
    print(json.dumps({"message": message, "names": known.CANONICAL_GPU_NAMES}))


if __name__ == "__main__":
    main()
