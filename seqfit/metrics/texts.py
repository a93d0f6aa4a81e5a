"""Scores of texts: SQuAD's exact match and F1, ROUGE by rouge_score, BLEU and chrF by sacreBLEU.

SQuAD's exact match and F1 are the best over a row's references, after normalisation. English is normalised exactly as
in SQuAD's scripts: lower case, no ASCII punctuation, no a/an/the, single spaces. A question without an answer has the
reference '' and is right if nothing is left of the prediction. The scripts differ in references of which nothing is
left ('The', '?'): where some question has no answer, evaluate-v2.0 counts them only if there is no other; where all
have one, evaluate-v1.1 counts them, and gives them no F1.

    normalize_answer("The Eiffel Tower!", "en") == "eiffel tower"
    normalize_answer("¿El Niño?", "es")         == "niño"       normalize_answer("Él", "es") == "el"

Spanish follows MLQA: all Unicode punctuation is removed, and the articles el la los las un una unos unas. `al` and
`del` stay, because they contain a preposition; `lo` stays, because it is mostly a pronoun. Beyond MLQA, accents are
folded (á -> a, ü -> u), because models and annotators drop them alike; ñ stays, because año and ano are different
words. Articles are removed first, because él (he) would become el. Other languages lose Unicode punctuation but no
articles (German 'an' is not one); words are separated by spaces, so F1 says little for Chinese, Japanese or Thai.

ROUGE-1, -2, -L and -Lsum by Google's rouge_score: precision, recall and F1 of each, averaged over the rows. The best
reference by F1 counts, separately for each kind of ROUGE (rouge_score's own rule). Lsum compares sentence by sentence
and expects one per line; a rule splits them here, so that nothing of nltk has to be downloaded: after . ! ? … and
closing quotes if white space follows; after 。！？ always.

    split_sentences('He left. "Why?" Nobody knew.') == ['He left.', '"Why?"', 'Nobody knew.']

English is tokenized and stemmed as in the papers. That tokenizer keeps only a-z and 0-9: 'año' would become 'a' and
'o', Russian nothing at all. Other languages therefore get words of Unicode letters, marks and digits, without stemming
(the stemmer is English); each Chinese or Japanese character is a word, because those scripts have no spaces.

BLEU and chrF by sacreBLEU, over the whole corpus and with its signature, which should be reported with every figure.
The language decides BLEU's tokenizer as in sacreBLEU: zh, ja and ko their own, all others 13a.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from importlib.metadata import version
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np

from seqfit.metrics.resampling import Floats, RowSums, divide
from seqfit.metrics.scores import Pairs, Scores, base_language, mean_percent, score_means

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric

SQUAD_SCORES = ("em", "f1", "em_answerable", "f1_answerable", "em_unanswerable")

_ARTICLES = {"en": re.compile(r"\b(a|an|the)\b"), "es": re.compile(r"\b(el|la|los|las|un|una|unos|unas)\b")}
_ASCII_PUNCTUATION = str.maketrans("", "", string.punctuation)
_TILDE = "\N{COMBINING TILDE}"


def score_squad(pairs: Pairs) -> Scores:
    """em and f1 over all rows, and separately for questions with and without an answer if there are both."""
    language = base_language(pairs.language)
    rows = zip(pairs.references, pairs.predictions, strict=True)
    is_v2 = not all(any(references) for references in pairs.references)
    per_row = [_score_row(references, prediction, language, is_v2=is_v2) for references, prediction in rows]
    answerable = [row for row, references in zip(per_row, pairs.references, strict=True) if any(references)]
    unanswerable = [row for row, references in zip(per_row, pairs.references, strict=True) if not any(references)]
    values = _means(per_row)
    absent = {}
    has_answer = np.array([any(references) for references in pairs.references], dtype=np.float64)[:, None]
    is_split = bool(answerable and unanswerable)
    both = np.array(per_row, dtype=np.float64)
    columns = np.hstack([both, both * has_answer, both * (1 - has_answer), has_answer, np.ones_like(has_answer)])
    if is_split:
        values |= {f"{name}_answerable": value for name, value in _means(answerable).items()}
        values["em_unanswerable"] = _means(unanswerable)["em"]
    else:
        reason = f"all questions are {'answerable' if answerable else 'unanswerable'}: em and f1 say it all"
        absent = dict.fromkeys(("em_answerable", "f1_answerable", "em_unanswerable"), reason)
    articles, accents = ("mlqa", "folded") if language == "es" else ("kept", "kept")
    rules = f"punct:unicode|articles:{articles}|accents:{accents}" if language != "en" else "norm:evaluate"
    script = "v2.0" if is_v2 else "v1.1"
    resampler = RowSums(columns, _finish_split_squad if is_split else _finish_squad)
    return Scores(values, {"squad": f"squad|lang:{language}|{rules}|rules:{script}"}, absent, (resampler,))


def _finish_squad(sums: Floats) -> dict[str, Floats]:
    return {"em": 100 * sums[:, 0] / sums[:, 7], "f1": 100 * sums[:, 1] / sums[:, 7]}


def _finish_split_squad(sums: Floats) -> dict[str, Floats]:
    return _finish_squad(sums) | {
        "em_answerable": 100 * divide(sums[:, 2], sums[:, 6]),
        "f1_answerable": 100 * divide(sums[:, 3], sums[:, 6]),
        "em_unanswerable": 100 * divide(sums[:, 4], sums[:, 7] - sums[:, 6]),
    }


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


def _score_row(references: Sequence[str], prediction: str, language: str, *, is_v2: bool) -> tuple[float, float]:
    predicted = normalize_answer(prediction, language)
    wanted = [normalize_answer(reference, language) for reference in references]
    if is_v2:
        wanted = [text for text in wanted if text] or [""]
    f1 = max(_f1(text.split(), predicted.split(), of_nothing=is_v2) for text in wanted)
    return float(predicted in wanted), f1


def _f1(wanted: list[str], predicted: list[str], *, of_nothing: bool) -> float:
    """`of_nothing`: two empty texts are equal. In the order of the scripts' operations, so that no digit differs."""
    if not wanted or not predicted:
        return float(of_nothing and wanted == predicted)
    shared = (Counter(wanted) & Counter(predicted)).total()
    if shared == 0:
        return 0.0
    precision, recall = shared / len(predicted), shared / len(wanted)
    return 2 * precision * recall / (precision + recall)


