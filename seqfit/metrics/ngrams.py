"""ROUGE by rouge_score, BLEU and chrF by sacreBLEU.

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
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import version
from itertools import zip_longest

from seqfit.metrics.scores import Pairs, Scores, base_language, mean_percent

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
    values: dict[str, float] = {}
    for kind in ROUGE_KINDS:
        values[f"{kind}_precision"] = mean_percent([row[kind].precision for row in per_row])
        values[f"{kind}_recall"] = mean_percent([row[kind].recall for row in per_row])
        values[f"{kind}_f1"] = mean_percent([row[kind].fmeasure for row in per_row])
    tokenizer = "tok:rouge_score|stem:porter" if is_english else "tok:unicode|stem:none"
    signature = f"rouge|{tokenizer}|refs:best-f1|sentences:rule|version:{version('rouge_score')}"
    return Scores(values, {"rouge": signature})


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
    result = bleu.corpus_score(pairs.predictions, _by_column(pairs.references))
    return Scores({"bleu": result.score}, {"bleu": str(bleu.get_signature())})


def score_chrf(pairs: Pairs) -> Scores:
    """chrf, which is chrF2: character n-grams up to 6, with twice the weight on recall."""
    from sacrebleu.metrics.chrf import CHRF

    chrf = CHRF()
    result = chrf.corpus_score(pairs.predictions, _by_column(pairs.references))
    return Scores({"chrf": result.score}, {"chrf": str(chrf.get_signature())})


def _by_column(references: Sequence[Sequence[str]]) -> list[list[str]]:
    """[["a", "b"], ["c"]] -> [["a", "c"], ["b", None]]: sacreBLEU documents None, but its types say str only."""
    return [list(column) for column in zip_longest(*references)]
