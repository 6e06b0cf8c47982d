"""A real Slurm of one node on the loopback: munged, slurmctld and slurmd as our children, all state
in one folder.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from planner.launch.rank_environment import free_port

NEEDED = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "scancel", "squeue")
FOLDERS = ("/usr/sbin", "/usr/local/sbin", "/sbin")
_CONF = """\
ClusterName=local
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldPort={first}
SlurmdPort={second}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0
ReturnToService=2
SlurmdParameters=config_overrides
KillWait=2
MpiDefault=none
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
NodeName=away NodeAddr=127.0.0.1 Port={third} CPUs=4 State=DOWN
PartitionName=debug Nodes={host} Default=YES MaxTime=INFINITE State=UP
PartitionName=down Nodes=away State=UP
"""


@contextlib.contextmanager
def slurm(folder: Path) -> Iterator[Path]:
    """Path of slurm.conf (also put into SLURM_CONF) while the daemons run. AssertionError names
    what is not installed.
    """
    path = os.pathsep.join((os.environ["PATH"], *FOLDERS))
    absent = [name for name in NEEDED if shutil.which(name, path=path) is None]
    assert not absent, (
        f"tests of Slurm need a real one, but {', '.join(absent)} are not there: apt-get install"
        " slurm-wlm munge"
    )
    assert os.geteuid() == 0, (
        "tests of Slurm start slurmd, which must be root: run them as root, as a container does"
    )
    conf, before = _written(folder), os.environ.get("SLURM_CONF")
    os.environ["SLURM_CONF"] = str(conf)
    daemons: list[subprocess.Popen[bytes]] = []
    try:
        for words in (
            _munge(folder),
            ["slurmctld", "-D", "-f", str(conf)],
            ["slurmd", "-D", "-f", str(conf), "-N", _host()],
        ):
            with (folder / f"{words[0]}.out").open("wb") as log:
                daemons.append(
                    subprocess.Popen(
                        words,
                        stdout=log,
                        stderr=log,
                        stdin=subprocess.DEVNULL,
                        env={**os.environ, "PATH": path},
                    )
                )
            if words[0] == "munged":
                _until(lambda: (folder / "munge.socket").exists(), folder)
        _until(_idle, folder)
        yield conf
        _emptied()
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
        for daemon in daemons:
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(0.5)
            daemon.kill()
            daemon.wait()
        os.environ.pop("SLURM_CONF") if before is None else os.environ.update(SLURM_CONF=before)


def _emptied(limit_s: float = 8) -> None:
    """Jobs still ending are waited for: without slurmd nobody would end their processes."""
    until = time.monotonic() + limit_s
    while (
        subprocess.run(["squeue", "-h"], capture_output=True, text=True).stdout.strip()
        and time.monotonic() < until
    ):
        subprocess.run(["scancel", "--state=RUNNING"], capture_output=True)
        subprocess.run(["scancel", "--state=PENDING"], capture_output=True)
        time.sleep(0.2)


def _host() -> str:
    return socket.gethostname().split(".")[0]


def _written(folder: Path) -> Path:
    folder.chmod(0o755)
    for name in ("state", "spool"):
        (folder / name).mkdir()
    (folder / "munge.key").write_bytes(os.urandom(64))
    (folder / "munge.key").chmod(0o600)
    conf = folder / "slurm.conf"
    conf.write_text(
        _CONF.format(
            host=_host(), folder=folder, first=free_port(), second=free_port(), third=free_port()
        )
    )
    return conf


def _munge(folder: Path) -> list[str]:
    names = {
        "socket": "munge.socket",
        "key-file": "munge.key",
        "pid-file": "munge.pid",
        "log-file": "munge.log",
        "seed-file": "munge.seed",
    }
    return [
        "munged",
        "--foreground",
        "--force",
        *(f"--{word}={folder / name}" for word, name in names.items()),
    ]


def _idle() -> bool:
    done = subprocess.run(
        ["sinfo", "-h", "-p", "debug", "-o", "%t"], capture_output=True, text=True
    )
    return done.stdout.strip() == "idle"


def _until(holds: object, folder: Path, limit_s: float = 30) -> None:
    until = time.monotonic() + limit_s
    while not holds():  # type: ignore[operator]
        if time.monotonic() > until:
            said = "\n".join(
                f"{path.name}: {path.read_text(errors='replace')[-1500:]}"
                for path in sorted(folder.glob("*.out"))
            )
            raise AssertionError(f"Slurm did not come up:\n{said}")
        time.sleep(0.1)
