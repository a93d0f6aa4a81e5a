"""Who answers in a check: one contract for the checkpoint and its exported forms, and transformers' side of it.

An `ExportedDecoder` takes rows of about one length together and returns the ids that a greedy search generates:
without the start token, without what follows the end. The rule is the same for all: the tokens that the model forces
or bans, and none of its penalties, which are settings of a search and not part of an exported graph.

    rows [7 4 1], [9 1]    tokens 5               ->   [8 3 1], [6 1]          1 ends an answer
                           tokens 5, exactly      ->   [8 3 2 2 2], [6 6 2 5 2]   the end is banned
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from transformers import GenerationConfig, PreTrainedModel

from seqfit.export.rows import CheckedRow
from seqfit.model import Checkpoint

Logits = npt.NDArray[np.float32]


@dataclass(frozen=True)
class DecodingRule:
    pad_id: int
    end_ids: tuple[int, ...]
    banned_ids: tuple[int, ...]  # never generated: Marian's padding

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> DecodingRule:
        pad = checkpoint.tokenizer.pad_token_id
        pad_id = 0 if pad is None else int(pad)
        if checkpoint.metadata.kind == "classifier":
            return cls(pad_id, (), ())
        config = checkpoint.model.generation_config
        ends = config.eos_token_id
        end_ids = () if ends is None else (ends,) if isinstance(ends, int) else tuple(ends)
        banned = tuple(word[0] for word in config.bad_words_ids or () if len(word) == 1 and word[0] not in end_ids)
        return cls(pad_id, end_ids, banned)

    def truncate(self, ids: Sequence[int]) -> list[int]:
        """Up to the first end token, which stays."""
        end = next((place for place, token in enumerate(ids) if token in self.end_ids), len(ids))
        return list(ids[: end + 1])


class ExportedDecoder(Protocol):
    def generate(self, rows: Sequence[CheckedRow], tokens: int, *, exactly: bool = False) -> list[list[int]]: ...

    def score(self, row: CheckedRow, answer: Sequence[int]) -> list[float]:
        """Log-probability of each token of an answer that is given."""
        ...

    def classify(self, rows: Sequence[CheckedRow]) -> Logits:
        """Logits [rows, labels] of a classifier."""
        ...


class TransformersDecoder:
    """A model of transformers, by its own `generate`, in fp32 on the CPU."""

    def __init__(self, model: PreTrainedModel, rule: DecodingRule) -> None:
        self.model = model.eval().cpu()
        self._rule = rule

    @torch.inference_mode()
    def generate(self, rows: Sequence[CheckedRow], tokens: int, *, exactly: bool = False) -> list[list[int]]:
        answers: list[list[int]] = [[]] * len(rows)
        for start in dict.fromkeys((row.start_id, row.first_id) for row in rows):
            places = [place for place, row in enumerate(rows) if (row.start_id, row.first_id) == start]
            ids_BT = self._search([rows[place] for place in places], *start, tokens, exactly)
            for place, ids_T in zip(places, ids_BT.tolist(), strict=True):
                answers[place] = self._rule.truncate(ids_T[1:])
        return answers

    def _search(
        self, rows: Sequence[CheckedRow], start_id: int, first_id: int | None, tokens: int, exactly: bool
    ) -> torch.Tensor:
        rule = self._rule
        config = GenerationConfig(
            do_sample=False,
            num_beams=1,
            max_new_tokens=tokens,
            min_new_tokens=tokens if exactly else None,
            decoder_start_token_id=start_id,
            forced_bos_token_id=first_id,
            pad_token_id=rule.pad_id,
            eos_token_id=list(rule.end_ids) or None,
            bad_words_ids=[[token] for token in rule.banned_ids] or None,
        )
        kept, self.model.generation_config = self.model.generation_config, config
        try:
            ids_BT: torch.Tensor = self.model.generate(**pad_sources(rows, rule.pad_id), generation_config=config)
            return ids_BT
        finally:
            self.model.generation_config = kept

    @torch.inference_mode()
    def classify(self, rows: Sequence[CheckedRow]) -> Logits:
        logits: Logits = self.model(**pad_sources(rows, self._rule.pad_id)).logits.float().numpy()
        return logits

    @torch.inference_mode()
    def score(self, row: CheckedRow, answer: Sequence[int]) -> list[float]:
        logits_TV = self.read_logits(row, answer[:-1])
        return logits_TV.log_softmax(-1).gather(1, torch.tensor(answer)[:, None])[:, 0].tolist()

    @torch.inference_mode()
    def read_logits(self, row: CheckedRow, answer: Sequence[int]) -> torch.Tensor:
        """Logits [T, V]: of the answer's first token, of the second, ..., and of the token after it."""
        decoder_ids_1T = torch.tensor([[row.start_id, *answer]])
        source = pad_sources([row], self._rule.pad_id)
        logits_TV: torch.Tensor = self.model(**source, decoder_input_ids=decoder_ids_1T).logits[0]
        return logits_TV.float()


def pad_sources(rows: Sequence[CheckedRow], pad_id: int) -> dict[str, torch.Tensor]:
    longest = max(len(row.ids) for row in rows)
    ids_BS = torch.full((len(rows), longest), pad_id)
    mask_BS = torch.zeros_like(ids_BS)
    for number, row in enumerate(rows):
        ids_BS[number, : len(row.ids)] = torch.tensor(row.ids)
        mask_BS[number, : len(row.ids)] = 1
    return {"input_ids": ids_BS, "attention_mask": mask_BS}


def pad_arrays(rows: Sequence[CheckedRow], pad_id: int) -> dict[str, Any]:
    return {name: tensor.numpy() for name, tensor in pad_sources(rows, pad_id).items()}
