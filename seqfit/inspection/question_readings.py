"""Which columns are a question, its context, its choices and its answer.

question, para_a, para_b, answer     -> "question: {question}[[ context: {para_a}]][[ {para_b}]]" -> "{answer}"
question, choice0 ... choice4, label -> multiple-choice, with the choices in the source
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from seqfit.errors import DataError
from seqfit.inspection.column_names import Name, score_role
from seqfit.inspection.columns import ColumnProfile, find_named, length_of, rank_named
from seqfit.inspection.text_readings import TITLES, FoundReading, Hints, Missing, Reading, find_known_pair

_FREE_CHARS = 150
_CONTEXT_CHARS = 80  # a shorter column next to question and answer is probably a topic or a hint
_PLACES = re.compile(r"\d+( \d+)*")
_DECISIONS = ({"yes", "no"}, {"yes", "no", "maybe"}, {"yes", "no", "unknown"})
_EXPLAINS = {
    *("explanation", "explanations", "rationale", "rationales", "exp", "reason", "reasons", "reasoning", "solution"),
    *("solutions", "analysis", "justification", "feedback", "hint", "hints", "cot", "type", "start"),
}
_WORKINGS = {
    *("equation", "equations", "formula", "expression", "rationale", "explanation", "steps", "chain", "type"),
    *("lequations", "reasoning", "program", "code", "derivation", "proof", "cot", "thought", "hint", "hints"),
}


def find_qa(columns: Sequence[ColumnProfile], hints: Hints) -> FoundReading:
    if (choices := find_choices(columns)) and find_choice_target(columns) is not None:
        return find_choice_reading(columns, choices)
    usable = [column for column in columns if column.not_text is None]
    by_plain = {column.name.plain: column for column in usable}
    if "q" in by_plain and "a" in by_plain:
        return FoundReading(_qa_reading(by_plain["q"], [], by_plain["a"]))
    question = _find_question(usable)
    rest = [column for column in usable if column is not question]
    answers = rank_named([c for c in rest if not _is_offset(c)], "answer")
    if question is not None and answers:  # the whole prompt, with the answer in it
        is_free = answers[0].mean_chars > _FREE_CHARS  # too long for a span of a context
        whole = set(answers[0].within) if is_free else set(question.within) & set(answers[0].within)
        rest = [column for column in rest if column.path not in whole]
        answers = [column for column in answers if column.path not in whole]
    if question is None:
        pair = find_known_pair([c for c in usable if not c.has_few_values or score_role(c.name, "target") >= 0.8])
        if pair is not None:
            return FoundReading(_qa_reading(pair[0], [], pair[1]))
        texts = [c for c in usable if not c.is_number and not c.has_few_values]
        if len(texts) != 2:
            raise Missing("question", *([] if answers else ["answer"]))
        first, second = (_qa_reading(a, [], b) for a, b in (texts, texts[::-1]))
        return FoundReading(first, second, "nothing says which of the two columns is the question")
    named = [column for column in rest if score_role(column.name, "context") >= 0.6 and column not in answers[:1]]
    contexts = [column for column in named if column.is_prose or (column.is_list and not column.is_number_list)]
    contexts += [c for c in rest if c.name.plain == "input" and c not in answers[:1]]  # instruction, input, output
    if not contexts and (text := find_named([c for c in rest if c not in answers[:1]], "text", 0.8)) is not None:
        contexts = [text] if text.mean_chars > _CONTEXT_CHARS else []
    numbers = [c for c in named if c.is_number_list and not contexts]
    if numbers and answers:
        raise _no_context(numbers[0], question, answers[0], hints)
    if not answers:
        return _guess_answer(question, contexts, [c for c in rest if c not in contexts])
    answer = answers[0]
    if contexts and answer.is_list and all(_PLACES.fullmatch(value) for value in answer.values):
        raise _no_text(answer, hints)
    reading = _qa_reading(question, contexts, answer)
    rivals = [c for c in answers[1:] if _is_rival(c, answer)]
    rivals += [
        c
        for c in rest
        if c is not answer and {v.lower() for v in c.values} in _DECISIONS and not c.name.words & {"pred", "predicted"}
    ]
    if rivals:
        other = _qa_reading(question, contexts, rivals[0])
        return FoundReading(reading, other, f"{answer.path} or {rivals[0].path} could be the answer")
    used = {question.path, answer.path, *(column.path for column in contexts)}
    open_prose = [c for c in rest if c.path not in used and c.is_prose and c.mean_chars > _CONTEXT_CHARS]
    open_prose = [c for c in open_prose if c not in answers and c.name.last not in TITLES]
    if not contexts:
        open_prose += [c for c in rest if c.name.last in TITLES and c.is_prose and c is not answer]
    if open_prose:
        with_it = _qa_reading(question, [*contexts, *open_prose], answer)
        names = " and ".join(column.path for column in open_prose)
        return FoundReading(with_it, reading, f"it is not clear whether {names} should be part of the context")
    longer = [c for c in rest if c is not answer and c.is_prose and c not in contexts]
    if answer.has_few_values and longer and score_role(answer.name, "answer") < 0.95:
        other = _qa_reading(question, contexts, max(longer, key=length_of))
        return FoundReading(other, reading, f"{answer.path} has only {answer.distinct} different values")
    return FoundReading(reading)


def _no_context(numbers: ColumnProfile, question: ColumnProfile, answer: ColumnProfile, hints: Hints) -> DataError:
    return DataError(
        f"{hints.title}: '{numbers.path}' has the name of a context and holds numbers, such as {numbers.values[0]}",
        "A context is a text; such numbers are ids of texts in another file",
        "Write the texts into a column of this file. To train without a context, name both sides: "
        f"'task.source=question: {{{question.path}}}' 'task.target={{{answer.path}}}'",
    )


def _no_text(answer: ColumnProfile, hints: Hints) -> DataError:
    return DataError(
        f"{hints.title}: the answers in '{answer.path}' are lists of whole numbers, such as {answer.values[0]}",
        "An answer is a text; such numbers are positions in the context (lines, sentences, characters)",
        "Write the text at these positions into a column. If the numbers themselves are the target, name both sides: "
        f"--task generate task.source='{{...}}' task.target='{{{answer.path}}}'",
    )


def _find_question(columns: Sequence[ColumnProfile]) -> ColumnProfile | None:
    """By its name, prose first, or the column with the most question marks."""
    prose = [c for c in columns if c.is_prose]
    asking = [c for c in prose if c.question_share > 0.5]
    most = max(asking, key=lambda column: column.question_share, default=None)
    return find_named(prose, "question") or find_named(columns, "question") or most


def _guess_answer(
    question: ColumnProfile, contexts: list[ColumnProfile], others: Sequence[ColumnProfile]
) -> FoundReading:
    """No column has the name of an answer: the longer of two others is a context."""
    others = [c for c in others if c.name.last not in TITLES and not _is_offset(c)]
    longest = max(others, key=length_of, default=None)
    if longest is None:
        raise Missing("answer")
    if len(others) > 1 and not contexts and longest.is_prose:
        shortest = min((c for c in others if c is not longest), key=length_of)
        doubt = f"no column has the name of an answer, and {longest.path} or {shortest.path} could be it"
        return FoundReading(_qa_reading(question, [], longest), _qa_reading(question, [longest], shortest), doubt)
    answers = sorted((c for c in others if c not in contexts), key=length_of)
    reading = _qa_reading(question, contexts, answers[0])
    if len(answers) == 1:
        return FoundReading(reading)
    doubt = f"no column has the name of an answer, and {answers[0].path} or {answers[1].path} could be it"
    return FoundReading(reading, _qa_reading(question, contexts, answers[1]), doubt)


def _qa_reading(question: ColumnProfile, contexts: Sequence[ColumnProfile], answer: ColumnProfile) -> Reading:
    source = f"question: {{{question.path}}}"
    for number, column in enumerate(contexts):
        source += f"[[ {{{column.path}}}]]" if number else f"[[ context: {{{column.path}}}]]"
    return Reading("qa", "", source, f"{{{answer.path}}}")


def _is_rival(column: ColumnProfile, answer: ColumnProfile) -> bool:
    """Whether a second column with an answer's name could be the answer: it is text as well, and filled."""
    close = score_role(answer.name, "answer") - score_role(column.name, "answer") < 0.25
    return close and column.filled_share > 0.5 and not column.has_few_values and not column.is_number


