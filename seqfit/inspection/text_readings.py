"""What a reading of a table is, and the readings as generated text: summaries, translations, anything else.

Reading("summarize", "summarize: ", "{article}", "{highlights}")     how a row becomes text
FoundReading(best, other, doubt)                                     two are possible: en, fr without a direction
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from seqfit.errors import DataError
from seqfit.inspection.column_names import find_direction, find_languages, pair_order, score_role
from seqfit.inspection.columns import ColumnProfile, find_named, length_of, rank_named

TITLES = {"title", "titles", "headline", "subject", "titulo", "titre", "titel"}
_SUMMARY_WORDS = {
    *("summary", "summaries", "highlights", "highlight", "tldr", "resumen", "sumario", "zusammenfassung", "resumo"),
}


@dataclass(frozen=True)
class Reading:
    task: str
    prefix: str
    source: str
    target: str
    more: Mapping[str, Any] = field(default_factory=dict)  # further fields of the task: choices, label_columns, ...
    choices: str = ""  # the names of their columns, for messages


@dataclass(frozen=True)
class FoundReading:
    best: Reading
    other: Reading | None = None
    doubt: str | None = None


@dataclass(frozen=True)
class Hints:
    """What else is known: the names of the data and the model may say the direction of a translation."""

    data: str = ""
    model: str = ""
    shown: str = ""  # the data as the user wrote it
    has_head: bool = False  # the model is an encoder with a classification head, which needs no prefix

    @property
    def title(self) -> str:
        return self.shown or self.data


class Missing(Exception):
    """No column has these roles, which are its `args`."""


def find_summary(columns: Sequence[ColumnProfile], hints: Hints) -> FoundReading:
    prose = sorted((c for c in columns if c.is_prose), key=length_of, reverse=True)
    if len(prose) < 2:
        short = find_named([c for c in columns if c.not_text is None and c not in prose], "summary")
        if short is None or not prose:
            raise Missing(*(["summary"] if prose else ["text", "summary"]))
        return FoundReading(_summary_reading(prose[0], short))
    text, *others = prose
    named = rank_named(others, "summary")
    strong = [c for c in named if c.name.words & _SUMMARY_WORDS]
    called_text = find_named([c for c in prose if c.name.last not in TITLES], "text", 0.95)
    titles = [c for c in prose if c.name.last in TITLES and c is not called_text]
    if called_text is not None and titles and not strong and len(prose) > 2:
        rest = next(c for c in prose if c is not called_text and c is not titles[0])
        doubt = f"{titles[0].path} or {rest.path} could be the summary of {called_text.path}"
        return FoundReading(_summary_reading(called_text, titles[0]), _summary_reading(called_text, rest), doubt)
    if called_text is not None and called_text is not text and called_text not in strong:
        return _find_text_of_two(text, called_text, strong, [*named, *others])
    if len(strong) > 1 and len({c.name.plain for c in strong}) == 1:  # summary1, summary2, summary3
        references = {"references": [f"{{{c.path}}}" for c in strong]}
        return FoundReading(replace(_summary_reading(text, strong[0]), more=references))
    if len(strong) == 1 or (len(others) == 1 and (named or others[0].mean_chars < text.mean_chars / 1.5)):
        return FoundReading(_summary_reading(text, (strong or named or others)[0]))
    if len(others) == 1:
        doubt = f"{text.path} and {others[0].path} are about equally long, and either could be the summary"
        return FoundReading(_summary_reading(text, others[0]), _summary_reading(others[0], text), doubt)
    first, second = [*named, *(c for c in others if c not in named)][:2]
    doubt = f"{first.path} or {second.path} could be the summary"
    return FoundReading(_summary_reading(text, first), _summary_reading(text, second), doubt)


def _find_text_of_two(
    text: ColumnProfile, called: ColumnProfile, strong: list[ColumnProfile], others: list[ColumnProfile]
) -> FoundReading:
    """The column named 'text' is not the longest: it may be the summary of the longer one."""
    if strong and called.mean_chars < 1.5 * strong[0].mean_chars:
        return FoundReading(_summary_reading(text, strong[0]))
    if strong:
        doubt = f"{called.path} or the longer {text.path} could be the text"
        return FoundReading(_summary_reading(called, strong[0]), _summary_reading(text, strong[0]), doubt)
    rest = [c for c in others if c is not called]
    other = _summary_reading(text, rest[0]) if rest else _summary_reading(called, text)
    return FoundReading(
        _summary_reading(text, called), other, f"{text.path} is longer than the column named {called.path}"
    )


def _summary_reading(text: ColumnProfile, summary: ColumnProfile) -> Reading:
    return Reading("summarize", "summarize: ", f"{{{text.path}}}", f"{{{summary.path}}}")


def find_translation(columns: Sequence[ColumnProfile], hints: Hints) -> FoundReading:
    texts = [c for c in columns if c.not_text is None and not c.is_number and (c.mean_chars > 2 or c.distinct > 20)]
    languages = find_languages(column.path for column in texts)
    if len(languages) > 1:
        return _order_languages(languages, hints)
    texts = [c for c in texts if not c.has_few_values]
    if find_known_pair(texts) is not None:
        found = find_generation(texts, hints)
        best = replace(found.best, task="translate", prefix="translate: ")
        other = None if found.other is None else replace(found.other, task="translate", prefix="translate: ")
        return FoundReading(best, other, found.doubt)
    prose = [c for c in texts if c.is_prose] or texts
    direction = find_stated_direction(prose, hints)
    if direction is not None:
        return FoundReading(_translation(direction[0].path, direction[1].path, languages))
    if len(prose) < 2:
        raise Missing("source", "target")
    first, second = prose[:2]
    if len(prose) > 2:
        names = ", ".join(column.path for column in prose)
        doubt = f"{len(prose)} columns hold text ({names})"
    else:
        doubt = "nothing says which of the two columns is translated into the other"
    return FoundReading(
        _translation(first.path, second.path, languages), _translation(second.path, first.path, languages), doubt
    )


def _order_languages(languages: Mapping[str, str], hints: Hints) -> FoundReading:
    """By the names of the data or of the model; never by alphabetical order."""
    by_language = {language: path for path, language in languages.items()}
    for text in (hints.model, hints.data):
        stated = find_direction(text, by_language)
        if stated is not None:
            return FoundReading(_translation(by_language[stated[0]], by_language[stated[1]], languages))
    first, second = list(by_language.values())[:2]
    names = ", ".join(by_language)
    doubt = f"it has {names}, and nothing says which language is translated into which"
    return FoundReading(_translation(first, second, languages), _translation(second, first, languages), doubt)


def find_stated_direction(columns: Sequence[ColumnProfile], hints: Hints) -> tuple[ColumnProfile, ColumnProfile] | None:
    """Two columns whose names are in the data's name as source and target: nl2bash, en-fr."""
    if len(columns) != 2:
        return None
    by_name = {column.name.plain: column for column in columns}
    for text in (hints.data, hints.model):
        stated = find_direction(text, by_name)
        if stated is not None:
            return by_name[stated[0]], by_name[stated[1]]
    return None


