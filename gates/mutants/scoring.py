"""Mistakes between a model's hidden states and the scores of its completions."""

from gates.mutants.planting import in_trainer

in_trainer(
    "scoring.head-before-the-last-norm",
    "heads:hidden",
    "scoring:without_last_norm",
    mistake="the head is given the last block's output, without the last norm",
    arises="taking hidden_states[-1] where a library has the norm in the body",
    caught_by=("scoring.log-probs.match-logits", "scoring.entropies.match-logits"),
)
in_trainer(
    "scoring.slots-in-the-wrong-order",
    "logprobs:in_table",
    "scoring:column_by_column",
    mistake="scores are put back column by column that were taken row by row",
    arises="a reshape of what was gathered by a mask",
    caught_by=("scoring.log-probs.match-logits", "scoring.entropies.match-logits"),
)
in_trainer(
    "scoring.entropy-untempered",
    "logprobs:token_entropy",
    "scoring:untempered_entropy",
    mistake="entropies are those of temperature 1 beside log-probs of another",
    arises="two calls, one of which was given the temperature",
    caught_by=("scoring.entropies.match-logits",),
)
