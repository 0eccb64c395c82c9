"""Every program: what is asked is recognised, each edit and pairs of edits are named, and nothing is named that is not so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from typing import Any

import pytest
from edited import ORACLES, calls, cases, edits_of, misnamed, of_edits, of_oracle, pairs_misnamed

from gates.diagnosis.diagnose import diagnose
from gates.diagnosis.search import APART, MATCH
from gates.families.preference.edits import ALIKE, SWAPPED
from gates.families.programs import programs

PROGRAMS = programs()
LIMITS = {"ratio_statistics": 1.5, "sample_tokens": 1.0}  # what the oracle may be off, in limits; 0.5 of other ops
FOUND = "statistics.match-definition-found-"  # cases of a search, asked by the gate alone
FIRST = ""  # the first case of each gate
NAMED: Mapping[str, tuple[int, tuple[str, ...]]] = {  # of every n-th edit, each case from another one on
    "group_advantages": (
        16,
        (
            "group-mean-add-ddof1-float32",
            "none-mean-float32",
            "batch-mean-inside-ddof0-float32",
            "group-leave-one-out-threshold-ddof1-float32",
            "acting-threshold-ddof0-float32",
            "rlox-float64",
        ),
    ),
    "normalise_then_sum": (3, ("*mixed*",)),
    "gae": (2, ("tokens-holes-float32", "tokens-flat-float32", "tokens-td-float32")),
    "token_kl": (
        4,
        (
            "kl.k3.*-right-none-float32",
            "kl.k3.*-clamped-right-mean-float32",
            "kl.k3.*-flat-sum-float32",
            "kl.k1.*-holes-mean-float32",
            "kl.k2.*-left-sum-float32",
            "kl.ratio.*-token-flat-mean-float32",
            "kl.ratio.*-sequence-holes-sum-float32",
        ),
    ),
    "full_kl": (5, ("*",)),
    "selective_log_softmax": (
        1,
        (
            "*selective*-normal-float32",
            "*selective*-normal-float16",
            "*selective*-batch-float32",
            "*selective*-hot-float32",
            "*-several-some-ignored-float64",
            "*entropy*-hot-float32",
            "*entropy*-cold-float64",
            "*entropy*-some-ignored-float32",
        ),
    ),
    "selective_log_softmax_backward": (3, ("*",)),
    "policy_loss": (6, (FIRST,)),
    "preference_loss": (17, (FIRST,)),
    "kto_loss": (3, (FIRST,)),
    "prefer": (1, (FIRST,)),
    "best_of_n": (1, (FIRST,)),
    "winner_loss": (2, (FIRST,)),
    "importance_ratio": (
        5,
        ("token-masked-typical-float32", "seq_mean-holes-apart-float32", "seq_sum-flat-typical-float32"),
    ),
    "importance_weights": (
        5,
        (
            "typical-tis-token-two-sided-holes-float32",
            "typical-mis-seq_sum-two-sided-masked-float32",
            "typical-mis-token-from-one-holes-float32",
            "typical-tis-seq_sum-one-sided-holes-float32",
        ),
    ),
    "ratio_statistics": (5, ("sixteen-rows-holes-typical-float32", "sixteen-rows-flat-typical-float32")),
    "filtered_logprobs": (
        3,
        (
            "all-hf-float32",
            "all-mlx-lm-float32",
            "top-k-top-p-hf-float32",
            "min-tokens-top-p-hf-float32",
            "xtc-special-mlx-lm-float32",
            "penalties-mlx-lm-float32",
        ),
    ),
    "loss_with_options": (11, ("everything-plain", "mis-sequence-plain", "top-entropy-in-parts-plain")),
    "rewarded_loss": (9, ("ragged", "heavy")),
    "keep_groups": (1, ("*-scored",)),
    "overlong_penalty": (1, ("64-16",)),
    "pack_sequences": (
        1,
        (
            "uneven-first-fit-decreasing-truncate",
            "tied-best-fit-decreasing-error",
            "ragged-best-fit-decreasing",
            "ragged-wrapped",
        ),
    ),
    "sample_tokens": (
        2,
        ("none-hf-float32", "all-hf-float32", "top-p-mlx-lm-float32", "penalties-mlx-lm-float32"),
    ),
}
DRAWN = (  # pairs of edits that are drawn: op, case, seed and number of pairs
    ("group_advantages", "group-mean-add-ddof1-float32", 5, 6),
    ("token_kl", "kl.k3.matches-definition-holes-mean-float32", 1, 12),
    ("selective_log_softmax", "logprobs.entropy.matches-definition-hot-float32", 2, 12),
    ("policy_loss", "loss.dapo.matches-definition-ragged", 3, 6),
    ("importance_ratio", "seq_mean-holes-typical-float32", 3, 6),
    ("importance_weights", "typical-mis-token-two-sided-masked-float32", 3, 6),
)
PAIRS = (  # pairs of edits that are told apart from everything else
    (
        "preference_loss",
        "preference.dpo.matches-definition-smoothed-ordinary-float32",
        {f"{SWAPPED} (asked: {ALIKE})", "summed over pairs, not averaged"},
    ),
    (
        "preference_loss",
        "preference.dpo.matches-definition-smoothed-ordinary-float32",
        {"the prompt counted", "no gradient of the rejected side (detached)"},
    ),
    (
        "preference_loss",
        "preference.dpo.matches-definition-smoothed-ordinary-float32",
        {
            "β outside the sigmoid: it multiplies the loss",
            "the last token of each row, its end-of-sequence token, left out",
        },
    ),
    (
        "filtered_logprobs",
        "all-hf-float32",
        {"top-k keeps one token more: k + 1", "repetition penalty divides negative logits too"},
    ),
    (
        "filtered_logprobs",
        "all-hf-float32",
        {"XTC on every row, whatever its coin", "log-probs not renormalised over the tokens that stay"},
    ),
)


def chosen(op: str) -> Iterator[str]:
    """Yield the cases of an op whose edits are named."""
    names = list(cases(PROGRAMS[op]))
    gates = [gate.id for gate, _ in cases(PROGRAMS[op]).values()]
    for pattern in NAMED[op][1]:
        firsts = [name for i, name in enumerate(names) if gates[i] not in gates[:i]]
        yield from firsts if pattern == FIRST else [name for name in names if fnmatch(name, f"*{pattern}")]


THIRD = 3  # `make test` asks the first case of each gate and every third of an op, `make record` all


def asked() -> Iterator[Any]:
    """Yield op and case, those that only `make record` asks with their mark."""
    for op, program in PROGRAMS.items():
        known = [(name, gate) for name, (gate, _) in cases(program).items() if FOUND not in name]
        for index, (name, gate) in enumerate(known):
            often = index % THIRD == 0 or gate is not known[index - 1][1]
            yield pytest.param(op, name, marks=() if often else pytest.mark.long, id=f"{op}-{name}")


OFTEN = 4  # `make test` tries a sixth of the edits of every fourth case of an op, `make record` all edits of all cases
EDITED = [
    pytest.param(op, name, index, share, marks=marks, id=f"{op}-{name}-{words}")
    for op in NAMED
    for index, name in enumerate(chosen(op))
    for share, words, marks in ((1, "all", pytest.mark.long), (6, "sixth", ()))
    if share == 1 or index % OFTEN == 0
]


def test_every_program_is_asked() -> None:
    """A program of a new op has an oracle and cases here."""
    assert set(PROGRAMS) == set(ORACLES) == set(NAMED)


@pytest.mark.parametrize(("op", "name"), list(asked()))
def test_the_oracle_computes_what_is_asked(op: str, name: str) -> None:
    """The forward definition shares no formula with the oracle, and gives the same numbers."""
    samples = of_oracle(PROGRAMS[op], calls(PROGRAMS[op], name))
    found = diagnose(PROGRAMS[op], samples)
    assert (found.kind, found.rho < LIMITS.get(op, 0.5)) == ("as asked", True)
    assert len(samples) >= 4


@pytest.mark.parametrize(("op", "name", "first", "share"), EDITED)
def test_each_edit_is_named(op: str, name: str, first: int, share: int) -> None:
    """By its own words, or by those of another edit that is the same function of every input."""
    assert misnamed(PROGRAMS[op], calls(PROGRAMS[op], name), every=share * NAMED[op][0], first=first) == []


@pytest.mark.parametrize(
    ("op", "name", "seed", "count"),
    [
        pytest.param(op, name, seed, count // share, marks=marks, id=f"{op}-{name}-{words}")
        for op, name, seed, count in DRAWN
        for share, words, marks in ((1, "all", pytest.mark.long), (2, "half", ()))
    ],
)
def test_pairs_are_named(op: str, name: str, seed: int, count: int) -> None:
    """Two mistakes at once have the names of both, or of words that are the same function."""
    assert pairs_misnamed(PROGRAMS[op], calls(PROGRAMS[op], name), seed, count) == []


@pytest.mark.parametrize(("op", "name", "words"), PAIRS, ids=lambda value: value if isinstance(value, str) else "")
def test_a_pair_is_told_apart(op: str, name: str, words: set[str]) -> None:
    """Both edits are named, and any other function is far."""
    given = calls(PROGRAMS[op], name)
    edits = edits_of(PROGRAMS[op], given)
    found = diagnose(PROGRAMS[op], of_edits(PROGRAMS[op], given, tuple(edits[word] for word in words)))
    assert set(found.words.split(" · ")) == words
    assert (found.rho <= MATCH, found.next_rho >= APART) == (True, True)
