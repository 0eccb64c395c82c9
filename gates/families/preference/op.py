"""Ops of preference learning: losses of pairs, KTO's loss of labelled rows, and who is chosen by scores."""

from __future__ import annotations

from gates.families.preference import kto, program
from gates.model import Op, Output
from gates_reference.oracle import preference, preference_choice

PREFERENCE_LOSS = Op(
    name="preference_loss",
    outputs={"loss": Output(kind="scalar"), "gradient": Output(like="policy")},
    inputs={
        "policy": "(2P, T) float32 or float64 log-probs; row 2k is chosen, row 2k + 1 rejected",
        "reference": "log-probs of the same shape, or None: reference-free (orpo, simpo and cpo always)",
        "mask": "(2P, T) bool, true on completion tokens, false on the prompt and on padding",
        "loss": '"dpo", "hinge", "ipo", "dpop", "orpo", "simpo" or "cpo"',
        "beta": "β, above 0; λ of orpo",
        "label_smoothing": "s of dpo, in [0, 0.5), else None",
        "lengths": '"sum" or "mean" for ipo, else None',
        "penalty": "λ of dpop, else None",
        "margin": "γ of simpo, else None",
        "nll": "α of cpo, else None",
        "attention_mask": "(2P, T) bool, true on prompt and completion: orpo's likelihood is the mean over all these "
        "tokens of the chosen rows, as in TRL; not given, it is each completion's own mean",
    },
    optional=("attention_mask",),
    source="DPO arXiv 2305.18290 · SLiC-HF 2305.10425 · IPO 2310.12036 · DPOP 2402.13228 · ORPO 2403.07691 · SimPO "
    "2405.14734 · CPO 2401.08417",
    formula="Δ = β[(lp_c − ref_c) − (lp_r − ref_r)], summed over completion tokens; dpo: −(1−s) log σ(Δ) − s log σ(−Δ)",
    oracle=preference.preference_loss,
    textbook=program.preference_loss,
    key=("loss",),
)
KTO_LOSS = Op(
    name="kto_loss",
    outputs={"loss": Output(kind="scalar"), "gradient": Output(like="policy")},
    inputs={
        "policy": "(B, T) float32 or float64 log-probs",
        "reference": "log-probs of the same shape",
        "mask": "(B, T) bool, true on completion tokens",
        "desirable": "(B,) bool",
        "mismatched": "(M,) summed log-ratios of completions under prompts that are not theirs",
        "beta": "β, above 0",
        "desirable_weight": "λ_D",
        "undesirable_weight": "λ_U",
    },
    source="KTO, arXiv 2402.01306, section 4",
    formula="λ_D(1 − σ(β(lr − z0))) or λ_U(1 − σ(β(z0 − lr))), z0 = max(0, mean of mismatched lr), a constant",
    oracle=preference.kto_loss,
    textbook=kto.kto_loss,
)
PREFER = Op(
    name="prefer",
    outputs={"signs": Output(kind="f", ndim=1)},
    inputs={"scores": "(2P,) float64, two completions of each prompt in turn; NaN is not scored"},
    source="Online DPO, arXiv 2402.04792, with an oracle preference of 0 or 1",
    formula="+1 for the higher score, −1 for the other; a tie prefers the first; 0 and 0 where one is not scored",
    oracle=preference_choice.prefer,
)
BEST_OF_N = Op(
    name="best_of_n",
    outputs={"rows": Output(kind="i", ndim=1)},
    inputs={"scores": "(R,) float64, prompt-major; NaN is not scored", "group_size": "n, divides R"},
    source="Best-of-N, arXiv 2009.01325",
    formula="the row of the highest score that is not NaN, the lowest of several; all NaN is an error",
    oracle=preference_choice.best_of_n,
)
WINNER_LOSS = Op(
    name="winner_loss",
    outputs={"loss": Output(kind="scalar"), "gradient": Output(like="policy")},
    inputs={
        "policy": "(R, T) float32 log-probs, prompt-major",
        "mask": "(R, T) bool, true on completion tokens",
        "scores": "(R,) float64; NaN is not scored",
        "group_size": "n, divides R",
        "parts": "rows of each micro-batch, in order; they add up to R",
    },
    source="Best-of-N distilled by supervised fine-tuning on the winner",
    formula="1/P Σ_p (1/n_w) Σ_t −lp_t of the prompt's winner w",
    textbook=program.winner_loss,
)
