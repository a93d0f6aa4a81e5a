"""What the figures of a data set mean: reports of splits come in, plain sentences with what to do go out.

"12.3% of the train sources are cut at 512 tokens: set task.max_source_tokens=704 to cut 1%"
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from seqfit.data.data_report import LengthSummary, LostCharacter, Overlap, SplitReport
from seqfit.units import format_count, format_share

_WORTH_A_WORD = 0.01  # shares below one per cent are in the tables, not among the findings
_FAR_OUT = 4  # times the 99th percentile: one such row sets the memory of its whole batch
_WHITESPACE = frozenset("\n\r\t\v\f\x1c\x1d\x1e\x85\u2028\u2029")
_MOST_NAMED = 6
_CASE = "case"


def find(splits: Sequence[SplitReport], overlaps: Sequence[Overlap]) -> list[str]:
    """The findings, those that spoil scores first."""
    found = [sentence for overlap in overlaps for sentence in _overlap(overlap)]
    told: set[str] = set()
    for split in splits:
        found += [sentence for side, lengths in split.sides for sentence in _lengths(split.name, side, lengths, told)]
        found += _lost_characters(split, told)
        found += _repeats(split)
    for split in splits[:1]:  # what is computed in training
        found += _padding(split)
        found += _vocabulary(split)
    return found


def round_limit(tokens: int) -> int:
    """The next multiple of 64, or of 8 for short texts: what hardware likes, and easy to remember."""
    step = 64 if tokens > 128 else 8
    return -(-tokens // step) * step


def _overlap(overlap: Overlap) -> Iterator[str]:
    if overlap.same_source:
        yield (
            f"{overlap.same_source:,} of {overlap.rows:,} {overlap.split} sources also occur in train, where their "
            "answers are learnt by heart: remove them from train or, where both splits are cut from one file, name the "
            "column that must not be split in data.group"
        )
    elif overlap.same_group >= _WORTH_A_WORD * overlap.rows:
        yield (
            f"{overlap.same_group:,} of {overlap.rows:,} {overlap.split} rows share their context with train: scores "
            f"on {overlap.split} say little about texts never seen. Name the column that must not be split in "
            "data.group, and leave data.splits out to have the splits cut anew"
        )


def _lengths(split: str, side: str, lengths: LengthSummary, told: set[str]) -> Iterator[str]:
    """For each side once, with the first split it is true of: one limit holds for all."""
    field = f"task.max_{side}_tokens"
    if field in told:
        return
    if lengths.cut_share >= _WORTH_A_WORD:
        told.add(field)
    if lengths.cut_share >= _WORTH_A_WORD and lengths.maximum == lengths.limit:
        yield (
            f"{format_share(lengths.cut_share)} of the {split} {side}s are cut at {lengths.limit:,} tokens, where the "
            "model's positions end: a T5-type model has no such end"
        )
    elif lengths.cut_share >= _WORTH_A_WORD:
        yield (
            f"{format_share(lengths.cut_share)} of the {split} {side}s are cut at {lengths.limit:,} tokens: set "
            f"{field}={round_limit(lengths.p99)} to cut 1%, or {field}={lengths.maximum} to cut none"
        )
    if split == "train" and lengths.limit is None and lengths.maximum > _FAR_OUT * round_limit(lengths.p99):
        yield (
            f"the longest {split} {side} has {lengths.maximum:,} tokens, 99% have at most {lengths.p99:,}: it alone "
            f"sets the memory of its batch. Set {field}={round_limit(lengths.p99)} to cut it"
        )


def _lost_characters(split: SplitReport, told: set[str]) -> Iterator[str]:
    """Each character once, with the first split that loses it."""
    trip = split.round_trip
    lost = [entry for entry in trip.lost if entry.row_share >= _WORTH_A_WORD and entry.character not in told]
    told.update(entry.character for entry in lost)
    breaks = [entry for entry in lost if entry.character in _WHITESPACE]
    others = [entry for entry in lost if entry.character not in _WHITESPACE]
    if others:
        yield (
            f"the tokenizer loses {_name(others)} of the {split.name} rows: use one that knows them (mT5's, or "
            "ByT5's, which reads bytes), or replace them in the data"
        )
    if breaks:
        yield (
            f"the tokenizer turns {_name(breaks)} of the {split.name} rows into a space: where that matters, write "
            "another mark in its place"
        )
    if trip.lower_cased and _CASE not in told:
        told.add(_CASE)
        yield f"the tokenizer makes the {split.name} texts lower case: choose a cased model where case matters"


def _name(lost: list[LostCharacter]) -> str:
    """'ñ' in 80.0%, '¿' in 12.0%."""
    shown = [f"{_quote(entry)} in {format_share(entry.row_share)}" for entry in lost[:_MOST_NAMED]]
    rest = len(lost) - len(shown)
    return ", ".join(shown) + (f" and {rest} more characters" if rest else "")


def _quote(entry: LostCharacter) -> str:
    return f"'{entry.character}'" if entry.character.isprintable() else entry.name.lower()


def _repeats(split: SplitReport) -> Iterator[str]:
    repeats = split.repeats
    if repeats.same_pair >= _WORTH_A_WORD * split.rows:
        yield (
            f"{repeats.same_pair:,} of {split.rows:,} {split.name} rows repeat another row: they count twice. Remove "
            "them unless that is meant"
        )
    if repeats.several_targets >= _WORTH_A_WORD * split.rows:
        yield (
            f"{repeats.several_targets:,} {split.name} sources occur with different targets: the model cannot give "
            "both. Check the template in task.source (does it leave out a column?) or the labels"
        )


def _padding(split: SplitReport) -> Iterator[str]:
    waste = {entry.method: entry.both for entry in split.padding}
    if waste["dynamic"] >= 1.2:
        yield (
            f"padding makes {waste['dynamic']:.1f} tokens out of each real one in random batches of "
            f"{split.batch_examples}, and {waste['grouped']:.1f} in batches of similar lengths: a "
            "smaller strategy.micro_batch_tokens pads less, since a global batch is sorted by length before it is cut"
        )


def _vocabulary(split: SplitReport) -> Iterator[str]:
    use = split.tokens
    if use.never_used >= 0.5 * use.vocabulary:
        yield (
            f"{format_count(use.never_used)} of the {format_count(use.vocabulary)} vocabulary entries "
            f"({format_share(use.never_used / use.vocabulary)}) never occur in {split.name}: their embeddings take "
            "memory and learn nothing here"
        )
