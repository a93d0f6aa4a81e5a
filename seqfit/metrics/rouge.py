"""ROUGE-1, -2, -L and -Lsum by Google's rouge_score: precision, recall and F1 of each, meaned over the rows.

Of several references the one with the best F1 counts, for each kind of ROUGE by itself (rouge_score's own rule).
Lsum compares sentence by sentence and expects one a line; a rule splits them here, so that no download of nltk's is
needed: after . ! ? … and closing quotes, where white space follows; after 。！？ in any case.

    split_sentences('He left. "Why?" Nobody knew.') == ['He left.', '"Why?"', 'Nobody knew.']

English is tokenized and stemmed as in the papers. That tokenizer keeps a-z and 0-9 only: 'año' would become 'a' and
'o', Russian nothing at all. Other languages therefore get words of Unicode letters, marks and digits, without stemming
(the stemmer is English); each Chinese or Japanese character is a word, as those scripts have no spaces.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from importlib.metadata import version
from typing import Any

from seqfit.metrics.scores import Pairs, Scores, base_language, mean_percent

KINDS = ("rouge1", "rouge2", "rougeL", "rougeLsum")
SCORES = tuple(f"{kind}_{part}" for kind in KINDS for part in ("precision", "recall", "f1"))

_SENTENCE_END = re.compile(r"([.!?…][\"'”’»)\]]*)\s+|([。！？][」』”]*)\s*")
_NO_SPACES = re.compile(r"([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff])")


class EnglishTokenizer:
    """rouge_score's own words and stems, but each word is stemmed once.

    That halves the time of scoring (60 rows, 3 references of 40 words, interleaved on one CPU core).
    """

    def __init__(self) -> None:
        from nltk.stem.porter import PorterStemmer

        self.stem = lru_cache(maxsize=100_000)(PorterStemmer().stem)

    def tokenize(self, text: str) -> list[str]:
        """'Dogs jumped.' -> ['dog', 'jump']."""
        from rouge_score.tokenize import tokenize

        words: list[str] = tokenize(text, stemmer=self)
        return words


class UnicodeTokenizer:
    """Words of letters, marks and digits in any script, in the form that rouge_score asks for."""

    def tokenize(self, text: str) -> list[str]:
        """'El año 2024, ¿no?' -> ['el', 'año', '2024', 'no']."""
        text = unicodedata.normalize("NFC", text).lower()
        spaced = "".join(char if unicodedata.category(char)[0] in "LMN" else " " for char in text)
        return _NO_SPACES.sub(r" \1 ", spaced).split()


def score_rouge(pairs: Pairs) -> Scores:
    """rouge1_precision, rouge1_recall, rouge1_f1, rouge2_precision, ..."""
    scorer = _build_scorer(pairs.language)
    per_row = [
        scorer.score_multi([_one_sentence_a_line(text) for text in references], _one_sentence_a_line(prediction))
        for references, prediction in zip(pairs.references, pairs.predictions, strict=True)
    ]
    values: dict[str, float] = {}
    for kind in KINDS:
        values[f"{kind}_precision"] = mean_percent([row[kind].precision for row in per_row])
        values[f"{kind}_recall"] = mean_percent([row[kind].recall for row in per_row])
        values[f"{kind}_f1"] = mean_percent([row[kind].fmeasure for row in per_row])
    return Scores(values, {"rouge": _signature(pairs.language)})


def split_sentences(text: str) -> list[str]:
    """The sentences, by punctuation alone: 'Dr. Who' is cut after 'Dr.'."""
    lines = _SENTENCE_END.sub(r"\1\2\n", text).split("\n")
    return [line.strip() for line in lines if line.strip()]


def _one_sentence_a_line(text: str) -> str:
    return "\n".join(split_sentences(text))


def _build_scorer(language: str) -> Any:
    # Takes a second (it imports nltk), so only once it is needed; nothing is downloaded.
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer(list(KINDS), tokenizer=EnglishTokenizer() if _is_english(language) else UnicodeTokenizer())


def _is_english(language: str) -> bool:
    return base_language(language) == "en"


def _signature(language: str) -> str:
    words = "tok:rouge_score|stem:porter" if _is_english(language) else "tok:unicode|stem:none"
    return f"rouge|{words}|refs:best-f1|sentences:rule|version:{version('rouge_score')}"
