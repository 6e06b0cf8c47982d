"""Changes of the layout in the words of the file that states it: `--micro-batch-size 2`,
`model.pipeline_model_parallel_size=4`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from planner.intake.frameworks.key_paths import BRIDGE
from planner.interpret.gpu_count import SHARDS
from planner.interpret.interpret import Launch
from planner.interpret.numbers import whole_number
from planner.layout import OFFLOADS, module_names
from planner.specs import megatron_letters, stage_layout
from planner.specs.megatron_letters import by_letters
from planner.specs.switches.switch import Switches, words_of
from planner.specs.switches.table import BY_FRAMEWORK
from planner.specs.versions import version_of

MEGATRON = {
    "tp": "tensor_model_parallel_size",
    "pp": "pipeline_model_parallel_size",
    "cp": "context_parallel_size",
    "ep": "expert_model_parallel_size",
    "etp": "expert_tensor_parallel_size",
    "mbs": "micro_batch_size",
    "gbs": "global_batch_size",
    "first_layers": "decoder_first_pipeline_num_layers",
    "last_layers": "decoder_last_pipeline_num_layers",
    "account_for_embedding": "account_for_embedding_in_pipeline_split",
    "account_for_loss": "account_for_loss_in_pipeline_split",
    "group": "microbatch_group_size_per_virtual_pipeline_stage",
    "gpus": "launch.gpus",
    "stage_layout": "pipeline_model_parallel_layout",
}
OLD_RECOMPUTE = (
    "checkpoint_activations",
    "activations_checkpoint_method",
    "activations_checkpoint_granularity",
    "recompute_activations",
)
VIRTUAL = (
    "num_layers_per_virtual_pipeline_stage",
    "num_virtual_stages_per_pipeline_rank",
    "virtual_pipeline_model_parallel_size",
)
NEOX = {
    "tensor_model_parallel_size": "model-parallel-size",
    "pipeline_model_parallel_size": "pipe-parallel-size",
    "deepspeed.train_micro_batch_size_per_gpu": "train_micro_batch_size_per_gpu",
}
SPLITS = {"pp", "v", "first_layers", "last_layers", "account_for_embedding", "account_for_loss"}
"""What a stage layout string says by itself: with one of them changed it goes."""
TITAN = {
    "tp": "parallelism.tensor_parallel_degree",
    "pp": "parallelism.pipeline_parallel_degree",
    "cp": "parallelism.context_parallel_degree",
    "ep": "parallelism.expert_parallel_degree",
    "mbs": "training.local_batch_size",
    "gbs": "training.global_batch_size",
}
STAGE = "deepspeed.zero_optimization.stage"


def changed(launch: Launch, words: dict[str, Any]) -> dict[str, Any]:
    """Values to set, by the names of Reading.values, for changed words of the layout; None removes
    one.
    """
    out: dict[str, Any] = {}
    for word, value in words.items():
        if launch.recipe.framework == "torch":
            out |= _torch(launch, word, value)
        elif launch.recipe.framework == "deepspeed":
            out |= _deepspeed(launch, word, value)
        else:
            out |= _megatron(launch, word, value, words)
    if launch.layout.stage_layout and SPLITS & words.keys():
        out[MEGATRON["stage_layout"]] = None
    if launch.plain.get("hybrid_layer_pattern") and {*SPLITS, "stage_layout"} & words.keys():
        return _in_letters(launch, words, out)
    return out


def _in_letters(launch: Launch, words: dict[str, Any], out: dict[str, Any]) -> dict[str, Any]:
    """Stages of a hybrid are bounded in its pattern, and nowhere else."""
    model = launch.recipe.model
    own = {*VIRTUAL, *(MEGATRON[word] for word in {*SPLITS, "stage_layout"} - {"pp", "v"})}
    kept = {name: value for name, value in out.items() if name not in own}
    if not by_letters(model):
        return kept
    text = "" if SPLITS & words.keys() else launch.layout.stage_layout
    split = {word: words[word] for word in SPLITS & words.keys()}
    layout = replace(launch.layout, **{"stage_layout": words.get("stage_layout", text), **split})
    sizes = stage_layout.dealt(model.num_layers, layout) if layout.pp > 1 else ()
    return {**kept, "hybrid_layer_pattern": str(megatron_letters.pattern(model, sizes))}


TRAINER = {"mbs": "hf.per_device_train_batch_size", "m": "hf.gradient_accumulation_steps"}


def _torch(launch: Launch, word: str, value: Any) -> dict[str, Any]:
    """torchtitan's keys and the Trainer's arguments; sequence parallelism goes with tensor
    parallelism there.
    """
    if word == "gpus":
        return {"launch.gpus": value}
    if launch.reading.kind != "torchtitan":
        if word == "recompute":
            return {"hf.gradient_checkpointing": bool(value)}
        if word == "zero":
            return {"hf.fsdp": "full_shard" if value == 3 else "shard_grad_op"}
        return {TRAINER[word]: value} if word in TRAINER else {}
    if word == "recompute":
        return {"activation_checkpoint.mode": ("none", "selective", "full")[int(value)]}
    if word == "zero":
        return {"parallelism.fsdp_reshard_after_forward": "always" if value == 3 else "never"}
    out = {TITAN[word]: value} if word in TITAN else {}
    if word in ("tp", "pp", "cp") and whole_number(launch.plain, SHARDS, -1) > 0:
        # the degrees must multiply to the GPUs: what is left
        out[f"parallelism.{SHARDS}"] = -1
    return out


def _megatron(launch: Launch, word: str, value: Any, words: dict[str, Any]) -> dict[str, Any]:
    if word == "v":
        pp: Any = words.get("pp", launch.layout.pp)
        return _virtual(launch, int(value), int(pp))
    if word == "pp" and "v" not in words and launch.plain.get(VIRTUAL[0]):
        return {MEGATRON[word]: value, **_virtual(launch, int(launch.layout.v), int(value))}
    if word == "sp":
        return {"sequence_parallel": bool(value)}
    if word == "zero":
        return {"use_distributed_optimizer": bool(value)}
    if word == "recompute":
        return _recompute(launch, int(value), words)
    if word == "offload":
        return {"optimizer_cpu_offload": bool(value), "use_precision_aware_optimizer": True}
    if word in ("first_layers", "last_layers", "account_for_embedding", "account_for_loss"):
        flag = bool(value) if word.startswith("account") else int(value)
        return {MEGATRON[word]: flag or None}
    return {MEGATRON[word]: value} if word in MEGATRON else {}


def _virtual(launch: Launch, v: int, pp: int) -> dict[str, Any]:
    names = [name for name in VIRTUAL if launch.plain.get(name)]
    removed: dict[str, Any] = dict.fromkeys(names)
    if v == 1:
        return removed
    if names == ["num_layers_per_virtual_pipeline_stage"]:
        return {names[0]: max(launch.recipe.model.num_layers // (pp * v), 1)}
    return {**removed, (names[0] if len(names) == 1 else "num_virtual_stages_per_pipeline_rank"): v}


def _recompute(launch: Launch, kind: int, words: dict[str, Any]) -> dict[str, Any]:
    """All flags of recomputation together: those of one kind are refused beside another's."""
    out: dict[str, Any] = {name: None for name in OLD_RECOMPUTE if launch.plain.get(name)}
    layers = int(words.get("recompute_layers", 0))
    method: tuple[str | None, int | None] = (None, None)
    if kind == 2:
        method = ("block", layers) if layers else ("uniform", 1)
    modules = module_names(int(words.get("recompute_modules", 0)))
    flags = {
        "recompute_granularity": (None, "selective", "full")[kind],
        "recompute_method": method[0],
        "recompute_num_layers": method[1],
        "recompute_modules": modules if modules != ["core_attn"] else None,
    }
    for name, value in flags.items():
        if value or launch.plain.get(name) is not None:
            out[name] = value or None
    return out


