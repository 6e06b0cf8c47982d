"""Lines of runs as their frameworks print them (some pasted by users), and what they say; sums by
hand.
"""

from __future__ import annotations

import math
import time

import pytest

from planner.accuracy.csvfile import read as read_rows
from planner.errors import InputError
from planner.intake.logs import csv_row, read_log
from planner.intake.logs.lines import Memory, Step, parse
from planner.units import GIB, MIB

MEGATRON = (
    " [2024-04-06 03:02:12.{0:06d}] iteration {0:8d}/     100 | consumed samples:         9088 |"
    " elapsed time per iteration (ms): {1} | throughput per GPU (TFLOP/s/GPU): 243.6 | learning"
    " rate: 1.420000E-05 | global batch size:   128 | lm loss: 1.818812E+00 | loss scale: 1.0 |"
    " grad norm: 1.300 | number of skipped iterations:   0 | number of nan iterations:   0 |"
)


def log(tmp_path, text: str) -> read_log.Log:
    (tmp_path / "train.log").write_text(text)
    return read_log.read(tmp_path / "train.log")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            MEGATRON.format(71, 5361.6),
            Step("megatron", 71, 5.3616, 243.6, global_batch_size=128, loss=1.818812),
        ),
        (
            (
                " iteration      122/  250000 | consumed samples:       124928 | elapsed time per"
                " iteration (ms): 86545.2 | learning rate: 9.150E-06 | global batch size:  1024 |"
                " lm loss: 2.504220E+00 | loss scale: 1.0 | number of skipped iterations:   2 |"
                " number of nan iterations:   1 |"
            ),
            Step("megatron", 122, 86.5452, global_batch_size=1024, loss=2.50422, nan=1, skipped=2),
        ),
        (
            (
                " iteration       5/  10 | consumed samples: 20 | consumed tokens: 40960 | elapsed"
                " time per iteration (ms): 2000.0 | learning rate: 1E-4 | global batch size:     4"
                " | lm loss: 9.0E+00 | actual seqlen:  2048 | number of skipped iterations:   0 |"
                " number of nan iterations:   0 | samples per second: 2.000 | tokens per gpu per"
                " second (tgs): 512.000 | TFLOPs: 31.50 |"
            ),
            Step("megatron-deepspeed", 5, 2.0, 31.5, 512.0, 2.0, 4, 9.0),
        ),
        (
            (
                " samples/sec: 18.123 | iteration     100/   32000 | elapsed time per iteration"
                " (ms): 5517.9 | learning rate: 2E-05 | approx flops per GPU: 45.2TFLOPS | lm_loss:"
                " 7.1E+00 | number of skipped iterations:   0 | number of nan iterations:   0 |"
            ),
            Step("neox", 100, 5.5179, 45.2, samples_per_s=18.123, loss=7.1),
        ),
        (
            "Step Time : 1.59s GPU utilization: 704.2MODEL_TFLOP/s/GPU",
            Step("bridge", step_s=1.59, tflops_per_gpu=704.2),
        ),
        (
            "steps: 30 loss: 1.0450 iter time (s): 0.027 samples/sec: 295.774",
            Step("deepspeed", 30, 0.027, samples_per_s=295.774, loss=1.045),
        ),
        (
            (
                "[2023] [INFO] [timer.py:199:stop] epoch=0/micro_step=6/global_step=3,"
                " RunningAvgSamplesPerSec=80.5, CurrSamplesPerSec=83.25, MemAllocated=0.5GB,"
                " MaxMemAllocated=9.25GB"
            ),
            Step("deepspeed", 3, samples_per_s=83.25, allocated_bytes=9.25 * GIB),
        ),
        (
            (
                "[2021-11-26 03:07:16,494] [INFO] [timer.py:181:stop] 0/2000,"
                " SamplesPerSec=9.526738918021234"
            ),
            Step("deepspeed", samples_per_s=9.526738918021234),
        ),
        (
            (
                "Training epoch 0, iteration 120/149 | lr: 3e-05 | consumed_samples: 121 |"
                " global_batch_size: 8 | global_step: 120 | reduced_train_loss: 1.233 |"
                " train_step_timing in s: 0.03146 | val_loss: 4.106"
            ),
            Step("nemo", 120, 0.03146, global_batch_size=8, loss=1.233),
        ),
        (
            (
                "Epoch 0: :   3%|3| 9000/301500 [1:42:42<55:37:46, v_num=0-56,"
                " reduced_train_loss=nan.0, global_step=9e+3, consumed_samples=6.3e+5,"
                " train_step_timing in s=0.615]"
            ),
            Step("nemo", 9000, 0.615, loss=math.nan, nan=1),
        ),
        (
            (
                "[rank0]:[titan] 2026-02-24 19:46:17,508 - root - INFO - \x1b[31mstep:  4 "
                " \x1b[32mloss:  7.62585  \x1b[38;5;180mgrad_norm: 26.6250  \x1b[36mmemory:"
                " 66.91GiB(37.51%)  \x1b[34mtps: 10,050  \x1b[36mtflops: 314.71  \x1b[35mmfu:"
                " 13.99%\x1b[39m"
            ),
            Step(
                "torchtitan",
                4,
                None,
                314.71,
                10050.0,
                loss=7.62585,
                mfu=0.1399,
                reserved_bytes=66.91 * GIB,
            ),
        ),
        (
            (
                "10/17/2025 16:31:56 [INFO|DP=0|PP=0|TP=0]: iteration: 327281 / 378950 |"
                " consumed_tokens: 85.8G | elapsed_time_per_iteration_ms: 11.5K | tokens_per_sec:"
                " 22.8K | tokens_per_sec_per_gpu: 11.4K | global_batch_size: 64 | lm_loss: 2.38 |"
                " lr: 1e-05 | model_tflops_per_gpu: 38.3 | hardware_tflops_per_gpu: 38.3"
            ),
            Step("nanotron", 327281, 11.5, 38.3, 11400.0, global_batch_size=64, loss=2.38),
        ),
        (
            (
                "{'train_runtime': 100.0, 'train_samples_per_second': 16.0,"
                " 'train_steps_per_second': 0.5, 'train_loss': 1.25, 'epoch': 1.0}"
            ),
            Step("trainer", None, 2.0, samples_per_s=16.0, loss=1.25),
        ),
        (
            (
                "[Rank 3] (after 2 iterations) memory (MB) | allocated: 10.0 | max allocated:"
                " 20480.00 | reserved: 1 | max reserved: 30720.00 | total device memory used:"
                " 40960.00"
            ),
            Memory(3, 20480 * MIB, 30720 * MIB, 40960 * MIB),
        ),
        (
            (
                "after 5 iterations memory (MB) | allocated: 10250.5 | max allocated: 12606.0 |"
                " reserved: 17482.0 | max reserved: 17482.0"
            ),
            Memory(None, 12606 * MIB, 17482 * MIB),
        ),
        (
            "MA 2.5 GB         Max_MA 5.0 GB         CA 6.25 GB         Max_CA 7 GB ",
            Memory(None, 5 * GIB, 7 * GIB),
        ),
        ("a line that tells nothing: step 3", None),
    ],
)
def test_a_line(line, said):
    found = parse(line)
    if isinstance(said, Step) and said.loss is not None and math.isnan(said.loss):
        assert math.isnan(found.loss) and (found.number, found.step_s, found.nan) == (
            said.number,
            said.step_s,
            said.nan,
        )
    else:
        assert found == (pytest.approx(said) if isinstance(said, float) else said)


