"""`python -m planner` and the command `ppplan`."""

from __future__ import annotations


def main() -> None:
    from planner.cli import run

    run()


if __name__ == "__main__":
    main()
