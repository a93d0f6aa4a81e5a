"""Rows become (source, target) text, or a label for a classifier; generated text becomes a prediction."""

from seqfit.errors import RowError
from seqfit.tasks.labels import ClassifierHead, ClassifyTask, head_of
from seqfit.tasks.registry import build_task
from seqfit.tasks.task import Label, Task
from seqfit.tasks.template import Example

__all__ = ["ClassifierHead", "ClassifyTask", "Example", "Label", "RowError", "Task", "build_task", "head_of"]
