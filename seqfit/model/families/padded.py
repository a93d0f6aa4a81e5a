"""Encoder-decoder types that need nothing but the defaults: padded, and their own forward computes their logits."""

from __future__ import annotations

from seqfit.model.families.family import Family


class Padded(Family):
    """Mostly BART's descendants, each with attention or positions of its own."""

    name = "padded"
    model_types = ("bigbird_pegasus", "blenderbot", "blenderbot-small", "led", "mvp", "pegasus_x")
