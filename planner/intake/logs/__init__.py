"""Logs of trainings. A whole log is read by read_log; one line, as it is printed, by parse."""

from planner.intake.logs.lines import Memory, Step, parse

__all__ = ["Memory", "Step", "parse"]
