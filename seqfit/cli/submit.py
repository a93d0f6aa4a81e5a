"""`seqfit submit RECIPE`: submit a run to Slurm, or submit it again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from seqfit.cli.arguments import OverridesArgument, check_recipe, parse_limit
from seqfit.cli.track import Tool
from seqfit.errors import RecipeError
from seqfit.rundir import files
from seqfit.system import quote

if TYPE_CHECKING:
    from seqfit.launch import Resources, Site, Submitted


def command(
    recipe: Annotated[
        str,
        Argument(
            metavar="RECIPE", help="Library name or YAML file; or the directory of a submitted run, to submit it again."
        ),
    ],
    overrides: OverridesArgument = None,
    nodes: Annotated[int | None, Option(metavar="N", help="Number of nodes, such as --nodes 2 (default: 1).")] = None,
    gpus_per_node: Annotated[
        int | None,
        Option(metavar="N", help="GPUs per node, such as 4, with one process per GPU; 0 trains on CPUs (default: 1)."),
    ] = None,
    processes_per_node: Annotated[
        int | None, Option(metavar="N", help="With --gpus-per-node 0: processes per node, such as 8 (default: 1).")
    ] = None,
    cpus_per_process: Annotated[
        int | None, Option(metavar="N", help="CPU cores per process, such as 8 (default: the profile's, else 4).")
    ] = None,
    time: Annotated[
        str | None,
        Option(
            metavar="TIME",
            help="Time limit, such as 90 (minutes), 4:00:00 or 2-12:00:00 (default: the profile's, else the "
            "cluster's).",
        ),
    ] = None,
    partition: Annotated[
        str | None,
        Option(
            "--partition",
            "-p",
            metavar="NAME",
            help="Partition, such as gpu (default: the profile's, else the cluster's).",
        ),
    ] = None,
    memory: Annotated[
        str | None,
        Option(metavar="SIZE", help="Memory per node, such as 64G (default: the profile's, else the cluster's)."),
    ] = None,
    memory_limit: Annotated[
        str | None,
        Option(metavar="SIZE", help="On CPUs: what each process may allocate, such as 4GiB (default: no limit)."),
    ] = None,
    track: Annotated[
        Tool | None,
        Option(
            metavar="tensorboard|trackio|wandb|mlflow",
            help="Send the run to this tracker while it trains, such as --track tensorboard (default: none).",
        ),
    ] = None,
    project: Annotated[
        str | None,
        Option(
            metavar="NAME",
            help="With --track: project or experiment in the tool, such as --project squad (default: seqfit).",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        Option(
            "--out", "-o", metavar="DIR", help="Run directory to write, such as runs/mine (default: runs/NAME-TIME)."
        ),
    ] = None,
    profile: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="The cluster's settings, such as site.yaml (default: $SEQFIT_PROFILE or "
            "~/.config/seqfit/cluster.yaml).",
        ),
    ] = None,
    array: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="Several runs as one job array: a file, such as sweep.txt, with the overrides of one run per line "
            "(default: one run).",
        ),
    ] = None,
    compare: Annotated[
        str | None,
        Option(
            metavar="LIST",
            help="Compare strategies, with the repeats as one job array: the candidates, such as classic, as in "
            "'seqfit compare --strategies', or a matrix file (.yaml) that also has seeds, repeats and steps (default: "
            "train one run).",
        ),
    ] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Print the job file and write nothing.")] = False,
) -> None:
    """Train on a Slurm cluster: writes a run directory with one readable job file, and submits it.

    Examples: seqfit submit t5-gsm8k --nodes 2 --gpus-per-node 4 --time 4:00:00 --partition gpu;
    seqfit submit mine.yaml --gpus-per-node 0 --processes-per-node 8 --dry-run; seqfit submit runs/mine-20260102-030405;
    seqfit submit bert-agnews --compare classic --gpus-per-node 1 --time 1:00:00

    A job that is preempted, loses a node or reaches its time limit is requeued and resumes exactly.
    """
    from seqfit.launch import ArrayRun, Resources, Site, prepare_job, submit_job
    from seqfit.tracking import check_tool
    from seqfit.validation import load_noted_recipe

    options = {
        "nodes": nodes,
        "gpus_per_node": gpus_per_node,
        "processes_per_node": processes_per_node,
        "cpus_per_process": cpus_per_process,
        "time": time,
        "partition": partition,
        "memory": memory,
    }
    given = {name: value for name, value in options.items() if value is not None}
    passed_on = {"--memory-limit": memory_limit, "--track": track, "--project": project}
    if (Path(recipe) / files.JOB).is_file():
        others = {"out": out, "profile": profile, "array": array, "compare": compare, "dry_run": dry_run or None}
        names = [name for name, value in (others | passed_on).items() if value is not None]
        if further := [*(overrides or ()), *given, *names]:
            raise RecipeError(
                f"'{further[0]}' is given with a run that was already submitted",
                f"its {files.JOB} is submitted again as it is, and the run keeps its recipe",
                f"Change the {files.JOB} itself, or submit a new run",
            )
        from seqfit.comparison import resubmit_comparison

        _print_next(resubmit_comparison(Path(recipe)))
        return
    check_recipe(recipe, "submit")
    site = Site.load(profile)
    resources = Resources.choose(site, **given)  # type: ignore[arg-type]  # each has its parameter's type
    if compare is not None:
        names = [name for name, value in (passed_on | {"--array": array}).items() if value is not None]
        if names:
            rule = "the trials of a comparison differ only in what its candidates change"
            raise RecipeError(f"{names[0]} is given with --compare", rule, "Omit it")
        _compare(recipe, overrides or [], compare, out, resources, site, dry_run=dry_run)
        return
    if parse_limit(memory_limit) is not None and resources.gpus_per_node > 0:  # training would refuse it, hours later
        raise RecipeError(
            "--memory-limit is given for a job on GPUs",
            "it limits the memory of a process that trains on a CPU",
            "Omit it, or give --gpus-per-node 0; --memory is the memory per node",
        )
    if track is None and project is not None:
        raise RecipeError("--project is given without --track", "it is a project in a tool", "Add --track TOOL")
    if track is not None and site.uses_this_python:  # elsewhere it is not known whether the tool is installed
        check_tool(track)
    train_options = [part for name, value in passed_on.items() if value is not None for part in (name, value)]
    folder = out or files.new_run(Path(recipe).stem)
    runs = [ArrayRun(recipe, overrides or ())]
    if array is not None:
        lines = _read_lines(array).items()
        runs = [ArrayRun(recipe, [*(overrides or ()), *line], f"{array}, line {n}") for n, line in lines]
    job = prepare_job(runs, folder, resources, site, train_options, is_array=array is not None, is_dry=dry_run)
    if dry_run:
        print(job.text, end="")
    else:
        for note in dict.fromkeys(note for run in runs for note in load_noted_recipe(run.recipe, run.overrides)[1]):
            print(f"note: {note}")
        _print_next(submit_job(job))


def _compare(
    recipe: str, overrides: list[str], who: str, out: Path | None, resources: Resources, site: Site, *, dry_run: bool
) -> None:
    from seqfit.comparison import prepare_repeats

    matrix = who if Path(who).suffix in (".yaml", ".yml") else {"strategies": who}
    prepared = prepare_repeats(recipe, overrides, matrix, out, resources, site, is_dry=dry_run)
    if dry_run:
        print(prepared.job.text, end="")
        return
    print(prepared.describe())
    _print_next(prepared.submit())


def _print_next(submitted: Submitted) -> None:
    one, all_of_it = submitted.runs[0], submitted.folder
    print(f"job: {submitted.job}\njob file: {all_of_it / files.JOB}")
    print(
        f"next: seqfit status {quote(all_of_it)}; seqfit logs {quote(one)} --follow; seqfit cancel {quote(all_of_it)}"
    )


def _read_lines(array: Path) -> dict[int, list[str]]:
    """The overrides of each line that has any, by its number."""
    import shlex

    try:
        lines = [shlex.split(line, comments=True) for line in array.read_text("utf-8").splitlines()]
    except (OSError, ValueError) as error:  # not there, not UTF-8, a quote that is not closed
        raise RecipeError(
            f"--array is '{array}': {error}",
            "it is a text file with the overrides of one run per line",
            "Write lines such as: seed=1 train.learning_rate=3e-4",
        ) from error
    return {number: line for number, line in enumerate(lines, 1) if line}
