"""One example: the text that goes in, the text to be learnt, and what an answer is scored against.

A SQuAD row with two annotated answers becomes

    Example(id="q7", source="question: Who? context: Ada Lovelace wrote it.", target="Ada Lovelace",
            references=("Ada Lovelace", "Lovelace"), group="Ada Lovelace wrote it.")
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Example:
    """What training, evaluation and splitting need to know of one row.

    Target and references differ where the learnt text is not the answer itself: a math solution ends in its number,
    an unanswerable question has the target 'unanswerable' and the reference ''. Examples of one group stay in one
    split. Choices are those of a multiple-choice question, in the order of their letters.
    """

    id: str
    source: str
    target: str
    references: tuple[str, ...]
    group: str
    choices: tuple[str, ...] = ()
