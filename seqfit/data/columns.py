"""What the columns of a table hold, by name and by content, for guessing which is the question.

In: some rows. Out: `Column`s, which know how long and how varied their texts are, and `find_by_name`, which knows what
columns are called in English and Spanish.

    rows {"pregunta": "¿Quién?", "answers": {"text": ["Ada"]}, ...}
    -> Column("pregunta", mean_chars=7, ...), Column("answers.text", mean_chars=3, ...)
    find_by_name("question", columns) -> the first, find_by_name("answer", columns) -> the second
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seqfit.data.rows import Row
from seqfit.tasks.template import column_text, known_columns

NAMES: dict[str, tuple[str, ...]] = {
    "question": ("question", "pregunta", "query", "problem", "problema", "ejercicio", "enunciado"),
    "context": ("context", "contexts", "contexto", "passage", "pasaje", "paragraph", "parrafo", "evidence"),
    "answer": ("answer", "answers", "respuesta", "respuestas", "solution", "solucion", "response"),
    "text": (
        *("text", "texto", "document", "documento", "article", "articulo", "dialogue", "dialogo", "dialog"),
        *("content", "contenido", "body", "cuerpo", "review", "sentence", "frase", "tweet", "news", "noticia"),
    ),
    "summary": ("summary", "resumen", "highlights", "abstract", "tldr", "sumario"),
    "label": ("label", "etiqueta", "category", "categoria", "class", "clase", "sentiment", "sentimiento", "intent"),
    "source": ("source", "src", "origen", "input"),
    "target": ("target", "tgt", "destino", "output"),
}
LANGUAGES: dict[str, tuple[str, ...]] = {
    "English": ("en", "english", "ingles"),
    "German": ("de", "german", "aleman", "deutsch"),
    "Spanish": ("es", "spanish", "espanol", "castellano"),
    "French": ("fr", "french", "frances"),
    "Portuguese": ("pt", "portuguese", "portugues"),
    "Italian": ("it", "italian", "italiano"),
    "Romanian": ("ro", "romanian", "rumano"),
    "Catalan": ("ca", "catalan"),
}
_KEYS = {"id", "ids", "uid", "guid", "qid", "idx", "index", "key", "fname", "filename", "url", "date", "fecha"}
_FEW_VALUES = 50
_STOPWORDS = {
    "es": {"el", "la", "los", "las", "de", "del", "que", "y", "en", "un", "una", "por", "con", "para", "se", "qué"},
    "en": {"the", "of", "and", "to", "in", "a", "is", "was", "for", "on", "that", "with", "what", "it", "as", "by"},
}


@dataclass(frozen=True)
class Column:
    """A column that holds text or numbers, as seen in some rows."""

    path: str
    mean_chars: float
    mean_words: float
    distinct: int
    filled: int
    question_share: float

    @property
    def is_prose(self) -> bool:
        """Several words as a rule; an id, a date or a label is not."""
        return self.mean_words >= 2.5

    @property
    def is_key(self) -> bool:
        """Called like something that tells rows apart and says nothing about them."""
        return _plain_name(self.path) in _KEYS

    @property
    def has_few_values(self) -> bool:
        """As a column of labels has: each value several times, and short."""
        return 1 < self.distinct <= min(_FEW_VALUES, max(2, self.filled // 3)) and self.mean_words < 4


def profile_columns(rows: Sequence[Row]) -> list[Column]:
    """The columns that hold text or numbers in at least one row, in the order of the table."""
    paths = dict.fromkeys(path for row in rows for path in known_columns(row))
    columns = [_profile(path, [column_text(path, row) for row in rows if _is_text(path, row)]) for path in paths]
    return [column for column in columns if column is not None]


def _profile(path: str, values: list[str]) -> Column | None:
    texts = [text for text in values if text.strip()]
    if not texts:
        return None
    return Column(
        path,
        mean_chars=sum(map(len, texts)) / len(texts),
        mean_words=sum(len(text.split()) for text in texts) / len(texts),
        distinct=len(set(texts)),
        filled=len(texts),
        question_share=sum(text.rstrip().endswith("?") for text in texts) / len(texts),
    )


def _is_text(path: str, row: Row) -> bool:
    """Whether the path ends at text, a number, or a list of them."""
    value: Any = row
    for key in path.split("."):
        if isinstance(value, list):
            value = value[0] if value else None
        value = value.get(key) if isinstance(value, Mapping) else None
    items = value if isinstance(value, list) else [value]
    return bool(items) and all(isinstance(item, str | int | float) for item in items)


def find_by_name(role: str, columns: Sequence[Column], taken: Collection[str] = ()) -> Column | None:
    """The column whose name says that it is the role: 'context' before 'context_processed'."""
    free = [column for column in columns if column.path not in taken]
    # Reversed, so that of two columns with the same word the first wins.
    by_name = {_plain_name(column.path): column for column in reversed(free)}
    by_word = {word: column for column in reversed(free) for word in _plain_name(column.path).split("_")}
    for known in (by_name, by_word):
        for synonym in NAMES[role]:
            if synonym in known:
                return known[synonym]
    return None


def find_languages(columns: Sequence[Column]) -> list[tuple[str, Column]]:
    """Language and column for each column that is called by a language: translation.en -> English."""
    by_name = {name: language for language, names in LANGUAGES.items() for name in names}
    return [(by_name[name], column) for column in columns if (name := _plain_name(column.path)) in by_name]


def _plain_name(path: str) -> str:
    """'Answers.text' -> 'answers', 'Párrafo 2' -> 'parrafo': the telling part, without accents and numbers."""
    parts = path.split(".")
    telling = parts[0] if parts[-1].lower() in ("text", "value") else parts[-1]
    letters = unicodedata.normalize("NFKD", telling).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z]+", "_", letters).strip("_")


def guess_language(texts: Sequence[str]) -> str:
    """'es' or 'en', by the small words."""
    words = [word for text in texts for word in re.findall(r"\w+", text.lower())]
    counts = {language: sum(word in small for word in words) for language, small in _STOPWORDS.items()}
    return "es" if counts["es"] > counts["en"] else "en"
