"""Switches as knobs: what is offered, in what order it is tried, what is kept; that Megatron-LM's
parser takes them; how they go from a trial to plan.yaml and the launch files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from planner import api
from planner.cli import code
from planner.emit import deepspeed, deepspeed_config
from planner.errors import InputError
from planner.estimate import estimate
from planner.launch.outcome import Outcome, Progress
from planner.layout import Layout
from planner.specs import plan as plans
from planner.specs.recipe import Recipe
from planner.specs.switches.table import BY_FRAMEWORK, under, with_switches
from planner.tune.answer import refined_plan
from planner.tune.measurement import Measurement
from planner.tune.study import study as studies
from planner.tune.study.space import Candidate, space
from planner.tune.study.storage import opened
from planner.tune.study.study import Size
from planner.tune.study.switches import Choices, effective, offers, settings, unsupported
from planner.tune.study.trials import Row, best, rivals
from tests import documents
from tests.judges import megatron_sweep
from tests.judges.megatron_oracle import verdicts
from tests.tune.simulated import question, real_s

OFFERED: Choices = {"overlap_reduce": (True, False), "bucket_cap_mb": (25, 100)}
BILLION = 1_000_000_000


def offered(layout: Layout, now: Mapping[str, Any]) -> Choices:
    """A bucket of DDP is none where DDP does not reduce."""
    return {
        word: values
        for word, values in OFFERED.items()
        if word == "overlap_reduce" or now.get("overlap_reduce", True)
    }


def studied(
    folder: Path, gain: float, size: Size, own: Mapping[str, Any] | None = None
) -> tuple[tuple[Row, ...], list[tuple[str, dict[str, Any], int]]]:
    """Layouts whose steps take (1 - gain) of their time with buckets of 100 MiB, and 3% more
    without overlap.
    """
    calls: list[tuple[str, dict[str, Any], int]] = []

    def measure(candidate: Candidate, progress: Progress) -> tuple[Outcome, Measurement | None]:
        calls.append(
            (json.dumps(candidate.layout.named()), dict(candidate.switches), candidate.repeat)
        )
        factor = (1 - gain if "bucket_cap_mb" in candidate.switches else 1) * (
            1.03 if "overlap_reduce" in candidate.switches else 1
        )
        step_s = real_s(candidate) * factor
        return Outcome("done", {}), Measurement(
            step_s, (step_s, step_s * 1.004, step_s * 0.996), 2.0**30
        )

    space = replace(question()[1], switches=own or {})
    study = studies.create(opened(f"journal:{folder}/j"), "switched", {}, True, space, size)
    studies.refine(study, space, measure, size, lambda row, rows: None, offered)
    return studies.all_rows(study), calls


def test_switches_are_tried_one_at_a_time_on_the_fastest_layout_after_the_layouts(
    tmp_path: Path,
) -> None:
    rows, calls = studied(tmp_path, 0.05, Size(3, 3, repeats=1, switches=3))
    _, space = question()
    fastest = json.dumps(min(space.candidates[:3], key=real_s).layout.named())
    assert [told for _, told, _ in calls[:3]] == [{}, {}, {}]
    assert calls[3:5] == [
        (fastest, {"overlap_reduce": False}, 0),
        (fastest, {"bucket_cap_mb": 100}, 0),
    ]
    assert (
        len([one for one in calls if one[1] and not one[2]]) == 3
    )  # of the next layout, as no setting of this one is left
    kept = best(rows)
    assert (
        kept is not None
        and kept.switches == {"bucket_cap_mb": 100}
        and json.dumps(kept.layout.named()) == fastest
    )
    assert {(fastest, 1)} <= {
        (layout, repeat) for layout, told, repeat in calls if told
    }  # the winner is run again ...
    assert {(fastest, 1)} <= {
        (layout, repeat) for layout, told, repeat in calls if not told
    }  # ... and so is the layout alone
    assert refined_plan.error(rows) == refined_plan.error([one for one in rows if not one.switches])


def test_what_gains_no_more_than_noise_is_not_kept(tmp_path: Path) -> None:
    rows, _ = studied(tmp_path, 0.004, Size(2, 2, switches=2))
    kept = best(rows)
    assert kept is not None and not kept.switches
    quickest = min((one for one in rows), key=lambda one: one.measured_s or 0.0)
    assert quickest.switches == {"bucket_cap_mb": 100} and quickest.layout == kept.layout
    assert quickest not in rivals(rows, 3)


def test_a_refined_plan_is_tried_under_its_own_switches_first(tmp_path: Path) -> None:
    """And what other switches are tried of it begins there, where they are faster."""
    rows, calls = studied(tmp_path, 0.05, Size(1, 1, switches=2), {"bucket_cap_mb": 100})
    assert [told for _, told, _ in calls] == [{}, {"bucket_cap_mb": 100}, {"overlap_reduce": False}]
    kept = best(rows)
    assert kept is not None and kept.switches == {"bucket_cap_mb": 100}
    assert {layout for layout, _, _ in calls} == {
        json.dumps(question()[1].candidates[0].layout.named())
    }


def test_of_a_plans_switches_those_count_that_change_something() -> None:
    layout = question()[1].candidates[0].layout
    told = {
        "overlap_comm": False,
        "overlap_reduce": True,
        "bucket_cap_mb": 70,
    }  # DeepSpeed's; as it is; a size of one's own
    assert effective(layout, told, offered) == {"bucket_cap_mb": 70}


def test_a_study_that_goes_on_tries_no_setting_twice(tmp_path: Path) -> None:
    first, _ = studied(tmp_path, 0.05, Size(2, 2, switches=1))
    again, calls = studied(tmp_path, 0.05, Size(2, 2, switches=3))
    assert len(first) == 3 and len(again) == 5 and len(calls) == 2
    assert len({one.key for one in again}) == 5


def test_settings_leave_out_what_would_change_nothing() -> None:
    assert list(settings(Layout(), {}, offered)) == [
        {"overlap_reduce": False},
        {"bucket_cap_mb": 100},
    ]
    assert list(settings(Layout(), {"bucket_cap_mb": 100}, offered)) == [
        {"overlap_reduce": False},
        {},
    ]
    assert list(settings(Layout(), {"overlap_reduce": False}, offered)) == [{}]


def test_the_torch_benchmark_offers_what_its_step_has() -> None:
    recipe = documents.recipe("llama3-8b", 2, global_batch_size=8)
    of = offers(recipe, "torch", 2)
    ddp = documents.layout(recipe, zero=0)
    assert of(ddp, {}) == {"overlap_reduce": (True, False), "bucket_cap_mb": (25, 100, 6)}
    assert of(ddp, {"overlap_reduce": False}).keys() == {"overlap_reduce", "reduce_bucket_numel"}
    assert of(documents.layout(recipe, zero=1), {}) == {
        "reduce_bucket_numel": (2**26, 2**28, 2**24)
    }
    assert of(documents.layout(recipe, zero=3), {}) == {"prefetch_layers": (0, 1, 2)}
    assert of(documents.layout(recipe, tp=2), {}) == {}
    assert (
        offers(recipe, "torch", 1)(ddp, {}) == {}
    )  # larger than the machine: only layers of it run


@pytest.mark.parametrize(
    ("knobs", "more", "words"),
    [
        ({"zero": 0}, {}, set()),
        ({"zero": 1}, {}, {"overlap_comm", "reduce_bucket_size", "allgather_bucket_size"}),
        (
            {"zero": 2},
            {},
            {"overlap_comm", "reduce_bucket_size", "allgather_bucket_size", "contiguous_gradients"},
        ),
        (
            {"zero": 3},
            {},
            {"overlap_comm", "reduce_bucket_size", "stage3_prefetch_bucket_size", "liger_kernel"},
        ),
        ({"zero": 1, "pp": 2}, {}, {"allgather_bucket_size"}),
        (
            {"zero": 1, "pp": 2},
            {"precision": "fp16"},
            {
                "reduce_bucket_size",
                "allgather_bucket_size",
                "contiguous_gradients",
                "reduce_scatter",
                "use_multi_rank_bucket_allreduce",
                "communication_data_type",
            },
        ),
    ],
)
def test_deepspeed_offers_words_of_its_json(
    knobs: dict[str, int], more: dict[str, str], words: set[str]
) -> None:
    recipe = documents.recipe(
        "llama3-8b", 8, framework="deepspeed", stack="deepspeed", global_batch_size=64, **more
    )
    layout = documents.layout(recipe, **knobs)
    choices = offers(recipe, "deepspeed", 8, fixed=("expandable_segments",))(layout, {})
    assert choices.keys() == words <= BY_FRAMEWORK["deepspeed"].keys()
    for word, (usual, *others) in choices.items():
        assert usual not in others and held(recipe, layout, word) == usual
        for value in others:
            assert held(under(recipe, {word: value}), layout, word) == value


def held(recipe: Recipe, layout: Layout, word: str) -> Any:
    """What DeepSpeed's own reader of its JSON makes of a word, or the script of its flags."""
    from deepspeed.runtime.config import (  # type: ignore[import-untyped, unused-ignore]
        get_communication_data_type,
    )
    from deepspeed.runtime.zero.config import (  # type: ignore[import-untyped, unused-ignore]
        get_zero_config,
    )

    config = deepspeed_config.config(recipe, layout)
    if word == "liger_kernel":
        return ("--liger-loss",) in deepspeed.run_flags(recipe, layout)
    if word == "communication_data_type":
        stated = get_communication_data_type(config)
        return "model" if stated is None else str(stated).replace("torch.float32", "fp32")
    return getattr(get_zero_config(config), word.replace("stage3_prefetch", "prefetch"))


