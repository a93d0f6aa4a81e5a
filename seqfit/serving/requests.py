"""What comes in, checked: options in a query string, a completion request, a rating. Models of pydantic; their schemas
are those of the OpenAPI file.

Everything is strict: a number in quotes or a misspelt name is an error that names it, because a setting that is quietly
ignored gives a wrong answer that looks right.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from starlette.datastructures import QueryParams

from seqfit.serving.backend import RequestOptions
from seqfit.serving.errors import ApiError

MOST_ROWS = 256  # of one request


def _take_whole(value: Any) -> Any:
    """1.0 is an integer to JSON schema."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


_Tokens = Annotated[int, BeforeValidator(_take_whole), Field(ge=1, le=2048)]
_Seed = Annotated[int, BeforeValidator(_take_whole), Field(ge=0, le=2**31 - 1)]
_Text = Annotated[str, Field(pattern=r"[^\s]")]
_T = TypeVar("_T", bound=BaseModel)


def _check_false(value: bool) -> bool:
    if value:
        raise ValueError("not supported")
    return value


_UNSUPPORTED = Field(None, description="Not supported.")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class PredictQuery(_Strict):
    """Options of /predict, in its query string."""

    model: str | None = Field(None, description="Name of a served model, by default the first.")
    stream: bool = Field(
        False, description="Send server-sent events: the text in pieces if there is one row, then the answers."
    )
    n: Annotated[int, BeforeValidator(_take_whole), Field(ge=1, le=16)] = Field(
        1, description="Candidates per row, the best first."
    )
    beams: Annotated[int, BeforeValidator(_take_whole), Field(ge=1, le=16)] | None = Field(
        None, description="Beams of beam search; 1 is greedy; by default as the model was evaluated, and at least n."
    )
    max_new_tokens: _Tokens | None = Field(None, description="Length limit; by default the model's.")
    temperature: Annotated[float, Field(ge=0.01, le=10)] | None = Field(
        None, description="Sample, with this temperature."
    )
    top_k: Annotated[int, BeforeValidator(_take_whole), Field(ge=1, le=100_000)] | None = Field(
        None, description="Sample among so many tokens."
    )
    top_p: Annotated[float, Field(ge=0.001, le=1)] | None = Field(
        None, description="Sample among the likeliest tokens that have this probability together."
    )
    seed: _Seed = Field(0, description="Seed of sampling.")

    def to_options(self) -> RequestOptions:
        return RequestOptions(
            n_best=self.n,
            beams=self.beams,
            max_new_tokens=self.max_new_tokens,
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            seed=self.seed,
        )


