"""Every file is read by torchtitan's own parser: 0.3.0 the Python, 0.2.2 the TOML; and understood
as it was meant.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner import api
from planner.emit import table, torchtitan
from planner.errors import InputError
from planner.intake.read import read
from planner.layout import RECOMPUTE_CODE, SCHEDULE_CODE, Layout, module_mask
from planner.rules.table import mask
from planner.specs import resolve
from planner.specs.recipe import Recipe
from planner.specs.software_versions import SoftwareVersions
from planner.specs.switches.table import BY_FRAMEWORK, settings_of, with_switches
from planner.switch_gains import other_values
from tests import documents, recorder
from tests.judges import torchtitan_oracle
from tests.judges.torchtitan_oracle import OLDER, Case

FULL, SELECTIVE = RECOMPUTE_CODE["full"], RECOMPUTE_CODE["selective"]
OPS = module_mask(["ops"])
DISPATCHERS = {
    "alltoall": "AllToAllTokenDispatcher",
    "deepep": "DeepEPTokenDispatcher",
    "hybridep": "HybridEPTokenDispatcher",
}
"""By switch the class that torchtitan 0.3 builds."""
COPIES = "data_parallel_replicate_degree"
TORCH = {"stack": "torch-fsdp", "framework": "torch", "framework_version": "2.13"}
CALL = ["--module", "torchtitan_plan", "--config", "plan", "--training.steps", "7"]


def question(model: str = "llama3-70b", gpus: int = 64, **changes: Any) -> Recipe:
    return documents.recipe(model, gpus, **{**TORCH, **changes})


def layout(recipe: Recipe, **knobs: Any) -> Layout:
    named = {"schedule": SCHEDULE_CODE[knobs.pop("schedule")]} if "schedule" in knobs else {}
    return documents.layout(recipe, **{"zero": 3, **knobs, **named})


def files(recipe: Recipe, one: Layout) -> dict[str, str]:
    return dict(torchtitan.program(recipe, one, ()).files)


def case(recipe: Recipe, one: Layout, **more: bool) -> Case:
    return Case(
        files(recipe, one)[torchtitan.SCRIPT],
        CALL,
        recipe.gpus,
        capable=True,
        **more,
    )


def wrong(recipe: Recipe, one: Layout, said: dict[str, Any]) -> list[str]:
    """Where torchtitan's reading differs from the layout; what both versions have."""
    if not said["accepted"]:
        return [said["message"]]
    set_to = settings_of(recipe.software)
    copies = set_to[COPIES] if one.dp * one.cp > 1 else 1
    graphed = set_to["cuda_graphs"] and one.zero == 3
    meant: dict[str, Any] = {
        "data_parallel_replicate_degree": copies,
        "data_parallel_shard_degree": one.dp // int(copies),
        "tensor_parallel_degree": one.tp,
        "context_parallel_degree": one.cp,
        "pipeline_parallel_degree": one.pp,
        "expert_parallel_degree": one.ep,
        "global_batch_size": one.gbs,
        "seq_len": recipe.seq_length,
        "fsdp_reshard_after_forward": (
            "default" if graphed else "always" if one.zero == 3 else "never"
        ),
        "compile": set_to["compile"] != "off",
        "components": {"model": ["model"], "loss": ["loss"]}.get(
            str(set_to["compile"]), ["model", "loss"]
        ),
        "async": set_to["async_tensor_parallel"] and one.sp == 1,
        "implementation": str(set_to["optimizer_implementation"]).replace("for_loop", "for-loop"),
        "dtype": (
            "bfloat16"
            if set_to["training_dtype"] == "bf16" and recipe.precision != "fp32"
            else "float32"
        ),
        "flavor": list(torchtitan.flavor(recipe.model)),
        "mixed_precision_param": "float32" if recipe.precision == "fp32" else "bfloat16",
    }
    if one.pp > 1:
        meant |= {"m": [one.m], "pipeline_parallel_microbatch_size": one.mbs}
    else:
        meant |= {"local_batch_size": one.mbs}
    return [
        f"{name}: {said[name]}, not {value}" for name, value in meant.items() if said[name] != value
    ]


