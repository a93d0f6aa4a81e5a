from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from seqfit.inspection.findings import find_problems
from seqfit.inspection.report import (
    ClassCount,
    Duplicates,
    LeftOut,
    LostCharacter,
    Overlap,
    PaddingWaste,
    RoundTrip,
    SplitReport,
    TokenUse,
)
from seqfit.inspection.statistics import summarise_lengths


@pytest.fixture
def split() -> SplitReport:
    """A split about which there is nothing to say."""
    lengths = np.arange(1, 1001)
    return SplitReport(
        name="train",
        rows=1000,
        rows_by_source={"a": 1000},
        source=summarise_lengths(lengths, None),
        target=summarise_lengths(lengths, None),
        tokens=TokenUse(tokens=9, vocabulary=10, never_used=0, unknown=0, most_frequent=()),
        padding=(PaddingWaste("dynamic", 1.0, 1.0, 1.0), PaddingWaste("grouped", 1.0, 1.0, 1.0)),
        batch_examples=8,
        round_trip=RoundTrip(rows=1000, affected_share=0, lower_cased=False, lost=()),
        repeats=Duplicates(0, 0, None),
        examples=(),
    )


def test_sound_data_give_no_findings(split: SplitReport) -> None:
    assert find_problems([split], [Overlap("validation", 0, 0, 100, None)]) == []


def test_truncation_names_the_limit_that_truncates_one_per_cent(split: SplitReport) -> None:
    truncated = replace(split, source=summarise_lengths(np.arange(1, 1001), 877))
    (sentence,) = find_problems([truncated, replace(truncated, name="validation")], [])
    assert sentence.startswith("12.3% of the train sources are truncated at 877 tokens: set task.max_source_tokens=")


def test_the_end_of_the_positions_is_no_setting(split: SplitReport) -> None:
    truncated = replace(
        split, source=summarise_lengths(np.minimum(np.arange(1, 1001), 512), None, already_truncated=488)
    )
    (sentence,) = find_problems([truncated], [])
    assert "48.8%" in sentence
    assert "max_source_tokens" not in sentence


def test_one_very_long_row_is_named(split: SplitReport) -> None:
    (sentence,) = find_problems([replace(split, source=summarise_lengths(np.append(np.full(999, 50), 4000), None))], [])
    assert "4,000 tokens" in sentence
    assert "task.max_source_tokens=56" in sentence


def test_lost_characters_are_reported_once_and_line_breaks_separately(split: SplitReport) -> None:
    lost = (LostCharacter("ñ", "N WITH TILDE", 900, 0.8), LostCharacter("\n", "LINE FEED", 500, 0.5))
    split = replace(split, round_trip=RoundTrip(1000, 0.9, False, lost))
    letters, breaks = find_problems([split, replace(split, name="test")], [])
    assert letters.startswith("the tokenizer loses 'ñ' in 80.0% of the train rows")
    assert breaks.startswith("the tokenizer turns line feed in 50.0% of the train rows into a space")


def test_rare_losses_stay_in_the_table(split: SplitReport) -> None:
    lost = (LostCharacter("ñ", "N WITH TILDE", 1, 0.001),)
    assert find_problems([replace(split, round_trip=RoundTrip(1000, 0.001, False, lost))], []) == []


def test_shared_sources_come_before_everything_else(split: SplitReport) -> None:
    repeated = replace(split, repeats=Duplicates(same_pair=50, several_targets=20, example="x"))
    first, *others = find_problems([repeated], [Overlap("validation", 3, 3, 100, "x")])
    assert first.startswith("3 of 100 validation sources also occur in train")
    assert len(others) == 2


def test_a_shared_context_is_reported_if_no_source_is_shared(split: SplitReport) -> None:
    (sentence,) = find_problems([split], [Overlap("test", 0, 40, 100, "x")])
    assert sentence.startswith("40 of 100 test rows share their context with train")


def test_padding_and_unused_vocabulary_are_reported_for_train_only(split: SplitReport) -> None:
    wasteful = replace(
        split,
        padding=(PaddingWaste("dynamic", 2.0, 2.0, 2.0), PaddingWaste("grouped", 1.1, 1.1, 1.1)),
        tokens=TokenUse(tokens=9, vocabulary=250_000, never_used=232_500, unknown=0, most_frequent=()),
    )
    padding, vocabulary = find_problems([wasteful, replace(wasteful, name="test")], [])
    assert "random batches of 8 compute 2.0 tokens per real token, and batches of similar lengths 1.1" in padding
    assert "93.0%" in vocabulary


def test_lower_casing_is_reported(split: SplitReport) -> None:
    (sentence,) = find_problems([replace(split, round_trip=RoundTrip(1000, 0, True, ()))], [])
    assert "lower case" in sentence


def _classes(**counts: int) -> tuple[ClassCount, ...]:
    return tuple(ClassCount(label, count) for label, count in counts.items())


@pytest.mark.parametrize(
    ("classes", "said"),
    [
        (_classes(yes=1000), "all train rows have the label 'yes'"),
        (_classes(yes=920, no=80), "92.0% of the train rows have the label 'yes'"),
        (_classes(**{f"l{n}": 5 for n in range(200)}), "200 different labels in 1,000 train rows"),
        (_classes(yes=500, no=500, maybe=0), "no train row has the label 'maybe'"),
    ],
)
def test_labels_that_cannot_be_learnt_are_named(split: SplitReport, classes: tuple[ClassCount, ...], said: str) -> None:
    (sentence,) = find_problems([replace(split, classes=classes)], [], task="classify")
    assert sentence.startswith(said)


def test_balanced_labels_are_fine_and_ranges_of_numbers_are_no_labels(split: SplitReport) -> None:
    assert find_problems([replace(split, classes=_classes(yes=600, no=400))], [], task="classify") == []
    assert find_problems([replace(split, classes=_classes(low=1000))], [], task="regression") == []


def test_rows_left_out_are_reported_once_with_all_causes(split: SplitReport) -> None:
    left_out = [
        LeftOut("train", "an empty target", 3, ("row 1",)),
        LeftOut("test", "an empty target", 2, ("row 9",)),
        LeftOut("test", "broken JSON", 1, ("line 9",)),
    ]
    (sentence,) = find_problems([split], [], left_out)
    assert sentence.startswith("6 of 1,006 rows are left out: an empty target (5), broken JSON (1).")
    assert "task.missing_target" in sentence


def test_lengths_in_words_say_nothing_about_limits_in_tokens(split: SplitReport) -> None:
    far_out = summarise_lengths(np.append(np.full(999, 50), 4000), None)
    in_words = replace(split, source=far_out, tokens=None, round_trip=None, padding=())
    assert find_problems([in_words], []) == []
