"""BLEU and chrF by sacreBLEU, over the whole corpus and with its signature, which belongs beside every figure.

sacreBLEU wants references by column, as many for every row; None stands where a row has fewer:

    rows    [["a", "b"], ["c"]]    ->    columns    [["a", "c"], ["b", None]]

The language decides BLEU's tokenizer as in sacreBLEU: zh, ja and ko their own, all others 13a.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from seqfit.metrics.scores import Pairs, Scores, base_language

BLEU_ORDER = 4


def score_bleu(pairs: Pairs) -> Scores:
    """bleu; absent where its tokenizer is not installed, or where no reference is long enough for it."""
    from sacrebleu.metrics.bleu import BLEU

    try:
        bleu = BLEU(trg_lang=base_language(pairs.language))
    except RuntimeError as error:  # ja and ko need extra packages
        return Scores(absent={"bleu": " ".join(str(error).split())})
    lengths = (len(bleu.tokenizer(text).split()) for references in pairs.references for text in references)
    if all(length < BLEU_ORDER for length in lengths):
        return Scores(absent={"bleu": f"no reference has {BLEU_ORDER} words, so that even a perfect copy would get 0"})
    result = bleu.corpus_score(pairs.predictions, _by_column(pairs.references))
    return Scores({"bleu": result.score}, {"bleu": str(bleu.get_signature())})


def score_chrf(pairs: Pairs) -> Scores:
    """chrf, which is chrF2: characters up to 6-grams, recall weighing twice."""
    from sacrebleu.metrics.chrf import CHRF

    chrf = CHRF()
    result = chrf.corpus_score(pairs.predictions, _by_column(pairs.references))
    return Scores({"chrf": result.score}, {"chrf": str(chrf.get_signature())})


def _by_column(references: Sequence[Sequence[str]]) -> list[list[str]]:
    # sacreBLEU documents None for missing references, but its types say str only.
    return [list(column) for column in zip_longest(*references)]
