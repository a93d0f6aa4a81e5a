"""Code that comes with a model runs only where the user has said so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from seqfit import hub
from seqfit.errors import ModelError
from seqfit.model.load import load_model, load_tokenizer
from seqfit.recipe.schema import ModelRecipe


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model whose config and tokenizer name classes of a file next to them, which leaves a mark when it runs."""
    auto = {
        "AutoConfig": "own.OwnConfig",
        "AutoTokenizer": ["own.OwnTokenizer", None],
        "AutoModelForSeq2SeqLM": "own.M",
    }
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "own", "auto_map": auto}))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "OwnTokenizer", "auto_map": auto}))
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "own.py").write_text(f"open({str(tmp_path / 'mark')!r}, 'w')\n")
    return tmp_path


@pytest.mark.filterwarnings("ignore")
def test_it_does_not_run_by_itself(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("the user was asked"))
    for load in (load_tokenizer, load_model):
        with pytest.raises(ModelError):
            load(ModelRecipe(path=str(folder)))
    assert not (folder / "mark").exists()


def test_a_users_consent_holds_for_the_process_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "_state", set())
    assert not hub.is_remote_code_trusted()
    hub.trust_remote_code()
    assert hub.is_remote_code_trusted()
