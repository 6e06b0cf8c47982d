"""Scripts that mean harm: nothing of them is run, nothing is written, and an answer comes in
time.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.errors import InputError
from planner.intake.read import read
from planner.intake.reading import Reading

pytestmark = pytest.mark.slow


LIMIT_S = 5
STARTS = (
    "subprocess.Popen",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.fork",
    "os.forkpty",
    "pty.spawn",
    "os.remove",
    "os.rename",
    "os.mkdir",
    "os.rmdir",
    "os.symlink",
    "os.link",
    "os.truncate",
    "os.chmod",
    "shutil.rmtree",
    "socket.connect",
    "socket.bind",
    "exec",
    "ctypes.dlopen",
)
SEEN: list[str] = []
ON: list[Path] = []


def _hook(event: str, arguments: tuple) -> None:  # type: ignore[type-arg]
    if not ON:
        return
    if event in STARTS:
        SEEN.append(f"{event} {arguments[:1]}")
    if event == "open":
        path, mode, _ = arguments
        if isinstance(mode, str) and set(mode) & set("wax+"):
            SEEN.append(f"open {path} {mode}")
        elif isinstance(path, str) and "secret" in path:
            SEEN.append(f"read {path}")


sys.addaudithook(_hook)


@contextmanager
def watched(folder: Path) -> Iterator[None]:
    """Fails when anything starts, is written, or is read outside the folder."""
    SEEN.clear()
    ON.append(folder)
    try:
        yield
    finally:
        ON.clear()
    assert SEEN == []


@pytest.fixture(scope="module", autouse=True)
def _loaded(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Modules are imported before the watch begins: an import runs code."""
    folder = tmp_path_factory.mktemp("loaded")
    (folder / "ds.json").write_text('{"zero_optimization": {"stage": 1}}')
    (folder / "run.sh").write_text(
        "deepspeed train.py --num-layers 2 --hidden-size 4 --deepspeed --deepspeed_config ds.json\n"
    )
    read(folder / "run.sh")
    trainer = "train.py --per_device_train_batch_size 2 --model_name_or_path x --deepspeed ds.json"
    (folder / "run.sh").write_text(f"accelerate launch {trainer}\n")
    read(folder / "run.sh")


def answer(folder: Path, body: str | bytes, name: str = "run.sh") -> Reading | str:
    """A reading, or the one sentence that refuses it, in time and under watch."""
    (folder / name).write_bytes(
        body if isinstance(body, bytes) else body.encode("utf-8", "replace")
    )
    start = time.process_time()
    with watched(folder):
        try:
            found: Reading | str = read(folder / name)
        except InputError as fault:
            found = str(fault)
            assert "\n" not in found and len(found) < 600
    assert time.process_time() - start < LIMIT_S
    return found


TRAIN = "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 4 --hidden-size 8"


@pytest.mark.parametrize(
    "harm",
    [
        "$(rm -rf {x})",
        "`rm -rf {x}`",
        "$(touch {x}/made)",
        "<(touch {x}/made)",
        '$(eval "touch {x}/made")',
        "$((a[$(touch {x}/made)]))",
        "${X:=$(touch {x}/made)}",
        "${X:-`touch {x}/made`}",
        '"$(curl http://127.0.0.1:9/x | sh)"',
        '$(python3 -c \'open("{x}/made", "w")\')',
        "$(cat /etc/secret)",
        "$(</etc/secret)",
    ],
)
@pytest.mark.parametrize(
    "place",
    [
        "X={h}\n{t} --save $X\n",
        "{t} --save {h}\n",
        "if {h}; then :; fi\n{t}\n",
        "eval '{t} --save {h}'\n",
        "cat <<EOF > {x}/made\n{h}\nEOF\n{t}\n",
        "for a in {h}; do echo $a > {x}/made; done\n{t}\n",
    ],
)
def test_nothing_in_a_script_is_run(harm: str, place: str, tmp_path: Path) -> None:
    body = place.replace("{h}", harm).replace("{t}", TRAIN).replace("{x}", str(tmp_path / "victim"))
    (tmp_path / "victim").mkdir()
    found = answer(tmp_path, body)
    assert isinstance(found, Reading) and found.values["num_layers"].value == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.sh", "victim"] and not list(
        (tmp_path / "victim").iterdir()
    )


def test_commands_that_stand_there_are_not_run(tmp_path: Path) -> None:
    body = (
        f"rm -rf {tmp_path}\n: > {tmp_path}/made\npkill -9 python\nwget"
        f" http://127.0.0.1:9/x\nsource /etc/secret\n. ~/.secret\n{TRAIN}\n"
    )
    found = answer(tmp_path, body)
    assert isinstance(found, Reading) and found.values["hidden_size"].value == 8
    assert [path.name for path in tmp_path.iterdir()] == ["run.sh"]


