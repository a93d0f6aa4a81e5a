"""Which model a script trains, from which weights, with which adapters, tokenizer and optimizer -> settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seqfit.conversion.found import OTHER_MODELS, TEXT_TO_TEXT, ScriptPart
from seqfit.conversion.values import Function, Thing, is_constant

_LORA = {
    "r": "lora_r",
    "lora_alpha": "lora_alpha",
    "lora_dropout": "lora_dropout",
    "target_modules": "lora_target_modules",
}
_MODEL_OPTIONS = {
    *("cache_dir", "torch_dtype", "dtype", "attn_implementation", "token", "use_auth_token", "device_map"),
    *("low_cpu_mem_usage", "ignore_mismatched_sizes", "trust_remote_code", "load_in_8bit", "load_in_4bit"),
}
_SAME_MEANING = {  # options of from_pretrained that change nothing, or are read elsewhere
    *("local_files_only", "num_labels", "id2label", "label2id", "quantization_config", "problem_type", "config"),
    *("return_dict", "output_attentions", "output_hidden_states", "from_tf", "from_flax", "force_download"),
    *("resume_download", "use_safetensors", "pretrained_model_name_or_path", "use_cache", "class"),
}


class TrainedModel(ScriptPart):
    def finish(self, given: Mapping[str, Any]) -> None:
        """`given`: the arguments of the Trainer."""
        model = self._choose_model(given)
        if model is not None:
            self._finish_model(model)
        self._finish_tokenizer()
        self._finish_optimizer(given)

    def _choose_model(self, given: Mapping[str, Any]) -> Thing | None:
        model = given.get("model", given.get("model_init"))
        if isinstance(model, Function):
            model = self.interpreter.call_function(model, [], {})
        if isinstance(model, Thing) and model.kind == "object":
            inside = [one for one in model.fields.values() if isinstance(one, Thing) and one.kind == "model"]
            model = inside[0] if inside else None
        if isinstance(model, Thing) and model.kind == "model":
            return model
        return next(iter(self.found.models), None)

    def _finish_model(self, model: Thing) -> None:
        reading, fields = self.reading, model.fields
        name = fields["class"]
        if OTHER_MODELS.search(name) and not name.endswith("ForConditionalGeneration"):
            reading.kind = name
            return
        reading.kind = (
            "classifier"
            if "ForSequenceClassification" in name
            else "text-to-text"
            if name.endswith(TEXT_TO_TEXT)
            else ""
        )
        self.take("model_name_or_path", fields["name"], model.line, f"{name}.from_pretrained()")
        if fields["is_new"]:
            self.take("model.weights", "random", model.line, f"{name}(config)")
        options: dict[str, Any] = dict(fields["options"])
        config = options.get("config")
        if isinstance(config, Thing):
            options = {**config.fields, **options}
        options.pop("name", None)
        quantization = options.get("quantization_config")
        if isinstance(quantization, Thing):
            options |= {
                key: quantization.fields[key] for key in ("load_in_4bit", "load_in_8bit") if key in quantization.fields
            }
        for bits in (4, 8):
            if options.get(f"load_in_{bits}bit") is True:
                reading.quantized_bits = bits
        reading.naive_pipeline = options.get("device_map") in ("auto", "balanced", "balanced_low_0", "sequential")
        for key, value in options.items():
            if key in _MODEL_OPTIONS:
                self.take(key, value, model.line, f"from_pretrained({key})")
            elif key in ("dropout", "dropout_rate", "hidden_dropout_prob"):
                self.take("model.dropout", value, model.line, f"from_pretrained({key})")
            elif key not in _SAME_MEANING:
                reading.leave(
                    f"from_pretrained({key})", model.line, "an option of the model's own that a recipe does not have"
                )
        self._finish_labels(options)
        for key, value, line, said in fields["settings"]:
            reading.naive_pipeline = reading.naive_pipeline or key == "parallelize"
            self.take("model.dropout" if key == "dropout" else key, value, line, said)
        lora = fields.get("lora")
        if isinstance(lora, Thing):
            self._finish_lora(lora)

    def _finish_labels(self, options: Mapping[str, Any]) -> None:
        names, count, problem = options.get("id2label"), options.get("num_labels"), options.get("problem_type")
        if isinstance(names, dict) and is_constant(names):
            self.reading.labels = {str(label): [str(index)] for index, label in names.items()}
        if isinstance(count, int):
            self.reading.label_count = count
        if problem == "multi_label_classification":
            self.reading.task = "multilabel"
        elif problem == "regression" or (count == 1 and self.reading.kind == "classifier"):
            self.reading.task = "regression"

    def _finish_lora(self, lora: Thing) -> None:
        # peft's own defaults: rank 8, alpha 8
        for name, ours in _LORA.items():
            value = lora.fields.get(name, 8 if name in ("r", "lora_alpha") else None)
            said = f"LoraConfig({name})" if name in lora.fields else f"LoraConfig: peft's default {name}={value}"
            self.take(ours, value, lora.line, said)
        known = {*_LORA, "task_type", "inference_mode", "bias", "base_model_name_or_path", "revision"}
        for name in sorted(set(lora.fields) - known):
            self.reading.leave(f"LoraConfig({name})", lora.line, "an option of peft that a recipe does not have")
        if lora.fields.get("bias", "none") != "none":
            self.reading.leave("LoraConfig(bias)", lora.line, "biases are frozen with the other weights here")

    def _finish_tokenizer(self) -> None:
        for one in self.found.tokenizers[:1]:
            model = self.reading.settings.get("model_name_or_path")
            if isinstance(one.fields["name"], str) and (model is None or model.value != one.fields["name"]):
                self.take("tokenizer_name", one.fields["name"], one.line, "tokenizer.from_pretrained()")
        for one in self.found.tokenizers:
            for key, ours in (("src_lang", "task.source_language"), ("tgt_lang", "task.target_language")):
                if key in one.fields and not self.reading.has(ours):
                    self.take(ours, one.fields[key], one.line, f"tokenizer.{key}")

    def _finish_optimizer(self, given: Mapping[str, Any]) -> None:
        pair = given.get("optimizers")
        things = [one for one in pair if isinstance(one, Thing)] if isinstance(pair, list) else []
        for one in things:
            if one.kind == "optimizer":
                self._finish_rule(one)
            elif one.kind == "schedule" and "name" in one.fields:
                self.take("lr_scheduler_type", one.fields["name"], one.line, "optimizers=")
                self.take("warmup_steps", one.fields["warmup"], one.line, "optimizers=")
        if pair is not None and not things:
            self.reading.leave("optimizers=", None, "which optimizer it is, is known only when it runs")

    def _finish_rule(self, one: Thing) -> None:
        fields, is_adamw = one.fields, one.fields["name"] == "AdamW"
        self.take("optim", "adamw_torch" if is_adamw else "adafactor", one.line, f"{fields['name']}()")
        rate = fields.get("lr", 1e-3 if is_adamw else None)
        self.take("learning_rate", rate, one.line, f"{fields['name']}(lr)")
        self.take(
            "weight_decay",
            fields.get("weight_decay", 0.01 if is_adamw else 0.0),
            one.line,
            f"{fields['name']}(weight_decay)",
        )
        betas = fields.get("betas")
        if isinstance(betas, list) and len(betas) == 2:
            self.take("adam_beta1", betas[0], one.line, "AdamW(betas)")
            self.take("adam_beta2", betas[1], one.line, "AdamW(betas)")
        if is_adamw and "eps" in fields:
            self.take("adam_epsilon", fields["eps"], one.line, "AdamW(eps)")
        if not is_adamw:
            self.take("relative_step", fields.get("relative_step", True), one.line, "Adafactor(relative_step)")
            usual = {
                **{"clip_threshold": (1.0,), "decay_rate": (-0.8,), "beta1": (None,), "warmup_init": (False,)},
                "scale_parameter": (fields.get("relative_step", True),),
            }
            for name in sorted(set(fields) & {*usual, "eps"}):
                if fields[name] not in usual.get(name, ()) or type(fields[name]) is not type(usual[name][0]):
                    why = "Adafactor has relative_step here, and otherwise the constants of its paper"
                    self.reading.leave(f"Adafactor({name})", one.line, why)