ARGUMENTS = """\
using world size: 16, data-parallel size: 2
0: ------------------------ arguments ------------------------
0:   add_bias_linear ................................. False
0:   attention_backend ............................... AttnBackend.flash
0:   bf16 ............................................ True
0:   context_parallel_size ........................... 1
0:   cp_comm_type .................................... ['p2p']
0:   fp8 ............................................. None
0:   global_batch_size ............................... 128
0:   group_query_attention ........................... True
0:   hidden_size ..................................... 4096
0:   micro_batch_size ................................ 1
0:   num_attention_heads ............................. 32
0:   num_layers ...................................... 32
0:   num_query_groups ................................ 8
0:   params_dtype .................................... torch.bfloat16
0:   pipeline_model_parallel_size .................... 4
0:   recompute_granularity ........................... None
0:   seq_length ...................................... 8192
0:   sequence_parallel ............................... True
0:   swiglu .......................................... True
0:   tensor_model_parallel_size ...................... 2
0:   untie_embeddings_and_output_weights ............. True
0:   use_distributed_optimizer ....................... True
0:   virtual_pipeline_model_parallel_size ............ 2
0:   world_size ...................................... 16
0: -------------------- end of arguments ---------------------
"""


def test_a_megatron_log_is_a_reading_and_a_measurement(tmp_path):
    times = [30000.0, 9000.0, 5100.0, *[5000.0 + number for number in range(10)]]
    lines = [MEGATRON.format(number + 1, ms) for number, ms in enumerate(times)]
    memory = [
        f"[Rank {rank}] (after 2 iterations) memory (MB) | allocated: 1.0 | max allocated:"
        f" {10240 * (rank + 1)}.0 | reserved: 1.0 | max reserved: {20480 + rank}.0"
        for rank in range(2)
    ]
    found = log(tmp_path, "\n".join([ARGUMENTS, *lines[:2], *memory, *lines[2:]]))
    assert (found.style, found.steps, found.ranks, found.nan_steps) == ("megatron", 13, 2, 0)
    # the first iteration and three more are warm-up; the rest are 5.001 to 5.009 s
    assert (found.timed, found.step_s) == (9, pytest.approx(5.005))
    assert 5.001 <= found.step_s_low < found.step_s < found.step_s_high <= 5.009
    assert (found.allocated_bytes, found.reserved_bytes) == (20480 * MIB, 20481 * MIB)
    plain = {name: one.value for name, one in found.reading.values.items()}
    expected = {
        "tensor_model_parallel_size": 2,
        "pipeline_model_parallel_size": 4,
        "virtual_pipeline_model_parallel_size": 2,
        "num_layers": 32,
        "hidden_size": 4096,
        "num_query_groups": 8,
        "seq_length": 8192,
        "global_batch_size": 128,
        "launch.gpus": 16,
        "bf16": True,
        "cp_comm_type": ["p2p"],
        "attention_backend": "flash",
        "add_bias_linear": False,
    }
    assert {name: plain.get(name) for name in expected} == expected
    assert "recompute_granularity" not in plain and found.reading.kind == "megatron"


