"""Which column is the question: columns and a task -> templates.

In: a task and the columns of a table. Out: `Templates`, or an error that lists the columns and how to name them.

    qa: pregunta, contexto, respuesta         -> "question: {pregunta}[[ context: {contexto}]]", target "{respuesta}"
    classify: a (4 values), b, c (sentences)  -> "{b} {c}", target "{a}"

Each task names the roles it needs. First the columns' names fill them, then their content: the longest prose is a
context, what ends in question marks a question, a column of few values a label.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from seqfit.data.columns import Column, find_by_name, find_languages
from seqfit.errors import RecipeError, complain

_CONTEXT_CHARS = 80  # a shorter column beside question and answer is rather a topic or a hint


@dataclass(frozen=True)
class Templates:
    """How a row becomes text, and which column got which role."""

    prefix: str
    source: str
    target: str
    roles: dict[str, str]

    def __getitem__(self, side: str) -> str:
        return {"source": self.source, "target": self.target}[side]


@dataclass
class _Cast:
    """Columns, and the roles that have been given away."""

    columns: Sequence[Column]
    roles: dict[str, Column] = field(default_factory=dict)

    def by_name(self, *roles: str) -> None:
        for role in roles:
            column = find_by_name(role, self.columns, {column.path for column in self.roles.values()})
            if column is not None:
                self.roles[role] = column

    def give(self, role: str, candidates: Sequence[Column], best: Callable[[Column], float]) -> None:
        """To the best candidate, if nobody has the role."""
        if role not in self.roles and candidates:
            self.roles[role] = max(candidates, key=best)

    def rename(self, old: str, new: str) -> None:
        if new not in self.roles and old in self.roles:
            self.roles[new] = self.roles.pop(old)

    @property
    def free(self) -> list[Column]:
        taken = {column.path for column in self.roles.values()}
        return [column for column in self.columns if column.path not in taken and not column.is_key]

    @property
    def prose(self) -> list[Column]:
        return [column for column in self.free if column.is_prose]

    def __getitem__(self, role: str) -> str:
        return f"{{{self.roles[role].path}}}"


def find_templates(task: str, columns: Sequence[Column], data: str) -> Templates:
    """Templates for the task; a role that no column can play is a RecipeError."""
    cast = _Cast(columns)
    prefix, source, target = "", "", ""
    missing = _NEEDS[task](cast)
    if missing:
        raise _cannot_guess(task, missing, columns, data)
    match task:
        case "qa":
            context = f"[[ context: {cast['context']}]]" if "context" in cast.roles else ""
            source, target = f"question: {cast['question']}{context}", cast["answer"]
        case "summarize":
            prefix, source, target = "summarize: ", cast["text"], cast["summary"]
        case "translate":
            prefix, source, target = _translation_prefix(cast), cast["source"], cast["target"]
        case "classify":
            texts = [role for role in cast.roles if role.startswith("text")]
            prefix, source, target = "classify: ", " ".join(cast[role] for role in texts), cast["label"]
        case "math":
            source, target = cast["question"], cast["answer"]
    return Templates(prefix, source, target, {role: column.path for role, column in cast.roles.items()})


def _cast_qa(cast: _Cast) -> list[str]:
    cast.by_name("question", "context", "answer")
    if "context" not in cast.roles:
        cast.by_name("text")
        cast.rename("text", "context")
    cast.give("question", [column for column in cast.prose if column.question_share > 0.5], _question_share)
    if "answer" not in cast.roles:
        if len(cast.free) > 1:
            cast.give("context", cast.prose, _length)
        cast.give("answer", cast.free, _shortness)
    else:
        cast.give("context", [column for column in cast.prose if column.mean_chars > _CONTEXT_CHARS], _length)
    return _open(cast, "question", "answer")


def _cast_summary(cast: _Cast) -> list[str]:
    cast.by_name("summary", "text")
    if "text" not in cast.roles:
        cast.by_name("context")
        cast.rename("context", "text")
    cast.give("text", cast.prose, _length)
    if len(cast.prose) == 1:
        cast.give("summary", cast.prose, _length)
    return _open(cast, "text", "summary")


def _cast_translation(cast: _Cast) -> list[str]:
    languages = find_languages(cast.columns)
    if len(languages) > 1:
        cast.roles = {"source": languages[0][1], "target": languages[1][1]}
        return []
    cast.by_name("source", "target")
    if not cast.roles and len(cast.prose) == 2:
        cast.roles = dict(zip(("source", "target"), cast.prose, strict=True))
    return _open(cast, "source", "target")


def _cast_classes(cast: _Cast) -> list[str]:
    cast.by_name("label")
    few = [column for column in cast.free if column.has_few_values]
    if len(few) == 1:
        cast.give("label", few, _length)
    cast.by_name("text")
    if "text" not in cast.roles:
        # A title and a body are both the text; in the order of the table.
        for number, column in enumerate(cast.prose or [column for column in cast.free if not column.has_few_values]):
            cast.roles[f"text {number + 1}"] = column
    missing = _open(cast, "label")
    return missing if any(role.startswith("text") for role in cast.roles) else [*missing, "text"]


def _cast_math(cast: _Cast) -> list[str]:
    cast.by_name("question", "answer")
    cast.give("question", [column for column in cast.prose if column.question_share > 0.5], _question_share)
    if len(cast.free) == 1:
        cast.give("answer", cast.free, _length)
    return _open(cast, "question", "answer")


_NEEDS: dict[str, Callable[[_Cast], list[str]]] = {
    "qa": _cast_qa,
    "summarize": _cast_summary,
    "translate": _cast_translation,
    "classify": _cast_classes,
    "math": _cast_math,
}


def _open(cast: _Cast, *needed: str) -> list[str]:
    return [role for role in needed if role not in cast.roles]


def _translation_prefix(cast: _Cast) -> str:
    languages = {column.path: language for language, column in find_languages(cast.columns)}
    source, target = cast.roles["source"].path, cast.roles["target"].path
    if source in languages and target in languages:
        return f"translate {languages[source]} to {languages[target]}: "
    return "translate: "


def _cannot_guess(task: str, missing: list[str], columns: Sequence[Column], data: str) -> RecipeError:
    names = ", ".join(column.path for column in columns)
    source, target = ("question: {col} context: {col2}", "{col3}") if task == "qa" else ("{col}", "{col2}")
    return RecipeError(
        complain(
            f"{data} has the columns {names}",
            f"The task {task} needs {' and '.join(missing)}, and no column is called so or looks like it",
            f"Say which, with the column names in braces: task.source='{source}' task.target='{target}'",
        )
    )


def _length(column: Column) -> float:
    return column.mean_chars


def _shortness(column: Column) -> float:
    return -column.mean_chars


def _question_share(column: Column) -> float:
    return column.question_share
