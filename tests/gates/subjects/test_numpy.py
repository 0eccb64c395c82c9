"""The NumPy baseline where no quick case asks: bounds, invalid arguments, patch targets. run/test_edges.py has the rest."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gates.subjects.numpy_baseline import (
    advantages,
    kl,
    logprobs,
    loss,
    packing,
    preference,
    ratio,
    sampling,
    subject,
    terms,
)

NAN, INF = math.nan, math.inf
MASK = np.arange(5) < np.array([5, 2, 0, 4, 1, 3])[:, None]
ROWS = np.full((2, 3), -1.0)
PAIRS = np.full((4, 3), -1.0)
CLIP = {"epsilon_low": 0.2, "epsilon_high": 0.3}


def loss_inputs(**changes: Any) -> dict[str, Any]:
    """GRPO of six ragged rows, one of them empty, NaN in every masked slot."""
    rng = np.random.default_rng(7)
    policy, old, reference = (np.where(MASK, -rng.gamma(1.0, 1.0, MASK.shape), NAN) for _ in range(3))
    gains = np.array([1.0, -0.5, 2.0, 0.0, -1.5, 0.7])
    arrays = {"policy": policy, "old": policy + 0.4 * (old - policy), "reference": reference, "advantages": gains}
    sizes = {"max_length": 8, "micro_batches": [2, 4], "group_size": 3}
    return {**arrays, "mask": MASK, "algorithm": "grpo", **CLIP, **sizes, **changes}


STAGES = {"group_ddof": 0, "group_eps": 0.0, "batch_ddof": 0, "batch_eps": 0.0}
NO_CONSTANTS = dict.fromkeys(("lengths", "penalty", "margin", "nll"))
VALID: dict[Callable[..., Any], dict[str, Any]] = {  # arguments that each function accepts
    advantages.group_advantages: {"rewards": np.array([1.0, 2.0]), "group_size": 2},
    advantages.normalise_then_sum: {"rewards": ROWS.T[:2], "weights": np.ones(2), "group_size": 2, **STAGES},
    kl.token_kl: {"policy": ROWS, "reference": ROWS, "estimator": "k3"},
    logprobs.selective_log_softmax: {"logits": np.array([[0.0, 1.0]]), "ids": np.array([0])},
    logprobs.full_kl: {"policy_logprobs": ROWS, "reference_logprobs": ROWS},
    loss.policy_loss: loss_inputs(),
    packing.pack_sequences: {"lengths": np.array([1]), "max_length": 10},
    preference.preference_loss: {"policy": PAIRS, "reference": PAIRS, "mask": PAIRS < 0, "loss": "dpo", "beta": 0.3}
    | {"label_smoothing": 0.1, **NO_CONSTANTS},
    preference.best_of_n: {"scores": np.array([1.0, 2.0]), "group_size": 2},
    ratio.importance_weights: {"old": ROWS, "sampling": ROWS, "correction": "tis", "level": "token", "c_max": 2.0}
    | {"mask": ROWS < 0},
    ratio.ratio_statistics: {"policy": ROWS, "behaviour": ROWS, "mask": ROWS < 0, **CLIP},
    sampling.filtered_logprobs: {"logits": np.zeros((1, 6)), "order": "hf", "temperature": 1.0},
    sampling.sample_tokens: {
        "logits": np.zeros((1, 6)),
        "uniforms": np.array([0.5]),
        "order": "hf",
        "temperature": 1.0,
    },
    sampling.uniforms: {"seed": 0, "round_": 0, "prompt": 0, "sample": 0, "token": 0},
    sampling.philox4x32_10: {"counter": np.zeros(4, np.uint32), "key": np.zeros(2, np.uint32)},
}


@pytest.mark.parametrize(
    ("function", "changes", "message"),
    [
        (advantages.group_advantages, {"rewards": np.ones(3)}, "`rewards` has 3 elements.*group_size 2"),
        (advantages.group_advantages, {"rewards": np.ones(0)}, "`rewards` has 0 elements"),
        (advantages.group_advantages, {"rewards": np.array([1, INF])}, "`rewards` is inf at index 1"),
        (advantages.group_advantages, {"rewards": np.array([1, 2])}, "`rewards` has dtype int64"),
        (advantages.group_advantages, {"group_size": 0}, "`group_size` is 0"),
        (advantages.group_advantages, {"group_size": 1, "baseline": "leave-one-out"}, "`group_size` is 1.*at least 2"),
        (advantages.group_advantages, {"scale": "std"}, "`scale` is 'std'"),
        (advantages.group_advantages, {"ddof": 2}, "`ddof` is 2"),
        (advantages.group_advantages, {"eps": -1.0}, "`eps` is -1.0"),
        (advantages.group_advantages, {"eps_mode": "max"}, "`eps_mode` is 'max'"),
        (advantages.normalise_then_sum, {"rewards": np.ones(2)}, "`rewards` has shape"),
        (advantages.normalise_then_sum, {"weights": np.ones(3)}, "`weights` has shape"),
        (advantages.normalise_then_sum, {"weights": np.array([NAN, 1.0])}, "`weights` is"),
        (advantages.normalise_then_sum, {"group_size": 3}, "group_size 3"),
        (advantages.normalise_then_sum, {"rewards": np.array([[1.0, 1], [INF, 1]])}, "`rewards` holds an infinity"),
        (advantages.normalise_then_sum, {"group_ddof": 2}, "`group_ddof` is 2"),
        (advantages.normalise_then_sum, {"batch_eps": -1.0}, "`batch_eps` is -1.0"),
        (kl.token_kl, {"estimator": "k4"}, "`estimator` is 'k4'"),
        (kl.token_kl, {"reduction": "max"}, "`reduction` is 'max'"),
        (kl.token_kl, {"reference": np.zeros((2, 2))}, "`reference` has shape"),
        (kl.token_kl, {"lengths": np.array([3, 4])}, "`lengths` is .*at most 3"),
        (kl.token_kl, {"lengths": np.array([3, -1])}, "`lengths` is -1 at index 1"),
        (kl.token_kl, {"lengths": np.array([1.0, 2.0])}, "`lengths` has dtype float64"),
        (kl.token_kl, {"mask": np.ones((2, 2), bool)}, "`mask` has shape"),
        (kl.token_kl, {"mask": np.full((2, 3), 2)}, "only 0 and 1"),
        (kl.token_kl, {"mask": ROWS < 0, "lengths": np.array([1, 1])}, "both given"),
        (kl.token_kl, {"policy": ROWS[0], "reference": ROWS[0], "lengths": np.array([2, 2])}, "sum to the 3 tokens"),
        (kl.token_kl, {"policy": ROWS[0], "reference": ROWS[0], "reduction": "sum"}, "`lengths` is None"),
        (kl.token_kl, {"kl_ratio": "row"}, "`kl_ratio` is 'row'"),
        (kl.token_kl, {"kl_ratio": "token", "old": np.zeros(2)}, "`old` has shape"),
        (
            kl.token_kl,
            {"policy": ROWS[0], "reference": ROWS[0], "old": ROWS[0], "kl_ratio": "sequence"},
            "`lengths` is None",
        ),
        (logprobs.selective_log_softmax, {"logits": np.array([[0.0, NAN]])}, "maximum is not finite"),
        (logprobs.selective_log_softmax, {"logits": np.array([[-INF, -INF]])}, "maximum is not finite"),
        (logprobs.selective_log_softmax, {"ids": np.array([2])}, "`ids` is 2"),
        (logprobs.selective_log_softmax, {"ids": np.array([0, 1])}, "`ids` has shape"),
        (logprobs.selective_log_softmax, {"logits": np.array([[0, 1]])}, "`logits` has dtype int64"),
        (logprobs.full_kl, {"reference_logprobs": np.zeros((1, 3))}, "`reference_logprobs` has shape"),
        (loss.policy_loss, {"algorithm": "topr"}, "`algorithm` is 'topr'"),
        (loss.policy_loss, {"delta": 1.3}, "`delta` is 1.3, must be above 1 \\+ epsilon_high"),
        (loss.policy_loss, {"epsilon_low": None}, "`epsilon_low`"),
        (loss.policy_loss, {"beta": 0.1, "reference": None}, "`beta` is 0.1"),
        (loss.policy_loss, {"algorithm": "rloo", "beta": 0.1, **dict.fromkeys(CLIP)}, "`beta` is 0.1"),
        (loss.policy_loss, {"beta": 0.1, "kl_ratio": "row"}, "`kl_ratio` is 'row'"),
        (loss.policy_loss, {"algorithm": "dr_grpo", "max_length": None}, "`max_length` is None"),
        (loss.policy_loss, {"algorithm": "bnpo-trl", "micro_batches": [2, 3]}, "`micro_batches` gives blocks"),
        (loss.policy_loss, {"algorithm": "dapo", "dapo_denominator": None}, "`dapo_denominator` is None"),
        (loss.policy_loss, {"algorithm": "dapo", "dapo_denominator": "group", "group_size": 4}, "`group_size` gives"),
        (loss.policy_loss, {"algorithm": "dapo", "dapo_denominator": "trl"}, "`tokens_in_step` is None"),
        (loss.policy_loss, {"algorithm": "gspo", "advantages": np.zeros((6, 5))}, "`advantages` has shape"),
        (loss.policy_loss, {"advantages": np.zeros(5)}, "`advantages` has shape"),
        (loss.policy_loss, {"policy": np.zeros((0, 5))}, "`policy` has shape"),
        (packing.pack_sequences, {"lengths": [1, 11]}, "`lengths` is 11 at index 1, must be at most max_length 10"),
        (packing.pack_sequences, {"lengths": [1, -2]}, "`lengths` is -2 at index 1"),
        (packing.pack_sequences, {"max_length": 0}, "`max_length` is 0"),
        (packing.pack_sequences, {"over_long": "drop"}, "`over_long` is 'drop'"),
        (packing.pack_sequences, {"strategy": "next-fit"}, "`strategy` is 'next-fit'"),
        (preference.preference_loss, {"policy": PAIRS[:3]}, r"must be \(2 P, T\)"),
        (preference.preference_loss, {"loss": "dpo2"}, "'dpo2'"),
        (preference.best_of_n, {"scores": np.array([NAN, NAN])}, "group 0 are all NaN"),
        (ratio.importance_weights, {"correction": "ais"}, "`correction` is 'ais'"),
        (ratio.importance_weights, {"level": "seq_mean"}, "`level` is 'seq_mean'"),
        (ratio.importance_weights, {"c_min": 3.0}, "`c_min`, `c_max` are 3.0, 2.0"),
        (ratio.importance_weights, {"c_max": 0.0}, "`c_min`, `c_max` are None, 0.0"),
        (ratio.importance_weights, {"lengths": np.array([1, 1])}, "`mask` and `lengths` are both given"),
        (ratio.ratio_statistics, {"mask": ROWS > 0}, "holds no token"),
        (sampling.filtered_logprobs, {"order": "vllm"}, "`order` is 'vllm'"),
        (sampling.filtered_logprobs, {"temperature": -1.0}, "`temperature` is -1.0"),
        (sampling.filtered_logprobs, {"top_p": 1.5}, "`top_p` is 1.5"),
        (sampling.filtered_logprobs, {"top_k": -1}, "`top_k` is -1"),
        (sampling.filtered_logprobs, {"xtc_probability": 0.5}, "`xtc_coin` is None"),
        (sampling.filtered_logprobs, {"repetition_penalty": 1.5}, "`repetition_penalty` is 1.5"),
        (sampling.filtered_logprobs, {"repetition_penalty": 1.5, "history": np.array([[6]])}, "`history` is 6"),
        (sampling.sample_tokens, {"uniforms": np.array([1.0])}, "`uniforms` holds"),
        (sampling.uniforms, {"round_": 1 << 32}, "`counter` is 4294967296"),
        (sampling.uniforms, {"seed": 1 << 64}, "`seed` is"),
        (sampling.philox4x32_10, {"key": np.zeros(3, int)}, "must be"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "-".join(value) if isinstance(value, dict) else "",
)
def test_invalid_arguments_are_refused_by_name(
    function: Callable[..., Any], changes: dict[str, Any], message: str
) -> None:
    """The ValueError has the argument, its value and often the rule; the same call without the change succeeds."""
    function(**VALID[function])
    with pytest.raises(ValueError, match=message):
        function(**VALID[function] | changes)


LN2 = math.log(2)
EIGHTHS = np.log([[0.5, 0.25, 0.125, 0.125]])
HF = {"order": "hf", "temperature": 1.0}
XTC = {"xtc_probability": 0.5, "xtc_threshold": 0.1}
REWARDS = {"rewards": np.array([1.0, 3, 0, 8]), "group_size": 2, "ddof": 0, "eps_mode": "threshold"}  # spreads 1 and 4
WEIGHTS = {"old": np.full((1, 3), -1.0), "sampling": np.array([[-1.0, NAN, -1.0 - LN2]]), "level": "token"}  # 1 1 2


@pytest.mark.parametrize(
    ("function", "arguments", "output", "want"),
    [
        (advantages.group_advantages, {**REWARDS, "eps": 1.0}, None, [-1, 1, -1, 1]),  # a spread at the threshold stays
        (advantages.group_advantages, {**REWARDS, "eps": 2.0}, None, [0, 0, -1, 1]),
        (ratio.importance_weights, {**WEIGHTS, "correction": "mis", "c_min": 1.0, "c_max": 1.0}, None, [[1, 1, 0]]),
        (
            ratio.importance_weights,
            {**WEIGHTS, "correction": "tis", "c_min": 1.5, "c_max": 1.75},
            None,
            [[1.5, 1.5, 1.75]],
        ),
        (packing.pack_sequences, {"lengths": [5, 5, 5, 5], "max_length": 10}, 0, [0, 1, 2, 3]),  # ties by index
        (packing.pack_sequences, {"lengths": [6, 7, 3, 4], "max_length": 10}, 0, [1, 2, 0, 3]),  # exact fits
        (packing.pack_sequences, {"lengths": [0, 10, 0], "max_length": 10}, 0, [1, 0, 2]),  # 0 fits into a full bin
        (packing.pack_sequences, {"lengths": [25, 4], "max_length": 10, "over_long": "truncate"}, 2, 0.7),
        (sampling.sample_tokens, {"logits": EIGHTHS, "uniforms": np.array([0.0]), **HF}, 0, [0]),
        (sampling.sample_tokens, {"logits": EIGHTHS, "uniforms": np.array([0.5]), **HF}, 0, [1]),
        (sampling.sample_tokens, {"logits": EIGHTHS, "uniforms": np.array([1 - 2.0**-53]), **HF}, 0, [3]),
        (terms.k3, {"d": np.array([800.0, INF, -INF])}, None, [INF, INF, INF]),
        (preference.best_of_n, {"scores": np.array([NAN, 2, 2, -INF, NAN, NAN]), "group_size": 3}, None, [1, 3]),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_bounds_by_hand(function: Callable[..., Any], arguments: dict[str, Any], output: int | None, want: Any) -> None:
    """What lies exactly at a threshold, a bound or a border, and what is infinite or unscored."""
    result = function(**arguments)
    np.testing.assert_allclose(result if output is None else result[output], want, rtol=1e-15)


@pytest.mark.parametrize(
    ("choice", "kept"),
    [
        ({"top_p": 0.5}, [0]),
        ({"top_p": 0.51}, [0, 1]),
        ({"top_p": 0.0}, [0]),
        ({"min_p": 0.5}, [0, 1]),
        ({**XTC, "xtc_coin": np.array([0.49])}, [2, 3]),
        ({**XTC, "xtc_coin": np.array([0.5])}, [0, 1, 2, 3]),
        ({"temperature": 0.0, "top_k": 3}, [0]),
    ],
)
def test_filters_at_their_thresholds(choice: dict[str, Any], kept: list[int]) -> None:
    """Probabilities 1/2, 1/4, 1/8, 1/8, which no arithmetic rounds."""
    logprobs_ = sampling.filtered_logprobs(EIGHTHS, **HF | choice)
    assert np.flatnonzero(logprobs_[0] > -INF).tolist() == kept


def test_clip_acts_only_strictly_outside() -> None:
    """At the bound the gradient passes; one step beyond it is 0, on the side that the advantage's sign clips."""
    ratios = np.array([[1.25, np.nextafter(1.25, 2), 0.75, np.nextafter(0.75, 0)]])
    for sign, alive in ((1.0, [True, False, True, True]), (-1.0, [True, True, True, False])):
        value, slope = loss.clipped(ratios, np.full((1, 4), sign), 0.75, 1.25, INF)
        assert (slope[0] != 0).tolist() == alive
        assert np.all(value * sign < 0)