def test_a_log_is_a_row_that_validate_reads(tmp_path):
    found = log(
        tmp_path, ARGUMENTS + "\n".join(MEGATRON.format(number, 5000.0) for number in range(1, 12))
    )
    (tmp_path / "row.csv").write_text(
        csv_row.text([csv_row.row(found, model="llama3-8b", hardware="h100-sxm")])
    )
    row = read_rows(tmp_path / "row.csv").iloc[0]
    stated = {
        "model": "llama3-8b",
        "hardware": "h100-sxm",
        "gpus": 16,
        "tp": 2,
        "pp": 4,
        "vpp": 2,
        "seq": 8192,
        "gbs_sequences": 128,
        "mbs": 1,
        "layers": 32,
        "hidden": 4096,
        "heads": 32,
        "kv_heads": 8,
        "sp": 1,
        "zero": 1,
        "precision": "bf16",
        "gated_mlp": 1,
        "tied_embed": 0,
        "step_time_s": 5.0,
    }
    assert {name: row[name] for name in stated} == stated


NEOX = """\
-------------------- arguments --------------------
  hidden_size ..................... 2048..........................updated
  model_parallel_size ............. 2.............................updated
  num_layers ...................... 24............................updated
  pipe_parallel_size .............. 4.............................updated
  train_micro_batch_size_per_gpu .. 4.............................updated
  norm ............................ layernorm....................default
  no_weight_tying ................. True..........................updated
---------------- end of arguments ----------------
"""


def test_a_neox_log(tmp_path):
    reading = log(tmp_path, NEOX).reading
    plain = {name: one.value for name, one in reading.values.items()}
    assert (reading.kind, plain["normalization"]) == ("neox", "LayerNorm")
    assert (plain["pipeline_model_parallel_size"], plain["tensor_model_parallel_size"]) == (4, 2)
    assert (
        plain["deepspeed.train_micro_batch_size_per_gpu"],
        plain["untie_embeddings_and_output_weights"],
    ) == (4, True)
    assert (
        reading.values["normalization"].origin == "default"
        and reading.values["num_layers"].origin == "flag"
    )


