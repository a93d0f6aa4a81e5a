"""Which column is the question: columns and a task -> a reading, or two where it is open.

In: a task and the columns of a table. Out: `Found`: the best `Reading` (templates and what else the task needs), and
where it is not sure the second best one with the doubt in words. A role that no column can play is an error that lists
the columns.

    qa: pregunta, contexto, respuesta         -> "question: {pregunta}[[ context: {contexto}]]", target "{respuesta}"
    classify: a (4 values), b, c (sentences)  -> "{b} {c}", target "{a}"
    classify: text, stance, topic (both few)  -> "{text}" -> "{stance}", or "{text}" -> "{topic}": in doubt

The one idea: every column is accounted for. It is part of the source, the target, or left out for a reason (ids,
dates, a second form of the answer, ...). Prose without a reason to be left out is a doubt, because a model that never
sees half of its input trains without a complaint.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from seqfit.data.column_names import find_direction, find_languages, pair_order, score_role
from seqfit.data.columns import Column
from seqfit.errors import RecipeError, complain

_CONTEXT_CHARS = 80  # a shorter column next to question and answer is rather a topic or a hint
_CLEAR = 0.35  # by so much the best label column is ahead of the second
_MOSTLY_EMPTY = 0.05  # of the rows: what a stray separator leaves behind
_FEWEST_FLAGS = 3  # columns of 0 and 1 that are labels together


@dataclass(frozen=True)
class Reading:
    """How a row becomes text, and which column got which role."""

    task: str
    prefix: str
    source: str
    target: str
    roles: Mapping[str, str] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)  # further fields of the task: choices, label_columns, ...


@dataclass(frozen=True)
class Found:
    """The best reading; in doubt, the second best and why."""

    best: Reading
    other: Reading | None = None
    doubt: str | None = None


@dataclass(frozen=True)
class Hints:
    """What else is known: names of the data and the model may say the direction of a translation."""

    data: str = ""
    model: str = ""
    has_head: bool = False  # the model is an encoder with a head, which needs no prefix


class _Missing(Exception):
    """Roles that no column can play."""

    def __init__(self, *roles: str) -> None:
        super().__init__(*roles)
        self.roles = roles


def find_reading(task: str, columns: Sequence[Column], hints: Hints | None = None) -> Found:
    """The reading of a task."""
    hints = hints or Hints()
    try:
        return _FINDERS[task](columns, hints)
    except _Missing as missing:
        raise _cannot_guess(task, list(missing.roles), columns, hints.data) from None


def find_task(columns: Sequence[Column], hints: Hints) -> list[str]:
    """The tasks that columns may be for, the likeliest first."""
    question, answer = _best(columns, "question"), _best(columns, "answer", 0.6)
    prose = [column for column in columns if column.is_prose]
    tasks: list[str] = []
    if {"history", "reply"} <= {column.path for column in columns}:
        tasks.append("generate")
    if find_choices(columns) and _choice_target(columns) is not None:
        tasks.append("multiple-choice")
    if question is not None and answer is not None and answer.path != question.path and question.is_prose:
        tasks.append("qa")
    if len(find_languages(column.path for column in prose)) > 1 or _direction(prose, hints) is not None:
        tasks.append("translate")
    summary = _best(prose, "summary", 0.9)
    if summary is not None and any(column.mean_chars > 2 * summary.mean_chars for column in prose):
        tasks.append("summarize")
    if _known_pair([column for column in columns if column.not_text is None and not column.has_few_values]) is not None:
        tasks.append("generate")
    if _flags(columns) or any(column.is_list and _label_score(column) > 1 for column in columns):
        tasks.append("multilabel")
    labels = _label_candidates(columns)
    if labels and (prose or len(columns) > 1):
        tasks.append("regression" if labels[0].has_fractions else "classify")
    return tasks


# ---- questions ----


def _find_qa(columns: Sequence[Column], hints: Hints) -> Found:
    if (choices := find_choices(columns)) and _choice_target(columns) is not None:
        return _find_choice_reading(columns, choices)
    usable = [column for column in columns if column.not_text is None]
    by_plain = {column.name.plain: column for column in usable}
    if "q" in by_plain and "a" in by_plain:
        return Found(_qa_reading(by_plain["q"], [], by_plain["a"]))
    question = _best(usable, "question", prose_first=True) or _most_questions(usable)
    rest = [column for column in usable if column is not question]
    answers = _ranked(rest, "answer", 0.6, lambda column: not _is_offset(column))
    if question is None:
        pair = _known_pair([c for c in usable if not c.has_few_values or score_role(c.name, "target") >= 0.8])
        if pair is not None:
            return Found(_qa_reading(pair[0], [], pair[1]))
        texts = [c for c in usable if not c.is_number and not c.has_few_values]
        if len(texts) != 2:
            raise _Missing("question", *([] if answers else ["answer"]))
        first, second = (_qa_reading(a, [], b) for a, b in (texts, texts[::-1]))
        return Found(first, second, "nothing says which of the two columns is the question")
    named = [column for column in rest if score_role(column.name, "context") >= 0.6 and column not in answers[:1]]
    contexts = [column for column in named if column.is_prose or column.is_list]
    contexts += [c for c in rest if c.name.plain == "input" and c not in answers[:1]]  # instruction, input, output
    if not contexts and (text := _best([c for c in rest if c not in answers[:1]], "text", 0.8)) is not None:
        contexts = [text] if text.mean_chars > _CONTEXT_CHARS else []
    if not answers:
        return _guess_answer(question, contexts, [c for c in rest if c not in contexts])
    answer = answers[0]
    reading = _qa_reading(question, contexts, answer)
    rivals = [c for c in answers[1:] if _is_rival(c, answer)]
    if rivals:
        other = _qa_reading(question, contexts, rivals[0])
        return Found(reading, other, f"both {answer.path} and {rivals[0].path} could be the answer")
    used = {question.path, answer.path, *(column.path for column in contexts)}
    open_prose = [c for c in rest if c.path not in used and c.is_prose and c.mean_chars > _CONTEXT_CHARS]
    open_prose = [c for c in open_prose if c not in answers and c.name.last not in _TITLES]
    if not contexts:
        open_prose += [c for c in rest if c.name.last in _TITLES and c.is_prose and c is not answer]
    if open_prose:
        with_it = _qa_reading(question, [*contexts, *open_prose], answer)
        names = " and ".join(column.path for column in open_prose)
        return Found(with_it, reading, f"{names} could be part of what the answer is found in, or not")
    return Found(reading)


_TITLES = {"title", "titles", "headline", "subject", "titulo", "titre", "titel"}


def _guess_answer(question: Column, contexts: list[Column], others: Sequence[Column]) -> Found:
    """No column is called an answer: of two others the longer one is a context."""
    others = [c for c in others if c.name.last not in _TITLES and not _is_offset(c)]
    longest = max(others, key=_length, default=None)
    if longest is None:
        raise _Missing("answer")
    if len(others) > 1 and not contexts and longest.is_prose and longest.mean_chars > _CONTEXT_CHARS:
        contexts = [longest]
    answers = sorted((c for c in others if c not in contexts), key=_length)
    reading = _qa_reading(question, contexts, answers[0])
    if len(answers) == 1:
        return Found(reading)
    other = _qa_reading(question, contexts, answers[1])
    return Found(reading, other, f"no column is called an answer: {answers[0].path} or {answers[1].path} could be it")


def _qa_reading(question: Column, contexts: Sequence[Column], answer: Column) -> Reading:
    roles = {"question": question.path}
    source = f"question: {{{question.path}}}"
    for number, column in enumerate(contexts, 1):
        role = "context" if len(contexts) == 1 else f"context {number}"
        roles[role] = column.path
        source += f"[[ context: {{{column.path}}}]]" if number == 1 else f"[[ {{{column.path}}}]]"
    return Reading("qa", "", source, f"{{{answer.path}}}", roles | {"answer": answer.path})


def _is_rival(column: Column, answer: Column) -> bool:
    """Whether a second column with an answer's name may be meant: text as well, and filled."""
    close = score_role(answer.name, "answer") - score_role(column.name, "answer") < 0.25
    return close and column.filled_share > 0.5 and not column.has_few_values and not column.is_number


