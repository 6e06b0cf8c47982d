"""Launch files of DeepSpeed: what the script is told, what the top says, whose script it is;
launched by each launcher.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from planner import api
from planner.emit import deepspeed, megatron_deepspeed, table
from planner.errors import InputError
from planner.layout import SCHEDULE_CODE, Layout
from planner.specs import library
from planner.specs.recipe import Recipe
from planner.specs.resolve import FREE
from planner.specs.switches.table import with_switches
from tests import documents, recorder

FULL = 2
BASH = [name for name, (file, _) in table.LAUNCHERS.items() if not file.endswith(".yaml")]
DOCUMENT = {"stack": "deepspeed", "framework": "deepspeed"}


def question(model: str = "llama3-8b", **changes: Any) -> Recipe:
    return documents.recipe(model, 16, **DOCUMENT, **changes)


def of(recipe: Recipe, **knobs: Any) -> Layout:
    return documents.layout(recipe, **{"sp": 0, "zero": 1, **knobs})


def launched(
    folder: Path,
    launcher: str,
    recipe: Recipe,
    layout: Layout,
    script: str | None = None,
    **variables: str,
) -> recorder.Call:
    files = table.files(recipe, layout, None, launcher, script)
    for name, text in files.items():
        (folder / name).write_text(text)
    return recorder.call(folder, next(iter(files.values())), **variables)


def as_the_script_reads(flags: list[str]) -> argparse.Namespace:
    """The flags as a mapping, by a parser that knows their kinds and nothing of the script."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for flag in flags:
        if flag.startswith("--"):
            after = flags[flags.index(flag) + 1 :]
            parser.add_argument(
                flag, **({"action": "store_true"} if not after or after[0].startswith("--") else {})
            )
    return parser.parse_args(flags)


@pytest.mark.parametrize("launcher", BASH)
def test_script_is_told_the_model(launcher: str, tmp_path: Path) -> None:
    recipe = question()
    call = launched(tmp_path, launcher, recipe, of(recipe, zero=3, recompute=FULL))
    told = vars(as_the_script_reads(call.flags))
    sizes = {
        "num_layers": 32,
        "hidden_size": 4096,
        "ffn_size": 14336,
        "num_heads": 32,
        "num_kv_heads": 8,
        "head_dim": 128,
        "vocab_size": 128256,
        "seq_length": 8192,
        "recompute_layers": 32,
        "steps": 20,
    }
    assert {name: int(told[name]) for name in sizes} == sizes
    assert (
        told["gated_mlp"]
        and told["deepspeed"]
        and "tied_embeddings" not in told
        and float(told["rope_theta"]) == 500_000
    )
    assert call.world_size == 16 and Path(call.entry).name == "train.py"
    assert (
        json.loads((tmp_path / Path(told["deepspeed_config"]).name).read_text())[
            "zero_optimization"
        ]["stage"]
        == 3
    )


def test_files_lie_beside_the_script_or_where_it_was_submitted(tmp_path: Path) -> None:
    recipe = question()
    assert launched(tmp_path, "torchrun", recipe, of(recipe)).entry == f"{tmp_path}/train.py"
    assert launched(tmp_path, "deepspeed", recipe, of(recipe)).entry == f"{tmp_path}/train.py"
    assert (
        launched(tmp_path, "slurm", recipe, of(recipe), SLURM_SUBMIT_DIR="/home/me/run").entry
        == "/home/me/run/train.py"
    )


@pytest.mark.parametrize("launcher", BASH)
def test_own_script_gets_the_configuration_alone(launcher: str, tmp_path: Path) -> None:
    recipe = question()
    call = launched(tmp_path, launcher, recipe, of(recipe), script='/my runs/$1 "a".py')
    assert call.entry == '/my runs/$1 "a".py'
    assert call.flags[:2] == ["--deepspeed", "--deepspeed_config"] and len(call.flags) == 3
    assert set(table.files(recipe, of(recipe), None, launcher, "x.py")) == {
        table.LAUNCHERS[launcher][0],
        "ds_config.json",
    }


def test_own_model_under_autotp_is_split_by_its_own_plan() -> None:
    recipe = question()
    config = json.loads(
        table.files(recipe, of(recipe, tp=2), None, "torchrun", "x.py")["ds_config.json"]
    )
    assert config["tensor_parallel"] == {"autotp_size": 2}


