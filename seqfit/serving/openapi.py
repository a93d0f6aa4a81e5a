"""The OpenAPI file: what the API takes and gives, from the models of pydantic and the columns of the served models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from seqfit import __version__
from seqfit.serving.backend import ServedModel
from seqfit.serving.columns import list_prompt_templates, row_schema
from seqfit.serving.filled import filled_pattern
from seqfit.serving.requests import MOST_ROWS, CompletionRequest, PredictQuery, Rating, describe_fields

_Schema = dict[str, Any]
_TEXT: _Schema = {"type": "string"}
_NUMBER_OR_NULL: _Schema = {"type": ["number", "null"]}
_STATUS = {
    400: "The body is not JSON",
    401: "The token is missing or wrong",
    403: "The Host or Origin header names another server",
    404: "No such model",
    408: "The body did not arrive in time",
    413: "The body is too large",
    422: "The request does not fit, and the message says why",
    429: "The queue is full: try again later",
    500: "An error inside the server",
    503: "Out of memory",
    504: "No answer in time",
    507: "The rating can't be written",
}
_ALWAYS = (401, 403, 408, 413)
_GENERATES = (400, 404, 422, 429, 500, 503, 504)


def _object(properties: Mapping[str, _Schema], **more: Any) -> _Schema:
    return {"type": "object", "properties": dict(properties), "required": list(properties), **more}


def _array(items: _Schema) -> _Schema:
    return {"type": "array", "items": items}


_CANDIDATE = {"prediction": _TEXT, "text": _TEXT, "confidence": _NUMBER_OR_NULL, "score": _NUMBER_OR_NULL}
_SCHEMAS: dict[str, _Schema] = {
    "Error": _object({"error": _object({"type": _TEXT, "message": _TEXT, "param": {"type": ["string", "null"]}})}),
    "Candidate": _object(_CANDIDATE),
    "Answer": _object(
        {
            **_CANDIDATE,
            "candidates": _array({"$ref": "#/components/schemas/Candidate"}),
            "spans": {
                "type": "object",
                "description": "Where the context has the answer: column, and first and last position in characters.",
                "additionalProperties": _array({"type": "array", "items": {"type": "integer"}}),
            },
        }
    ),
    "Predictions": _object(
        {"model": _TEXT, "seconds": {"type": "number"}, "answers": _array({"$ref": "#/components/schemas/Answer"})}
    ),
    "Completion": _object(
        {
            "id": _TEXT,
            "object": {"const": "text_completion"},
            "created": {"type": "integer"},
            "model": _TEXT,
            "choices": _array(
                _object(
                    {
                        "index": {"type": "integer"},
                        "text": _TEXT,
                        "finish_reason": {"enum": ["stop", "length"]},
                        "logprobs": {"type": "null"},
                    }
                )
            ),
            "usage": _object(
                {name: {"type": "integer"} for name in ("prompt_tokens", "completion_tokens", "total_tokens")}
            ),
        }
    ),
    "Kept": _object({"path": _TEXT, "trains": {"type": "boolean"}, "why_not": {"type": ["string", "null"]}}),
    "Examples": _object(
        {
            "split": _TEXT,
            "rows": _array(_object({"row": {"type": "object"}, "reference": _TEXT})),
            "absent": {"type": ["string", "null"]},
        }
    ),
    "Models": _object(
        {
            "models": _array(
                _object(
                    {
                        "name": _TEXT,
                        "task": _TEXT,
                        "columns": _array(
                            _object({"path": _TEXT, "required": {"type": "boolean"}, "is_list": {"type": "boolean"}})
                        ),
                        "target_columns": _array(_TEXT),
                        "labels": _array(_TEXT),
                    }
                )
            )
        }
    ),
    "OpenAIModels": _object(
        {
            "object": {"const": "list"},
            "data": _array(_object({"id": _TEXT, "object": _TEXT, "created": {"type": "integer"}, "owned_by": _TEXT})),
        }
    ),
    "Health": _object({"status": {"const": "ok"}, "models": _array(_TEXT)}),
}


def build_openapi(models: Sequence[ServedModel], *, has_token: bool = False) -> dict[str, Any]:
    row = _one_of([row_schema(model.task) for model in models])
    names = [model.name for model in models]
    rows = {"anyOf": [row, {"type": "array", "items": row, "minItems": 1, "maxItems": MOST_ROWS}]}
    completion, rating = _with_names(CompletionRequest, names), _with_names(Rating, names)
    completion["properties"]["prompt"] = _prompt_schema(models, completion["properties"]["prompt"])
    rating["properties"]["row"] = row
    secured: dict[str, Any] = {"security": [{"token": []}]} if has_token else {}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "seqfit serve",
            "version": __version__,
            "description": f"Answers of {', '.join(names)}.",
        },
        "paths": {
            "/predict": {
                "post": {
                    "summary": "Answers for a row, or for a list of rows",
                    "operationId": "predict",
                    "parameters": _parameters(names),
                    "requestBody": _body(rows),
                    "responses": _responses("Predictions", _GENERATES, streams=True),
                    **secured,
                }
            },
            "/v1/completions": {
                "post": {
                    "summary": "Answers in the form of OpenAI's completions",
                    "operationId": "complete",
                    "requestBody": _body(completion),
                    "responses": _responses("Completion", _GENERATES, streams=True),
                    **secured,
                }
            },
            "/v1/models": {"get": _get("Names of the served models, in OpenAI's form", "OpenAIModels") | secured},
            "/models": {"get": _get("The served models with their tasks and columns", "Models") | secured},
            "/examples": {
                "get": {
                    **_get("Rows of a model's validation set", "Examples", (404, 422)),
                    "parameters": [_parameters(names)[0]],
                    **secured,
                }
            },
            "/feedback": {
                "post": {
                    "summary": "A thumb up or down for an answer, kept as a row to train on",
                    "operationId": "rate",
                    "requestBody": _body(rating),
                    "responses": _responses("Kept", (400, 404, 422, 507)),
                    **secured,
                }
            },
            "/healthz": {"get": _get("Whether the server is up", "Health")},
            "/metrics": {
                "get": {
                    "summary": "Counters, in Prometheus' text format",
                    "operationId": "metrics",
                    "responses": {
                        "200": {"description": "Counters", "content": {"text/plain": {"schema": _TEXT}}},
                        **_errors(()),
                    },
                    **secured,
                }
            },
        },
        "components": {"schemas": _SCHEMAS}
        | ({"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}} if has_token else {}),
    }


def _one_of(schemas: list[_Schema]) -> _Schema:
    different = [schema for number, schema in enumerate(schemas) if schema not in schemas[:number]]
    return different[0] if len(different) == 1 else {"anyOf": different}


def _prompt_schema(models: Sequence[ServedModel], schema: _Schema) -> _Schema:
    """Where a source has several columns, a prompt is the text that the recipe's templates make of them."""
    templates = [template for model in models for template in list_prompt_templates(model.task)]
    if not templates or any(len(model.task.source_columns()) == 1 for model in models):
        return schema
    text = {"type": "string", "pattern": filled_pattern(templates)}
    several = {"type": "array", "items": text, "minItems": 1, "maxItems": MOST_ROWS}
    return {**schema, "anyOf": [text, several], "examples": [templates[0]]}