def _is_offset(column: ColumnProfile) -> bool:
    return bool(column.name.words & {"start", "end", "offset", "id", "ids", "type", "idx", "index", "category", "url"})


def _find_marked_choices(columns: Sequence[ColumnProfile]) -> tuple[ColumnProfile, ColumnProfile] | None:
    """Texts and marks of records of which one per row is marked: {"text": "Ada", "correct": true}."""
    for marks in columns:
        record = marks.path.rpartition(".")[0]
        cells = [value.split() for value in marks.values]
        is_flags = all(set(cell) <= {"true", "false"} for cell in cells) and any("true" in cell for cell in cells)
        single = sum(cell.count("true") == 1 for cell in cells)  # few have several right choices, or none
        if not record or not marks.is_list or marks.mean_items < 2 or not is_flags or single < 0.5 * len(cells):
            continue
        texts = [c for c in columns if c.path.rpartition(".")[0] == record and c.mean_items == marks.mean_items]
        texts = [c for c in texts if c.not_text is None and not c.is_number_list and not c.name.words & _EXPLAINS]
        if texts:
            return min(texts, key=lambda c: (score_role(c.name, "text") < 0.6, c.mean_chars)), marks
    return None


def find_choices(columns: Sequence[ColumnProfile]) -> list[ColumnProfile]:
    """The columns with the choices of a question: one that holds lists, or several with numbers or letters."""
    if (marked := _find_marked_choices(columns)) is not None:
        return [marked[0]]
    for column in columns:
        if column.is_list and column.mean_items >= 2 and score_role(column.name, "choices") >= 0.6:
            return [column]
    families: dict[str, list[ColumnProfile]] = {}
    for column in columns:
        is_choice = score_role(column.name, "choices") >= 0.6 or column.name.plain in ("ans", "answer", "sol")
        if column.name.number and is_choice and not column.is_number:
            families.setdefault(f"{column.path.rpartition('.')[0]}/{column.name.plain}", []).append(column)
        elif _is_letter(column):
            families.setdefault(f"{column.path.rpartition('.')[0]}/letters", []).append(column)
        elif re.fullmatch(r"op(t|tion)?[_ ]?[a-e1-5]", column.path.lower()):
            families.setdefault("op", []).append(column)
    family = max(families.values(), key=lambda found: (len(found), "." not in found[0].path), default=[])
    # By letter or number, whatever the order of the columns, because the answer counts them that way.
    return sorted(family, key=lambda column: (len(column.name.number), column.path)) if len(family) > 1 else []