def test_own_script_is_told_what_it_must_do() -> None:
    """Falcon's blocks and Mixtral's experts are the script's: the JSON has no word for their
    checkpoints and their groups.
    """
    falcon, mixtral = question("falcon-40b"), question("mixtral-8x7b")
    text = table.files(
        falcon, of(falcon, recompute=FULL, recompute_layers=30), None, "slurm", "x.py"
    )["launch.sbatch"]
    assert (
        "# the script must checkpoint 30 of the 60 layers of a stage\n" in text
        and "experts" not in text
    )
    text = table.files(mixtral, of(mixtral, ep=8), None, "torchrun", "x.py")["launch.sh"]
    assert "over 8 ranks (ep_size=8" in text and "must checkpoint no layer" in text
    written = table.files(mixtral, of(mixtral, ep=8, zero=3), None, "torchrun", "x.py")
    assert json.loads(written["ds_config.json"])["expert_parallel"] == {
        "enabled": True,
        "autoep_size": 8,
    }
    text = written["launch.sh"]
    assert "over 8 ranks (AutoEP)" in text and "deepspeed.moe" not in text
    assert "the script must" not in table.files(question(), of(question()), None)["launch.sh"]


def test_what_is_not_in_the_json_is_said(tmp_path: Path) -> None:
    recipe = question()
    text = table.files(recipe, of(recipe, pp=2), None)["launch.sh"]
    top = text.partition("set -euo")[0]
    assert "PipelineModule(layers, num_stages=2, partition_method='type:Block'" in top
    assert "no interleaving" in top
    assert "--pipeline-stages 2" in text
    assert "Ulysses: 2 ranks" in table.files(recipe, of(recipe, cp=2), None)["launch.sh"]


def test_other_nodes_get_the_variables(tmp_path: Path) -> None:
    plain = question()
    recipe = plain.model_copy(update={"software": with_switches(plain.software, FREE)})
    call = launched(tmp_path, "deepspeed", recipe, of(recipe))
    lines = Path(call.env["DS_ENV_FILE"]).read_text().splitlines()
    assert "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" in lines
    assert (
        call.options["--num_nodes"] == "2"
        and call.options["--num_gpus"] == "8"
        and "--master_addr" not in call.options
    )


def test_several_nodes_need_a_hostfile(tmp_path: Path) -> None:
    recipe = question()
    done, _ = recorder.run(
        tmp_path,
        table.files(recipe, of(recipe), None, "deepspeed")["launch.deepspeed.sh"],
        HOSTFILE="/nowhere",
    )
    assert done.returncode == 2 and "hostfile" in done.stderr


@pytest.mark.parametrize("framework", ["megatron", "deepspeed"])
def test_kubernetes_runs_the_torchrun_script(framework: str, tmp_path: Path) -> None:
    recipe = question() if framework == "deepspeed" else documents.recipe("llama3-8b", 16)
    layout = of(recipe)
    config_map, service, job = yaml.safe_load_all(
        table.files(recipe, layout, None, "kubernetes")["launch.k8s.yaml"]
    )
    script = table.files(recipe, layout, None, "torchrun")
    assert config_map["data"] == script
    pod = job["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert (
        job["spec"]["completions"],
        job["spec"]["parallelism"],
        job["spec"]["completionMode"],
    ) == (2, 2, "Indexed")
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 8}
    assert container["command"] == ["bash", "/ppplan/launch.sh"]
    name = job["metadata"]["name"]
    env = {one["name"]: one.get("value") for one in container["env"]}
    assert (
        env["MASTER_ADDR"] == f"{name}-0.{name}"
        and pod["subdomain"] == service["metadata"]["name"] == name
    )
    assert (
        service["spec"]["clusterIP"] == "None"
        and service["spec"]["selector"] == job["spec"]["template"]["metadata"]["labels"]
    )
    call = recorder.call(
        tmp_path,
        config_map["data"]["launch.sh"],
        NODE_RANK="1",
        MASTER_ADDR=env["MASTER_ADDR"],
        MOCK="1",
    )
    assert (call.options["--node-rank"], call.options["--master-addr"], call.world_size) == (
        "1",
        f"{name}-0.{name}",
        16,
    )


