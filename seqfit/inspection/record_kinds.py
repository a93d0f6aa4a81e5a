"""Lists of records inside rows: conversations and questions become rows, token labels and the like are an error.

{"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]}  -> data.turns: conversations
{"context": "...", "qas": [{"question": "...", "answers": [...]}, ...]}                   -> data.each: qas
{"tokens": ["Ada", "was"], "ner_tags": [1, 0]}                                            -> an error
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from seqfit.data import name_words
from seqfit.errors import DataError
from seqfit.inspection.column_names import Name, score_role
from seqfit.recipe import SourceRecipe
from seqfit.tasks import TemplateRow, TurnKeys, columns_of

_SPEAKERS = set(TurnKeys.SPEAKERS) - {"name"}
_CONVERSATIONS = {
    *("conversations", "conversation", "messages", "turns", "dialog", "dialogue", "utterances", "chat", "chosen"),
}
_CLASS_NAMES = {"tag", "intent", "label", "class", "category", "name", "topic"}
_EXAMPLE_NAMES = {"patterns", "examples", "utterances", "samples", "sentences", "phrases", "texts", "questions"}
_DIALOGUE_IDS = {"dialogue", "dialog", "conversation", "conv", "thread", "session"}
_TURN_IDS = {"turn", "utterance", "utt"}
_OFFSET_WORDS = {"span", "spans", "offset", "offsets", "position", "positions"}
_OFFSETS = re.compile(r"\[(\d+(, *\d+)*)?\]")
_TOKENS = {"tokens", "words", "token"}
_TAG_WORDS = {"iob", "bio", "bioes", "ner", "pos", "slots"}
BLOCK_SAMPLE = 600
_FEW_LABELS = 12


def find_unfolding(
    rows: Sequence[TemplateRow], source: SourceRecipe, task: str | None, given: Mapping[str, Any]
) -> dict[str, str]:
    """data.turns or data.each, if rows hold lists of records that are the real rows."""
    if source.each or source.turns or "source" in given:
        return {}
    if task in (None, "generate") and (written := _find_written_dialogue(rows)) is not None:
        return {"turns": written}
    has_preferences = any("chosen" in row and "rejected" in row for row in rows[:20])
    for column in _columns(rows):
        if task in (None, "generate") and not has_preferences and _is_conversation(column, rows):
            marks = [name for name in ("label", "kto_tag") if any(isinstance(row.get(name), bool) for row in rows)]
            if marks and len({row.get(marks[0]) for row in rows}) > 1:
                raise DataError(
                    f"{source.title} has conversations in '{column}' and true or false in '{marks[0]}'",
                    "The label marks wanted and unwanted replies, and a model would be trained on both",
                    f"Keep only the rows in which {marks[0]} is true, or add --task classify to predict the label",
                )
            return {"turns": column}
    if task in (None, "classify") and (examples := _find_examples(rows)) is not None:
        return {"each": examples}
    for column in _columns(rows):
        if task in (None, "qa", "generate") and _are_forms_of_question(column, rows):
            return {"each": column}
        if task in (None, "qa", "multiple-choice", "math", "generate") and _has_questions(column, rows):
            return {"each": column}
        if task == "translate" and _has_languages(column, rows):
            return {"each": column}
    return {}


def _find_examples(rows: Sequence[TemplateRow]) -> str | None:
    """Rows that are classes, each with a list of its examples: {"tag": "greeting", "patterns": ["Hi", "Hello"]}."""
    names = dict.fromkeys(name for row in rows for name in row)
    classes = [n for n in names if n.lower() in _CLASS_NAMES and all(isinstance(row.get(n), str) for row in rows)]
    if not classes or len({row[classes[0]] for row in rows}) < len(rows):
        return None
    lists = [n for n in _columns(rows) if n.lower() in _EXAMPLE_NAMES]
    return next((n for n in lists if all(isinstance(item, str) for item in _items(n, rows))), None)


def _find_written_dialogue(rows: Sequence[TemplateRow]) -> str | None:
    """The column whose texts are whole dialogues, 'Human: ... Assistant: ...'; the chosen one, not the rejected."""
    names = [name for name in dict.fromkeys(name for row in rows for name in row) if name != "rejected"]
    for name in names:
        texts = [row[name] for row in rows if isinstance(row.get(name), str)]
        if texts and sum("Human:" in text and "Assistant:" in text for text in texts) > 0.9 * len(rows):
            return name
    return None


def find_used_records(task: Mapping[str, Any], rows: Sequence[TemplateRow]) -> str | None:
    """The list of records that the target reaches into, if joining several of them into one text would be wrong."""
    if task["name"] not in ("summarize", "translate", "math", "generate"):
        return None
    targets = task.get("target", [])
    paths = [path for one in ([targets] if isinstance(targets, str) else targets) for path in columns_of(one)]
    for path in paths:
        top = path.split(".")[0]
        counts = [len(row[top]) for row in rows if isinstance(row.get(top), list) and path != top]
        is_records = any(isinstance(item, Mapping) for item in _items(top, rows))
        if is_records and counts and sum(counts) / len(counts) > 1.2:
            return top
    return None


def refuse_token_labels(rows: Sequence[TemplateRow], title: str, given: Mapping[str, Any]) -> None:
    """An error if there is a label per token, which needs another kind of model."""
    if "source" in given and "target" in given:
        return
    if (spans := _find_spans(rows)) is not None:
        raise DataError(
            f"{title} has spans of its texts, given by offsets, in '{spans}'",
            "seqfit labels and generates whole texts, not spans of them",
            "Write the spans as a target text ('person: Ada; place: London') in a column of its own and use --task "
            "generate, or train a token classifier with another tool",
        )
    for row in rows[:20]:
        lists = {name: value for name, value in row.items() if isinstance(value, list) and len(value) > 1}
        for name in lists:
            if name.lower() not in _TOKENS or not all(isinstance(item, str) for item in lists[name]):
                continue
            tags = [other for other in lists if other != name and len(lists[other]) == len(lists[name])]
            tags = [other for other in tags if all(isinstance(item, int | str) for item in lists[other])]
            is_tagged = any(Name.of(other).words & _TAG_WORDS for other in tags)
            if tags and (is_tagged or not any(isinstance(value, str) and " " in value for value in row.values())):
                raise DataError(
                    f"{title} has a label for each token ({name} with {', '.join(tags)})",
                    "seqfit labels and generates whole texts, not single tokens",
                    "Write the text and its entities as a target text ('person: Ada; place: London') in two columns "
                    "and use --task generate, or train a token classifier with another tool",
                )


def _find_spans(rows: Sequence[TemplateRow]) -> str | None:
    """A column of records with start and end, or of lists of offsets, unless another column has a label's name."""
    names = dict.fromkeys(name for row in rows for name in row)
    if any(score_role(Name.of(name), "label") >= 0.8 and isinstance(rows[0].get(name), str | int) for name in names):
        return None
    for name in names:
        records = [item for item in _items(name, rows) if isinstance(item, Mapping)]
        keys = frozenset().union(*(Name.of(str(key)).words for record in records[:50] for key in record))
        is_answer = score_role(Name.of(name), "answer") >= 0.6
        if Name.of(name).words & _OFFSET_WORDS and all(_is_offsets(row.get(name)) for row in rows[:200]):
            return name
        if keys & {"start", "begin"} and keys & {"end", "stop"} and not is_answer and name.lower() not in _TOKENS:
            return name
    return None


