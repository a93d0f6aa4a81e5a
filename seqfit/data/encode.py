"""Texts -> token ids, whatever the tokenizer: sources as sources, targets as targets, with their language codes.

In: a Hugging Face tokenizer and texts. Out: lists of ids, not truncated. The one idea: `truncate` shortens whole
sequences afterwards, so that the true lengths are known and the end of a sequence stays.

    T5     "two dogs"      -> [192, 3887, 1]          truncate(ids, 2) -> [192, 1]
    BERT   "two dogs"      -> [101, 2048, 6077, 102]  truncate(ids, 3) -> [101, 2048, 102]
    ByT5   "ab"            -> [100, 101, 1]           (bytes + 3; HF's own code does this letter by letter)
    mBART  "two dogs"      -> [84, 991, 2, 250004]    truncate(ids, 3, tail=2) -> [84, 2, 250004]

A target always has the end token, because a model that never sees one never stops: it is appended if the tokenizer
adds none (Gemma's, Blenderbot's). All else is what `tokenizer(text)` and `tokenizer(text_target=text)` return.

A tokenizer either marks every text with the code of its language (NLLB, M2M100, mBART, PLBart), and then the task must
give both codes, as they are or as the template of a column (`target_language: "{lang}"`), or it has no codes, and then
the task must give none.

    NLLB        eng_Latn two dogs </s>   fra_Latn deux chiens </s>
    mBART       two dogs </s> en_XX      deux chiens </s> fr_XX
    T5          two dogs </s>            deux chiens </s>
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from seqfit.errors import DataError, RecipeError, SeqfitError, did_you_mean, format_error
from seqfit.recipe import TaskRecipe
from seqfit.tasks import columns_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


_ROLES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_SHOWN = 8


def has_languages(tokenizer: PreTrainedTokenizerBase) -> bool:
    return hasattr(tokenizer, "set_tgt_lang_special_tokens")


def language_ids(tokenizer: PreTrainedTokenizerBase) -> dict[str, int]:
    """Code -> id of its token. M2M100 writes its codes as __en__ and takes them as en; PLBart takes both."""
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


def _missing(missing: list[str], name: str, codes: Collection[str], endings: Iterable[tuple[str, str]]) -> SeqfitError:
    first, *others = codes
    suggested = [first, others[0] if others else first]
    for pair in endings:  # codes that begin like the endings of the parallel files, if there is only one for each
        found = [[code for code in codes if code.startswith(ending)] for ending in pair]
        if all(len(candidates) == 1 for candidates in found):
            suggested = [candidates[0] for candidates in found]
            break
    by_field = dict(zip(("source_language", "target_language"), suggested, strict=True))
    example = " ".join(f"task.{field}={by_field[field]}" for field in missing)
    is_one = len(missing) == 1
    return RecipeError(
        f"{' and '.join(f'task.{field}' for field in missing)} {'is' if is_one else 'are'} not given",
        f"The {name} of this model marks every text with the code of its language",
        f"Set {'it' if is_one else 'them'}, for example {example}, or to a column, such as '{{lang}}', if rows "
        f"differ. It has {len(codes)} codes: {_list(codes)}",
    )


def _unknown(given: str, code: str, name: str, codes: Collection[str]) -> str:
    close = did_you_mean(code, codes)
    if not close:  # 'fra' is too short to be like 'fra_Latn'
        beginning = [known for known in codes if known.lower().startswith(code.lower())] if code else []
        close = f" Did you mean '{beginning[0]}'?" if beginning else ""
    return format_error(
        given, f"The {name} of this model knows {len(codes)} codes: {_list(codes)}", f"Use one of them.{close}"
    )


def _list(codes: Collection[str]) -> str:
    shown = ", ".join(list(codes)[:_SHOWN])
    return f"{shown} and {len(codes) - _SHOWN} more" if len(codes) > _SHOWN else shown


_WITHOUT_FAMILY = ("PreTrainedTokenizerFast", "TokenizersBackend")  # classes without a model's special behaviour
_PROBE = "a"
_Side = Literal["src_lang", "tgt_lang"]  # the tokenizer's attributes
_PIECE_TEXTS, _PIECE_CHARACTERS = 250, 250_000


class TextEncoder:
    """A tokenizer as this project uses it. A model family may bring a subclass (`Family.text_encoder`)."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._name = type(tokenizer).__name__
        self._tails: dict[tuple[str, str | None], int] = {}  # by side and language
        self._end_id: int | None = tokenizer.eos_token_id
        self._has_languages = has_languages(tokenizer)
        self._backend = _find_backend(tokenizer)
        if self._backend is not None and not self._is_plain(self._backend):
            tokenizer("")  # undoes the settings of an earlier call

    @cached_property
    def codes(self) -> dict[str, int]:
        return language_ids(self._tokenizer)

    @property
    def vocabulary(self) -> int:
        """The number of ids. The length of M2M100's tokenizer leaves its language codes out."""
        return max(len(self._tokenizer), 1 + max(self.codes.values(), default=-1))

    @property
    def is_concurrent(self) -> bool:
        """Whether threads may encode in parallel: the work releases the GIL, and no call changes a mode."""
        return self._backend is not None

    def encode(self, texts: Sequence[str], languages: Sequence[str] | str | None = None) -> list[list[int]]:
        """Ids of each source, special tokens included. Languages: one code for all texts, or one for each."""
        return self._by_language(texts, languages, "src_lang")

    def encode_targets(self, texts: Sequence[str], languages: Sequence[str] | str | None = None) -> list[list[int]]:
        """The same for targets, which some tokenizers split or mark differently."""
        return self._by_language(texts, languages, "tgt_lang")

    def truncate_source(self, ids: list[int], limit: int | None, language: str | None = None) -> list[int]:
        """At most `limit` ids; what is not text at the end stays."""
        return truncate(ids, limit, self._count_tail(language, "src_lang"))

    def truncate_target(self, ids: list[int], limit: int | None, language: str | None = None) -> list[int]:
        return truncate(ids, limit, self._count_tail(language, "tgt_lang"))

    def check_languages(
        self, task: TaskRecipe, *, has_targets: bool = True, endings: Iterable[tuple[str, str]] = ()
    ) -> None:
        """Raise RecipeError if the task's codes don't fit; codes are suggested from the `endings` of parallel files."""
        given = {"source_language": task.source_language, "target_language": task.target_language}
        if not self._has_languages:
            for field, code in given.items():
                if code is not None:
                    raise RecipeError(
                        f"task.{field} is '{code}', but the {self._name} of this model has no language codes",
                        "Only tokenizers that mark texts with their language (NLLB, M2M100, mBART, PLBart) take one",
                        f"Remove task.{field}; an instruction for T5 or a multilingual Marian model, such as "
                        "'translate English to French: ' or '>>fra<< ', goes into task.prefix",
                    )
            return
        if not self.codes:
            raise RecipeError(
                f"The {self._name} of this model has none of its language codes in its vocabulary",
                "It marks every text with a code, and would mark all of them with the unknown token",
                "Set model.tokenizer to a folder with the tokenizer.json of the published model",
            )
        missing = [name for name, code in given.items() if code is None and (has_targets or name == "source_language")]
        if missing:
            raise _missing(missing, self._name, self.codes, endings)
        for field, code in given.items():
            if code is not None and not columns_of(code) and code not in self.codes:
                raise RecipeError(_unknown(f"task.{field} is '{code}'", code, self._name, self.codes))
        source = task.source_language
        if task.name == "translate" and source == task.target_language and not columns_of(source or ""):
            raise RecipeError(
                f"task.source_language and task.target_language are both '{source}'",
                "task.name is translate, which needs two languages",
                "Correct one of them, or choose another task, such as task.name=summarize",
            )

    def check_row_language(self, code: str, field: str) -> None:
        if code not in self.codes:
            raise DataError(_unknown(f"The row's {field} is '{code}'", code, self._name, self.codes))

    def explain_missing_prefix(self, task: TaskRecipe) -> str | None:
        """What the model reads at the start of a source, where task.prefix lacks it."""
        return None

    @property
    def identity(self) -> str:
        """A hash of everything that decides the ids, except the languages."""
        known: Any = self._tokenizer
        before = known.src_lang if self._has_languages else None
        if self._has_languages and self.codes:
            # The JSON's post-processor has the language that was set last: for the hash it is always the same one.
            known.src_lang = next(iter(self.codes))
        if known.is_fast:
            content = known.backend_tokenizer.to_str()
            # Truncation and padding, before the added tokens, are set again by every call of the tokenizer.
            content = content[content.index('"added_tokens"') :]
        else:
            # A tokenizer written in Python may have SentencePiece models and target tokens besides its vocabulary.
            models = [getattr(known, name) for name in ("sp_model", "spm_source", "spm_target") if hasattr(known, name)]
            digests = [hashlib.sha256(model.serialized_model_proto()).hexdigest() for model in models]
            targets = getattr(known, "target_encoder", None)
            others = digests if targets is None else [*digests, sorted(targets.items())]
            vocabularies = [sorted(known.get_vocab().items()), sorted(known.added_tokens_encoder.items())]
            content = json.dumps([*vocabularies, *others])
        if before is not None:
            known.src_lang = before
        return hashlib.sha256(f"{self._name} {self._end_id} {content}".encode()).hexdigest()

    def _by_language(self, texts: Sequence[str], languages: Sequence[str] | str | None, side: _Side) -> list[list[int]]:
        """The tokenizer has one language at a time, so texts are encoded language by language."""
        if not texts or languages is None or not self._has_languages:
            return self._encode_side(texts, side) if texts else []
        if isinstance(languages, str):
            setattr(self._tokenizer, side, languages)
            return self._encode_side(texts, side)
        sequences: list[list[int]] = [[] for _ in texts]
        for language in dict.fromkeys(languages):
            places = [place for place, own in enumerate(languages) if own == language]
            setattr(self._tokenizer, side, language)
            for place, ids in zip(places, self._encode_side([texts[place] for place in places], side), strict=True):
                sequences[place] = ids
        return sequences

    def _encode_side(self, texts: Sequence[str], side: _Side) -> list[list[int]]:
        if side == "src_lang":
            sequences = self._call(text=list(texts))
            return self._end(sequences) if self._lacks_end else sequences
        sequences = self._call(text_target=list(texts))
        return sequences if self._ends_targets else self._end(sequences)

    @cached_property
    def _lacks_end(self) -> bool:
        """Whether a source needs the end token appended: the class belongs to no model and adds nothing."""
        return self._name in _WITHOUT_FAMILY and self._call(text=[""]) == [[]]

    @cached_property
    def _ends_targets(self) -> bool:
        return self._end_id in self._call(text_target=[_PROBE])[0]

    def _call(self, **texts: list[str]) -> list[list[int]]:
        if self._backend is not None and self._is_plain(self._backend):
            # The ids that the tokenizer's call would return, a quarter faster: no masks, offsets and dictionaries. In
            # small pieces, because the backend's result takes 100 bytes and more per token until its ids are taken.
            pieces = _pieces(next(iter(texts.values())))
            return [encoding.ids for piece in pieces for encoding in self._backend.encode_batch_fast(piece)]
        known: Any = self._tokenizer
        trie = getattr(known, "tokens_trie", None)
        if trie is not None:  # a tokenizer in Python spends half its time looking for added tokens letter by letter
            known.tokens_trie = _QuickTrie(trie)
        try:
            # verbose=False: "longer than the maximum sequence length (512)" is not true of T5.
            encoded = self._tokenizer(
                **texts, verbose=False, truncation=False, return_attention_mask=False, return_token_type_ids=False
            )
        finally:
            if trie is not None:
                known.tokens_trie = trie
        sequences: list[list[int]] = encoded["input_ids"]
        return sequences

    def _is_plain(self, backend: Any) -> bool:
        """Whether its state is that of a call without options: a call that truncates or pads changes it."""
        has_options = backend.truncation is not None or backend.padding is not None
        return not has_options and backend.encode_special_tokens == self._tokenizer.split_special_tokens

    def _end(self, sequences: list[list[int]]) -> list[list[int]]:
        if self._end_id is not None:
            for ids in sequences:
                if not ids or ids[-1] != self._end_id:
                    ids.append(self._end_id)
        return sequences

    def _count_tail(self, language: str | None, side: _Side) -> int:
        """The number of ids at the end of a text that are not text and survive truncation; at least one."""
        if (side, language) not in self._tails:
            empty, filled = self._by_language(["", _PROBE], language, side)
            tail = 0
            while tail < min(len(empty), len(filled) - 1) and empty[-1 - tail] == filled[-1 - tail]:
                tail += 1
            self._tails[side, language] = max(tail, 1)
        return self._tails[side, language]


