r"""TRL's loss_type "bnpo": GRPO's tokens averaged within each micro-batch, and the micro-batches averaged.

    loss = mean over micro-batches of [ sum_i sum_t l_t / sum_i n_i ]

By definition the value depends on how a step is split. This is not the Beta-normalised BNPO of arXiv 2506.02864.
Source: TRL's GRPOTrainer, `loss_type="bnpo"`.
"""

from pydantic.dataclasses import dataclass

from gates_reference.trainer.algorithms import grpo, options


@dataclass(frozen=True, kw_only=True, config=options.CONFIG)
class Settings(options.Clipped):
    """GRPO's settings, averaged by micro-batch."""

    aggregation: options.Aggregation = "micro-batch"


class BnpoTrl(grpo.Grpo):
    """GRPO's surrogate, averaged over the tokens of each micro-batch."""

    name = "bnpo-trl"
