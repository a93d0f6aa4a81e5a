"""The page to try models with, and the page of the API: one HTML document each, which loads nothing from elsewhere.

The form is built in the browser (assets/serve.js) from what GET /models says, so that the page itself has no data in it
and needs no token.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from typing import Any
from urllib.parse import urlsplit

from seqfit.reporting import html


def render_form() -> str:
    return html.render_document(
        "seqfit serve", html.Html(_asset("serve.html")), [_asset("serve.js")], style=_asset("serve.css"), connects=True
    )


def render_docs(openapi: Mapping[str, Any], address: str) -> str:
    """`address`: where the reader found it, for commands that can be pasted."""
    schemas = openapi["components"]["schemas"]
    parts = [
        html.element(
            "header",
            html.element("div", "seqfit serve", class_="eyebrow"),
            html.element("h1", "API"),
            html.element("p", openapi["info"]["description"], class_="lead"),
            html.element(
                "p",
                html.element("a", "Try it on a page", href="/"),
                " · ",
                html.element("a", "OpenAPI file", href="/openapi.json"),
            ),
        )
    ]
    for path, operations in openapi["paths"].items():
        for method, operation in operations.items():
            parts.append(_render_operation(address + path, method, operation, schemas))
    return html.render_document("seqfit serve: API", html.render_parts(parts), style=_asset("serve.css"))


def _render_operation(url: str, method: str, operation: Mapping[str, Any], schemas: Mapping[str, Any]) -> html.Html:
    parts: list[object] = [html.command_line(_write_command(url, method, operation))]
    if operation.get("parameters"):
        rows = [(one["name"], _name_type(one["schema"]), one["description"]) for one in operation["parameters"]]
        parts += [html.element("h3", "In the query string"), html.table(["name", "value", "what it does"], rows)]
    body = operation.get("requestBody")
    if body is not None:
        schema = body["content"]["application/json"]["schema"]
        fields = _find_fields(schema)
        rows = [
            (name, _name_type(field), field.get("description", "") + " Required." * (name in fields[1]))
            for name, field in fields[0].items()
        ]
        parts += [html.element("h3", "Body"), html.table(["name", "value", "what it is"], rows)]
    answers = [
        (status, response["description"], _name_content(response["content"]))
        for status, response in operation["responses"].items()
    ]
    content = operation["responses"]["200"]["content"].get("application/json")
    shown: list[object] = [html.table(["status", "when", "content"], answers)]
    if content is not None:
        name = content["schema"]["$ref"].rpartition("/")[2]
        shown.insert(0, html.code(json.dumps(_sample(schemas[name], schemas), indent=2, ensure_ascii=False)))
    parts.append(html.disclosure("Answers", html.element("div", *shown)))
    return html.section(f"{method.upper()} {urlsplit(url).path}", *parts, note=operation["summary"])


def _find_fields(schema: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[str]]:
    """Properties and required ones; of several forms, the first."""
    while "properties" not in schema:
        schema = schema["anyOf"][0]
    return schema["properties"], schema.get("required", [])


def _write_command(url: str, method: str, operation: Mapping[str, Any]) -> str:
    if method == "get":
        return f"curl {url}"
    fields, required = _find_fields(operation["requestBody"]["content"]["application/json"]["schema"])
    sample = {name: _sample(fields[name], {}) for name in required or fields}
    body = json.dumps(sample, ensure_ascii=False).replace("'", "'\\''")
    return f"curl {url} -H 'Content-Type: application/json' -d '{body}'"


def _sample(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Any:
    """A value that looks like it."""
    if "$ref" in schema:
        return _sample(schemas[schema["$ref"].rpartition("/")[2]], schemas)
    for known in ("const", "examples", "enum"):
        if known in schema:
            return schema[known] if known == "const" else schema[known][0]
    if "anyOf" in schema:
        return _sample(schema["anyOf"][0], schemas)
    kind = schema.get("type", "string")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object":
        return {name: _sample(field, schemas) for name, field in schema.get("properties", {}).items()}
    if kind == "array":
        return [_sample(schema["items"], schemas)]
    return {"string": "...", "integer": 1, "number": 0.5, "boolean": True, "null": None}[kind]


def _name_type(schema: Mapping[str, Any]) -> str:
    """'1 to 16', 'a text or null'."""
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(map(_name_type, schema["anyOf"])))
    if "const" in schema or "enum" in schema:
        return " or ".join(json.dumps(value) for value in schema.get("enum", [schema.get("const")]))
    kind = schema.get("type", "anything")
    kinds = kind if isinstance(kind, list) else [kind]
    least = schema.get("minimum", schema.get("exclusiveMinimum"))
    if "maximum" in schema:
        above = "above " if "exclusiveMinimum" in schema else ""
        return f"{above}{least} to {schema['maximum']}"
    names = {
        "string": "text",
        "integer": "whole number",
        "boolean": "true or false",
        "array": "list",
        "object": "object",
        "number": "number",
    }
    return " or ".join(names.get(str(one), str(one)) for one in kinds)


def _name_content(content: Mapping[str, Any]) -> str:
    return ", ".join(content)


def _asset(name: str) -> str:
    return (resources.files("seqfit.serving") / "assets" / name).read_text("utf-8")