def _deepspeed(launch: Launch, word: str, value: Any) -> dict[str, Any]:
    kind = launch.reading.kind
    if word in ("mbs", "m", "gbs"):
        return _batch(launch, word, value)
    if word == "zero":
        has_flag = launch.plain.get("zero_stage") is not None
        return {STAGE: value, "zero_stage": value} if has_flag else {STAGE: value}
    if word == "offload":
        part, _, place = OFFLOADS[int(value)].partition("-")
        out = {"deepspeed.zero_optimization.offload_optimizer.device": place or "none"}
        if part == "params":
            out["deepspeed.zero_optimization.offload_param.device"] = place
        return out
    names = {
        "recompute": "checkpoint_activations",
        "cp": "deepspeed.sequence_parallel_size",
        "gpus": MEGATRON["gpus"],
        "tp": MEGATRON["tp"],
        "pp": MEGATRON["pp"],
        "ep": MEGATRON["ep"],
    }
    if kind in ("deepspeed", "huggingface"):
        names["recompute"] = "hf.gradient_checkpointing"
        names["tp"] = "deepspeed.tensor_parallel.autotp_size"
        names["pp"] = "deepspeed.pipeline.stages"
    if word not in names:
        return {}
    return {names[word]: bool(value) if word == "recompute" else value}


