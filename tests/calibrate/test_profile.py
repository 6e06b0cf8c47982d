"""A calibration: rates that made the measurements come back out of them; a real run on two
processes; bad input.
"""

from __future__ import annotations

import json
from math import log2
from pathlib import Path
from typing import Any

import pytest
import yaml

from planner.calibrate import calibrate as module
from planner.calibrate.calibrate import calibrate
from planner.calibrate.profile import profile
from planner.cost.layer import kernels
from planner.cost.network import collectives
from planner.errors import InputError
from planner.specs import library
from planner.specs.hardware import HardwareProfile

pytestmark = pytest.mark.process


PEAK, EFFICIENCY, K_HALF, M_HALF, N_HALF, FIXED_US = 0.5e12, 0.8, 60.0, 40.0, 20.0, 30.0
BANDWIDTH, BASE_US, HOP_US = 2e9, 400.0, 90.0
MESSAGES = 5e9


def made(**machine: Any) -> dict[str, Any]:
    """What a worker would report of a machine with those rates, written out by hand from the forms
    of the cost model.
    """
    gemm = [
        {
            "precision": "fp32",
            "m": m,
            "n": n,
            "k": k,
            "seconds": (
                FIXED_US * 1e-6
                + 2
                * m
                * n
                * k
                / (PEAK * EFFICIENCY)
                * (1 + K_HALF / k)
                * (1 + M_HALF / m)
                * (1 + N_HALF / n)
            ),
        }
        for m in (128, 512, 2048)
        for n in (64, 256, 1024)
        for k in (64, 256, 1024)
    ]
    heads = [(b, a, s, d) for b in (1, 4) for a in (2, 8) for s in (128, 512) for d in (32, 64)]
    forward = {
        size: (
            20e-6
            + 2 * size[0] * size[1] * size[2] ** 2 * size[3] / (PEAK * 0.5) * (1 + 100 / size[2])
        )
        for size in heads
    }
    attention = [
        {
            "batch": b,
            "heads": a,
            "seq": s,
            "width": d,
            "seconds": forward[b, a, s, d],
            "backward_s": 2.5 * forward[b, a, s, d] / 0.8,
        }
        for b, a, s, d in heads
    ]
    turns = {"all_gather": 1, "reduce_scatter": 1, "all_reduce": 2}
    links = [
        {
            "op": op,
            "ranks": n,
            "nodes": 1,
            "bytes": size,
            "seconds": (
                (BASE_US + turn * (n - 1) * HOP_US) * 1e-6 + turn * size * (n - 1) / n / BANDWIDTH
            ),
        }
        for op, turn in turns.items()
        for n in (2, 4)
        for size in (2**12, 2**16, 2**20, 2**24)
    ]
    links += [
        {
            "op": "send_recv",
            "ranks": 2,
            "nodes": 1,
            "bytes": size,
            "seconds": 300e-6 + size / MESSAGES,
        }
        for size in (2**12, 2**18, 2**24)
    ]
    here = {
        "host": "box",
        "name": "Some Processor 9000",
        "memory_gib": 32.0,
        "usable_gib": 32.0,
        "compute_capability": 0.0,
        "devices": 4,
        "cores": 4,
        "versions": {"torch": "2.13"},
    } | machine
    return {
        "machine": here,
        "ranks": 4,
        "ranks_per_node": 4,
        "launch_us": 10.0,
        "gemm": gemm,
        "attention": attention,
        "memory": [{"bytes": size, "seconds": size / 10e9} for size in (2**20, 2**22, 2**24)],
        "collectives": links,
    }


def test_the_rates_that_made_the_measurements_come_back() -> None:
    hardware = HardwareProfile.model_validate(profile(made(), None, "2026-01-01").document)
    for m, n, k in ((300, 700, 900), (128, 64, 2048)):
        wanted = FIXED_US * 1e-6 + 2 * m * n * k / (PEAK * EFFICIENCY) * (1 + K_HALF / k) * (
            1 + M_HALF / m
        ) * (1 + N_HALF / n)
        assert kernels.gemm_s(hardware, "fp32", m, n, k) == pytest.approx(wanted, rel=0.02)
    assert kernels.memory_s(hardware, 10e9) == pytest.approx(1.0, rel=1e-3)
    assert hardware.kernels.attention.backward_share == pytest.approx(0.8)
    assert hardware.node.launch_factor == pytest.approx(2.0)
    group = collectives.group(hardware, 1, 4)
    wanted = (BASE_US + 3 * HOP_US) * 1e-6 + 1e8 * 3 / 4 / BANDWIDTH
    assert float(collectives.gather_s(hardware, group, 1e8)) == pytest.approx(wanted, rel=0.02)


def test_a_message_has_a_rate_of_its_own() -> None:
    """Two processes under gloo: a collective moves half of its bytes in twice the time that a
    message takes for all of them.
    """
    hardware = HardwareProfile.model_validate(profile(made(), None, "2026-01-01").document)
    assert float(
        collectives.send_s(hardware, 1, 2, 1e8)
    ) - hardware.node.domain.base_s == pytest.approx(1e8 / MESSAGES, rel=0.01)


def test_every_rate_says_where_and_when_it_was_measured() -> None:
    document = profile(made(), None, "2026-01-01").document
    sources = [
        document["gpu"]["source"],
        document["kernels"]["gemm"]["fp32"]["source"],
        document["node"]["domain"]["source"],
    ]
    assert all(
        "box" in source and "2026-01-01" in source and "torch 2.13" in source for source in sources
    )
    assert "assumed" in document["gpu"]["source"] and "assumed" in document["fabric"]["source"]


