"""ONNX: graphs that ONNX Runtime runs in fp32 without torch, by transformers' own exporter.

A text-to-text model becomes three graphs, with the file and tensor names that optimum and transformers.js expect; a
classifier becomes `model.onnx`.

    encoder_model             input_ids, attention_mask               ->  last_hidden_state
    decoder_model             input_ids, encoder_hidden_states,       ->  logits, present.0.decoder.key, ...,
                              encoder_attention_mask                      present.0.encoder.key, ...
    decoder_with_past_model   input_ids (one token), past_key_values.0.decoder.key, ..., encoder_attention_mask
                                                                      ->  logits, present.0.decoder.key, ...

`export_for_generation` would leave the encoder out and freeze the cache at the one token that it traces with. So the
graphs are traced one by one, the last with a cache of three tokens: then its length is a symbol.

Decoder and encoder use the same matrices. All graphs refer to one file of weights, in which each is stored once.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir
import onnxruntime
import torch
from transformers import DynamicCache, EncoderDecoderCache, PreTrainedModel
from transformers.exporters import OnnxConfig, OnnxExporter
from transformers.exporters.exporter_dynamo import get_auto_dynamic_shapes, register_cache_pytrees_for_model
from transformers.modeling_outputs import BaseModelOutput

from seqfit.errors import ModelError
from seqfit.export.decoders import DecodingRule, ExportedDecoder, Logits, pad_arrays
from seqfit.export.formats import WeightType
from seqfit.export.huggingface import write_tokenizer
from seqfit.export.rows import CheckedRow
from seqfit.model import Checkpoint
from seqfit.system import quiet_transformers

ENCODER_GRAPH, FIRST_STEP, NEXT_STEPS, CLASSIFIER_GRAPH = (
    "encoder_model",
    "decoder_model",
    "decoder_with_past_model",
    "model",
)
WEIGHTS_FILE = "weights.onnx_data"
_INLINE_BYTES = 1024  # smaller tensors stay in their graph
_ALIGNMENT = 64
_CACHE = re.compile(r"(?:(?:in|out)put\.)?past_key_values\.(self|cross)_attention_cache\.layers\.(\d+)\.(key|value)s")
_SIDES = {"self": "decoder", "cross": "encoder"}
_NAMES = {"encoder_outputs.last_hidden_state": "encoder_hidden_states", "decoder_input_ids": "input_ids"}
_Arrays = dict[str, np.ndarray[Any, Any]]


class OnnxModelExporter:
    def write(self, checkpoint: Checkpoint, folder: Path, _precision: WeightType) -> None:
        folder.mkdir(parents=True)
        model = checkpoint.model.eval()
        try:
            with _quiet(), torch.no_grad():
                graphs = _trace_classifier(model) if checkpoint.metadata.kind == "classifier" else _trace(model)
        except Exception as error:  # torch.export and the translation raise whatever they meet
            text = " ".join((str(error.__cause__ or error) or type(error).__name__).split())
            raise ModelError(
                f"--to is onnx, and the model is a {model.config.model_type} model ({text[:200]})",
                "transformers' ONNX exporter must be able to trace it",
                "Use --to hf or --to ct2",
            ) from error
        save_graphs(graphs, folder)
        write_tokenizer(checkpoint, folder)
        model.config.save_pretrained(folder)
        if checkpoint.metadata.kind != "classifier":
            model.generation_config.save_pretrained(folder)
        checkpoint.metadata.write(folder)

    def load(self, folder: Path, rule: DecodingRule) -> ExportedDecoder:
        return OnnxDecoder(folder, rule)


def _trace(model: PreTrainedModel) -> dict[str, onnx_ir.Model]:
    """Sizes of two rows and more than one token, because torch takes a size of one to be fixed."""
    ids_BS = torch.tensor([[3, 4, 5, 6, 7], [7, 6, 5, 4, 3]])
    mask_BS = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 1, 0]])
    tokens_BT = torch.tensor([[3, 4, 5], [5, 4, 3]])
    encoder = model.get_encoder()
    states = BaseModelOutput(encoder(input_ids=ids_BS, attention_mask=mask_BS).last_hidden_state)
    cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
    given = {"encoder_outputs": states, "attention_mask": mask_BS, "use_cache": True}
    model(**given, decoder_input_ids=tokens_BT, past_key_values=cache)
    new = {
        "decoder_input_ids": tokens_BT[:, :2],
        "past_key_values": EncoderDecoderCache(DynamicCache(), DynamicCache()),
    }
    next_ = {"decoder_input_ids": tokens_BT[:, :1], "past_key_values": cache}
    first, following = _export(model, given | new), _export(model, given | next_)
    for graph in (first, following):
        _rename(graph)
    _keep_outputs(first, r"logits|present\..*")
    _keep_outputs(following, r"logits|present\.\d+\.decoder\..*")
    return {
        ENCODER_GRAPH: _export(encoder, {"input_ids": ids_BS, "attention_mask": mask_BS}),
        FIRST_STEP: first,
        NEXT_STEPS: following,
    }


def _trace_classifier(model: PreTrainedModel) -> dict[str, onnx_ir.Model]:
    ids_BS = torch.tensor([[3, 4, 5, 6, 7], [7, 6, 5, 4, 3]])
    mask_BS = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 1, 0]])
    graph = _export(model, {"input_ids": ids_BS, "attention_mask": mask_BS})
    _keep_outputs(graph, "logits")
    return {CLASSIFIER_GRAPH: graph}


def _export(model: torch.nn.Module, inputs: dict[str, Any]) -> onnx_ir.Model:
    """Rows and positions vary; heads and widths do not, which traces several times faster than leaving it open."""
    register_cache_pytrees_for_model(model)
    shapes = _drop_fixed(get_auto_dynamic_shapes({name: inputs[name] for name in inputs if name != "use_cache"}))
    config = OnnxConfig(dynamic=True, dynamic_shapes=shapes)
    graph: onnx_ir.Model = OnnxExporter().export(model, inputs, config).model
    onnx_ir.passes.common.ClearMetadataAndDocStringPass()(graph)  # stack traces with the paths of this machine
    return graph


def _drop_fixed(shapes: Any) -> Any:
    if isinstance(shapes, list):
        return [_drop_fixed(inner) for inner in shapes]
    if isinstance(shapes, dict) and all(isinstance(key, int) for key in shapes):
        kept = (0, 2) if len(shapes) == 4 else (0, 1)  # a cache is [B, H, T, K], states [B, S, D]
        return {dimension: shapes[dimension] for dimension in kept if dimension in shapes}
    return {name: _drop_fixed(inner) for name, inner in shapes.items()} if isinstance(shapes, dict) else shapes


def _rename(model: onnx_ir.Model) -> None:
    for value in model.graph.inputs:
        value.name = _NAMES.get(value.name, _name_cache(value.name, "past_key_values"))
        value.name = "encoder_attention_mask" if value.name == "attention_mask" else value.name
    for value in model.graph.outputs:
        value.name = _name_cache(value.name, "present")


def _name_cache(name: str, part: str) -> str:
    found = _CACHE.fullmatch(name)
    return f"{part}.{found[2]}.{_SIDES[found[1]]}.{found[3]}" if found else name


def _keep_outputs(model: onnx_ir.Model, pattern: str) -> None:
    """And the inputs that they need."""
    graph = model.graph
    graph.outputs[:] = [value for value in graph.outputs if re.fullmatch(pattern, value.name)]
    onnx_ir.passes.common.RemoveUnusedNodesPass()(model)
    graph.inputs[:] = [value for value in graph.inputs if value.uses() or value.is_graph_output()]


def save_graphs(graphs: Mapping[str, onnx_ir.Model], folder: Path) -> None:
    """The same bytes in several graphs are written once."""
    places: dict[str, int] = {}
    with open(folder / WEIGHTS_FILE, "wb") as stream:
        for model in graphs.values():
            for value in model.graph.initializers.values():
                tensor = value.const_value
                if tensor is None or tensor.nbytes < _INLINE_BYTES:
                    continue
                content = tensor.tobytes()
                digest = hashlib.sha256(content).hexdigest()
                if digest not in places:
                    stream.write(bytes(-stream.tell() % _ALIGNMENT))
                    places[digest] = stream.tell()
                    stream.write(content)
                value.const_value = onnx_ir.ExternalTensor(
                    WEIGHTS_FILE,
                    places[digest],
                    len(content),
                    tensor.dtype,
                    shape=tensor.shape,
                    name=value.name,
                    base_dir=folder,
                )
    for name, model in graphs.items():
        onnx_ir.save(model, folder / f"{name}.onnx")


class OnnxDecoder:
    """The graphs in ONNX Runtime, on the CPU."""

    def __init__(self, folder: Path, rule: DecodingRule) -> None:
        self._rule = rule
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        self._sessions = {
            file.stem: onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
            for file in sorted(folder.glob("*.onnx"))
        }

    def generate(self, rows: Sequence[CheckedRow], tokens: int, *, exactly: bool = False) -> list[list[int]]:
        rule = self._rule
        banned = [*rule.banned_ids, *(rule.end_ids if exactly else ())]
        forced = np.array([-1 if row.first_id is None else row.first_id for row in rows])
        answers: list[list[int]] = [[] for _ in rows]
        has_ended = np.zeros(len(rows), dtype=bool)
        steps = self._steps(rows)
        logits_BV = next(steps)
        for step in range(tokens):
            logits_BV[:, banned] = -np.inf
            chosen_B = logits_BV.argmax(-1)
            if step == 0:
                chosen_B = np.where(forced >= 0, forced, chosen_B)
            for number, token in enumerate(chosen_B.tolist()):
                if not has_ended[number]:
                    answers[number].append(token)
            has_ended |= np.isin(chosen_B, rule.end_ids)
            if has_ended.all() or step + 1 == tokens:
                break
            logits_BV = steps.send(chosen_B)
        return answers

    def score(self, row: CheckedRow, answer: Sequence[int]) -> list[float]:
        """Step by step, as an answer is generated: so the cache is part of what is compared."""
        steps, scores = self._steps([row]), []
        logits_1V = next(steps)
        for number, token in enumerate(answer):
            scores.append(float(torch.from_numpy(logits_1V[0]).log_softmax(-1)[token]))
            if number + 1 < len(answer):
                logits_1V = steps.send(np.array([token]))
        return scores

    def classify(self, rows: Sequence[CheckedRow]) -> Logits:
        logits: Logits = _run(self._sessions[CLASSIFIER_GRAPH], pad_arrays(rows, self._rule.pad_id))["logits"]
        return logits

    def _steps(self, rows: Sequence[CheckedRow]) -> Any:
        """A generator: it yields the logits [B, V] of the next token, and is sent the tokens that were chosen."""
        source = pad_arrays(rows, self._rule.pad_id)
        states = _run(self._sessions[ENCODER_GRAPH], source)["last_hidden_state"]
        given = {"encoder_hidden_states": states, "encoder_attention_mask": source["attention_mask"]}
        tokens_B = np.array([row.start_id for row in rows])
        session = self._sessions[FIRST_STEP]
        while True:
            found = _run(session, given | {"input_ids": tokens_B[:, None].astype(np.int64)})
            given |= {
                name.replace("present", "past_key_values", 1): value
                for name, value in found.items()
                if name.startswith("present.")
            }
            tokens_B = yield found["logits"][:, -1]
            session = self._sessions[NEXT_STEPS]


def _run(session: onnxruntime.InferenceSession, given: _Arrays) -> _Arrays:
    inputs = {value.name: given[value.name] for value in session.get_inputs()}
    outputs = [value.name for value in session.get_outputs()]
    return dict(zip(outputs, session.run(outputs, inputs), strict=True))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """torch's exporter prints its steps, and its packages warn of each other's versions."""
    disabled = logging.root.manager.disable
    with quiet_transformers(), warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(disabled)
