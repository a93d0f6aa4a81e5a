from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForSeq2SeqLM, T5Config, T5ForConditionalGeneration

import seqfit
from seqfit.errors import ModelError
from seqfit.model.families import family
from seqfit.model.families.family import family_of, list_families
from seqfit.model.families.refused import REFUSED
from seqfit.model.load import ModelConfig, load_model, load_tokenizer
from seqfit.model.loss import decoder_states
from seqfit.recipe.schema import ModelRecipe
from seqfit.reporting.overview import show_gaps, show_header
from seqfit.reporting.subject import read_report_subject
from seqfit.system import quiet_transformers
from seqfit.trimming.vocabulary import check_trimmable
from tests.tiny_families import SOURCES, TARGETS


@pytest.mark.parametrize("model_type", REFUSED)
def test_a_type_that_is_not_trained_is_refused_by_name_whatever_the_recipe_says(
    model_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Config(T5Config):  # type: ignore[misc]
        pass

    Config.model_type = model_type
    monkeypatch.setattr("seqfit.model.load._load_config", lambda model, **_: (Config(), {}))
    with pytest.raises(ModelError, match=rf"'m' is a {model_type} model: .*\. It is not trained\. Use .* model"):
        ModelConfig.load(ModelRecipe(path="m", untested=True))


class OwnConfig(T5Config):  # type: ignore[misc]
    model_type = "own-t5"


class OwnModel(T5ForConditionalGeneration):  # type: ignore[misc]
    config_class = OwnConfig


@pytest.fixture
def own_type(tiny_model: Callable[[str], Path], tmp_path: Path) -> Iterator[Path]:
    """A folder of a type that no test compares with transformers."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING

    AutoConfig.register("own-t5", OwnConfig)
    AutoModelForSeq2SeqLM.register(OwnConfig, OwnModel)
    folder = shutil.copytree(tiny_model("t5"), tmp_path / "own")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "own-t5", "architectures": ["OwnModel"]}))
    yield folder
    CONFIG_MAPPING._extra_content.pop("own-t5")
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING._extra_content.pop(OwnConfig)


def test_a_type_that_is_not_tested_needs_consent(own_type: Path) -> None:
    with pytest.raises(
        ModelError, match=r"is a own-t5 model, a type .* not tested with\. .*bart.*Set model\.untested=t"
    ):
        load_model(ModelRecipe(path=str(own_type)))
    assert type(load_model(ModelRecipe(path=str(own_type), untested=True))) is OwnModel
    assert family_of(T5Config()).explain_untested(T5Config()) is None


def test_with_consent_it_trains_padded_and_its_page_says_so(own_type: Path, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,b\n" + "".join(f"w{n} w{n + 1},w{n}\n" for n in range(3, 43)), "utf-8")
    recipe = {
        "model": {"path": str(own_type), "untested": True},
        "task": {"name": "qa", "source": "{a}", "target": "{b}"},
        "data": {"path": str(tmp_path / "rows.csv")},
        "train": {"steps": 1, "batch_examples": 8},
    }
    with quiet_transformers():
        run = seqfit.train(recipe, out=tmp_path / "run")
        assert len(seqfit.predict(run, ["w3 w4"])) == 1
    reported = {event["kind"]: event["message"] for event in run.events()}
    assert "own-t5 is a type that seqfit is not tested with" in reported["untested"]
    assert "own-t5" in reported["fallback"] or "packed" in reported["fallback"]
    subject = read_report_subject([tmp_path / "run"])
    assert "untested model type" in str(show_header(subject))
    assert "own-t5 is a type that seqfit is not tested with" in str(show_gaps(subject))


def test_the_page_of_a_tested_type_does_not_mention_it(run_of_t5: Any) -> None:
    assert "untested" not in str(show_header(read_report_subject([run_of_t5])))


@pytest.fixture
def run_of_t5(tiny_model: Callable[[str], Path], tmp_path: Path) -> Path:
    (tmp_path / "rows.csv").write_text("a,b\n" + "".join(f"w{n} w{n + 1},w{n}\n" for n in range(3, 43)), "utf-8")
    recipe = {
        "model": {"path": str(tiny_model("t5"))},
        "task": {"name": "qa", "source": "{a}", "target": "{b}"},
        "data": {"path": str(tmp_path / "rows.csv")},
        "train": {"steps": 1, "batch_examples": 8},
    }
    return seqfit.train(recipe, out=tmp_path / "run").path


@pytest.mark.parametrize("missing", ["source.spm", "target.spm"])
def test_the_error_names_the_missing_side_of_a_marian_folder(
    tiny_family: Callable[[str], Path], tmp_path: Path, missing: str
) -> None:
    folder = shutil.copytree(tiny_family("marian"), tmp_path / "marian")
    (folder / missing).unlink()
    with pytest.raises(
        ModelError, match=rf"does not load \(.*\)\. .*The folder lacks {missing}, the SentencePiece model"
    ):
        load_tokenizer(ModelRecipe(path=str(folder)))


@pytest.mark.parametrize(("name", "reason"), [("marian", "each side"), ("nllb", "codes"), ("mbart", "codes")])
def test_a_vocabulary_of_two_sides_or_with_codes_is_not_trimmed(
    tiny_family: Callable[[str], Path], name: str, reason: str
) -> None:
    tokenizer = load_tokenizer(ModelRecipe(path=str(tiny_family(name))))
    with pytest.raises(ModelError, match=rf"[Tt]he tokenizer is a .*{reason}\. .*Remove model\.trim_vocabulary"):
        check_trimmable(tokenizer)


def test_a_checkpoint_generates_in_its_language_with_plain_transformers(
    tiny_family: Callable[[str], Path], tmp_path: Path
) -> None:
    rows = "a,b\n" + "".join(f"{a},{b}\n" for a, b in zip(SOURCES[:30], TARGETS[:30], strict=True))
    (tmp_path / "rows.csv").write_text(rows, "utf-8")
    for name, codes, field in (
        ("nllb", ("eng_Latn", "fra_Latn"), "forced_bos_token_id"),
        ("mbart", ("en_XX", "ro_RO"), "decoder_start_token_id"),
    ):
        recipe = {
            "model": {"path": str(tiny_family(name))},
            "task": {"name": "translate", "source": "{a}", "target": "{b}"}
            | dict(zip(("source_language", "target_language"), codes, strict=True)),
            "data": {"path": str(tmp_path / "rows.csv")},
            "train": {"steps": 1, "batch_examples": 8},
        }
        with quiet_transformers():
            run = seqfit.train(recipe, out=tmp_path / name)
            model = AutoModelForSeq2SeqLM.from_pretrained(run.checkpoint)
            tokenizer: Any = load_tokenizer(ModelRecipe(path=str(run.checkpoint)))
        assert (tokenizer.src_lang, tokenizer.tgt_lang) == codes
        assert getattr(model.generation_config, field) == tokenizer.convert_tokens_to_ids(codes[1])
        taught = json.loads((run.checkpoint / "seqfit.json").read_text("utf-8"))["task"]
        assert (taught["source_language"], taught["target_language"]) == codes


def test_an_evaluation_may_ask_for_another_language(tiny_family: Callable[[str], Path], tmp_path: Path) -> None:
    rows = "a,b\n" + "".join(f"{a},{b}\n" for a, b in zip(SOURCES[:30], TARGETS[:30], strict=True))
    (tmp_path / "rows.csv").write_text(rows, "utf-8")
    recipe = {
        "model": {"path": str(tiny_family("mbart-50"))},
        "task": {"name": "translate", "source": "{a}", "target": "{b}"}
        | {"source_language": "en_XX", "target_language": "ro_RO"},
        "data": {"path": str(tmp_path / "rows.csv")},
        "train": {"steps": 1, "batch_examples": 8},
    }
    with quiet_transformers():
        run = seqfit.train(recipe, out=tmp_path / "run")
        romanian, french = (
            [row["prediction"] for row in seqfit.evaluate(run, overrides=overrides)["predictions"]]
            for overrides in ((), ("task.target_language=fr_XX",))
        )
    assert romanian != french


@pytest.mark.parametrize("name", ["bart", "marian"])
def test_a_head_follows_the_bias_that_a_move_replaces(name: str, tiny_model: Callable[[str], Path]) -> None:
    """`.to` another device or type makes new buffers, where it fills parameters in place."""
    model = load_model(ModelRecipe(path=str(tiny_model(name)), dropout=0.0)).eval()
    head = family_of(model).head(model)
    assert head is not None
    model.to(torch.float64)
    model.final_logits_bias.normal_()  # as a checkpoint that is loaded after the move
    assert head.bias_V is not None
    assert head.bias_V.dtype == torch.float64
    ids = torch.tensor([[5, 6, 7]])
    with torch.no_grad():
        states = decoder_states(model, ids, torch.ones_like(ids), ids)
        logits = model(input_ids=ids, attention_mask=torch.ones_like(ids), decoder_input_ids=ids).logits
        assert float((head.logits(states) - logits).abs().max()) < 1e-12


def test_every_file_of_the_folder_defines_a_family() -> None:
    files = {file.stem for file in Path(family.__file__).parent.glob("*.py")} - {"__init__", "family", "refused"}
    assert {type(found).__module__.split(".")[-1] for found in list_families()} == files