def test_a_known_gpu_gets_an_overlay_of_its_profile() -> None:
    known = library.hardware("h100-sxm")
    rows = made(name="NVIDIA H100 80GB HBM3", compute_capability=9.0)
    rows["gemm"] = [row | {"precision": "bf16"} for row in rows["gemm"]]
    document = profile(rows, known, "2026-01-01").document
    assert document["extends"] == "h100-sxm" and "gpu" not in document and "fabric" not in document
    assert document["kernels"]["gemm"].keys() == {"bf16"}
    assert document["kernels"]["memory_efficiency_share"] == pytest.approx(10e9 / 3350e9, rel=1e-3)
    assert (
        document["node"]["domain"]["efficiency"][8] == known.node.domain.efficiency[8]
    )  # not measured here: stays


def test_links_over_nodes_come_from_gathers_over_nodes() -> None:
    known = library.hardware("h100-sxm")  # 8 NICs of 50 GB/s and 8 GPUs: 50 GB/s a GPU
    rows = made(name="H100", compute_capability=9.0) | {"ranks": 8}
    rows["gemm"] = [row | {"precision": "bf16"} for row in rows["gemm"]]
    wire = 0.5 * 4 * 50e9
    rows["collectives"] += [
        {
            "op": "all_gather",
            "ranks": 8,
            "nodes": 2,
            "bytes": size,
            "seconds": 30e-6 + size * 7 / 8 / wire,
        }
        for size in (2**10, 2**34)
    ]
    fabric = profile(rows, known, "2026-01-01").document["fabric"]
    assert fabric["efficiency_share"] == pytest.approx(0.5, rel=0.01) and fabric[
        "base_us"
    ] == pytest.approx(30, rel=0.01)


SMALL = {
    "device": "cpu",
    "gemm": [
        [64, 64, 64],
        [128, 128, 128],
        [256, 256, 256],
        [256, 64, 256],
        [64, 256, 64],
        [128, 256, 512],
    ],
    "attention": [
        [1, 2, 64, 32],
        [2, 2, 128, 32],
        [1, 4, 128, 32],
        [2, 4, 256, 32],
        [1, 2, 256, 32],
    ],
    "memory": [2**20, 2**22],
    "collectives": [2**12, 2**20],
    "operations": 100,
    "seconds": 0.005,
}


def test_two_processes_measure_and_the_profile_plans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.sizes, "request", lambda device: SMALL)
    said: list[str] = []
    answer = calibrate(
        tmp_path / "here.yaml", device="cpu", devices=2, limit_s=120, tell=said.append
    )
    assert answer.outcome.state == "done", answer.outcome
    assert said == [
        f"measuring {part}" for part in ("launch_us", "memory", "gemm", "attention", "collectives")
    ]
    assert (
        answer.measurements == 2 + 2 * 6 + 5 + 2 * 4 + 2
    )  # sizes; products in fp32 and bf16; four collectives and a message
    read = library.hardware(str(tmp_path / "here.yaml"))
    assert read == answer.profile and read.node.gpus == 2 and read.max_gpus == 2
    assert 1e9 < kernels.peak_flops_per_s(read, "fp32") < 1e14 and log2(read.gpu.memory_gib) > -1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"out": "here.txt"}, "YAML"),
        ({"device": "tpu"}, "cpu or cuda"),
        ({"devices": 0, "device": "cpu"}, "from 1 to"),
        ({"measured": "no.json"}, "no.json"),
        ({"out": "."}, "YAML file, but got '.'; try profile.yaml"),
        ({"out": ""}, "YAML file, but got ''; try profile.yaml"),
        ({"out": "/"}, "YAML file, but got '/'; try /profile.yaml"),
        ({"out": ".."}, "YAML file, but got '..'; try ../profile.yaml"),
        ({"out": "a\0.yaml"}, "must be a file to write"),
        ({"limit_s": 0, "device": "cpu"}, "limit-s must be above 0"),
        ({"limit_s": float("inf"), "device": "cpu"}, "limit-s must be above 0"),
    ],
)
def test_faulty_words_are_one_message(tmp_path: Path, words: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        calibrate(**{"out": tmp_path / "x.yaml", **words})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[" * 5000, "it nests too deeply"),
        ("[]", "must hold fields"),
        ('{"ranks": 1' + "0" * 5000 + "}", "more than 4,300 digits"),
        ("{}", "it lacks machine, ranks"),
        (json.dumps(dict.fromkeys(module.KEYS, 1)), "its figures are none"),
        (json.dumps(made() | {"gemm": [{}]}), "its figures are none"),
    ],
    ids=["deep", "list", "digits", "empty", "numbers", "rows"],
)
def test_a_file_that_is_no_result_is_one_message(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "result.json").write_text(text)
    with pytest.raises(InputError, match=says):
        calibrate(tmp_path / "x.yaml", measured=tmp_path / "result.json")
    assert not (tmp_path / "x.yaml").exists()


def test_a_result_of_torchrun_is_read(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text(json.dumps(made()))
    answer = calibrate(tmp_path / "new" / "here.yaml", measured=tmp_path / "result.json")
    assert (
        yaml.safe_load((tmp_path / "new" / "here.yaml").read_text())["name"] == "cpu-measured"
        and answer.fit_error["gemm fp32"] < 0.01
    )
