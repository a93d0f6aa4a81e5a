"""A tiny random model of every model type that a family lists; encoder-decoders with a tokenizer of their own class.

    write_family(folder, "marian")    folder: config.json, model.safetensors, source.spm, target.spm, vocab.json, ...

Nothing is fetched: SentencePiece and BPE models are trained on sentences made of a few English and French words. Ids
of special tokens are those that the class gives them, as in the published models.
"""

from __future__ import annotations

import json
import random
import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ENGLISH, FRENCH = (
    text.split()
    for text in (
        "a the two dogs dog man woman child runs plays in with red blue water street big small ball near and",
        "un la deux chiens chien homme femme enfant court joue dans avec rouge bleu eau rue grand petit près et",
    )
)
NORMS = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
BART = {"d_model": 16, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "max_position_embeddings": 128, **NORMS}
BART |= {"forced_eos_token_id": None, "num_beams": 1}
T5 = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2, "feed_forward_proj": "gated-gelu"}
GEMMA = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
GEMMA |= {"num_key_value_heads": 1, "head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 8}
VISION = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
VISION |= {"image_size": 8, "patch_size": 4}


def make_sentences(words: list[str], count: int, seed: int) -> list[str]:
    """Sentences of 2 to 12 words."""
    draw = random.Random(seed)
    return [" ".join(draw.choices(words, k=draw.randint(2, 12))) for _ in range(count)]


SOURCES, TARGETS = make_sentences(ENGLISH, 300, seed=1), make_sentences(FRENCH, 300, seed=2)


def _train_pieces(file: Path, texts: list[str], kind: str = "unigram", **ids: int) -> Path:
    """A SentencePiece model, as the published checkpoints of some types have it."""
    import sentencepiece

    with open(file, "wb") as written:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(texts),
            model_writer=written,
            vocab_size=90,
            model_type=kind,
            hard_vocab_limit=False,
            minloglevel=2,
            **ids,
        )
    return file


def _list_pieces(file: Path) -> list[tuple[str, float]]:
    """Without SentencePiece's own special tokens."""
    import sentencepiece

    pieces = sentencepiece.SentencePieceProcessor(model_file=str(file))
    return [(pieces.id_to_piece(number), pieces.get_score(number)) for number in range(3, len(pieces))]


def _unigram(folder: Path, *special: str) -> list[tuple[str, float]]:
    """Scored pieces behind the special tokens of a class."""
    file = _train_pieces(folder / "draft.model", SOURCES + TARGETS)
    pieces = _list_pieces(file)
    file.unlink()
    return [*((token, 0.0) for token in special), *pieces]


def _bpe(*special: str, is_bytes: bool = False) -> dict[str, Any]:
    """Vocabulary and merges, as the classes take them."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel() if is_bytes else pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=160, show_progress=False, special_tokens=list(special))
    tokenizer.train_from_iterator(SOURCES + TARGETS, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return {"vocab": model["vocab"], "merges": [tuple(merge) for merge in model["merges"]]}


def _class(name: str) -> Any:
    import transformers

    return getattr(transformers, name)


def _build_t5(folder: Path) -> Any:
    return _class("T5Tokenizer")(vocab=_unigram(folder, "<pad>", "</s>", "<unk>"), extra_ids=4)


def _build_pegasus(folder: Path) -> Any:
    special = ("<pad>", "</s>", "<mask_1>", "<mask_2>", "<unk>")
    return _class("PegasusTokenizer")(vocab=_unigram(folder, *special), offset=0)


def _build_fairseq(name: str) -> Callable[[Path], Any]:
    """mBART's kind: four special tokens, pieces, language codes, <mask>."""

    def build(folder: Path) -> Any:
        vocabulary = _unigram(folder, "<s>", "<pad>", "</s>", "<unk>")
        codes = [(code, 0.0) for code in ("ar_AR", "en_XX", "fr_XX", "ro_RO")]
        return _class(name)(vocab=[*vocabulary, *codes, ("<mask>", 0.0)])

    return build


def _build_nllb(folder: Path) -> Any:
    return _class("NllbTokenizer")(**_bpe("<s>", "<pad>", "</s>", "<unk>"))


def _build_byte_level(name: str) -> Callable[[Path], Any]:
    special = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
    return lambda folder: _class(name)(**_bpe(*special, is_bytes=True))


def _build_gemma(folder: Path) -> Any:
    return _class("GemmaTokenizer")(**_bpe("<pad>", "<eos>", "<bos>", "<unk>", "<mask>"), add_bos_token=True)