def _is_letter(column: ColumnProfile) -> bool:
    """Whether it is A, or options.A."""
    record, _, last = column.path.rpartition(".")
    is_choices = not record or max(score_role(Name.of(record), role) for role in ("choices", "answer")) >= 0.6
    return is_choices and last.lower() in ("a", "b", "c", "d", "e", "f")


def find_choice_target(columns: Sequence[ColumnProfile]) -> ColumnProfile | None:
    if (marked := _find_marked_choices(columns)) is not None:
        return marked[1]
    found = find_choices(columns)
    choices = [column.path for column in found]
    inside = {path.rpartition(".")[0] for path in choices if path.count(".")}
    are_lists = any(column.is_list for column in found)  # choices.text and choices.label; a single value is the answer
    rest = [c for c in columns if c.path not in choices]
    rest = [c for c in rest if c.path.rpartition(".")[0] not in inside or (are_lists and not c.is_list)]
    names = ("answer", "label", "target")
    scored = [(max(score_role(column.name, role) for role in names), column) for column in rest]
    correct = [column for column in rest if column.name.words & {"correct", "right", "cop", "key", "gold"}]
    scored += [(0.97, column) for column in correct]
    scored = [(score, column) for score, column in scored if score >= 0.6 and not column.name.words & _EXPLAINS]
    best = max(scored, key=lambda entry: (entry[0], entry[1].has_few_values), default=None)
    return None if best is None else best[1]