def _is_offset(column: Column) -> bool:
    return bool(column.name.words & {"start", "end", "offset", "id", "ids", "type", "idx", "index", "category", "url"})


def find_choices(columns: Sequence[Column]) -> list[Column]:
    """The columns that hold the choices of a question: one of lists, or several that are numbered or lettered."""
    for column in columns:
        if column.is_list and column.mean_items >= 2 and score_role(column.name, "choices") >= 0.6:
            return [column]
    families: dict[str, list[Column]] = {}
    for column in columns:
        is_choice = score_role(column.name, "choices") >= 0.6 or column.name.plain in ("ans", "answer", "sol")
        if column.name.number and is_choice and not column.is_number:
            families.setdefault(f"{column.path.rpartition('.')[0]}/{column.name.plain}", []).append(column)
        elif column.path.lower() in ("a", "b", "c", "d", "e"):
            families.setdefault("letters", []).append(column)
        elif re.fullmatch(r"op(t|tion)?[_ ]?[a-e1-5]", column.path.lower()):
            families.setdefault("op", []).append(column)
    family = max(families.values(), key=lambda found: (len(found), "." not in found[0].path), default=[])
    return family if len(family) > 1 else []


def _choice_target(columns: Sequence[Column]) -> Column | None:
    """The column that says which choice is right."""
    choices = [column.path for column in find_choices(columns)]
    inside = {
        path.rpartition(".")[0] for path in choices if path.count(".")
    }  # choices.label says nothing of the answer
    rest = [c for c in columns if c.path not in choices and c.path.rpartition(".")[0] not in inside]
    names = ("answer", "label", "target")
    scored = [(max(score_role(column.name, role) for role in names), column) for column in rest]
    correct = [column for column in rest if column.name.words & {"correct", "right", "cop", "key", "gold"}]
    scored += [(0.97, column) for column in correct]
    scored = [(score, column) for score, column in scored if score >= 0.6 and not _is_explanation(column)]
    best = max(scored, key=lambda entry: (entry[0], entry[1].has_few_values), default=None)
    return None if best is None else best[1]


