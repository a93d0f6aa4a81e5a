"""SQuAD's exact match and F1: the best over a row's references, after normalisation.

English is normalised exactly as in SQuAD's evaluate-v2.0: lower case, no ASCII punctuation, no a/an/the, single
spaces. A question without an answer has the reference '' and is right if nothing is left of the prediction.

    normalize_answer("The Eiffel Tower!", "en") == "eiffel tower"
    normalize_answer("¿El Niño?", "es")         == "niño"       normalize_answer("Él", "es") == "el"

Spanish follows MLQA: all Unicode punctuation is removed, and the articles el la los las un una unos unas. `al` and
`del` stay, because they contain a preposition; `lo` stays, because it is mostly a pronoun. Beyond MLQA, accents are
folded (á -> a, ü -> u), because models and annotators drop them alike; ñ stays, because año and ano are different
words. Articles are removed first, because él (he) would become el. Other languages lose Unicode punctuation but no
articles (German 'an' is not one); words are separated by spaces, so F1 says little for Chinese, Japanese or Thai.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Sequence

from seqfit.metrics.scores import Pairs, Scores, base_language, mean_percent

SQUAD_SCORES = ("em", "f1", "em_answerable", "f1_answerable", "em_unanswerable")

_ARTICLES = {"en": re.compile(r"\b(a|an|the)\b"), "es": re.compile(r"\b(el|la|los|las|un|una|unos|unas)\b")}
_ASCII_PUNCTUATION = str.maketrans("", "", string.punctuation)
_TILDE = "\N{COMBINING TILDE}"


def score_squad(pairs: Pairs) -> Scores:
    """em and f1 over all rows, and separately for questions with and without an answer if there are both."""
    language = base_language(pairs.language)
    rows = zip(pairs.references, pairs.predictions, strict=True)
    per_row = [_score_row(references, prediction, language) for references, prediction in rows]
    answerable = [row for row, references in zip(per_row, pairs.references, strict=True) if any(references)]
    unanswerable = [row for row, references in zip(per_row, pairs.references, strict=True) if not any(references)]
    values = _means(per_row)
    absent = {}
    if answerable and unanswerable:
        values |= {f"{name}_answerable": value for name, value in _means(answerable).items()}
        values["em_unanswerable"] = _means(unanswerable)["em"]
    else:
        reason = f"all questions are {'answerable' if answerable else 'unanswerable'}: em and f1 say it all"
        absent = dict.fromkeys(("em_answerable", "f1_answerable", "em_unanswerable"), reason)
    articles, accents = ("mlqa", "folded") if language == "es" else ("kept", "kept")
    rules = f"punct:unicode|articles:{articles}|accents:{accents}" if language != "en" else "norm:evaluate-v2.0"
    return Scores(values, {"squad": f"squad|lang:{language}|{rules}"}, absent)


def normalize_answer(text: str, language: str) -> str:
    text = text.lower() if language == "en" else unicodedata.normalize("NFC", text).lower()
    text = text.translate(_ASCII_PUNCTUATION)
    if language != "en":
        text = "".join(char for char in text if not unicodedata.category(char).startswith("P"))
    if language in _ARTICLES:
        text = _ARTICLES[language].sub(" ", text)
    if language == "es":
        letters = unicodedata.normalize("NFD", text)
        kept = (char for char in letters if char == _TILDE or not unicodedata.combining(char))
        text = unicodedata.normalize("NFC", "".join(kept))
    return " ".join(text.split())


def _score_row(references: Sequence[str], prediction: str, language: str) -> tuple[float, float]:
    predicted = normalize_answer(prediction, language)
    # As in evaluate-v2.0: a reference of which nothing is left counts only if there is no other.
    wanted = [text for text in (normalize_answer(reference, language) for reference in references) if text] or [""]
    return float(predicted in wanted), max(_f1(text.split(), predicted.split()) for text in wanted)


def _f1(wanted: list[str], predicted: list[str]) -> float:
    if not wanted or not predicted:
        return float(wanted == predicted)
    shared = (Counter(wanted) & Counter(predicted)).total()
    return 2 * shared / (len(wanted) + len(predicted))


def _means(rows: Sequence[tuple[float, float]]) -> dict[str, float]:
    return {"em": mean_percent([em for em, _ in rows]), "f1": mean_percent([f1 for _, f1 in rows])}
