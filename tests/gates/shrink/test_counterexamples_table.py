"""Mutants of every family are shrunk to a few numbers or tokens that fail again and that a correct subject passes."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from counterexample_doubles import mutated

from gates.registry import load
from gates.shrink.failing_case import shrink_case
from gates.shrink.file import Counterexample, read, write
from gates.shrink.probe import Asker

#: The most numbers that may remain: two calls of a loss on one row and one token (or one call on two rows of one token) with
#: their arrays and the map between them have 13; a step of four rows with five arrays would have 20.
MOST = 16
FEW = {"loss.ratio-constant": 4, "loss.clip-never-acts": 4, "loss.delta-forgotten": 4, "kl.k3-expm1-minus-d": 3} | {
    "loss.lengths-off-by-one": 4, "ratios.swapped": 3, "advantages.unscored-counts-zero": 2, "loss.bnpo-one-micro-batch": 8,
}  # fmt: skip
TABLE = [  # mutant, a case that reveals it, text that names the location or the regime
    ("advantages.ddof-always-0", "group-mean-add-ddof1-float32", "completion 1 of 2: got"),
    ("advantage-laws.clipped-rewards", "multiplied-trl-of-eight-float32", "distance of the two sides"),
    ("kl.full-reversed", "near-1000-float32", "row 1 of 1: got"),
    ("ratios.swapped", "token-holes-apart-float32", "ratio exp(policy − old)"),
    ("logprobs.backward-sign", "normal-float16-entropy", "vocabulary id 2 of 2: got 0.5, want -0.5"),
    ("advantages.unscored-counts-zero", "trl-ordinary-float32", "completion 1 of 2: got"),
    ("kl.k3-expm1-minus-d", "tiny-right-none-float64", "completion 1 of 1, token 1 of 1: got"),
    ("loss.ratio-constant", "ragged", "got"),
    ("loss.lengths-off-by-one", "ragged", "got 0"),
    ("loss.clip-never-acts", "ragged", "below 1 − ε_low = 0.8"),
    ("loss.delta-forgotten", "two-sided-clip", "above δ = 2"),
    ("loss.bnpo-one-micro-batch", "ragged", " is empty"),
    ("invariance.sum-for-mean", "grpo-plain", "want 2"),
    ("invariance.late-tokens-count-less", "grpo-plain", "token 2 of 2"),
    ("settings.upper-clip-is-the-lower", "grpo-epsilon-high", "change of the gradient"),
    ("sampling.penalty-per-occurrence", "penalty-hf-float32", "vocabulary id"),
    ("sampling.penalty-of-padding", "penalty-hf-float32", "vocabulary id"),
    ("sampling.top-k-keeps-the-tied", "top-k-of-600-hf-lower-id", "share the largest logit"),
    ("sampling.draw-reaches", "none-hf-float32", "u = 0: the first token that has mass"),
    ("packing.best-fit-is-first-fit", "uneven-best-fit-decreasing-error", "bins that hold other lengths"),
    ("preference.beta-outside", "plain-ordinary-float32", "want 0.693147"),
    ("preference.tie-prefers-second", "ties", "tie: all scores of the group are equal"),
    ("philox.seed-halves-swapped", "grid", "seed 1"),
    ("isa.one-lane-of-one-set", "normalise-then-sum-float64", "against scalar × 1"),
    ("isa.sum-follows-the-threads", "advantages-batch-float32", "scalar × 3 against scalar × 1"),
]


MODELS = [  # mutant, a case that reveals it, the most tokens (or texts) that may remain, text
    ("rollout.batched-padding-visible", "greedy", 14, "2 prompts, 1 sample of each, 1 token"),
    ("rollout.draws-by-position", "sampled", 22, "draws that did not use their keyed uniform"),
    ("rollout.finished-rows-go-on", "batched-ends", 3, "cut to 1 prompt, 1 sample of each, 1 token"),
    ("rollout.top-k-inert", "top_k-batched", 3, "changes.top_k 1"),
    ("rollout.stale-prefix-cache", "prefix-updated", 6, "path 'prefix'"),
    ("rollout.filters-dropped", "top-p", 40, "draws of probability 0"),  # one draw in each of the check's 40 rounds
    ("ratio.constant", "float32", 8, "log ratio after the change"),
    ("scoring.slots-in-the-wrong-order", "qwen3-scored", 24, "1 prompt, 2 samples of each, 2 tokens"),
    ("scoring.half-logits-not-upcast", "bfloat16", 6, "log-prob error"),
    ("agreement.one-prompt-length", "qwen3-rows", 14, "a row alone and in the batch"),
    (
        "trainer.base-trains-too",
        "float32",
        16,
        "2 prompts, 4 samples of each, 1 token",
    ),  # the check has two groups of 4
    ("trainer.reference-with-adapters", "float32", 4, "1 prompt, 1 sample of each, 1 token"),
    ("training.encoded-again", "random-model", 2, "tokens that differ is 1"),
    ("tokenizer.stripped-prompt", "hostile", 1, "texts [' ']"),
]


OFTEN = {*FEW, "advantages.ddof-always-0", "sampling.draw-reaches", "isa.one-lane-of-one-set"}
"""The mutants that every test run shrinks; `make record` shrinks all."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mutant", "case", "description"),
    [pytest.param(*row, id=row[0], marks=() if row[0] in OFTEN else pytest.mark.long) for row in TABLE],
)
def test_a_mutant_is_shrunk_to_a_few_numbers(mutant: str, case: str, description: str, tmp_path: Path) -> None:
    """The input from the file fails with the mutant and passes without it, and the text names the location."""
    counterexample = from_file(mutant, case, tmp_path)
    assert counterexample.unit == "numbers"
    assert counterexample.elements_after <= FEW.get(mutant, MOST) < counterexample.elements_before
    assert description in counterexample.words


SHORT = ("tokenizer.stripped-prompt",)
"""The mutant with a model that every test run shrinks to texts; test_failing_case.py shrinks one to tokens. LONG=1, as in `make
record`, shrinks all."""
LONG = pytest.mark.skipif("LONG" not in os.environ, reason="LONG=1 runs it, as tools/long_proofs.py small does")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mutant", "case", "most", "description"),
    [pytest.param(*row, id=row[0], marks=() if row[0] in SHORT else LONG) for row in MODELS],
)
def test_a_mutant_with_a_model_is_shrunk_to_a_few_tokens(
    mutant: str, case: str, most: int, description: str, tmp_path: Path
) -> None:
    """The same in tokens that are drawn and scored over all calls of the check."""
    counterexample = from_file(mutant, case, tmp_path)
    assert counterexample.unit == ("texts" if mutant.startswith("tokenizer") else "tokens")
    assert counterexample.elements_after <= most < counterexample.elements_before
    assert description in counterexample.words


def from_file(mutant: str, case: str, folder: Path) -> Counterexample:
    """Return the counterexample from its file, after judging it again with and without the mutant."""
    registry = load()
    planned, options = mutated(registry, mutant, case)
    write(folder / "c.safetensors", shrink_case(planned, options, registry.subjects, budget_s=300.0))
    counterexample = read(folder / "c.safetensors")
    assert counterexample.finished
    for mistake, wanted in ((options.mutant, "fails"), (None, "holds")):
        asker = Asker(replace(planned.subject, ops=None), mutant=mistake, quick=counterexample.quick)
        try:
            assert asker.ask(planned.gate, planned.case, counterexample.inputs, counterexample.cut).state == wanted
        finally:
            asker.close()
    return counterexample
