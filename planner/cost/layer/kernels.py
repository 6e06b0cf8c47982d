"""How long one kernel takes: matrix products, attention, memory-bound operations."""

from __future__ import annotations

import numpy as np

from planner.layout import Numeric
from planner.specs.hardware import GemmRates, HardwareProfile
from planner.units import MICRO

_OPERANDS = {
    "bf16": "bf16",
    "fp16": "bf16",
    "fp32": "fp32",
    "fp8-delayed": "fp8",
    "fp8-tensorwise": "fp8",
    "fp8-rowwise": "fp8",
    "fp8-blockwise": "fp8-block",
    "mxfp8": "fp8-block",
    "nvfp4": "fp4",
}
_PEAKS = {"fp8": "fp8", "fp8-block": "fp8", "fp4": "fp4"}


def gemm_rates(hardware: HardwareProfile, precision: str) -> GemmRates:
    """The measured rates of the operands' precision; blockwise fp8 falls back to fp8, all (fp32
    too) to bf16's shape of curve.
    """
    rates = hardware.kernels.gemm
    operands = _OPERANDS[precision]
    return (
        rates.get(operands)
        or rates.get("fp8" if operands == "fp8-block" else operands)
        or rates["bf16"]
    )


def peak_flops_per_s(hardware: HardwareProfile, precision: str) -> float:
    """Dense peak of the matrix units for these operands."""
    operands = _OPERANDS[precision]
    if precision == "fp32":
        return hardware.gpu.peak_flops_per_s(
            "tf32" if "tf32" in hardware.gpu.peak_tflops else "fp32"
        )
    return hardware.gpu.peak_flops_per_s(
        _PEAKS.get(operands, "fp16" if precision == "fp16" else "bf16")
    )


def is_low(precision: str) -> bool:
    """Whether operands have 8 bits or fewer: they are quantized before the product."""
    return _OPERANDS[precision] in _PEAKS


def gemm_s(
    hardware: HardwareProfile,
    precision: str,
    m: Numeric,
    n: Numeric,
    k: Numeric,
    prepared: bool = False,
) -> Numeric:
    """One matrix product C[m,n] = A[m,k] B[k,n], warm and at sustained clocks.

    prepared: operands of 8 bits or fewer are quantized already. The measured products quantize A
    themselves (their n_half is 6 to 7 bytes moved an element of A, their fixed time three
    launches): then n_half and fixed of bf16 stand in.

    Formula: fixed + 2mnk / (peak * efficiency * sustained) (1 + k_half/k) (1 + m_half/m) (1 +
             n_half/n)
    Source:  fit to [aiconfigurator] kernels; sustained_share to published runs
    Assumes: dimensions of a few hundred at least; smaller ones are less certain.
    """
    rates = gemm_rates(hardware, precision)
    rate = (
        peak_flops_per_s(hardware, precision) * rates.efficiency * hardware.kernels.sustained_share
    )
    bare = hardware.kernels.gemm["bf16"] if prepared else rates
    shape = (
        (1 + rates.k_half / k) * (1 + rates.m_half / m) * (1 + min(bare.n_half, rates.n_half) / n)
    )
    return min(bare.fixed_us, rates.fixed_us) * MICRO + 2.0 * m * n * k / rate * shape


def grouped_gemm_s(
    hardware: HardwareProfile, precision: str, groups: Numeric, m: Numeric, n: Numeric, k: Numeric
) -> Numeric:
    """So many products of the same size in one launch: the experts of a rank, their operands
    quantized already.

    Formula: fixed + groups (gemm - fixed)
    Source:  [aiconfigurator] grouped products of experts in 16 bits: 1.0 to 1.1 times this from
             2,048 rows an expert on, 1.4 to 1.9 times with 512 to 2,048 (their time holds
             activation and permutation too)
    Assumes: balanced rows.
    """
    product_s = gemm_s(hardware, precision, m, n, k, prepared=True)
    fixed = (
        min(hardware.kernels.gemm["bf16"].fixed_us, gemm_rates(hardware, precision).fixed_us)
        * MICRO
    )
    return fixed + groups * (product_s - fixed)


def flash_attention_s(
    hardware: HardwareProfile,
    sequences: Numeric,
    heads: Numeric,
    seq_length: Numeric,
    head_dim: float,
) -> Numeric:
    """Causal flash attention, forward.

    Formula: fixed + 2 b a s^2 d / (peak * efficiency * sustained) (1 + seq_half/s) (1 +
             heads_half/(b a))
    Source:  fit to [aiconfigurator] kernels; [dao2022]
    Assumes: bf16 or fp16; grouped heads cost the same.
    """
    rates = hardware.kernels.attention
    sustained = hardware.kernels.attention_sustained_share or hardware.kernels.sustained_share
    rate = peak_flops_per_s(hardware, "fp16") * rates.efficiency * sustained
    shape = (1 + rates.seq_half / seq_length) * (1 + rates.heads_half / (sequences * heads))
    return (
        rates.fixed_us * MICRO
        + 2.0 * sequences * heads * seq_length * seq_length * head_dim / rate * shape
    )


def flash_backward_s(hardware: HardwareProfile, forward_s: Numeric) -> Numeric:
    """Causal flash attention, backward.

    Formula: 2.5 forward / backward_share
    Source:  [dao2022]: five products where the forward has two
    Assumes: the same shape of curve as the forward's.
    """
    return 2.5 * forward_s / hardware.kernels.attention.backward_share


def memory_s(hardware: HardwareProfile, moved_bytes: Numeric) -> Numeric:
    """A memory-bound kernel.

    Formula: bytes / (HBM bandwidth * efficiency)
    Source:  [aiconfigurator]; the share is that of streaming kernels
    Assumes: nothing stays in the cache.
    """
    return moved_bytes / (hardware.gpu.hbm_bytes_per_s * hardware.kernels.memory_efficiency_share)


def erf(x: Numeric) -> Numeric:
    """The error function, to 1.5e-7 (numpy has none).

    Formula: Abramowitz and Stegun 7.1.26
    Source:  [abramowitz1964]
    Assumes: nothing.
    """
    size = np.abs(x)
    t = 1 / (1 + 0.3275911 * size)
    series = t * (
        0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429)))
    )
    return np.sign(x) * (1 - series * np.exp(-size * size))
