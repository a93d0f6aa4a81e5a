"""The second tracing process of a search: a request and variants come in as pickles, step models go out.

Started only by `seqfit.planning.search`, which also wrote what it reads.
"""

from __future__ import annotations

import pickle
import sys

from seqfit.planning.search import trace_variant


def main() -> None:
    """Until its standard input ends."""
    output, sys.stdout = sys.stdout.buffer, sys.stderr  # what a library prints must not get between the pickles
    request = pickle.load(sys.stdin.buffer)
    while True:
        try:
            variant = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        pickle.dump(trace_variant(request, variant), output)
        output.flush()


if __name__ == "__main__":
    main()
