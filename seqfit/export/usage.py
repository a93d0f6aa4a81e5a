"""How an exported folder is used without seqfit: the program in its model card. A test runs each of them."""

from __future__ import annotations

from collections.abc import Sequence

from seqfit.model import Checkpoint
from seqfit.recipe import TaskRecipe

_GENERATE = """\
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForSeq2SeqLM.from_pretrained(folder)
ids = model.generate(**tokenizer(text, return_tensors="pt"))
print(tokenizer.decode(ids[0], skip_special_tokens=True))"""

_CLASSIFY = """\
from transformers import AutoModelForSequenceClassification, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForSequenceClassification.from_pretrained(folder)
print(model.config.id2label, model(**tokenizer(text, return_tensors="pt")).logits)"""

_CT2 = """\
import ctranslate2
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(folder)
translator = ctranslate2.Translator(folder)
tokens = tokenizer.convert_ids_to_tokens(tokenizer(text).input_ids)
(result,) = translator.translate_batch(
    [tokens], beam_size={beams}, min_decoding_length=0, max_decoding_length={tokens}, max_input_length=0{more}
)
print(tokenizer.decode(tokenizer.convert_tokens_to_ids(result.hypotheses[0]), skip_special_tokens=True))"""

_ONNX_GENERATE = """\
import onnxruntime
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(folder)
encoder, first, following = (
    onnxruntime.InferenceSession(f"{{folder}}/{{name}}.onnx")
    for name in ("encoder_model", "decoder_model", "decoder_with_past_model")
)
source = tokenizer(text, return_tensors="np")
inputs = {{"input_ids": source["input_ids"], "attention_mask": source["attention_mask"]}}
states = encoder.run(None, inputs)[0]
mask, ids, past, decoder = inputs["attention_mask"], [{start}], {{}}, first
while len(ids) <= {tokens} and ids[-1] not in {ends}:
    given = {{"input_ids": [[ids[-1]]], "encoder_hidden_states": states, "encoder_attention_mask": mask, **past}}
    wanted = {{value.name for value in decoder.get_inputs()}}
    names = [value.name for value in decoder.get_outputs()]
    outputs = decoder.run(None, {{name: value for name, value in given.items() if name in wanted}})
    for name, value in zip(names, outputs):
        if name.startswith("present."):
            past[name.replace("present", "past_key_values")] = value
    ids.append(int(outputs[names.index("logits")][0, -1].argmax()))
    decoder = following
print(tokenizer.decode(ids, skip_special_tokens=True))"""

_ONNX_CLASSIFY = """\
import onnxruntime
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(folder)
session = onnxruntime.InferenceSession(f"{folder}/model.onnx")
given = tokenizer(text, return_tensors="np")
print(session.run(["logits"], {value.name: given[value.name] for value in session.get_inputs()}))"""


def describe_usage(form: str, checkpoint: Checkpoint) -> str:
    """Markdown: the program, and what it needs to be installed."""
    metadata, model = checkpoint.metadata, checkpoint.model
    is_classifier = metadata.kind == "classifier"
    ends = model.generation_config.eos_token_id if not is_classifier else None
    values = {
        "beams": metadata.beams,
        "tokens": metadata.max_new_tokens,
        "start": model.generation_config.decoder_start_token_id if not is_classifier else None,
        "more": _more_options(checkpoint) if form == "ct2" else "",
        "ends": ends if isinstance(ends, list) else [ends],
    }
    match form, is_classifier:
        case "hf", _:
            packages, program = "transformers torch", _CLASSIFY if is_classifier else _GENERATE
        case "ct2", _:
            packages, program = "ctranslate2 transformers", _CT2.format(**values)
        case _, True:
            packages, program = "onnxruntime transformers", _ONNX_CLASSIFY
        case _:
            packages, program = "onnxruntime transformers", _ONNX_GENERATE.format(**values)
    text = f'folder = "."  # this folder\ntext = {_write_source(metadata.task)!r}'
    lines = [f"`pip install {packages}`", "", "```python", text, "", program, "```"]
    if form == "hf":
        lines += ["", "With seqfit, which fills the template itself and finds the answer in what is generated: "]
        columns = " ".join(f"{name}=..." for name in _columns(metadata.task))
        lines[-1] += f"`seqfit predict . {columns}`".replace(" `", "`").replace("  ", " ")
    return "\n".join(lines)


def _more_options(checkpoint: Checkpoint) -> str:
    """Options of CTranslate2 for tokens that the model forces or bans."""
    config, tokenizer = checkpoint.model.generation_config, checkpoint.tokenizer
    text = ""
    if config.forced_bos_token_id is not None:
        text += f", target_prefix=[[{tokenizer.convert_ids_to_tokens(config.forced_bos_token_id)!r}]]"
    banned = [[tokenizer.convert_ids_to_tokens(token) for token in ids] for ids in config.bad_words_ids or ()]
    return text + (f", suppress_sequences={banned!r}" if banned else "")


def _write_source(task: TaskRecipe) -> str:
    """The template with its columns in braces, to be filled."""
    source = task.source
    template = source if isinstance(source, str) else source[0] if source else ""
    return f"{task.prefix}{template}"


def _columns(task: TaskRecipe) -> Sequence[str]:
    from seqfit.tasks import build_task

    return build_task(task).source_columns()
