from __future__ import annotations

import pytest
from transformers import AutoModelForSeq2SeqLM, AutoModelForSequenceClassification, BertConfig, T5Config

from seqfit.model.load import ModelConfig
from seqfit.planning.fake_step import FakeStep, StepSpec
from seqfit.planning.shape import Shape, uniform
from seqfit.planning.tape import ACTIVATIONS, TEMPORARIES, KernelCost, MemoryBlock, Tape
from seqfit.planning.template import DifferentPaths, collapse, fit_template, terms
from seqfit.recipe.schema import ModelRecipe, TrainRecipe
from seqfit.strategy.schema import Strategy

T5 = ModelConfig(
    T5Config(vocab_size=500, d_model=64, d_kv=16, d_ff=128, num_layers=1, num_heads=4, decoder_start_token_id=0),
    {},
    AutoModelForSeq2SeqLM,
)
BERT = ModelConfig(
    BertConfig(vocab_size=500, hidden_size=64, num_hidden_layers=1, num_attention_heads=4, intermediate_size=128),
    {},
    AutoModelForSequenceClassification,
)


def make_tape(activation_bytes: int, passing: tuple[int, ...]) -> Tape:
    """One that stays, then some that come and go."""
    tape = Tape()
    tape.mark("forward", "layer")
    kept = tape.allocate(MemoryBlock(activation_bytes, ACTIVATIONS, "layer", "mm"))
    tape.kernels.append(KernelCost("mm", 0, "float32", 8, activation_bytes))
    for size in passing:
        tape.free(tape.allocate(MemoryBlock(size, TEMPORARIES, "layer", "exp")))
        tape.kernels.append(KernelCost("exp", 0, "float32", 0, size))
    tape.mark("backward", "node")
    tape.free(kept)
    return tape


def test_terms_of_padded_examples_count_the_longest_for_each() -> None:
    packed, padded = (terms(Shape((3, 5), (2, 1), packed=packed)) for packed in (True, False))
    assert packed[8:] == padded[8:] == [5, 2, 25, 10, 4, 25, 4, 10, 4, 50, 20, 8]
    assert packed[:8] == [1, 11, 8, 3, 2, 34, 11, 5]
    assert padded[:8] == [1, 14, 10, 4, 2, 50, 20, 8]


def test_at_shapes_that_differ_in_everything_a_size_has_one_explanation() -> None:
    """Traced at two shapes: what does not vary, grows with the longest source, or with the sum of squares."""
    shapes = [Shape((100, 60), (20, 30), packed=True), Shape((75, 45, 30), (15, 22, 11), packed=True)]
    sizes = [[4096, 4096], [100 * 8, 75 * 8], [4 * (100**2 + 60**2), 4 * (75**2 + 45**2 + 30**2)]]
    other = Shape((90,) * 40, (7,) * 40, packed=True)
    for (first, second), expected in zip(sizes, (4096, 90 * 8, 4 * 40 * 90**2), strict=True):
        template = fit_template(shapes, [make_tape(first, ()), make_tape(second, ())])
        assert template.at(other).blocks[0].bytes == expected


def test_what_a_kernel_reads_of_a_weight_does_not_grow_with_the_examples() -> None:
    """Its bytes alone could as well be a sum of two activations; tensor by tensor each has one explanation."""
    shapes = [uniform(2, 100, None, packed=False), uniform(3, 80, None, packed=False)]
    tapes = []
    for shape in shapes:
        read, weight = 4 * shape.examples * shape.sources[0], 100_000
        tapes.append(make_tape(read, ()))
        tapes[-1].kernels[0] = KernelCost("mm", 0, "float32", 8, read + weight, tensors=(read, weight))
    template = fit_template(shapes, tapes)
    other = uniform(64, 100, None, packed=False)
    assert (template.kernel_bytes @ template.values(other)).tolist() == pytest.approx([4 * 6400 + 100_000])


def test_shapes_that_do_different_things_have_no_template() -> None:
    shapes = [uniform(2, 10, None, packed=True), uniform(3, 10, None, packed=True)]
    longer = make_tape(200, ())
    longer.allocate(MemoryBlock(8, ACTIVATIONS, "layer", "mm"))
    with pytest.raises(DifferentPaths, match="differ in more than sizes"):
        fit_template(shapes, [make_tape(100, ()), longer])


def test_a_size_is_a_polynomial_of_the_shape() -> None:
    """The example of the module: four bytes for each token of all examples."""
    shapes = [
        uniform(2, 100, None, packed=True),
        uniform(2, 200, None, packed=True),
        uniform(4, 100, None, packed=True),
    ]
    template = fit_template(shapes, [make_tape(size, ()) for size in (800, 1600, 1600)])
    for shape, size in zip(shapes, (800, 1600, 1600), strict=True):
        assert template.at(shape).peak_bytes == pytest.approx(size, abs=1)
        assert template.at(shape).blocks[0].bytes == size


def test_what_comes_and_goes_in_a_stretch_is_one_block_of_its_peak() -> None:
    collapsed = collapse(make_tape(100, (30, 50, 20)))
    assert [block.bytes for block in collapsed.blocks] == [100, 50, 0]
    assert collapsed.peak_bytes == 150
    other = [kernel for kernel in collapsed.kernels if kernel.name == "other" and kernel.calls]
    assert [(kernel.bytes, kernel.calls) for kernel in other] == [(100, 3)]


def test_loops_of_other_lengths_fit_one_template() -> None:
    shapes = [uniform(1, 10, None, packed=True), uniform(2, 10, None, packed=True)]
    template = fit_template(shapes, [make_tape(100, (30,)), make_tape(200, (30, 30))])
    assert template.at(shapes[1]).peak_bytes == pytest.approx(230, abs=1)


def test_the_template_of_a_padded_step_gives_the_peak_of_a_shape_between() -> None:
    fake = FakeStep(
        StepSpec(
            BERT,
            ModelRecipe(path="x", kind="classifier"),
            TrainRecipe(),
            Strategy(batching="padded", attention="eager"),
            "fp32",
        )
    )
    traced = [uniform(8, length, None, packed=False) for length in (64, 100, 160)]
    template = fit_template(traced, [fake.trace([shape]) for shape in traced])
    between = uniform(8, 128, None, packed=False)
    exact = fake.trace([between])
    assert template.at(between).peak_bytes == pytest.approx(exact.peak_bytes, rel=1e-6)
    assert template.at(between).events == exact.events


def test_the_template_of_a_packed_step_is_close_at_other_lengths() -> None:
    """Within 2%: what comes and goes in a stretch is taken to peak when all that stays is there."""
    fake = FakeStep(StepSpec(T5, ModelRecipe(path="x"), TrainRecipe(), Strategy(), "fp32"))
    traced = [uniform(count, 200, 40, packed=True) for count in (1, 2, 4)]
    template = fit_template(traced, [fake.trace([shape]) for shape in traced])
    other = uniform(8, 200, 40, packed=True)
    assert template.at(other).peak_bytes == pytest.approx(fake.trace([other]).peak_bytes, rel=0.02)
