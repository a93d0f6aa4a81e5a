"""What seqfit knows of the encoder-decoder types that transformers registers, in one place.

In: a model's type, or its config. Out: whether seqfit trains it, what its decoder reads first, and how it is run.

    labels            7 9 1                        the target's tokens
    decoder inputs    S 7 9                        S by the family: see `Family.start`
    mBART, PLBart     1 7 9    (labels 7 9 1)      the last label comes first: a language code, or the end token

The one idea: whatever `prepare_decoder_input_ids_from_labels` of the model does, or its forward where it has none.
tests/agreement/test_families.py compares every type of `FAMILIES` with transformers: labels, decoder inputs, loss,
generated tokens, and packed rows where `packed` says so. A type that is not in it runs only with model.untested.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

T5_TYPES = ("t5", "mt5", "umt5")
BART_TYPES = ("bart", "mbart", "marian", "pegasus")
PACKED_TYPES = (*T5_TYPES, *BART_TYPES)  # whose attention and positions work segment by segment (packed.py)
HEAD_TYPES = (*PACKED_TYPES, "m2m_100")  # whose last layer is known (head.py): NLLB's logits of a batch are gigabytes


@dataclass(frozen=True)
class Family:
    """What training and generation have to know of a type beyond its config.

    start     config: decoder_start_token_id. decoder-bos: the decoder's bos_token_id. last-label: the target's last
              token. model: what the model's prepare_decoder_input_ids_from_labels gives, for types that are not tested.
    own_cache whether `generate` has to make its cache itself: its layers are of several kinds.
    """

    start: Literal["config", "decoder-bos", "last-label", "model"] = "config"
    own_cache: bool = False


FAMILIES: dict[str, Family] = {
    **dict.fromkeys(PACKED_TYPES, Family()),
    "bigbird_pegasus": Family(),
    "blenderbot": Family(),
    "blenderbot-small": Family(),
    "encoder-decoder": Family(),
    "led": Family(),
    "longt5": Family(),
    "m2m_100": Family(),
    "mbart": Family(start="last-label"),
    "mvp": Family(),
    "pegasus_x": Family(),
    "plbart": Family(start="last-label"),
    "t5gemma": Family(start="decoder-bos", own_cache=True),
    "t5gemma2": Family(start="decoder-bos", own_cache=True),
}
UNTESTED = Family(start="model")


@dataclass(frozen=True)
class Start:
    """What the generation of one answer starts with."""

    start_id: int  # read by the decoder first
    first_id: int | None  # written first, whatever is likeliest; None: not forced


_SPEECH = "it reads speech, and seqfit trains on text"
_EXPERTS = "its loss has terms that balance its experts, and who computes a token depends on the padding around it"
REFUSED: dict[str, tuple[str, str]] = {
    "prophetnet": (
        "its loss predicts several tokens ahead, which the loss here does not",
        "Take a BART or Pegasus model instead",
    ),
    "switch_transformers": (_EXPERTS, "Take a T5 v1.1 or Flan-T5 model instead"),
    "nllb-moe": (_EXPERTS, "Take a dense NLLB model instead, such as facebook/nllb-200-distilled-600M"),
    "fsmt": (
        "its tokenizer in transformers splits targets by the source's vocabulary",
        "Take a Marian (Helsinki-NLP/opus-mt-*) or NLLB model instead",
    ),
    **dict.fromkeys(
        (
            *("audioflamingo3", "glmasr", "granite_speech", "granite_speech_plus", "moss_transcribe_diarize"),
            *("musicflamingo", "nemo_speechlm", "qwen2_audio", "qwen3_asr", "seamless_m4t", "seamless_m4t_v2"),
            *("vibevoice_asr", "voxtral", "voxtral_realtime", "speech_to_text", "speecht5", "whisper"),
        ),
        (_SPEECH, "Take an NLLB or mBART model for translation, a T5 or BART model for anything else"),
    ),
}
_LAST_LABEL_PROBE = (5, 6, 7)


def find_family(model_type: str) -> Family:
    """That of a tested type, or the one of all others."""
    return FAMILIES.get(model_type, UNTESTED)


def is_tested(model_type: str) -> bool:
    """Whether tests compare the type with transformers."""
    return model_type in FAMILIES


def get_config_start(config: Any) -> int | None:
    """What the decoder reads first in training where the config says it; None where the config does not."""
    if find_family(config.model_type).start == "decoder-bos":
        start: int | None = config.decoder.bos_token_id
        return start
    start = getattr(config, "decoder_start_token_id", None)
    return start


def starts_with_last_label(model: Any) -> bool:
    """Whether the decoder reads the target's last token first."""
    start = find_family(model.config.model_type).start
    return start == "last-label" or (start == "model" and _probe_start(model) == _LAST_LABEL_PROBE[-1])


def find_start_id(model: Any) -> int | None:
    """What the decoder reads first in training; None where that is the last label, or where nothing says it."""
    start = find_family(model.config.model_type).start
    if start == "last-label":
        return None
    if start == "model":
        probed = _probe_start(model)
        return None if probed == _LAST_LABEL_PROBE[-1] else probed
    return get_config_start(model.config)


def _probe_start(model: Any) -> int | None:
    """The first decoder input that the model itself makes of labels."""
    import torch

    shift = getattr(model, "prepare_decoder_input_ids_from_labels", None)
    if shift is None:
        return get_config_start(model.config)
    return int(shift(labels=torch.tensor([_LAST_LABEL_PROBE]))[0, 0])
