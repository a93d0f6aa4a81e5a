"""A CTranslate2 folder that `seqfit export --to ct2` has written, behind the server's interface.

The folder has the tokenizer and `seqfit.json`, so rows go in and predictions come out as from the checkpoint. Tokens
are looked up by their place in the vocabulary, which is their id.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import ctranslate2

from seqfit.errors import ModelError, RecipeError
from seqfit.model import GenerationMetadata, build_text_encoder, load_tokenizer
from seqfit.recipe import ModelRecipe
from seqfit.serving.backend import ModelAnswer, RequestOptions, ServedRow, check_languages
from seqfit.serving.columns import check_row
from seqfit.system import usable_cores
from seqfit.tasks import build_task


class Ct2Model:
    def __init__(self, path: Path, name: str) -> None:
        self.name, self.path = name, path
        metadata = GenerationMetadata.read(path)
        self.task = build_task(metadata.task)
        self.max_new_tokens = metadata.max_new_tokens
        self._beams = metadata.beams
        self._tokenizer = load_tokenizer(ModelRecipe(path=str(path), kind="text-to-text"))
        self._encoder = build_text_encoder(self._tokenizer)
        if json.loads((path / "config.json").read_text("utf-8")).get("decoder_start_token") is None:
            raise ModelError(
                f"'{path}' does not say which token its decoder starts with",
                "The server leaves that to CTranslate2",
                "Serve the run or its checkpoint instead",
            )
        self._source, self._target = _read_vocabulary(path, "source"), _read_vocabulary(path, "target")
        self._ids = {token: number for number, token in enumerate(self._target)}
        self._translator: Any = ctranslate2.Translator(str(path), device="cpu", intra_threads=usable_cores())

    def check(self, row: object) -> ServedRow:
        checked = check_row(self.task, row)
        check_languages(self.task, self._encoder, checked)
        return checked

    def generate(self, rows: Sequence[ServedRow], options: RequestOptions) -> list[list[ModelAnswer]]:
        beams = 1 if options.samples else max(options.beams or self._beams, options.n_best)
        prefixes = [self._prefix(row) for row in rows]
        results = self._translator.translate_batch(
            [self._encode(row) for row in rows],
            target_prefix=prefixes if any(prefixes) else None,
            beam_size=beams,
            num_hypotheses=options.n_best,
            return_scores=True,
            return_end_token=True,
            **self._translate(options),
        )
        return [
            [self._answer(row, tokens, score) for tokens, score in zip(result.hypotheses, result.scores, strict=True)]
            for row, result in zip(rows, results, strict=True)
        ]

    def stream(self, row: ServedRow, options: RequestOptions) -> Iterator[str]:
        if (options.beams or self._beams) > 1 or options.n_best > 1:
            yield self.generate([row], options)[0][0].text
            return
        ids: list[int] = []
        shown = ""
        prefix = self._prefix(row) or None
        for step in self._translator.generate_tokens(
            self._encode(row), target_prefix=prefix, **self._translate(options)
        ):
            ids.append(self._ids[step.token])
            text = self._tokenizer.decode(ids, skip_special_tokens=True)
            if text.startswith(shown) and len(text) > len(shown) and not text.endswith("\ufffd"):  # half a character
                yield text[len(shown) :]
                shown = text

    def count_tokens(self, text: str) -> int:
        return len(self._tokenizer(text)["input_ids"])

    def _translate(self, options: RequestOptions) -> dict[str, Any]:
        settings: dict[str, Any] = {
            "max_decoding_length": options.max_new_tokens or self.max_new_tokens,
            "min_decoding_length": 0,  # its default of 1 forbids an empty answer
            "max_input_length": 0,  # not truncated
        }
        if options.seed:  # it seeds a thread once, not each call
            raise RecipeError(
                f"seed is {options.seed}", "CTranslate2 draws other texts each time", "Leave it out, or serve the run"
            )
        if options.samples:
            settings |= {"sampling_topk": options.top_k or 0, "sampling_topp": options.top_p or 1.0}
            settings["sampling_temperature"] = options.temperature or 1.0
        return settings

    def _encode(self, row: ServedRow) -> list[str]:
        language, _ = self.task.languages_of(row)
        (ids,) = self._encoder.encode([self.task.render_source(row)], None if language is None else [language])
        limit = self.task.recipe.max_source_tokens
        return [self._source[token] for token in self._encoder.truncate_source(ids, limit, language)]

    def _prefix(self, row: ServedRow) -> list[str]:
        _, language = self.task.languages_of(row)
        return [] if language is None else [self._target[self._encoder.codes[language]]]

    def _answer(self, row: ServedRow, tokens: Sequence[str], score: float) -> ModelAnswer:
        text = self._tokenizer.decode([self._ids[token] for token in tokens], skip_special_tokens=True)
        prediction = self.task.extract(text, self.task.choices_of(row))
        return ModelAnswer(prediction, text, math.exp(score) if math.isfinite(score) else None, score)


def _read_vocabulary(folder: Path, side: str) -> list[str]:
    own = folder / f"{side}_vocabulary.json"
    tokens: list[str] = json.loads((own if own.is_file() else folder / "shared_vocabulary.json").read_text("utf-8"))
    return tokens