def find_choice_reading(columns: Sequence[ColumnProfile], choices: Sequence[ColumnProfile]) -> FoundReading:
    if not choices:
        raise Missing("choices")
    target = find_choice_target(columns)
    if target is None:
        raise Missing("answer")
    skip = {target.path, *(column.path for column in choices)}
    usable = [column for column in columns if column.not_text is None and column.path not in skip]
    if target.is_number_list:  # true or false per choice: the rest of these records explains them
        record = target.path.rpartition(".")[0]
        usable = [column for column in usable if column.path.rpartition(".")[0] != record]
    question = _find_question(usable) or max((c for c in usable if c.is_prose), key=length_of, default=None)
    if question is None:
        raise Missing("question")
    contexts = [
        c
        for c in usable
        if c is not question and c.is_prose and (score_role(c.name, "context") >= 0.6 or c.name.plain == "text")
    ]
    base = _qa_reading(question, contexts, target)
    templates: str | list[str] = [f"{{{column.path}}}" for column in choices]
    if len(choices) == 1:
        templates = templates[0]
    shown = ", ".join(column.path for column in choices)
    reading = replace(base, task="multiple-choice", more={"choices": templates}, choices=shown)
    used = {question.path, *(column.path for column in contexts)}
    open_prose = [c for c in usable if c.path not in used and c.is_prose and c.mean_chars > _CONTEXT_CHARS]
    open_prose = [c for c in open_prose if not c.name.words & _EXPLAINS]
    if open_prose:
        more = _qa_reading(question, [*contexts, *open_prose], target)
        doubt = f"it is not clear whether {open_prose[0].path} should be part of the context"
        return FoundReading(replace(reading, source=more.source), reading, doubt)
    return FoundReading(reading)


def find_math(columns: Sequence[ColumnProfile], hints: Hints) -> FoundReading:
    if (choices := find_choices(columns)) and find_choice_target(columns) is not None:
        return find_choice_reading(columns, choices)
    usable = [column for column in columns if column.not_text is None and not column.name.words & _WORKINGS]
    question = _find_question(usable) or find_named(usable, "text")
    rest = [column for column in usable if column is not question]
    answers = rank_named([c for c in rest if not _is_offset(c)], "answer")
    if not answers and len(rest) == 1:
        answers = rest
    if question is None or not answers:
        raise Missing(*(["question"] if question is None else []), *([] if answers else ["answer"]))
    contexts = [c for c in rest if c.is_prose and c not in answers]
    source = " ".join(f"{{{column.path}}}" for column in [*contexts, question])
    readings = [Reading("math", "", source, f"{{{answer.path}}}") for answer in answers]
    if len(readings) > 1:
        return FoundReading(readings[0], readings[1], f"{answers[0].path} or {answers[1].path} could be the answer")
    named = all(max(score_role(c.name, "context"), score_role(c.name, "text")) >= 0.8 for c in contexts)
    if contexts and not named:
        names = " and ".join(column.path for column in contexts)
        doubt = f"it is not clear whether {names} should be part of the problem"
        return FoundReading(readings[0], replace(readings[0], source=f"{{{question.path}}}"), doubt)
    return FoundReading(readings[0])
