"""Rows become (source, target) text, and generated text becomes an answer: qa, summarize, translate, classify, math."""

from seqfit.errors import RowError
from seqfit.tasks.example import Example
from seqfit.tasks.task import ClassifyTask, Task, build_task

__all__ = ["ClassifyTask", "Example", "RowError", "Task", "build_task"]