HOSTILE = {
    "a line of 10 MB": "A=" + "x" * 10_000_000 + "\n" + TRAIN,
    "a line below the limit": "A=" + "x" * 900_000 + "\n" + TRAIN + " --save $A$A",
    "a million flags": TRAIN + " --a 1" * 1_000_000,
    "flags up to the limit": TRAIN + " --a 1" * 150_000,
    "words up to the limit": TRAIN + " --recompute-modules" + " a" * 500_000,
    "substitutions in substitutions": TRAIN + " " + "$(" * 100_000,
    "quoted substitutions": TRAIN + ' --x "' + '"$(' * 50_000,
    "defaults in defaults": TRAIN + " " + "${a:-" * 100_000,
    "closed defaults": TRAIN + " " + "${a:-" * 3_000 + "}" * 3_000,
    "closed substitutions": TRAIN + " " + "$(echo " * 2_000 + ")" * 2_000,
    "closed arithmetic": "A=$((" + "(" * 5_000 + "1" + ")" * 5_000 + "))\n" + TRAIN,
    "signs": "A=$((" + "-" * 1_900 + "1))\n" + TRAIN,
    "subshells": "(" * 50_000 + TRAIN,
    "ifs": "if true; then " * 20_000 + TRAIN,
    "arrays": "a=(" * 20_000,
    "heredocs": "<<A\n" * 20_000,
    "few heredocs": "cat <<A\n" * 250 + TRAIN,
    "backticks": "`" * 100_001,
    "quotes": '"' * 300_001,
    "pipes": "a|" * 100_000,
    "assignments": "a=b " * 200_000 + TRAIN,
    "ands": "true && " * 50_000 + TRAIN,
    "functions": "f() { " * 30_000,
    "cases": "case x in *) " * 20_000,
    "doubling": "a=xx\n" + "a=$a$a\n" * 100 + TRAIN,
    "doubling arrays": "a=(x)\n" + 'a=("${a[@]}" "${a[@]}")\n' * 60 + TRAIN,
    "doubling by eval": "a='a=$a$a; eval $a'\neval $a\n" + TRAIN,
    "power": "A=$((9**9**9))\nB=$((2**62*4))\nC=$((1<<99))\n" + TRAIN,
    "sequences": (
        "A=$(seq 1 999999999)\nB=$(printf '%999999999d' 1)\nfor i in {1..999999}; do A=$i; done\n"
        + TRAIN
    ),
    "patterns": (
        "A="
        + "a" * 3_000
        + "\nB=${A//a*a*a*a*a*b/}\n[[ $A =~ (a+)+b ]] && C=1\n[[ $A == *a*a*a*a*a*a*a*b ]] && D=1\n"
        + TRAIN
    ),
    "loops in loops": "while :; do " * 6 + "A=$A.; " + "done; " * 6 + "\n" + TRAIN,
    "recursion": "f() { f $1 x; f; }\nf a\n" + TRAIN,
    "itself": '. ./run.sh\nbash run.sh\n./run.sh\neval "$(cat run.sh)"\n' + TRAIN,
    "nul": b"A=1\0\n" + TRAIN.encode(),
    "bytes": bytes(range(1, 256)) * 50 + b"\n" + TRAIN.encode(),
    "surrogates": "A='\ue000'\n" + TRAIN + " --save $A\ue000",
    "sbatch in sbatch": "sbatch <<A\nsbatch <<B\nsbatch run.sh\nB\nA\n" + TRAIN,
    "a number of many digits": TRAIN + " --seq-length " + "9" * 100_000,
    "a json": (
        "cat <<E > d.json\n"
        + "[" * 50_000
        + "\nE\n"
        + TRAIN
        + " --deepspeed --deepspeed_config d.json"
    ),
    "ray": "ray job submit --runtime-env-json='" + "[" * 50_000 + "' -- python " + TRAIN[29:],
    "empty": "",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_scripts_are_answered_in_time(name: str, tmp_path: Path) -> None:
    answer(tmp_path, HOSTILE[name])


PIECE = st.sampled_from(
    [
        "TP=4\n",
        "A=(",
        ")",
        '"',
        "'",
        "`",
        "$(",
        "${",
        "}",
        "$((",
        "))",
        "((",
        "if ",
        "[ ",
        " ]",
        "[[ ",
        " ]]",
        "; then\n",
        "else\n",
        "elif ",
        "fi\n",
        "for x in ",
        "; do\n",
        "done\n",
        "while ",
        "case $x in\n",
        "*)",
        ";;",
        "esac\n",
        "f() {",
        "\\\n",
        "<<EOF\n",
        "\nEOF\n",
        "<<<",
        "> x.json",
        "|",
        "&&",
        "||",
        "&",
        "!",
        "eval ",
        "bash -c ",
        "source ",
        ". ./run.sh\n",
        "sbatch ",
        "srun ",
        "echo ",
        "seq 1 9",
        "export ",
        "unset ",
        "local ",
        "$TP",
        "${A[@]}",
        "${A[@]:1:2}",
        "${#A[@]}",
        "${X:-",
        "${X%",
        "${X//",
        "${!X",
        "$1",
        "$@",
        "$#",
        "1",
        "-gt 2",
        "==",
        "=~",
        "a*",
        "+=",
        "=",
        " ",
        "\n",
        "#",
        "--num-layers 4",
        "--hidden-size=8",
        "--micro-batch-size $TP",
        "torchrun --nproc_per_node 8 train.py ",
        "deepspeed --hostfile h ",
        "python -m torch.distributed.run ",
        "ray job submit -- ",
        "#SBATCH --nodes=2\n",
        "\xe9",
        "\ue000",
        "\t",
        "set -- a b\n",
        "shift 3\n",
        "exit\n",
        "read -r X ",
        "cat ",
        "tr a b",
        "--deepspeed_config x.json",
        "accelerate launch ",
        "a.b=c",
        "x.yaml",
        "-c",
        "declare -A m",
        "{1..9}",
        "%",
        "~",
    ]
)


@settings(
    max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(pieces=st.lists(PIECE, max_size=40))
def test_any_mixture_is_a_reading_or_a_sentence(pieces: list[str], tmp_path: Path) -> None:
    answer(tmp_path, "".join(pieces))


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(noise=st.text(max_size=60), at=st.integers(0, 400))
def test_noise_in_a_script(noise: str, at: int, tmp_path: Path) -> None:
    body = (
        f'N=2\nA=(--num-layers 4 "--hidden-size 8")\nif [ $N -gt 1 ]; then A+=(--bf16); fi\n{TRAIN}'
        " ${A[@]} --x $(echo $((N * 2)))\n"
    )
    answer(tmp_path, body[:at] + noise + body[at:])
