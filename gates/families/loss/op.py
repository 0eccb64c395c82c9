"""Ops of policy losses: from log-probs, from logits, and in a training step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gates.families.loss import textbook, textbook_steps
from gates.model import Op, Output
from gates_reference.algorithms import ALGORITHMS, AXES, listed, without
from gates_reference.oracle import dynamic_sampling, losses

PAPERS = tuple(dict.fromkeys(row.paper for row in ALGORITHMS.values()))


def _choosing(axis: str, word: str) -> str:
    """Return a choice of an axis and the algorithms that have it: `aggregation "constant" (dr_grpo)`."""
    names = listed(row.name for row in ALGORITHMS.values() if getattr(row, axis) == word)
    return f'{axis} "{word}" ({names})'


LOSS_INPUTS = {
    "old": "behaviour log-probs like those of the policy, or None: on-policy, ratio 1 with its gradient alive",
    "reference": "log-probs like those of the policy, or None where beta is 0",
    "advantages": "(B,), or of the shape of the log-probs unless a row has one ratio, as in "
    f"{listed(row.name for row in ALGORITHMS.values() if row.by_row)}",
    "algorithm": ", ".join(f'"{name}"' for name in ALGORITHMS),
    "epsilon_low": f"lower clip width, 1 − ε_low ({_choosing('bound', 'log-clip')}: −ε_low in log space); None where nothing "
    f"bounds the ratio from below, as in {listed(without('epsilon_low'))} without a clip or a lower bound",
    "epsilon_high": f"upper clip width, 1 + ε_high ({_choosing('bound', 'log-clip')}: ε_high in log space; "
    f"{_choosing('bound', 'cap')}: its cap); None without either, as in {listed(without('epsilon_high'))} without a clip",
    "delta": "two-sided bound on the ratio, above 1 + ε_high, or None",
    "beta": f"weight of the KL to the reference, at least 0; 0 for {listed(x.name for x in ALGORITHMS.values() if not x.kl_in_loss)}",
    "kl_ratio": 'what multiplies the KL: "none", "token" or "sequence"; None where beta is 0',
    "max_length": f"L_max of {_choosing('aggregation', 'constant')}, else None",
    "micro_batches": f"rows of each micro-batch of {_choosing('aggregation', 'micro-batch')}, else None",
    "dapo_denominator": f'"global", "group" or "trl" of {_choosing("aggregation", "token-mean")}, else None',
}
MORE_LOSS_INPUTS = {  # further inputs of the loss of log-probs
    "lengths": "(B,) int64 valid prefixes instead of a mask, or the rows' lengths of flat (N,) arrays; or None",
    "kl_estimator": '"k1", "k2" or "k3" of reference − policy; None where beta is 0',
    "group_size": 'rows of a prompt, for the denominator "group", else None',
    "tokens_in_step": 'tokens of the generation batch times this window\'s share, for the denominator "trl", else None',
    "weights": "(B,) or, where advantages may be, per token: off-policy weights, constants; or None",
    "cispo_bound": f'"relative" (c = 1 + ε_high) or "absolute" (c = ε_high) of {_choosing("bound", "cap")}, else None',
    "sapo_temperature_positive": f"τ of {_choosing('bound', 'gate')} where A > 0, else None",
    "sapo_temperature_negative": f"τ of {_choosing('bound', 'gate')} elsewhere, else None",
}
AXES_INPUTS = {  # optional inputs, given only in cases about them
    **{
        axis: f"{listed([chr(34) + word + chr(34) for word in words], 'or')}: another choice than the algorithm's, in cases "
        "about one; a single declared choice is passed only to a function that has this argument, or **keywords"
        for axis, words in AXES.items()
    },
    "kl_aggregation": '"row-mean", "row-sum" or "token-mean": how the KL is averaged where it is not as the rest of the loss; passed '
    "as the axes are",
    "vespo_k_positive": f"k of {_choosing('bound', 'taper')} where A ≥ 0",
    "vespo_lambda_positive": f"λ of {_choosing('bound', 'taper')} where A ≥ 0",
    "vespo_k_negative": f"k of {_choosing('bound', 'taper')} elsewhere",
    "vespo_lambda_negative": f"λ of {_choosing('bound', 'taper')} elsewhere",
}


OPTIONAL = ("delta", "weights")
NOT_IN_PARTS = ("row_mask", "kl_clamp", "count_eps")  # optional too


def _clips() -> str:
    """Return the algorithms of `loss_with_options` with their clip widths, which are not passed."""
    widths = (f'"{name}" (ε_low {low:g}, ε_high {high:g})' for name, (low, high) in textbook_steps.CLIPS.items())
    return listed(widths, "or")


def _preset(conventions: Mapping[str, Any]) -> dict[str, str]:
    """Return the choice of a case's algorithm on each axis."""
    row = ALGORITHMS.get(str(conventions.get("algorithm")))
    return {} if row is None else {axis: getattr(row, axis) for axis in AXES}