def _batch(launch: Launch, word: str, value: Any) -> dict[str, Any]:
    """Wherever the batch is stated: the JSON, HF's arguments, Megatron's; `auto` follows by
    itself.
    """
    places = {
        "mbs": (
            "deepspeed.train_micro_batch_size_per_gpu",
            "hf.per_device_train_batch_size",
            "micro_batch_size",
        ),
        "m": ("deepspeed.gradient_accumulation_steps", "hf.gradient_accumulation_steps"),
        "gbs": ("deepspeed.train_batch_size", "global_batch_size"),
    }[word]
    names = [
        name
        for name in places
        if name in launch.reading.values and launch.plain.get(name) not in (None, "auto")
    ]
    if (
        word == "m"
        and not names
        and launch.plain.get("deepspeed.train_batch_size", launch.plain.get("global_batch_size"))
    ):
        return {}  # it follows from the batch
    return dict.fromkeys(names or places[:1], value)


def flag(kind: str, name: str) -> str:
    """A name as its file's author writes it."""
    section, _, key = name.partition(".")
    if section == "launch" and key:
        return {"gpus": "--gpus", "nodes": "--nnodes", "gpus_per_node": "--nproc_per_node"}.get(
            key, name
        )
    if section == "env" and key:
        return key
    if kind == "neox":
        own = key if section == "deepspeed" and key else name.replace("_", "-")
        return NEOX.get(name, own)
    if section == "deepspeed" and key:
        return key
    if section == "hf" and key:
        return f"--{key}"
    if kind == "torchtitan" or (kind in ("nemo", "bridge") and name.startswith("trainer.")):
        return name
    if kind == "bridge":
        return f"{BRIDGE.get(name, 'model')}.{name}"
    if kind == "nemo":
        return f"model.{name}"
    return "--" + (name if kind == "swift" else name.replace("_", "-"))


def flags(kind: str, values: dict[str, Any]) -> dict[str, Any]:
    """Flags and values as JSON gives them."""
    return {flag(kind, name): value for name, value in values.items()}


def flag_line(kind: str, values: dict[str, Any]) -> str:
    """The same in one line: `--micro-batch-size 2, without --recompute-method`."""
    return ", ".join(_with_value(flag(kind, name), value) for name, value in values.items())


def _with_value(name: str, value: Any) -> str:
    switch = name.startswith("--")
    if value is None or (value is False and switch):
        return f"without {name}"
    if value is True and switch:
        return name
    if isinstance(value, bool):
        value = str(value).lower()
    text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
    return f"{name} {text}" if switch else f"{name} = {text}"


def switch_words(launch: Launch, settings: Switches) -> dict[str, Any]:
    """The words of the file that set switches; none where it needs none."""
    recipe = launch.recipe
    version = version_of(recipe.framework, recipe.framework_version)
    words: dict[str, Any] = {}
    for name, value in settings.items():
        switch = BY_FRAMEWORK[recipe.framework][name]
        spelling = switch.spelled(
            value, version, recipe.model.moe is not None, (recipe, launch.layout)
        )
        for flag, *arguments in spelling.flags if spelling else ():
            word = flag.removeprefix("--").replace("-", "_")
            written = " ".join(arguments).format(value=value, words=" ".join(words_of(value)))
            words[word] = written if arguments else True
    return words
