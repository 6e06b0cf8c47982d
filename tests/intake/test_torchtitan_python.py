"""torchtitan 0.3's Python configuration beside a script: literals with their lines, the rest asked
for, nothing run.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from planner import api
from planner.advice.findings import Checked
from planner.emit.torchtitan import MODELS
from planner.errors import InputError
from planner.intake.frameworks import torchtitan, torchtitan_python
from planner.intake.read import read
from planner.intake.reading import Reading
from tests.intake.stated import stated

SCRIPT = "torchrun --nnodes 4 --nproc-per-node 8 -m torchtitan.train --module {} --config {} {}\n"
HEAD = """\
from torchtitan.config import ParallelismConfig, TrainingConfig
from torchtitan.models.llama3 import model_registry
from torchtitan.trainer import Trainer

raise SystemExit("this file is never run")
STEPS = 8
"""
PLAN = (
    HEAD
    + """
def base() -> Trainer.Config:
    spec = model_registry("70B")
    return Trainer.Config(
        model_spec=spec,
        hf_assets_path="./assets/hf",
        training=TrainingConfig(
            local_batch_size=2 * STEPS,
            seq_len=8192,
        ),
        parallelism=ParallelismConfig(tensor_parallel_degree=8, pipeline_parallel_degree=2),
        activation_checkpoint=FullAC.Config(),
    )

def tuned():
    config = base()
    config.training.seq_len = 4096
    config.parallelism.fsdp_reshard_after_forward = "never"
    config.model_spec = model_registry("8B", converters=[
        Float8LinearConverter.Config(recipe_name="rowwise")])
    return config

def open_values():
    config = base()
    config.training.local_batch_size = int(os.environ["BATCH"])
    if torch.cuda.device_count() > 8:
        config.parallelism.tensor_parallel_degree = 4
    config.activation_checkpoint = Mine.Config()
    config.metrics.log_freq = frequency()
    return config

def elsewhere():
    return other.base()

def other_root():
    config = other.base()
    config.training.seq_len = 4096
    config.parallelism = degrees(8)
    config.activation_checkpoint = None
    return config

def branches():
    if fast:
        return base()
    return tuned()

def grows():
    return grows()
