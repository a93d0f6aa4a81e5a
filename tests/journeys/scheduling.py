"""Two journeys at a time: what is typed in one folder stays on one worker, in its order, and Slurm is on one of them.

README.md, 13 commands            worker 1
docs/cluster.md, docs/parallel.md worker 2: one cluster serves them; a second one would only take from the first

Each worker has a core of its own: two trainings with two threads each on two cores wait for each other at every
parallel region (`seqfit train demo` takes 98 s alone on both cores, and more than 600 s beside another).
"""

from __future__ import annotations

import re

from xdist.scheduler import LoadScopeScheduling

from tests.journeys.markdown import read_documents
from tests.journeys.substitutions import NEEDS_SLURM

_FOLDER = re.compile(r"\[((?:docs/)?[\w-]+\.md)(?=:\d+: )|\[(\w+)(?=: )")  # of a document, or of a group of commands
_ON_SLURM = {typed.document for typed in read_documents() if re.search(NEEDS_SLURM, typed.text)}
_ON_SLURM |= {"cluster", "tests/launch/test_cluster.py"}


class JourneyScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Of `pytest -n 2 --dist loadscope`."""

    def _split_scope(self, nodeid: str) -> str:
        found = _FOLDER.search(nodeid)
        name = found.group(1) or found.group(2) if found is not None else nodeid.split("::")[0]
        return "slurm" if name in _ON_SLURM else name
