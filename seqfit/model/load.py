"""Loads tokenizers and models; where one does not load, the error has what was given, the rule and what to change.

transformers 5 forces `tie_word_embeddings=True` into every T5-type config, although the heads of v1.1, Flan, mT5 and
UMT5 are matrices of their own. Loading weights handles that; two cases are corrected here:
- random weights: the head gets a matrix of its own where the config file says so (mt5-small has 300M parameters
  that way, and 172M without it);
- UMT5: the forced tie also scales the decoder's output by d_model**-0.5, which the published model does not.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from seqfit import hub
from seqfit.errors import ModelError, did_you_mean
from seqfit.hub import is_path, is_remote_code_trusted, use_hub
from seqfit.model.families.family import family_of, list_tested_types
from seqfit.model.families.refused import REFUSED
from seqfit.model_configs import find_known_model, load_known_models
from seqfit.recipe import ModelRecipe
from seqfit.system import quiet_transformers
from seqfit.tasks import ClassifierHead


def load_tokenizer(model: ModelRecipe) -> PreTrainedTokenizerBase:
    location = model.tokenizer or model.location
    field = "model.tokenizer" if model.tokenizer else "model.path" if model.path else "model.name"
    _find_files(location, field, needed=_has_tokenizer, what="tokenizer (tokenizer.json, spiece.model or vocab.txt)")
    with quiet_transformers(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Recommended: pip install sacremoses")  # Marian's; it never uses it
        try:
            return AutoTokenizer.from_pretrained(location, trust_remote_code=is_remote_code_trusted())
        except (OSError, ValueError, ImportError, KeyError, TypeError, AttributeError) as error:
            given = f"{field} is '{location}', and its tokenizer does not load ({_first_line(error)})"
            if field == "model.name" and isinstance(error, OSError):
                raise ModelError(given, hub.RULE, hub.ADVICE) from error
            raise ModelError(
                given, "transformers must find the tokenizer's files and know its class", _advise_tokenizer(location)
            ) from error


@dataclass(frozen=True)
class ModelConfig:
    """What a model is built from, except its weights."""

    config: PreTrainedConfig  # with the recipe's dropout and labels
    raw: dict[str, Any]  # the config file's own text: the class overwrites part of it
    auto: Any  # transformers' Auto class of the recipe's kind

    @classmethod
    def load(cls, model: ModelRecipe, head: ClassifierHead | None = None, *, may_be_known: bool = False) -> ModelConfig:
        """`may_be_known`: for a plan, which needs no weights, the config that comes with seqfit will do."""
        config, raw = _load_config(model, may_be_known=may_be_known)
        if model.kind == "text-to-text" and not config.is_encoder_decoder:
            raise ModelError(
                f"'{model.location}' is a {config.model_type} model without a decoder",
                "model.kind is text-to-text, which needs an encoder and a decoder",
                "Set model.kind=classifier for a task with labels or scores, or choose a T5-type model",
            )
        if model.kind == "text-to-text":
            _check_type(model, config.model_type)
        _set_dropout(config, model.dropout)
        if model.kind == "classifier" and head is not None:
            config.num_labels = len(head.labels)
            config.id2label = dict(enumerate(head.labels))
            config.label2id = {label: number for number, label in enumerate(head.labels)}
            config.problem_type = head.problem_type
        auto = AutoModelForSeq2SeqLM if model.kind == "text-to-text" else AutoModelForSequenceClassification
        return cls(config, raw, auto)

    def build(self, model: ModelRecipe, weights: Mapping[str, torch.Tensor] | None = None) -> PreTrainedModel:
        """The model in fp32 with the weights of its folder, or with those given, by the names that the folder has."""
        with quiet_transformers():
            built = _build(self.auto, model, self.config, weights)
        _respect_untied_head(built, self.raw, model)
        return built


def load_model(model: ModelRecipe, head: ClassifierHead | None = None) -> PreTrainedModel:
    """The model in fp32 on the CPU; of a classifier with this head, fresh unless the folder has it."""
    return ModelConfig.load(model, head).build(model)


def load_position_limit(model: ModelRecipe) -> int | None:
    """The longest input and output that the model has positions for; None where they are relative, as in T5.

    Also None for a folder without a config: a tokenizer alone is enough to look at data.
    """
    if model.path is not None and not (Path(model.path) / "config.json").is_file():
        return None
    config, _ = _load_config(model)
    return family_of(config).max_positions(config)


def check_vocabulary(embeddings: int, tokenizer: PreTrainedTokenizerBase, recipe: ModelRecipe) -> None:
    """A tokenizer of another model gives ids that this one has no embedding for."""
    if len(tokenizer) > embeddings:
        raise ModelError(
            f"the tokenizer of '{recipe.tokenizer or recipe.location}' has {len(tokenizer)} tokens, "
            f"the model '{recipe.location}' embeddings for {embeddings}",
            "every token needs an embedding",
            "Set model.tokenizer to the one that the model was trained with",
        )


def _load_config(model: ModelRecipe, *, may_be_known: bool = False) -> tuple[PreTrainedConfig, dict[str, Any]]:
    """From the first that has it: the folder; the Hub, or offline its cache; where that will do, seqfit itself."""
    field = "model.path" if model.path else "model.name"
    _find_files(model.location, field, needed=lambda folder: (folder / "config.json").is_file(), what="config.json")
    with quiet_transformers():
        try:
            raw, _ = PreTrainedConfig.get_config_dict(model.location)
            return AutoConfig.from_pretrained(model.location, trust_remote_code=is_remote_code_trusted()), raw
        except (OSError, ValueError, KeyError) as error:
            known = find_known_model(model.location) if may_be_known and model.path is None else None
            if known is not None and isinstance(error, OSError):
                return AutoConfig.for_model(**copy.deepcopy(dict(known.config))), dict(known.config)
            offline = hub.describe_absence(model.location) if isinstance(error, OSError) and not model.path else None
            raise ModelError(
                offline or f"{field} is '{model.location}', and its config does not load ({_first_line(error)})",
                hub.RULE,
                hub.ADVICE,
                hint=did_you_mean(model.location, load_known_models()),
            ) from error


def _build(
    auto: Any, model: ModelRecipe, config: PreTrainedConfig, weights: Mapping[str, torch.Tensor] | None
) -> PreTrainedModel:
    if model.weights == "random":
        return auto.from_config(config, dtype=torch.float32)
    try:
        built, report = auto.from_pretrained(
            model.location if weights is None else None,  # transformers takes only one of place and weights
            config=config,
            state_dict=weights,
            dtype=torch.float32,
            trust_remote_code=is_remote_code_trusted(),
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # reported below by name; a head may have had other labels
        )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise ModelError(
            f"'{model.location}' does not load ({_first_line(error)})",
            "its weights must be there and whole (safetensors)",
            "Download them again, or set model.weights=random to start from the config alone",
        ) from error
    lost = {*report["missing_keys"], *(name for name, *_ in report["mismatched_keys"])}
    if model.kind == "classifier":  # whose head, and in some encoders pooler, is new
        lost = {name for name in lost if name.startswith(f"{built.base_model_prefix}.") and ".pooler." not in name}
    _check_complete(model, lost)
    for part in built.modules():  # adapters and saved folders say where a model came from
        if isinstance(part, PreTrainedModel):
            part.name_or_path = part.config.name_or_path = model.location
    return built


def _check_complete(model: ModelRecipe, lost: set[str]) -> None:
    """transformers fills what a file lacks with random values and only warns."""
    if lost:
        raise ModelError(
            f"'{model.location}' lacks {len(lost)} of its model's weights, or has them in another shape "
            f"({', '.join(sorted(lost)[:3])}, ...)",
            "a pretrained model has all weights of its config",
            "Download it again, or set model.weights=random to start from the config alone",
        )


def _respect_untied_head(built: PreTrainedModel, raw: dict[str, Any], model: ModelRecipe) -> None:
    head = getattr(built, "lm_head", None)
    if raw.get("tie_word_embeddings") is not False or not isinstance(head, nn.Linear):
        return
    if head.weight is built.get_input_embeddings().weight:
        if model.weights == "pretrained":
            _check_complete(model, {"lm_head.weight"})
        head.weight = nn.Parameter(torch.empty_like(head.weight).normal_(std=built.config.d_model**-0.5))
        built.all_tied_weights_keys.pop("lm_head.weight", None)
    built.config.tie_word_embeddings = False  # also in what is saved; UMT5 does not scale its output then


def _check_type(model: ModelRecipe, model_type: str) -> None:
    if model_type in REFUSED:
        reason, instead = REFUSED[model_type]
        raise ModelError(f"'{model.location}' is a {model_type} model: {reason}", "it is not trained", instead)
    if model_type not in list_tested_types() and not model.untested:
        raise ModelError(
            f"'{model.location}' is a {model_type} model, a type that seqfit is not tested with",
            f"labels, decoder inputs and loss are compared with transformers' for {', '.join(list_tested_types())}",
            "Set model.untested=true to train it anyway, padded and as transformers runs it, and compare its loss with "
            "your own",
        )


def _set_dropout(config: PreTrainedConfig, rate: float | None) -> None:
    if rate is None:
        return
    family = family_of(config)
    for name in family.dropout_fields if rate else (*family.dropout_fields, *family.layer_drop_fields):
        if hasattr(config, name):
            setattr(config, name, rate)
    for part in family.config_parts(config):
        _set_dropout(part, rate)


def _has_tokenizer(folder: Path) -> bool:
    names = ("tokenizer.json", "spiece.model", "vocab.txt", "vocab.json", "tokenizer_config.json")  # ByT5 has only this
    return any((folder / name).is_file() for name in names)


def _find_files(location: str, field: str, *, needed: Callable[[Path], bool], what: str) -> None:
    """A wrong folder is an error before transformers takes it for a Hub name; a Hub name prepares for the Hub."""
    folder = Path(location)
    if not is_path(location) and field != "model.path":
        use_hub()
        return
    if folder.is_dir() and needed(folder):
        return
    raise ModelError(
        f"{field} is '{location}', " + (f"which has no {what}" if folder.is_dir() else "and there is no such folder"),
        "a local model or tokenizer is a folder in Hugging Face layout",
        f"Set {field} to the folder that holds {what}",
    )


def _advise_tokenizer(location: str) -> str:
    lacking = [name for name in ("source.spm", "target.spm") if not (Path(location) / name).is_file()]
    if len(lacking) == 1:
        return f"The folder lacks {lacking[0]}, the SentencePiece model of one side of a Marian model; copy it there"
    config = Path(location) / "tokenizer_config.json"
    if Path(location).is_dir() and (not config.is_file() or "tokenizer_class" not in config.read_text("utf-8")):
        return (
            'The folder does not say which class it is: put {"tokenizer_class": "T5Tokenizer"} (T5, mT5, UMT5) into '
            "its tokenizer_config.json"
        )
    return "Set model.tokenizer to a folder that has it, or check the name and the network"


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0].rstrip('.')}"
