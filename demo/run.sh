#!/bin/sh
# The demo: fine-tune, score before and after, ask a question about a place that no training text names.
set -eu
SEQFIT=${SEQFIT:-seqfit}
RUN=${RUN:-runs/demo}
case "$RUN" in
  */demo) rm -rf "$RUN" ;; # the demo's own directory is made anew each time; any other is refused if it exists
esac
say() { printf '\n$ %s\n' "$*"; }

say seqfit train demo --out "$RUN"
"$SEQFIT" train demo --out "$RUN"

say seqfit evaluate "$RUN" --before --examples 2
"$SEQFIT" evaluate "$RUN" --before --examples 2
