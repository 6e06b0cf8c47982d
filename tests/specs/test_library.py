"""Documents by name, alias, Hub id and path; single figures replaced; the local GPUs."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest

from planner.errors import InputError
from planner.specs import library
from planner.specs.documents import parse_yaml


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("llama3-70b", "llama3-70b"),
        ("meta-llama/Llama-3.1-70B", "llama3-70b"),
        ("meta-llama/Meta-Llama-3-8B-Instruct", "llama3-8b"),
        ("llama3.1-405b", "llama3-405b"),
        ("LLAMA_2_13B", "llama2-13b"),
        ("meta-llama/Llama-2-7b-hf", "llama2-7b"),
        ("Qwen/Qwen3-0.6B", "qwen3-0.6b"),
        ("Qwen/Qwen2.5-72B-Instruct", "qwen2.5-72b"),
        ("GPT-3-175B", "gpt3-175b"),
        ("gpt-175b", "gpt-175b"),
        ("gpt-39.1b", "gpt-39b"),
        ("microsoft/phi-4", "phi4-14b"),
        ("mistralai/Mistral-7B-v0.1", "mistral-7b"),
    ],
)
def test_models_answer_to_names_aliases_and_hub_ids(asked: str, found: str) -> None:
    assert library.model(asked).name == found


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("h100", "h100-sxm"),
        ("A100_80G_SXM", "a100-80g-sxm"),
        ("a100-pcie", "a100-80g-pcie"),
        ("dgx-h200", "h200-sxm"),
        ("b200", "b200-sxm"),
        ("L40S", "l40s-pcie"),
        ("rtx-4090", "rtx4090-pcie"),
        ("gb200", "gb200-nvl72"),
        ("v100", "v100-16g-sxm2"),
    ],
)
def test_clusters_answer_to_names_and_aliases(asked: str, found: str) -> None:
    assert library.hardware(asked).name == found


def test_a_point_is_not_dropped_from_a_size() -> None:
    """gpt-1.8b is no preset, and must not become gpt-18b."""
    with pytest.raises(InputError, match="did you mean gpt-18b"):
        library.model("gpt-1.8b")


@pytest.mark.parametrize("name", library.clusters())
def test_no_two_profiles_answer_to_one_name(name: str) -> None:
    assert library.hardware(name).name == name
    for alias in library.hardware(name).aliases:
        assert library.hardware(alias).name == name


@pytest.mark.parametrize(
    ("written", "preset"),
    [
        ("Qwen/Qwen3-235B-A22B-Thinking-2507-FP8", "qwen3-235b-a22b"),
        ("unsloth/Meta-Llama-3.1-8B-Instruct-bnb-4bit", "llama3-8b"),
        ("Qwen/Qwen2.5-0.5B-Instruct-GPTQ-Int4", "qwen2.5-0.5b"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", "qwen2.5-32b"),
        ("Qwen/QwQ-32B", "qwen2.5-32b"),
        ("unsloth/gpt-oss-20b-BF16", "gpt-oss-20b"),
        ("moonshotai/Kimi-K2-Instruct-0905", "kimi-k2"),
        ("mlx-community/Qwen3-8B-4bit", "qwen3-8b"),
        ("bartowski/Llama-3.2-3B-Instruct-Q4_K_M", "llama3.2-3b"),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w8a8", "llama3-8b"),
        ("Qwen/QwQ-32B-Preview", "qwen2.5-32b"),
        ("allenai/Olmo-3-7B-Think", "olmo3-7b"),
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "nemotron3-nano-30b-a3b"),
        ("nemotron3-super-120b", "nemotron3-120b-a12b"),
        ("nvidia/Llama-3.1-Nemotron-70B-Instruct-HF", "llama3-70b"),
        ("Qwen/Qwen3.8-27B", "qwen3.5-27b"),
        ("zai-org/GLM-5.1-FP8", "glm5"),
        ("google/gemma-4-26B-A4B-it", "gemma4-26b-a4b"),
        # folders on another machine
        ("/models/meta-llama/Llama-3.1-8B-Instruct", "llama3-8b"),
        ("/mnt/checkpoints/Qwen3-30B-A3B/", "qwen3-30b-a3b"),
        ("~/hub/models--meta-llama--Llama-3.1-8B/snapshots/d04e592bb4f6", "llama3-8b"),
        # torchtitan's models and flavors
        ("llama3 70B", "llama3-70b"),
        ("llama3 3B", "llama3.2-3b"),
        ("deepseek_v3 671B", "deepseek-v3"),
        ("deepseek_v3 16B", "deepseek-v2-lite"),
        ("qwen3_5 35B-A3B", "qwen3.5-35b-a3b"),
        ("kimi_k2_7 moonlight-16B-A3B", "moonlight-16b-a3b"),
        # provider classes of Megatron-Bridge 0.3.1
        ("Qwen3NextModelProvider80B_A3B", "qwen3-next-80b-a3b"),
        ("Qwen25ModelProvider1P5B", "qwen2.5-1.5b"),
        ("Qwen25ModelProvider500M", "qwen2.5-0.5b"),
        ("Qwen3MoEModelProvider235B_A22B", "qwen3-235b-a22b"),
        ("NemotronHModel8BProvider", "nemotron-h-8b"),
        ("NemotronNano9Bv2Provider", "nemotron-nano-9b-v2"),
        ("Nemotron3NanoProvider", "nemotron3-nano-30b-a3b"),
        ("Nemotron3ModelProvider8B", "nemotron3-8b"),
        ("Llama4Experts16ModelProvider", "llama4-scout"),
        ("GPTOSSProvider120B", "gpt-oss-120b"),
        ("GLM45AirModelProvider106B", "glm4.5-air-106b-a12b"),
        ("megatron.bridge.models.DeepSeekV2LiteModelProvider", "deepseek-v2-lite"),
    ],
)
def test_names_that_people_write(written: str, preset: str) -> None:
    assert library.model(written).name == preset


def test_a_version_with_another_vocabulary_is_not_taken_for_its_sibling() -> None:
    """Mistral-7B-v0.3 has 32,768 rows, v0.1 32,000; Granite 3.3 has 7 more than 3.0."""
    assert library.model("mistralai/Mistral-7B-Instruct-v0.3").vocab_size == 32_768
    assert library.model("mistralai/Mistral-7B-Instruct-v0.1").vocab_size == 32_000
    with pytest.raises(InputError, match=r"did you mean granite3.0-8b"):
        library.model("ibm-granite/granite-3.3-8b-instruct")


@pytest.mark.parametrize(
    ("asked", "near"),
    [
        ("NousResearch/Hermes-3-Llama-3.1-8B", "llama3-8b"),
        ("Qwen/Qwen2.5-VL-7B-Instruct", "qwen2.5-7b"),
        ("Qwen4ModelProvider8B", "qwen"),
        ("./checkpoints/lama3-70b.yaml", "there is no"),
    ],
)
def test_what_only_resembles_a_preset_is_not_taken_for_it(asked: str, near: str) -> None:
    with pytest.raises(InputError, match=near):
        library.model(asked)


@pytest.mark.parametrize("name", library.models())
def test_no_two_models_answer_to_one_name(name: str) -> None:
    assert library.model(name).name == name
    for alias in library.model(name).aliases:
        assert library.model(alias).name == name


@pytest.mark.parametrize("name", library.stacks())
def test_stacks_are_called_as_their_files(name: str) -> None:
    assert library.stack(name).name == name


@pytest.mark.parametrize(
    ("verb", "asked", "near"),
    [
        (library.model, "lama3-70b", "llama3-70b"),
        (library.hardware, "h100-smx", "h100-sxm"),
        (library.stack, "megatron-2020", "megatron-2022"),
    ],
)
def test_unknown_names_answer_with_the_nearest(verb, asked: str, near: str) -> None:
    with pytest.raises(InputError, match=near):
        verb(asked)


def test_loading_is_fast() -> None:
    """One model, one profile, one stack by name: under 30 ms of this process's own time (the
    machine may be busy), the best of three.
    """
    library.model("llama3-8b")

    def seconds() -> float:
        start = time.process_time()
        (
            library.model("meta-llama/Llama-3.1-70B"),
            library.hardware("h100-sxm"),
            library.stack("megatron"),
        )
        return time.process_time() - start

    assert min(seconds() for _ in range(3)) < 0.03


def test_a_document_of_ones_own(tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text(
        (library.profiles_folder() / "h100-sxm.yaml")
        .read_text()
        .replace("name: h100-sxm", "name: mine")
        .replace("nics: 8", "nics: 4")
    )
    assert library.hardware(str(mine)).fabric.nics == 4


def test_a_local_folder_wins_over_the_hub_id_it_looks_like(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "meta-llama" / "Llama-3.1-70B"
    folder.mkdir(parents=True)
    config = (Path(__file__).parent.parent / "data" / "configs" / "Qwen--Qwen3-8B.json").read_text()
    (folder / "config.json").write_text(config)
    monkeypatch.chdir(tmp_path)
    assert library.model("meta-llama/Llama-3.1-70B").hidden_size == 4096
    (tmp_path / "llama3-70b").mkdir()
    assert (
        library.model("llama3-70b").hidden_size == 8192
    )  # an output folder of that name is no model


def test_single_figures_are_replaced_and_nothing_else() -> None:
    before = library.hardware("h100-sxm")
    after = library.hardware(
        "h100-sxm",
        [
            "fabric.nic_gbytes_per_s=12.5",
            "node.domain.efficiency.8=0.5",
            "gpu.peak_tflops.bf16=1e3",
            "fabric.nics=4",
        ],
    )
    assert (
        after.fabric.nic_gbytes_per_s,
        after.node.domain.efficiency[8],
        after.gpu.peak_tflops["bf16"],
        after.fabric.nics,
    ) == (
        12.5,
        0.5,
        1000,
        4,
    )
    assert after.nic_bytes_per_s_per_gpu == 4 * 12.5e9 / 8
    assert after.kernels == before.kernels and after.node.host == before.node.host


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("fabric.nic_gbytes_per_s", "FIELD=VALUE"),
        ("fabric.nic_gbyte_per_s=5", "did you mean fabric.nic_gbytes_per_s"),
        ("fabric=5", "did you mean"),
        ("fabric.nics=2.5", "fabric.nics must be a whole number, but got 2.5"),
        ("fabric.nics=-1", "fabric.nics must be above 0, but got -1"),
        ("fabric.nics=true", "fabric.nics must be a whole number"),
        ("gpu.hbm_gbytes_per_s=.nan", "finite"),
        ("gpu.hbm_gbytes_per_s=.inf", "finite"),
        ("gpu.hbm_gbytes_per_s=fast", "must be a number, but got the text 'fast'"),
        ("gpu.hbm_gbytes_per_s=", "must be a number, but got nothing"),
        ("gpu.hbm_gbytes_per_s=[1", "one plain value"),
        ("kernels.memory_efficiency_share=80", "must be at most 2"),
        ("=3", "FIELD=VALUE"),
        ("gpu.usable_gib=500", "usable_gib must be at most gpu.memory_gib"),
        ("node.domain_gpus=3", "must divide one another"),
    ],
)
def test_wrong_overrides_say_which_figure_and_why(override: str, says: str) -> None:
    with pytest.raises(InputError) as fault:
        library.hardware("h100-sxm", [override])
    assert says in str(fault.value)


def _smi(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("echo 'NVIDIA H100 80GB HBM3'; echo 'NVIDIA H100 80GB HBM3'", "h100-sxm"),
        ("echo 'NVIDIA A100-SXM4-80GB'", "a100-80g-sxm"),
        ("echo 'NVIDIA A100 80GB PCIe'", "a100-80g-pcie"),
        ("echo 'NVIDIA GeForce RTX 4090'", "rtx4090-pcie"),
        ("echo 'Tesla V100-SXM2-32GB'", "v100-32g-sxm2"),
        ("echo 'NVIDIA H200'", "h200-sxm"),
        ("echo 'NVIDIA L40S'", "l40s-pcie"),
        ("echo 'NVIDIA B200'", "b200-sxm"),
        ("echo 'Quadro K620'", None),
        ("echo 'NVIDIA H200'; echo 'NVIDIA L40S'", None),
        ("echo 'no driver'; exit 9", None),
        ("true", None),
    ],
)
def test_local_gpus_are_recognised_by_what_nvidia_smi_prints(
    script: str, found: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _smi(tmp_path, script, monkeypatch)
    assert library.local_cluster() == found


def test_no_local_gpus_without_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert library.local_cluster() is None


def test_figures_in_exponent_form_are_numbers() -> None:
    """YAML 1.1, which most parsers speak, takes 1e-3 for text."""
    assert parse_yaml("[1e-3, 2E5, -1.5e+2, 7, 0.5]") == [0.001, 200000.0, -150.0, 7, 0.5]
