"""A real Slurm for tests: controller and nodes as processes of this host, in a folder of its own, ended by their pids.

Needs Debian's slurm-wlm and munge, and root. Nothing outside the folder is written: munge has a key and a socket of its
own, and every port is a free one. All nodes are this host, so `NodeHostname` is its name and each slurmd has a port.

    with Cluster(folder, nodes=2) as cluster:
        subprocess.run(["sbatch", "--nodes=2", ...], env=cluster.environment)
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

_DAEMONS = ("slurmctld", "slurmd", "munged")
_TIMEOUT_SECONDS = 120.0
_CONFIGURATION = """\
ClusterName=seqfit
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1
JobRequeue=1
ReturnToService=2
SlurmctldPort={controller_port}
SlurmdParameters=config_overrides
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
SlurmctldTimeout=30
SlurmdTimeout=30
KillWait=20
MinJobAge=300
FirstJobId={first_job}
"""
_NODE = "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=4 RealMemory=1000 State=UNKNOWN\n"


def explain_absence() -> str | None:
    """Why no Slurm can be started here; None where it can."""
    missing = [name for name in _DAEMONS if _find(name) is None]
    if missing:
        return f"no {', '.join(missing)}: apt-get install slurm-wlm munge has them"
    return None if os.geteuid() == 0 else "only root can start Slurm's daemons"


def _find(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def find_free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


class NotStarted(Exception):
    """The daemons are there and do not come up; the message has their last words."""


class Cluster:
    """Started when it is entered, ended when it is left."""

    def __init__(self, folder: Path, nodes: int) -> None:
        self.folder = folder
        self.names = [f"n{number}" for number in range(1, nodes + 1)]
        self.environment = os.environ | {"SLURM_CONF": str(folder / "slurm.conf")}
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        try:
            self._start_munge()
            self._configure()
            self._start("slurmctld", "slurmctld", "-D")
            for name in self.names:
                self.start_node(name)
            self._wait_for(
                lambda: self.command("sinfo", "-h", "-N", "-p", "main", "-t", "idle").count("\n") == len(self.names)
            )
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for daemon in reversed(self._daemons.values()):
            daemon.terminate()
        for daemon in self._daemons.values():
            try:
                daemon.wait(60)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait(10)
        self._stack.close()

    def start_node(self, name: str) -> None:
        """One slurmd."""
        (self.folder / "spool" / name).mkdir(parents=True, exist_ok=True)
        self._start(name, "slurmd", "-D", "-N", name)

    def command(self, *words: str) -> str:
        """What one of Slurm's commands prints."""
        done = subprocess.run(words, env=self.environment, capture_output=True, text=True, check=False, timeout=120)
        return done.stdout

    def _start_munge(self) -> None:
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        options = {"key-file": key, "socket": self.folder / "munge.socket", "pid-file": self.folder / "munge.pid"}
        options |= {"log-file": self.folder / "munge.log", "seed-file": self.folder / "munge.seed"}
        words = [f"--{name}={path}" for name, path in options.items()]
        self._start("munge", "munged", "--foreground", "--force", *words)
        self._wait_for((self.folder / "munge.socket").exists)

    def _configure(self) -> None:
        host = socket.gethostname().split(".")[0]
        (self.folder / "state").mkdir()
        first_job = 1000 + os.getpid() * 50 % 50_000  # a job's port comes from its id, and two clusters may run at once
        port = find_free_port()
        text = _CONFIGURATION.format(host=host, folder=self.folder, controller_port=port, first_job=first_job)
        for name in self.names:
            text += _NODE.format(name=name, host=host, port=find_free_port())
        text += f"PartitionName=main Nodes={','.join(self.names)} Default=YES MaxTime=1-0 State=UP\n"
        (self.folder / "slurm.conf").write_text(text)
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")  # read, though no cgroup is used

    def _start(self, name: str, program: str, *words: str) -> None:
        found = _find(program)
        assert found is not None
        said = self._stack.enter_context(open(self.folder / f"{name}.said", "wb"))  # noqa: SIM115
        self._daemons[name] = subprocess.Popen(
            [found, *words], env=self.environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said
        )

    def _wait_for(self, is_there: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        while not is_there():
            if time.monotonic() > deadline:
                said = {path.name: path.read_text(errors="replace")[-1000:] for path in self.folder.glob("*.said")}
                raise NotStarted(f"Slurm does not start here: {said}")
            time.sleep(0.1)
