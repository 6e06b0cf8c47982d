"""What `ppplan calibrate` says: the profile's main figures and how well each form fits what was
measured.
"""

from __future__ import annotations

from rich.console import Group
from rich.table import Table
from rich.text import Text

from planner.calibrate.calibrate import Calibration
from planner.report.text.parts import paragraph
from planner.specs.hardware import HardwareProfile


def text(answer: Calibration) -> Group:
    if answer.profile is None:
        reason = paragraph("Reason", answer.outcome.reason)
        return Group(
            Text("Nothing was measured.", "bold red"), reason, Text(answer.outcome.stderr_tail)
        )
    profile = answer.profile
    table = Table(
        "measured",
        "value",
        "median error of the fit",
        box=None,
        pad_edge=False,
        header_style="bold",
    )
    for value, name in figures(profile):
        table.add_row(name, value, "")
    for name, error in answer.fit_error.items():
        table.add_row("", name, f"{error:.1%}")
    used = (
        f"{answer.file}, from {answer.measurements:,} measurements; `--cluster {answer.file}`"
        " uses it."
    )
    return Group(
        Text(f"{profile.name}: {profile.gpu.name}", "bold"), table, paragraph("File", used)
    )


def figures(profile: HardwareProfile) -> list[tuple[str, str]]:
    """The main figures: value with its unit, what it is."""
    best, domain = profile.kernels.gemm["bf16"], profile.node.domain
    link = (
        f"{domain.gbytes_per_s * max(domain.efficiency.values()):,.4g} GB/s,"
        f" {domain.base_us:,.3g} us"
    )
    return [
        (
            f"{max(profile.gpu.peak_tflops.values()) * best.efficiency:,.3g} TFLOP/s of large ones",
            "products of matrices",
        ),
        (
            f"{profile.gpu.hbm_gbytes_per_s * profile.kernels.memory_efficiency_share:,.4g} GB/s",
            "memory",
        ),
        (link if profile.node.gpus > 1 else "one device, no link", "link"),
        (f"{profile.node.launch_factor:.2f} of an x86 server's", "launch of an operation"),
    ]