def test_three_dimensions_are_megatron_deepspeeds(tmp_path: Path) -> None:
    recipe = question()
    layout = of(recipe, tp=2, pp=2, sp=1, recompute=FULL)
    call = launched(
        tmp_path,
        "torchrun",
        recipe,
        layout,
        DATA="/data/a",
        TOKENIZER="t",
        MEGATRON_PATH="/opt/mds",
    )
    told = vars(as_the_script_reads(call.flags))
    assert (
        call.entry == "/opt/mds/pretrain_gpt.py" and call.env["CUDA_DEVICE_MAX_CONNECTIONS"] == "1"
    )
    numbers = {
        "tensor_model_parallel_size": 2,
        "pipeline_model_parallel_size": 2,
        "zero_stage": 1,
        "micro_batch_size": 1,
        "global_batch_size": 512,
        "num_key_value_heads": 8,
        "num_layers": 32,
        "checkpoint_num_layers": 1,
    }
    assert {name: int(told[name]) for name in numbers} == numbers
    assert (
        told["sequence_parallel"]
        and told["deepspeed_activation_checkpointing"]
        and told["normalization"] == "rmsnorm"
    )
    assert "no_pipeline_parallel" not in told and "num_query_groups" not in told
    assert "train.py" not in table.files(recipe, layout, None)


def test_megatron_deepspeed_needs_data(tmp_path: Path) -> None:
    recipe = question()
    done, _ = recorder.run(tmp_path, table.files(recipe, of(recipe, tp=2, pp=2), None)["launch.sh"])
    assert done.returncode and "no synthetic data" in done.stderr


def test_zero_bubble_and_no_pipeline() -> None:
    recipe = question(framework_version="0.17")
    flags = [
        word
        for flag in megatron_deepspeed.parallel_flags(recipe, of(recipe, tp=2))
        for word in flag
    ]
    assert "--no-pipeline-parallel" in flags
    assert ("--enable-zbh1-pipeline",) in megatron_deepspeed.parallel_flags(
        recipe, of(recipe, pp=2, schedule=SCHEDULE_CODE["zb-h1"])
    )


@pytest.mark.parametrize(
    "changes, named",
    [
        ({"position": "alibi"}, "alibi positions"),
        ({"qk_norm": True}, "norms of queries and keys"),
        ({"attention_bias": "qkv"}, "biases on attention qkv"),
        ({"norm": "layernorm_nobias"}, "layernorm_nobias"),
    ],
)
def test_megatron_deepspeed_names_what_it_has_no_flag_for(
    changes: dict[str, Any], named: str
) -> None:
    recipe = documents.recipe(library.model("llama3-8b").model_copy(update=changes), 16, **DOCUMENT)
    with pytest.raises(InputError, match=named):
        table.files(recipe, of(recipe, tp=2, pp=2), None)
    table.files(recipe, of(recipe), None)  # the training script has it


def test_training_script_names_what_it_does_not_build() -> None:
    recipe = documents.recipe(
        library.model("llama3-8b").model_copy(update={"parallel_block": True}), 16, **DOCUMENT
    )
    with pytest.raises(InputError, match=r"parallel block.*--script"):
        table.files(recipe, of(recipe), None)
    assert "ds_config.json" in table.files(recipe, of(recipe), None, "torchrun", "mine.py")


def test_most_presets_are_built() -> None:
    dense = [
        name for name in library.models() if not deepspeed.missing_features(library.model(name))
    ]
    assert {"llama3-70b", "gpt3-175b", "mpt-7b", "qwen3-8b", "qwen2-72b"} <= set(dense)


def test_recommend_searches_and_writes(tmp_path: Path) -> None:
    script = tmp_path / "mine.py"
    script.write_text("")
    asked = api.question(
        model="llama3-8b",
        gpus=8,
        framework="deepspeed",
        global_batch_size=64,
        pp=2,
        cluster="h100-sxm",
    )
    answer = api.recommend(asked, out=tmp_path / "plan", script=script, top=2)
    assert answer.search is not None and answer.search.plans
    assert any("no interleaving" in sentence for sentence in answer.search.plans[0].why)
    assert sorted(Path(file).name for file in answer.files) == [
        "ds_config.json",
        "launch.sh",
        "plan.yaml",
    ]
    again = api.emit(tmp_path / "plan" / "plan.yaml", launcher="deepspeed")
    assert set(again.texts) == {"launch.deepspeed.sh", "ds_config.json", "train.py"}
    with pytest.raises(InputError, match="script"):
        api.recommend(asked, script=tmp_path / "none.py")


@pytest.mark.parametrize("name", ["bamba-9b", "lfm2-1.2b", "gemma3n-e4b", "minimax-m3"])
def test_its_script_builds_no_other_layers(name: str) -> None:
    assert "layers of several kinds" in deepspeed.missing_features(library.model(name))