def _build_m2m100(folder: Path) -> Any:
    file = _train_pieces(folder / "draft.model", SOURCES + TARGETS)
    words = ["<s>", "<pad>", "</s>", "<unk>", *(piece for piece, _ in _list_pieces(file))]
    (folder / "draft.json").write_text(json.dumps({word: number for number, word in enumerate(words)}))
    return _class("M2M100Tokenizer")(str(folder / "draft.json"), str(file))


def _build_plbart(folder: Path) -> Any:
    return _class("PLBartTokenizer")(str(_train_pieces(folder / "draft.model", SOURCES + TARGETS)))


def _build_marian(folder: Path) -> Any:
    """One SentencePiece model a side and a vocabulary of both, with <pad> as its last word."""
    files = [
        _train_pieces(folder / f"draft-{side}.model", texts)
        for side, texts in (("source", SOURCES), ("target", TARGETS))
    ]
    words = dict.fromkeys(piece for file in files for piece, _ in _list_pieces(file))
    listed = ["</s>", "<unk>", *words, "<pad>"]
    (folder / "draft.json").write_text(json.dumps({word: number for number, word in enumerate(listed)}))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Recommended: pip install sacremoses")
        return _class("MarianTokenizer")(*map(str, files), str(folder / "draft.json"))


def _build_blenderbot_small(folder: Path) -> Any:
    """Words as they are, each one piece: `two</w>` for the merges, `two` in the vocabulary."""
    words = ["__null__", "__start__", "__end__", "__unk__", *ENGLISH, *FRENCH]
    (folder / "draft.json").write_text(json.dumps({word: number for number, word in enumerate(dict.fromkeys(words))}))
    merges = [
        f"{word[:end]} {word[end] + ('</w>' if end + 1 == len(word) else '')}"
        for word in words[4:]
        for end in range(1, len(word))
    ]
    (folder / "draft.txt").write_text("#version: 0.2\n" + "\n".join(dict.fromkeys(merges)) + "\n")
    return _class("BlenderbotSmallTokenizer")(str(folder / "draft.json"), str(folder / "draft.txt"))


def build_bert(folder: Path) -> Any:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *dict.fromkeys([*ENGLISH, *FRENCH])]
    return _class("BertTokenizer")(vocab={word: number for number, word in enumerate(words)})


@dataclass(frozen=True)
class Case:
    """A model type with one of the tokenizers that it is published with."""

    model_type: str
    build_tokenizer: Callable[[Path], Any]
    shape: dict[str, Any]
    languages: tuple[str, str] | None = None
    start: str | None = None  # name of the special token that the decoder starts with; None: config says nothing


