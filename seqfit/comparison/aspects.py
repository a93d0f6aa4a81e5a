"""What an audit compares: the aspects of a configuration, why each matters, and which names it is meant by.

    find_meant("gradient accumulation")    {"accumulation"}
    find_meant("fp16+recompute")           {"precision", "checkpointing"}
    find_meant("max_length=512")           {"lengths"}
    read_meant(["lr", "checkpointing"])    {"learning_rate", "checkpointing"}

An aspect that is meant brings others that follow from it: micro-batches of another size are what accumulation is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from seqfit.comparison.audits import Affected
from seqfit.errors import RecipeError, did_you_mean

EVERYTHING = "all"  # an item of that name has what the others are named after
_ALL_THREE: tuple[Affected, ...] = ("scores", "time", "memory")
_COST: tuple[Affected, ...] = ("time", "memory")


@dataclass(frozen=True)
class Aspect:
    name: str
    label: str
    affects: tuple[Affected, ...]
    why: str
    change: str
    names: str = ""  # pattern of words in an item's name that mean it
    follows: tuple[str, ...] = ()  # aspects that differ as a consequence
    without: object = None  # value of an item that does not use the technique; None: it is not a technique


ASPECTS = (
    Aspect(
        "accumulation",
        "gradient accumulation (micro-batches per update)",
        _ALL_THREE,
        "each further micro-batch adds rows to the update unless it is smaller by as much, and gradients then stay in "
        "memory during the next forward pass",
        "set gradient_accumulation_steps to the same number in all items, or divide the batch per GPU by it where it "
        "is what is tested",
        r"(grad\w*[ .-]*)?accum\w*( steps)?|ga\d+",
        ("micro_batch",),
        without=1,
    ),
    Aspect(
        "rows_per_update",
        "rows per optimizer update (global batch)",
        _ALL_THREE,
        "another batch per update is another training: the gradient has other noise, and an epoch another number of "
        "updates",
        "give all items the same product of rows per GPU, accumulation and GPUs (train.batch_examples in a recipe)",
        r"(global[ -]*|effective[ -]*)?batch([ .-]*size)?[ =]?\d*|bs\d*",
        ("micro_batch", "accumulation", "updates"),
    ),
    Aspect(
        "loss_scale",
        "scale of loss and gradient",
        ("scores",),
        "the Trainer of transformers 5 adds up the losses of micro-batches for T5, mT5, BART and BERT: logged loss and "
        "gradient grow with the accumulation, and clipping begins earlier",
        "set model.accepts_loss_kwargs = False before the Trainer is made",
    ),
    Aspect(
        "updates",
        "number of optimizer updates",
        ("scores", "time"),
        "a model that was updated more often has learnt more, and its training takes longer",
        "train all items for the same number of updates (max_steps, train.steps)",
        r"steps?|updates?",
        ("passes",),
    ),
    Aspect(
        "passes",
        "rows seen in training (epochs)",
        ("scores", "time"),
        "a model that has seen more rows has learnt more, and its training takes longer",
        "train all items on the same number of rows (num_train_epochs, train.epochs)",
        r"epochs?\d*|ep\d+",
        ("updates",),
    ),
    Aspect(
        "micro_batch",
        "rows per forward pass (micro-batch)",
        _COST,
        "it decides the memory of activations, how well a GPU is used, and with padding to the longest row how much of "
        "a batch is padding",
        "set per_device_train_batch_size (strategy.micro_batch_examples) to the same number, or compare memory and "
        "time per row",
        r"micro[ -]*batch\w*|mbs\d*|per[ -]*device[ \w]*",
        ("accumulation",),
    ),
    Aspect(
        "learning_rate",
        "learning rate",
        ("scores",),
        "a learning rate decides how good a model is after a given number of updates; each item may also need another",
        "give all items the same learning rate, or tune it for each with the same effort",
        r"lr[ =-]?[\d.e-]*|learning[ -]*rate",
    ),
    Aspect(
        "schedule",
        "learning rate schedule (shape, warm-up)",
        ("scores",),
        "it decides how large the updates are, early and late in the training",
        "give all items the same schedule with the same share of warm-up",
        r"schedul\w*|cosine|linear|constant|plateau|warm[ -]?up\w*",
    ),
    Aspect(
        "optimizer",
        "optimizer",
        _ALL_THREE,
        "it decides the update itself, and how many bytes of state each weight needs",
        "use one optimizer, with the same constants, in all items",
        r"optim\w*|adafactor|adamw?\w*|8[ -]?bit|lion|sgd|fused|apex",
        without="adamw",
    ),
    Aspect(
        "regularisation",
        "regularisation (weight decay, clipping, label smoothing, dropout)",
        ("scores",),
        "it changes the loss or the update, and how early a model overfits",
        "give all items the same values",
        r"decay|wd[\d.]+|clip\w*|smoothing|dropout[\d.]*|regulari[sz]\w*",
    ),
    Aspect(
        "precision",
        "precision",
        _ALL_THREE,
        "half precision rounds every activation, and tensor cores make it several times as fast",
        "set the same precision (bf16, fp16, strategy.precision) in all items",
        r"[bft][fp]?(16|32)|precision|mixed|half|amp|bits?",
        without="fp32",
    ),
    Aspect(
        "checkpointing",
        "gradient checkpointing (activation recomputation)",
        _COST,
        "it frees activations and computes them again: less memory, about a third more time, the same update",
        "set gradient_checkpointing (strategy.recompute) alike in all items",
        r"(grad\w*[ .-]*)?checkpoint\w*|recompute|gc",
        without="none",
    ),
    Aspect(
        "padding",
        "padding",
        _COST,
        "padding is computed and stored like text: it may be most of a batch",
        "pad all items alike (strategy.batching, padding of tokenizer and collator)",
        r"pad\w*|packed|packing|grouped|group by length|max length|longest",
    ),
    Aspect(
        "lengths",
        "maximum lengths",
        _ALL_THREE,
        "a longer limit is more text to learn from, and memory and time grow with it, for attention with its square",
        "truncate all items at the same lengths (task.max_source_tokens, task.max_target_tokens)",
        r"(max|source|target|seq\w*)[ -]*(source |target )?(len\w*|tokens)[ =]*\d+|lengths|len\d+|seq\w*[ -]*len\w*",
        ("padding", "tokenized"),
    ),
    Aspect(
        "seed",
        "seed",
        ("scores",),
        "it decides new weights, dropout and the order of rows: scores of the same configuration differ by it",
        "train every item with the same seeds, several of them",
        r"seeds?[ =-]?\d*",
        ("tokenized",),
    ),
    Aspect(
        "data",
        "training data",
        _ALL_THREE,
        "other rows are another task",
        "train all items on the same rows",
        r"data\w*|corpus|rows?|subset|samples?",
        ("updates", "passes", "test_data", "tokenized", "scored"),
    ),
    Aspect(
        "tokenized",
        "tokenized rows (fingerprint)",
        _ALL_THREE,
        "the same configuration has read other rows: a file has changed, or the tokenizer",
        "train all items again on the same files",
    ),
    Aspect(
        "text",
        "texts (prefix, templates, labels)",
        ("scores",),
        "what the model reads and has to write is the task itself",
        "use the same prefix and templates in all items",
        r"prefix\w*|prompt\w*|template\w*",
        ("tokenized",),
    ),
    Aspect(
        "test_data",
        "rows that are scored",
        ("scores",),
        "scores on other rows can't be compared",
        "score all items on the same rows of the same split",
        r"test[ -]?(set|rows|data)|eval[ -]?(set|rows|data)",
    ),
    Aspect(
        "scored",
        "split and number of rows that were scored",
        ("scores",),
        "scores on other rows can't be compared",
        "score all runs alike: seqfit evaluate RUN, for each of them",
    ),
    Aspect(
        "evaluation",
        "evaluation (metrics, generation, choice of the checkpoint)",
        ("scores",),
        "beams, length limits, metrics and the choice of the checkpoint change a score without any other training",
        "evaluate all items alike",
        r"beams?\d*|metrics?|greedy|generat\w*|early[ -]?stop\w*",
    ),
    Aspect(
        "evaluations",
        "evaluations during training",
        ("time",),
        "each is part of the time that is reported as the training's",
        "evaluate all items equally often, or report the time of the updates alone (the Trainer's train_runtime "
        "includes evaluations)",
        r"eval\w*",
    ),
    Aspect(
        "model",
        "model",
        _ALL_THREE,
        "another model is another comparison",
        "start all items from the same checkpoint",
        r"model|t5\w*|mt5\w*|byt5\w*|flan\w*|bert\w*|bart\w*|tiny|small|base|large|larger|xl|xxl|\d+[bm]",
        ("tokenized",),
    ),
    Aspect(
        "trained_part",
        "trained parts (LoRA, frozen layers, trimmed vocabulary)",
        _ALL_THREE,
        "fewer trained weights need fewer gradients and less optimizer state, and learn something else",
        "train the same parts in all items",
        r"q?lora\w*|adapters?|peft|freez\w*|frozen|trim\w*|vocab\w*|full",
        ("tokenized",),
    ),
    Aspect(
        "attention",
        "attention and loss kernels, compile",
        _COST,
        "another kernel computes the same result with other memory and time",
        "use the same kernels (strategy.attention, strategy.loss, strategy.compile)",
        r"attention|attn\w*|flash\w*|sdpa|eager|blockwise|kernels?|compile\w*|in backward|chunked",
    ),
    Aspect(
        "loader",
        "data loading (workers, prefetch)",
        ("time",),
        "a loader that is too slow lets the GPU wait",
        "set dataloader_num_workers (strategy.prefetch) alike",
        r"workers?\d*|prefetch\w*|loader",
    ),
    Aspect(
        "gpus",
        "number of GPUs (processes)",
        _ALL_THREE,
        "more GPUs multiply the rows per update of a Trainer, and memory summed over them grows with their number",
        "compare memory per GPU, and keep rows per update equal: divide the batch per GPU by the number of GPUs",
        r"((single|one|two|four|eight|multi|\d+)[ x-]*)?(gpus?|nproc|processes)\d*|\d+x(?![a-z0-9])",
        ("layout", "accumulation", "micro_batch"),
    ),
    Aspect(
        "layout",
        "layout over GPUs",
        _COST,
        "copies of a model (data parallel), shards and stages need other memory and other communication",
        "use the same layout, or compare only what one GPU holds",
        r"ddp\d*|fsdp\d*|zero\d*|deepspeed|pipeline\d+|((data|model)[ .-]*)?parallel\w*|offload|sharding",
        ("gpus", "accumulation", "micro_batch"),
    ),
    Aspect(
        "machine",
        "machine",
        ("time", "memory"),
        "another GPU, processor or number of threads has another speed, and another processor rounds differently",
        "run all items on the same machine, by turns (seqfit compare does)",
        r"cpu|rtx\w*|[avhtl]\d{1,4}\w*|laptop|machine|cluster|node\w*",
    ),
    Aspect(
        "program",
        "program",
        _ALL_THREE,
        "seqfit divides the loss by the target tokens of the global batch, the Trainer by micro-batches or not at all, "
        "depending on its version",
        "run both in one program; for transformers 5 with accumulation, set model.accepts_loss_kwargs = False in the "
        "script",
        r"seqfit\w*|trainer|transformers\w*|hf|huggingface",
        ("padding", "attention", "loader", "micro_batch", "accumulation", "software"),
    ),
    Aspect(
        "software",
        "software versions",
        _ALL_THREE,
        "another version has other kernels, defaults and sometimes another loss",
        "run all items with the same packages",
        r"torch\w*|cuda\w*|version\w*",
    ),
    Aspect(
        "recovery",
        "what happened during the run",
        _ALL_THREE,
        "a retry, a skipped update, a fallback, a resume or an early end is other work than the configuration says",
        "run the item again",
    ),
)
_BY_NAME = {aspect.name: aspect for aspect in ASPECTS}


def find_aspect(name: str) -> Aspect:
    return _BY_NAME[name]


def find_meant(name: str) -> set[str]:
    """The aspects that a name's words mean; the longest words first, each taken once."""
    left = name.lower().replace("_", " ")
    found: set[str] = set()
    for aspect, pattern in _PATTERNS:
        match = pattern.search(left)
        if match is not None:
            found.add(aspect)
            left = pattern.sub(" | ", left)
    return found


