"""What generation starts with: the token that the decoder reads first, and the one that it is made to write first.

In: a model, its tokenizer and the language of the answer. Out: `Start`. The one idea: the decoder is started as it was
in training, so the tokenizer's own target without text says it all.

    model     target without text   read first    written first
    T5        </s>                  <pad>         whatever is likeliest
    NLLB      fra_Latn </s>         </s>          fra_Latn
    mBART-50  fr_XX </s>            </s>          fr_XX           the last label is read first
    mBART     </s> fr_XX            fr_XX         whatever is likeliest
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from seqfit.data.encode import TextEncoder, is_column
from seqfit.model.families import Start, build_text_encoder, family_of
from seqfit.recipe.schema import TaskRecipe

StartOf = Callable[[str], Start]


def set_start(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, task: TaskRecipe) -> StartOf | None:
    """Let the model's generation config start answers as the task means it, so that plain `generate` does so, too.

    Where rows have languages of their own there is no such setting; then comes a function that finds a row's start.
    """
    if not model.config.is_encoder_decoder or not model.can_generate():
        return None
    encoder = build_text_encoder(tokenizer)
    if is_column(task.target_language):
        return cache(lambda language: find_start(model, encoder, tokenizer, language))
    start = find_start(model, encoder, tokenizer, task.target_language)
    model.generation_config.update(decoder_start_token_id=start.start_id, forced_bos_token_id=start.first_id)
    return None


def find_start(
    model: PreTrainedModel, encoder: TextEncoder, tokenizer: PreTrainedTokenizerBase, language: str | None
) -> Start:
    """For answers in a language, or those of a model that has no codes."""
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
