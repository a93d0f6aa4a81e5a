"""Encoder-decoder types that transformers registers and seqfit does not train: type -> reason, what to use instead."""

from __future__ import annotations

_SPEECH = "it reads speech, and seqfit trains on text"
_EXPERTS = "its loss has terms that balance its experts, and which of them computes a token depends on the padding"

REFUSED: dict[str, tuple[str, str]] = {
    "prophetnet": (
        "its loss predicts several tokens ahead, which the loss here does not",
        "Use a BART or Pegasus model instead",
    ),
    "switch_transformers": (_EXPERTS, "Use a T5 v1.1 or Flan-T5 model instead"),
    "nllb-moe": (_EXPERTS, "Use a dense NLLB model instead, such as facebook/nllb-200-distilled-600M"),
    "fsmt": (
        "its tokenizer in transformers splits targets by the source's vocabulary",
        "Use a Marian (Helsinki-NLP/opus-mt-*) or NLLB model instead",
    ),
    **dict.fromkeys(
        (
            *("audioflamingo3", "glmasr", "granite_speech", "granite_speech_plus", "moss_transcribe_diarize"),
            *("musicflamingo", "nemo_speechlm", "qwen2_audio", "qwen3_asr", "seamless_m4t", "seamless_m4t_v2"),
            *("vibevoice_asr", "voxtral", "voxtral_realtime", "speech_to_text", "speecht5", "whisper"),
        ),
        (_SPEECH, "Use an NLLB or mBART model for translation, a T5 or BART model for anything else"),
    ),
}
