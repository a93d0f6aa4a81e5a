"""How texts are generated: the options of one call, and the texts that come back, with their scores.

`None` means "as the checkpoint says": its beams and length limit, and the generation config next to its weights.

    GenerationOptions()                                       the checkpoint's own search, its best text
    GenerationOptions(beams=4, n_best=3)                      three texts per row, the best first
    GenerationOptions(sample=True, temperature=0.7, seed=1)   drawn; the same seed draws the same texts
    GenerationOptions(labels=("yes", "no"))                   one of these, whatever else would be likelier
    GenerationOptions(spans_of="context")                     a piece of this column, word for word
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from seqfit.errors import RecipeError
from seqfit.recipe import schema

BeamStopping = bool | Literal["never"]


@dataclass(frozen=True)
class Candidate:
    """One text for a row.

    `score` ranks the candidates of a row: the sum of the tokens' log-probabilities, divided by their number to the
    power of the length penalty, as in transformers; of a label, the sum. `confidence` is comparable between rows: the
    exponential of the mean log-probability of a token; of a label, its probability among all labels; None for the
    number of a regression, which has none.
    """

    text: str
    score: float
    confidence: float | None


@dataclass(frozen=True)
class GenerationOptions:
    beams: int | None = None  # 1: greedy, or drawn with `sample`
    n_best: int = 1  # candidates per row
    max_new_tokens: int | None = None
    min_new_tokens: int | None = None
    length_penalty: float | None = None  # beam search: above 0 favours long texts
    early_stopping: BeamStopping | None = None  # beam search: True stops at as many finished texts as beams
    no_repeat_ngrams: int | None = None  # no sequence of so many tokens occurs twice; 0: any may
    repetition_penalty: float | None = None  # above 1: tokens that the text has already are less likely
    sample: bool = False
    temperature: float | None = None  # below 1: likely tokens become likelier
    top_k: int | None = None  # drawn among so many tokens only; 0 or None: all
    top_p: float | None = None  # drawn among the likeliest tokens that have this probability together
    seed: int = 0
    labels: tuple[str, ...] = ()
    spans_of: str | None = None  # column of the row
    lookup: bool = False  # greedy: tokens are looked up in the source and checked several at a time; the same text
    settings: Mapping[str, Any] = field(default_factory=dict)  # others of transformers' generate

    def __post_init__(self) -> None:
        for name in ("beams", "n_best", "max_new_tokens"):
            self._check(name, "a whole number from 1 on", _is_count(getattr(self, name), 1))
        for name in ("min_new_tokens", "no_repeat_ngrams", "top_k", "seed"):
            self._check(name, "a whole number from 0 on", _is_count(getattr(self, name), 0))
        for name in ("temperature", "repetition_penalty"):
            value = getattr(self, name)
            self._check(name, "a number above 0", _is_number(value) and (value is None or value > 0))
        self._check("length_penalty", "a number", _is_number(self.length_penalty))
        top_p = self.top_p
        self._check(
            "top_p", "a probability above 0 and up to 1", _is_number(top_p) and (top_p is None or 0 < top_p <= 1)
        )
        self._check("early_stopping", "True, False or 'never'", self.early_stopping in (None, True, False, "never"))
        if not isinstance(self.labels, tuple) or not all(isinstance(one, str) and one.strip() for one in self.labels):
            raise _wrong(
                "labels", self.labels, "it is a tuple of texts, none of them empty", "Give labels=('yes', 'no')"
            )
        if len(set(self.labels)) < len(self.labels):
            raise _wrong("labels", list(self.labels), "each label is there once", "Remove the repeated ones")
        self._check_together()

    def _check(self, name: str, wanted: str, fits: bool) -> None:
        if not fits:
            raise _wrong(name, getattr(self, name), f"it is {wanted}", f"Set another {name}, or leave it out")

    def _check_together(self) -> None:
        drawing = [name for name in ("temperature", "top_k", "top_p") if getattr(self, name) is not None]
        if drawing and not self.sample:
            raise _wrong(
                drawing[0],
                getattr(self, drawing[0]),
                "only sampling uses it",
                f"Set sample as well, or leave {drawing[0]} out",
            )
        longest, shortest = self.max_new_tokens, self.min_new_tokens
        if longest is not None and shortest is not None and shortest > longest:
            raise _wrong(
                "min_new_tokens",
                shortest,
                f"max_new_tokens is {longest}, which is less",
                "Lower the one or raise the other",
            )
        if self.labels and self.spans_of is not None:
            raise _wrong(
                "spans_of", self.spans_of, "labels are given, too, and a text is one or the other", "Leave one out"
            )
        if self.labels and (self.sample or self.n_best > len(self.labels)):
            name = "sample" if self.sample else "n_best"
            raise _wrong(
                name,
                getattr(self, name),
                f"{len(self.labels)} labels are given: all of them are scored, and the best come back",
                f"Leave sample out, and ask for at most {len(self.labels)} candidates",
            )
        if self.lookup and (self.sample or self.labels or self.spans_of or (self.beams or 1) > 1 or self.n_best > 1):
            raise _wrong("lookup", True, "it is for a greedy search", "Leave it out, or the beams, samples and limits")

    def check_beams(self, beams: int) -> None:
        """With the number of beams known: what does not go with it."""
        if beams == 1:
            for name in ("length_penalty", "early_stopping"):
                if getattr(self, name) is not None and not self.labels:
                    raise _wrong(
                        name, getattr(self, name), "only beam search uses it", f"Set beams=4, or leave {name} out"
                    )
        if self.n_best > beams and not self.sample and not self.labels:
            raise _wrong(
                "n_best",
                self.n_best,
                f"the search has {beams} beam{'s' * (beams > 1)}, and each finds one text",
                f"Set beams={self.n_best} or more, or sample",
            )

    def with_beams(self, beams: int) -> GenerationOptions:
        return self if self.beams is not None else replace(self, beams=beams)

    def to_transformers(self) -> dict[str, Any]:
        """As settings of transformers' `generate`, without those that are not given."""
        names = {
            "beams": "num_beams",
            "min_new_tokens": "min_new_tokens",
            "max_new_tokens": "max_new_tokens",
            "length_penalty": "length_penalty",
            "early_stopping": "early_stopping",
            "no_repeat_ngrams": "no_repeat_ngram_size",
            "repetition_penalty": "repetition_penalty",
        }
        given = {theirs: getattr(self, ours) for ours, theirs in names.items() if getattr(self, ours) is not None}
        if self.sample:  # theirs are 50 most likely tokens where nothing is said, ours all
            given |= {"do_sample": True, "temperature": self.temperature or 1.0, "top_k": self.top_k or 0}
            given |= {"top_p": self.top_p or 1.0}
        if self.n_best > 1 and not self.labels:
            given["num_return_sequences"] = self.n_best
        return given | dict(self.settings)

    @classmethod
    def of(cls, recipe: schema.EvalRecipe) -> GenerationOptions:
        """Those of a recipe, for its evaluations."""
        return cls(recipe.beams, max_new_tokens=recipe.max_new_tokens, **recipe.generation.model_dump())

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return tuple(one.name for one in fields(cls))


def _is_count(value: object, least: int) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= least)


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value))


def _wrong(name: str, value: object, rule: str, change: str) -> RecipeError:
    return RecipeError(f"{name} is {value!r}", rule, change)