def wrong_in_newest(recipe: Recipe, one: Layout, said: dict[str, Any]) -> list[str]:
    """The same, and what 0.3 alone has: stages as they are cut, partial recomputation, sequence
    parallelism.
    """
    found = wrong(recipe, one, said)
    if found:
        return found
    set_to = settings_of(recipe.software)
    library = set_to["moe_dispatcher"] if one.ep > 1 else "alltoall"
    policy = {0: "none", SELECTIVE: "SelectiveAC.Config", FULL: "FullAC.Config"}[one.recompute]
    if one.recompute_layers:
        policy = "FirstLayers.Config"
    meant: dict[str, Any] = {
        "policy": policy,
        "layers": one.recompute_layers if one.recompute == FULL else 0,
        "enable_sequence_parallel": bool(one.sp),
        "steps": 7,
        "disable_cuda_graphs": not set_to["cuda_graphs"],
        "chunks": 8 if set_to["chunked_loss"] else 0,
        "dispatchers": [DISPATCHERS[library]] if recipe.model.moe else [],
        "enable_fsdp_symm_mem": set_to["fsdp_symm_mem"] and one.dp * one.cp > 1,
    }
    if one.pp > 1:
        of_stage = (recipe.model.num_layers + one.account_for_embedding + one.account_for_loss) // (
            one.pp * one.v
        )
        stages = [of_stage] * (one.pp * one.v)
        stages[0] -= one.account_for_embedding
        stages[-1] -= one.account_for_loss
        meant["stages"] = stages
    return [
        f"{name}: {said[name]}, not {value}" for name, value in meant.items() if said[name] != value
    ]


def unquantized(recipe: Recipe, said: dict[str, Any]) -> list[str]:
    """0.2's converters by the names that it registers them under."""
    meant = {"fp8-rowwise": ["quantize.linear.float8"], "mxfp8": ["quantize.linear.mx"]}.get(
        recipe.precision, []
    )
    return [] if said["converters"] == meant else [f"converters: {said['converters']}, not {meant}"]


def random_switches(rng: np.random.Generator) -> dict[str, Any]:
    """Values of a third of the switches, at random; copies of two now and then."""
    out: dict[str, Any] = {}
    for name, switch in BY_FRAMEWORK["torch"].items():
        if switch.values and rng.random() < 1 / 3:
            out[name] = switch.values[int(rng.integers(len(switch.values)))]
    return out | ({COPIES: 2} if rng.random() < 0.2 else {})


