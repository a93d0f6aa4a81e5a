"""What the choice of a model depends on in the texts: languages, characters and lengths.

In: a recipe whose model is open. Out: `TextFacts`, from a sample of the rows. No tokenizer is read, so lengths
in tokens are estimated from characters.

    "question: Where is Oslo? context: ..." -> "in Norway"    languages ("en", "en"), 4 characters per token
    "Write a loop over i"  -> "for (;;) { ... }"              languages ("en", "en"): code has no language of its own
    "umbuzo wakho ..."     -> "impendulo ..."                 languages (None, None): a text, but in which language?
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from seqfit.data import BadRow, find_tables, name_words
from seqfit.inspection.column_names import find_languages
from seqfit.inspection.guess import sample_rows
from seqfit.inspection.text_language import find_language
from seqfit.recipe import Recipe, TaskRecipe
from seqfit.tasks import TemplateRow, column_text, columns_of

# T5's vocabulary has these of the letters and signs; typography and spaces are kept as well.
_ASCII_LOST = set("<\\^`{}~")
_KEPT = {chr(code) for code in range(33, 127)} - _ASCII_LOST | set("£ª«®°²³¹º»ÉÎÜßàáâäçèéêîóôöùûüăşţșț€™№…‘’“”„–—•")
_PROSE = 0.9  # of the characters of a text in some language are letters and spaces; of code and numbers fewer are
_LOST_OF_TARGETS = 0.02  # of the targets may have a character that T5 lacks: it can't write them
_LOST_OF_CHARACTERS = 0.005  # of the source: encyclopedias have a few names in other letters
_DENSE = ("CJK", "HIRAGANA", "KATAKANA", "HANGUL")
_CHARS_PER_TOKEN, _DENSE_CHARS_PER_TOKEN = 4.0, 1.5


@dataclass(frozen=True)
class TextLengths:
    """Of the sources or the targets, in tokens, estimated."""

    mean: int
    long: int  # 19 of 20 are not longer
    longest: int


@dataclass(frozen=True)
class TextFacts:
    languages: tuple[str | None, ...]  # of the source and, if it is generated, of the target; None: not certain
    lost_by_t5: str  # characters that T5 lacks, if they are frequent enough to matter
    source: TextLengths
    target: TextLengths

    @property
    def is_english(self) -> bool:
        return all(language == "en" for language in self.languages)


def count_training_rows(recipe: Recipe) -> int:
    """Of the first source, without those that are held out. Reads all of them."""
    source = recipe.sources[0]
    tables = find_tables(source)
    first = tables.get("train") or next(iter(tables.values()))
    count = sum(1 for row in first.read() if not isinstance(row, BadRow))
    return max(1, round(count * (1 - sum(share for split, share in source.holdout.items() if split not in tables))))


def read_text_facts(recipe: Recipe) -> TextFacts:
    """Of a sample of the first source of a recipe; its model is not looked at."""
    task, source = recipe.task, recipe.sources[0]
    tables = find_tables(source)
    first = tables.get("train") or next(iter(tables.values()))
    rows = sample_rows(first)
    generates = task.name not in TaskRecipe.HEAD_TASKS
    source_paths, target_paths = _list_paths([task.source, task.choices or []]), _list_paths([task.target])
    sources, targets = _join(source_paths, rows), _join(target_paths, rows)
    one_language = task.name not in ("translate", "generate")  # of source and target
    stated = task.language if one_language else None
    languages = [_find_named(source_paths) or find_language(sources) or stated]
    if generates:
        languages.append(task.language or _find_named(target_paths) or find_language(targets))
        languages = _follow(languages, (sources, targets))
    return TextFacts(
        tuple(languages),
        _find_lost(sources, targets) if generates else "",
        _measure(sources, _count_literal(task.prefix, task.source), task.max_source_tokens),
        _measure(targets, _count_literal("", task.target), task.max_target_tokens),
    )


def _list_paths(templates: Sequence[str | Sequence[str]]) -> list[str]:
    each = [text for one in templates for text in ([one] if isinstance(one, str) else one)]
    return list(dict.fromkeys(path for template in each for path in columns_of(template)))


def _join(paths: Sequence[str], rows: Sequence[TemplateRow]) -> list[str]:
    return [" ".join(filter(None, (column_text(path, row) for path in paths))) for row in rows]


def _find_named(paths: Sequence[str]) -> str | None:
    """The language that a column is named after."""
    named = find_languages(paths[:1])
    return name_words.LANGUAGES[named[paths[0]]][0] if named else None


def _follow(languages: list[str | None], texts: tuple[list[str], list[str]]) -> list[str | None]:
    """Code and numbers have no language of their own: the other side's model writes them."""
    source, target = languages
    if target is None and source is not None and not _is_prose(texts[1]):
        return [source, source]
    if source is None and target is not None and not _is_prose(texts[0]):
        return [target, target]
    return languages


def _is_prose(texts: Sequence[str]) -> bool:
    text = "".join(texts)
    plain = sum(char.isalpha() or char.isspace() or not char.isascii() for char in text)
    return plain >= _PROSE * len(text)


def _find_lost(sources: Sequence[str], targets: Sequence[str]) -> str:
    counts: dict[str, int] = {}
    for text in (*sources, *targets):
        for char in set(text):
            if _is_lost(char):
                counts[char] = counts.get(char, 0) + text.count(char)
    of_sources = sum(counts_of for counts_of in map(_count_lost, sources))
    of_targets = sum(_count_lost(text) > 0 for text in targets)
    matters = of_targets > _LOST_OF_TARGETS * len(targets) or of_sources > _LOST_OF_CHARACTERS * sum(map(len, sources))
    return "".join(sorted(counts, key=lambda char: -counts[char])[:5]) if matters else ""


def _count_lost(text: str) -> int:
    return sum(map(_is_lost, text))


def _is_lost(char: str) -> bool:
    return char not in _KEPT and not char.isspace() and not unicodedata.category(char).startswith(("C", "M"))


def _count_literal(prefix: str, templates: str | Sequence[str]) -> int:
    """Tokens of what a template adds to the columns."""
    first = templates if isinstance(templates, str) else templates[0]
    return round(len(prefix + re.sub(r"\{.*?\}|\[\[|\]\]", "", first)) / _CHARS_PER_TOKEN)


def _measure(texts: Sequence[str], added: int, most: int | None) -> TextLengths:
    lengths = sorted(min(added + _count_tokens(text), most or sys.maxsize) for text in texts if text) or [1]
    return TextLengths(round(sum(lengths) / len(lengths)), lengths[int(0.95 * (len(lengths) - 1))], lengths[-1])


def _count_tokens(text: str) -> int:
    dense = 0 if text.isascii() else sum(unicodedata.name(char, "").startswith(_DENSE) for char in text)
    return 1 + round(dense / _DENSE_CHARS_PER_TOKEN + (len(text) - dense) / _CHARS_PER_TOKEN)
