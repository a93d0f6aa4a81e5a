"""Several processes of one run on this machine, started and watched by torchrun's own agent.

`launch_local` (`--nproc N`) takes the argv of `seqfit train` without --nproc, and ends as if it had been one process.
The first process has the terminal; the others print to files, and only the end of the one that failed is shown:

    rank 0   prints as usual    rank 1   killed   ->   torchrun starts both again, from the last snapshot
    rank 1   to a file          and again ...     ->   after --max-restarts its own error is raised

Inside torchrun, srun or `accelerate launch` this file is not needed: processes find each other by their environment.

`python -m seqfit.launch.local ...` takes torchrun's own arguments. torchrun exits with 1 whatever its processes exited
with, but a job file must know whether to try again. srun returns the highest code of all nodes, so errors that must not
be retried get the highest codes:

    0             all processes are done
    75            a signal stopped them, and they have saved what a resume needs
    76            other nodes are gone
    1, 137        a process failed or was killed (128 + the signal)
    202 to 204    an error that the user has to fix: seqfit's own codes 2 to 4, plus 200
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqfit.errors import PeerLost, RecipeError, SeqfitError, Stopped, describe_exit, format_error
from seqfit.rundir import RankNotes
from seqfit.system import known_signals, quote, usable_cores
from seqfit.training import select_handled

SIGNALS = "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1"
_SHOWN_LINES = 20


@dataclass(frozen=True)
class LaunchSpec:
    processes: int  # here
    machines: int = 1
    number: int = 0  # of this machine
    address: str | None = None  # of the first machine
    port: int | None = None


def is_launched() -> bool:
    """Whether torchrun, srun or accelerate has started this process as one of several."""
    return "RANK" in os.environ or ("SLURM_STEP_ID" in os.environ and int(os.environ.get("SLURM_NTASKS", "1")) > 1)


def is_first_rank() -> bool:
    """Whether this process prints for its run."""
    return int(os.environ.get("RANK") or os.environ.get("SLURM_PROCID") or 0) == 0


def launch_local(argv: Sequence[str], run: Path, place: LaunchSpec, *, max_restarts: int, grace_seconds: int) -> None:
    """Run `python -m seqfit ARGV` in all processes; raises the error of the one that failed first."""
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import elastic_launch

    if place.processes < 1:
        raise RecipeError(f"--nproc is {place.processes}", "a run has at least one process", "Give a number from 1")
    if is_launched():
        raise RecipeError(
            "--nproc is given inside torchrun, srun or accelerate",
            "these have already started the processes",
            "Omit --nproc",
        )
    with tempfile.TemporaryDirectory(prefix="seqfit-") as logs, _environment(place, logs):
        config = _configure(Path(logs), place, max_restarts, grace_seconds)
        try:
            elastic_launch(config, sys.executable)("-m", "seqfit", *argv)
        except ChildFailedError as failed:
            rank, failure = failed.get_first_failure()
            raise _explain(run, Path(logs), rank, failure) from None
        except SignalException as stopped:
            message = format_error(
                "Ctrl-C was pressed" if stopped.sigval == signal.SIGINT else f"{stopped.sigval.name} was received",
                "a run that is asked to stop finishes its step and takes a snapshot",
                f"Resume with: seqfit train {quote(run)} --resume --nproc {place.processes}",
            )
            if stopped.sigval == signal.SIGINT:
                raise KeyboardInterrupt(message) from None
            raise Stopped(message) from None


def _configure(logs: Path, place: LaunchSpec, max_restarts: int, grace_seconds: int) -> Any:
    from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs, Std
    from torch.distributed.launcher.api import LaunchConfig

    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # our message has what it would say
    rendezvous: dict[str, Any] = {"rdzv_backend": "c10d", "rdzv_endpoint": "localhost:0", "local_addr": "localhost"}
    if place.machines > 1:
        rendezvous = {"rdzv_backend": "static", "rdzv_endpoint": f"{place.address}:{place.port}"}
        rendezvous |= {"rdzv_configs": {"rank": place.number}}
    # Those that stop the run: not a hangup under nohup, nor a Ctrl-C that a script's `&` ignores.
    signals = select_handled(known_signals(*SIGNALS.split(",")))
    others = range(0 if place.number else 1, place.processes)  # the first process of all has the terminal
    return LaunchConfig(
        min_nodes=place.machines,
        max_nodes=place.machines,
        nproc_per_node=place.processes,
        run_id="seqfit" if place.machines > 1 else uuid.uuid4().hex,
        max_restarts=max_restarts,
        signals_to_handle=",".join(number.name for number in signals),
        shutdown_timeout=grace_seconds,
        logs_specs=DefaultLogsSpecs(log_dir=str(logs), redirects=dict.fromkeys(others, Std.ALL) or Std.NONE),
        **rendezvous,
    )


@contextmanager
def _environment(place: LaunchSpec, faults: str) -> Iterator[None]:
    """What the processes need in addition to torchrun's variables; each gets its share of the cores."""
    from seqfit.parallel import REQUESTED_PROCESSES

    before = dict(os.environ)
    os.environ[REQUESTED_PROCESSES] = str(place.processes * place.machines)
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, usable_cores() // place.processes)))
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    os.environ[RankNotes.FAULTS] = faults
    # One store for all starts would give restarted processes the addresses of those that are gone.
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _explain(run: Path, logs: Path, rank: int, failure: Any) -> SeqfitError:
    """The error of the process that failed first: its note, or the end of its output."""
    fault = RankNotes(logs).find_fault()
    if fault is not None:
        return fault
    kinds: dict[int, type[SeqfitError]] = {**RankNotes.OWN_FAULTS, Stopped.exit_code: Stopped}
    printed = sorted(logs.glob(f"*/*/{rank}/stderr.log"))
    lines = printed[-1].read_text("utf-8", errors="replace").splitlines() if printed else []
    end = "\n".join(lines[-_SHOWN_LINES:])
    error = kinds.get(failure.exitcode, PeerLost)(
        f"rank {rank} {describe_exit(failure.exitcode)}" + (f", and printed:\n{end}\n" if end else ""),
        "a run ends with the first of its processes that fails",
        f"Fix that, then resume with: seqfit train {quote(run)} --resume",
    )
    error.child_code = failure.exitcode
    return error


