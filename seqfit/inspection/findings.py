"""What the statistics of a data set mean: reports of splits come in, sentences with what to do go out.

"12.3% of the train sources are truncated at 512 tokens: set task.max_source_tokens=704 to truncate 1%"
"5 of 472 rows are left out: an empty target (5). Correct them, or set task.missing_target"
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from seqfit.inspection.report import LeftOut, LengthSummary, LostCharacter, Overlap, SplitReport
from seqfit.inspection.statistics import round_limit
from seqfit.units import format_count, format_share

_WORTH_REPORTING = 0.01  # shares below one per cent are in the tables, not among the findings
_OUTLIER = 4  # times the 99th percentile: one such row sets the memory of its whole batch
_WHITESPACE = frozenset("\n\r\t\v\f\x1c\x1d\x1e\x85\u2028\u2029")
_MOST_NAMED = 6
_MAJORITY = 0.9
_FEW_ROWS = 100
_OTHER_KIND = 3  # times as long on average
_MANY_CLASSES = 0.1  # of the rows
_CASE = "case"


def find_problems(
    splits: Sequence[SplitReport],
    overlaps: Sequence[Overlap],
    left_out: Sequence[LeftOut] = (),
    task: str | None = None,
) -> list[str]:
    """The findings, those that invalidate scores first."""
    found = [sentence for overlap in overlaps for sentence in _overlap(overlap)]
    if task == "classify":
        found += [sentence for split in splits[:1] for sentence in _classes(split)]
    found += _sizes(splits)
    found += _left_out(splits, left_out)
    seen: set[str] = set()
    for split in splits:
        found += [sentence for side, lengths in split.sides for sentence in _lengths(split, side, lengths, seen)]
        found += _lost_characters(split, seen)
        found += _repeats(split)
    for split in splits[:1]:  # the one that is trained on
        found += _waste(split)
    return found


def _overlap(overlap: Overlap) -> Iterator[str]:
    if overlap.same_source:
        yield (
            f"{overlap.same_source:,} of {overlap.rows:,} {overlap.split} sources also occur in train, where the model "
            "can memorise their targets: remove them from train or, if both splits come from one file, set data.group "
            "to the column whose equal values must stay in one split"
        )
    elif overlap.same_group >= _WORTH_REPORTING * overlap.rows:
        yield (
            f"{overlap.same_group:,} of {overlap.rows:,} {overlap.split} rows share their context with train: scores "
            f"on {overlap.split} say little about unseen texts. Set data.group to the column whose equal values must "
            "stay in one split, and remove data.splits so that the rows are split again"
        )


def _sizes(splits: Sequence[SplitReport]) -> Iterator[str]:
    """Few training rows, and splits whose targets are of another kind than those of train."""
    train = splits[0] if splits else None
    if train is None:
        return
    if 0 < train.rows < _FEW_ROWS:
        yield f"{train.name} has only {train.rows} rows: a model memorises them, and scores vary by chance"
    means = {split.name: dict(split.sides)["target"].mean for split in splits if dict(split.sides).get("target")}
    own = means.get(train.name, 0.0)
    for name, mean in means.items():
        if min(mean, own) > 0 and max(mean, own) > _OTHER_KIND * min(mean, own):
            yield (
                f"the targets of {name} are {mean / own:.1f} times as long as those of {train.name}: check some of "
                "them, they may be of another kind (several references in one cell?)"
            )


def _left_out(splits: Sequence[SplitReport], entries: Sequence[LeftOut]) -> Iterator[str]:
    causes: Counter[str] = Counter()
    for entry in entries:
        causes[entry.cause] += entry.rows
    if not causes:
        return
    named = ", ".join(f"{cause} ({rows:,})" for cause, rows in causes.most_common(_MOST_NAMED))
    needs_target = any("target" in cause for cause in causes)
    missing = ", or set task.missing_target to the target of rows that have none" if needs_target else ""
    rows = causes.total()
    total = rows + sum(split.rows for split in splits)
    yield (
        f"{rows:,} of {total:,} rows are left out: {named}. Correct them{missing}; "
        "a share above data.max_bad_rows stops before training"
    )


def _classes(split: SplitReport) -> Iterator[str]:
    """Labels that a model can predict without reading, or can't learn at all."""
    counts = sorted(((entry.count, entry.label) for entry in split.classes), reverse=True)
    total = sum(count for count, _ in counts)
    filled = [label for count, label in counts if count]
    if not total:
        return
    if len(filled) == 1:
        yield f"all {split.name} rows have the label '{filled[0]}': there is nothing to learn. Check task.target"
    elif counts[0][0] >= _MAJORITY * total:
        share = format_share(counts[0][0] / total)
        yield (
            f"{share} of the {split.name} rows have the label '{counts[0][1]}': always predicting it has an accuracy "
            f"of {share}. Compare macro_f1, or balance the labels with data.limit and data.balance"
        )
    if len(filled) > max(1, _MANY_CLASSES * total):
        yield (
            f"{len(filled):,} different labels in {total:,} {split.name} rows: each has few rows. Check that "
            "task.target is the label, or use --task generate for free text or --task regression for numbers"
        )
    never = [label for count, label in counts if not count]
    if never:
        names = ", ".join(f"'{label}'" for label in never[:_MOST_NAMED])
        yield f"no {split.name} row has the label {names}, so it can't be learned. Check task.labels"


