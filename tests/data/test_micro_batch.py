from __future__ import annotations

import numpy as np
import pytest
import torch

from seqfit.data.loader import MicroBatch, Padding, TokenIds

IGNORED = MicroBatch.IGNORED_LABEL


def ids(*rows: list[int]) -> list[TokenIds]:
    return [np.array(row, dtype=np.int64) for row in rows]


def test_the_docstring_example_holds() -> None:
    batch = MicroBatch.collate(ids([5, 6, 1], [7, 1]), ids([8, 1], [9, 3, 1]), Padding(0, 0), shape=(3, 3))
    assert batch.source_ids.tolist() == [[5, 6, 1], [7, 1, 0]]
    assert batch.source_mask.tolist() == [[1, 1, 1], [1, 1, 0]]
    assert batch.decoder_ids is not None
    assert batch.decoder_ids.tolist() == [[0, 8, 1], [0, 9, 3]]
    assert batch.labels.tolist() == [[8, 1, IGNORED], [9, 3, 1]]
    assert (batch.examples, batch.source_tokens, batch.target_tokens, batch.padded_tokens) == (2, 5, 5, 2)


def test_a_pad_id_that_is_also_a_real_token_is_attended_to_and_learnt() -> None:
    batch = MicroBatch.collate(ids([0, 5, 0], [0]), ids([0, 7], [0]), Padding(0, 2), shape=(4, 3))
    assert batch.source_mask.tolist() == [[1, 1, 1, 0], [1, 0, 0, 0]]
    assert batch.labels.tolist() == [
        [0, 7, IGNORED],
        [0, IGNORED, IGNORED],
    ]
    assert batch.decoder_ids is not None
    assert batch.decoder_ids.tolist() == [[2, 0, 7], [2, 0, 0]]
    assert (batch.source_tokens, batch.target_tokens, batch.padded_tokens) == (4, 3, 14 - 7)


def test_decoding_starts_with_the_models_own_start_not_with_the_pad_id() -> None:
    batch = MicroBatch.collate(ids([5]), ids([8, 1]), Padding(pad_id=3, decoder_start_id=4), shape=(2, 3))
    assert batch.decoder_ids is not None
    assert batch.decoder_ids.tolist() == [[4, 8, 1]]
    assert batch.source_ids.tolist() == [[5, 3]]


def test_the_decoder_sees_what_transformers_would_make_of_the_labels() -> None:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(vocab_size=20, d_model=8, d_kv=4, num_heads=2, d_ff=8, num_layers=1, decoder_start_token_id=0)
    batch = MicroBatch.collate(ids([5], [6]), ids([8, 3, 1], [1]), Padding(0, 0), shape=(1, 4))
    assert batch.decoder_ids is not None
    shifted = T5ForConditionalGeneration(config).prepare_decoder_input_ids_from_labels(batch.labels)
    assert torch.equal(batch.decoder_ids, shifted)


def test_all_ids_are_64_bit_for_embeddings_and_losses() -> None:
    short = [np.array([5, 1], dtype=np.uint16)]
    batch = MicroBatch.collate(short, short, Padding(0, 0), shape=(2, 2))
    assert {batch.source_ids.dtype, batch.source_mask.dtype, batch.labels.dtype} == {torch.int64}


def test_a_classifiers_batch_has_one_label_per_row_and_no_decoder() -> None:
    batch = MicroBatch.collate(ids([5, 6], [7]), [], Padding(9), labels=[2, 0], shape=(3, 0))
    assert batch.source_ids.tolist() == [[5, 6, 9], [7, 9, 9]]
    assert batch.source_mask.tolist() == [[1, 1, 0], [1, 0, 0]]
    assert batch.decoder_ids is None
    assert batch.labels.tolist() == [2, 0]
    assert (batch.examples, batch.source_tokens, batch.target_tokens, batch.padded_tokens) == (2, 3, 0, 3)


def test_a_packed_batch_is_one_row_of_each_side_and_each_target_begins_with_the_start_token() -> None:
    batch = MicroBatch.collate(ids([5, 6, 1], [7, 1]), ids([8, 1], [9, 3, 1]), Padding(0, 4))
    assert batch.source_ids.tolist() == [[5, 6, 1, 7, 1]]
    assert batch.decoder_ids is not None
    assert batch.decoder_ids.tolist() == [[4, 8, 4, 9, 3]]
    assert batch.labels.tolist() == [[8, 1, 9, 3, 1]]
    assert (batch.source_lengths, batch.target_lengths, batch.source_mask) == ((3, 2), (2, 3), None)
    assert (batch.examples, batch.source_tokens, batch.target_tokens, batch.padded_tokens) == (2, 5, 5, 0)


def test_a_packed_classifiers_batch_has_one_label_per_segment() -> None:
    batch = MicroBatch.collate(ids([5, 6], [7]), [], Padding(0), labels=[2, 0])
    assert batch.source_ids.tolist() == [[5, 6, 7]]
    assert (batch.labels.tolist(), batch.source_lengths, batch.target_lengths) == ([2, 0], (2, 1), None)
    assert (batch.decoder_ids, batch.examples, batch.target_tokens, batch.padded_tokens) == (None, 2, 0, 0)


def test_a_sequence_longer_than_the_shape_is_an_error_never_truncated() -> None:
    with pytest.raises(ValueError, match="could not broadcast"):
        MicroBatch.collate(ids([5, 6, 1]), ids([1]), Padding(0, 0), shape=(2, 1))


def test_on_the_cpu_nothing_is_copied() -> None:
    batch = MicroBatch.collate(ids([5]), [], Padding(0), labels=[0], shape=(1, 0))
    assert batch.to(torch.device("cpu")) is batch
    moved = batch.to(torch.device("meta"))
    assert (moved.source_ids.device.type, moved.labels.device.type, moved.decoder_ids) == ("meta", "meta", None)
