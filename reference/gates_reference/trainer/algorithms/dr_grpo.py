r"""Dr. GRPO: GRPO without its two biases (Liu et al. 2025, "Understanding R1-Zero-like training", arXiv 2503.20783, section 3.2).

    loss = 1/(B L_max) sum_i sum_t [ -min(r A, clip(r) A) + beta KL ],  A = R - mean of the group

L_max is the configured longest completion, never the longest of the batch. Dividing by n_i favours long wrong answers, and dividing
by the deviation favours questions that are too easy or too hard.
"""

from pydantic.dataclasses import dataclass

from gates_reference.trainer.algorithms import grpo, options


@dataclass(frozen=True, kw_only=True, config=options.CONFIG)
class Settings(options.Clipped):
    """GRPO's settings, with a constant denominator and advantages that are not divided."""

    aggregation: options.Aggregation = "constant"
    advantage_scale: options.Scale = "none"


class DrGrpo(grpo.Grpo):
    """GRPO's surrogate under the constant denominator B L_max."""

    name = "dr_grpo"