def test_a_bf16_pipeline_is_offered_nothing_of_zeros_own_reduction() -> None:
    """DeepSpeed's BF16_Optimizer takes none of these words, which fp16's ZeRO optimizer does."""
    from inspect import signature

    from deepspeed.runtime.bf16_optimizer import (  # type: ignore[import-untyped, unused-ignore]
        BF16_Optimizer,
    )
    from deepspeed.runtime.zero import (  # type: ignore[import-untyped, unused-ignore]
        stage_1_and_2,
    )

    recipe = documents.recipe(
        "qwen2.5-1.5b", 8, framework="deepspeed", stack="deepspeed", global_batch_size=64
    )
    layout = documents.layout(recipe, zero=1, pp=2)
    wide = recipe.model_copy(update={"precision": "fp16"})
    lost = (
        offers(wide, "deepspeed", 8)(layout, {}).keys()
        - offers(recipe, "deepspeed", 8)(layout, {}).keys()
    )
    of_zero = signature(stage_1_and_2.DeepSpeedZeroOptimizer).parameters.keys()
    assert lost == {
        "contiguous_gradients",
        "reduce_bucket_size",
        "reduce_scatter",
        "use_multi_rank_bucket_allreduce",
    }
    assert lost <= of_zero - signature(BF16_Optimizer).parameters.keys()


