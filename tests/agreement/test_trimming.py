"""A trimmed model is the whole one on the words it kept: logits, loss and every gradient.

Tolerance: logits, loss and gradients may differ by 1e-5 of the largest of their kind (fp32, dropout 0). The whole
model's softmax is restricted to the kept words; that it otherwise is not is what makes trimming lossy.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForSequenceClassification,
)

from seqfit.model.load import load_model, load_tokenizer
from seqfit.recipe.schema import ModelRecipe
from seqfit.system import quiet_transformers
from seqfit.tasks import ClassifierHead
from seqfit.trimming.folder import save_trimmed
from seqfit.trimming.weights import Trimmed, choose_vocabulary, load_trimmed_model, trim_vocabulary

TOLERANCE = 1e-5
WORDS = 100
USED = np.random.default_rng(5).permutation(np.arange(3, WORDS))[:40]
TEXT_TO_TEXT = ["t5", "t5-v1.1", "mt5", "umt5", "bart"]


def load(folder: Path, kind: str) -> Any:
    torch.manual_seed(0)  # of the classifier's fresh head
    recipe = ModelRecipe.model_validate({"path": str(folder), "kind": kind, "dropout": 0.0})
    return load_model(recipe, ClassifierHead(("yes", "no", "maybe"))).train()


def trim(model: Any, folder: Path) -> Trimmed:
    counts = np.bincount(USED, minlength=WORDS)
    return trim_vocabulary(model, load_tokenizer(ModelRecipe(path=str(folder))), counts, "data")


def random_ids(rows: int, length: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(length).choice(USED, (rows, length)))


def assert_near(ours: torch.Tensor, reference: torch.Tensor, largest: float | None = None) -> None:
    assert ours.shape == reference.shape
    scale = float(reference.detach().abs().max()) if largest is None else largest
    assert scale > 1e-3
    assert float((ours - reference).detach().abs().max()) <= TOLERANCE * scale


def assert_same_gradients(trimmed: Any, whole: Any, old_ids: torch.Tensor) -> int:
    """Of sliced matrices the kept rows', and none in the others. Returns how many were sliced."""
    ours, reference = dict(trimmed.named_parameters()), dict(whole.named_parameters())
    assert ours.keys() == reference.keys()
    largest = max(float(tensor.grad.abs().max()) for tensor in reference.values() if tensor.grad is not None)
    sliced = 0
    for name, parameter in reference.items():
        if parameter.grad is None:
            assert ours[name].grad is None
        elif ours[name].shape == parameter.shape:
            assert_near(ours[name].grad, parameter.grad, largest)
        else:
            sliced += 1
            assert_near(ours[name].grad, parameter.grad[old_ids], largest)
            rest = torch.ones(len(parameter), dtype=torch.bool)
            rest[old_ids] = False
            assert float(parameter.grad[rest].abs().max()) == 0
    return sliced


@pytest.mark.parametrize("name", TEXT_TO_TEXT)
def test_a_trimmed_model_is_the_whole_one_restricted_to_the_kept_words(
    name: str, tiny_model: Callable[[str], Path]
) -> None:
    whole, trimmed = (load(tiny_model(name), "text-to-text") for _ in range(2))
    kept = trim(trimmed, tiny_model(name)).kept
    old_ids, remap = torch.from_numpy(kept.old_ids), torch.from_numpy(kept.remap).long()
    source_BS, target_BT = random_ids(3, 17), random_ids(3, 6)

    whole_BTV = whole(input_ids=source_BS, decoder_input_ids=target_BT).logits[..., old_ids]
    trimmed_BTV = trimmed(input_ids=remap[source_BS], decoder_input_ids=remap[target_BT]).logits
    assert trimmed_BTV.shape[-1] == len(kept) == 43
    assert_near(trimmed_BTV, whole_BTV)

    labels = remap[target_BT].flatten()
    losses = [F.cross_entropy(logits.flatten(0, 1), labels) for logits in (trimmed_BTV, whole_BTV)]
    assert_near(*losses)
    for loss in losses:
        loss.backward()
    assert assert_same_gradients(trimmed, whole, old_ids) == (1 if name in ("t5", "bart") else 2)