OWN_FAULT = 200  # above 128 + any signal


def main(arguments: Sequence[str]) -> int:
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # a lost node would fill pages with frames
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous import RendezvousError

    options = run.parse_args(list(arguments))
    try:
        run.run(options)
        return 0
    except ChildFailedError as error:
        _ignore_signals(options.signals_to_handle)
        failures = sorted(error.failures.values(), key=lambda failure: failure.timestamp)
        return choose_code([failure.exitcode for failure in failures])
    except SignalException:
        _ignore_signals(options.signals_to_handle)
        import psutil

        # torchrun waits for its processes, unless a second signal reaches it meanwhile; they may be writing a snapshot.
        psutil.wait_procs(psutil.Process().children(), timeout=options.shutdown_timeout or 30)
        return Stopped.exit_code
    except RendezvousError as error:
        print(f"error: the rendezvous node is gone ({error})", file=sys.stderr)
        return PeerLost.exit_code


def choose_code(exit_codes: Sequence[int]) -> int:
    """Of a node whose processes ended with these codes, in the order of time; signals are negative, as in Python."""
    own = [code for code in exit_codes if code in RankNotes.OWN_FAULTS]
    if own:
        return OWN_FAULT + own[0]
    # The others were ended by torchrun, or failed because the first was gone.
    return exit_codes[0] if exit_codes[0] > 0 else 128 - exit_codes[0]


def _ignore_signals(names: str) -> None:
    """srun ends all nodes as soon as one has failed: from here on that must not change the code."""
    for number in known_signals(*names.split(",")):
        signal.signal(number, signal.SIG_IGN)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