"""
)


def launched(folder: Path, function: str, flags: str = "", text: str = PLAN, **options) -> Reading:
    (folder / "titan.py").write_text(text)
    (folder / "launch.sh").write_text(SCRIPT.format("titan", function, flags))
    return read(folder / "launch.sh", **options)


def test_literals_are_read_with_their_lines(tmp_path):
    reading = launched(tmp_path, "base")
    stated(
        reading,
        {
            "model": "llama3-70b",
            "local_batch_size": 16,
            "micro_batch_size": 1,
            "seq_length": 8192,
            "tensor_model_parallel_size": 8,
            "pipeline_model_parallel_size": 2,
            "recompute_granularity": "full",
            "bf16": True,
            "use_torch_fsdp2": True,
            "launch.gpus": 32,
        },
    )
    assert (reading.kind, reading.unknown, reading.unresolved) == ("torchtitan", (), ())
    line = PLAN[: PLAN.index("seq_len=8192")].count("\n") + 1
    assert reading.values["seq_length"].where == f"titan.py:{line} training.seq_len"


def test_a_configuration_that_changes_another(tmp_path):
    reading = launched(tmp_path, "tuned", "--training.seq_len 2048")
    stated(
        reading,
        {
            "model": "llama3-8b",
            "seq_length": 2048,
            "tensor_model_parallel_size": 8,
            "torch_fsdp2_no_reshard_after_forward": True,
            "fp8_recipe": "rowwise",
        },
    )


def test_what_is_no_literal_is_asked_for(tmp_path):
    reading = launched(tmp_path, "open_values")
    questions = {question.name: question for question in reading.unresolved}
    assert questions.keys() == {
        "training.local_batch_size",
        "parallelism.tensor_parallel_degree",
        "activation_checkpoint.mode",
    }
    batch = questions["training.local_batch_size"]
    line = PLAN[: PLAN.index("int(os")].count("\n") + 1
    assert batch.where == f"titan.py:{line}"
    assert "is int(...), which only running titan.py tells" in batch.why
    assert not {"local_batch_size", "recompute_granularity"} & set(reading.values)
    answered = launched(
        tmp_path,
        "open_values",
        "--parallelism.tensor_parallel_degree 2",
        sets={"training.local_batch_size": "4", "activation_checkpoint.mode": "none"},
    )
    assert answered.unresolved == ()
    stated(answered, {"tensor_model_parallel_size": 2, "local_batch_size": 4})


@pytest.mark.parametrize("function", ["elsewhere", "branches", "grows"])
def test_a_configuration_that_only_running_makes(function, tmp_path):
    names = {question.name for question in launched(tmp_path, function).unresolved}
    assert {"model.flavor", "training.seq_len", "parallelism.tensor_parallel_degree"} <= names


def test_what_a_function_elsewhere_leaves_open(tmp_path):
    reading = launched(tmp_path, "other_root")
    names = {question.name for question in reading.unresolved}
    assert {
        "model.flavor",
        "training.local_batch_size",
        "parallelism.tensor_parallel_degree",
    } <= names
    assert not {"training.seq_len", "activation_checkpoint.mode"} & names
    assert reading.values["seq_length"].value == 4096


def test_the_registry_of_a_clone(tmp_path):
    folder = tmp_path / "torchtitan" / "models" / "llama3"
    folder.mkdir(parents=True)
    text = PLAN.replace("from torchtitan.models.llama3 import", "from . import")
    (folder / "config_registry.py").write_text(text)
    (tmp_path / "run.sh").write_text(SCRIPT.format("llama3", "base", ""))
    reading = read(tmp_path / "run.sh")
    stated(reading, {"model": "llama3-70b", "tensor_model_parallel_size": 8})


def test_a_file_that_is_not_beside(tmp_path):
    (tmp_path / "run.sh").write_text(SCRIPT.format("llama3", "llama3_8b", "--training.steps 1"))
    notes = read(tmp_path / "run.sh").notes
    assert "llama3, with llama3_8b, is not beside the script: what it states is not known" in notes


def test_a_toml_that_is_not_beside(tmp_path):
    flags = "--job.config_file no.toml --training.steps 1 --training.seq_len 4096"
    (tmp_path / "run.sh").write_text(f"torchrun -m torchtitan.train {flags}\n")
    assert "no.toml is not beside the script: what it states is not known" in (
        read(tmp_path / "run.sh").notes
    )


def test_a_broken_file(tmp_path):
    with pytest.raises(InputError, match="titan\\.py must be Python that can be parsed"):
        launched(tmp_path, "base", text="def base(:\n")
    with pytest.raises(InputError, match="titan\\.py must be Python that can be parsed"):
        launched(tmp_path, "base", text="x = " + "(" * 5000 + ")" * 5000)


def test_every_model_that_is_written_has_its_preset():
    for name, (family, flavor) in MODELS.items():
        text = f"from torchtitan.models.{family} import model_registry\n"
        text += f'def plan():\n    return Trainer.Config(model_spec=model_registry("{flavor}"))\n'
        out = torchtitan_python.read(text, "plan.py", "plan", "plan")
        assert out is not None
        assert torchtitan.reading(out[0], "plan.py").values["model"].value == name


def test_the_python_file_is_checked_by_itself(tmp_path: Path) -> None:
    """As its launch script with it, but for what the script sets around it."""
    folder = tmp_path / "plan"
    api.recommend(
        model="llama3-8b", gpus=8, cluster="h100-sxm", software="torchtitan@0.3", out=str(folder)
    )
    alone = api.check(folder / "torchtitan_plan.py", cluster="h100-sxm", gpus=8)
    with_script = api.check(folder / "launch.sh", cluster="h100-sxm")
    assert alone.launch.layout == with_script.launch.layout
    assert alone.recipe.model == with_script.recipe.model
    assert alone.estimate is not None and with_script.estimate is not None
    assert alone.estimate.step_s == with_script.estimate.step_s


def test_of_several_configurations_one_is_named(tmp_path: Path) -> None:
    file = tmp_path / "plans.py"
    head = "from torchtitan.trainer import Trainer\n"
    function = "def {}() -> Trainer.Config:\n    return Trainer.Config()\n"
    file.write_text(head + function.format("small") + function.format("large"))
    with pytest.raises(InputError, match="--set config=NAME one of small, large"):
        api.check(file, cluster="h100-sxm", gpus=8)
    assert api.check(file, cluster="h100-sxm", gpus=8, set=["config=large"]).verdict


@pytest.mark.parametrize(("name", "other"), [("plan.toml", "0.3"), ("plan.py", "0.2")])
def test_a_file_of_another_torchtitan_is_refused(tmp_path: Path, name: str, other: str) -> None:
    """0.2.2's config/manager.py loads TOML, 0.3.0's imports a function."""
    file = tmp_path / name
    file.write_text(
        "[training]\nlocal_batch_size = 1\nseq_len = 1024\n[parallelism]\n"
        if name.endswith("toml")
        else "def plan() -> Trainer.Config:\n    return Trainer.Config()\n"
    )

    def checked(version: str) -> Checked:
        software = f"torchtitan@{version}"
        return api.check(file, "h100-sxm", 8, "llama3-8b", software=software)

    own = "0.2" if other == "0.3" else "0.3"
    rules = {version: [each.rule for each in checked(version).findings] for version in (own, other)}
    assert "configuration of another torchtitan" not in rules[own]
    assert "configuration of another torchtitan" in rules[other]
    assert checked(other).verdict == "invalid"
