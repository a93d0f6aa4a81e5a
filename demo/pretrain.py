"""Trains the demo's tokenizer and its small T5 checkpoint on the text of `text.py`.

    python demo/pretrain.py --out DIR

Comes in: the pretraining documents (facts with their objects masked, never a question). Goes out: a folder that
`AutoTokenizer` and `AutoModelForSeq2SeqLM` load. The same seed and versions give the same checkpoint; it takes about
half an hour on one core.

Answering from a context takes two skills: copying a name, and binding (finding the object that belongs to a subject).
- Copying is wired into the first weights (`wire_copying`): one encoder head looks at the previous token, and a decoder
  head looks for the place whose previous token is the one just written. All weights are trained from there.
- Binding comes from two things, and not at all without them (README.md has the figures): the target repeats the subject
  before its object, so the decoder knows whom it is looking for; and the curriculum of `text.py` begins with bare pairs
  and moves subject and object apart word by word.
"""

import argparse
import json
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from text import SEED, Document, iterate_pretraining
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import GenerationConfig, PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

SENTINELS = 20
VOCABULARY = 2500  # without the 256 byte tokens
BATCH_DOCUMENTS = 32
SORTED_BATCHES = 16  # so many batches are sorted by length together, so that little is padded
PEAK_LEARNING_RATE = 1e-3
WARM_UP_STEPS = 200
DECAY_FROM = 0.65  # of the training
LOG_EVERY_STEPS = 200
HELD_BACK = 320  # documents of the last stage, to measure on

Batch = dict[str, torch.Tensor]


@dataclass(frozen=True)
class ModelSize:
    d_model: int = 128
    d_kv: int = 32
    heads: int = 4
    d_ff: int = 256
    encoder_layers: int = 3
    decoder_layers: int = 2


# ---- tokenizer ----


def train_tokenizer(documents: Sequence[Document]) -> PreTrainedTokenizerFast:
    """BPE of syllable-sized pieces; a name is split alike after a space, a sentinel or nothing.

    Every printable Latin-1 character is in the alphabet; any other character falls back to its bytes.
    """
    special = [AddedToken(token, special=True, normalized=False) for token in ("<pad>", "</s>", "<unk>")]
    special += [  # without the spaces around it, which would be tokens of their own
        AddedToken(f"<extra_id_{number}>", lstrip=True, rstrip=True, special=True, normalized=False)
        for number in range(SENTINELS)
    ]
    alphabet = [chr(code) for code in (*range(0x21, 0x7F), *range(0xA1, 0x100))]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Metaspace(prepend_scheme="always"),
            pre_tokenizers.Punctuation(),
            pre_tokenizers.Digits(True),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator((text for d in documents for text in (d.source, d.target)), trainer)
    state = json.loads(tokenizer.to_str())
    vocabulary = state["model"]["vocab"]
    for byte in range(256):
        vocabulary[f"<0x{byte:02X}>"] = len(vocabulary)
    tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="always")])
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="</s>",
        unk_token="<unk>",
        extra_special_tokens=special[3:],
        clean_up_tokenization_spaces=False,
        model_max_length=512,
    )


# ---- model ----


def build_model(vocabulary: int, size: ModelSize) -> T5ForConditionalGeneration:
    config = T5Config(
        vocab_size=vocabulary,
        d_model=size.d_model,
        d_kv=size.d_kv,
        d_ff=size.d_ff,
        num_heads=size.heads,
        num_layers=size.encoder_layers,
        num_decoder_layers=size.decoder_layers,
        dropout_rate=0.0,
        feed_forward_proj="relu",
        tie_word_embeddings=True,
        pad_token_id=0,
        eos_token_id=1,
        decoder_start_token_id=0,
    )
    model = T5ForConditionalGeneration(config)
    wire_copying(model)
    return model


@torch.no_grad()
def wire_copying(model: T5ForConditionalGeneration) -> None:
    """Starts the attention heads with roles; see the module's docstring.

    encoder head 0: the previous token; layer 0 writes its identity (`read`) to a subspace of its own (`mark`)
    encoder head 1: in layer 0 the same token elsewhere; above, a place elsewhere with a similar neighbourhood (a
                    sentence about the same subject), whose token layer 1 also writes to `mark`
    encoder head 2: the mean of the neighbourhood; layer 0 writes it to `nearby`
    decoder head 0: compares the token just written with `mark`, and passes on the token found there
    """
    width, model_width, heads = model.config.d_kv, model.config.d_model, model.config.num_heads
    read, mark, around, nearby = (orthonormal_rows(width, model_width) for _ in range(4))
    head_rows = [slice(head * width, (head + 1) * width) for head in range(heads)]

    def pass_on(attention: Any, head: int, gain: float, basis: torch.Tensor, to: torch.Tensor) -> None:
        attention.v.weight[head_rows[head]] = basis
        attention.o.weight[:, head_rows[head]] = gain * to.T

    for number, block in enumerate(model.encoder.block):
        attention = block.layer[0].SelfAttention
        for head in range(heads):
            basis = orthonormal_rows(width, model_width)
            pass_on(attention, head, 0.5, basis, basis)
        if number == 0:
            pass_on(attention, 0, 1.0, read, mark)
            pass_on(attention, 2, 3.0, around, nearby)
        if number == 1:
            pass_on(attention, 1, 1.0, read, mark)
        match = 0.7 * orthonormal_rows(width, model_width) if number == 0 else nearby
        attention.q.weight[head_rows[1]] = match
        attention.k.weight[head_rows[1]] = match
        for head in (0, 2):  # led by position, hardly by content
            attention.q.weight[head_rows[head]] *= 0.1
    bias = model.encoder.block[0].layer[0].SelfAttention.relative_attention_bias.weight
    bias.zero_()  # buckets 0-7: this token and so many before; 16-23: so many after
    bias[1, 0] = 6.0
    bias[0:8, 1] = bias[16:24, 1] = -8.0
    bias[0:8, 2] = bias[16:24, 2] = 5.0
    for block in model.decoder.block:
        attention = block.layer[1].EncDecAttention
        for head in range(heads):
            basis = orthonormal_rows(width, model_width)
            pass_on(attention, head, 3.0 if head == 0 else 0.5, basis, basis)
        attention.q.weight[head_rows[0]] = read
        attention.k.weight[head_rows[0]] = mark


