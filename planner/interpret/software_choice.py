"""The software, precision and attention kernel that a file's switches mean."""

from __future__ import annotations

from typing import Any

from planner.intake.reading import Reading
from planner.interpret.defaults import OBSOLETE
from planner.specs import library
from planner.specs.distributions import of_file
from planner.specs.hardware import HardwareProfile
from planner.specs.resolve import flash_lacks
from planner.specs.software import Software
from planner.specs.switches import table
from planner.specs.tuning import with_named_states

ALL_SWITCHES = ("overlap_grad_reduce", "cross_entropy_loss_fusion", "cuda_graph_impl")
"""Of a file of NeMo or Bridge that states these, all switches are stated: nothing of their
performance recipes is left.
"""
FP8_RECIPES = {
    "mxfp8": "mxfp8",
    "tensorwise": "fp8-tensorwise",
    "blockwise": "fp8-blockwise",
}
"""All others count as delayed scaling."""
TORCH_FP8_RECIPES = {
    "mxfp8": "mxfp8",
    "rowwise": "fp8-rowwise",
    "rowwise_with_gw_hp": "fp8-rowwise",
    "tensorwise": "fp8-tensorwise",
}
MAX_CAPACITY = 100.0


def precision(plain: dict[str, Any], framework: str) -> str:
    """What the file trains in; without any switch that is fp32."""
    if plain.get("fp4_format") or plain.get("fp4"):
        return "nvfp4"
    eight = plain.get("fp8_format") or plain.get("fp8")
    if eight and framework == "megatron":
        recipe = str(plain.get("fp8_recipe") or "delayed")
        return FP8_RECIPES.get(recipe, "fp8-delayed")
    if eight and framework == "torch" and plain.get("fp8_recipe") in TORCH_FP8_RECIPES:
        return TORCH_FP8_RECIPES[plain["fp8_recipe"]]
    for name in ("bf16", "fp16"):
        if (
            plain.get(f"deepspeed.{name}.enabled") is True
            or plain.get(name) is True
            or plain.get(f"hf.{name}") is True
        ):
            return name
    return "fp32"


def attention(
    plain: dict[str, Any], reading: Reading, hardware: HardwareProfile, precision: str
) -> str:
    """The kernel that runs: flash where the run can have it, whatever the flags say."""
    megatron = reading.framework == "megatron" or reading.kind in ("megatron-deepspeed", "neox")
    code = "megatron" if megatron else reading.framework
    if flash_lacks(code, precision, hardware.gpu) or plain.get("unfused_attention"):
        return "unfused"
    backend = str(plain.get("attention_backend") or "").rsplit(".", 1)[-1]
    if backend in ("flash", "fused", "unfused"):
        return backend
    if not megatron:
        return "flash"
    if any(plain.get(name) for name in ("use_flash_attn", "use_flash_attn_v2")):
        return "flash"
    local = backend == "local" or plain.get("transformer_impl") == "local" or obsolete(plain)
    return "unfused" if local or reading.framework == "deepspeed" else "flash"


def obsolete(plain: dict[str, Any]) -> bool:
    """Whether flags are of 2021 or 2022 and gone since."""
    return any(plain.get(name) for name in OBSOLETE)


def software(plain: dict[str, Any], reading: Reading, option: str | None, dp: int) -> Software:
    """The distribution of the file's kind, its switches turned as the file turns them; one that
    an option names is taken as it is.
    """
    if option:
        return with_named_states(library.stack(option))
    if reading.framework == "megatron":
        return _megatron(plain, reading, dp)
    base = of_file(reading.kind, reading.framework).built()
    stated = table.read(reading.framework, plain)
    late = table.unavailable(reading.framework, stated, plain["framework_version"])
    settings = {name: value for name, value in stated.items() if name not in late}
    own: dict[str, Any] = {}
    if reading.framework == "torch":
        own["zero_stages"] = (0, 2, 3)
        settings = table.defaults("torch") | settings
    return table.with_switches(base, settings).with_figures(own)


def _megatron(plain: dict[str, Any], reading: Reading, dp: int) -> Software:
    """Megatron-LM's arguments are off unless stated; NeMo and Bridge turn switches on by their own
    recipes, so that only what is stated there counts.
    """
    if obsolete(plain) and not plain.get("sequence_parallel"):
        return library.stack("megatron-2021")
    settings = table.read("megatron", plain)
    distribution = of_file(reading.kind, "megatron")
    states_dropout = distribution.unstated == "framework"
    if all(name in reading.values for name in ALL_SWITCHES):
        distribution = of_file("megatron", "megatron")
    base = distribution.built()
    by_torch = settings.get("fsdp") == "torch2"
    if by_torch:
        settings = {name: value for name, value in settings.items() if name not in REPLICATED}
        kept = {name: base.switches[name] for name in REPLICATED if name in base.switches}
        settings |= kept | {"grad_reduce_dtype": "bf16"}
    if distribution.unstated == "framework":
        settings = table.defaults("megatron") | settings
    switched = table.with_switches(base, settings)
    own = _routing(plain)
    if states_dropout and _dropout(plain):
        own["dropout"] = True
    if not by_torch:
        own |= _gradients_of_fp16(plain, dp)
    return switched.with_figures(own)


REPLICATED = ("overlap_grad_reduce", "overlap_param_gather", "grad_reduce_dtype")
"""Switches of Megatron's own data parallelism: under torch's FSDP2 they are its own."""


def capacity(plain: dict[str, Any]) -> float | None:
    """The capacity factor of the experts, where there is one."""
    value = plain.get("moe_expert_capacity_factor")
    return (
        float(value)
        if isinstance(value, (int, float))
        and not isinstance(value, bool)
        and 0 < value <= MAX_CAPACITY
        else None
    )


def _routing(plain: dict[str, Any]) -> dict[str, Any]:
    """With a capacity factor experts drop tokens, or are padded to it."""
    factor = capacity(plain)
    if factor is None:
        return {}
    padded = bool(plain.get("moe_pad_expert_input_to_capacity"))
    return {"experts.capacity_factor": factor, "experts.padded": padded}


def _dropout(plain: dict[str, Any]) -> bool:
    return any(
        float(plain.get(name) or 0) > 0
        for name in ("hidden_dropout", "attention_dropout")
        if _is_number(plain.get(name))
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _gradients_of_fp16(plain: dict[str, Any], dp: int) -> dict[str, Any]:
    """Bytes of fp16's gradients.

    Megatron's table (docs, distributed optimizer): fp16 holds 2 + 2 + 16 bytes a parameter (4 of
    them a copy of the gradients in fp32), bf16 2 + 4 + 12. The copy is counted with the gradients,
    sharded where the states are.
    """
    if (
        not plain.get("fp16")
        or plain.get("bf16")
        or plain.get("accumulate_allreduce_grads_in_fp32")
    ):
        return {}
    copy = 4.0 / dp if plain.get("use_distributed_optimizer") else 4.0
    return {"states.gradient_bytes": 2.0 + copy, "states.grad_reduce_bytes": 2.0}