def test_deepspeed_prints_its_configuration(tmp_path):
    text = """[2024-01-01 17:25:57,902] [INFO] [config.py:988:print]   gradient_accumulation_steps \
.. 2
[2024-01-01 17:25:57,902] [INFO] [config.py:974:print_user_config]   json = {
    "train_batch_size": 64,
    "train_micro_batch_size_per_gpu": 4,
    "zero_optimization": {
        "stage": 3
    }
}
""" + "\n".join(
        f"epoch=0/micro_step={step}/global_step={step}, RunningAvgSamplesPerSec=30.0,"
        " CurrSamplesPerSec=32.0, MemAllocated=1.0GB, MaxMemAllocated=2.0GB"
        for step in range(2, 12)
    )
    found = log(tmp_path, text)
    assert (
        found.reading.kind == "deepspeed"
        and found.reading.values["deepspeed.zero_optimization.stage"].value == 3
    )
    # 64 samples a step at 32 a second
    assert (found.step_s, found.global_batch_size, found.allocated_bytes) == (2.0, 64, 2 * GIB)


def test_memory_that_ran_out_and_a_second_run(tmp_path):
    oom = (
        "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 786.00 MiB. GPU 3"
        " has a total capacity of 79.11 GiB."
    )
    found = log(tmp_path, f"{ARGUMENTS}{oom}\nTraceback: to avoid running out of memory set x\n")
    assert [(one.requested_bytes, one.rank) for one in found.ooms] == [(786 * MIB, 3)]
    second = ARGUMENTS.replace(
        "num_layers ...................................... 32", "num_layers ... 16"
    )
    again = log(
        tmp_path,
        f"{ARGUMENTS}{oom}\n{second}"
        + "\n".join(MEGATRON.format(number, 900.0) for number in range(1, 6)),
    )
    assert (
        again.ooms == ()
        and again.reading.values["num_layers"].value == 16
        and again.step_s == pytest.approx(0.9)
    )
    assert again.notes == ("2 runs in one log: the last one's arguments count",)


def test_every_rank_of_torchtitan_prints_each_step_once(tmp_path):
    line = (
        "[rank{0}]:[titan] - root - INFO - step: {1:2}  loss:  7.6  grad_norm: 2.6  memory:"
        " 60.0GiB(75.00%)  tps: {2}  tflops: 300.00  mfu: 30.00%"
    )
    found = log(
        tmp_path,
        "\n".join(
            line.format(rank, step, 1000 + step) for step in range(1, 11) for rank in range(8)
        ),
    )
    assert (found.steps, found.tokens_per_s_per_gpu, found.model_tflops_per_gpu, found.step_s) == (
        10,
        1007.5,
        300.0,
        None,
    )
    assert found.reserved_bytes == 60 * GIB and found.mfu == pytest.approx(0.3)


def test_what_is_a_log(tmp_path):
    assert read_log.is_log(ARGUMENTS) and read_log.is_log("x\n" + MEGATRON.format(3, 5.0))
    assert not read_log.is_log('{"a": 1}') and not read_log.is_log(
        "#!/bin/bash\n# CUDA out of memory. Tried to allocate 2 GiB\n"
    )
    with pytest.raises(InputError, match="no line of theirs"):
        read_log.checked(log(tmp_path, "hello\n"))
    with pytest.raises(InputError, match="can be read"):
        read_log.read(tmp_path / "none.log")


def test_blocks_over_the_end_of_a_piece_and_long_lines(tmp_path, monkeypatch):
    monkeypatch.setattr("planner.intake.logs.sampling.CHUNK", 997)
    found = log(
        tmp_path,
        "x" * 5000
        + "\n"
        + ARGUMENTS
        + "\n".join(MEGATRON.format(number, 100.0 * number) for number in range(1, 41)),
    )
    assert found.steps == 40 and found.reading.values["world_size"].value == 16
    # iterations 5 to 40: the first, which is not counted, and three of warm-up are left out
    assert found.step_s == pytest.approx(2.25)


def test_twenty_megabytes_are_quick_and_take_no_memory_of_their_size(tmp_path):
    (tmp_path / "big.log").write_text(
        (
            "a line of no meaning that some library prints, again and again and again\n" * 2000
            + MEGATRON.format(7, 5.0)
            + "\r"
        )
        * 140
    )
    start = time.process_time()
    assert read_log.read(tmp_path / "big.log").step_s == 0.005
    assert time.process_time() - start < 5
