"""`export_run`: a run becomes a folder for others, which is loaded again and compared before it is called done.

    RUN/checkpoint  ->  draft: files of the format  ->  check  ->  card, export.json  ->  RUN/export/hf
                                                      fails    ->  RUN/export/hf.failed, and exit code 1

A folder that fails its check is kept under that name, because its differences are worth a look, and never replaces one
that passed.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from seqfit.errors import ModelError, RunError
from seqfit.export.card import write_card
from seqfit.export.check import TOLERANCE, CheckResult, check_labels, check_texts
from seqfit.export.decoders import DecodingRule, TransformersDecoder
from seqfit.export.formats import Exporter, Format, WeightType, choose_format
from seqfit.export.rows import CheckedRow, choose_recipe, load_rows
from seqfit.model import Checkpoint, GenerationMetadata, load_tokenizer
from seqfit.progress import Progress
from seqfit.recipe import ModelRecipe
from seqfit.rundir import FolderDraft, Run, files
from seqfit.tasks import columns_of, head_of

RECORD = "export.json"
ALLOWED_CHANGES = {"fp32": 0.0, "int8": 0.1}  # share of rows that may read differently
_FOLDER = "export"


@dataclass(frozen=True)
class ExportReport:
    format: str
    precision: str
    folder: str
    split: str  # that the checked rows are of
    checkpoint_bytes: int  # of its weights
    exported_bytes: int  # of the folder
    check: CheckResult
    problems: list[str]  # why it failed; empty: it passed
    seconds: float
    versions: dict[str, str]

    @property
    def passed(self) -> bool:
        return not self.problems

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"passed": self.passed}


def export_run(
    run: Run | str | Path,
    to: str = "hf",
    *,
    out: str | Path | None = None,
    precision: str = "fp32",
    data: Any = None,
    overrides: Sequence[str] = (),
    rows: int = 200,
    progress: Progress | None = None,
) -> ExportReport:
    """Write the best checkpoint of a run to a folder in another form, and check it on rows of the validation split.

    `run` may be a checkpoint folder that was copied out of its run; then `data` is the file whose rows are checked.
    """
    started = time.perf_counter()
    opened, folder = _open(run)
    found = GenerationMetadata.read(folder)
    chosen, width = choose_format(to, precision, found.kind)
    target = _choose_target(opened, folder, chosen, width, out)
    checkpoint = Checkpoint.load(folder)
    recipe = choose_recipe(opened.recipe if opened else None, checkpoint, folder, data, overrides)
    checked, split = load_rows(checkpoint, recipe, rows, progress)
    if progress is not None:
        progress(f"writing {chosen.title}", 0, None)
    draft = FolderDraft(target)
    fresh = draft.start()
    fresh.parent.mkdir(parents=True, exist_ok=True)
    try:
        exporter = chosen.load_exporter()
        exporter.write(checkpoint, fresh, width)
        result = _check(checkpoint, exporter, fresh, checked, progress)
        problems = _find_problems(result, width, count_other_tokens(fresh, checkpoint, checked))
        report = ExportReport(
            format=chosen.name,
            precision=width,
            folder=str(target if not problems else _failed(target)),
            split=split,
            checkpoint_bytes=sum(file.stat().st_size for file in folder.glob("*.safetensors")),
            exported_bytes=sum(file.stat().st_size for file in fresh.rglob("*") if file.is_file()),
            check=result,
            problems=problems,
            seconds=time.perf_counter() - started,
            versions=_list_versions(chosen),
        )
        write_card(fresh, chosen, report.to_json(), checkpoint, opened)
        (fresh / RECORD).write_text(json.dumps(report.to_json(), ensure_ascii=False, indent=2) + "\n", "utf-8")
        if problems:
            draft = FolderDraft(_failed(target))
            shutil.rmtree(draft.path, ignore_errors=True)
            fresh.rename(draft.path)
        draft.finish()
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    return report


def _open(run: Run | str | Path) -> tuple[Run | None, Path]:
    """The run, if it is one, and the checkpoint folder."""
    if isinstance(run, Run):
        return run, run.checkpoint
    path = Path(run)
    if (path / files.MANIFEST).is_file():
        opened = Run(path)
        return opened, opened.checkpoint
    if not path.is_dir():
        raise ModelError(
            f"The folder '{path}' does not exist",
            "An export needs a run directory or a checkpoint folder",
            "Give one that `seqfit train` has written",
        )
    return None, path


def _choose_target(
    run: Run | None, folder: Path, chosen: Format, precision: WeightType, out: str | Path | None
) -> Path:
    name = chosen.name if precision == "fp32" else f"{chosen.name}-{precision}"
    if out is None:
        target = run.path / _FOLDER / name if run else folder.with_name(f"{folder.name}-{name}")
    else:
        target = Path(out)
    if target.exists() and not (target / RECORD).is_file():
        raise RunError(
            f"'{target}' exists already, and is no folder that `seqfit export` has written",
            "an export replaces only an earlier export",
            "Choose another --out, or remove this folder",
        )
    if target.resolve() == folder.resolve() or folder.resolve().is_relative_to(target.resolve()):
        raise RunError(
            f"--out is '{target}', where the checkpoint is", "an export is a folder of its own", "Choose another --out"
        )
    return target


def _failed(target: Path) -> Path:
    return target.with_name(f"{target.name}.failed")


def _check(
    checkpoint: Checkpoint,
    exporter: Exporter,
    folder: Path,
    rows: Sequence[CheckedRow],
    progress: Progress | None,
) -> CheckResult:
    rule = DecodingRule.of(checkpoint)
    own = TransformersDecoder(checkpoint.model, rule)
    exported = exporter.load(folder, rule)
    head = head_of(checkpoint.metadata.task)
    if checkpoint.metadata.kind == "classifier":
        assert head is not None
        threshold = checkpoint.metadata.threshold
        return check_labels(own, exported, rows, head, 0.5 if threshold is None else threshold, progress)
    return check_texts(
        own,
        exported,
        rows,
        checkpoint.tokenizer,
        tokens=checkpoint.metadata.max_new_tokens,
        position_limit=checkpoint.position_limit,
        progress=progress,
    )


def count_other_tokens(folder: Path, checkpoint: Checkpoint, rows: Sequence[CheckedRow]) -> int:
    """Rows that the folder's own tokenizer, by plain transformers, reads differently. Rows that name their languages,
    and truncated ones, are not compared."""
    if columns_of(checkpoint.metadata.task.source_language or ""):
        return 0
    tokenizer = load_tokenizer(ModelRecipe(path=str(folder)))
    whole = [row for row in rows if row.is_whole]
    if not whole:
        return 0
    read = tokenizer([row.source for row in whole]).input_ids
    return sum(tuple(ids) != row.ids for ids, row in zip(read, whole, strict=True))


def _find_problems(result: CheckResult, precision: WeightType, other_tokens: int) -> list[str]:
    problems = []
    allowed = ALLOWED_CHANGES[precision]
    if result.changed > allowed * result.rows:
        limit = "none may" if not allowed else f"at most {allowed:.0%} may with {precision}"
        problems.append(f"{result.changed} of {result.rows} rows have another answer than the checkpoint's; {limit}")
    if result.long_changed and not allowed:
        problems.append(
            f"{result.long_changed} of {result.long_rows} answers of {result.long_tokens} tokens differ from the "
            "checkpoint's"
        )
    if not allowed and not result.largest_difference <= TOLERANCE:  # NaN, too
        problems.append(
            f"log-probabilities differ from the checkpoint's by up to {result.largest_difference:.2g}; up to "
            f"{TOLERANCE:g} is rounding"
        )
    if other_tokens:
        problems.append(
            f"the folder's tokenizer, loaded by plain transformers, gives other tokens for {other_tokens} rows"
        )
    return problems


def _list_versions(chosen: Format) -> dict[str, str]:
    return {name: metadata.version(name) for name in ("seqfit", "torch", "transformers", *chosen.packages)}