def _is_offsets(value: Any) -> bool:
    """[8, 9, 10], as a list or as text; also an empty one."""
    if isinstance(value, list):
        return all(isinstance(item, int) for item in value)
    return value is None or _OFFSETS.fullmatch(str(value).strip()) is not None


def refuse_turns_in_rows(rows: Sequence[TemplateRow], title: str, task: str | None, given: Mapping[str, Any]) -> None:
    """An error if each row is one turn of a dialogue: the turns before it are in other rows."""
    if task not in (None, "generate") or "source" in given:
        return
    names = {name: Name.of(name) for name in dict.fromkeys(name for row in rows for name in row)}
    dialogues = [n for n, name in names.items() if name.words & _DIALOGUE_IDS and name.last in ("id", "no", "number")]
    turns = [n for n, name in names.items() if name.words & _TURN_IDS and name.last in ("id", "no", "number", "turn")]
    if not (dialogues and turns):  # without numbers: a speaker, a dialogue and one text
        dialogues = [n for n, name in names.items() if name.words & _DIALOGUE_IDS and _repeats(n, rows)]
        turns = [n for n, name in names.items() if name.last in _SPEAKERS and _repeats(n, rows)]
        texts = [n for n in names if sum(" " in str(row.get(n, "")).strip() for row in rows) > 0.5 * len(rows)]
        turns = turns if len(texts) == 1 and texts[0] not in turns else []
    if dialogues and turns and len({str(row.get(turns[0])) for row in rows}) < 0.5 * len(rows):
        raise DataError(
            f"{title} has one turn of a dialogue per row ('{dialogues[0]}', '{turns[0]}')",
            "A reply is predicted from the turns before it, which are in other rows",
            'Write each dialogue as one line, {"messages": [{"role": "user", "content": "..."}, ...]}, of a .jsonl '
            "file; to use single turns, name the columns: task.source='{col}' task.target='{col2}'",
        )


def _repeats(name: str, rows: Sequence[TemplateRow]) -> bool:
    values = [str(row[name]) for row in rows if row.get(name) not in (None, "")]
    return len(values) > 0.9 * len(rows) and 1 < len(set(values)) <= len(values) / 2


