"""A checkpoint folder: Hugging Face layout, which plain transformers loads, plus one file of ours.

`seqfit.json` next to the weights keeps what the model was trained with: the task's templates, prefix and labels, the
length of its answers, and the probability from which on one of several labels is given. So a folder that was copied
elsewhere is still prompted as in training.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from seqfit.errors import ModelError
from seqfit.model.families.family import family_of
from seqfit.model.load import load_model, load_tokenizer
from seqfit.model.trainable import has_adapters, merged_state_dict, save_adapter
from seqfit.recipe import ModelRecipe, TaskRecipe
from seqfit.rundir import FolderDraft, files
from seqfit.system import quiet_transformers
from seqfit.tasks import build_task, columns_of, head_of

_FILE = files.CHECKPOINT_METADATA


@dataclass(frozen=True)
class GenerationMetadata:
    kind: str
    task: TaskRecipe
    beams: int
    max_new_tokens: int
    step: int
    threshold: float | None = None  # multilabel: the probability from which on a label is given; None: one half
    search: Mapping[str, Any] = field(default_factory=dict)  # more settings of transformers' generate; in its own file

    def at_start(self) -> GenerationMetadata:
        return replace(self, step=0)

    def own_texts(self) -> list[str]:
        return build_task(self.task).own_texts()

    @classmethod
    def read(cls, folder: Path) -> GenerationMetadata:
        try:
            values: dict[str, Any] = json.loads((folder / _FILE).read_text("utf-8"))
            return cls(**{**values, "task": TaskRecipe.model_validate(values["task"])})
        except (OSError, ValueError, KeyError, TypeError) as error:  # ValueError: not JSON, not UTF-8, not a task
            raise ModelError(
                f"'{folder}' has no readable {_FILE} ({type(error).__name__}: {error})",
                "a checkpoint of seqfit records in it how its model was trained",
                "Give a run directory, or the checkpoint folder inside one",
            ) from error

    @classmethod
    def find(cls, model: PreTrainedModel) -> GenerationMetadata | None:
        """That of the folder which a model was loaded from; None where seqfit has not written it."""
        folder = Path(model.name_or_path)
        return cls.read(folder) if (folder / _FILE).is_file() else None

    def write(self, folder: Path) -> None:
        """Next to the weights. It holds texts and lengths, no token ids: a trimmed vocabulary changes nothing in it."""
        values = {
            "kind": self.kind,
            "task": self.task.model_dump(exclude_none=True),
            "beams": self.beams,
            "max_new_tokens": self.max_new_tokens,
            "step": self.step,
        } | ({} if self.threshold is None else {"threshold": self.threshold})
        (folder / _FILE).write_text(json.dumps(values, ensure_ascii=False, indent=2) + "\n", "utf-8")


@dataclass(frozen=True)
class Checkpoint:
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    metadata: GenerationMetadata

    @classmethod
    def load(cls, folder: Path) -> Checkpoint:
        metadata = GenerationMetadata.read(folder)
        recipe = ModelRecipe.model_validate({"path": str(folder), "kind": metadata.kind, "untested": True})
        return cls(load_model(recipe, head_of(metadata.task)), load_tokenizer(recipe), metadata)

    @property
    def position_limit(self) -> int | None:
        return family_of(self.model).max_positions(self.model.config)

    def save(self, folder: Path) -> None:
        """Written next to the folder, then swapped: a kill always leaves a complete checkpoint in one place."""
        model, metadata = self.model, self.metadata
        draft = FolderDraft(folder)
        fresh = draft.start()
        with quiet_transformers():
            if has_adapters(model):  # merged, so that plain transformers loads it; the adapters alone lie next to it
                model.save_pretrained(fresh, state_dict=merged_state_dict(model))
                save_adapter(model, fresh / "adapter")
            else:
                model.save_pretrained(fresh)
            languages = {"src_lang": metadata.task.source_language, "tgt_lang": metadata.task.target_language}
            for side, code in languages.items():  # so that plain transformers marks texts as in training
                if code is not None and not columns_of(code):  # rows' own codes are not the task's
                    setattr(self.tokenizer, side, code)
            self.tokenizer.save_pretrained(fresh)
            if metadata.kind == "text-to-text":  # plain `generate` stops at 20 tokens otherwise
                config = build_generation_config(model, metadata.beams, metadata.max_new_tokens)
                config.update(**metadata.search)
                config.save_pretrained(fresh)
        metadata.write(fresh)
        draft.finish()


def build_generation_config(model: PreTrainedModel, beams: int, max_new_tokens: int) -> GenerationConfig:
    """The model's own settings without sampling, with our beams and length."""
    config = copy.deepcopy(model.generation_config)
    config.update(do_sample=False, num_beams=beams, max_new_tokens=max_new_tokens, max_length=None)
    if beams == 1:
        config.update(early_stopping=False, length_penalty=1.0)  # settings of a beam search, which warn without one
    return config
