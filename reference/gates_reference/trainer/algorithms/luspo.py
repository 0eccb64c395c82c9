r"""LUSPO: Length-Unbiased Sequence Policy Optimization (arXiv 2602.05261).

    loss = mean_i n_i l_i,  where l_i is GSPO's clipped loss of the completion's mean ratio

The weight of a completion is its length, so that tokens of long completions do not count less. The KL is summed over the
completion's tokens.
"""

from pydantic.dataclasses import dataclass

from gates_reference.trainer.algorithms import gspo, options


@dataclass(frozen=True, kw_only=True, config=options.CONFIG)
class Settings(gspo.Settings):
    """GSPO's settings, summed over the tokens of a row."""

    aggregation: options.Aggregation = "row-sum"


class Luspo(gspo.Gspo):
    """GSPO's surrogate times the length of the completion."""

    name = "luspo"
