#!/bin/sh
# The demo: fine-tune, score before and after, ask about a country that no training text names.
set -eu
SEQFIT=${SEQFIT:-seqfit}
RUN=${RUN:-runs/demo}
if [ "$RUN" = runs/demo ]; then
  rm -rf "$RUN" # the demo's own directory is made anew each time; any other is refused if it holds something
fi

show() {
  printf '\n$ seqfit'
  for word in "$@"; do
    case "$word" in *" "*) printf " '%s'" "$word" ;; *) printf ' %s' "$word" ;; esac
  done
  printf '\n'
  "$SEQFIT" "$@"
}

show train demo --out "$RUN"
show evaluate "$RUN" --before --examples 2
show predict "$RUN" "question=What is the capital of Lesotho?" \
  "context=The capital of Tunisia is Tunis. The capital of Lesotho is Maseru. The capital of Haiti is Port-au-Prince."

printf '\nThe run is in %s, its summary page is %s\n' "$RUN" "$RUN/summary.html"
printf 'Try it in a browser: %s serve %s\n' "$SEQFIT" "$RUN"
