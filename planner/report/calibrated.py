"""What `ppplan calibrate` says: the profile's main figures and how well each form fits what was measured."""

from __future__ import annotations

from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from planner.calibrate.calibrate import Calibration
from planner.report.parts import paragraph


def document(answer: Calibration) -> dict[str, Any]:
    """JSON of a calibration; a failed one has no profile, and `reason` says why."""
    return {
        "profile": answer.profile.name if answer.profile else None, "file": answer.file or None, "measurements": answer.measurements,
        "fit_error": answer.fit_error, "reason": answer.outcome.reason or None,
    }  # fmt: skip


def text(answer: Calibration) -> Group:
    if answer.profile is None:
        reason = paragraph("Reason", answer.outcome.reason)
        return Group(Text("Nothing was measured.", "bold red"), reason, Text(answer.outcome.stderr_tail))
    profile = answer.profile
    best = profile.kernels.gemm["bf16"]
    table = Table("measured", "value", "median error of the fit", box=None, pad_edge=False, header_style="bold")
    rows = {
        "products of matrices": f"{max(profile.gpu.peak_tflops.values()) * best.efficiency:,.3g} TFLOP/s of large ones",
        "memory": f"{profile.gpu.hbm_gbytes_per_s * profile.kernels.memory_efficiency_share:,.4g} GB/s",
        "link": f"{profile.node.domain.gbytes_per_s * max(profile.node.domain.efficiency.values()):,.4g} GB/s, "
                f"{profile.node.domain.base_us:,.3g} us" if profile.node.gpus > 1 else "one device, no link",
        "launch of an operation": f"{profile.node.launch_factor:.2f} of an x86 server's",
    }  # fmt: skip
    for name, value in rows.items():
        table.add_row(name, value, "")
    for name, error in answer.fit_error.items():
        table.add_row("", name, f"{error:.1%}")
    used = f"{answer.file}, from {answer.measurements:,} measurements; `--cluster {answer.file}` uses it."
    return Group(Text(f"{profile.name}: {profile.gpu.name}", "bold"), table, paragraph("File", used))
