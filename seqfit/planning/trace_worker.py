"""The process that traces beside a search: a question and variants come in as pickles, models go out.

Started by `seqfit.planning.search` alone, which also wrote what it reads.
"""

from __future__ import annotations

import pickle
import sys

from seqfit.planning.search import trace_variant


def main() -> None:
    """Until its standard input ends."""
    answers, sys.stdout = sys.stdout.buffer, sys.stderr  # what a library prints must not get between them
    question = pickle.load(sys.stdin.buffer)
    while True:
        try:
            variant = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        pickle.dump(trace_variant(question, variant), answers)
        answers.flush()


if __name__ == "__main__":
    main()