def _is_explanation(column: Column) -> bool:
    return bool(column.name.words & {"explanation", "rationale", "exp", "reason", "solution", "type", "start"})


def _find_choice_reading(columns: Sequence[Column], choices: Sequence[Column]) -> Found:
    target = _choice_target(columns)
    if target is None:
        raise _Missing("answer")
    skip = {target.path, *(column.path for column in choices)}
    usable = [column for column in columns if column.not_text is None and column.path not in skip]
    question = _best(usable, "question", prose_first=True) or _most_questions(usable) or _longest(usable)
    if question is None:
        raise _Missing("question")
    contexts = [
        c
        for c in usable
        if c is not question and c.is_prose and (score_role(c.name, "context") >= 0.6 or c.name.plain == "text")
    ]
    base = _qa_reading(question, contexts, target)
    templates: str | list[str] = [f"{{{column.path}}}" for column in choices]
    if len(choices) == 1:
        templates = templates[0]
    roles = {role: path for role, path in base.roles.items() if role != "answer"}
    roles |= {"choices": ", ".join(column.path for column in choices), "right choice": target.path}
    reading = Reading("multiple-choice", "", base.source, f"{{{target.path}}}", roles, {"choices": templates})
    used = {question.path, *(column.path for column in contexts)}
    open_prose = [c for c in usable if c.path not in used and c.is_prose and c.mean_chars > _CONTEXT_CHARS]
    open_prose = [c for c in open_prose if not _is_explanation(c)]
    if open_prose:
        more = _qa_reading(question, [*contexts, *open_prose], target)
        other = Reading("multiple-choice", "", more.source, reading.target, roles, reading.more)
        return Found(other, reading, f"{open_prose[0].path} could be part of what the answer is found in, or not")
    return Found(reading)


def _find_math(columns: Sequence[Column], hints: Hints) -> Found:
    if (choices := find_choices(columns)) and _choice_target(columns) is not None:
        return _find_choice_reading(columns, choices)
    usable = [column for column in columns if column.not_text is None and not column.name.words & _WORKINGS]
    question = _best(usable, "question", prose_first=True) or _most_questions(usable) or _best(usable, "text")
    rest = [column for column in usable if column is not question]
    answers = _ranked(rest, "answer", 0.6, lambda column: not _is_offset(column))
    if not answers and len(rest) == 1:
        answers = rest
    if question is None or not answers:
        raise _Missing(*(["question"] if question is None else []), *([] if answers else ["answer"]))
    contexts = [c for c in rest if c.is_prose and c not in answers]
    readings = [_math_reading(question, contexts, answer) for answer in answers]
    if len(readings) > 1:
        return Found(readings[0], readings[1], f"both {answers[0].path} and {answers[1].path} could be the answer")
    named = all(max(score_role(c.name, "context"), score_role(c.name, "text")) >= 0.8 for c in contexts)
    if contexts and not named:
        names = " and ".join(column.path for column in contexts)
        return Found(
            readings[0], _math_reading(question, [], answers[0]), f"{names} could be part of the problem, or not"
        )
    return Found(readings[0])


