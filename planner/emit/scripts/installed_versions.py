import re
import sys
from importlib import metadata
from pathlib import Path

core = Path(sys.argv[1], "megatron/core/package_info.py")
for word in sys.argv[2:]:
    name, planned = word.split("=")
    try:
        found = metadata.version(name)
    except metadata.PackageNotFoundError:
        found = ""
    if name == "megatron-core" and core.is_file():
        numbers = re.findall(r"^(?:MAJOR|MINOR|PATCH) = (\d+)", core.read_text(), re.MULTILINE)
        found = ".".join(numbers)
    if found and not f"{found.partition('+')[0]}.".startswith(f"{planned}."):
        print(f"warning: the plan is for {name} {planned}, but {found} is installed")
