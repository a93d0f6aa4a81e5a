"""Rows become (source, target) text, or a label where a head can do the task; generated text becomes an answer."""

from seqfit.errors import RowError
from seqfit.tasks.example import Example
from seqfit.tasks.head import ClassifierHead, head_of
from seqfit.tasks.labels import ClassifyTask
from seqfit.tasks.registry import build_task
from seqfit.tasks.task import Label, Task

__all__ = ["ClassifierHead", "ClassifyTask", "Example", "Label", "RowError", "Task", "build_task", "head_of"]
