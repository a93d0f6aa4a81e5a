"""`python -m seqfit.launch.node ...`: torchrun on one node, ending with a code that says why.

In: torchrun's own arguments. Out: its processes, and an exit code. The one idea: torchrun ends with 1 whatever its
processes ended with, and a job file must know whether to try again. srun hands on the highest code of all nodes, so
what must not be tried again gets the highest ones:

    0          all processes are done
    75         a signal asked them to stop, and they have saved what they need to go on
    76         other nodes are gone
    1, 137     a process failed or was killed (128 + the signal)
    202, 203   what was given is wrong, or training can't go on: seqfit's own codes 2 and 3, plus 200
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

from seqfit.errors import PeerLost, SeqfitError, Stopped, TrainingFailed
from seqfit.system import known_signals

OWN_FAULT = 200  # above 128 + any signal
_OWN_CODES = (SeqfitError.exit_code, TrainingFailed.exit_code)


def main(arguments: Sequence[str]) -> int:
    """Start this node's processes, wait for them, and say how they ended."""
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # a lost node would fill pages with frames
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous import RendezvousError

    asked = run.parse_args(list(arguments))
    try:
        run.run(asked)
        return 0
    except ChildFailedError as error:
        _ignore_signals(asked.signals_to_handle)
        failures = sorted(error.failures.values(), key=lambda failure: failure.timestamp)
        return choose_code([failure.exitcode for failure in failures])
    except SignalException:
        _ignore_signals(asked.signals_to_handle)
        _wait_for_processes(asked.shutdown_timeout or 30)
        return Stopped.exit_code
    except RendezvousError as error:
        print(f"error: the node where all meet is gone ({error})", file=sys.stderr)
        return PeerLost.exit_code


def choose_code(exit_codes: Sequence[int]) -> int:
    """Of a node whose processes ended with these codes, the first first; signals are negative, as Python has them."""
    own = [code for code in exit_codes if code in _OWN_CODES]
    if own:
        return OWN_FAULT + own[0]
    # The others were ended by torchrun, or failed because the first was gone.
    return exit_codes[0] if exit_codes[0] > 0 else 128 - exit_codes[0]


def _ignore_signals(names: str) -> None:
    """srun ends all nodes as soon as one has ended badly: from here on that must not change the code."""
    for number in known_signals(*names.split(",")):
        signal.signal(number, signal.SIG_IGN)


def _wait_for_processes(seconds: float) -> None:
    """torchrun waits for its processes, unless a second signal reaches it meanwhile; they may be writing a snapshot."""
    import psutil

    psutil.wait_procs(psutil.Process().children(), timeout=seconds)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