class CompletionRequest(_Strict):
    """The part of OpenAI's completions that a text-to-text model has. Other fields of theirs: neutral values only."""

    model: str | None = Field(None, description="Name of a served model, by default the first.")
    prompt: _Text | Annotated[list[_Text], Field(min_length=1, max_length=MOST_ROWS)] = Field(
        description="The text of the source's only column; of several, as the recipe's template puts them, or a JSON "
        "object with them, as text."
    )
    max_tokens: _Tokens | None = Field(None, description="Length limit; by default the model's.")
    n: Annotated[int, BeforeValidator(_take_whole), Field(ge=1, le=16)] = Field(
        1, description="Candidates per prompt, the best first."
    )
    temperature: Annotated[float, Field(ge=0, le=10)] = Field(0, description="Below 0.01, nothing is sampled.")
    top_p: Annotated[float, Field(ge=0.001, le=1)] = Field(1, description="Only with a temperature above 0.")
    seed: _Seed | None = Field(None, description="Seed of sampling.")
    stream: bool = Field(False, description="Send the text in pieces, as server-sent events. One prompt, n of 1.")
    stop: (
        Annotated[list[Annotated[str, Field(min_length=1)]], Field(max_length=4)]
        | Annotated[str, Field(min_length=1)]
        | None
    ) = Field(None, description="The text ends before the first of these.")
    user: str | None = Field(None, description="Not used.")
    echo: Annotated[bool, AfterValidator(_check_false), WithJsonSchema({"const": False})] | None = _UNSUPPORTED
    logprobs: Annotated[int, BeforeValidator(_take_whole), Field(ge=0, le=0)] | None = _UNSUPPORTED
    best_of: Annotated[int, BeforeValidator(_take_whole), Field(ge=1, le=1)] | None = _UNSUPPORTED
    suffix: Annotated[str, Field(max_length=0)] | None = _UNSUPPORTED
    presence_penalty: Annotated[float, Field(ge=0, le=0)] | None = _UNSUPPORTED
    frequency_penalty: Annotated[float, Field(ge=0, le=0)] | None = _UNSUPPORTED

    @model_validator(mode="after")
    def _streams_one(self) -> CompletionRequest:
        if self.stream and (self.n > 1 or isinstance(self.prompt, list)):
            raise ValueError("stream takes one prompt, given as a text, and n of 1")
        return self

    @property
    def prompts(self) -> list[str]:
        return [self.prompt] if isinstance(self.prompt, str) else self.prompt

    @property
    def stops(self) -> list[str]:
        return [self.stop] if isinstance(self.stop, str) else self.stop or []

    def to_options(self) -> RequestOptions:
        samples = self.temperature >= 0.01
        return RequestOptions(
            n_best=self.n,
            max_new_tokens=self.max_tokens,
            temperature=self.temperature if samples else None,
            top_p=self.top_p if samples and self.top_p < 1 else None,
            seed=self.seed or 0,
        )


class Rating(_Strict):
    """A thumb up or down for an answer."""

    model: str | None = Field(None, description="Name of a served model, by default the first.")
    row: dict[str, Any] = Field(description="The row, as it was given to /predict.")
    prediction: str = Field(description="The prediction that is rated.")
    text: str | None = Field(None, description="The generated text that the prediction was taken from.")
    rating: Literal["up", "down"]
    correct: dict[str, str] | None = Field(
        None, description="The right texts of the target's columns, such as {'answer': 'Lima'}."
    )


def parse_json(body: bytes) -> Any:
    try:
        return json.loads(body.decode("utf-8"), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise ApiError(400, "invalid_json", f"The body is not UTF-8: byte {error.start} is wrong") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise ApiError(400, "invalid_json", f"The body is not JSON: {error.msg} ({where})") from None
    except (ValueError, RecursionError) as error:
        raise ApiError(400, "invalid_json", f"The body is not JSON that can be read: {error}") from None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def parse_body(kind: type[_T], body: bytes) -> _T:
    return _validate(kind, parse_json(body))


def parse_query(query: QueryParams) -> PredictQuery:
    """Each value as the JSON that it looks like: 3, 0.7, true; anything else is a text."""
    values: dict[str, Any] = {}
    for name, text in query.multi_items():
        if name in values:
            raise ApiError(422, "invalid_request", f"{name} is there twice", name)
        is_text = (
            PredictQuery.model_fields[name].annotation == (str | None) if name in PredictQuery.model_fields else True
        )
        looks_like_json = re.fullmatch(r"-?\d+(\.\d+)?([eE][-+]?\d+)?|true|false", text) is not None
        values[name] = parse_json(text.encode()) if looks_like_json and not is_text else text
    return _validate(PredictQuery, values)


def _validate(kind: type[_T], values: Any) -> _T:
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"]))
        message = first["msg"].removeprefix("Value error, ")
        raise ApiError(422, "invalid_request", f"{place}: {message}" if place else message, place or None) from None


def describe_fields(kind: type[BaseModel]) -> Mapping[str, Any]:
    """The JSON schema, without a place of its own for nested definitions: there are none."""
    schema = kind.model_json_schema()
    assert "$defs" not in schema
    return schema