def is_everything(name: str) -> bool:
    return re.search(rf"(?<![a-z0-9]){EVERYTHING}(?![a-z0-9])", name.lower()) is not None


def with_consequences(names: Iterable[str]) -> set[str]:
    """With the aspects that follow, one step far."""
    known = set(names)
    return known.union(*(_BY_NAME[name].follows for name in known))


def read_meant(words: Iterable[str]) -> set[str]:
    """`--meant`: names of aspects, or words that items are called by."""
    found: set[str] = set()
    for word in words:
        key = word.strip().lower().replace("-", "_").replace(" ", "_")
        if key in _BY_NAME:
            found.add(key)
        elif meant := find_meant(word):
            found |= meant
        else:
            raise RecipeError(
                f"--meant names '{word}'",
                f"it lists what the items are meant to differ in: {', '.join(_BY_NAME)}",
                did_you_mean(key, _BY_NAME).strip() or "Name one of these, or words such as fp16 and lora",
            )
    return found


# What is more specific is looked for first: 'max_length' is padding only where it is no length limit with a number.
_FIRST = (
    "accumulation",
    "checkpointing",
    "seed",
    "micro_batch",
    "test_data",
    "layout",
    "lengths",
    "learning_rate",
    "gpus",
)
_ORDER = [*_FIRST, *(name for name in _BY_NAME if name not in _FIRST)]
_PATTERNS = [
    (name, re.compile(rf"(?<![a-z0-9])({_BY_NAME[name].names})(?![a-z0-9])")) for name in _ORDER if _BY_NAME[name].names
]
