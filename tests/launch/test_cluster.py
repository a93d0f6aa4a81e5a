"""Real jobs on a real Slurm: two nodes on this host, a tiny model, and what a cluster does to jobs.

Whatever happens to a job in its middle, its run ends as the one that was left alone, bit-exactly.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from seqfit.cli.main import main
from seqfit.comparison.records import load_matrix, read_outcomes, read_outcomes_at, read_results
from seqfit.comparison.repeats import find_all_missing
from seqfit.launch.slurm import RunStatus, last_submission, read_status
from seqfit.rundir import files
from seqfit.rundir.reader import RecordFile, Run
from seqfit.training.snapshot_files import find_snapshots
from tests.launch.cluster import Cluster
from tests.switched_off import prediction_off
from tests.training.test_ranks import start_ranks

STEPS, MIDDLE, LATE = 200, 30, 60
OPTIONS = ["--nodes", "2", "--gpus-per-node", "0", "--cpus-per-process", "1", "--time", "10"]
PATIENCE_SECONDS = 600.0

pytestmark = [
    pytest.mark.journey,
    pytest.mark.slow,
    pytest.mark.timeout(1500),
]  # several jobs each, and `wait_until` has a limit of its own


@pytest.fixture(scope="module")
def site(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory, tiny_model: Callable[[str], Path]
) -> Iterator[Path]:
    """A working directory with a recipe, and the cluster's commands for this process."""
    folder = tmp_path_factory.mktemp("site")
    rows = [{"text": f"w{3 + n % 9} w{3 + n % 7} w{3 + n % 5}", "answer": f"w{3 + n % 7}"} for n in range(80)]
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    recipe = {
        "model": {"path": str(tiny_model("t5"))},
        "task": {"name": "qa", "source": "{text}", "target": "{answer}"},
        "data": {"path": "rows.jsonl"},
        "train": {"steps": STEPS, "batch_examples": 8, "log_every": 5, "snapshot": {"every_steps": 20}},
        "eval": {"every_steps": STEPS // 2},
        "strategy": {"telemetry_hz": 0},
    }
    (folder / "words.yaml").write_text(json.dumps(recipe))
    settings = {"SLURM_CONF": cluster.environment["SLURM_CONF"], "SEQFIT_CACHE": str(folder / "cache")}
    # Jobs are about Slurm: a plan in each of their processes would take minutes, and no journey is made on a cluster.
    with pytest.MonkeyPatch.context() as patch, prediction_off():
        for name, value in settings.items():
            patch.setenv(name, value)
        patch.chdir(folder)
        yield folder


def submit(out: str, *more: str) -> Path:
    assert main(["submit", "words.yaml", "--out", out, *OPTIONS, *more]) == 0
    return Path(out)


def wait_until(happened: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not happened():
        if time.monotonic() > deadline:
            logs = {str(path): path.read_text()[-3000:] for path in Path().glob("*/slurm-*.out")}
            pytest.fail(f"no {what} for {PATIENCE_SECONDS:.0f} s: {logs}")
        time.sleep(0.05)


def has_step(run: Path, step: int) -> bool:
    return any(record["step"] >= step for record in RecordFile(run / files.STEPS).read())


def wait_for_end(run: Path) -> RunStatus:
    wait_until(lambda: (job := read_status(run).job) is not None and job.is_over, f"end of {run}")
    return read_status(run)


def kill_node(run: Path, node: str) -> int:
    """SIGKILL to torchrun and its processes on one node, known by Slurm's variables; returns how many there were."""
    job = read_status(run).submission.job
    found = []
    for process in psutil.process_iter():
        try:
            variables = process.environ()
            if (variables.get("SLURM_JOB_ID"), variables.get("SLURMD_NODENAME")) == (job, node) and (
                "SLURM_PROCID" in variables and "seqfit" in " ".join(process.cmdline())
            ):
                found.append(process)
        except psutil.Error:  # ended meanwhile
            continue
    for process in found:
        process.kill()
    return len(found)


def assert_same_ending(one: Run, other: Run) -> None:
    left, right = (run.checkpoint / "model.safetensors" for run in (one, other))
    assert left.read_bytes() == right.read_bytes()
    kept = ("step", "loss", "learning_rate", "gradient_norm", "scores")
    for read in (Run.steps, Run.evaluations):
        assert [{key: record.get(key) for key in kept} for record in read(one)] == [
            {key: record.get(key) for key in kept} for record in read(other)
        ]


def test_a_job_that_is_requeued_and_then_loses_a_node_ends_as_the_one_left_alone(
    site: Path, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    disturbed = submit("disturbed")
    wait_until(lambda: has_step(disturbed, MIDDLE), "middle of a run")
    shown = read_status(disturbed)
    assert (shown.status, shown.total_steps, shown.is_over) == ("running", STEPS, False)
    assert "RUNNING on n[1-2]" in shown.queue
    cluster.command("scontrol", "requeue", shown.submission.job)

    wait_until(lambda: read_status(disturbed).restarts == 1, "second try")
    wait_until(lambda: has_step(disturbed, LATE), "step after the first try's")
    assert kill_node(disturbed, "n2") == 2  # torchrun, and the process it has started

    ended = wait_for_end(disturbed)
    assert ended.status == "finished", ended.submission.log.read_text()[-3000:]
    assert (ended.step, ended.restarts) == (STEPS, 2)
    assert start_ranks(json.loads((site / "words.yaml").read_text()), site / "whole", "none") == [(0, ""), (0, "")]
    assert_same_ending(Run(site / "whole"), Run(disturbed))
    assert len(Run(disturbed).manifest["resumed"]) == 2

    capsys.readouterr()
    assert main(["logs", "disturbed", "--follow"]) == 0
    endings = [line for line in capsys.readouterr().out.splitlines() if "ended with code" in line]
    job = shown.submission.job
    # The first try was ended by Slurm, before the job file had a say; 137 is 128 + SIGKILL.
    assert endings == [f"seqfit: attempt {n} of job {job} ended with code {code}" for n, code in ((2, 137), (3, 0))]
    assert main(["status", "disturbed"]) == 0
    assert capsys.readouterr().out.count(f"finished  {STEPS}/{STEPS}") == 1


def test_the_repeats_of_a_comparison_are_tasks_and_one_whose_process_is_killed_goes_on(
    site: Path, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two rounds, each alone on a node. The second is the last task, which has the number of the whole array."""
    (site / "matrix.yaml").write_text(json.dumps({"strategies": "baseline,accumulation", "repeats": 2, "steps": 40}))
    words = ["submit", "words.yaml", "--compare", "matrix.yaml", "--out", "compared", "model.dropout=0"]
    assert main([*words, *OPTIONS[2:], "--processes-per-node", "1"]) == 0
    folder = Path("compared").absolute()
    first, second = folder / "repeats" / "0", folder / "repeats" / "1"
    wait_until(lambda: len(read_outcomes_at(second)) == 1, "first trial of the second round")
    (kept,) = read_outcomes_at(second)
    assert kill_round(folder, 1) == 1
    wait_until(lambda: not find_all_missing(load_matrix(folder), read_outcomes(folder)), "end of all rounds")
    ends = {place: wait_for_end(place) for place in (first, second)}
    assert [ends[place].restarts for place in (first, second)] == [0, 1]  # the other round was left alone
    assert read_outcomes_at(second)[0] == kept or read_outcomes_at(second)[0].node != kept.node
    assert {outcome.node for outcome in read_outcomes_at(first)} <= set(cluster.names)

    capsys.readouterr()
    assert main(["status", "compared"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("finished") == 2
    assert "next: seqfit report compared" in shown
    results = read_results(folder)
    assert results.is_fair, results.checks
    assert [(one.candidate.name, one.state, one.trials) for one in results.results] == [
        ("baseline", "finished", 2),
        ("accumulation", "finished", 2),
    ]
    assert (folder / "report.html").is_file()
    assert "ended with code 137" in last_submission(second).log.read_text()


def kill_round(folder: Path, number: int) -> int:
    """SIGKILL to the process that runs a round, and to nothing that it has started; how many there were."""
    found = []
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
        except psutil.Error:  # ended meanwhile
            continue
        if words[-4:] == ["compare", str(folder), "--repeat", str(number)]:
            found.append(process)
    for process in found:
        process.kill()
    return len(found)


def test_a_cancelled_job_takes_a_snapshot_and_stays_cancelled(site: Path, cluster: Cluster) -> None:
    run = submit("cancelled", "--nodes", "1")
    wait_until(lambda: has_step(run, MIDDLE), "middle of a run")
    assert main(["cancel", str(run)]) == 0
    ended = wait_for_end(run)
    assert ended.job is not None
    assert (ended.job.state, ended.status) == ("CANCELLED", "interrupted")
    assert ended.job.restarts == 0
    (newest, *_) = find_snapshots(run)
    assert int(newest.name.removeprefix("step-")) >= max(record["step"] for record in Run(run).steps())


def test_a_job_that_fails_by_its_own_fault_is_not_tried_again(site: Path, cluster: Cluster) -> None:
    Path("broken.jsonl").write_text("not JSON\n")  # submit sees that it is there, and not what is in it
    run = submit("wrong", "data.path=broken.jsonl", "--nodes", "1")
    ended = wait_for_end(run)
    assert ended.job is not None
    assert (ended.job.state, ended.job.restarts, ended.status) == ("FAILED", 0, None)
    log = ended.submission.log.read_text()
    assert "broken.jsonl" in log
    assert "ended with code 202" in log
