"""The part of a plan's page that answers by itself: sliders for batch and lengths, and what the browser plans with.

In: what `planning` exports (plain values), and the command that asks the same. Out: markup; `plan_model.js` plans and
`plan_sliders.js` shows it. The values are compressed, because the layers of a model repeat: 1.5 MB become 0.2.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping
from typing import Any

from seqfit.reporting.html import Html, command_line, element, section, tile, tiles

SLIDER_SCRIPTS = ("plan_model.js", "plan_sliders.js")
_SLIDERS = {"batch": "Examples per step", "source": "Source tokens", "target": "Target tokens"}
_CHOICES = {"device": "GPU", "precision": "Precision", "strategy": "Strategy"}
_TILES = {"memory": "peak memory", "step": "time per step", "total": "total", "cost": "cost"}
_NOTE = (
    "Planned here, in the browser, by the polynomials that the plan was made with: one GPU, all texts of the same "
    "length. Nothing is loaded or sent."
)


def show_sliders(model: Mapping[str, Any], command: str, price: float | None) -> Html:
    """`command`: of the same plan, without GPU, batch, lengths and rows."""
    names = [name for name in _SLIDERS if name != "target" or not model["is_classifier"]]
    numbers = [
        _number("rows", "Rows to train on", model["training"]["rows"], step="1"),
        _number("price", "Price of a GPU and hour", "" if price is None else f"{price:g}", step="any"),
    ]
    choices = [
        element("label", element("span", text), element("select", name=name), class_="choice")
        for name, text in _CHOICES.items()
    ]
    fields = [*(_slider(name, _SLIDERS[name]) for name in names), *choices, *numbers]
    answered = element("p", "Reading the plan ...", class_="planned", role="status", aria_live="polite")
    shown = tiles([_mark(name, tile(text, "", "")) for name, text in _TILES.items()])
    caption = element("figcaption", element("b", "Memory against the batch"), element("span", _CHART, class_="note"))
    chart = element("figure", caption, element("div", class_="drawing"), class_="chart")
    packed = base64.b64encode(gzip.compress(json.dumps(model, separators=(",", ":")).encode(), mtime=0)).decode()
    notes = [element("p", text, class_="note") for text in _list_notes(model)]
    found = section(
        "Other sizes",
        element("div", *fields, class_="sliders", hidden=True),
        answered,
        shown,
        chart,
        element("p", "The same from the command line:", class_="note"),
        Html(str(command_line("")).replace('class="copy"', 'class="copy ask"')),
        *notes,
        element("script", Html(packed), type="text/plain"),
        note=_NOTE,
    )
    opened = element("section", id="sliders", data_command=command)
    return Html(str(found).replace("<section>", str(opened).removesuffix("</section>"), 1))


_CHART = "of a step in one micro-batch, by strategy; the dashed line is what the GPU has"


def _list_notes(model: Mapping[str, Any]) -> list[str]:
    lengths = {name: ends for name, ends in model["ranges"].items() if name != "batch" and ends[1]}
    known = [
        f"{f'{least:,} to ' if least < most else ''}{most:,} {name} tokens" for name, (least, most) in lengths.items()
    ]
    notes = [
        f"Known here: {' and '.join(known)}, in multiples of {model['rules']['alignment']}. Other lengths take other "
        "paths through the model; a plan for them has a page of its own (--html)."
    ]
    if model["has_data"]:
        notes.append(
            "It starts with the longest texts of your data, as if all were so long; the plan has their real lengths."
        )
    if not model["is_complete"]:
        notes.append(
            "Where memory is short, the command also tries blockwise attention of short texts; its answer may then be "
            "faster."
        )
    return notes


def _slider(name: str, text: str) -> Html:
    slider = Html(f'<input type="range" name="{name}-slider" min="0" step="1" aria-label="{text}">')
    field = _input(name, text, step="1")
    return element("div", element("label", element("span", text), field), slider, class_="slider")


def _number(name: str, text: str, value: object, *, step: str) -> Html:
    return element("label", element("span", text), _input(name, text, step=step, value=value), class_="choice")


def _input(name: str, text: str, *, step: str, value: object = "") -> Html:
    least = "0" if step == "any" else "1"
    what = text[0].lower() + text[1:]
    return Html(
        f'<input type="number" name="{name}" data-what="{what}" min="{least}" step="{step}" value="{value}" '
        f'inputmode="decimal">'
    )


def _mark(name: str, shown: Html) -> Html:
    return Html(str(shown).replace('class="tile"', f'class="tile" data-tile="{name}"', 1))