_WORKINGS = {
    "equation",
    "equations",
    "formula",
    "expression",
    "rationale",
    "explanation",
    "steps",
    "chain",
    "type",
    "lequations",
}


def _math_reading(question: Column, contexts: Sequence[Column], answer: Column) -> Reading:
    source = " ".join(f"{{{column.path}}}" for column in [*contexts, question])
    return Reading("math", "", source, f"{{{answer.path}}}", {"question": question.path, "answer": answer.path})


# ---- texts ----


def _find_summary(columns: Sequence[Column], hints: Hints) -> Found:
    prose = sorted((c for c in columns if c.is_prose), key=_length, reverse=True)
    if len(prose) < 2:
        short = _best([c for c in columns if c.not_text is None and c not in prose], "summary")
        if short is None or not prose:
            raise _Missing(*(["summary"] if prose else ["text", "summary"]))
        return Found(_summary_reading(prose[0], short))
    text, *others = prose
    named = _ranked(others, "summary", 0.6, lambda column: True)
    strong = [c for c in named if c.name.words & _SUMMARY_WORDS]
    called_text = _best([c for c in prose if c.name.last not in _TITLES], "text", 0.95)
    if called_text is not None and called_text is not text and called_text not in strong:
        return _find_text_of_two(text, called_text, strong, [*named, *others])
    if len(strong) > 1 and len({c.name.plain for c in strong}) == 1:  # summary1, summary2, summary3
        references = {"references": [f"{{{c.path}}}" for c in strong]}
        return Found(replace(_summary_reading(text, strong[0]), more=references))
    if len(strong) == 1 or (len(others) == 1 and (named or others[0].mean_chars < text.mean_chars / 1.5)):
        return Found(_summary_reading(text, (strong or named or others)[0]))
    if len(others) == 1:
        doubt = f"{text.path} and {others[0].path} are nearly equally long"
        return Found(_summary_reading(text, others[0]), _summary_reading(others[0], text), doubt)
    first, second = [*named, *(c for c in others if c not in named)][:2]
    doubt = f"both {first.path} and {second.path} could be the summary"
    return Found(_summary_reading(text, first), _summary_reading(text, second), doubt)


def _find_text_of_two(text: Column, called: Column, strong: list[Column], others: list[Column]) -> Found:
    """The column called 'text' is not the longest: it may be the summary of what is longer."""
    if strong and called.mean_chars < 1.5 * strong[0].mean_chars:
        return Found(_summary_reading(text, strong[0]))
    if strong:
        doubt = f"both {called.path} and the longer {text.path} could be the text"
        return Found(_summary_reading(called, strong[0]), _summary_reading(text, strong[0]), doubt)
    rest = [c for c in others if c is not called]
    other = _summary_reading(text, rest[0]) if rest else _summary_reading(called, text)
    return Found(_summary_reading(text, called), other, f"{text.path} is longer than the column called {called.path}")


_SUMMARY_WORDS = {
    "summary",
    "summaries",
    "highlights",
    "highlight",
    "tldr",
    "resumen",
    "sumario",
    "zusammenfassung",
    "resumo",
}


def _summary_reading(text: Column, summary: Column) -> Reading:
    roles = {"text": text.path, "summary": summary.path}
    return Reading("summarize", "summarize: ", f"{{{text.path}}}", f"{{{summary.path}}}", roles)


