"""Language codes: which ones a tokenizer knows, and whether a task names those that it needs.

In: a tokenizer and a task's `source_language` and `target_language`. Out: nothing, or an error that says what to set;
and for each row its two codes. The one idea: a tokenizer either marks every text with the code of its language (NLLB,
M2M100, mBART, mBART-50, PLBart), and then both codes must be given, or it has no codes, and then neither may be.

    tokenizer   source                   target
    NLLB        eng_Latn two dogs </s>   fra_Latn deux chiens </s>
    mBART       two dogs </s> en_XX      deux chiens </s> fr_XX
    T5          two dogs </s>            deux chiens </s>

A code is written as it is, or as the template of a column where rows differ: `target_language: "{lang}"`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from seqfit.errors import DataError, RecipeError, SeqfitError, complain, did_you_mean
from seqfit.recipe.schema import Recipe, TaskRecipe
from seqfit.tasks.template import columns_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_ROLES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_SHOWN = 8


def has_languages(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether it marks texts with the code of their language."""
    return hasattr(tokenizer, "set_tgt_lang_special_tokens")


def language_ids(tokenizer: PreTrainedTokenizerBase) -> dict[str, int]:
    """Code -> id of its token; empty for a tokenizer without codes.

    M2M100 writes its codes as __en__ and takes them as en; PLBart does so and takes both.
    """
    if not has_languages(tokenizer):
        return {}
    known: Any = tokenizer
    if hasattr(tokenizer, "lang_code_to_id"):
        ids: dict[str, int] = known.lang_code_to_id
        return {code.strip("_"): number for code, number in ids.items() if number != tokenizer.unk_token_id}
    roles = {getattr(tokenizer, role) for role in _ROLES}
    codes = [str(token) for token in known.extra_special_tokens if str(token) not in roles]
    numbers = {code: int(tokenizer.convert_tokens_to_ids(code)) for code in codes}
    return {code: number for code, number in numbers.items() if number != tokenizer.unk_token_id}


def is_column(language: str | None) -> bool:
    """Whether rows have languages of their own: a template such as {lang}."""
    return language is not None and bool(columns_of(language))


def check_recipe_languages(recipe: Recipe, tokenizer: PreTrainedTokenizerBase) -> None:
    """Raise RecipeError where the task's codes don't fit the tokenizer."""
    endings = [source.languages for source in recipe.sources if source.languages is not None]
    check_languages(recipe.task, tokenizer, has_targets=recipe.model.kind != "classifier", endings=endings)


def check_languages(
    task: TaskRecipe,
    tokenizer: PreTrainedTokenizerBase,
    *,
    has_targets: bool = True,
    endings: Iterable[tuple[str, str]] = (),
) -> None:
    """The same for a task alone; `endings` are those of parallel files, from which codes are suggested."""
    given = {"source_language": task.source_language, "target_language": task.target_language}
    name, codes = type(tokenizer).__name__, language_ids(tokenizer)
    if not has_languages(tokenizer):
        _refuse_codes(given, name)
        return
    if not codes:
        raise RecipeError(
            complain(
                f"The {name} of this model has none of its language codes in its vocabulary",
                "it marks every text with one, and would mark all of them as unknown",
                "Set model.tokenizer to a folder with the tokenizer.json of the published model",
            )
        )
    missing = [field for field, code in given.items() if code is None and (has_targets or field == "source_language")]
    if missing:
        raise _missing(missing, name, codes, endings)
    for field, code in given.items():
        if code is not None and not is_column(code) and code not in codes:
            raise RecipeError(_unknown(f"task.{field} is '{code}'", code, name, codes))
    if task.name == "translate" and not is_column(task.source_language) and len(set(given.values())) == 1:
        raise RecipeError(
            complain(
                f"task.source_language and task.target_language are both '{task.source_language}'",
                "task.name is translate, which needs two languages",
                "Correct one of them, or take another task, such as task.name=summarize",
            )
        )


def explain_missing_prefix(task: TaskRecipe, tokenizer: PreTrainedTokenizerBase) -> str | None:
    """A Marian model of several target languages reads the one that is meant at the start of a source: '>>fra<< '."""
    codes: list[str] = getattr(tokenizer, "supported_language_codes", [])
    if len(codes) < 2 or task.prefix.startswith(">>"):
        return None
    return (
        f"the Marian model writes {len(codes)} languages and reads at the start of a source which one; task.prefix "
        f"names none, so the rows must (task.prefix: '{codes[0]} ')"
    )


def check_row_language(code: str, field: str, tokenizer_name: str, codes: Collection[str]) -> None:
    """Raise DataError where a row's own code is not one of the tokenizer's."""
    if code not in codes:
        raise DataError(_unknown(f"The row's {field} is '{code}'", code, tokenizer_name, codes))


def _refuse_codes(given: dict[str, str | None], name: str) -> None:
    for field, code in given.items():
        if code is not None:
            raise RecipeError(
                complain(
                    f"task.{field} is '{code}', but the {name} of this model has no language codes",
                    "Only tokenizers that mark texts with their language (NLLB, M2M100, mBART, PLBart) take one",
                    f"Remove task.{field}; what a T5 or a multilingual Marian model is told, such as 'translate "
                    "English to French: ' or '>>fra<< ', is task.prefix",
                )
            )


def _missing(missing: list[str], name: str, codes: Collection[str], endings: Iterable[tuple[str, str]]) -> SeqfitError:
    fields = " and ".join(f"task.{field}" for field in missing)
    suggested = _suggest(codes, endings)
    example = " ".join(
        f"task.{field}={code}"
        for field, code in zip(("source_language", "target_language"), suggested, strict=True)
        if field in missing
    )
    is_one = len(missing) == 1
    return RecipeError(
        complain(
            f"{fields} {'is' if is_one else 'are'} not given",
            f"the {name} of this model marks every text with the code of its language",
            f"Set {'it' if is_one else 'them'}, for example {example}, or to a column, such as '{{lang}}', where rows "
            f"differ. It has {len(codes)} codes: {_list(codes)}",
        )
    )


def _suggest(codes: Collection[str], endings: Iterable[tuple[str, str]]) -> tuple[str, str]:
    """Two codes for an example: those that alone begin like the endings of the parallel files, or else any two."""
    for pair in endings:
        found = [[code for code in codes if code.startswith(ending)] for ending in pair]
        if all(len(candidates) == 1 for candidates in found):
            return found[0][0], found[1][0]
    first, *others = codes
    return first, others[0] if others else first


def _unknown(given: str, code: str, name: str, codes: Collection[str]) -> str:
    close = did_you_mean(code, codes)
    if not close:  # 'fra' is too short to be like 'fra_Latn'
        beginning = [known for known in codes if known.lower().startswith(code.lower())] if code else []
        close = f" Did you mean '{beginning[0]}'?" if beginning else ""
    return complain(
        given, f"the {name} of this model knows {len(codes)} codes: {_list(codes)}", f"Take one of them.{close}"
    )


def _list(codes: Collection[str]) -> str:
    shown = ", ".join(list(codes)[:_SHOWN])
    return f"{shown} and {len(codes) - _SHOWN} more" if len(codes) > _SHOWN else shown
