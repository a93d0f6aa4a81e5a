"""The loop of every search: sources in, tokens out; a row that has ended leaves.

Shapes: B rows, W open texts of each (beams or samples), H = B*W, T tokens with the start token, D model, V vocabulary.

    step   the decoder reads the last token of each text     OpenRows.advance
           a search chooses the next ones                    Search.choose: greedy, drawn, or beams
           rows that have ended leave                        OpenRows.drop

Against `generate`: no work for ended rows, the head on the last token only, no copy of the self-attention's cache at
each token, the source's keys and values once for all beams of a row, and from the pass that gave the loss.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import PreTrainedModel

from seqfit.generation.attention import decoding_attention
from seqfit.generation.cache import Move, Sources
from seqfit.generation.conditions import Conditions, TextLimit
from seqfit.generation.rows import OpenRows
from seqfit.generation.rule import SearchRule
from seqfit.generation.start import Start
from seqfit.model import family_of

LOOK_EVERY = {"cpu": 1}  # steps between two checks of which rows have ended
LOOK_EVERY_ELSEWHERE = 4  # each check waits for the device


@dataclass(frozen=True)
class FoundTexts:
    """The texts of rows, the best first. Token ids [B, N, T] begin with the start token and end in padding."""

    ids_BNT: torch.Tensor
    lengths_BN: torch.Tensor  # tokens with the end, without the start
    log_probs_BN: torch.Tensor | None  # sums over the tokens; None where nobody asked
    scores_BN: torch.Tensor | None

    @property
    def best_BT(self) -> torch.Tensor:
        return self.ids_BNT[:, 0]


@dataclass(frozen=True)
class RowSettings:
    """What differs between the rows of a search, each in their order; None: nothing does."""

    starts: Sequence[Start] | None = None  # instead of the rule's, because their languages differ
    trees: Sequence[TextLimit] | None = None  # texts are those of the tree
    numbers_BWT: torch.Tensor | None = None  # random numbers, to draw with
    lengths: Sequence[int] | None = None  # texts have so many tokens: the end is not chosen earlier, and forced then


class Search(ABC):
    """The open texts of a search, and how they go on."""

    def __init__(self, rule: SearchRule, rows: int, settings: RowSettings, device: torch.device) -> None:
        self.rule = rule
        self.device = device
        starts = settings.starts or [Start(rule.start_id, rule.first_id)] * rows
        self.conditions = Conditions(rule, starts, device, settings.trees)
        self.rows_B = torch.arange(rows, device=device)  # places in the result
        self.ends = torch.tensor(rule.end_ids, dtype=torch.long, device=device)
        ids_BWT = torch.full((rows, rule.width, rule.max_new_tokens + 1), rule.pad_id, device=device)
        ids_BWT[:, :, 0] = torch.tensor([start.start_id for start in starts], device=device)[:, None]
        self.texts_BWT = ids_BWT  # of the open rows

    @property
    def rows_H(self) -> torch.Tensor:
        return self.rows_B.repeat_interleave(self.rule.width)

    def last_tokens(self, step: int) -> torch.Tensor:
        """[H, 1], to be read in this step."""
        return self.texts_BWT[:, :, step - 1].reshape(-1, 1)

    def apply_conditions(self, scores_HV: torch.Tensor, step: int) -> None:
        texts_HT = self.texts_BWT[:, :, :step].flatten(0, 1) if self.conditions.reads_texts else None
        self.conditions.apply(scores_HV, texts_HT, self.rows_H, step)

    @abstractmethod
    def choose(self, logits_HV: torch.Tensor, step: int, open_rows: OpenRows) -> None:
        """Go on with the next token, number `step`; the logits are used up."""

    @property
    @abstractmethod
    def ended_B(self) -> torch.Tensor:
        """Rows that no further step would change."""

    @abstractmethod
    def move(self, move: Move) -> None:
        """Rows have left; their texts are kept."""

    @abstractmethod
    def finish(self) -> FoundTexts:
        """After the last step."""


@dataclass(frozen=True)
class DecoderParts:
    """The parts of a model that a search runs."""

    model: PreTrainedModel

    @property
    def head(self) -> Any:
        head = family_of(self.model).head(self.model)
        assert head is not None  # explain_why_not_own said so
        return head

    @property
    def device(self) -> torch.device:
        device: torch.device = self.head.weight_VD.device
        return device

    def read(self, open_rows: OpenRows, tokens_HT: torch.Tensor) -> torch.Tensor:
        """Logits [H, T, V] after these tokens."""
        logits_HTV: torch.Tensor = self.head.logits(open_rows.advance(self.model.get_decoder(), tokens_HT))
        return logits_HTV.float()


def search_steps(decoder: DecoderParts, open_rows: OpenRows, search: Search) -> Iterator[int]:
    """Step by step, each after it is done, until all rows have ended."""
    look_every = LOOK_EVERY.get(decoder.device.type, LOOK_EVERY_ELSEWHERE)
    longest = search.rule.max_new_tokens
    for step in range(1, longest + 1):
        with decoding_attention(decoder.model.get_decoder(), decoder.device):
            logits_HV = decoder.read(open_rows, search.last_tokens(step))[:, -1]
        search.choose(logits_HV, step, open_rows)
        del logits_HV
        yield step
        if step % look_every == 0 and step < longest:
            ended_B: npt.NDArray[np.bool_] = search.ended_B.cpu().numpy()
            if ended_B.all():
                return
            move = open_rows.drop(ended_B)
            if move is not None:
                search.move(move)


@contextmanager
def search_underway(
    model: PreTrainedModel,
    sources: Sources,
    build: Callable[[], Search],
    length: int,
    device: torch.device,
    *,
    grows: bool,
    choose: Callable[[Search, torch.Tensor, int, OpenRows], None],
) -> Iterator[Callable[[], object]]:
    """One step of a search in which all texts have `length` tokens already, for a plan, as a function.

    `device`: the one to choose the attention for, which need not be that of the tensors. `grows`: there is no room for
    one more token. `choose`: what goes on with the next token.
    """
    decoder, search = DecoderParts(model), build()
    open_rows = OpenRows(sources, search.rule.width, decoder.device)
    if length:
        open_rows.lengthen(length, room=0 if grows else 1)

    def step() -> None:
        with decoding_attention(model.get_decoder(), device):
            logits_HV = decoder.read(open_rows, search.last_tokens(length + 1))[:, -1]
        choose(search, logits_HV, length + 1, open_rows)

    yield step
