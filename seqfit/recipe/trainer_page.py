"""docs/coming-from-trainer.md, made from the table of the Trainer's arguments; a test compares it with the file.

python -m seqfit.recipe.trainer_page > docs/coming-from-trainer.md
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from itertools import groupby

from seqfit.recipe.overrides import apply_overrides
from seqfit.recipe.trainer_names import (
    TrainerArgument,
    explain_options,
    format_changes,
    list_argv,
    load_sections,
    merge_changes,
    nest_fields,
    separate_options,
    take_options,
    translate_argument,
)
from seqfit.yaml_text import write_flow, write_yaml

_BEFORE = """\
python run_summarization.py --do_train --do_eval --predict_with_generate \\
    --model_name_or_path google-t5/t5-small --dataset_name knkarthick/dialogsum \\
    --text_column dialogue --summary_column summary --source_prefix "summarize: " \\
    --max_source_length 512 --max_target_length 128 \\
    --per_device_train_batch_size 8 --gradient_accumulation_steps 4 \\
    --learning_rate 3e-4 --num_train_epochs 3 --warmup_steps 100 --bf16 \\
    --eval_strategy epoch --save_steps 500 --output_dir runs/dialogsum"""
_INTRODUCTION = """\
# Coming from the Trainer

seqfit trains the same models as transformers' `Trainer` and its example scripts, and most of their arguments have a
field here. You don't have to look them up: type the argument you know, as an option, as an override or as a key of a
recipe file, and the answer is the field and the value to write. Nothing is started.

```console
$ seqfit train demo {typed}
{answer}
```

Three things differ from the Trainer:

- **The batch size is the global batch.** `train.batch_examples` counts the examples of one optimizer step, on all GPUs
  together. How it is split into micro-batches (`strategy.micro_batch_examples`, `strategy.micro_batch_tokens`) decides
  memory and speed and not what is learnt, so there is no number of gradient accumulation steps to set.
- **What is learnt and how it is computed are separate.** `model`, `task`, `data`, `train` and `eval` are the recipe;
  `strategy` has precision, batching, gradient checkpointing and sharding. A strategy that changes the update on
  purpose, such as fp16 or an 8-bit optimizer, must be named in the recipe's `allow` list.
- **A recipe is a file.** `seqfit cp t5-summarize mine.yaml` copies one to change; overrides are for what you try out.

## One command, before and after

```text
{before}
```

```console
$ {after}
```

The same in a recipe file:

```yaml
extends: t5-summarize
{recipe}```

## A whole script

`seqfit convert` reads a script and writes the recipe. It executes nothing: Python is followed as text, through
constants, argparse defaults, functions and classes, and what is known only when it runs is listed with its line.

```console
$ seqfit convert 'torchrun --nproc_per_node 2 run_summarization.py --model_name_or_path google-t5/t5-small \\
    --dataset_name knkarthick/dialogsum --text_column dialogue --summary_column summary \\
    --source_prefix "summarize: " --per_device_train_batch_size 8 --gradient_accumulation_steps 4 \\
    --bf16 --output_dir runs/dialogsum' -o dialogsum.yaml
```

| SCRIPT | what is read |
|---|---|
| `train.py` | arguments, model, data, texts and lengths (tokenizer calls), LoRA, optimizers, callbacks, metrics |
| `train.ipynb` | the same, from its code cells |
| `train.sh`, or a command in quotes | options and number of processes; the script is followed too, if it is there |
| `args.json`, `args.yaml` | what HfArgumentParser reads |
| `training_args.bin` | refused: a pickle runs code when it is read |

- Each setting is printed with its line and the field it becomes. Settings without a field, and those that could not be
  read, are listed with the reason; none is dropped silently.
- Batch size, learning rate, epochs and seed that the script leaves to transformers are written with transformers'
  defaults, because seqfit's differ.
- `train.batch_examples` is the batch per device times the accumulation times the processes of the launcher. Without a
  launcher it is times the GPUs of `CUDA_VISIBLE_DEVICES`, or one: the Trainer takes all GPUs that it sees.
- `accelerate launch --config_file FILE` is read with its file: the number of processes, and the precision.
- The recipe keeps the script's precision, micro-batches and padding as its `strategy`. Leave it out to let the plan
  choose: `seqfit train mine.yaml '~strategy'`.
- [`seqfit plan train.py`](planning.md#a-trainer-script-as-it-is) predicts the script as it is, and then what seqfit
  would do.
- The exit code is 1 if a needed field is missing, such as the columns; the file names it, and `seqfit validate` accepts
  the recipe once it is filled in.

## Every argument

All arguments of `TrainingArguments` and `Seq2SeqTrainingArguments` in transformers 5.22, some names of older versions,
and those of the example scripts for summarization, translation, question answering and text classification.
"""


def format_trainer_page() -> str:
    typed = ["--per_device_train_batch_size", "8", "--gradient_accumulation_steps", "4", "--fp16", "true"]
    before, _ = apply_overrides({}, take_options(shlex.split(_BEFORE.replace("\\\n", " "))[2:], ())[1])
    changes = merge_changes(before, before, {})
    pages = [
        _INTRODUCTION.format(
            typed=" ".join(typed),
            answer=f"error: {explain_options(take_options(typed, ())[1], 'The overrides of demo', 'have')}",
            before=_BEFORE,
            after=_wrap(["seqfit train t5-summarize", *list_argv(changes)]),
            recipe=write_yaml(nest_fields(separate_options(changes)[0])),
        )
    ]
    for title, rows in load_sections().items():
        lines = [f"### {title}", "", "| Trainer | here | what to know |", "|---|---|---|"]
        for _, same in groupby(rows, key=lambda name: id(rows[name].rule)):
            names = list(same)
            lines.append(_to_row(names, rows[names[0]]))
        pages.append("\n".join([*lines, ""]))
    return "\n".join(pages)


def _wrap(words: Sequence[str]) -> str:
    lines = [""]
    for word in words:
        if len(lines[-1]) + len(word) > 100:
            lines.append("   ")
        lines[-1] = f"{lines[-1]} {word}" if lines[-1] else word
    return " \\\n".join(lines)


def _to_row(names: Sequence[str], argument: TrainerArgument) -> str:
    note = _mark_code(f"{argument.note}." if argument.note else "")
    if not argument.has_field:
        return f"| {', '.join(f'`{name}`' for name in names)} | | {note} |"
    first, *others = names
    theirs, ours = [], []
    for example in argument.examples:
        found = translate_argument(first, {first: example}, {})
        if found or example is not False:
            theirs.append(f"`{first}={write_flow(example)}`")
            written = f"`{format_changes(found)}`" if isinstance(found, dict) and found else found
            ours.append(_mark_code(str(written or "nothing to write")))
    also = f"; also {', '.join(f'`{name}`' for name in others)}" if others else ""
    return f"| {'<br>'.join(theirs)}{also} | {'<br>'.join(ours)} | {note} |"


def _mark_code(text: str) -> str:
    """Fields, options and commands of a sentence as Markdown shows them, and a capital at its beginning."""
    text = re.sub(r"'(seqfit [^']+)'", r"`\1`", text)
    parts = text.split("`")  # every other one is code already
    field = r"((?:train|eval|data|task|model|strategy)\.[a-z_.]*[a-z](?:=\w+)?|--[a-z-]+)"
    parts[::2] = [re.sub(field, r"`\1`", part) for part in parts[::2]]
    marked = "`".join(parts)
    return marked if marked.startswith(("seqfit", "torch", "transformers")) else marked[:1].upper() + marked[1:]


if __name__ == "__main__":
    print(format_trainer_page(), end="")
