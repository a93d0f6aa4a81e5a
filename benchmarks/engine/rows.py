"""Data files that the benchmarks need and the published data lacks: made from it once, as JSON lines.

lengthen    contexts of SQuAD-es joined until truncating at 512 or 4,096 tokens always leaves exactly that many
repeat      the first thousand rows of GSM8K over and over: 1k, 10k, 100k rows with the same lengths
renumber    SQuAD-es as mT5's tokenizer splits it, each piece as a word of its own: 'w17 w4 w251'. A tokenizer of
            these words has 32,128 entries at most, so a T5-sized model can be run on a multilingual model's lengths
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any

SQUAD_ES = "squad_es/dev-v1.1-es_small.json"
SPECIALS = ("<pad>", "</s>", "<unk>")


def find_shared(name: str, variable: str) -> Path:
    """The folder of real data or tokenizers: from the environment, else beside the repository."""
    folder = Path(os.environ.get(variable, Path(__file__).resolve().parents[3] / "shared" / name))
    if not folder.is_dir():
        raise SystemExit(f"There is no {name} folder at {folder}. Set {variable} to the one that holds it.")
    return folder


def find_data(name: str) -> Path:
    """A file of the real data."""
    return find_shared("data", "SEQFIT_DATA") / name


def find_tokenizer(name: str) -> Path:
    """A published tokenizer."""
    return find_shared("tokenizers", "SEQFIT_TOKENIZERS") / name


def squad_rows() -> Iterator[dict[str, str]]:
    """Question, context and first answer of SQuAD-es; rows without one are left out."""
    articles = json.loads(find_data(SQUAD_ES).read_text("utf-8"))["data"]
    paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]]
    for paragraph in paragraphs:
        for asked in paragraph["qas"]:
            answer = asked["answers"][0]["text"]
            if answer.strip():
                yield {"question": asked["question"], "context": paragraph["context"], "answer": answer}


def lengthen(path: Path, *, rows: int, characters: int, long_target: bool) -> None:
    """Rows whose context has at least so many characters; with `long_target` the target is its beginning."""
    found = list(squad_rows())
    contexts = list(dict.fromkeys(row["context"] for row in found))
    made = []
    for number, row in enumerate(found[:: max(1, len(found) // rows)][:rows]):
        text = row["context"]
        for context in islice(cycle(contexts), number, None):
            if len(text) >= characters:
                break
            text += f" {context}"
        made.append(row | {"context": text} | ({"answer": text[:2_000]} if long_target else {}))
    write_rows(path, made)


def repeat(path: Path, *, rows: int, distinct: int = 1000) -> None:
    """The first rows of GSM8K over and over."""
    with find_data("gsm8k/train.jsonl").open(encoding="utf-8") as file:
        first = [json.loads(line) for line in islice(file, distinct)]
    write_rows(path, islice(cycle(first), rows))


def renumber(path: Path, tokenizer_folder: Path, *, task: dict[str, Any]) -> None:
    """SQuAD-es as a task and mT5's tokenizer make it, and a tokenizer that gives each piece an id below 32,128."""
    from seqfit.data.tokenize import prepare_data
    from seqfit.model.load import load_tokenizer
    from seqfit.recipe.schema import Recipe

    data = {"path": str(find_data(SQUAD_ES)), "holdout": {}}
    recipe = Recipe.model_validate({"model": {"path": str(find_tokenizer("mt5"))}, "task": task, "data": data})
    split = prepare_data(recipe, load_tokenizer(recipe.model), ("train",)).splits["train"]
    words: dict[int, str] = {}
    made = []
    for row in range(len(split)):
        source, target = (ids[:-1].tolist() for ids in split.token_ids(row))  # the other tokenizer adds </s> again
        for piece in source + target:
            words.setdefault(piece, f"w{len(words)}")
        texts = {"source": source, "target": target}
        made.append({name: " ".join(words[piece] for piece in ids) for name, ids in texts.items()})
    write_word_tokenizer(tokenizer_folder, words.values())
    write_rows(path, made)


def write_word_tokenizer(folder: Path, words: Iterable[str]) -> None:
    """Splits at spaces and ends a text with </s>, as T5's does."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    ids = {word: number for number, word in enumerate([*SPECIALS, *words])}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing("$A </s>", special_tokens=[("</s>", ids["</s>"])])
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    ).save_pretrained(folder)


def write_rows(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Whole or not at all."""
    draft = path.with_suffix(".draft")
    with draft.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    draft.rename(path)