def _find_translation(columns: Sequence[Column], hints: Hints) -> Found:
    texts = [c for c in columns if c.not_text is None and not c.is_number and (c.mean_chars > 2 or c.distinct > 20)]
    languages = find_languages(column.path for column in texts)
    if len(languages) > 1:
        return _order_languages(languages, hints)
    texts = [c for c in texts if not c.has_few_values]
    if _known_pair(texts) is not None:
        return _in_words_of("translate", "translate: ", _find_generation(texts, hints))
    prose = [c for c in texts if c.is_prose] or texts
    direction = _direction(prose, hints)
    if direction is not None:
        return Found(_translation(direction[0].path, direction[1].path, languages))
    if len(prose) < 2:
        raise _Missing("source", "target")
    first, second = prose[:2]
    if len(prose) > 2:
        names = ", ".join(column.path for column in prose)
        doubt = f"{len(prose)} columns ({names}) hold text"
    else:
        doubt = "nothing says which of the two is translated into which"
    return Found(
        _translation(first.path, second.path, languages), _translation(second.path, first.path, languages), doubt
    )


def _in_words_of(task: str, prefix: str, found: Found) -> Found:
    """The readings of generate under the name of another task."""
    best, other = (None if one is None else replace(one, task=task, prefix=prefix) for one in (found.best, found.other))
    assert best is not None
    return Found(best, other, found.doubt)


def _order_languages(languages: Mapping[str, str], hints: Hints) -> Found:
    """By what the names of the data or of the model say; never by the order of the alphabet."""
    by_language = {language: path for path, language in languages.items()}
    for text in (hints.model, hints.data):
        stated = find_direction(text, by_language)
        if stated is not None:
            return Found(_translation(by_language[stated[0]], by_language[stated[1]], languages))
    first, second = list(by_language.values())[:2]
    names = ", ".join(by_language)
    doubt = f"it has {names}, and nothing says which is translated into which"
    return Found(_translation(first, second, languages), _translation(second, first, languages), doubt)


def _direction(columns: Sequence[Column], hints: Hints) -> tuple[Column, Column] | None:
    """Two columns whose names stand in the data's name as from and to: nl2bash, en-fr."""
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
    return Reading("translate", prefix, f"{{{source}}}", f"{{{target}}}", {"source": source, "target": target})


def _find_generation(columns: Sequence[Column], hints: Hints) -> Found:
    usable = [
        column for column in columns if column.not_text is None and not column.is_flag and not column.has_few_values
    ]
    named = [c for c in columns if c.not_text is None and c.name.plain in ("instruction", "input", "output")]
    by_plain = {column.name.plain: column for column in reversed([*usable, *named])}
    target = next((by_plain[name] for name in ("output", "response", "answer", "completion") if name in by_plain), None)
    if "history" in by_plain and "reply" in by_plain:
        return Found(_generation(by_plain["reply"].path, [by_plain["history"]]))
    chosen = next((c for c in usable if c.path.split(".")[0] == "chosen"), None)
    if chosen is not None:
        asked = [
            c
            for c in usable
            if c.path.split(".")[0] in ("prompt", "conversations", "messages", "instruction", "question")
        ]
        if not asked:
            raise _Missing("source")  # the whole dialogue is in one text
        return Found(_generation(chosen.path, asked))
    if "instruction" in by_plain and target is not None:
        parts = [by_plain["instruction"], *(by_plain[n] for n in ("input", "context") if n in by_plain)]
        return Found(_generation(target.path, parts))
    pair = _known_pair(usable)
    if pair is not None:
        source, target = pair
        used = {source.path, target.path}
        rest = [c for c in usable if c.path not in used and c.is_prose]
        same = [c for c in rest if c.name.plain == target.name.plain]  # ref, ref1, ref2: several references
        open_prose = [c for c in rest if c not in same]
        more = {"references": [f"{{{c.path}}}" for c in [target, *same]]} if same else {}
        reading = _generation(target.path, [source], more)
        if open_prose:
            with_it = _generation(target.path, [source, *open_prose], more)
            names = " and ".join(column.path for column in open_prose)
            return Found(reading, with_it, f"{names} could be part of the source, or not")
        return Found(reading)
    prose = [c for c in usable if c.is_prose] or usable
    direction = _direction(prose, hints)
    if direction is not None:
        return Found(_generation(direction[1].path, [direction[0]]))
    if len(prose) < 2:
        raise _Missing("source", "target")
    targets = [c for c in prose if max(score_role(c.name, "target"), score_role(c.name, "answer")) >= 0.6]
    if len(targets) == 1 and len(prose) == 2:
        source = next(c for c in prose if c is not targets[0])
        return Found(_generation(targets[0].path, [source]))
    best, other = _generation(prose[-1].path, prose[:-1]), _generation(prose[0].path, prose[1:])
    if len(targets) == 1:
        best = _generation(targets[0].path, [c for c in prose if c is not targets[0]])
        other = _generation(targets[0].path, [max((c for c in prose if c is not targets[0]), key=_length)])
    return Found(best, other, "nothing says which of the columns is to be generated from which")