@pytest.mark.parametrize(
    ("module", "target", "mistake"),
    [
        (advantages, "scale_divisor", lambda *_: np.full((1, 1), 2.0)),
        (advantages, "constant_groups", lambda rewards: np.ones(len(rewards), bool)),
        (terms, "k3", lambda d: d * 0.0),
        (terms, "select", lambda values, _: values),
        (terms, "total", lambda values: float(values.size)),
        (loss, "dr_grpo_denominator", lambda mask, _: float(mask.size)),
        (loss, "old_or_policy", lambda policy, _: policy),
        (loss, "clipped", lambda ratio, gain, *_: (ratio * gain, ratio * gain)),
        (loss, "estimate", lambda d, *_: (d, d)),
        (ratio, "token_ratio", lambda policy, _: np.ones_like(policy)),
    ],
)
def test_patch_targets_are_alive(module: Any, target: str, mistake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replacing a patch target changes the results of the ops."""

    def answers() -> list[bytes]:
        inputs = loss_inputs(algorithm="dr_grpo", beta=0.1)
        results = [
            subject.OPS["policy_loss"](**inputs),
            subject.OPS["group_advantages"](rewards=np.array([1.0, 3.0, 0.0, 8.0]), group_size=2),
            subject.OPS["token_kl"](policy=inputs["policy"], reference=inputs["reference"], mask=MASK),
        ]
        return [np.asarray(value).tobytes() for result in results for value in result.values()]

    before = answers()
    monkeypatch.setattr(module, target, mistake)
    assert answers() != before