DISPATCHERS = {
    "allgather": {"moe_token_dispatcher_type": "allgather"},
    "alltoall": {"moe_token_dispatcher_type": "alltoall"},
    "deepep": {"moe_token_dispatcher_type": "flex", "moe_flex_dispatcher_backend": "deepep"},
    "hybridep": {"moe_token_dispatcher_type": "flex", "moe_flex_dispatcher_backend": "hybridep"},
}
GRAPHS: dict[str, dict[str, Any]] = {
    "attn": {"cuda_graph_impl": "transformer_engine", "cuda_graph_modules": ["attn"]},
    "router": {
        "cuda_graph_impl": "transformer_engine",
        "cuda_graph_modules": ["moe_router", "moe_preprocess"],
    },
    "full_iteration": {"cuda_graph_impl": "full_iteration"},
}


SWITCHES = (
    "overlap_grad_reduce",
    "overlap_param_gather",
    "overlap_p2p_comm",
    "tp_comm_overlap",
    "ddp_bucket_size",
    "moe_permute_fusion",
    "moe_router_fusion",
    "overlap_moe_expert_parallel_comm",
)
"""Those that Megatron-LM's own arguments name alike."""


def understood(told: Mapping[str, Any], experts: bool) -> dict[str, Any]:
    """Megatron-LM's own arguments of a setting, by their meaning in its documentation."""
    modules = ["attn", "moe_router", "moe_preprocess"] if experts else ["attn", "mlp"]
    graphs = GRAPHS | {"layers": GRAPHS["attn"] | {"cuda_graph_modules": modules}}
    out: dict[str, Any] = {}
    for name, value in told.items():
        if name == "moe_dispatcher":
            out |= DISPATCHERS[value]
        elif name == "cuda_graph":
            out |= graphs[value]
        elif name == "cross_entropy_fusion":
            out["cross_entropy_loss_fusion"] = value != "off"
        elif name in SWITCHES:
            out[name] = value
    return out


DENSE_SWITCHES = {
    "overlap_grad_reduce",
    "overlap_param_gather",
    "overlap_p2p_comm",
    "tp_comm_overlap",
    "ddp_bucket_size",
    "cuda_graph",
    "cross_entropy_fusion",
}
EXPERT_SWITCHES = {
    "moe_dispatcher",
    "moe_permute_fusion",
    "moe_router_fusion",
    "overlap_moe_expert_parallel_comm",
}


