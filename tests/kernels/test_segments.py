from __future__ import annotations

import torch

from seqfit.kernels import layout as segments
from seqfit.kernels.layout import Layout, Pairing, Segments

CPU = torch.device("cpu")


def test_positions_start_again_in_each_segment() -> None:
    assert Segments((3, 2)).positions(CPU).tolist() == [[0, 1, 2, 0, 1]]
    assert Segments((3, 2)).first_tokens(CPU).tolist() == [0, 3]


def test_a_long_segment_is_split_into_blocks_of_queries_that_see_all_keys() -> None:
    pairing = Pairing(
        Segments((3, segments.WHOLE_SEGMENT_TOKENS + 1)), Segments((3, segments.WHOLE_SEGMENT_TOKENS + 1)), causal=False
    )
    short, long = pairing.segments
    assert [block.first for block in short] == [0]
    assert [block.first for block in long] == [0, segments.BLOCK, 2 * segments.BLOCK]
    assert {(block.keys.start, block.keys.stop) for block in long} == {(3, segments.WHOLE_SEGMENT_TOKENS + 4)}
    assert long[-1].queries == slice(3 + 2 * segments.BLOCK, segments.WHOLE_SEGMENT_TOKENS + 4)


def test_causal_blocks_do_not_even_compute_what_lies_ahead() -> None:
    length = 2 * segments.WHOLE_SEGMENT_TOKENS
    (blocks,) = Pairing(Segments((length,)), Segments((length,)), causal=True).segments
    assert [block.keys.stop for block in blocks] == [block.first + segments.BLOCK for block in blocks]


def test_cross_attention_pairs_targets_with_the_sources_of_the_same_example() -> None:
    layout = Layout((3, 2), (1, 4))
    places = [(block.queries, block.keys) for (block,) in layout.cross.segments]
    assert places == [(slice(0, 1), slice(0, 3)), (slice(1, 5), slice(3, 5))]


def test_layers_that_share_a_bias_share_its_band() -> None:
    pairing = Layout((4, 2)).encoder
    bias, other = torch.zeros(2, 7), torch.zeros(2, 7)
    assert pairing.band(bias, CPU) is pairing.band(bias, CPU)
    assert pairing.band(other, CPU) is not pairing.band(bias, CPU)
    assert pairing.band(None, CPU) is None