def _bert_part(is_decoder: bool) -> dict[str, Any]:
    part = {"model_type": "bert", "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    part |= {"intermediate_size": 32, "max_position_embeddings": 64}
    return part | ({"is_decoder": True, "add_cross_attention": True} if is_decoder else {})


ENCODER = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
ENCODER |= {"max_position_embeddings": 40, "vocab_size": 90, "num_labels": 3}
ENCODER_CASES: dict[str, dict[str, Any]] = {  # classifiers; the pad id is the published models'
    "bert": ENCODER | {"pad_token_id": 0},
    "camembert": ENCODER | {"pad_token_id": 1},
    "electra": ENCODER | {"pad_token_id": 0, "embedding_size": 16},
    "roberta": ENCODER | {"pad_token_id": 1},
    "xlm-roberta": ENCODER | {"pad_token_id": 1},
}
LED = {name: value for name, value in BART.items() if name != "max_position_embeddings"}
LED |= {"max_encoder_position_embeddings": 128, "max_decoder_position_embeddings": 64, "attention_window": 8}
FAMILY_CASES: dict[str, Case] = {
    "bart": Case("bart", _build_byte_level("BartTokenizer"), BART, start="eos"),
    "bigbird_pegasus": Case(
        "bigbird_pegasus", _build_pegasus, BART | {"block_size": 4, "num_random_blocks": 1}, start="eos"
    ),
    "blenderbot": Case("blenderbot", _build_byte_level("BlenderbotTokenizer"), BART, start="bos"),
    "blenderbot-small": Case("blenderbot-small", _build_blenderbot_small, BART, start="bos"),
    "encoder-decoder": Case(
        "encoder-decoder", build_bert, {"encoder": _bert_part(False), "decoder": _bert_part(True)}, start="cls"
    ),
    "led": Case("led", _build_byte_level("LEDTokenizer"), LED, start="eos"),
    "longt5": Case("longt5", _build_t5, T5 | {"local_radius": 4}, start="pad"),
    "longt5-global": Case(
        "longt5", _build_t5, T5 | {"local_radius": 4, "encoder_attention_type": "transient-global"}, start="pad"
    ),
    "m2m_100": Case("m2m_100", _build_m2m100, BART, ("en", "fr"), start="eos"),
    "nllb": Case("m2m_100", _build_nllb, BART | {"scale_embedding": True}, ("eng_Latn", "fra_Latn"), start="eos"),
    "marian": Case("marian", _build_marian, BART | {"scale_embedding": True}, start="pad"),
    "mbart": Case("mbart", _build_fairseq("MBartTokenizer"), BART, ("en_XX", "ro_RO")),
    "mbart-50": Case("mbart", _build_fairseq("MBart50Tokenizer"), BART, ("en_XX", "ro_RO"), start="eos"),
    "mt5": Case("mt5", _build_t5, T5 | {"tie_word_embeddings": False}, start="pad"),
    "mvp": Case("mvp", _build_byte_level("MvpTokenizer"), BART, start="eos"),
    "pegasus": Case("pegasus", _build_pegasus, BART | {"scale_embedding": True}, start="pad"),
    "pegasus_x": Case("pegasus_x", _build_pegasus, BART | {"num_global_tokens": 4, "block_size": 4}, start="pad"),
    "plbart": Case("plbart", _build_plbart, BART, ("java", "en_XX")),
    "t5": Case("t5", _build_t5, T5, start="pad"),
    "t5gemma": Case("t5gemma", _build_gemma, {"encoder": GEMMA, "decoder": GEMMA}),
    "t5gemma2": Case(
        "t5gemma2",
        _build_gemma,
        {"encoder": {"text_config": GEMMA, "vision_config": VISION}, "decoder": GEMMA},
    ),
    "umt5": Case("umt5", _build_t5, T5 | {"tie_word_embeddings": False}, start="pad"),
}


def write_family(folder: Path, name: str) -> Path:
    """The folder of a model with random weights and its tokenizer, as transformers saves them."""
    import torch
    from transformers import AutoConfig, AutoModelForSeq2SeqLM

    case = FAMILY_CASES[name]
    draft = folder / "draft"
    draft.mkdir(parents=True)
    tokenizer = case.build_tokenizer(draft)
    tokenizer.save_pretrained(folder)
    shutil.rmtree(draft)
    config = AutoConfig.for_model(case.model_type, **_fill_ids(case, tokenizer))
    torch.manual_seed(3)
    model = AutoModelForSeq2SeqLM.from_config(config)
    spread_weights(model)
    if name == "marian":  # as all published ones have it: padding, the start token, is never written
        model.generation_config.update(bad_words_ids=[[tokenizer.pad_token_id]], forced_eos_token_id=0, num_beams=4)
    model.save_pretrained(folder)
    return folder


def build_encoder(model_type: str) -> Any:
    """A classifier with random weights, in `eval()`."""
    import torch
    from transformers import AutoConfig, AutoModelForSequenceClassification

    torch.manual_seed(3)
    config = AutoConfig.for_model(model_type, **ENCODER_CASES[model_type])
    model = AutoModelForSequenceClassification.from_config(config).eval()
    spread_weights(model)
    return model


def _fill_ids(case: Case, tokenizer: Any) -> dict[str, Any]:
    """The shape with the ids of the tokenizer's special tokens, in the parts where a config has parts."""
    ids = {name: getattr(tokenizer, name) for name in ("pad_token_id", "eos_token_id", "bos_token_id")}
    ids = {name: number for name, number in ids.items() if number is not None}
    codes = getattr(tokenizer, "lang_code_to_id", {})  # M2M100 doesn't count them
    ids["vocab_size"] = max(len(tokenizer), *codes.values(), 0) + 1
    start = {} if case.start is None else {"decoder_start_token_id": getattr(tokenizer, f"{case.start}_token_id")}
    parts = {name: fill_part(part, ids) for name, part in case.shape.items() if isinstance(part, dict)}
    return {**case.shape, **ids, **start, **parts}


def fill_part(part: dict[str, Any], ids: dict[str, Any]) -> dict[str, Any]:
    if "text_config" in part:
        return part | {"text_config": part["text_config"] | ids}
    return part | ids


def spread_weights(model: Any) -> None:
    """Larger weights than a fresh model's, so that answers depend on what was asked."""
    import torch

    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=0.3)
