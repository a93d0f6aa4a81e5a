"""Calls that make or change models and tokenizers, and calls of tokenizers.

T5ForConditionalGeneration.from_pretrained("t5-base")     a model, by name
get_peft_model(model, LoraConfig(r=8))                    the same model, with adapters
tokenizer(texts, max_length=512, padding="max_length")    the length of the source, or of the target
"""

from __future__ import annotations

import ast
import re
from typing import Any

from seqfit.conversion.found import OTHER_MODELS, TEXT_TO_TEXT, ScriptPart
from seqfit.conversion.values import Class, ColumnText, Function, Imported, ScriptCall, Thing, Unknown, is_constant
from seqfit.yaml_text import write_flow

_TOKENIZER_NAMES = re.compile(r"tokeni[sz]er|\btok\b", re.IGNORECASE)
_TOKENIZERS = re.compile(r"(Tokenizer(Fast)?|Processor)$")
_SAME_MODEL = {  # what gives the same model again
    *("to", "cuda", "cpu", "half", "float", "train", "eval", "compile", "bfloat16", "to_bettertransformer"),
    *("prepare_model_for_kbit_training", "prepare_model_for_int8_training", "DataParallel", "merge_and_unload"),
}


class ModelCalls(ScriptPart):
    def read(self, call: ScriptCall) -> Any:
        owner = call.owner
        if call.name in ("from_pretrained", "from_config"):
            return self._load(call)
        if isinstance(owner, Imported | Unknown) or owner is None:
            is_class = owner is None and call.name.endswith(TEXT_TO_TEXT)
            if is_class and call.args and isinstance(call.args[0], Thing):
                return self._add_model(call.name, call.args[0].fields.get("name"), call, is_new=True)
            if call.name == "get_peft_model":
                model, config = call.get("model", 0), call.get("peft_config", 1)
                if isinstance(model, Thing) and isinstance(config, Thing) and config.kind == "lora":
                    model.fields["lora"] = config
                else:
                    why = "adapters of this kind, or of a config that is not in the script, are not carried over"
                    self.reading.leave(ast.unparse(call.node), call.line, f"{why}; model.lora has LoRA's")
                return model
            if call.name == "LoraConfig":
                return Thing("lora", dict(call.kwargs), call.line)
            if call.name == "BitsAndBytesConfig":
                return Thing("quantization", dict(call.kwargs), call.line)
            if call.name in _SAME_MODEL and call.args and isinstance(call.args[0], Thing):
                return call.args[0]
        if isinstance(owner, Thing) and owner.kind in ("model", "part"):
            return self._call_model(owner, call)
        is_tokenizer = isinstance(owner, Thing) and owner.kind == "tokenizer"
        if is_tokenizer and call.name in ("add_tokens", "add_special_tokens"):
            self.reading.leave(f"{call.path}()", call.line, "tokens are not added to a vocabulary here")
            return 1
        methods = ("encode_plus", "batch_encode_plus", "prepare_seq2seq_batch", "encode", "__call__")
        named = call.path.rpartition(".")[0] if call.name in methods else call.path
        function = call.function
        is_call = isinstance(function, Thing) and function.kind == "tokenizer"
        if (
            is_call
            or (call.name in methods and is_tokenizer)
            or (
                _TOKENIZER_NAMES.search(named.rpartition(".")[2])
                and not isinstance(function, Function | Class | Imported)
            )
        ):
            return self._encode(call)
        return None

    def _load(self, call: ScriptCall) -> Any:
        owner = call.owner
        name = owner.name if isinstance(owner, Imported) else ""
        if isinstance(owner, Class) and owner.foreign_base is not None:
            name = owner.foreign_base.name
        place = call.get("pretrained_model_name_or_path", 0)
        if name.endswith("Config") and name != "GenerationConfig":
            return Thing("config", {"name": place, **call.kwargs}, call.line)
        if _TOKENIZERS.search(name):
            found = Thing("tokenizer", {"name": place, **call.kwargs}, call.line)
            self.found.tokenizers.append(found)
            return found
        if isinstance(place, Thing) and place.kind == "config":
            return self._add_model(name, place.fields.get("name"), call, is_new=True)
        if isinstance(place, Thing):  # PeftModel.from_pretrained(model, ...)
            return place
        is_model = "Model" in name or name.endswith(TEXT_TO_TEXT) or "ForSequenceClassification" in name
        return self._add_model(name, place, call) if is_model or OTHER_MODELS.search(name) else None

    def _add_model(self, name: str, place: Any, call: ScriptCall, *, is_new: bool = False) -> Thing:
        found = Thing("model", {"name": place, "class": name, "options": call.kwargs, "is_new": is_new}, call.line)
        found.fields["settings"] = []
        self.found.models.append(found)
        return found

    def _call_model(self, owner: Thing, call: ScriptCall) -> Any:
        settings = owner.fields.setdefault("settings", [])
        said = f"{call.path}()"
        if call.name == "gradient_checkpointing_enable":
            settings.append(("gradient_checkpointing", True, call.line, said))
        elif call.name == "parallelize":
            settings.append(("parallelize", True, call.line, said))
        elif call.name == "generate":
            given = [f"{name}={write_flow(call.kwargs[name])}" for name in ("num_beams", "max_length", "max_new_tokens")
                     if is_constant(call.kwargs.get(name)) and call.kwargs.get(name) is not None]  # fmt: skip
            if given and call.kwargs.get("num_beams", 1) != 1:
                why = "a prediction by the script itself; eval.beams and eval.max_new_tokens are for evaluations"
                self.reading.leave(f"generate({', '.join(given)})", call.line, why)
            return Unknown("it is generated when it runs")
        elif call.name == "get_input_embeddings":
            return Thing("part", {"name": "shared"})
        elif call.name in ("get_encoder", "base_model"):
            return Thing("part", {"name": call.name.removeprefix("get_")})
        elif call.name in ("parameters", "named_parameters", "named_modules", "children"):
            return Thing("part", {"name": owner.fields.get("name") if owner.kind == "part" else "all"})
        elif (
            call.name not in _SAME_MODEL
            and owner.kind == "model"
            and call.name
            not in (
                *(
                    "resize_token_embeddings",
                    "print_trainable_parameters",
                    "save_pretrained",
                    "push_to_hub",
                    "num_parameters",
                ),
                *(
                    "enable_input_require_grads",
                    "state_dict",
                    "load_state_dict",
                    "zero_grad",
                    "resize_position_embeddings",
                ),
            )
        ):
            return Unknown(f"{said} is known only when it runs")
        return owner

    def _encode(self, call: ScriptCall) -> Thing:
        text, target = call.get("text", 0), call.get("text_target")
        found: dict[str, Any] = {
            "text": text,
            "text_target": target,
            "options": call.kwargs,
            "line": call.line,
            "is_target": self.found.in_target > 0 or (text is None and target is not None),
            "in_function": self.interpreter.depth > 0,
            "owner": call.owner if isinstance(call.owner, Thing) and call.owner.kind == "tokenizer" else call.function,
        }
        if text is not None and len(call.args) > 1 and isinstance(call.args[1], ColumnText | str) and target is None:
            found["pair"] = call.args[1]
        self.found.encoded.append(found)
        return Thing("encoded", {"call": found}, call.line)
