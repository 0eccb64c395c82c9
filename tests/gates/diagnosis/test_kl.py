"""KL estimators and the full divergence: each convention and mistake is named, and nothing that is not so."""

from __future__ import annotations

import numpy as np
import pytest
from edited import cases_of, changed, designed, gates_of, misnamed, of_oracle, pairs_misnamed

from gates.diagnosis.diagnose import diagnose, identify
from gates.families.kl.edits import CLAMPS
from gates.families.program import Inputs, Sample
from gates.families.programs import programs
from gates.model import Array, Case, Gate
from reference.oracle import kl as oracle

TOKEN, FULL = programs()["token_kl"], programs()["full_kl"]
CASES = {f"{gate.id}-{case.name}": (gate, case) for gate in gates_of(TOKEN) for case in cases_of(gate)}
FULL_CASES = [(gate, case) for gate in gates_of(FULL) for case in cases_of(gate)]
K3 = "kl.k3.matches-definition"


def calls(name: str) -> list[Inputs]:
    return designed(TOKEN, *CASES[name])


@pytest.mark.parametrize("name", CASES)
def test_the_oracle_computes_the_requested_choice(name: str) -> None:
    """The forward definition shares no formula with the oracle, and gives the same KL."""
    found = diagnose(TOKEN, of_oracle(TOKEN, calls(name), oracle.token_kl))
    assert (found.kind, found.rho < 0.5) == ("as asked", True)


@pytest.mark.parametrize("pair", FULL_CASES, ids=lambda pair: pair[1].name)
def test_the_full_divergence(pair: tuple[Gate, Case]) -> None:
    """It is recognised, and each of its edits is named."""
    given = designed(FULL, *pair)
    found = diagnose(FULL, of_oracle(FULL, given, oracle.full_kl))
    assert (found.kind, found.rho < 0.5) == ("as asked", True)
    assert misnamed(FULL, given, every=len(FULL_CASES), first=FULL_CASES.index(pair)) == []


@pytest.mark.parametrize(
    ("name", "first"),
    [
        (f"{K3}-right-none-float32", 0),
        (f"{K3}-clamped-right-mean-float32", 1),
        (f"{K3}-flat-sum-float32", 2),
        ("kl.k1.matches-definition-holes-mean-float32", 3),
        ("kl.k2.matches-definition-left-sum-float32", 4),
        ("kl.ratio.matches-definition-token-flat-mean-float32", 5),
        ("kl.ratio.matches-definition-sequence-holes-sum-float32", 6),
    ],
)
def test_each_edit_is_named(name: str, first: int) -> None:
    """By its own words, or by those of another edit that is the same function of every input."""
    assert misnamed(TOKEN, calls(name), every=4, first=first) == []


def test_pairs_are_named() -> None:
    """Two mistakes at once have the names of both, or of words that are the same function."""
    assert pairs_misnamed(TOKEN, calls(f"{K3}-holes-mean-float32"), seed=1, count=12) == []


def test_a_clamp_is_never_taken_for_another() -> None:
    """Every size is distinguished from every other one."""
    given = calls(f"{K3}-clamped-right-none-float32")
    for size in CLAMPS:
        samples = of_oracle(TOKEN, [{**one, "kl_clamp": size} for one in given], oracle.token_kl)
        found = diagnose(TOKEN, [Sample(a, b.got) for a, b in zip(given, samples, strict=True)])
        assert found.words == f"clamp ±{size:g} (asked: ±10)"


def test_an_unknown_formula_has_a_location() -> None:
    """It is the tokens that the reference finds likelier."""

    def above(inputs: Inputs) -> Array:
        return np.asarray(inputs["mask"] & (inputs["reference"] > inputs["policy"]))

    given = calls(f"{K3}-right-none-float32")
    found = diagnose(TOKEN, changed(of_oracle(TOKEN, given, oracle.token_kl), "kl", above))
    assert (found.kind, found.words) == ("nothing known", "")
    assert found.where == "kl differs only where the reference is above the policy"


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"estimator": "k1"}, "k1 = −d (verl kl_loss_type=kl)"),
        ({"estimator": "k2"}, "k2 = d²/2 (verl kl_loss_type=mse)"),
        ({"estimator": "k3"}, "k3 = exp(d) − d − 1 (TRL)"),
        ({"estimator": "k3", "kl_clamp": 10.0}, "verl kl_loss_type=low_var_kl"),
        ({"estimator": "k3", "kl_ratio": "token"}, "TRL use_bias_correction_kl, the loss's level token"),
        ({"estimator": "k3", "kl_ratio": "sequence"}, "TRL use_bias_correction_kl, the loss's level sequence"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_each_preset_is_identified(setting: dict[str, object], words: str) -> None:
    """From a call of another estimator without an older policy, which gets one."""
    example = next(iter(TOKEN.examples(calls("kl.k1.matches-definition-right-none-float32")[0])))
    given = list(TOKEN.inputs(example, np.random.default_rng(2)))
    samples = of_oracle(TOKEN, [{**one, **setting} for one in given], oracle.token_kl)
    found = identify(TOKEN, [Sample(a, b.got) for a, b in zip(given, samples, strict=True)])
    assert (found.kind, words in found.words) == ("convention", True), found


@pytest.mark.parametrize("reverse", [False, True])
def test_the_direction_is_identified(*, reverse: bool) -> None:
    """Which of the two comes first."""
    given = designed(FULL, *FULL_CASES[0])
    swapped = [dict(zip(one, reversed(one.values()), strict=True)) for one in given] if reverse else given
    samples = of_oracle(FULL, swapped, oracle.full_kl)
    found = identify(FULL, [Sample(a, b.got) for a, b in zip(given, samples, strict=True)])
    assert found.words.startswith("KL(reference ‖ policy)" if reverse else "KL(policy ‖ reference)")