def drawn(seed: int, count: int) -> list[tuple[Recipe, Layout]]:
    """Layouts that the rules let through and torchtitan has words for, of its models at random."""
    rng, out = np.random.default_rng(seed), []
    while len(out) < count:
        recipe = question(
            str(rng.choice(list(torchtitan.MODELS))),
            int(rng.choice([8, 64, 128, 512])),
            seq_length=4096,
            precision=str(rng.choice(["bf16", "bf16", "fp32", *torchtitan.CONVERTERS])),
        )
        pick = lambda *values: int(rng.choice(values))  # noqa: E731
        schedule = str(rng.choice([name for name in torchtitan.NAMES]))
        tp, pp, cp, mbs = pick(1, 2, 4, 8), pick(1, 1, 2, 3, 4), pick(1, 1, 2), pick(1, 2)
        dp = max(recipe.gpus // (tp * pp * cp), 1)
        v = (
            1
            if pp == 1
            else (
                1
                if schedule in torchtitan.SINGLE
                else 2
                if schedule in torchtitan.V_SHAPED
                else pick(2, 3, 4)
            )
        )
        recompute = pick(0, SELECTIVE, FULL)
        software = with_switches(recipe.software, random_switches(rng))
        recipe = recipe.model_copy(update={"software": software})
        one = Layout(
            tp=tp,
            pp=pp,
            cp=cp,
            dp=dp,
            mbs=mbs,
            m=max(recipe.global_batch_size // (dp * mbs), 1),
            v=v,
            zero=pick(2, 3),
            sp=pick(0, 1) if tp > 1 else 0,
            ep=pick(1, 2, 8) if recipe.model.moe else 1,
            recompute=recompute,
            schedule=SCHEDULE_CODE[schedule if pp > 1 else "1f1b"],
            recompute_layers=pick(0, 1, 2) if recompute == FULL else 0,
            recompute_modules=OPS if recompute == SELECTIVE else 0,
            account_for_embedding=pick(0, 1) if pp > 1 else 0,
            account_for_loss=pick(0, 1) if pp > 1 else 0,
        )
        if mask(recipe, one)[0].all():
            try:
                files(recipe, one)
            except InputError:
                continue
            out.append((recipe, one))
    return out


def check(seed: int, count: int) -> tuple[int, int]:
    """How many files of each version were read as meant; all of them, or an AssertionError."""
    some = drawn(seed, count)
    said = torchtitan_oracle.verdicts(case(recipe, one) for recipe, one in some)
    found = [
        (one.named(), wrong_in_newest(recipe, one, reply))
        for (recipe, one), reply in zip(some, said, strict=True)
    ]
    assert not (faults := [one for one in found if one[1]]), (
        f"{len(faults)} of {len(some)}, first: {faults[0]}"
    )
    older = [
        (recipe, one, text)
        for recipe, one in some
        if (text := files(recipe, one).get(torchtitan.TOML))
    ]
    said = torchtitan_oracle.verdicts(
        (Case(text, [], recipe.gpus) for recipe, _, text in older), OLDER
    )
    found = [
        (one.named(), wrong(recipe, one, reply) or unquantized(recipe, reply))
        for (recipe, one, _), reply in zip(older, said, strict=True)
    ]
    assert not (faults := [one for one in found if one[1]]), (
        f"{len(faults)} of {len(older)} TOML files, first: {faults[0]}"
    )
    return len(some), len(older)


def test_sweep() -> None:
    """Of most plans no word is 0.2's: tp without sequence parallelism, 4 bits, newer switches."""
    newest, older = check(seed=9, count=16)
    assert newest == 16 and older >= 5


def test_models_are_the_ones_that_torchtitan_builds() -> None:
    """Their parameters are those of the presets, by torch's count; partial recomputation wraps as
    many layers as it says.
    """
    some = [
        question(name, 8)
        for name in ("llama3-8b", "qwen3-0.6b", "qwen3-30b-a3b", "deepseek-v2-lite", "gpt-oss-20b")
    ]
    said = torchtitan_oracle.verdicts(
        case(recipe, layout(recipe, recompute=FULL, recompute_layers=3), build=True)
        for recipe in some
    )
    for recipe, reply in zip(some, said, strict=True):
        assert reply["accepted"], reply["message"]
        assert reply["wrapped"] == 3
        published = recipe.model.parameters
        assert published and abs(reply["parameters"] / published - 1) < 1e-4, (
            recipe.model.name,
            reply["parameters"],
            published,
        )


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "a model that it does not build": ({"model": "falcon-40b"}, {}, "llama3-8b"),
    "half precision": ({"precision": "fp16"}, {}, "bf16"),
    "one factor a tensor": ({"precision": "fp8-tensorwise"}, {}, "fp8-rowwise"),
    "the scores in memory": ({"attention": "unfused"}, {}, "flash"),
    "another optimizer": ({"optimizer": "lion"}, {}, "adam"),
    "modules to recompute": ({}, {"recompute": RECOMPUTE_CODE["selective"]}, "full"),
    "stages of a string": ({}, {"pp": 2, "stage_layout": "Et*39|t*41L"}, "account-for"),
    "a schedule of Megatron's": ({}, {"pp": 2, "schedule": "zb-h1"}, "1f1b"),
    "one stage of a looped schedule": ({}, {"pp": 4, "schedule": "interleaved-zb"}, "v 2"),
    "rounds that are not equal": (
        {},
        {"pp": 4, "v": 2, "dp": 16, "m": 30, "schedule": "interleaved-torch"},
        "m 28",
    ),
    "layers that do not split": ({}, {"pp": 4, "v": 3, "schedule": "interleaved"}, "v 1"),
    "experts over tp": ({"model": "qwen3-30b-a3b"}, {"tp": 4, "ep": 1}, "ep 4"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused_with_a_way_out(what: str) -> None:
    words, knobs, way_out = REFUSED[what]
    recipe = question(**words)
    with pytest.raises(InputError, match=way_out):
        torchtitan.program(recipe, layout(recipe, **knobs), ())


@pytest.mark.parametrize("m", [28, 30])
def test_equal_rounds_are_what_torch_asks(m: int) -> None:
    """torch's own schedule takes 28 micro-batches on 4 ranks, and refuses 30."""
    from torch.distributed.pipelining._schedule_visualizer import get_schedule_ops

    if m == 28:
        assert get_schedule_ops("Interleaved1F1B", 4, m, 2)
    else:
        with pytest.raises(ValueError, match="microbatches"):
            get_schedule_ops("Interleaved1F1B", 4, m, 2)


def test_a_changed_word_is_found() -> None:
    """The oracle itself: a word that torchtitan does not have, a product that is not the number of
    GPUs.
    """
    recipe = question("llama3-8b", 8)
    text = files(recipe, layout(recipe))[torchtitan.SCRIPT]
    broken = [
        text.replace("tensor_parallel_degree", "tensor_parallel"),
        text.replace("shard_degree=8", "shard_degree=4"),
    ]
    said = torchtitan_oracle.verdicts(Case(one, CALL, 8) for one in broken)
    assert [reply["accepted"] for reply in said] == [False, False]
    assert "tensor_parallel" in said[0]["message"]


@pytest.mark.parametrize("launcher", ["torchrun", "slurm"])
def test_launched(launcher: str, tmp_path: Path) -> None:
    recipe = question()
    written = table.files(recipe, layout(recipe, tp=8, pp=2), None, launcher)
    name = table.LAUNCHERS[launcher][0]
    call = recorder.call(
        tmp_path, written[name], "--compile.no-enable", STEPS="7", ASSETS="/my models/llama"
    )
    assert call.world_size == 64 and call.entry.endswith(f"/{torchtitan.SCRIPT}")
    assert call.flags[:4] == CALL[:4] and call.flags[-1] == "--compile.no-enable"
    assert call.flags[call.flags.index("--hf_assets_path") + 1] == "/my models/llama"
    assert torchtitan.SCRIPT in written and torchtitan.TOML in written


@pytest.mark.parametrize("launcher", ["torchrun", "slurm"])
def test_launched_by_0_2(launcher: str, tmp_path: Path) -> None:
    """As run_train.sh of 0.2.2 does: its own module, with the TOML by --job.config_file."""
    recipe = resolve.recipe(
        api.question(
            model="llama3-8b",
            gpus=64,
            cluster="h100-sxm",
            software="torchtitan@0.2",
            switch=(f"{COPIES}=2",),
        )
    )
    written = table.files(recipe, layout(recipe), None, launcher)
    name = table.LAUNCHERS[launcher][0]
    assert written.keys() == {name, torchtitan.TOML}
    assert "bf16, torch 2.13, torchtitan 0.2;" in written[name]
    done, record = recorder.run(tmp_path, written[name], STEPS="7", FILES="/plan")
    assert done.returncode == 0
    words = record.with_suffix(".words").read_text().split("\0")
    at = words.index("--module")
    assert words[at + 1 : at + 4] == [
        "torchtitan.train",
        "--job.config_file",
        f"/plan/{torchtitan.TOML}",
    ]
    assert words[words.index("--training.steps") + 1] == "7"


def test_switches_of_0_3_are_refused_under_0_2() -> None:
    asked = {"model": "llama3-8b", "gpus": 8, "cluster": "h100-sxm", "software": "torchtitan@0.2"}
    with pytest.raises(InputError, match=r"cuda_graphs must be one that torchtitan 0\.2 has"):
        resolve.recipe(api.question(**asked, switch=("cuda_graphs=on",)))


def test_what_no_file_says_is_no_offer() -> None:
    """Liger is of scripts of transformers; no torchtitan has a key for it."""
    recipe = question("llama3-8b", 8)
    names = {gain.name for gain in other_values(recipe, layout(recipe))}
    assert "chunked_loss" in names and "liger_kernel" not in names
    older = recipe.model_copy(update={"versions": SoftwareVersions(torchtitan="0.2")})
    assert "chunked_loss" not in {gain.name for gain in other_values(older, layout(older))}


def test_check_reads_the_toml_back(tmp_path: Path) -> None:
    """By the reader of files that exist, which was written for others' files."""
    recipe = question()
    one = layout(recipe, tp=8, pp=2, mbs=2, zero=2, recompute=FULL)
    path = tmp_path / torchtitan.TOML
    path.write_text(files(recipe, one)[torchtitan.TOML])
    values = {name: value.value for name, value in read(path).values.items()}
    assert values["tensor_model_parallel_size"] == 8 and values["pipeline_model_parallel_size"] == 2
    assert (
        values["micro_batch_size"] == 2
        and values["global_batch_size"] == 512
        and values["seq_length"] == 8192
    )
    assert (
        values["recompute_granularity"] == "full"
        and values["torch_fsdp2_no_reshard_after_forward"] is True
    )
