"""`seqfit doctor`: what this machine has and lacks."""

from __future__ import annotations

import dataclasses
import json
import textwrap
from itertools import chain
from typing import Annotated

import typer
from typer import Option

from seqfit.doctor import examine
from seqfit.system import quiet_torch

_WIDTH = 110


def command(
    as_json: Annotated[bool, Option("--json", help="Print the findings as JSON.")] = False,
    network: Annotated[bool, Option("--network", help="Also try to reach the Hub, for at most 3 seconds.")] = False,
    selftest: Annotated[
        bool,
        Option(
            "--selftest",
            help="Train tiny models with every strategy on this device: check updates against the baseline, and memory "
            "against its prediction.",
        ),
    ] = False,
) -> None:
    """Show what this machine has and lacks, and how to fix it.

    Exit code 1 if something required is missing, or a check of --selftest fails. Examples: seqfit doctor;
    seqfit doctor --selftest
    """
    if selftest:
        _run_selftest(as_json)
        return
    findings = examine(network=network)
    if as_json:
        print(json.dumps([dataclasses.asdict(finding) for finding in findings], indent=2, ensure_ascii=False))
    else:
        width = max(len(finding.name) for finding in findings)
        indent = " " * (width + 11)
        for finding in findings:
            head = f"{finding.state:<8} {finding.name:<{width}}  "
            print(textwrap.fill(finding.detail, _WIDTH, initial_indent=head, subsequent_indent=indent))
            if finding.fix:
                print(textwrap.fill(f"fix: {finding.fix}", _WIDTH, initial_indent=indent, subsequent_indent=indent))
        flagged = sum(finding.state != "ok" for finding in findings)
        print(f"\n{flagged} of {len(findings)} need attention." if flagged else "\nAll checks passed.")
    if any(finding.state == "missing" for finding in findings):
        raise typer.Exit(1)


def _run_selftest(as_json: bool) -> None:
    quiet_torch()
    from seqfit.selftest import check_predictions, run_selftest  # imports torch
    from seqfit.step import choose_device
    from seqfit.strategy import Strategy

    device = choose_device(Strategy())
    checks = []
    for check in chain(run_selftest(device), check_predictions(device)):
        checks.append(check)
        if not as_json:
            print(f"{check.state:<8} {check.name:<34} {check.detail}")
    wrong = [check for check in checks if check.state == "wrong"]
    if as_json:
        print(json.dumps([dataclasses.asdict(check) for check in checks], indent=2, ensure_ascii=False))
    else:
        print(f"\n{f'{len(wrong)} of {len(checks)} checks failed' if wrong else 'All checks passed'} on {device}.")
    if wrong:
        raise typer.Exit(1)