def _lengths(split: SplitReport, side: str, lengths: LengthSummary, seen: set[str]) -> Iterator[str]:
    """Once for each side, with the first split that it applies to: one limit holds for all."""
    field = f"task.max_{side}_tokens"
    if field in seen or split.tokens is None:  # a limit is in tokens
        return
    share = format_share(lengths.truncated_share)
    if lengths.truncated_share >= _WORTH_REPORTING:
        seen.add(field)
    if lengths.truncated_share >= _WORTH_REPORTING and lengths.maximum == lengths.limit:
        yield (
            f"{share} of the {split.name} {side}s are truncated at {lengths.limit:,} tokens, the number of the model's "
            "positions: a T5-type model has no such limit"
        )
    elif lengths.truncated_share >= _WORTH_REPORTING:
        yield (
            f"{share} of the {split.name} {side}s are truncated at {lengths.limit:,} tokens: set "
            f"{field}={round_limit(lengths.p99)} to truncate 1%, or {field}={lengths.maximum} to truncate none"
        )
    if split.name == "train" and lengths.limit is None and lengths.maximum > _OUTLIER * round_limit(lengths.p99):
        yield (
            f"the longest {split.name} {side} has {lengths.maximum:,} tokens, and 99% have at most {lengths.p99:,}: it "
            f"alone sets the memory of its batch. Set {field}={round_limit(lengths.p99)} to truncate it"
        )


def _lost_characters(split: SplitReport, seen: set[str]) -> Iterator[str]:
    """Each character once, with the first split that loses it."""
    trip = split.round_trip
    if trip is None:
        return
    lost = [entry for entry in trip.lost if entry.row_share >= _WORTH_REPORTING and entry.character not in seen]
    seen.update(entry.character for entry in lost)
    breaks = [entry for entry in lost if entry.character in _WHITESPACE]
    others = [entry for entry in lost if entry.character not in _WHITESPACE]
    if others:
        yield (
            f"the tokenizer loses {_name(others)} of the {split.name} rows: use a model whose tokenizer has them (mT5, "
            "or ByT5, which reads bytes), or replace them in the data"
        )
    if breaks:
        yield (
            f"the tokenizer turns {_name(breaks)} of the {split.name} rows into a space: if that matters, write "
            "another character instead"
        )
    if trip.lower_cased and _CASE not in seen:
        seen.add(_CASE)
        yield f"the tokenizer makes the {split.name} texts lower case: choose a cased model if case matters"


def _name(lost: list[LostCharacter]) -> str:
    """'ñ' in 80.0%, '¿' in 12.0%."""
    quoted = [f"'{entry.character}'" if entry.character.isprintable() else entry.name.lower() for entry in lost]
    shown = [f"{name} in {format_share(entry.row_share)}" for name, entry in zip(quoted, lost, strict=True)]
    rest = len(lost) - _MOST_NAMED
    return ", ".join(shown[:_MOST_NAMED]) + (f" and {rest} more characters" if rest > 0 else "")


def _repeats(split: SplitReport) -> Iterator[str]:
    repeats = split.repeats
    if repeats.same_pair >= _WORTH_REPORTING * split.rows:
        yield (
            f"{repeats.same_pair:,} of {split.rows:,} {split.name} rows repeat another row, which then counts twice. "
            "Remove them unless that is intended"
        )
    if repeats.several_targets >= _WORTH_REPORTING * split.rows:
        yield (
            f"{repeats.several_targets:,} {split.name} sources occur with different targets, and a model can predict "
            "only one. Check the template in task.source (does it miss a column?) or the labels"
        )


def _waste(split: SplitReport) -> Iterator[str]:
    waste = {entry.method: entry.both for entry in split.padding}
    if waste and waste["dynamic"] >= 1.2:
        yield (
            f"with padding, random batches of {split.batch_examples} compute {waste['dynamic']:.1f} tokens per real "
            f"token, and batches of similar lengths {waste['grouped']:.1f}: a smaller strategy.micro_batch_tokens pads "
            "less, because a global batch is sorted by length before it is split"
        )
    use = split.tokens
    if use is not None and use.never_used >= 0.5 * use.vocabulary:
        yield (
            f"{format_count(use.never_used)} of the {format_count(use.vocabulary)} vocabulary entries "
            f"({format_share(use.never_used / use.vocabulary)}) never occur in {split.name}: their embeddings take "
            "memory without being trained (seqfit trim can drop them)"
        )