def _translation(source: str, target: str, languages: Mapping[str, str]) -> Reading:
    known = source in languages and target in languages
    prefix = f"translate {languages[source]} to {languages[target]}: " if known else "translate: "
    return Reading("translate", prefix, f"{{{source}}}", f"{{{target}}}")


def find_generation(columns: Sequence[ColumnProfile], hints: Hints) -> FoundReading:
    found = _find_generation(columns, hints)
    target = next((c for c in columns if f"{{{c.path}}}" == found.best.target), None)
    if target is not None and target.has_inner_lists:
        top = target.path.split(".")[0]
        raise DataError(
            f"{hints.title}: '{target.path}' reaches into lists inside the list '{top}'",
            "A target is one text; joined, such texts lose what belongs together",
            f"Write each '{top}' as a text, in Python: row['target'] = json.dumps(row['{top}'], ensure_ascii=False), "
            f"and add 'task.source={found.best.source}' 'task.target={{target}}'; for the joined texts, add "
            f"'task.source={found.best.source}' 'task.target={found.best.target}'",
        )
    return found


def _find_generation(columns: Sequence[ColumnProfile], hints: Hints) -> FoundReading:
    usable = [c for c in columns if c.not_text is None and not c.is_flag and not c.has_few_values]
    kept = {"input": (None,), "output": (None,), "instruction": (None, "the same in every row")}
    named = [c for c in columns if c.not_text in kept.get(c.name.plain, ())]
    by_plain = {column.name.plain: column for column in reversed([*usable, *named])}
    target = next((by_plain[name] for name in ("output", "response", "answer", "completion") if name in by_plain), None)
    turns = {column.path: column for column in columns if column.path in ("history", "reply")}
    if len(turns) == 2:  # a reply may be a tool call, which is a record written as text
        return FoundReading(_generation("reply", [turns["history"]]))
    chosen = next((c for c in usable if c.path.split(".")[0] == "chosen"), None)
    if chosen is not None:
        prompts = ("prompt", "conversations", "messages", "instruction", "question")
        sources = [c for c in usable if c.path.split(".")[0] in prompts]
        if not sources:
            raise Missing("source")  # the whole dialogue is in one text
        return FoundReading(_generation(chosen.path, sources))
    if "instruction" in by_plain and target is not None:
        parts = [by_plain["instruction"], *(by_plain[n] for n in ("input", "context") if n in by_plain)]
        return FoundReading(_generation(target.path, parts))
    pair = find_known_pair(usable)
    if pair is not None:
        source, target = pair
        used = {source.path, target.path}
        rest = [c for c in usable if c.path not in used and c.is_prose]
        same = [c for c in rest if c.name.plain == target.name.plain]  # ref, ref1, ref2: several references
        open_prose = [c for c in rest if c not in same and c.path not in target.within]
        open_prose = [c for c in open_prose if c.path not in source.within and source.path not in c.within]
        more = {"references": [f"{{{c.path}}}" for c in [target, *same]]} if same else {}
        reading = _generation(target.path, [source], more)
        if open_prose:
            with_it = _generation(target.path, [source, *open_prose], more)
            names = " and ".join(column.path for column in open_prose)
            return FoundReading(reading, with_it, f"it is not clear whether {names} should be part of the source")
        return FoundReading(reading)
    prose = [c for c in usable if c.is_prose] or usable
    direction = find_stated_direction(prose, hints)
    if direction is not None:
        return FoundReading(_generation(direction[1].path, [direction[0]]))
    if len(prose) < 2:
        raise Missing("source", "target")
    targets = [c for c in prose if max(score_role(c.name, "target"), score_role(c.name, "answer")) >= 0.6]
    if len(targets) == 1 and len(prose) == 2:
        source = next(c for c in prose if c is not targets[0])
        return FoundReading(_generation(targets[0].path, [source]))
    best, other = _generation(prose[-1].path, prose[:-1]), _generation(prose[0].path, prose[1:])
    series = [c for c in prose if c.name.number and c.name.plain == prose[-1].name.plain]
    if len(series) == len(prose) - 1 > 1:  # one column, and text_1, text_2, ...
        source = next(c for c in prose if c not in series)
        more = {"references": [f"{{{c.path}}}" for c in series]}
        doubt = f"{series[0].path} to {series[-1].path} may be references for the same target, or parts of the source"
        best, other = _generation(series[0].path, [source], more), _generation(source.path, series)
        return FoundReading(best, other, doubt)
    if len(targets) == 1:
        best = _generation(targets[0].path, [c for c in prose if c is not targets[0]])
        other = _generation(targets[0].path, [max((c for c in prose if c is not targets[0]), key=length_of)])
    return FoundReading(best, other, "nothing says which column is the target")


def _generation(target: str, parts: Sequence[ColumnProfile], more: Mapping[str, Any] | None = None) -> Reading:
    """Parts after the first may be empty."""
    first, *rest = parts
    source = f"{{{first.path}}}" + "".join(f"[[ {{{column.path}}}]]" for column in rest)
    return Reading("generate", "", source, f"{{{target}}}", more or {})


def find_known_pair(columns: Sequence[ColumnProfile]) -> tuple[ColumnProfile, ColumnProfile] | None:
    """Two columns whose names belong together, source first; exact names come before others."""
    found = [
        (first, second)
        for first in columns
        for second in columns
        if first is not second and pair_order(first.name, second.name) == -1 and not first.is_number
    ]
    # Of a source, its machine translation and its post-edited translation the last is the target.
    found.sort(
        key=lambda pair: (
            pair[1].name.plain not in ("pe", "postedit"),
            -(len(pair[0].name.words) == 1) - (len(pair[1].name.words) == 1),
        )
    )
    return found[0] if found else None
