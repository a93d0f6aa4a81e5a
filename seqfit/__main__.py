"""`python -m seqfit` does what the command `seqfit` does."""

from __future__ import annotations

import sys

from seqfit.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
