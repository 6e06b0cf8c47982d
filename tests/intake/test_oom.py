"""Messages of several torch versions and vendors, as users pasted them; sizes by hand
arithmetic.
"""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.intake.logs.oom import parse

GIB, MIB = 2**30, 2**20


def test_the_request_of_a_flat_shard_lies_in_its_printed_interval():
    oom = parse("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 16.83 GiB ...")
    assert oom.requested_bytes == 16.83 * GIB
    low, high = oom.ranges["requested_bytes"]
    assert (low, high) == (pytest.approx(16.825 * GIB), pytest.approx(16.835 * GIB))
    assert low <= 4 * 72.285e9 / 16 <= high


def test_torch_1_0():
    oom = parse(
        "RuntimeError: CUDA out of memory. Tried to allocate 12.50 MiB (GPU 3; 10.92 GiB total"
        " capacity; 8.57 MiB already allocated; 9.28 GiB free; 4.68 MiB cached)"
    )
    assert (oom.requested_bytes, oom.total_bytes) == (12.5 * MIB, 10.92 * GIB)
    assert (oom.allocated_bytes, oom.free_bytes, oom.reserved_bytes) == (
        8.57 * MIB,
        9.28 * GIB,
        4.68 * MIB,
    )
    assert (oom.device, oom.vendor, oom.place) == (3, "CUDA", "device")


def test_torch_1_13_with_a_limit():
    oom = parse(
        "[rank5]: CUDA out of memory. Tried to allocate 786.00 MiB (GPU 0; 31.75 GiB total"
        " capacity; 28.82 GiB already allocated; 0 bytes free; 30.00 GiB allowed; 30.36 GiB"
        " reserved in total by PyTorch) If reserved memory is >> allocated memory try setting"
        " max_split_size_mb"
    )
    assert oom.requested_bytes == 1024 * 4 * 50304 * 4 == 786 * MIB
    assert (oom.free_bytes, oom.ranges["free_bytes"]) == (0, (0, 0))
    assert (oom.allowed_bytes, oom.reserved_bytes, oom.rank) == (30 * GIB, 30.36 * GIB, 5)


@pytest.mark.parametrize("capacity", ["capacty", "capacity"])
def test_torch_2_counts_what_is_reserved_in_two_parts(capacity):
    oom = parse(
        f"CUDA out of memory. Tried to allocate 22.78 GiB. GPU 1 has a total {capacity} of 31.47"
        " GiB of which 12.73 GiB is free. Including non-PyTorch memory, this process has 18.73 GiB"
        " memory in use. Of the allocated memory 9.08 GiB is allocated by PyTorch, and 9.35 GiB is"
        " reserved by PyTorch but unallocated. If reserved but unallocated memory is large try"
        " setting expandable_segments"
    )
    assert (oom.total_bytes, oom.free_bytes, oom.process_bytes) == (
        31.47 * GIB,
        12.73 * GIB,
        18.73 * GIB,
    )
    assert oom.reserved_bytes == pytest.approx(18.43 * GIB)
    assert oom.ranges["reserved_bytes"] == (pytest.approx(18.42 * GIB), pytest.approx(18.44 * GIB))


def test_graph_pools_and_other_processes():
    oom = parse(
        "CUDA out of memory. Tried to allocate 344.00 MiB. GPU 0 has a total capacity of 139.81 GiB"
        " of which 2.00 MiB is free. Process 3131906 has 99.80 GiB memory in use. Process 17 has"
        " 1.50 GiB memory in use. Of the allocated memory 137.97 GiB is allocated by PyTorch, with"
        " 1.25 GiB allocated in private pools (e.g., CUDA Graphs), and 704.56 MiB is reserved by"
        " PyTorch but unallocated."
    )
    assert oom.others_bytes == {3131906: 99.8 * GIB, 17: 1.5 * GIB}
    assert (oom.private_pools_bytes, oom.process_bytes) == (1.25 * GIB, None)


def test_hip_and_npu():
    hip = parse(
        "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 76.00 MiB.\n"
        "GPU 1 has a total capacity of 287.98 GiB of which 0 bytes is free.\n"
        "Of the allocated memory 200.12 GiB is allocated by PyTorch"
    )
    assert (hip.vendor, hip.device, hip.requested_bytes, hip.allocated_bytes) == (
        "HIP",
        1,
        76 * MIB,
        200.12 * GIB,
    )
    npu = parse(
        "RuntimeError: NPU out of memory. Tried to allocate 2.00 GiB (NPU 6; 60.97 GiB total"
        " capacity; 58.10 GiB allocated)"
    )
    assert (npu.vendor, npu.device) == ("NPU", 6)


def test_the_host_allocator_is_exact():
    oom = parse(
        "RuntimeError: [enforce fail at alloc_cpu.cpp:114] err == 0. "
        "DefaultCPUAllocator: can't allocate memory: you tried to allocate 58720256 bytes."
    )
    assert (oom.place, oom.requested_bytes, oom.ranges["requested_bytes"]) == (
        "host",
        58720256,
        (58720256, 58720256),
    )


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("[7] NCCL WARN Cuda failure 2 'out of memory'", "device"),
        ("RuntimeError: CUDA error: out of memory", "device"),
        (
            (
                "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling"
                " `cublasCreate(handle)`"
            ),
            "device",
        ),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=1.0", "host"),
        ("[launch.py] exits with return code = -9", "host"),
    ],
)
def test_errors_without_a_size(text, place):
    oom = parse("a line\n" + text + "\nanother")
    assert (oom.place, oom.requested_bytes, oom.text) == (place, None, text)


def test_a_bare_size_and_one_of_unclear_unit():
    assert parse("16.83 GiB").requested_bytes == 16.83 * GIB
    low, high = parse("Tried to allocate 2 GB").ranges["requested_bytes"]
    assert (low, high) == (1.5e9, 2.5 * GIB)


def test_only_the_first_of_two_messages_is_read():
    oom = parse(
        "Tried to allocate 1.00 GiB. x\nTried to allocate 2.00 GiB. GPU 4 has a total capacity of"
        " 80.00 GiB"
    )
    assert (oom.requested_bytes, oom.device) == (GIB, None)


@given(st.text(max_size=300))
def test_other_text_has_none_or_an_answer(text):
    oom = parse("Tried to allocate " + text)
    assert oom is None or oom.requested_bytes is None or oom.requested_bytes >= 0


def test_a_long_line_is_quick():
    start = time.process_time()
    parse("9" * 10_000_000 + " Tried to allocate " + "1" * 1_000_000)
    assert time.process_time() - start < 2