@pytest.mark.parametrize(
    ("model", "knobs", "words"),
    [
        ("llama3-8b", [{"zero": 0}, {"tp": 2}, {"pp": 4, "v": 2}], DENSE_SWITCHES),
        ("qwen3-30b-a3b", [{"ep": 8, "pp": 2, "v": 2}], EXPERT_SWITCHES),
    ],
)
def test_megatrons_parser_takes_every_setting_and_understands_it(
    model: str, knobs: list[dict[str, int]], words: set[str]
) -> None:
    recipe = documents.recipe(model, 16, hardware="b200-sxm", global_batch_size=64)
    experts = recipe.model.moe is not None
    of = offers(recipe, "megatron", 16)
    asked: list[tuple[Layout, Mapping[str, Any]]] = []
    for own in knobs:
        layout = documents.layout(recipe, **{"zero": 1, "etp": 1, **own})
        asked += [(layout, told) for told in settings(layout, {}, of)]
    assert {word for _, told in asked for word in told} >= words
    cases = [
        megatron_sweep.command(str(told), under(recipe, told), layout) for layout, told in asked
    ]
    for (layout, told), answer in zip(asked, verdicts(cases), strict=True):
        assert answer["accepted"], (layout, told, answer)
        expected = understood(told, experts)
        assert {name: answer["switches"][name] for name in expected} == expected
        if told.get("overlap_grad_reduce") is False:
            assert not answer["switches"]["overlap_param_gather"]


def test_what_is_expected_to_gain_is_tried_first_and_what_loses_last() -> None:
    """On a pod whose host is slow against its GPUs launches and waits for counts of tokens weigh
    most; nothing of it that a question fixes, that changes the numbers, or that a setting
    contradicts is tried. Gains are those of whole estimates."""
    recipe = documents.recipe("qwen3-30b-a3b", 16, hardware="b200-sxm", global_batch_size=64)
    layout = documents.layout(recipe, ep=8, pp=2, v=2, zero=1, etp=1)
    choices = offers(recipe, "megatron", 16)(layout, {})
    order = list(choices)
    assert set(order[:2]) == {"moe_dispatcher", "cuda_graph"}
    assert order[-1] == "moe_permute_fusion"
    first, second, last = (
        min(estimate(under(recipe, {name: value}), layout).step_s for value in choices[name][1:])
        for name in (*order[:2], order[-1])
    )
    assert first < second < estimate(recipe, layout).step_s < last
    assert order.index("ddp_bucket_size") < order.index("expandable_segments")
    fixed = offers(recipe, "megatron", 16, fixed=("cuda_graph",))(layout, {})
    assert "cuda_graph" not in fixed and "grad_reduce_dtype" not in fixed
    lossy = offers(recipe, "megatron", 16, lossy=True)(layout, {})
    assert lossy["grad_reduce_dtype"] == ("fp32", "bf16")
    alone = offers(recipe, "megatron", 16)(layout, {"overlap_grad_reduce": False})
    assert "overlap_param_gather" not in alone and "ddp_bucket_size" not in alone
    on_cpu = offers(recipe, "megatron", 16, "cpu")(layout, {})
    assert order - on_cpu.keys() == {"expandable_segments"}


def test_a_switch_is_tried_with_what_it_needs() -> None:
    plain = documents.recipe("llama3-8b", 16, hardware="b200-sxm", global_batch_size=64)
    off = {"overlap_grad_reduce": False, "overlap_param_gather": False}
    recipe = plain.model_copy(update={"software": with_switches(plain.software, off)})
    layout = documents.layout(recipe, tp=2, zero=1)
    tried = list(settings(layout, {}, offers(recipe, "megatron", 16)))
    assert {"overlap_grad_reduce": True, "overlap_param_gather": True} in tried
    assert {"overlap_param_gather": True} not in tried


def test_what_a_runner_does_not_turn_is_said() -> None:
    recipe = documents.recipe("qwen3-30b-a3b", 16, hardware="b200-sxm", global_batch_size=64)
    layout = documents.layout(recipe, ep=8, pp=2, v=2, zero=1, etp=1)
    assert unsupported(recipe, layout, "megatron") == ()
    named = set(unsupported(recipe, layout, "torch"))
    assert named >= {"cuda_graph", "moe_dispatcher"} and "expandable_segments" not in named


