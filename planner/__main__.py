"""`python -m planner` and the command `ppplan`."""

from __future__ import annotations


def main() -> None:
    import gc
    import os

    # Looking for plug-ins among all installed packages takes longer than reading the documents.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # Imports and documents make many small objects that live to the end; looking for garbage among
    # them takes a tenth of a short command.
    gc.set_threshold(100_000, 50, 50)
    from planner.cli import run

    run()


if __name__ == "__main__":
    main()
