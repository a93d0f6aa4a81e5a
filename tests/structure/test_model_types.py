"""What seqfit knows of a model type is in seqfit/model/families, and nowhere else.

Code is searched, docstrings and comments are not: strings that name a type, a class of transformers of one type, or an
attribute of one family's modules. What may stay is listed with its reason.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import seqfit
from seqfit.model.families.family import list_families
from seqfit.model.families.refused import REFUSED

PACKAGE = Path(seqfit.__file__).parent
TYPES = {model_type for family in list_families() for model_type in family.model_types} | set(REFUSED)
FAMILY_NAMES = "t5 mt5 umt5 byt5 flan bart mbart plbart marian nllb m2m100 pegasus bert roberta electra camembert"
NAMED = re.compile(
    rf"(?<![a-z0-9_])({'|'.join(map(re.escape, sorted({*TYPES, *FAMILY_NAMES.split()})))})(?![a-z0-9])", re.IGNORECASE
)
CLASS = re.compile(r"(M?T5|UMT5|ByT5|M?Bart|PLBart|Marian|Nllb|M2M100|Pegasus|X?L?M?Roberta|Bert|Electra)[A-Z]\w*")
ATTRIBUTE = re.compile(
    r"final_logits_bias|relative_attention_bias|compute_bias|embed_positions|embed_scale|layernorm_embedding|"
    r"DenseGatedActDense|DenseActDense|EncDecAttention|encoder_attn|feed_forward_proj|encoder_ffn_dim|d_kv"
)
ALLOWED = {
    # examples of names on the Hub and of models, in messages, help texts and tables of them
    "cli/arguments.py": "help text",
    "cli/compare.py": "help text",
    "cli/main.py": "help text",
    "cli/new.py": "help text",
    "cli/plan.py": "help text, an example in a message",
    "cli/trim.py": "help text",
    "comparison/aspects.py": "names that items are called by, and an explanation",
    "comparison/candidates.py": "Hub names of the next larger checkpoints",
    "conversion/translation.py": "example of a message",
    "data/encode.py": "messages, and tokenizers by what they can do",
    "inspection/findings.py": "advice",
    "inspection/data.py": "example of a message",
    "inspection/model_choice.py": "ranked names on the Hub, and what fits, before anything heavy is imported",
    "inspection/guess.py": "guesses from a Hub name, before anything heavy is imported",
    "model/load.py": "messages, advice on tokenizer files, a warning of one tokenizer",
    "model/trainable.py": "message",
    "recipe/schema.py": "descriptions of fields",
    "recipe/trainer_page.py": "an example of a command, before and after",
    "step/precision.py": "message",
    "training/nonfinite.py": "advice",
    "trimming/vocabulary.py": "messages, and a tokenizer that reads bytes",
    # a model of one type is what they are about
    "planning/request.py": "an example in a message",
    "planning/target.py": "the calibration workload is a T5",
    "studies/hooks.py": "names of studies",
    "studies/t5_memory.py": "a study of these models",
    "selftest.py": "its models are a T5, an mT5 and a BERT",
    # not of models
    "trimming/tokenizer.py": "post-processors of the tokenizers library",
}


def list_code_texts(file: Path) -> Iterator[tuple[int, str]]:
    """Strings that are no docstrings, names and attributes, with their lines."""
    tree = ast.parse(file.read_text("utf-8"))
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.lineno, node.value
        elif isinstance(node, ast.Name):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute):
            yield node.lineno, node.attr


def find_knowledge(file: Path) -> list[str]:
    return [
        f"{file.relative_to(PACKAGE)}:{line}: {text[:80]}"
        for line, text in list_code_texts(file)
        if NAMED.search(text) or CLASS.search(text) or ATTRIBUTE.search(text)
    ]


def search() -> dict[str, list[str]]:
    files = [file for file in sorted(PACKAGE.rglob("*.py")) if "families" not in file.relative_to(PACKAGE).parts]
    found = {str(file.relative_to(PACKAGE)): find_knowledge(file) for file in files}
    return {file: lines for file, lines in found.items() if lines}


def test_no_code_outside_the_families_knows_a_model_type() -> None:
    assert [line for file, lines in search().items() if file not in ALLOWED for line in lines] == []


def test_nothing_is_allowed_that_is_not_there() -> None:
    assert set(ALLOWED) <= set(search())
