"""Ops of advantages."""

from __future__ import annotations

from gates.families.advantages import program
from gates.model import Op, Output
from gates_reference.oracle import advantages

NAN_UNSCORED = {"nan_rewards": "unscored"}  # a rule of Gates, asked only of subjects that declare it

GROUP_ADVANTAGES = Op(
    name="group_advantages",
    outputs={"advantages": Output(like="rewards")},
    inputs={
        "rewards": "(B,) float32 or float64, prompt-major; NaN means not scored, where nan_rewards=('unscored',) is declared",
        "group_size": "G, divides B",
        "scale": '"group", "batch" or "none": whose deviation divides',
        "ddof": "0 or 1; None with scale none",
        "eps": "at least 0; None with scale none",
        "eps_mode": '"add" (std + ε), "inside" (sqrt(var + ε)), "threshold" (0 where std < ε), "floor" (the larger of both) or '
        '"threshold-add" (0 where std < ε, else std + ε); None with scale none',
        "baseline": '"mean" or "leave-one-out" of the group, "batch" (the mean of the batch) or "none"; the last two not with '
        "scale group",
    },
    source="DeepSeekMath, arXiv 2402.03300, section 4.1.2; Dr. GRPO, arXiv 2503.20783; RLOO, arXiv 2402.14740; "
    "REINFORCE++, arXiv 2501.03262",
    formula="A_i = (R_i − baseline_i) / divisor; prompt-major groups of G",
    oracle=advantages.group_advantages,
    textbook=program.group_advantages,
)
NORMALISE_THEN_SUM = Op(
    name="normalise_then_sum",
    outputs={"advantages": Output(kind="f", ndim=1)},
    inputs={
        "rewards": "(B, F) float32 or float64, one column per reward function; NaN as in group_advantages",
        "weights": "(F,) of the same dtype",
        "group_size": "G, divides B",
        "group_ddof": "0 or 1, of the deviation in each group",
        "group_eps": "added to it",
        "batch_ddof": "0 or 1, of the deviation of the weighted sums over the batch",
        "batch_eps": "added to it",
    },
    source="GDPO, arXiv 2601.05242",
    formula="z_f = (R_f − mean_g) / (std_g + ε); s = Σ_f w_f z_f; A = (s − mean) / (std + ε) over the batch",
    oracle=advantages.normalise_then_sum,
    textbook=program.normalise_then_sum,
)