def test_a_trimmed_classifier_is_the_whole_one(tiny_model: Callable[[str], Path]) -> None:
    whole, trimmed = (load(tiny_model("bert"), "classifier") for _ in range(2))
    kept = trim(trimmed, tiny_model("bert")).kept
    remap = torch.from_numpy(kept.remap).long()
    source_BS, labels_B = random_ids(4, 12), torch.tensor([0, 1, 2, 0])
    logits = [trimmed(input_ids=remap[source_BS]).logits, whole(input_ids=source_BS).logits]
    assert_near(*logits)
    for logits_BC in logits:
        F.cross_entropy(logits_BC, labels_B).backward()
    assert assert_same_gradients(trimmed, whole, torch.from_numpy(kept.old_ids)) == 1


@pytest.fixture(params=[1, 7])
def roberta(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A classifier that counts positions from its pad on, which is the second word, or one after words of the data."""
    pad, size = request.param, {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    words = {word: number for number, word in enumerate(f"w{number}" for number in range(WORDS))}
    words = {{f"w{pad}": "<pad>", "w60": "<unk>"}.get(word, word): number for word, number in words.items()}
    inner = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    torch.manual_seed(0)
    config = RobertaConfig(
        vocab_size=WORDS, pad_token_id=pad, bos_token_id=None, eos_token_id=None, max_position_embeddings=32, **size
    )
    PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", unk_token="<unk>").save_pretrained(tmp_path)
    with quiet_transformers():
        RobertaForSequenceClassification(config).save_pretrained(tmp_path)
    return tmp_path


def test_a_trimmed_model_that_counts_positions_from_its_pad_is_the_whole_one(roberta: Path) -> None:
    recipe = ModelRecipe(path=str(roberta), kind="classifier", dropout=0.0)
    head, tokenizer = ClassifierHead(("yes", "no")), load_tokenizer(recipe)
    whole, sliced = (load_model(recipe, head).eval() for _ in range(2))
    pad = whole.config.pad_token_id
    counts = np.zeros(WORDS, dtype=np.int64)
    counts[[50, 51, 52, 53]] = 1
    kept = trim_vocabulary(sliced, tokenizer, counts, "data").kept
    chosen, small = choose_vocabulary(recipe, tokenizer, counts, "data")
    loaded = load_trimmed_model(recipe, head, chosen)
    assert len(kept) == len(chosen) == pad + 6  # those before pad, pad, unknown, four of the data
    assert loaded.fallback is None
    assert small.pad_token_id == sliced.config.pad_token_id == pad

    ids_BS = torch.tensor([[50, 51, 52, 53, 50], [53, 52, pad, pad, pad]])
    new_ids_BS, mask_BS = torch.from_numpy(kept.remap).long()[ids_BS], (ids_BS != pad).long()
    logits_BC = whole(input_ids=ids_BS, attention_mask=mask_BS).logits
    for trimmed in (sliced, loaded.model.eval()):
        assert_near(trimmed(input_ids=new_ids_BS, attention_mask=mask_BS).logits, logits_BC)
    F.cross_entropy(logits_BC, torch.tensor([0, 1])).backward()
    F.cross_entropy(sliced(input_ids=new_ids_BS, attention_mask=mask_BS).logits, torch.tensor([0, 1])).backward()
    assert assert_same_gradients(sliced, whole, torch.from_numpy(kept.old_ids)) == 1


# Not UMT5: plain transformers 5.22 scales its logits, trimmed or not.
@pytest.mark.parametrize("name", ["t5", "t5-v1.1", "mt5", "bart"])
def test_plain_transformers_loads_a_trimmed_folder_and_answers_the_same(
    name: str, tiny_model: Callable[[str], Path], tmp_path: Path
) -> None:
    model = load(tiny_model(name), "text-to-text").eval()
    tokenizer = trim(model, tiny_model(name)).tokenizer
    save_trimmed(tmp_path / "out", model, tokenizer)
    with quiet_transformers():
        plain, plain_tokenizer = (
            auto.from_pretrained(tmp_path / "out") for auto in (AutoModelForSeq2SeqLM, AutoTokenizer)
        )
    batch = plain_tokenizer([f"w{USED[0]} w{USED[1]}", f"w{USED[2]}"], return_tensors="pt", padding=True)
    settings = {"max_new_tokens": 12, "do_sample": False}
    answers = [
        m.generate(input_ids=batch.input_ids, attention_mask=batch.attention_mask, **settings) for m in (model, plain)
    ]
    assert torch.equal(*answers)
    assert plain.config.vocab_size == len(plain_tokenizer) == 43
