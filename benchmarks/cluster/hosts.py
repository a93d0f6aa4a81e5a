"""Hosts that are network namespaces of this machine: an address, a name and a loopback of their own, one cable between.

    10.77.31.1 seqfit1 <---- veth ----> 10.77.31.2 seqfit2

In: nothing but root and `ip` (iproute2). Out: a way to start commands on a host and to kill everything on it. What two
processes on one host share by accident (a loopback, a host name) is not shared here; the file system is, as on a
cluster.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

NETWORK = "10.77.31"
_FILES = Path("/etc/netns")  # of a namespace, which `ip netns exec` lays over those in /etc


class Hosts:
    """Two hosts, there while it is entered."""

    names = ("seqfit1", "seqfit2")

    def __enter__(self) -> Self:
        one, two = self.names
        try:
            for name in self.names:
                _ip("netns", "add", name)
            _ip("link", "add", "eth0", "netns", one, "type", "veth", "peer", "name", "eth0", "netns", two)
            for number, name in enumerate(self.names, 1):
                _ip("-n", name, "addr", "add", f"{NETWORK}.{number}/24", "dev", "eth0")
                for device in ("eth0", "lo"):
                    _ip("-n", name, "link", "set", device, "up")
                self._write_names(name)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in self.names:
            self.kill(name)
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
            shutil.rmtree(_FILES / name, ignore_errors=True)

    def start(
        self, name: str, command: Sequence[str], log: Path, environment: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        """A command on a host; what it prints is added to the log."""
        named = ["unshare", "--uts", "sh", "-c", 'hostname "$0"; exec "$@"', name, *command]
        with open(log, "ab") as stream:
            return subprocess.Popen(
                ["ip", "netns", "exec", name, *named], stdout=stream, stderr=stream, env=os.environ | environment
            )

    def kill(self, name: str) -> int:
        """SIGKILL to all that runs on a host; returns how many that were."""
        listed = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=False)
        pids = [int(pid) for pid in listed.stdout.split()]
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        return len(pids)

    def _write_names(self, name: str) -> None:
        (_FILES / name).mkdir(parents=True, exist_ok=True)
        known = [f"{NETWORK}.{number} {host}" for number, host in enumerate(self.names, 1)]
        (_FILES / name / "hosts").write_text("\n".join(["127.0.0.1 localhost", *known]) + "\n", "utf-8")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)