class _QuickTrie:
    """Splits a text at added tokens like transformers' Trie, which is only called if there is one."""

    def __init__(self, trie: Any) -> None:
        self._trie = trie
        self._any = re.compile("|".join(map(re.escape, trie._tokens)) or "(?!)")

    def split(self, text: str) -> list[str]:
        pieces: list[str] = self._trie.split(text) if self._any.search(text) else [text] if text else []
        return pieces


def _find_backend(tokenizer: PreTrainedTokenizerBase) -> Any:
    """The Rust tokenizer, if the tokenizer's call only passes texts to it, in one mode for sources and targets."""
    from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

    kind = type(tokenizer)
    is_usual = (
        tokenizer.is_fast
        and kind.__call__ is PreTrainedTokenizerBase.__call__
        and kind._encode_plus is PreTrainedTokenizerFast._encode_plus
        and not hasattr(tokenizer, "_switch_to_target_mode")
    )
    return tokenizer.backend_tokenizer if is_usual else None


def _pieces(texts: list[str]) -> Iterator[list[str]]:
    """At most 250 texts and about 250,000 characters each; a longer text is a piece of its own."""
    piece: list[str] = []
    characters = 0
    for text in texts:
        if piece and (len(piece) == _PIECE_TEXTS or characters + len(text) > _PIECE_CHARACTERS):
            yield piece
            piece, characters = [], 0
        piece.append(text)
        characters += len(text)
    if piece:
        yield piece


def truncate(ids: list[int], limit: int | None, tail: int = 1) -> list[int]:
    """At most `limit` ids, the last `tail` kept: the end token and, if there is one, the language code after it."""
    if limit is None or len(ids) <= limit:
        return ids
    tail = min(tail, limit)
    return [*ids[: limit - tail], *ids[len(ids) - tail :]]
