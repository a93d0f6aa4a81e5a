"""A comparison on a Slurm cluster: its rounds are the tasks of a job array, each on one node.

In: a recipe, what is asked for, and the nodes. Out: a folder as `seqfit compare` makes it, with a job file, and Slurm
has the job. Every task then calls `run_round`; the last one that ends finds all outcomes.

    task 0   n1   baseline fp16 recompute        candidates of a round are compared with each other, so they run on one
    task 1   n2   recompute fp16 baseline        node, one after another; rounds may run on different nodes, of
    task 2   n1   fp16 recompute baseline        different speed, even: only differences within rounds are judged

What can run is judged by the nodes that are asked for, not by the machine that submits. A task that is preempted goes
on with its round, from the trial that was torn; on another node it begins the round anew. No budget: it cuts steps by
what one machine needs for all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from seqfit.comparison.compare import choose_folder, locked, say_command, stopped_orderly
from seqfit.comparison.live import ComparisonView, SilentComparisonView
from seqfit.comparison.matrix import build_matrix, build_recipe, list_repeats
from seqfit.comparison.options import ComparisonOptions
from seqfit.comparison.predicted import predict_candidates, tokenize_ahead
from seqfit.comparison.records import (
    MATRIX,
    PREDICTIONS,
    Comparison,
    Matrix,
    dump_predictions,
    format_matrix,
    load_matrix,
    read_outcomes,
    read_outcomes_at,
    repeat_folder,
    write_outcomes,
)
from seqfit.comparison.repeats import find_all_missing, find_missing, run_one_repeat, write_so_far
from seqfit.comparison.trial import name_node
from seqfit.errors import RecipeError, RunError
from seqfit.hardware.cards import Card, load_cards
from seqfit.hardware.probe import Driver, Gpu, Machine
from seqfit.hub import is_remote_code_trusted
from seqfit.launch import submit as launch
from seqfit.launch.job_file import JobRequest, uses_this_python
from seqfit.launch.resources import Resources
from seqfit.launch.site import Site
from seqfit.launch.slurm import list_runs, read_status
from seqfit.launch.submit import check_places
from seqfit.recipe.resolve import RUN_RECIPE
from seqfit.recipe.schema import Recipe
from seqfit.rundir.writer import RunWriter
from seqfit.strategy.load import load_strategy
from seqfit.system import quote
from seqfit.validation import load_checked_recipe


@dataclass(frozen=True)
class Prepared:
    """A comparison that could be submitted; nothing is written yet."""

    job: JobRequest
    texts: Mapping[Path, str]  # files that it needs
    matrix: Matrix


@dataclass(frozen=True)
class RepeatStatus:
    """Of one round, now."""

    place: Path
    job: str
    queue: str  # what Slurm says
    is_over: bool  # nothing more will come without a new submission
    ended: int
    trials: int
    restarts: int


def prepare_repeats(
    recipe: Recipe | str | Path | Mapping[str, Any],
    overrides: Sequence[str],
    asked: ComparisonOptions,
    out: Path | None,
    resources: Resources,
    site: Site,
    *,
    is_dry: bool = False,
) -> Prepared:
    """Everything that can be wrong with it is found here; `is_dry`: model and data need not be on this machine."""
    _check_asked(asked, resources)
    placed = _choose_device(asked, load_strategy(load_checked_recipe(recipe, overrides)).device, resources)
    node, packages = describe_node(resources, site), uses_this_python(site)
    built = replace(build_matrix(recipe, overrides, placed, node, knows_packages=packages), is_apart=True)
    rounds = list_repeats(built)
    if not any(rounds):
        raise RecipeError(
            "no entrant can run on the nodes that are asked for",
            "a job has something to run",
            "Ask for other nodes (--gpus-per-node), or predict here: seqfit compare RECIPE --gpu CARD",
        )
    running = [entrant for entrant in built.entrants if not entrant.impossible]
    check_places([] if is_dry else (build_recipe(built, entrant, built.seeds[0]) for entrant in running), site)
    folder = choose_folder(built.name, out)
    RunWriter.check_free(folder)
    place = folder.absolute()
    job = JobRequest(
        folder=place,
        runs=[repeat_folder(place, number) for number in range(len(rounds))],
        resources=resources,
        site=site,
        environment=launch.list_environment(),
        trusts_remote_code=is_remote_code_trusted(),
        is_comparison=True,
    )
    texts = {place / RUN_RECIPE: built.recipe, place / MATRIX: format_matrix(built, command=say_command("submit"))}
    return Prepared(job, texts, built)


def submit_repeats(prepared: Prepared) -> launch.Submitted:
    """Write the folder and give the job to Slurm; where that refuses, nothing is left behind."""
    return launch.submit(prepared.job, prepared.texts)


def resubmit_repeats(folder: Path) -> launch.Submitted:
    """The rounds that are not finished, with the job file as it is now. Trials that failed are tried again."""
    matrix, outcomes = load_matrix(folder), read_outcomes(folder)
    useful = [outcome for outcome in outcomes if outcome.state != "failed"]
    missing = {number: find_missing(matrix, number, useful) for number in range(len(list_repeats(matrix)))}
    look = f"Look at it: seqfit report {quote(folder)}"
    unfinished = launch.find_unfinished(folder, lambda place: not missing[int(place.name)], look)
    for place in unfinished.values():
        write_outcomes([outcome for outcome in read_outcomes_at(place) if outcome.state != "failed"], place)
    return launch.hand_over(folder, unfinished)


def run_repeat(
    folder: Path,
    number: int,
    view: ComparisonView | None = None,
    when_complete: Callable[[Comparison], None] = lambda _: None,
) -> Comparison:
    """The trials of one round that have no outcome yet, here and now; what all rounds say so far.

    `when_complete` is told of the comparison by the round that ends last.
    """
    matrix = load_matrix(folder)
    _check_round(matrix, folder, number)
    place, seed = repeat_folder(folder, number), list_repeats(matrix)[number][0].seed
    with view or SilentComparisonView() as shown, stopped_orderly(f"seqfit submit {quote(folder)}"), locked(place):
        _begin_anew_elsewhere(place, shown)
        tokenize_ahead(replace(matrix, seeds=(seed,)), shown.say)
        if number == 0 and not (folder / PREDICTIONS).is_file():  # one does it for all
            dump_predictions(list(predict_candidates(matrix, (), shown.say)), folder)
        run_one_repeat(matrix, folder, number, shown, place)
        with locked(folder, waits=True):  # who comes last has read the outcomes of all others
            comparison = write_so_far(folder)
            if not find_all_missing(matrix, read_outcomes(folder)):
                when_complete(comparison)
            return comparison


def _begin_anew_elsewhere(place: Path, view: ComparisonView) -> None:
    """A round that Slurm has moved: trials of two machines are not compared with each other."""
    nodes = {outcome.node for outcome in read_outcomes_at(place)} - {name_node()}
    if nodes:
        view.say(f"this round has begun on {', '.join(sorted(nodes))}; here, on {name_node()}, it begins anew")
        write_outcomes([], place)


def find_comparison(place: Path) -> Path | None:
    """The folder of a comparison that was given to Slurm, from itself or one of its rounds; None for anything else."""
    found = (folder for folder in (place, place.absolute().parent.parent) if is_submitted(folder))
    return next(found, None)


def is_submitted(folder: Path) -> bool:
    """Whether it is the folder of a comparison that was given to Slurm."""
    return (folder / MATRIX).is_file() and launch.can_submit_again(str(folder))


def is_complete(folder: Path) -> bool:
    """Whether every trial of every round has ended."""
    return not find_all_missing(load_matrix(folder), read_outcomes(folder))


def read_repeats(folder: Path) -> list[RepeatStatus]:
    """How the rounds of a submitted comparison are doing."""
    matrix, outcomes = load_matrix(folder), read_outcomes(folder)
    standings = []
    for place, trials in zip(list_runs(folder), map(len, list_repeats(matrix)), strict=True):
        ended = trials - len(find_missing(matrix, int(place.name), outcomes))
        slurm, is_done = read_status(place), ended == trials
        queue = "finished" if is_done else slurm.queue
        job, restarts = slurm.submission.job, slurm.restarts
        standings.append(RepeatStatus(place, job, queue, is_done or slurm.is_over, ended, trials, restarts))
    return standings


def describe_node(resources: Resources, site: Site) -> Machine:
    """What a trial will find, as far as it is known before a node is there."""
    card = _find_card(site.gpu_type)
    name, memory_bytes = (site.gpu_type or "a GPU", 0) if card is None else (card.name, card.memory_bytes)
    gpus = tuple(Gpu(index, name, memory_bytes, 0, card) for index in range(resources.gpus_per_node))
    driver = Driver(gpus=gpus, problem="" if gpus else "--gpus-per-node is 0")
    return Machine("", resources.cpus_per_node, None, None, True, driver)


def _find_card(gpu_type: str | None) -> Card | None:
    """Clusters name their GPUs as they like: 'v100' is any card of that name, if all of them can do the same.

    One that the table does not know is taken for able to do everything.
    """
    wanted = (gpu_type or "").lower()
    found = [card for key, card in load_cards().items() if wanted and wanted in (key, *key.split("-"))]
    return found[0] if len({card.has_bf16 for card in found}) == 1 else None


def _choose_device(asked: ComparisonOptions, stated: str, resources: Resources) -> ComparisonOptions:
    """Told, so that a node that lacks its GPU is not passed over; as the recipe says, where it says."""
    if resources.gpus_per_node and (stated == "cpu" or asked.devices == ["cpu"]):
        raise RecipeError(
            f"training is to be on a CPU, and --gpus-per-node is {resources.gpus_per_node}",
            "a job asks for what it uses",
            "Give --gpus-per-node 0, or leave the device out",
        )
    if asked.devices or stated != "auto":
        return asked
    return asked.model_copy(update={"devices": ["cuda" if resources.gpus_per_node else "cpu"]})


def _check_asked(asked: ComparisonOptions, resources: Resources) -> None:
    if asked.budget_seconds is not None:
        raise RecipeError(
            "a budget is given for a comparison on a cluster",
            "it cuts steps by what one machine needs for all trials, and here rounds run side by side",
            "Give steps in a matrix file instead, and --time for each round",
        )
    if resources.nodes > 1:
        raise RecipeError(
            f"--nodes is {resources.nodes} for a comparison",
            "the trials of a round run on one node, one after another; rounds are spread over nodes by themselves",
            "Leave --nodes out",
        )


def _check_round(matrix: Matrix, folder: Path, number: int) -> None:
    rounds = len(list_repeats(matrix))
    if not matrix.is_apart or not repeat_folder(folder, number).is_dir():
        raise RunError(
            f"--round is {number} for '{folder}'",
            f"it is one of 0 to {rounds - 1}, in the folder of a comparison that was given to Slurm",
            "Submit one (seqfit submit RECIPE --compare classic), or go on here: seqfit compare FOLDER --resume",
        )
