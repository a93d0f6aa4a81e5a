from __future__ import annotations

from pathlib import Path

import pytest

from seqfit.errors import ModelError
from seqfit.export import check_name, plan_push, upload


def test_a_dry_run_lists_what_would_be_sent(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("card")
    (tmp_path / "model.safetensors").write_bytes(b"12345678")
    plan = plan_push(tmp_path, "ada/qa")
    assert (plan.files, plan.total_bytes, plan.is_private) == ([("README.md", 4), ("model.safetensors", 8)], 12, True)


@pytest.mark.parametrize("name", ["qa", "ada/qa/1", "ada/q a", "ada/..", "../qa", "ada/a--b", ""])
def test_a_name_that_the_hub_would_refuse_is_refused_before_the_export(name: str) -> None:
    with pytest.raises(ModelError, match="OWNER/NAME"):
        check_name(name)


def test_a_push_that_fails_names_no_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import HfApi

    token = "hf_AbCdEfGhIjKlMnOpQrStUv"

    def refuse(*_given: object, **_named: object) -> None:
        raise ValueError(f"Invalid token {token}")

    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr("seqfit.export.push.reach_hub", lambda: None)
    monkeypatch.setattr(HfApi, "create_repo", refuse)
    with pytest.raises(ModelError) as caught:
        upload(tmp_path, plan_push(tmp_path, "ada/qa"))
    assert token not in str(caught.value)
    assert "'ada/qa' was not uploaded" in str(caught.value)


def test_a_push_uploads_the_folder_into_a_private_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import HfApi

    calls: list[tuple[str, dict[str, object]]] = []
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr("seqfit.export.push.reach_hub", lambda: None)
    monkeypatch.setattr(HfApi, "create_repo", lambda _api, name, **named: calls.append((name, named)))
    monkeypatch.setattr(HfApi, "upload_folder", lambda _api, **named: calls.append((named["repo_id"], named)))
    assert upload(tmp_path, plan_push(tmp_path, "ada/qa")).endswith("/ada/qa")
    assert calls[0] == ("ada/qa", {"private": True, "exist_ok": True})
    assert calls[1][1]["folder_path"] == tmp_path


def test_offline_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelError, match="HF_HUB_OFFLINE is set"):
        upload(tmp_path, plan_push(tmp_path, "ada/qa"))
