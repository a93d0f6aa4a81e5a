"""Imports all of seqfit, then runs the commands that are given, in one process; each has to end well.

python journey.py 'train demo --out x' 'evaluate x'
"""

from __future__ import annotations

import importlib
import io
import pkgutil
import shlex
import sys

import seqfit
from seqfit.cli.main import main
from seqfit.tracking.tracker import TOOLS

if __name__ == "__main__":
    need_an_extra = {module for _, module, _ in TOOLS.values()}
    names = {found.name for found in pkgutil.walk_packages(seqfit.__path__, "seqfit.")}
    for name in sorted(names - need_an_extra - {"seqfit.__main__"}):
        importlib.import_module(name)
    sys.stdin = io.StringIO("")
    for line in sys.argv[1:]:
        code = main(shlex.split(line))
        if code != 0:
            sys.exit(f"'seqfit {line}' has ended with {code}")
        print(f"done: {line}", flush=True)