def _means(rows: Sequence[tuple[float, float]]) -> dict[str, float]:
    return {"em": mean_percent([em for em, _ in rows]), "f1": mean_percent([f1 for _, f1 in rows])}


ROUGE_KINDS = ("rouge1", "rouge2", "rougeL", "rougeLsum")
NGRAM_SCORES = tuple(f"{kind}_{part}" for kind in ROUGE_KINDS for part in ("precision", "recall", "f1"))

_SENTENCE_END = re.compile(r"([.!?…][\"'”’»)\]]*)\s+|([。！？][」』”]*)\s*")
_NO_SPACES = re.compile(r"([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff])")


class EnglishTokenizer:
    """rouge_score's own words and stems, with a cache of stems, which halves the time of scoring.

    (60 rows, 3 references of 40 words, interleaved on one CPU core.)
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
    """Words of letters, marks and digits in any script, with rouge_score's interface."""

    def tokenize(self, text: str) -> list[str]:
        """'El año 2024, ¿no?' -> ['el', 'año', '2024', 'no']."""
        text = unicodedata.normalize("NFC", text).lower()
        spaced = "".join(char if unicodedata.category(char)[0] in "LMN" else " " for char in text)
        return _NO_SPACES.sub(r" \1 ", spaced).split()


def score_rouge(pairs: Pairs) -> Scores:
    # Imported here because it takes a second (it imports nltk); nothing is downloaded.
    from rouge_score.rouge_scorer import RougeScorer

    is_english = base_language(pairs.language) == "en"
    scorer = RougeScorer(list(ROUGE_KINDS), tokenizer=EnglishTokenizer() if is_english else UnicodeTokenizer())
    per_row = [
        scorer.score_multi([_split_lines(text) for text in references], _split_lines(prediction))
        for references, prediction in zip(pairs.references, pairs.predictions, strict=True)
    ]
    shares: dict[str, list[float]] = {}
    for kind in ROUGE_KINDS:
        shares[f"{kind}_precision"] = [row[kind].precision for row in per_row]
        shares[f"{kind}_recall"] = [row[kind].recall for row in per_row]
        shares[f"{kind}_f1"] = [row[kind].fmeasure for row in per_row]
    tokenizer = "tok:rouge_score|stem:porter" if is_english else "tok:unicode|stem:none"
    signature = f"rouge|{tokenizer}|refs:best-f1|sentences:rule|version:{version('rouge_score')}"
    return replace(score_means(shares), signatures={"rouge": signature})


def split_sentences(text: str) -> list[str]:
    """The sentences, by punctuation only: 'Dr. Who' is split after 'Dr.'."""
    lines = _SENTENCE_END.sub(r"\1\2\n", text).split("\n")
    return [line.strip() for line in lines if line.strip()]


def _split_lines(text: str) -> str:
    return "\n".join(split_sentences(text))


BLEU_ORDER = 4


def score_bleu(pairs: Pairs) -> Scores:
    """bleu; absent if its tokenizer is not installed, or if no reference is long enough."""
    from sacrebleu.metrics.bleu import BLEU

    try:
        bleu = BLEU(trg_lang=base_language(pairs.language))
    except RuntimeError as error:  # ja and ko need extra packages
        return Scores(absent={"bleu": " ".join(str(error).split())})
    lengths = (len(bleu.tokenizer(text).split()) for references in pairs.references for text in references)
    if all(length < BLEU_ORDER for length in lengths):
        return Scores(absent={"bleu": f"no reference has {BLEU_ORDER} words, so even a perfect prediction would get 0"})
    return _score_corpus("bleu", bleu, pairs)


def score_chrf(pairs: Pairs) -> Scores:
    """chrf, which is chrF2: character n-grams up to 6, with twice the weight on recall."""
    from sacrebleu.metrics.chrf import CHRF

    return _score_corpus("chrf", CHRF(), pairs)


def _score_corpus(name: str, metric: Metric, pairs: Pairs) -> Scores:
    """By sacreBLEU, in its own two steps: counts of every row, and a score of their sums."""
    counted = metric._extract_corpus_statistics(pairs.predictions, _by_column(pairs.references))
    value: float = metric._aggregate_and_compute(counted).score

    def finish(sums: Floats) -> dict[str, Floats]:
        return {name: np.array([metric._compute_score_from_stats(row).score for row in sums.tolist()])}

    resampler = RowSums(np.array(counted, dtype=np.float64), finish)
    return Scores({name: value}, {name: str(metric.get_signature())}, resamplers=(resampler,))


def _by_column(references: Sequence[Sequence[str]]) -> list[list[str]]:
    """[["a", "b"], ["c"]] -> [["a", "c"], ["b", None]]: sacreBLEU documents None, but its types say str only."""
    return [list(column) for column in zip_longest(*references)]
