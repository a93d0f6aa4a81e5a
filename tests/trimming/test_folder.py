from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from seqfit.errors import ModelError
from seqfit.recipe.schema import ModelRecipe
from seqfit.system import quiet_transformers
from seqfit.trimming.folder import check_free, load_whole, save_trimmed


def test_an_encoder_is_loaded_with_the_head_that_it_has(
    tiny_model: Callable[[str], Path], small_model: Callable[[str], Path]
) -> None:
    bare = load_whole(ModelRecipe(path=str(tiny_model("bert"))))
    assert type(bare).__name__ == "BertModel"
    assert type(load_whole(ModelRecipe(path=str(small_model("bert"))))).__name__ == "BertForSequenceClassification"


def test_a_folder_is_written_whole_and_leaves_no_draft(tiny_model: Callable[[str], Path], tmp_path: Path) -> None:
    folder = tiny_model("mt5")
    with quiet_transformers():
        tokenizer = AutoTokenizer.from_pretrained(folder)
    save_trimmed(tmp_path / "out", load_whole(ModelRecipe(path=str(folder))), tokenizer)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {
        path.name for path in (tmp_path / "out").iterdir()
    }


def test_what_is_there_is_not_overwritten(tmp_path: Path) -> None:
    check_free(tmp_path / "new")
    with pytest.raises(ModelError, match="exists already"):
        check_free(tmp_path)


def test_a_folder_without_a_model_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"be loaded.*Check the folder"):
        load_whole(ModelRecipe(path=str(tmp_path)))
