"""A profile that names a base: what it states wins, what it does not state is the base's, circles
are refused.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from planner import known
from planner.errors import InputError
from planner.specs import library


def written(folder: Path, **documents: str) -> Path:
    """Files of these names; the path of the first."""
    for name, text in documents.items():
        (folder / f"{name}.yaml").write_text(text)
    return folder / f"{next(iter(documents))}.yaml"


def test_what_is_stated_wins_field_by_field(tmp_path: Path) -> None:
    base = library.hardware("h100-sxm")
    text = (
        "extends: h100-sxm\nname: mine\nnode: {host_memory_gib: 512, domain: {efficiency: {8:"
        " 0.5}}}\nfabric: {nics: 4}\n"
    )
    mine = library.hardware(str(written(tmp_path, mine=text)))
    assert (mine.name, mine.node.host_memory_gib, mine.fabric.nics) == ("mine", 512, 4)
    assert mine.node.domain.efficiency == {**base.node.domain.efficiency, 8: 0.5}
    assert (
        mine.gpu == base.gpu and mine.kernels == base.kernels and mine.node.host == base.node.host
    )
    assert mine.fabric.model_copy(update={"nics": 8}) == base.fabric


def test_name_aliases_price_count_and_note_are_ones_own(tmp_path: Path) -> None:
    alps, mine = (
        library.hardware("alps-gh200"),
        library.hardware(str(written(tmp_path, mine="extends: alps-gh200\nname: mine\n"))),
    )
    assert alps.max_gpus and alps.note and alps.aliases
    assert mine.max_gpus is None and mine.note == "" and mine.aliases == ()
    priced = library.hardware(str(written(tmp_path, other="extends: oci-h100\nname: other\n")))
    assert (
        library.hardware("oci-h100").price_usd_per_gpu_hour == 10
        and priced.price_usd_per_gpu_hour is None
    )


def test_null_drops_what_the_base_has(tmp_path: Path) -> None:
    text = (
        "extends: h100-sxm\nname: mine\nkernels: {gemm: {fp8: null}, attention_sustained_share:"
        " null}\ngpu: {peak_tflops: {fp8: null}}\n"
    )
    mine = library.hardware(str(written(tmp_path, mine=text)))
    assert set(mine.kernels.gemm) == {"bf16", "fp8-block"} and "fp8" not in mine.gpu.peak_tflops
    assert mine.kernels.attention_sustained_share is None


def test_a_base_may_have_a_base_and_lie_beside(tmp_path: Path) -> None:
    first = written(
        tmp_path,
        a="extends: b.yaml\nname: a\nfabric: {hop_us: 7}\n",
        b="extends: ./c.yaml\nname: b\nfabric: {hop_us: 6, base_us: 9}\n",
        c="extends: aws-p5\nname: c\nfabric: {nics: 2}\n",
    )
    fabric = library.hardware(str(first)).fabric
    assert (fabric.hop_us, fabric.base_us, fabric.nics, fabric.nic_gbytes_per_s) == (7, 9, 2, 12.5)


@pytest.mark.parametrize(
    ("says", "documents"),
    [
        (
            (
                "a.yaml: extends must end at a profile that extends nothing, but goes in a circle:"
                " a.yaml -> a.yaml"
            ),
            {"a": "extends: a.yaml\nname: a\n"},
        ),
        (
            "goes in a circle: a.yaml -> b.yaml -> a.yaml",
            {"a": "extends: b.yaml\nname: a\n", "b": "extends: a.yaml\nname: b\n"},
        ),
        (
            (
                "a.yaml: extends: cluster must be a known name, but got 'h100-smx'; did you mean"
                " h100-sxm"
            ),
            {"a": "extends: h100-smx\nname: a\n"},
        ),
        (
            (
                "a.yaml: extends: cluster must be a known name or an existing path, but there is no"
                " gone.yaml"
            ),
            {"a": "extends: gone.yaml\nname: a\n"},
        ),
        (
            "extends must be the name or the path of one profile, but got ['h100-sxm']",
            {"a": "extends: [h100-sxm]\nname: a\n"},
        ),
        (
            "extends must be the name or the path of one profile, but got None",
            {"a": "extends:\nname: a\n"},
        ),
        ("a.yaml: name is missing", {"a": "extends: h100-sxm\n"}),
        ("fabric.nic is not a field", {"a": "extends: h100-sxm\nname: a\nfabric: {nic: 4}\n"}),
        (
            "node must be a group of fields, but got 3",
            {"a": "extends: h100-sxm\nname: a\nnode: 3\n"},
        ),
        (
            "gpu.memory_gib is missing",
            {"a": "extends: h100-sxm\nname: a\ngpu: {memory_gib: null}\n"},
        ),
    ],
)
def test_faults_are_said(says: str, documents: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(InputError) as fault:
        library.hardware(str(written(tmp_path, **documents)))
    assert says in str(fault.value)


def test_a_cluster_is_shown_merged() -> None:
    (shown,) = known.clusters("coreweave-h100")
    assert shown["gpu"] == known.clusters("h100-sxm")[0]["gpu"] and "extends" not in shown


@pytest.mark.parametrize("name", ["coreweave-gb200", "frontier", "Standard_ND96isr_MI300X_v5"])
def test_a_chain_loads_fast(name: str) -> None:
    """Under 30 ms of this process's own time (the machine may be busy) by name or by alias, the
    best of three.
    """

    def seconds() -> float:
        start = time.process_time()
        library.hardware(name)
        return time.process_time() - start

    assert min(seconds() for _ in range(3)) < 0.03