def refuse_pairs_in_rows(rows: Sequence[TemplateRow], title: str, task: str | None, given: Mapping[str, Any]) -> None:
    """An error if source and target are in two rows that share an id."""
    if task not in ("generate", "translate", "summarize") or "source" in given or len(rows) < 4:
        return
    names = list(dict.fromkeys(name for row in rows for name in row))
    texts = [n for n in names if sum(" " in str(row.get(n, "")).strip() for row in rows) > 0.8 * len(rows)]
    sides = [n for n in names if len({str(row.get(n)) for row in rows}) == 2]
    for name in names:
        counts = Counter(str(row.get(name)) for row in rows)
        if len(texts) == 1 and sides and sum(n == 2 for n in counts.values()) > 0.8 * len(counts) > 1:
            values = sorted({str(row.get(sides[-1])) for row in rows})
            raise DataError(
                f"{title} has one text per row ('{texts[0]}'), and two rows share each '{name}' "
                f"('{sides[-1]}' is {' or '.join(values)})",
                "A row needs a source and a target",
                f"Write one row per '{name}' with the two texts as two columns, in pandas: "
                f"frame.pivot(index='{name}', columns='{sides[-1]}', values='{texts[0]}')",
            )


def refuse_blocks(rows: Sequence[TemplateRow], title: str, given: Mapping[str, Any]) -> None:
    """An error if examples are blocks of lines in a text file: sentence, term, label; sentence, term, label; ..."""
    if "source" in given or not rows or any(list(row) != ["text"] for row in rows[:BLOCK_SAMPLE]):
        return
    lines = [str(row["text"]).strip() for row in rows[:BLOCK_SAMPLE]]
    for size in range(2, 6):
        places = [set(lines[at::size]) for at in range(size)]
        few = [values for values in places if len(values) <= _FEW_LABELS < len(lines) / size / 3]
        if len(few) == 1 and len(lines) >= 20 * size:
            shown = ", ".join(sorted(few[0])[:5])
            raise DataError(
                f"{title} has examples in blocks of {size} lines (one line of each block is one of {shown})",
                "In a text file each line is a row",
                f"Write one example per line: paste {' '.join('-' * size)} < {title} > rows.tsv",
            )


def _columns(rows: Sequence[TemplateRow]) -> list[str]:
    """Columns that hold lists in most rows."""
    names = dict.fromkeys(name for row in rows for name in row)
    return [name for name in names if sum(isinstance(row.get(name), list) for row in rows) > len(rows) / 2]


def _is_conversation(column: str, rows: Sequence[TemplateRow]) -> bool:
    named = Name.of(column).last in _CONVERSATIONS or Name.of(column).plain in _CONVERSATIONS
    spoken = [item for item in _items(column, rows) if isinstance(item, Mapping)]
    if spoken:
        keys = {str(key).lower() for item in spoken[:50] for key in item}
        if all(TurnKeys.find_sides(_records(column, row)) for row in rows[:50]):
            return True
        return bool(keys & _SPEAKERS) and bool(keys & set(TurnKeys.TEXTS))
    texts = [item for item in _items(column, rows) if isinstance(item, str)]
    return named and len(texts) > len(rows) and any(" " in text for text in texts)


def _has_questions(column: str, rows: Sequence[TemplateRow]) -> bool:
    records = [item for item in _items(column, rows) if isinstance(item, Mapping)]
    names = [Name.of(str(key)) for key in dict.fromkeys(key for record in records[:50] for key in record)]
    has_choices = any(score_role(name, "choices") >= 0.6 for name in names)
    has_answer = any(score_role(n, "answer") >= 0.6 or (has_choices and n.words & {"correct", "right"}) for n in names)
    return has_answer and any(score_role(name, "question") >= 0.6 for name in names)


def _are_forms_of_question(column: str, rows: Sequence[TemplateRow]) -> bool:
    """Texts that ask the same, with one answer: {"questions": ["How much?", "What does it cost?"], "answer": "$5"}."""
    texts = list(_items(column, rows))
    is_named = column.lower() in _EXAMPLE_NAMES or score_role(Name.of(column), "question") >= 0.95
    if not is_named or len(texts) < 1.2 * len(rows) or not all(isinstance(text, str) for text in texts):
        return False
    others = dict.fromkeys(name for row in rows for name in row if name != column)
    return any(
        score_role(Name.of(name), "answer") >= 0.95 and all(isinstance(row.get(name), str) for row in rows)
        for name in others
    )


def _has_languages(column: str, rows: Sequence[TemplateRow]) -> bool:
    """Records that hold a sentence in two languages: {"ja_sentence": ..., "en_sentence": ...}."""
    records = [item for item in _items(column, rows) if isinstance(item, Mapping)]
    keys = dict.fromkeys(str(key) for record in records[:50] for key in record)
    texts = [key for key in keys if sum(len(str(record.get(key, ""))) > 8 for record in records) > len(records) / 3]
    return len(records) > len(rows) and len({tuple(sorted(_codes(key))) for key in texts if _codes(key)}) > 1


def _codes(key: str) -> set[str]:
    """The language codes in a key: {'ja'} of ja_sentence."""
    codes = {name for names in name_words.LANGUAGES.values() for name in names}
    return {word for word in re.split(r"[^a-z]+", key.lower()) if word in codes}


def _records(column: str, row: TemplateRow) -> list[Mapping[str, Any]]:
    return [item for item in row.get(column) or () if isinstance(item, Mapping)]


def _items(column: str, rows: Sequence[TemplateRow]) -> Iterator[Any]:
    for row in rows[:200]:
        if isinstance(row.get(column), list):
            yield from row[column]
