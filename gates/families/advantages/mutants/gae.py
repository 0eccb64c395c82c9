"""Mutations of generalised advantage estimation."""

from gates.families.hosts import in_numpy

GATE = ("advantages.gae.matches-definition",)

in_numpy(
    "gae.terminal-keeps-the-trace",
    "advantages:gae",
    "advantages.patches:trace_over_the_end",
    mistake="a terminal token drops the value that follows it, but not the advantage",
    arises="nextnonterminal in the residual alone",
    theme="advantages",
    symptom="Tokens before the end of an episode are credited with the next one; longer batches learn worse.",
    caught_by=GATE,
)
in_numpy(
    "gae.bootstrap-forgotten",
    "advantages:gae",
    "advantages.patches:nothing_follows",
    mistake="the value after the last token of a row is 0",
    arises="values padded with a zero at the end",
    theme="advantages",
    symptom="Completions that the limit cut look worse than they are: the policy learns to be short.",
    caught_by=GATE,
)
in_numpy(
    "gae.masked-slots-are-steps",
    "advantages:gae",
    "advantages.patches:every_slot",
    mistake="slots without a token are stepped through, as if they were tokens",
    arises="the recurrence over the padded width, and the mask applied afterwards",
    theme="masks and shifts",
    symptom="Tokens before tool output or padding are discounted more than others, by rewards that nobody gave.",
    caught_by=GATE,
)
