"""What generation starts with: the token that the decoder reads first, and the one that it is forced to write first.

In: a model, its tokenizer and the target language. Out: `Start`. The one idea: the decoder starts as in training, so
the tokenizer's target for an empty text has everything.

    model     target without text   read first    written first
    T5        </s>                  <pad>         the most likely token
    NLLB      fra_Latn </s>         </s>          fra_Latn
    mBART-50  fr_XX </s>            </s>          fr_XX           the last label is read first
    mBART     </s> fr_XX            fr_XX         the most likely token
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from seqfit.data import TextEncoder
from seqfit.model import build_text_encoder, family_of
from seqfit.recipe import TaskRecipe
from seqfit.tasks import columns_of


@dataclass(frozen=True)
class Start:
    start_id: int  # read by the decoder first
    first_id: int | None  # generated first, whatever is likeliest; None: not forced


StartOf = Callable[[str], Start]


def set_start(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, task: TaskRecipe) -> StartOf | None:
    """Sets the start in the model's generation config, so that plain `generate` uses it as well.

    If rows name their languages, no such setting exists: the result is a function from a language to its start.
    """
    if not model.config.is_encoder_decoder or not model.can_generate():
        return None
    encoder = build_text_encoder(tokenizer)
    if columns_of(task.target_language or ""):
        return cache(lambda language: find_start(model, encoder, tokenizer, language))
    start = find_start(model, encoder, tokenizer, task.target_language)
    model.generation_config.update(decoder_start_token_id=start.start_id, forced_bos_token_id=start.first_id)
    return None


def find_start(
    model: PreTrainedModel, encoder: TextEncoder, tokenizer: PreTrainedTokenizerBase, language: str | None
) -> Start:
    padding = family_of(model).build_padding(model, tokenizer)
    start_id = padding.decoder_start_id
    assert start_id is not None
    first_id: int | None = model.generation_config.forced_bos_token_id
    if language is None:
        return Start(start_id, first_id)
    (target,) = encoder.encode_targets([""], language)
    if padding.starts_with_last_label:
        start_id = target[-1]
    code = encoder.codes[language]
    return Start(start_id, code if target[0] == code else None)