def test_named_values_of_switches_are_parameters_of_a_study(tmp_path: Path) -> None:
    """And a study that goes on knows them again."""
    recipe = documents.recipe("llama3-8b", 8, hardware="b200-sxm", global_batch_size=64)
    of = offers(recipe, "megatron", 8, fixed=("expandable_segments",))
    candidates = space(recipe, documents.layout(recipe, tp=2, zero=1), most=2)
    calls: list[dict[str, Any]] = []

    def measure(candidate: Candidate, progress: Progress) -> tuple[Outcome, Measurement | None]:
        calls.append(dict(candidate.switches))
        step_s = 0.8 if candidate.switches.get("cuda_graph") == "layers" else 1.0
        return Outcome("done", {}), Measurement(step_s, (step_s,) * 3, 2.0**30)

    for runs in (1, 3, 30):
        size = Size(1, 1, switches=runs)
        study = studies.create(opened(f"journal:{tmp_path}/j"), "s", {}, True, candidates, size)
        studies.refine(study, candidates, measure, size, lambda row, rows: None, of)
    kept = best(studies.all_rows(study))
    assert kept is not None and kept.switches == {"cuda_graph": "layers"}
    assert len({json.dumps(told) for told in calls}) == len(calls) > 6
    assert {trial.params.get("cuda_graph") for trial in study.trials} >= {"attn", "layers"}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plan")
    asked = api.question(model="llama3-8b", gpus=8, cluster="h100-sxm", tp=1, pp=1, zero=1)
    api.recommend(asked, top=1, out=folder)
    return folder / "plan.yaml"


def switched(saved: Path, folder: Path, switches: Any) -> str:
    path = folder / "plan.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(saved.read_text()) | {"switches": switches}))
    return str(path)


def test_switches_of_a_plan_are_written_or_said_to_be_anothers(saved: Path, tmp_path: Path) -> None:
    assert "switches" not in yaml.safe_load(saved.read_text())
    path = switched(
        saved,
        tmp_path,
        {"ddp_bucket_size": BILLION, "overlap_param_gather": False, "bucket_cap_mb": 100},
    )
    script = api.emit(path).texts["launch.sh"]
    assert (
        f"--ddp-bucket-size {BILLION}" in script
        and "--overlap-grad-reduce" in script
        and "--overlap-param-gather" not in script
    )
    assert (
        "not written: bucket_cap_mb 100, switches of torch with which the plan was measured"
        in script
    )
    script = api.emit(path, framework="deepspeed").texts["launch.sh"]
    assert (
        "not written: bucket_cap_mb 100, ddp_bucket_size 1,000,000,000, overlap_param_gather off"
        in script
    )
    assert "switches of megatron and torch with which" in script


def test_a_refined_plan_keeps_its_switches(saved: Path, tmp_path: Path) -> None:
    recipe, layout = _resolved(saved)
    row = Row(3, layout, "done", 1.0, 0.9, switches={"ddp_bucket_size": BILLION})
    (tmp_path / "plan.yaml").write_text(
        refined_plan.plan(plans.read_question(saved), recipe, row, None, [row], "2026-11-29")
    )
    assert plans.read(tmp_path / "plan.yaml").switches == {"ddp_bucket_size": BILLION}
    assert f"--ddp-bucket-size {BILLION}" in api.emit(tmp_path / "plan.yaml").texts["launch.sh"]
    assert "ddp_bucket_size=1000000000" in plans.read_layout(tmp_path / "plan.yaml").switch
    (line,) = refined_plan.table([row]).splitlines()[1:]
    assert '"{""ddp_bucket_size"": 1000000000}"' in line


def _resolved(saved: Path) -> tuple[Recipe, Layout]:
    from planner.specs import resolve

    return resolve.recipe_and_layout(plans.read_layout(saved))


@pytest.mark.parametrize(
    ("switches", "says"),
    [
        ({"overlap_com": True}, "did you mean overlap_comm"),
        ({"overlap_comm": 1}, "switches.overlap_comm must be true or false, but got 1"),
        ({"bucket_cap_mb": 0}, "switches.bucket_cap_mb must be a whole number from 1"),
        ({"bucket_cap_mb": True}, "but got True"),
        ({"reduce_bucket_size": 5e8}, "must be a whole number"),
        ([1], "switches"),
    ],
)
def test_faulty_switches_are_one_message(
    saved: Path, tmp_path: Path, switches: Any, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = switched(saved, tmp_path, switches)
    with pytest.raises(InputError, match=r"plan\.yaml"):
        plans.read(path)
    assert code(["emit", path]) == 2
    captured = capsys.readouterr()
    assert says in captured.err and captured.err.count("\n") == 1