def _fields(kind: type[BaseModel]) -> Mapping[str, Any]:
    return describe_fields(kind)


def _with_names(kind: type[BaseModel], names: Sequence[str]) -> _Schema:
    """The schema of a model of pydantic whose field `model` is one of the served."""
    schema: _Schema = {**_fields(kind), "properties": {**_fields(kind)["properties"]}}
    schema["properties"]["model"] = {**schema["properties"]["model"], "anyOf": _name_schema(names)}
    return schema


def _name_schema(names: Sequence[str]) -> list[_Schema]:
    return [{"type": "string", "enum": list(names)}, {"type": "null"}]


def _parameters(names: Sequence[str]) -> list[_Schema]:
    """Of the query string, which has no null."""
    found = []
    for name, field in _fields(PredictQuery)["properties"].items():
        schema = next((one for one in field.get("anyOf", []) if one.get("type") != "null"), field)
        kept = {key: value for key, value in schema.items() if key not in ("description", "title")}
        if name == "model":
            kept = {"type": "string", "enum": list(names)}
        found.append({"name": name, "in": "query", "description": field["description"], "schema": kept})
    return found


def _body(schema: _Schema) -> _Schema:
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def _get(summary: str, schema: str, errors: Sequence[int] = ()) -> dict[str, Any]:
    return {"summary": summary, "operationId": schema.lower(), "responses": _responses(schema, errors)}


def _responses(schema: str, errors: Sequence[int], *, streams: bool = False) -> dict[str, Any]:
    content: dict[str, Any] = {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}
    if streams:
        content["text/event-stream"] = {"schema": _object({"data": _TEXT})}
    return {"200": {"description": schema, "content": content}, **_errors(errors)}


def _errors(statuses: Sequence[int]) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {
        str(status): {"description": _STATUS[status], "content": content} for status in sorted({*_ALWAYS, *statuses})
    }
