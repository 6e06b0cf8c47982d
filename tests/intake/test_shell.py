"""The words of a command as bash itself makes them: each script is run by bash with the launcher
replaced, and read by ours.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from planner.errors import InputError
from planner.intake.bash.interpreter import follow
from planner.intake.bash.traced_text import plain, shown

pytestmark = pytest.mark.process


SCRIPTS = {
    "defaults": (
        "A=${A:-4}; B=${B-5}; C=${A:+yes}; D=${NO:+no}; : ${E:=6}\ntorchrun --a $A --b ${B} --c $C"
        ' --d "$D" --e $E ${UNSET:-"x y"}'
    ),
    "positional": (
        'set -- one "two three" 3 4 5 6 7 8 9 ten\ntorchrun $1 "$2" ${10} ${11:-x} $# "$@"'
    ),
    "shift": "set -- a b c\nshift\ntorchrun $1 $#\nshift 2; torchrun $#",
    "array": (
        "A=(--x 1 \\\n  # a comment\n  --y \"2 3\" '4 5')\nA+=(--z)\n"
        'torchrun ${A[@]} "${A[@]}" ${#A[@]} ${A[1]} "${A[*]}" ${A[@]:1:2}'
    ),
    "array from itself": 'A=(a b)\nA=("${A[@]}" c ${A[0]})\ntorchrun "${A[@]}"',
    "empty array": 'A=()\ntorchrun x "${A[@]}" ${A[@]} "" y',
    "flag and value in one element": 'A=("--fp8-format hybrid" "--bf16")\ntorchrun ${A[@]}\n',
    "a string that grows": 'a=" "\na=" --deepspeed ${a}"\na=" --stage=$Z ${a}"\ntorchrun $a',
    "quotes within quotes": (
        'A=" --split \'99,1,0\' --name \\"x\\" "\ntorchrun $A "it\'s" \'say "hi"\' a\\ b'
    ),
    "arithmetic": (
        "P=3 G=8\nN=$((G*P)); M=$(( ($P > 1) ? 2**4 : 0 )); K=$((10#08 + 0x10)); ((P++)); let"
        " Q=P*2\ntorchrun $N $M $K $P $Q $((N % 7)) $((-7 / 2)) $((1 << 4 | 1)) $((!0))"
    ),
    "bases": "torchrun $(( 16#ff + 8#17 + 010 ))",
    "suffixes": (
        "F=path/to/model.tar.gz\ntorchrun ${F%.gz} ${F%%.*} ${F#*/} ${F##*/} ${F/model/new}"
        " ${F//a/A} ${#F} ${F:0:4} ${F: -2} ${F^^}"
    ),
    "case of letters": "V=Mixed; torchrun ${V,,} ${V^^} ${V^}",
    "if": (
        'T=fp8\nif [[ "$T" == "fp8" ]]; then A=1; elif [ $T = bf16 ]; then A=2; else A=3;'
        " fi\ntorchrun $A"
    ),
    "elif": (
        'T=bf16\nif [ $T = fp8 ]; then A=1; elif [ "$T" = "bf16" ] && [ 3 -gt 2 ]; then A=2; else'
        " A=3; fi\ntorchrun $A"
    ),
    "tests": (
        "A=5\n[ -z $B ] && X=empty\n[[ $A -ge 5 && ! $A -lt 2 ]] && Y=big\n[[ $A =~ ^[0-9]+$ ]] &&"
        " Z=number\n[[ abc == a* ]] && W=glob\ntest $A -eq 4 || V=four\n(( A > 4 )) &&"
        " U=more\ntorchrun $X $Y $Z $W $V $U"
    ),
    "or": '[ "$M" == "MOCK" ] || [ -z "$M" ] && X=mock\ntorchrun $X',
    "case": "S=8B\ncase $S in 7B|8B) L=32 ;; *70B) L=80 ;; *) L=0 ;; esac\ntorchrun $L",
    "case default": 'S=x70B\ncase "$S" in 8B) L=32 ;; *70B) L=80 ;; esac\ntorchrun $L',
    "for": (
        'for x in a "b c" ${Y:-d}; do A="$A $x"; done\n'
        'for ((i=1; i<4; i++)); do A="$A $i"; done\nfor n in {1..3}; do B+=$n; done\ntorchrun $A $B'
    ),
    "while": (
        "n=0\nwhile [ $n -lt 4 ]; do n=$((n+1)); A+=($n); done\nuntil [[ $n == 0 ]]; do ((n--));"
        " done\ntorchrun ${A[@]} $n"
    ),
    "function": (
        'f() { local k=$1; echo "out-$k"; G=$2; }\nf 1 2 >/dev/null\ntorchrun "$(f 7 8)" $G\n'
    ),
    "substitution": (
        "torchrun $(echo a b) `echo c` $(seq 16 8 40) $(basename /x/y.json .json) $(dirname /x/y) "
        "$(expr 3 + 4) $(printf '%s-%03d' a 7)"
    ),
    "pipes": (
        "D=0,1,2,3\ntorchrun $(echo $D | tr ',' '\\n' | wc -l) $(echo \"$D\" | cut -d, -f2) $(echo"
        " $D | tr ',' ' ')"
    ),
    "heredoc": (
        'N=4\nread -r -d "" TEXT <<EOF\n --a $N \\\n --b "q"\nEOF\ntorchrun $TEXT\nV=$(cat'
        " <<'EOF'\n$N raw\nEOF\n)\ntorchrun \"$V\""
    ),
    "eval": "N=3\nCMD=\"torchrun --a $N\n --b 'c d' --e \\$N\"\neval $CMD",
    "bash -c": (
        'N=3\nexport N\nbash -c "torchrun --a $N --b \\$N"\nexport -f torchrun 2>/dev/null\n'
    ),
    "subshell": "A=1\n(A=2; torchrun $A)\ntorchrun $A",
    "indirect": "NAME=VALUE; VALUE=7\ntorchrun ${!NAME}",
    "export": 'export A=1 B="x y"\ndeclare -x C=3\nreadonly D=4\nunset A\ntorchrun $A "$B" $C $D',
    "line continuation": "torchrun --a 1 \\\n  --b \\\n  2 # --c 3\n",
    "no quotes around holes": 'A="  "\ntorchrun $A --x $NOTHING',
    "comment": "torchrun a#b # c\n#torchrun d\n",
    "exit": "torchrun a\nexit 0\ntorchrun b",
    "and or": (
        "true && torchrun a || torchrun b\nfalse && torchrun c || torchrun d\n! false && torchrun e"
    ),
    "source": ". ./beside.sh\nsource ./sub/deeper.sh arg\ntorchrun $BESIDE $DEEPER",
    "ansi": "torchrun $'a\\tb' $'it\\'s'",
    "unicode": 'A=größe\ntorchrun --naïve $A "日本 $A" --z',
    "nested defaults": 'torchrun ${A:-${B:-$((2*3))}} "${A:-"p q"}"',
    "plus equals": "A=1; A+=2; export A+=3\ntorchrun $A",
    "brace list": "for x in {a,b}; do torchrun $x; done",
    "moe frequency": 'L="[0]*3+[1]*58"\nA=(--moe-layer-freq "([1]*48)" $L)\ntorchrun "${A[@]}"',
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_words_are_those_of_bash(name: str, tmp_path: Path) -> None:
    body = SCRIPTS[name] + "\n"
    (tmp_path / "sub").mkdir()
    (tmp_path / "beside.sh").write_text("BESIDE='from beside'\n")
    (tmp_path / "sub" / "deeper.sh").write_text('DEEPER="deeper $1"\n')
    script = tmp_path / "run.sh"
    script.write_text(body)
    stand_in = "torchrun() { printf '%s\\0' \"$@\" >&3; printf '\\1' >&3; }\nexport -f torchrun\n"
    (tmp_path / "stood.sh").write_text(f"exec 3>words\n{stand_in}{body}")
    subprocess.run(
        ["bash", "stood.sh"],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
    )
    said = [call.split("\0")[:-1] for call in (tmp_path / "words").read_text().split("\1")[:-1]]
    met = [
        command
        for command in follow(script, body, {}).commands
        if plain(command.words[0]) == "torchrun"
    ]
    found = [[_empty(word) for word in command.words[1:]] for command in met]
    assert said, "bash itself must reach the launcher"
    assert [[word for word in call if word is not None] for call in found] == said


def _empty(word: tuple) -> str | None:  # type: ignore[type-arg]
    """A word as bash has it in an empty environment: without variables that nobody sets, nothing
    where only these stood unquoted.
    """
    kept = "".join(piece.text for piece in word if not piece.unknown)
    return kept if kept or not any(piece.unknown for piece in word) else None


def _words(tmp_path: Path, body: str, **sets: str) -> list[str]:
    found = follow(tmp_path / "run.sh", body, sets).commands
    return [shown(word) for word in found[-1].words]


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ("N=$(nvidia-smi -L | wc -l)\ntorchrun $N", "$N"),
        ("torchrun $(hostname)", "$(hostname)"),
        ("N=$(($(nproc) * 2))\nM=$((N / 4))\ntorchrun $M", "$N"),
        ("torchrun `date +%s`", "$(date +%s)"),
        ("torchrun $NOBODY", "$NOBODY"),
        ("torchrun $3", "$3"),
        ("A=$(rm -rf /)\ntorchrun $A", "$A"),
    ],
)
def test_what_would_need_running_stays_open(body: str, word: str, tmp_path: Path) -> None:
    assert _words(tmp_path, body)[-1] == word


def test_a_set_variable_holds_whatever_the_script_says(tmp_path: Path) -> None:
    body = "N=$(nvidia-smi -L | wc -l)\nTP=2\nTP=3\ntorchrun $N $TP $1 $2"
    found = follow(tmp_path / "run.sh", body, {"N": "8", "TP": "4", "2": "x"}).commands[0].words
    assert [shown(word) for word in found] == ["torchrun", "8", "4", "$1", "x"]
    assert [word[0].origin for word in found] == ["flag", "option", "option", "flag", "option"]


def test_an_unknown_condition_takes_the_else_branch_and_says_so(tmp_path: Path) -> None:
    body = (
        "if nvidia-smi -L | grep -q H100; then A=h100; else A=other; fi\nif [ $(nproc) -gt 4 ];"
        " then A+=-big; fi\ntorchrun $A"
    )
    work = follow(tmp_path / "run.sh", body, {})
    assert shown(work.commands[-1].words[-1]) == "other"
    assert len(work.notes) == 2 and all("is not known; taken as not" in one for one in work.notes)


def test_files_outside_the_folder_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "outside.sh").write_text("SECRET=1\n")
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "link.sh").symlink_to(tmp_path / "outside.sh")
    work = follow(
        tmp_path / "inner" / "run.sh",
        f". ../outside.sh\n. ./link.sh\n. {tmp_path}/outside.sh\ntorchrun $SECRET",
        {},
    )
    assert shown(work.commands[-1].words[-1]) == "$SECRET"
    assert set(work.texts) == {str(tmp_path / "inner" / "run.sh")}
    assert sum("outside the script's folder" in one for one in work.notes) == 3


def test_a_heredoc_file_is_kept_with_its_variables_filled_in(tmp_path: Path) -> None:
    body = (
        'Z=3\nF=ds.$JOB.json\ncat <<EOT > $F\n{"stage": $Z, "cost": "\\$5"}\nEOT\necho "{}" >>'
        " other.json\n"
    )
    written = follow(tmp_path / "run.sh", body, {}).written
    assert [plain(text) for text in written.values()] == ['{"stage": 3, "cost": "$5"}\n', "{}\n"]


@pytest.mark.parametrize(
    "body",
    [
        "a=x\n" + "a=$a$a\n" * 64 + "torchrun $a",
        "f() { f; f; }\nf\ntorchrun x",
        "while true; do A+=(x); for i in {1..9999}; do B=$B$i; done; done\ntorchrun $A",
        (
            "for ((i=0; ; i++)); do for ((j=0; ; j++)); do for ((k=0; ; k++)); do A=$k; done; done;"
            " done\ntorchrun"
        ),
        ". ./run.sh\n. ./run.sh\ntorchrun x",
        "eval eval eval eval eval eval 'eval $0'\ntorchrun x",
        "bash run.sh\nbash run.sh\ntorchrun x",
    ],
)
def test_what_never_ends_is_bounded(body: str, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(body)
    try:
        work = follow(tmp_path / "run.sh", body, {})
    except InputError as fault:
        assert "must" in str(fault)
    else:
        assert any(plain(one.words[0]) == "torchrun" for one in work.commands)