OF_VESPO = tuple(name for name in AXES_INPUTS if name.startswith("vespo"))
OF_ROWS = ("cispo_bound", "sapo_temperature_positive", "sapo_temperature_negative", *OF_VESPO)  # of presets
POLICY_LOSS = Op(
    name="policy_loss",
    outputs={"loss": Output(kind="scalar"), "gradient": Output(like="policy")},
    inputs={
        "policy": "(B, T), or (N,) with lengths: float32 or float64 log-probs of the current policy",
        "mask": "(B, T) bool, true on completion tokens, the first EOS included; or None",
        "row_mask": "(B,) bool, false on rows that do not train: they have no tokens and count in B; not given without any",
        "kl_clamp": "the largest |KL estimate| of a token; not given without one",
        "count_eps": "ε, added to every count of tokens by which a mean of token losses divides; not given without one",
        **LOSS_INPUTS,
        **MORE_LOSS_INPUTS,
        **AXES_INPUTS,
    },
    source=" · ".join(
        f"{listed(x.title for x in ALGORITHMS.values() if x.paper == paper)} {paper}" for paper in PAPERS
    ),
    formula="l = −min(min(r, δ)·A, clip(r, 1−ε_low, 1+ε_high)·A) + β·KL, aggregated as the algorithm says",
    oracle=losses.policy_loss,
    optional=(*NOT_IN_PARTS, *OPTIONAL, *AXES_INPUTS),
    settings=OF_VESPO,
    textbook=textbook.policy_loss,
    key=("algorithm",),
    axes={axis: {word: choice.text for word, choice in words.items()} for axis, words in AXES.items()},
    preset=_preset,
)
LOSS_FROM_LOGITS = Op(
    name="loss_from_logits",
    outputs={"loss": Output(kind="scalar"), "gradient": Output(like="logits"), "logprobs": Output(kind="f", ndim=2)},
    inputs={
        "logits": "(B, L, V) float32 of right-padded rows, prompt then completion",
        "ids": "(B, L) int32",
        "prompt_lengths": "(B,) int64",
        "lengths": "(B,) int64 completion tokens",
        "temperature": "of the scoring",
        **LOSS_INPUTS,
        **{name: {**MORE_LOSS_INPUTS, **AXES_INPUTS}[name] for name in OF_ROWS},
    },
    source="logits at position t score token t+1; then as policy_loss",
    formula="lp_t = x[id]/τ − logsumexp(x/τ); ∂loss/∂x = ∂loss/∂lp · (onehot − softmax)/τ",
    optional=("delta", *OF_ROWS),
    settings=OF_ROWS,
    textbook=textbook_steps.loss_from_logits,
    key=("algorithm",),
)
POLICY_LOSS_IN_PARTS = replace(
    POLICY_LOSS,
    name="policy_loss_in_parts",
    inputs={
        **{
            name: text
            for name, text in POLICY_LOSS.inputs.items()
            if name not in {*NOT_IN_PARTS, *AXES, "kl_aggregation"}
        },
        "parts": "rows of each micro-batch, in order; they add up to B",
    },
    source="gradient accumulation over micro-batches, with the denominators of the whole step",
    formula="Σ over parts of each part's share of the step's loss, and the gradient of each part in its rows",
    oracle=None,
    optional=(*OPTIONAL, *OF_VESPO),
    settings=OF_VESPO,
    textbook=textbook.policy_loss_in_parts,
)
REWARDED_LOSS = Op(
    name="rewarded_loss",
    outputs={
        "loss": Output(kind="scalar"),
        "gradient": Output(like="policy"),
        "advantages": Output(kind="f", ndim=1),
    },
    inputs={
        "policy": "(B, T) float32 log-probs of the current policy",
        "old": "behaviour log-probs of the same shape",
        "reference": "log-probs of the reference policy of the same shape",
        "mask": "(B, T) bool, true on completion tokens",
        "rewards": "(B,) float64, prompt-major",
        "group_size": "G, divides B",
        "beta": "weight of the KL in the reward, above 0",
    },
    source="RLOO, arXiv 2402.14740, eqs. 1 and 6",
    formula="A_i = leave-one-out of R_i − β·Σ_t(old − reference); loss = −mean_i exp(Σ_t D)·A_i, A a constant",
    textbook=textbook_steps.rewarded_loss,
)
LOSS_WITH_OPTIONS = Op(
    name="loss_with_options",
    outputs={
        "loss": Output(kind="scalar"),
        "gradient": Output(like="policy"),
        "entropy_gradient": Output(like="policy"),
    },
    inputs={
        "policy": "(B, T) float32 log-probs of the current policy",
        "old": "behaviour log-probs of the same shape",
        "reference": "log-probs of the reference policy of the same shape",
        "sampling": "the sampler's log-probs of the same shape; NaN where it recorded none, which is a convention",
        "entropy": "(B, T) float32 entropies of the policy in nats, variables too",
        "advantages": "(B,) float32",
        "mask": "(B, T) bool, true on completion tokens",
        "algorithm": f"{_clips()}; dapo with the global denominator",
        "beta": "weight of k3 in the loss",
        "correction": '"tis", "mis", or None',
        "correction_level": '"token" or "seq_sum"',
        "correction_low": "c_min, or None",
        "correction_high": "c_max",
        "entropy_share": "ρ: the share of tokens, those of highest entropy, that train the policy",
        "entropy_bonus": "c",
        "parts": "rows of each micro-batch, in order; they add up to B",
    },
    source="TIS and MIS: Yao et al. 2025; top-entropy mask: arXiv 2506.01939; TRL for the denominators",
    formula="l·w·e + β·KL aggregated as the algorithm says − c·Σ H e / Σ e, e = [H ≥ quantile_{1−ρ} of the step]",
    textbook=textbook_steps.loss_with_options,
    key=("algorithm",),
)
LOSS_CONSTANTS = Op(
    name="loss_constants",
    outputs={
        "loss": Output(kind="scalar"),
        "gradient": Output(like="policy"),
        "old_gradient": Output(like="policy"),
        "reference_gradient": Output(like="policy"),
        "sampling_gradient": Output(like="policy"),
    },
    inputs={
        name: text
        for name, text in LOSS_WITH_OPTIONS.inputs.items()
        if name not in {"entropy", "parts", "entropy_share", "entropy_bonus", "algorithm"}
    }
    | {
        "old": "behaviour log-probs of the same shape, or None: on-policy, and weights are those of the policy itself",
        "algorithm": "any policy loss, with clip widths of the subject's own: none are passed",
        "kl_estimator": '"k3" or "k2"',
        "kl_ratio": 'by which ratio the KL is weighed: "none", "token" or "sequence"',
        "correction_level": '"token" or "seq_sum"; None without a correction',
        "correction_high": "c_max, or None",
    },
    source="PPO, arXiv 1707.06347: the old policy is a constant; so are a reference and the weights of Yao et al. 2025",
    formula="`gradient` ∂loss/∂policy; `old_gradient`, `reference_gradient`, `sampling_gradient` in the other log-probs",
    textbook=textbook_steps.loss_constants,
    key=("algorithm",),
)
LOSS_OF_COMPLETIONS = Op(
    name="loss_of_completions",
    outputs={"loss": Output(kind="scalar"), "gradient": Output(like="policy")},
    inputs={
        "policy": "(B, T) float32 log-probs of the current policy; T is the longest completion that is allowed",
        "old": "behaviour log-probs of the same shape",
        "reference": "log-probs of the reference policy of the same shape, or None where beta is 0",
        "advantages": "(B,) float32",
        "lengths": "(B,) int64 tokens of each completion, its end token included",
        "ended": "(B,) bool, whether a completion has an end token; without one it is truncated",
        "mask_truncated": "whether truncated completions are left out of the loss",
        "group_size": "G, divides B",
        "max_length": "T",
        "micro_batch_rows": "rows of a micro-batch; the last one may have fewer",
        **{
            name: LOSS_INPUTS[name] for name in ("algorithm", "epsilon_low", "epsilon_high", "beta", "dapo_denominator")
        },
    },
    source="TRL's GRPOConfig, mask_truncated_completions; DAPO, arXiv 2503.14476, section 3.4",
    formula="policy_loss with m_t = 1 for t < n of completions that ended; the others count in B and in no number of tokens",
    key=("algorithm",),
)
KEEP_GROUPS = Op(
    name="keep_groups",
    outputs={"keep": Output(kind="b", ndim=1)},
    inputs={
        "rewards": "(R, F) float64, prompt-major, before penalties; NaN is not scored",
        "weights": "(F,)",
        "group_size": "G, divides R",
        "convention": '"accuracy" or "total"',
        "accuracy": "the column of the accuracy",
    },
    source="DAPO, arXiv 2503.14476, eq. 11",
    formula="max > min over the scored rewards of a group, compared exactly",
    oracle=dynamic_sampling.keep_groups,
)
OVERLONG_PENALTY = Op(
    name="overlong_penalty",
    outputs={"penalty": Output(kind="f", ndim=1)},
    inputs={"lengths": "(R,) int64 completion tokens", "limit": "L_max", "buffer": "L_c, from 1 to L_max"},
    source="DAPO, arXiv 2503.14476, eq. 13",
    formula="0 if n ≤ L_max − L_c; (L_max − L_c − n)/L_c up to L_max; else −1",
    oracle=dynamic_sampling.overlong_penalty,
    textbook=textbook_steps.overlong_penalty,
)