def orthonormal_rows(rows: int, columns: int) -> torch.Tensor:
    directions: torch.Tensor = torch.linalg.qr(torch.randn(columns, rows))[0]
    return directions.T.contiguous()


# ---- batches ----


def tokenize(documents: Sequence[Document], tokenizer: PreTrainedTokenizerFast) -> list[tuple[list[int], list[int]]]:
    sources = tokenizer([document.source for document in documents])["input_ids"]
    targets = tokenizer([document.target for document in documents])["input_ids"]
    return list(zip(sources, targets, strict=True))


def iterate_batches(documents: Sequence[Document], tokenizer: PreTrainedTokenizerFast, seed: int) -> Iterator[Batch]:
    """The curriculum once, in its order; within a window batches are of similar lengths, so that little is padded."""
    rng = random.Random(f"{seed} batches")
    window = BATCH_DOCUMENTS * SORTED_BATCHES
    for start in range(0, len(documents) - window + 1, window):
        pairs = sorted(
            tokenize(documents[start : start + window], tokenizer), key=lambda pair: (len(pair[0]), len(pair[1]))
        )
        batches = [pairs[at : at + BATCH_DOCUMENTS] for at in range(0, window, BATCH_DOCUMENTS)]
        rng.shuffle(batches)
        yield from (pad_batch(batch) for batch in batches)


def pad_batch(pairs: Sequence[tuple[list[int], list[int]]]) -> Batch:
    sources = [torch.tensor(source) for source, _ in pairs]
    targets = [torch.tensor(target) for _, target in pairs]
    pad = torch.nn.utils.rnn.pad_sequence
    input_ids = pad(sources, batch_first=True, padding_value=0)
    labels = pad(targets, batch_first=True, padding_value=-100)
    return {"input_ids": input_ids, "attention_mask": (input_ids != 0).long(), "labels": labels}


# ---- training ----


def learning_rate(step: int, steps: int) -> float:
    """A short warm-up, a long plateau, then down to nothing."""
    decay = min(1.0, (1 - step / steps) / (1 - DECAY_FROM))
    return PEAK_LEARNING_RATE * min(1.0, step / WARM_UP_STEPS) * decay


@torch.no_grad()
def measure_accuracy(
    model: T5ForConditionalGeneration, batches: Sequence[Batch], separator: int
) -> tuple[float, float]:
    """Teacher-forced: the share of right first tokens of an object (the binding) and of right tokens in all."""
    hits, counts = [0, 0], [0, 0]
    for batch in batches:
        labels = batch["labels"]
        right = model(**batch).logits.argmax(-1) == labels
        first = torch.zeros_like(right)
        first[:, 1:] = labels[:, :-1] == separator
        for number, mask in enumerate((first, labels >= 0)):
            hits[number] += int((right & mask).sum())
            counts[number] += int(mask.sum())
    return hits[0] / counts[0], hits[1] / counts[1]


def save_checkpoint(model: T5ForConditionalGeneration, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    model.generation_config = GenerationConfig(
        pad_token_id=0, eos_token_id=1, decoder_start_token_id=0, max_new_tokens=32
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def pretrain(out: Path, size: ModelSize, seed: int) -> None:
    documents = list(iterate_pretraining(seed))
    held_back, documents = documents[-HELD_BACK:], documents[:-HELD_BACK]
    tokenizer = train_tokenizer(documents[::8])
    torch.manual_seed(seed)
    model = build_model(len(tokenizer), size)
    print(f"{sum(p.numel() for p in model.parameters()):,} weights, {len(tokenizer)} tokens", flush=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK_LEARNING_RATE, betas=(0.9, 0.98), weight_decay=0.01)
    check = [pad_batch(tokenize(held_back[at : at + 32], tokenizer)) for at in range(0, HELD_BACK, 32)]
    separator = tokenizer.convert_tokens_to_ids(":")
    steps = len(documents) // (BATCH_DOCUMENTS * SORTED_BATCHES) * SORTED_BATCHES
    started, losses = time.monotonic(), []
    for step, batch in enumerate(iterate_batches(documents, tokenizer, seed), 1):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, steps)
        loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        if step % LOG_EVERY_STEPS == 0 or step == steps:
            binding, right = measure_accuracy(model, check, separator)
            print(
                f"step {step}/{steps}  {time.monotonic() - started:.0f} s  loss {sum(losses) / len(losses):.3f}  "
                f"binding {binding:.3f}  right {right:.3f}",
                flush=True,
            )
            losses = []
            save_checkpoint(model, tokenizer, out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the checkpoint")
    parser.add_argument("--seed", type=int, default=SEED)
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # sums in one order, whatever the machine
    pretrain(arguments.out, ModelSize(), arguments.seed)


if __name__ == "__main__":
    main()
