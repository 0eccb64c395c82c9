r"""DPO: Direct Preference Optimization (Rafailov et al. 2023, arXiv 2305.18290, eq. 7), and two of its relatives.

    x = (sum_t policy - reference of the chosen completion) - (the same of the rejected one),  Delta = beta x
    sigmoid: -(1 - s) log sigma(Delta) - s log sigma(-Delta),  s the label smoothing (conservative DPO, Mitchell 2023)
    hinge:   max(0, 1 - Delta)                                 (SLiC-HF, arXiv 2305.10425)
    ipo:     (x - 1 / (2 beta))^2                              (IPO, arXiv 2310.12036, eq. 17)

The loss is the mean over pairs. IPO's x is the sum or the mean over each completion's tokens. Reference-free means a uniform
reference: its pass is left out.
"""

from typing import Annotated, Literal

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from pydantic.dataclasses import dataclass

from gates_reference.trainer import double
from gates_reference.trainer.algorithms import options
from gates_reference.trainer.algorithms.options import Positive
from gates_reference.trainer.algorithms.protocol import Algorithm, Loss, MicroBatch, Rewards, StepTotals
from gates_reference.trainer.preference import margins


@dataclass(frozen=True, kw_only=True, config=options.CONFIG)
class Settings:
    """The loss of a margin.

    Attributes:
        loss: "sigmoid", "hinge" or "ipo".
        beta: the factor of the margin; a larger one keeps the policy closer to the reference.
        label_smoothing: s, the assumed share of wrong labels, below 0.5; "sigmoid" only.
        ipo_lengths: "sum" (TRL's Online DPO) or "mean" (TRL's DPO) over a completion's tokens; "ipo" only.
        reference_free: leave the reference out.
    """

    loss: Literal["sigmoid", "hinge", "ipo"] = "sigmoid"
    beta: Positive = 0.1
    label_smoothing: Annotated[float, Field(ge=0, lt=0.5)] = 0.0
    ipo_lengths: Literal["sum", "mean"] = "sum"
    reference_free: bool = False

    def __post_init__(self) -> None:
        """Refuse settings that the loss does not read."""
        if self.label_smoothing > 0 and self.loss != "sigmoid":
            raise ValueError(f"label_smoothing is {self.label_smoothing}, must be 0 for loss {self.loss!r}")
        if self.ipo_lengths == "mean" and self.loss != "ipo":
            raise ValueError(f"ipo_lengths is 'mean', must be 'sum' for loss {self.loss!r}")


class Dpo(Algorithm):
    """An algorithm over pairs of rows; `protocol` describes their order."""

    name = "dpo"
    pairs = True

    def __init__(self, settings: Settings) -> None:
        """Keep the settings."""
        self.settings = settings
        self.needs_reference = not settings.reference_free

    def advantages(self, rewards: Rewards, *, old_kl: NDArray[np.float64] | None = None) -> NDArray[np.float32]:
        """Return +1 for the chosen and -1 for the rejected completion (R,): the higher reward is chosen, the first of equal ones.

        The rewards of offline pairs are 1 and 0, chosen first.
        """
        del old_kl
        if rewards.group_size != 2:
            raise ValueError(f"group_size is {rewards.group_size}, must be 2 for {self.name!r}: pairs of completions")
        return margins.prefer(rewards.total())

    def keep(self, rewards: Rewards) -> NDArray[np.bool_]:
        """Keep the pairs (P,) that have a preference: both completions are scored."""
        return np.asarray(~np.isnan(rewards.total()).reshape(-1, 2).any(axis=1))

    def loss(self, batch: MicroBatch, totals: StepTotals) -> Loss:
        """Return the micro-batch's share of the mean over the step's pairs; pairs without a preference add 0 and are counted."""
        s = self.settings
        signs = margins.signs_of(batch)
        of_rows = margins.log_ratios(batch, reference_free=s.reference_free, average=s.ipo_lengths == "mean")
        values = of_margin(margins.margin(of_rows, signs), s)
        known = signs[:, :1] != 0
        value = double.total(mx.where(known, values, 0.0)) / (totals.rows // 2)
        nothing = mx.zeros(())
        return Loss(value, value, nothing, nothing)


def of_margin(x: double.Double, settings: Settings) -> mx.array:
    """Return the loss of each pair (P, 1) from its margin x."""
    if settings.loss == "ipo":
        return (x.high - 1.0 / (2.0 * settings.beta) + x.low) ** 2
    delta = settings.beta * x.high + settings.beta * x.low
    if settings.loss == "hinge":
        return mx.maximum(0.0, 1.0 - delta)
    s = settings.label_smoothing
    wanted = margins.minus_log_sigmoid(delta)
    return wanted if s == 0 else (1.0 - s) * wanted + s * margins.minus_log_sigmoid(-delta)