def _generation(target: str, parts: Sequence[Column], more: Mapping[str, Any] | None = None) -> Reading:
    """Parts after the first may be empty in some rows."""
    first, *rest = parts
    source = f"{{{first.path}}}" + "".join(f"[[ {{{column.path}}}]]" for column in rest)
    roles = {"source": ", ".join(column.path for column in parts), "target": target}
    return Reading("generate", "", source, f"{{{target}}}", roles, more or {})


def _known_pair(columns: Sequence[Column]) -> tuple[Column, Column] | None:
    """Two columns whose names are known to belong together, source first; the exact names come before others."""
    found = [
        (first, second)
        for first in columns
        for second in columns
        if first is not second and pair_order(first.name, second.name) == -1 and not first.is_number
    ]
    found.sort(key=lambda pair: -(len(pair[0].name.words) == 1) - (len(pair[1].name.words) == 1))
    return found[0] if found else None


# ---- labels ----


def _find_classes(columns: Sequence[Column], hints: Hints, task: str = "classify") -> Found:
    candidates = _label_candidates(columns)
    if task == "classify" and _flags(columns):
        return _find_label_sets(columns, hints)
    if task == "classify" and any(not c.has_fractions for c in candidates):
        candidates.sort(key=lambda column: column.has_fractions)
    if task == "regression":
        candidates = [c for c in candidates if c.is_number] + [
            c for c in columns if c.is_number and c.not_text is None and c not in candidates and not c.has_few_values
        ]
    texts, doubt = _find_texts([c for c in columns if c not in candidates[:1]], candidates)
    missing = [*([] if candidates else ["label"]), *([] if texts else ["text"])]
    if missing:
        raise _Missing(*missing)
    label = candidates[0]
    best = _class_reading(task, texts, label)
    rival = next((c for c in candidates[1:] if _label_score(label) - _label_score(c) < _CLEAR), None)
    if rival is not None and _label_score(rival) > 0:
        best = _class_reading(task, [*_aspects([rival], texts), *texts], label)
        if doubt:  # two questions at once: all of the text, or its longest column
            names = " and ".join(column.path for column in doubt)
            whole = _class_reading(task, [c for c in columns if c in texts or c in doubt], label)
            doubts = f"both {label.path} and {rival.path} could be the label, and {names} part of the text"
            return Found(whole, best, doubts)
        other = _class_reading(task, [c for c in texts if c is not rival], rival)
        return Found(best, other, f"both {label.path} and {rival.path} could be the label")
    if doubt:
        names = " and ".join(column.path for column in doubt)
        all_texts = [c for c in columns if c in texts or c in doubt]
        return Found(best, _class_reading(task, all_texts, label), f"{names} could be part of the text, or not")
    return Found(best)


def _aspects(columns: Sequence[Column], texts: Sequence[Column]) -> list[Column]:
    """What a text is judged about belongs to the source: the target of a stance, the aspect of a review."""
    return [
        c
        for c in columns
        if c.name.words & {"target", "aspect", "term", "entity"} and c not in texts and not c.is_number
    ]


def _find_scores(columns: Sequence[Column], hints: Hints) -> Found:
    return _find_classes(columns, hints, "regression")


def _find_label_sets(columns: Sequence[Column], hints: Hints) -> Found:
    flags = _flags(columns)
    lists = [c for c in _label_candidates(columns) if c.is_list]
    if flags and not lists:
        texts, doubt = _find_texts([c for c in columns if c not in flags], [])
        if not texts:
            raise _Missing("text")
        names = [column.path for column in flags]
        source = _join(texts)
        roles = _text_roles(texts) | {"labels": ", ".join(names)}
        best = Reading("multilabel", "classify: ", source, "", roles, {"label_columns": names})
        if doubt:
            other = Reading("multilabel", "classify: ", _join([*texts, *doubt]), "", roles, {"label_columns": names})
            return Found(best, other, f"{doubt[0].path} could be part of the text, or not")
        return Found(best)
    return _find_classes(columns, hints, "multilabel")


