"""Real files as people bring them (shared/data/unseen): read rightly at once, or asked about with the right reading."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqfit.inspection.guess import guess_recipe
from seqfit.inspection.task_guess import Unsure

T5 = str(Path(__file__).parents[2] / "seqfit" / "recipe" / "library" / "demo" / "model")
# File, task, then source and target as they must be guessed.
READ = [
    ("tweets_index.csv", "classify", "{tweet}", "{class}"),
    ("spam.csv", "classify", "{v2}", "{v1}"),
    ("jnli.json", "classify", "sentence1: {sentence1} sentence2: {sentence2}", "{label}"),
    ("jsts.json", "regression", "sentence1: {sentence1} sentence2: {sentence2}", "{label}"),
    ("hotpot_sample.json", "qa", "question: {question}[[ context: {para_a}]][[ {para_b}]]", "{answer}"),
    ("jcommonsenseqa.json", "qa", "question: {question}", "{label}"),
    ("faq_covidbert.csv", "qa", "question: {question}", "{answer}"),
    ("cmrc2018_trial.json", "qa", "question: {qas.query_text}[[ context: {context_text}]]", "{qas.answers}"),
    ("nl2bash", "translate", "{nl}", "{cm}"),
    ("AFINN-en-165.txt", "classify", "{column1}", "{column2}"),
    ("review_share.csv", "regression", "{comment}", "{isPositive}"),
    ("annotators.jsonl", "classify", "{text}", "{annotations.label}"),
    ("code_alpaca_2k.json", "qa", "question: {instruction}[[ context: {input}]]", "{output}"),
    ("nlupp.json", "multilabel", "{text}", "{intents}"),
    ("jfleg", "translate", "{src}", "{ref0}"),
    ("glaive_toolcall.json", "generate", "{history}", "{reply}"),
    ("faq_many_languages.tsv", "qa", "question: {question}", "{answer}"),
    ("TREC.train.all", "classify", "{text}", "{label}"),
    ("AJGT.xlsx", "classify", "{Feed}", "{Sentiment}"),
    ("tweeteval_emoji", "classify", "{text}", "{labels}"),
    ("sts2015.tsv", "regression", "{column2} {column3}", "{column1}"),
    ("covidQA_long.json", "qa", "question: {question}[[ context: {context}]]", "{answers.text}"),
    ("goemotions_dev.tsv", "multilabel", "{column1}", "{column2}"),
]
ASKED = [
    ("liar_train.tsv", "classify", "1. classify: {column3} -> {column2}"),
    ("news_summary.csv", "summarize", "1. summarize: {ctext} -> {text}"),
    ("e2e_devel.csv", "generate", "1. generate: {mr} -> {ref}"),
]


@pytest.mark.parametrize(("file", "task", "source", "target"), READ, ids=[row[0] for row in READ])
def test_a_strangers_file_is_read_rightly(shared_data: Path, file: str, task: str, source: str, target: str) -> None:
    guessed = guess_recipe(str(shared_data / "unseen" / file), task, T5).recipe["task"]
    assert (guessed["source"], guessed["target"]) == (source, target)


@pytest.mark.parametrize(("file", "task", "reading"), ASKED, ids=[row[0] for row in ASKED])
def test_an_ambiguous_file_is_shown_with_the_right_reading(
    shared_data: Path, file: str, task: str, reading: str
) -> None:
    with pytest.raises(Unsure) as asked:
        guess_recipe(str(shared_data / "unseen" / file), task, T5)
    assert reading in str(asked.value)
