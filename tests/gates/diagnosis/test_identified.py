"""With nothing asked the presets of libraries have their names, whatever the call asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from edited import calls, cases, of_oracle

from gates.diagnosis.diagnose import diagnose, identify
from gates.diagnosis.named import Diagnosis
from gates.diagnosis.samples import SEED, example
from gates.diagnosis.search import evaluate
from gates.families.advantages.edits import PRESETS
from gates.families.kl.edits import CLAMPS
from gates.families.loss.program import row_of
from gates.families.program import Sample
from gates.families.programs import programs
from gates.model import Array
from gates_reference.algorithms import ALGORITHMS, AXES, VARIANTS
from gates_reference.oracle.gae import gae

PROGRAMS = programs()
TRL, K1 = "group-mean-add-ddof1-float32", "kl.k1.matches-definition-right-none-float32"
RATIO, WEIGHTS = "token-holes-typical-float32", "typical-tis-token-two-sided-holes-float32"
STAGES = {"group_ddof": 1, "group_eps": 1e-4, "batch_ddof": 1, "batch_eps": 1e-4}
SCORES = "logprobs.selective.matches-definition-normal-float32"
Row = tuple[str, str, Mapping[str, Any], str]
IDENTIFIED: tuple[Row, ...] = (  # op, case, settings of the subject, part of the name
    *(
        ("group_advantages", case, preset, library)
        for case in (TRL, "group-mean-inside-ddof0-float32")
        for library, preset in PRESETS.items()
    ),
    ("normalise_then_sum", "three-mixed-float32", STAGES, "normalize_then_sum"),
    ("token_kl", K1, {"estimator": "k1"}, "k1 = −d (verl kl_loss_type=kl)"),
    ("token_kl", K1, {"estimator": "k2"}, "k2 = d²/2 (verl kl_loss_type=mse)"),
    ("token_kl", K1, {"estimator": "k3"}, "k3 = exp(d) − d − 1 (TRL)"),
    ("token_kl", K1, {"estimator": "k3", "kl_clamp": 10.0}, "verl kl_loss_type=low_var_kl"),
    ("token_kl", K1, {"estimator": "k3", "kl_ratio": "token"}, "TRL use_bias_correction_kl, the loss's level token"),
    (
        "token_kl",
        K1,
        {"estimator": "k3", "kl_ratio": "sequence"},
        "TRL use_bias_correction_kl, the loss's level sequence",
    ),
    ("full_kl", "batch-500-float32", {}, "KL(policy ‖ reference)"),
    ("selective_log_softmax", SCORES, {"temperature": 1.5}, "log-softmax of the ids at the temperature"),
    ("selective_log_softmax", SCORES, {"temperature": 1.0}, "log-softmax of the ids at τ = 1"),
    ("importance_ratio", RATIO, {"level": "token"}, "(PPO, GRPO)"),
    ("importance_ratio", RATIO, {"level": "seq_mean"}, "(GSPO)"),
    ("importance_ratio", RATIO, {"level": "seq_sum"}, "(RLOO)"),
    *(
        ("importance_weights", WEIGHTS, {"level": level, "correction": correction}, f'mode="{mode}_{word}"')
        for mode, level in (("token", "token"), ("sequence", "seq_sum"))
        for word, correction in (("truncate", "tis"), ("mask", "mis"))
    ),
    ("filtered_logprobs", "all-hf-float32", {}, "hf (transformers generate()): temperature, top-k, top-p, min-p, XTC"),
    ("filtered_logprobs", "all-mlx-lm-float32", {}, "mlx-lm (make_sampler): top-p, min-p, XTC, top-k, temperature"),
    ("sample_tokens", "all-mlx-lm-float32", {}, "mlx-lm (make_sampler)"),
    ("kto_loss", "ahead-ordinary-float32", {}, 'kto (TRL KTOTrainer loss_type="kto")'),
)
PREFERENCES = {  # the first case of each loss, with the constants of others added
    "dpo": "dpo with label smoothing (conservative DPO)",
    "hinge": 'hinge (TRL loss_type="hinge")',
    "ipo": "ipo with sums (TRL Online DPO)",
    "dpop": "dpop",
    "orpo": "orpo, likelihood of each completion",
    "simpo": 'simpo (TRL CPOTrainer loss_type="simpo")',
    "cpo": "cpo (TRL CPOTrainer)",
}


def identified(op: str, name: str, **settings: Any) -> Diagnosis:
    """Identify what the oracle computes with these settings for the call of a case."""
    program = PROGRAMS[op]
    example = next(iter(program.examples(calls(program, name)[0])))
    given = program.inputs(example, np.random.default_rng(5))
    return identify(program, of_oracle(program, given, **settings))


def firsts(op: str) -> list[str]:
    """Return the first case of each gate of an op."""
    return list({gate.id: name for name, (gate, _) in reversed(cases(PROGRAMS[op]).items())}.values())


@pytest.mark.parametrize(
    ("op", "name", "settings", "words"), IDENTIFIED, ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_preset_is_identified(op: str, name: str, settings: Mapping[str, Any], words: str) -> None:
    """By the words of docs/definitions.md, "Presets"."""
    found = identified(op, name, **settings)
    assert (found.kind, words in found.words) == ("convention", True), found


@pytest.mark.parametrize("name", firsts("policy_loss"))
def test_each_policy_loss_is_identified(name: str) -> None:
    """By the row of the table that makes its choices."""
    row, found = row_of(calls(PROGRAMS["policy_loss"], name)[0]), identified("policy_loss", name)
    rows = (*ALGORITHMS.values(), *VARIANTS)
    alike = tuple(other.text for other in rows if all(getattr(other, axis) == getattr(row, axis) for axis in AXES))
    assert (found.kind, found.words.startswith(alike)) == ("convention", True), found


def test_a_composition_without_a_name_is_what_its_settings_ask_for() -> None:
    """REINFORCE by a token mean is not VESPO with a ratio of 1, which computes the same."""
    program = PROGRAMS["policy_loss"]
    gate, preset = cases(program)["loss.reinforce.matches-definition-ragged"]
    assert preset.compose is not None
    call = example(gate, preset.compose({"aggregation": "token-mean"}), SEED, program.op)
    assert call is not None
    samples = of_oracle(program, program.inputs(call, np.random.default_rng(SEED)))
    diagnosis = identify(program, samples)
    assert (diagnosis.kind, diagnosis.words) == ("as asked", "as asked")


@pytest.mark.parametrize("name", firsts("preference_loss"))
def test_each_preference_loss_is_identified(name: str) -> None:
    """By its name alone."""
    assert identified("preference_loss", name).words == PREFERENCES[name.split(".")[1]]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("preference.dpo.matches-definition-plain-ordinary-float32", 'dpo (TRL DPOTrainer loss_type="sigmoid")'),
        ("mean-ordinary-float32", 'ipo with means (TRL DPOTrainer and CPOTrainer loss_type="ipo")'),
        ("plain-all-tokens-float32", "orpo, likelihood of all tokens (TRL ORPOTrainer)"),
    ],
)
def test_a_preference_loss_as_it_is_called(name: str, words: str) -> None:
    """Where nothing is added to the call."""
    program = PROGRAMS["preference_loss"]
    found = identify(program, of_oracle(program, calls(program, name)))
    assert (found.kind, found.words) == ("convention", words)


@pytest.mark.parametrize("name", cases(PROGRAMS["selective_log_softmax_backward"]))
def test_the_temperature_of_a_gradient(name: str) -> None:
    """Log-softmax at the temperature, or at 1."""
    found = identified("selective_log_softmax_backward", name)
    assert found.words.startswith("log-softmax of the ids at ") or found.kind == "as asked", found


def test_the_reversed_divergence() -> None:
    """The other one comes first."""
    program = PROGRAMS["full_kl"]
    given = calls(program, "batch-500-float32")
    swapped = of_oracle(program, [dict(zip(one, reversed(one.values()), strict=True)) for one in given])
    found = identify(program, [Sample(a, b.got) for a, b in zip(given, swapped, strict=True)])
    assert found.words.startswith("KL(reference ‖ policy)")


def test_whitened_advantages() -> None:
    """As verl gives them."""

    def whitened(*, mask: Array, **given: Any) -> Array:
        found = np.asarray(gae(mask=mask, **given))
        return np.where(mask, (found - found[mask].mean()) / np.sqrt(found[mask].var(ddof=1) + 1e-8), 0.0)

    program = PROGRAMS["gae"]
    found = identify(program, of_oracle(program, calls(program, "tokens-holes-float32"), whitened))
    assert (found.kind, "verl adv_estimator=gae" in found.words) == ("convention", True), found


@pytest.mark.parametrize(
    ("op", "name", "settings", "words"),
    [
        ("group_advantages", TRL, {"ddof": 0}, "group z-score with ddof 0 (asked: 1)"),
        *(
            (
                "token_kl",
                "kl.k3.matches-definition-clamped-right-none-float32",
                {"kl_clamp": size},
                f"clamp ±{size:g} (asked: ±10)",
            )
            for size in CLAMPS
        ),
        (
            "preference_loss",
            "preference.dpo.matches-definition-smoothed-ordinary-float32",
            {"label_smoothing": 0.0},
            'label smoothing ignored (as TRL loss_type="sigmoid" does)',
        ),
        (
            "filtered_logprobs",
            "all-hf-float32",
            {"order": "mlx-lm"},
            "filters in the order top-p, min-p, XTC, top-k, temperature (as in mlx-lm) (asked: temperature, top-k, top-p, min-p, XTC)",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_another_setting_is_named(op: str, name: str, settings: Mapping[str, Any], words: str) -> None:
    """Beside the one that is asked, and never taken for a third."""
    found = diagnose(PROGRAMS[op], of_oracle(PROGRAMS[op], calls(PROGRAMS[op], name), **settings))
    assert found.words == words


@pytest.mark.parametrize(
    ("eps", "mode", "words"),
    [
        (3e-5, "add", "std + 3e-05"),
        (2.5e-7, "inside", "√(var + 2.5e-07)"),
        (0.05, "add", "std + 0.05"),
        (2.0**-23, "add", "std + 1.19209e-07"),  # torch.finfo(torch.float32).eps
    ],
)
def test_epsilon_is_fitted(eps: float, mode: str, words: str) -> None:
    """A size that nobody lists is solved for from what was returned."""
    program = PROGRAMS["group_advantages"]
    samples = of_oracle(program, calls(program, TRL), eps=eps, eps_mode=mode)
    single = [Sample(s.inputs, {"advantages": s.got["advantages"].astype(np.float32).astype(float)}) for s in samples]
    found = diagnose(program, single)
    assert (found.kind, words in found.words) == ("convention", True), found


@pytest.mark.parametrize("name", ["all-hf-float32", "top-k-top-p-hf-float32", "penalties-mlx-lm-float32"])
def test_rounding_decides_no_token(name: str) -> None:
    """A threshold lies in a gap of the mass in nearly every row; of the others nothing is claimed."""
    program = PROGRAMS["filtered_logprobs"]
    void = [np.isinf(evaluate(program, x, program.asked(x))["logprobs"][1]).any(axis=1) for x in calls(program, name)]
    assert np.concatenate(void).mean() <= 0.05