def _class_reading(task: str, texts: Sequence[Column], label: Column) -> Reading:
    role = "score" if task == "regression" else "label"
    prefix = "score: " if task == "regression" else "classify: "
    return Reading(task, prefix, _join(texts), f"{{{label.path}}}", {role: label.path} | _text_roles(texts))


def _text_roles(texts: Sequence[Column]) -> dict[str, str]:
    return {"text" if len(texts) == 1 else f"text {number}": column.path for number, column in enumerate(texts, 1)}


def _join(texts: Sequence[Column]) -> str:
    """Parts of a pair are told apart by their names; a title and a body run on."""
    if len(texts) > 1 and _is_family(texts):
        return " ".join(f"{column.path.split('.')[-1]}: {{{column.path}}}" for column in texts)
    first, *rest = texts
    template = f"{{{first.path}}}" if first.filled_share > 0.99 or not rest else f"[[{{{first.path}}}]]"
    return template + "".join(
        f" {{{column.path}}}" if column.filled_share > 0.99 else f"[[ {{{column.path}}}]]" for column in rest
    )


def _is_family(texts: Sequence[Column]) -> bool:
    """sentence1, sentence2; or premise, hypothesis."""
    names = {column.name.plain for column in texts}
    numbered = len(names) == 1 and names != {"column"} and all(column.name.number for column in texts)
    return numbered or any(pair <= names for pair in _TEXT_PAIRS)


_TEXT_PAIRS = (
    *({"premise", "hypothesis"}, {"claim", "evidence"}, {"question", "passage"}, {"query", "document"}),
    *({"question", "answer"}, {"question", "sentence"}, {"query", "passage"}, {"context", "response"}),
    *({"cause", "effect"}, {"headline", "body"}, {"statement", "evidence"}, {"source", "target"}, {"q", "a"}),
    *({"text", "hypothesis"}, {"target", "tweet"}, {"aspect", "sentence"}, {"question", "context"}),
)


def _find_texts(columns: Sequence[Column], labels: Sequence[Column]) -> tuple[list[Column], list[Column]]:
    """The columns of the text, and prose that may belong to it or not."""
    prose = [c for c in columns if c.is_prose and not c.has_few_values and c.filled_share > _MOSTLY_EMPTY]
    if not prose:
        prose = [c for c in columns if c.is_prose and c.filled_share > _MOSTLY_EMPTY]
    if not prose:
        single = [c for c in columns if c.not_text is None and not c.is_number and c not in labels and not c.is_list]
        named = [c for c in single if score_role(c.name, "text") >= 0.6]
        chosen = max(named or single, key=lambda column: column.distinct, default=None)
        return ([] if chosen is None else [chosen]), []
    if len(prose) == 1:
        return prose, []
    named = [c for c in prose if (_is_text_name(c) or _has_partner(c, prose)) and c.filled_share > 0.5]
    if not named:
        ranked = sorted(prose, key=_length, reverse=True)
        return (prose, []) if len(prose) == 2 else ([ranked[0]], [c for c in prose if c is not ranked[0]])
    rest = [c for c in prose if c not in named and c.filled_share > 0.5]
    return [c for c in prose if c in named], rest


def _is_text_name(column: Column) -> bool:
    return max(score_role(column.name, "text"), score_role(column.name, "title")) >= 0.75


def _has_partner(column: Column, columns: Sequence[Column]) -> bool:
    plain = column.name.plain
    same = any(c is not column and c.name.plain == plain and plain not in ("", "column") for c in columns)
    names = {c.name.plain for c in columns}
    return (same and bool(column.name.number)) or any(
        column.name.plain in pair and pair <= names for pair in _TEXT_PAIRS
    )


def _label_candidates(columns: Sequence[Column]) -> list[Column]:
    found = [column for column in columns if _label_score(column) >= 0.5]
    if not found:  # without names, numbers next to texts are scores, or sets such as 4,27
        found = [c for c in columns if c.is_number and c.not_text is None and c.filled_share > 0.2]
    found = sorted(found, key=_label_score, reverse=True)
    return _without_equivalents(found)


