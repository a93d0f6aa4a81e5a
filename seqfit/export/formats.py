"""The forms that a model is exported to: what each writes, and how it is loaded again for the check.

A format writes into a folder that is not there yet to others, and loads it as its users will: with nothing of the
checkpoint's but the files. Its module is imported when it is used, because each has libraries of its own.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from seqfit.errors import ModelError, RecipeError, did_you_mean

if TYPE_CHECKING:
    from seqfit.export.decoders import DecodingRule, ExportedDecoder
    from seqfit.model import Checkpoint

WeightType = Literal["fp32", "int8"]


class Exporter(Protocol):
    """What a format does."""

    def write(self, checkpoint: Checkpoint, folder: Path, precision: WeightType) -> None: ...

    def load(self, folder: Path, rule: DecodingRule) -> ExportedDecoder: ...


@dataclass(frozen=True)
class Format:
    name: str
    title: str
    exporter: str  # module:class
    extra: str | None  # of pyproject.toml; None: nothing more is needed
    packages: tuple[str, ...]  # that the extra installs, as modules
    precisions: tuple[WeightType, ...]
    kinds: tuple[str, ...]  # of model.kind

    def load_exporter(self) -> Exporter:
        module, _, name = self.exporter.partition(":")
        exporter: Exporter = getattr(importlib.import_module(f"seqfit.export.{module}"), name)()
        return exporter


_BOTH = ("text-to-text", "classifier")
EXPORT_FORMATS = {
    "hf": Format("hf", "Hugging Face folder", "huggingface:HuggingFaceExporter", None, (), ("fp32",), _BOTH),
    "ct2": Format(
        "ct2", "CTranslate2", "ct2:Ct2Exporter", "ct2", ("ctranslate2",), ("fp32", "int8"), ("text-to-text",)
    ),
    "onnx": Format(
        "onnx", "ONNX", "onnx:OnnxModelExporter", "onnx", ("onnx", "onnxscript", "onnxruntime"), ("fp32",), _BOTH
    ),
}


def choose_format(
    name: str, precision: str, kind: str, is_installed: Callable[[str], bool] | None = None
) -> tuple[Format, WeightType]:
    """The format, once it is known to take this kind of model in this precision here."""
    if name not in EXPORT_FORMATS:
        raise RecipeError(
            f"--to is '{name}'",
            f"a model is exported to {', '.join(EXPORT_FORMATS)}",
            "Choose one",
            hint=did_you_mean(name, EXPORT_FORMATS),
        )
    chosen = EXPORT_FORMATS[name]
    if kind not in chosen.kinds:
        raise ModelError(
            f"--to is {name}, and the model is a {kind}",
            f"{chosen.title} folders are written of {' and '.join(chosen.kinds)} models",
            "Use --to onnx or --to hf",
        )
    for given in chosen.precisions:
        if precision == given:
            break
    else:
        raise RecipeError(
            f"--precision is '{precision}'",
            f"{chosen.title} is written in {' or '.join(chosen.precisions)}",
            f"Use --precision {chosen.precisions[0]}"
            + ("" if "int8" in chosen.precisions else ", or --to ct2 for int8"),
        )
    installed = is_installed or (lambda module: importlib.util.find_spec(module) is not None)
    lacking = [module for module in chosen.packages if not installed(module)]
    if lacking:
        raise ModelError(
            f"--to is {name}, and {', '.join(lacking)} {'is' if len(lacking) == 1 else 'are'} not installed",
            f"{chosen.title} folders are written by {', '.join(chosen.packages)}",
            f"Run pip install 'seqfit[{chosen.extra}]'",
        )
    return chosen, given
