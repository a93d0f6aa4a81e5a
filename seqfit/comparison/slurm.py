"""A comparison on a Slurm cluster: its repeats are the tasks of a job array, each on one node.

In: a recipe, options and the nodes. Out: a folder as `seqfit compare` makes it, with a job file, submitted to Slurm.
Every task then calls `run_repeat`; the last one to end has all outcomes.

    task 0   n1   baseline fp16 recompute        candidates of a repeat are compared with each other, so they run on one
    task 1   n2   recompute fp16 baseline        node, one after another; repeats may run on different nodes, even of
    task 2   n1   fp16 recompute baseline        different speed: only differences within repeats are tested

What is available is determined by the requested nodes, not by the machine that submits. A task that is preempted
resumes its repeat with the trial that was interrupted; on another node it starts the repeat over. A budget is refused,
because it fits steps to the time that one machine needs for all trials.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from seqfit.comparison.compare import choose_folder, format_command, locked, stopped_by_signals
from seqfit.comparison.live import ComparisonView, choose_comparison_view
from seqfit.comparison.matrix import build_matrix, build_recipe, describe_matrix, list_repeats
from seqfit.comparison.options import ComparisonOptions, read_options
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
from seqfit.hardware import Driver, Gpu, Machine, load_cards
from seqfit.launch import JobRequest, Resources, Site, Submitted, check_places, read_statuses, submit_again, submit_job
from seqfit.recipe import Recipe
from seqfit.rundir import RunWriter, files
from seqfit.strategy import load_strategy
from seqfit.system import quote
from seqfit.validation import load_checked_recipe


@dataclass(frozen=True)
class PreparedJob:
    job: JobRequest
    matrix: Matrix

    def describe(self) -> str:
        return describe_matrix(self.matrix)

    def submit(self) -> Submitted:
        """Writes the folder and submits the job; if Slurm refuses it, nothing is left behind."""
        return submit_job(self.job)


@dataclass(frozen=True)
class RepeatStatus:
    place: Path
    job: str
    queue: str  # its state in Slurm
    is_over: bool  # nothing more will run unless it is submitted again
    ended: int
    trials: int
    restarts: int


def prepare_repeats(
    recipe: Recipe | str | Path | Mapping[str, Any],
    overrides: Sequence[str],
    matrix: str | Path | Mapping[str, Any],
    out: Path | None,
    resources: Resources,
    site: Site,
    *,
    is_dry: bool = False,
) -> PreparedJob:
    """Finds all mistakes; `matrix`: a file or its fields; `is_dry`: model and data need not be on this machine."""
    options = read_options(matrix, {})
    _check_options(options, resources)
    placed = _choose_device(options, load_strategy(load_checked_recipe(recipe, overrides)).device, resources)
    node, packages = describe_node(resources, site), site.uses_this_python
    built = replace(build_matrix(recipe, overrides, placed, node, knows_packages=packages), repeats_are_jobs=True)
    repeats = list_repeats(built)
    if not any(repeats):
        raise RecipeError(
            "no candidate can run on the requested nodes",
            "a job needs at least one",
            "Request other nodes (--gpus-per-node), or predict here: seqfit compare RECIPE --gpu CARD",
        )
    running = [candidate for candidate in built.candidates if not candidate.unavailable]
    check_places([] if is_dry else (build_recipe(built, candidate, built.seeds[0]) for candidate in running), site)
    folder = choose_folder(built.name, out)
    RunWriter.check_free(folder)
    place = folder.absolute()
    texts = {place / files.RECIPE: built.recipe, place / MATRIX: format_matrix(built, command=format_command("submit"))}
    job = JobRequest(
        folder=place,
        runs=[repeat_folder(place, number) for number in range(len(repeats))],
        resources=resources,
        site=site,
        is_comparison=True,
        texts=texts,
    )
    return PreparedJob(job, built)


def resubmit_comparison(folder: Path) -> Submitted:
    """What is unfinished of a run, an array or a comparison, with its current job file; failed trials run again."""
    if not is_submitted(folder):
        return submit_again(folder)
    matrix, outcomes = load_matrix(folder), read_outcomes(folder)
    useful = [outcome for outcome in outcomes if outcome.state != "failed"]
    missing = {number: find_missing(matrix, number, useful) for number in range(len(list_repeats(matrix)))}
    look = f"Look at it: seqfit report {quote(folder)}"

    def forget_failures(place: Path) -> None:
        write_outcomes([outcome for outcome in read_outcomes_at(place) if outcome.state != "failed"], place)

    return submit_again(folder, lambda place: not missing[int(place.name)], look, forget_failures)


def run_repeat(
    folder: Path,
    number: int,
    when_complete: Callable[[Comparison], None] = lambda _: None,
    view: ComparisonView | None = None,
) -> Comparison:
    """Its missing trials; the results of all repeats so far. `when_complete` is called by the repeat that ends last."""
    matrix, place = load_matrix(folder), repeat_folder(folder, number)
    if not matrix.repeats_are_jobs or not place.is_dir():
        raise RunError(
            f"--repeat is {number} for '{folder}'",
            f"it is one of 0 to {len(list_repeats(matrix)) - 1}, in the folder of a submitted comparison",
            "Submit one (seqfit submit RECIPE --compare classic), or resume here: seqfit compare FOLDER --resume",
        )
    seed = list_repeats(matrix)[number][0].seed
    with view or choose_comparison_view() as shown, stopped_by_signals(f"seqfit submit {quote(folder)}"), locked(place):
        nodes = {outcome.node for outcome in read_outcomes_at(place)} - {name_node()}
        if nodes:  # Slurm has moved this repeat: trials on two machines are not comparable
            shown.log(f"this repeat began on {', '.join(sorted(nodes))}; it starts over on {name_node()}")
            write_outcomes([], place)
        tokenize_ahead(replace(matrix, seeds=(seed,)), shown.log)
        if number == 0 and not (folder / PREDICTIONS).is_file():  # once for all repeats
            dump_predictions(list(predict_candidates(matrix, (), shown.log)), folder)
        run_one_repeat(matrix, folder, number, shown, place)
        with locked(folder, waits=True):  # the last one reads the outcomes of all others
            comparison = write_so_far(folder)
            if not find_all_missing(matrix, read_outcomes(folder)):
                when_complete(comparison)
            return comparison


def find_comparison(place: Path) -> Path | None:
    """The folder of a submitted comparison, given itself or one of its repeats; None for anything else."""
    found = (folder for folder in (place, place.absolute().parent.parent) if is_submitted(folder))
    return next(found, None)


def is_submitted(folder: Path) -> bool:
    return (folder / MATRIX).is_file() and (folder / files.JOB).is_file()


def read_repeats(folder: Path) -> list[RepeatStatus]:
    matrix, outcomes = load_matrix(folder), read_outcomes(folder)
    found = []
    for slurm, trials in zip(read_statuses([folder]), map(len, list_repeats(matrix)), strict=True):
        place = slurm.run
        ended = trials - len(find_missing(matrix, int(place.name), outcomes))
        is_done = ended == trials
        queue = "finished" if is_done else slurm.queue
        job, restarts = slurm.submission.job, slurm.restarts
        found.append(RepeatStatus(place, job, queue, is_done or slurm.is_over, ended, trials, restarts))
    return found


def describe_node(resources: Resources, site: Site) -> Machine:
    """The requested node, as far as it is known before it is allocated."""
    wanted = (site.gpu_type or "").lower()  # 'v100' is any card of that name, if all have the same abilities
    found = [card for key, card in load_cards().items() if wanted and wanted in (key, *key.split("-"))]
    card = found[0] if len({card.has_bf16 for card in found}) == 1 else None  # unknown: able to do everything
    name, memory_bytes = (site.gpu_type or "a GPU", 0) if card is None else (card.name, card.memory_bytes)
    gpus = tuple(Gpu(index, name, memory_bytes, 0, card) for index in range(resources.gpus_per_node))
    driver = Driver(gpus=gpus, problem="" if gpus else "--gpus-per-node is 0")
    return Machine("", resources.cpus_per_node, None, None, True, driver)


def _choose_device(options: ComparisonOptions, stated: str, resources: Resources) -> ComparisonOptions:
    """The recipe's device, or an explicit one, so that a node without its GPU fails instead of using the CPU."""
    if resources.gpus_per_node and (stated == "cpu" or options.devices == ["cpu"]):
        raise RecipeError(
            f"the device is cpu, and --gpus-per-node is {resources.gpus_per_node}",
            "a job requests what it uses",
            "Give --gpus-per-node 0, or leave the device out",
        )
    if options.devices or stated != "auto":
        return options
    return options.model_copy(update={"devices": ["cuda" if resources.gpus_per_node else "cpu"]})


def _check_options(options: ComparisonOptions, resources: Resources) -> None:
    if options.budget_seconds is not None:
        raise RecipeError(
            "a budget is given for a comparison on a cluster",
            "it fits steps to the time of one machine, and here repeats run in parallel",
            "Set steps in a matrix file instead, and --time for each repeat",
        )
    if resources.nodes > 1:
        raise RecipeError(
            f"--nodes is {resources.nodes} for a comparison",
            "the trials of a repeat run on one node, one after another; Slurm spreads repeats over nodes",
            "Leave --nodes out",
        )