def _without_equivalents(ranked: list[Column]) -> list[Column]:
    """label_text before label where both have equally many values: the same classes, by name and by number."""
    if len(ranked) < 2:
        return ranked
    best = ranked[0]
    twins = [
        c
        for c in ranked[1:]
        if c.distinct == best.distinct
        and c.filled == best.filled
        and c.is_number != best.is_number
        and c.name.words & best.name.words
    ]
    if not twins:
        return ranked
    words = next(c for c in (best, *twins) if not c.is_number)
    return [words, *(c for c in ranked if c is not words and c is not best and c not in twins)]


def _label_score(column: Column) -> float:
    """How much a column looks like the label: its name, and values that are few and short."""
    unusable = column.not_text is not None and column.not_text != "metadata"
    if unusable or column.filled_share < 0.2:
        return 0.0
    name = score_role(column.name, "label")
    if column.is_prose and not column.is_list and not column.has_few_values:
        return 0.0
    if column.name.plain == "column" and column.has_fractions:
        return 0.5  # a column without a name: scores are as likely as classes
    content = 0.5 if column.has_few_values else 0.3 if column.is_list or (column.is_number and name) else 0.0
    if column.name.words & _NOT_LABELS or column.not_text == "metadata":
        content -= 0.3
    if content <= 0 and name < 0.8:
        return 0.0
    return name + content - (0.4 if column.filled_share < 0.5 else 0.0)


_NOT_LABELS = {
    *("id", "confidence", "count", "num", "number", "length", "year", "lang", "language", "source", "annotator"),
    *("worker", "votes", "cost", "agreement"),
}


def _flags(columns: Sequence[Column]) -> list[Column]:
    """Columns of 0 and 1 that are labels together, such as toxic, obscene, threat."""
    flags = [c for c in columns if c.is_flag and c.not_text in (None, "the same in every row") and c.filled_share > 0.5]
    flags = [c for c in flags if not c.name.words & _NOT_LABELS]
    strong = [c for c in columns if score_role(c.name, "label") >= 0.8 and c.has_few_values and c not in flags]
    inside = {c.path.rpartition(".")[0] for c in flags}  # {"cats": {"A": 0, "B": 1}} is one set of labels
    fewest = 2 if len(inside) == 1 and "" not in inside else _FEWEST_FLAGS
    return flags if len(flags) >= fewest and not strong else []


# ---- common ----


_FINDERS: dict[str, Callable[[Sequence[Column], Hints], Found]] = {
    "qa": _find_qa,
    "summarize": _find_summary,
    "translate": _find_translation,
    "classify": _find_classes,
    "math": _find_math,
    "generate": _find_generation,
    "regression": _find_scores,
    "multilabel": _find_label_sets,
    "multiple-choice": lambda columns, hints: _find_choice_reading(columns, find_choices(columns) or _no_choices()),
}


def _no_choices() -> list[Column]:
    raise _Missing("choices")


def _ranked(columns: Sequence[Column], role: str, least: float, fits: Callable[[Column], bool]) -> list[Column]:
    found = [c for c in columns if score_role(c.name, role) >= least and fits(c)]
    return sorted(found, key=lambda column: -score_role(column.name, role))


def _best(columns: Sequence[Column], role: str, least: float = 0.6, *, prose_first: bool = False) -> Column | None:
    """The column whose name says most clearly that it is the role; of equals the first."""
    found = [c for c in columns if score_role(c.name, role) >= least and c.not_text is None]
    if prose_first and any(c.is_prose for c in found):
        found = [c for c in found if c.is_prose]
    return max(found, key=lambda column: score_role(column.name, role), default=None)


def _most_questions(columns: Sequence[Column]) -> Column | None:
    asked = [c for c in columns if c.is_prose and c.question_share > 0.5]
    return max(asked, key=lambda column: column.question_share, default=None)


def _longest(columns: Sequence[Column]) -> Column | None:
    return max((c for c in columns if c.is_prose), key=_length, default=None)


def _length(column: Column) -> float:
    return column.mean_chars


def _cannot_guess(task: str, missing: list[str], columns: Sequence[Column], data: str) -> RecipeError:
    names = ", ".join(f"{c.path} ({c.not_text})" if c.not_text else c.path for c in columns)
    source, target = ("question: {col} context: {col2}", "{col3}") if task == "qa" else ("{col}", "{col2}")
    return RecipeError(
        complain(
            f"{data} has the columns {names}",
            f"The task {task} needs {' and '.join(missing)}, and no column is called so or looks like it",
            f"Name them, with the column names in braces: task.source='{source}' task.target='{target}'",
        )
    )
