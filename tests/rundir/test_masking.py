from __future__ import annotations

import pytest

from seqfit.rundir.masking import mask_data, mask_text


@pytest.mark.parametrize(
    ("given", "masked"),
    [
        ("seqfit train x --hf-token abc123 --out y", "seqfit train x --hf-token *** --out y"),
        ("WANDB_API_KEY=abc seqfit", "WANDB_API_KEY=*** seqfit"),
        ("https://me:pw@host/a?b=c", "https://***@host/a?b=c"),
        ("hf_AbCdEfGhIjKlMnOpQrSt is there", "*** is there"),
        ("s3 password: hunter2", "s3 password: ***"),
        ('{"token": "a b", "rows": 3}', '{"token": "***", "rows": 3}'),
        ("{'api_key':'abc'}", "{'api_key':'***'}"),
        ("Authorization: Bearer abc.def-123", "Authorization: Bearer ***"),
    ],
)
def test_secrets_in_texts_are_masked(given: str, masked: str) -> None:
    assert mask_text(given) == masked


@pytest.mark.parametrize(
    "text",
    [
        "5 rows were truncated at 512 tokens",
        "batch_tokens=4096 max_source_tokens: 512",
        "a token was lost",
        "me@host.org",
    ],
)
def test_texts_about_tokens_stay_as_they_are(text: str) -> None:
    assert mask_text(text) == text


def test_values_are_masked_by_their_names() -> None:
    given = {"data.token": "abc", "data.api_key": "abc", "train.batch_tokens": 5, "secret": 7, "tokenizer": "t5"}
    masked = {"data.token": "***", "data.api_key": "***", "train.batch_tokens": 5, "secret": "***", "tokenizer": "t5"}
    assert mask_data(given) == masked


def test_the_data_of_an_event_are_masked_at_any_depth() -> None:
    given = {"step": 3, "asked": [{"token": 5, "address": "https://me:pw@host"}], "rows": (1, 2)}
    assert mask_data(given) == {"step": 3, "asked": [{"token": "***", "address": "https://***@host"}], "rows": [1, 2]}
